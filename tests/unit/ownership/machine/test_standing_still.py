"""Silences that meant nothing (rule 38), and coming back from one of our own (rule 39)."""

import pytest
from stepping import EIP, LINK, alone, beside, hello, of_kind, timed

from speaker.ownership.events import Claim, DropRequests, LinkChanged, Listen, SendHello, Tick, Withdraw
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.parameters import Parameters

TIMES = Parameters()
HELD = {EIP: 3}
HEARD_AT = 0.9
"""When the peer of ``silent`` was heard last."""


def silent(gap: float, *, sequence: int, clock: int) -> Ownership:
    """A peer says a hello every 100 ms, is silent for ``gap``, and goes on with this sequence and this clock in ms. A
    hello that follows at once would have 1000 and 10,000."""
    machine = alone()
    for n in range(10):
        machine.step(n / 10, hello(machine, 990 + n, HELD, clock=9000 + 100 * n, links=1))
        timed(machine, n / 10, n / 10 + 0.099)
    timed(machine, 1.0, HEARD_AT + gap - 0.001)
    machine.step(HEARD_AT + gap, hello(machine, sequence, HELD, clock=clock, links=1))
    return machine


@pytest.mark.parametrize(
    ("gap", "sequence", "clock", "dead_after"),
    [
        (0.3, 1000, 10_000, 0.375),
        (1.0, 1000, 10_000, 1.25),
        (5.0, 1000, 10_000, 6.25),
        (0.3, 1000, 10_200, 0.375),
        (0.6, 1000, 10_500, 0.75),
    ],
    ids=["late", "a second late", "five seconds late", "stood still", "stood still for longer"],
)
def test_a_silence_without_a_lost_hello_teaches_patience(
    gap: float, sequence: int, clock: int, dead_after: float
) -> None:
    machine = silent(gap, sequence=sequence, clock=clock)
    peer = machine.known.segments[LINK].peers.by_node["peer"]
    assert peer.dead_after(TIMES) == pytest.approx(dead_after)
    assert machine.peers(HEARD_AT + gap)[LINK][0].patience_ms == round(1000 * dead_after)


@pytest.mark.parametrize(
    ("gap", "sequence", "clock"),
    [(0.2, 1000, 10_000), (0.5, 1004, 10_400), (7.0, 1000, 10_000), (0.7, 1000, 10_600), (0.5, 1000, 9900)],
    ids=["none", "lost", "later than any LAN", "stood still for so long that others took it", "a clock that stands"],
)
def test_a_silence_in_which_a_hello_was_lost_teaches_nothing(gap: float, sequence: int, clock: int) -> None:
    machine = silent(gap, sequence=sequence, clock=clock)
    peer = machine.known.segments[LINK].peers.by_node["peer"]
    expected = TIMES.dead if (gap, clock) != (0.5, 9900) else 0.625  # its sequence shows that nothing was lost
    assert peer.dead_after(TIMES) == pytest.approx(expected)


def test_the_next_silence_of_its_length_is_no_death() -> None:
    machine = silent(0.5, sequence=1000, clock=10_000)
    now = HEARD_AT + 0.5
    assert of_kind(timed(machine, now, now + 0.6, hears=True), Claim) == []
    claims = of_kind(timed(machine, now + 0.6, now + 1.0, hears=True), Claim)
    assert [at for at, _ in claims] == [pytest.approx(now + 0.625, abs=0.03)]


def test_who_stood_still_keeps_what_nobody_can_have_taken() -> None:
    machine = alone()
    timed(machine, 0.0, 1.0)
    orders = machine.step(machine.known.sent_at + TIMES.dead - 0.001, Tick())
    assert [type(order) for order in orders] == [DropRequests, SendHello]
    assert machine.holding(EIP)


@pytest.mark.parametrize("fresh", [True, False])
def test_after_a_longer_one_it_does_where_everybody_was_heard_meanwhile(fresh: bool) -> None:
    """What waited in its socket has the time at which it arrived."""
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": {}})
    now = 1.8
    for n in range(1, 8):
        heard = hello(machine, 3000 + n, {}, "a")._replace(age=now - 1.0 - n / 10 + (0 if fresh else 0.2), more=True)
        assert machine.step(now, heard) == []
    orders = machine.step(now, Tick())
    assert any(isinstance(order, Withdraw | Listen) for order in orders) is not fresh
    assert machine.holding(EIP) is fresh


def test_a_link_on_which_nothing_is_held_and_nobody_heard_takes_nothing_away() -> None:
    machine = alone()
    machine.step(0.0, LinkChanged(LINK + 1, up=True))
    beside(machine, 0.0, 1.0, {"a": {}})
    for n in range(1, 8):
        heard = hello(machine, 3000 + n, {}, "a")._replace(age=0.8 - n / 10, more=True)
        assert machine.step(1.8, heard) == []
    machine.step(1.8, Tick())
    assert machine.holding(EIP)


def test_what_another_took_meanwhile_is_let_go_before_anything_is_said() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": {}})
    taken = hello(machine, 3000, {EIP: 2}, "a")._replace(age=0.01, more=True)
    machine.step(1.8, taken)
    orders = machine.step(1.8, Tick())
    assert isinstance(orders[0], Withdraw)
    assert not machine.holding(EIP)


def test_who_listens_after_a_standstill_claims_as_soon_as_all_have_spoken() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": {}})
    said = [order for order in machine.step(2.0, Tick()) if isinstance(order, SendHello)]
    assert said[0].hello.probes == {"a"}
    assert isinstance(machine.step(2.01, hello(machine, 4000, {}, "a"))[0], Claim)
