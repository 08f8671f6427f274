"""A mirror hears of each change once: what meets a bug of ours is handed on again, and keeps nothing else."""

from speaker.agent.mirrors import AGAIN_SECONDS, Delivery
from speaker.api.objects import Key
from speaker.cluster.store import Change


class World:
    """Objects by name, of which some cannot be handed on; what was, the errors, and what is to be done later."""

    def __init__(self):
        self.poison, self.seen, self.errors, self.later = set(), [], [], []
        self.delivery = Delivery(self._deliver, self, lambda seconds, what: self.later.append((seconds, what)))

    def internal_error(self, task, error):
        self.errors.append((task, str(error)))

    def _deliver(self, changes):
        for change in changes:
            if change.key.name in self.poison:
                raise TypeError(change.key.name)
        self.seen.append([(change.key.name, change.after) for change in changes])

    def hear(self, *names, after=1):
        self.delivery(tuple(Change(Key("", name), None, after) for name in names))

    def pass_time(self):
        due, self.later = self.later, []
        for seconds, what in due:
            assert seconds == AGAIN_SECONDS
            what()


def test_what_comes_is_handed_on_as_it_came_and_nothing_too():
    world = World()
    world.hear("a", "b")
    world.hear()
    assert world.seen == [[("a", 1), ("b", 1)], []]
    assert not world.later


def test_one_that_cannot_be_handed_on_keeps_no_other_and_is_told():
    world = World()
    world.poison = {"b"}
    world.hear("a", "b", "c")
    assert world.seen == [[("a", 1)], [("c", 1)]]
    assert ("mirror", "b") in world.errors


def test_it_is_handed_on_when_that_works_again_though_nothing_else_comes():
    world = World()
    world.poison = {"b"}
    world.hear("a", "b")
    world.pass_time()
    assert world.seen == [[("a", 1)]]
    world.poison = set()
    world.pass_time()
    assert world.seen == [[("a", 1)], [("b", 1)]]
    world.pass_time()
    assert world.seen == [[("a", 1)], [("b", 1)]], "once"


def test_it_is_handed_on_before_what_comes_next_and_of_one_that_changed_again_only_what_it_is_now():
    world = World()
    world.poison = {"a", "b"}
    world.hear("a", "b", after=1)
    world.poison = set()
    world.hear("b", after=2)
    assert world.seen == [[("a", 1), ("b", 2)]]
    world.pass_time()
    assert world.seen == [[("a", 1), ("b", 2)]]


def test_however_often_it_fails_one_wait_is_under_way():
    world = World()
    world.poison = {"a"}
    for after in range(5):
        world.hear("a", after=after)
    assert len(world.later) == 1
    world.poison = set()
    world.pass_time()
    assert world.seen == [[("a", 4)]]
