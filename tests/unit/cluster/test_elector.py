"""The elector: never two leaders, by clocks that agree on nothing; and always one in the end."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speaker.cluster.lease import LAST_TERM, Elector, LeaseRecord, Look, Order, Rest, Timing, Write
from speaker.errors import SettingError

TIMING = Timing(duration=15, renew_within=10, retry=2, request=2)
SHORT = Timing(duration=6, renew_within=5.0, retry=2.0, request=1.5)


def elector(identity: str = "me", timing: Timing = TIMING) -> Elector:
    return Elector(identity, timing)


def held_by(holder: str, renewed: str = "t0", transitions: int = 3, duration: float = 15) -> LeaseRecord:
    return LeaseRecord(holder, duration, transitions, renewed, f"v-{renewed}")


def leads(identity: str = "me", at: float = 100.0) -> Elector:
    one = elector(identity)
    assert one.step(at) == Look()
    one.looked(None, at)
    order = one.step(at)
    assert isinstance(order, Write)
    one.written(replace(order.record, version="1"), at, at)
    return one


def test_where_there_is_no_lease_it_makes_one_and_leads():
    one = elector()
    one.looked(None, 100)
    assert one.step(100) == Write(LeaseRecord("me", 15, 0), over=None)
    assert one.leadership(100) is None
    one.written(LeaseRecord("me", 15, 0, version="7"), sent_at=100, now=101)
    assert (one.leadership(101).term, one.leadership(101).version) == (0, "7")
    assert one.step(101) == Rest(102)
    assert one.step(102) == Write(LeaseRecord("me", 15, 0), over="7")


def test_leading_counts_from_when_the_renewal_was_sent():
    one = leads(at=100)
    one.written(LeaseRecord("me", 15, 0, version="2"), sent_at=102, now=104)
    assert one.leadership(111.9)
    assert one.leadership(112) is None


@pytest.mark.parametrize(
    ("looks", "taken_at"),
    [
        ([(100, "t0")], 115),
        ([(100, "t0"), (102, "t0"), (104, "t0")], 115),  # looked at again, but it had not changed
        ([(100, "t0"), (102, "t1"), (104, "t1")], 117),  # it lived at 102, by my clock
    ],
)
def test_another_s_lease_is_taken_when_it_has_not_changed_for_its_own_duration(looks, taken_at):
    one = elector()
    for now, renewed in looks:
        one.looked(held_by("other", renewed), now)
        assert isinstance(one.step(now), Rest)
    assert one.step(taken_at - 0.1) == Look()
    one.looked(held_by("other", looks[-1][1]), taken_at - 0.1)
    assert one.step(taken_at - 0.1) == Rest(taken_at)  # not a whole retry later
    one.looked(held_by("other", looks[-1][1]), taken_at)
    assert one.step(taken_at) == Write(LeaseRecord("me", 15, 4), over=f"v-{looks[-1][1]}")


def test_a_timestamp_from_the_future_holds_nobody_up():
    one = elector()
    one.looked(held_by("other", "2999-01-01T00:00:00Z"), 0)
    one.step(0)
    one.looked(held_by("other", "2999-01-01T00:00:00Z"), 15)
    assert isinstance(one.step(15), Write)


def test_a_lease_given_back_is_taken_at_once():
    one = elector()
    one.looked(held_by("", duration=1), 100)
    assert one.step(100) == Write(LeaseRecord("me", 15, 4), over="v-t0")


def test_its_own_lease_is_taken_back_at_once_in_the_same_term():
    one = elector()
    one.looked(held_by("me"), 100)
    assert one.step(100) == Write(LeaseRecord("me", 15, 3), over="v-t0")
    assert one.leadership(100) is None  # before the write is done, it is only a name


@pytest.mark.parametrize("lost", [False, True])
def test_a_lease_that_somebody_wrote_the_last_term_into_is_taken_all_the_same(lost):
    one = elector()
    one.looked(held_by("other", transitions=LAST_TERM), 100)
    if lost:
        one.looked(None, 101)
    one.looked(None if lost else held_by("other", transitions=LAST_TERM), 120)
    order = one.step(120)
    assert order == Write(LeaseRecord("me", 15, LAST_TERM), over=None if lost else "v-t0")
    one.written(replace(order.record, version="9"), 120, 120)
    assert one.leadership(121).term == LAST_TERM


def test_after_a_conflict_it_looks_before_it_writes():
    one = leads()
    one.step(102)
    one.conflicted(102)
    assert one.step(102.1) == Look()
    assert one.leadership(102.1)  # what it won is still won
    one.looked(held_by("other", "t9"), 102.2)
    assert one.leadership(102.2) is None


def test_a_failure_is_tried_again_later_and_decides_nothing():
    one = leads(at=100)
    one.step(102)
    one.failed(103)
    assert one.step(103) == Rest(105)
    assert one.step(105) == Look()
    assert one.leadership(109.9)
    assert one.leadership(110) is None


def test_a_deleted_lease_binds_who_saw_it_and_its_term_never_comes_back():
    one = elector()
    one.looked(held_by("other", transitions=7), 100)
    one.looked(None, 101)
    assert one.step(101) == Rest(103)
    one.looked(None, 115)
    assert one.step(115) == Write(LeaseRecord("me", 15, 8), over=None)


def test_a_holder_makes_its_deleted_lease_anew_in_a_new_term():
    one = leads(at=100)
    one.step(102)
    one.conflicted(102)
    one.step(102.1)
    one.looked(None, 102.1)
    assert one.leadership(102.1) is None
    assert one.step(102.1) == Write(LeaseRecord("me", 15, 1), over=None)


def test_resigning_ends_it_at_once_and_names_nobody():
    one = leads(at=100)
    assert one.resign(101) == Write(LeaseRecord("", 1, 0), over="1")
    assert one.leadership(101) is None


def test_nobody_gives_back_what_is_another_s():
    one = elector()
    one.looked(held_by("other"), 100)
    assert one.resign(100) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"duration": 10, "renew_within": 10},
        {"retry": 10, "renew_within": 10},
        {"retry": 0},
        {"request": 0},
        {"request": 11},
    ],
)
def test_timing_that_cannot_work_is_refused(wrong):
    with pytest.raises(SettingError):
        Timing(**wrong)


class Api:
    """One Lease, compare-and-swap, and a network that delays, loses and lets through late."""

    def __init__(self, random: Random) -> None:
        self.lease: LeaseRecord | None = None
        self.random = random
        self.faults = True
        self._versions = itertools.count(1)

    def do(self, order: Look | Write) -> tuple[str, LeaseRecord | None]:
        if isinstance(order, Look):
            return "looked", self.lease
        if (self.lease.version if self.lease else None) != order.over:
            return "conflicted", None
        version = str(next(self._versions))
        self.lease = replace(order.record, renewed=version, version=version)
        return "written", self.lease

    def travel(self) -> float:
        """Seconds on the way; inf where it is lost."""
        if not self.faults:
            return 0.01
        return self.random.choice([0.01, 0.01, 0.01, 0.5, 1.5, 4.0, 20.0, float("inf")])


class World:
    """Candidates whose clocks agree on nothing but how long a second is."""

    def __init__(self, random: Random, timing: Timing, count: int) -> None:
        self.now, self.random, self.timing = 0.0, random, timing
        self.api = Api(random)
        self.offsets = {name: random.uniform(-1e6, 1e6) for name in "abc"[:count]}
        self.electors = {name: Elector(name, timing) for name in self.offsets}
        self.lives = dict.fromkeys(self.electors, 0)
        self.terms: dict[int, str] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        for name in self.electors:
            self.at(random.uniform(0, 3), lambda name=name: self.act(name, 0))

    def at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._order), do))

    def clock(self, name: str) -> float:
        return self.now + self.offsets[name]

    def act(self, name: str, life: int) -> None:
        if life != self.lives[name]:
            return
        order: Order = self.electors[name].step(self.clock(name))
        if isinstance(order, Rest):
            # A little later: with such offsets a float does not say the same instant by two clocks.
            self.at(max(order.until - self.offsets[name], self.now) + 1e-6, lambda: self.act(name, life))
        else:
            self.send(name, life, order)

    def send(self, name: str, life: int, order: Look | Write) -> None:
        sent, there, back = self.now, self.api.travel(), self.api.travel()
        answers: list[tuple[str, LeaseRecord | None]] = []
        if there < float("inf"):  # it may be carried out long after its sender has given up
            self.at(sent + there, lambda: answers.append(self.api.do(order)))
        taken = there + back
        if taken < self.timing.request:
            self.at(sent + taken, lambda: self.hear(name, life, sent, *answers[0]))
        else:
            self.at(sent + self.timing.request, lambda: self.hear(name, life, sent, "failed", None))

    def hear(self, name: str, life: int, sent: float, kind: str, seen: LeaseRecord | None) -> None:
        if life != self.lives[name]:
            return
        one, now = self.electors[name], self.clock(name)
        match kind:
            case "looked":
                one.looked(seen, now)
            case "written":
                assert seen is not None
                one.written(seen, sent + self.offsets[name], now)
            case "conflicted":
                one.conflicted(now)
            case "failed":
                one.failed(now)
        self.act(name, life)

    def restart(self, name: str) -> None:
        """As another process: a new name would be given; here its old Lease is another's as well."""
        self.lives[name] += 1
        self.electors[name] = Elector(f"{name}{self.lives[name]}", self.timing)
        self.act(name, self.lives[name])

    def leaders(self) -> list[str]:
        found = {name: one.leadership(self.clock(name)) for name, one in self.electors.items()}
        for name, leadership in found.items():
            if leadership is not None:
                holder = self.terms.setdefault(leadership.term, self.electors[name].identity)
                assert holder == self.electors[name].identity, f"term {leadership.term} twice"
        return [name for name, leadership in found.items() if leadership is not None]

    def run(self, until: float) -> None:
        while self._due and self._due[0][0] <= until:
            self.now, _, do = heapq.heappop(self._due)
            do()
            assert len(self.leaders()) <= 1, f"{self.leaders()} at {self.now}"
        self.now = until


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from([TIMING, SHORT]), st.integers(2, 3))
def test_there_are_never_two_leaders_and_in_the_end_there_is_one(random: Random, timing: Timing, count: int):
    world = World(random, timing, count)
    for _ in range(8):
        world.run(world.now + random.uniform(0, 20))
        match random.randrange(3):
            case 0:
                world.restart(random.choice(list(world.electors)))
            case 1:
                world.api.faults = not world.api.faults
    world.api.faults = False
    world.run(world.now + 20)  # what is still on its way arrives
    world.run(world.now + timing.duration + 2 * timing.retry)
    assert len(world.leaders()) == 1
