"""When each EIP is announced."""

import itertools
from ipaddress import IPv4Address, IPv6Address

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from speaker.layer2.holdings import Burst
from speaker.model import Gratuitous

EIP, OTHER = IPv4Address("192.0.2.10").packed, IPv6Address("2001:db8::10").packed


def announced_until(burst, until, most=1000):
    """Every (instant, EIP) a caller sees who wakes exactly when told."""
    seen = []
    while (when := burst.wake()) is not None and when <= until:
        seen += [(when, address) for address in burst.due(when, most)]
    return seen


def instants(burst, until, address=EIP):
    return [round(when, 6) for when, who in announced_until(burst, until) if who == address]


def test_once_at_once_then_the_repeats_then_nothing():
    burst = Burst()
    burst.announce(EIP, Gratuitous(burst=3, interval=1.1), now=10.0)
    assert instants(burst, 100.0) == [10.0, 11.1, 12.2]
    assert burst.wake() is None


def test_a_burst_of_one_has_no_repeats():
    burst = Burst()
    burst.announce(EIP, Gratuitous(burst=1), now=10.0)
    assert instants(burst, 100.0) == [10.0]


def test_refreshes_follow_a_period_apart_forever():
    burst = Burst()
    burst.announce(EIP, Gratuitous(burst=2, interval=1.0, refresh=60.0), now=0.0)
    seen = instants(burst, 400.0)
    assert seen[:2] == [0.0, 1.0]
    assert 0 < seen[2] - seen[1] <= 60
    assert {round(after - before, 3) for before, after in itertools.pairwise(seen[2:])} == {60.0}


def test_announcing_again_starts_the_burst_over():
    burst = Burst()
    burst.announce(EIP, Gratuitous(burst=3, interval=1.0), now=0.0)
    assert burst.due(0.0, 10) == [EIP]
    burst.announce(EIP, Gratuitous(burst=3, interval=1.0), now=0.5)
    assert instants(burst, 100.0) == [0.5, 1.5, 2.5]


def test_a_withdrawn_eip_is_never_announced_again_and_others_are():
    burst = Burst()
    for address in (EIP, OTHER):
        burst.announce(address, Gratuitous(burst=2, interval=1.0, refresh=5.0), now=0.0)
    burst.withdraw(EIP)
    burst.withdraw(IPv4Address("192.0.2.99").packed)
    assert {address for _, address in announced_until(burst, 50.0)} == {OTHER}


def test_withdrawn_and_taken_again_starts_from_scratch():
    burst = Burst()
    burst.announce(EIP, Gratuitous(burst=5, interval=1.0), now=0.0)
    burst.withdraw(EIP)
    burst.announce(EIP, Gratuitous(burst=1), now=0.2)
    assert instants(burst, 100.0) == [0.2]


def test_a_frozen_process_announces_once_not_all_it_missed():
    burst = Burst()
    burst.announce(EIP, Gratuitous(burst=5, interval=1.0), now=0.0)
    assert burst.due(0.0, 10) == [EIP]
    assert burst.due(30.0, 10) == [EIP]
    assert burst.due(30.0, 10) == []
    assert burst.wake() == 31.0


def test_slices_take_every_eip_once():
    burst = Burst()
    eips = [(IPv4Address("10.0.0.0") + at).packed for at in range(1000)]
    for address in eips:
        burst.announce(address, Gratuitous(burst=2, interval=1.0), now=0.0)
    slices = [burst.due(0.0, 128) for _ in range(9)]
    assert [len(part) for part in slices] == [128] * 7 + [104, 0]
    assert [address for part in slices for address in part] == eips


def test_ten_thousand_refreshes_do_not_fire_together():
    burst = Burst()
    for at in range(10_000):
        burst.announce((IPv4Address("10.0.0.0") + at).packed, Gratuitous(burst=1, refresh=100.0), now=0.0)
    burst.due(0.0, 10_000)
    per_second = [0] * 101
    for when, _ in announced_until(burst, 100.0):
        per_second[int(when)] += 1
    assert max(per_second) <= 110
    assert sum(per_second) == 10_000


@given(st.lists(st.floats(0.1, 50.0), max_size=50))
def test_flapping_leaves_a_bounded_heap(pauses):
    burst = Burst()
    now = 0.0
    for pause in pauses * 20:
        now += pause
        burst.announce(EIP, Gratuitous(burst=1, refresh=86_400.0), now)
        burst.due(now, 10)
    assert len(burst._timers._heap) <= 100


class Announcing(RuleBasedStateMachine):
    """Whatever is announced and withdrawn in whatever order: each EIP gets its burst, no more and no less."""

    def __init__(self):
        super().__init__()
        self.burst, self.now = Burst(), 0.0
        self.left: dict[bytes, list[float]] = {}

    @rule(number=st.integers(0, 5), burst=st.integers(1, 4), interval=st.sampled_from([0.5, 1.25]))
    def announce(self, number, burst, interval):
        address = bytes((number,))
        self.burst.announce(address, Gratuitous(burst, interval), self.now)
        self.left[address] = [self.now + at * interval for at in range(burst)]

    @rule(number=st.integers(0, 5))
    def withdraw(self, number):
        self.burst.withdraw(bytes((number,)))
        self.left.pop(bytes((number,)), None)

    @rule()
    def wake(self):
        when = self.burst.wake()
        if when is None:
            return
        self.now = when
        for address in self.burst.due(self.now, 3):
            assert self.left[address].pop(0) == self.now

    @invariant()
    def wakes_for_the_next_one(self):
        assert self.burst.wake() == min((left[0] for left in self.left.values() if left), default=None)


TestAnnouncing = Announcing.TestCase
