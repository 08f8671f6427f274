"""A mirror hears of each change once: what meets a bug of ours is handed on again, and keeps nothing else."""

import asyncio

import pytest

from speaker.agent.mirrors import AGAIN_SECONDS, Delivery
from speaker.api.objects import Key
from speaker.cluster.feed import Change


class World:
    """Objects by name, of which some cannot be handed on; what was, how often it was tried, and the errors."""

    def __init__(self):
        self.poison, self.seen, self.errors, self.tries = set(), [], [], 0
        self.delivery = Delivery(self._deliver, self)

    def internal_error(self, task, error):
        self.errors.append((task, str(error)))

    def _deliver(self, changes):
        self.tries += 1
        for change in changes:
            if change.key.name in self.poison:
                raise TypeError(change.key.name)
        self.seen.append([(change.key.name, change.after) for change in changes])

    def hear(self, *names, after=1):
        self.delivery(tuple(Change(Key("", name), None, after) for name in names))

    async def pass_time(self):
        await asyncio.sleep(AGAIN_SECONDS)


@pytest.fixture
def play(in_virtual_time):
    """``play(story)``: with a world."""

    def played(story):
        async def whole():
            await story(World())

        in_virtual_time(whole())

    return played


def test_what_comes_is_handed_on_as_it_came_and_nothing_too(play):
    async def story(world):
        world.hear("a", "b")
        world.hear()
        assert world.seen == [[("a", 1), ("b", 1)], []]
        await world.pass_time()
        assert world.tries == 2

    play(story)


def test_one_that_cannot_be_handed_on_keeps_no_other_and_is_told(play):
    async def story(world):
        world.poison = {"b"}
        world.hear("a", "b", "c")
        assert world.seen == [[("a", 1)], [("c", 1)]]
        assert ("mirror", "b") in world.errors

    play(story)


def test_it_is_handed_on_when_that_works_again_though_nothing_else_comes(play):
    async def story(world):
        world.poison = {"b"}
        world.hear("a", "b")
        await world.pass_time()
        assert world.seen == [[("a", 1)]]
        world.poison = set()
        await world.pass_time()
        assert world.seen == [[("a", 1)], [("b", 1)]]
        await world.pass_time()
        assert world.seen == [[("a", 1)], [("b", 1)]], "once"

    play(story)


def test_it_is_handed_on_before_what_comes_next_and_of_one_that_changed_again_only_what_it_is_now(play):
    async def story(world):
        world.poison = {"a", "b"}
        world.hear("a", "b", after=1)
        world.poison = set()
        world.hear("b", after=2)
        assert world.seen == [[("a", 1), ("b", 2)]]
        await world.pass_time()
        assert world.seen == [[("a", 1), ("b", 2)]]

    play(story)


def test_however_often_it_fails_one_wait_is_under_way(play):
    async def story(world):
        world.poison = {"a"}
        for after in range(5):
            world.hear("a", after=after)
        tries = world.tries
        await world.pass_time()
        assert world.tries == tries + 2, "together, and by itself"
        world.poison = set()
        await world.pass_time()
        assert world.seen == [[("a", 4)]]

    play(story)
