"""Two hosts with one name and one key on one LAN: a cloned machine. Time is virtual, in seconds."""

import heapq
from collections.abc import Iterator
from ipaddress import IPv4Address
from itertools import count

import pytest

from speaker.model import IPAddress, Mac
from speaker.ownership.events import (
    ApiUp,
    Ask,
    Drain,
    EligibilityChanged,
    Event,
    FrameHeard,
    HelloHeard,
    LeaseSeen,
    LinkChanged,
    NameClash,
    NameFree,
    Record,
    RecordRead,
    SendHello,
    Tick,
    Withdraw,
    WriteRecord,
    Yielded,
)
from speaker.ownership.hello import Hello, Incarnation, above, incarnation
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.machine.naming import SILENCE

LINK = 1
EIPS = [IPv4Address("10.0.0.1") + n for n in range(4)]
DELAY = 0.0005


class Host:
    """A machine on the LAN; ``mac`` tells two of one name apart for us."""

    def __init__(self, lan: "Lan", name: str, number: int, order: int, api: bool = False) -> None:
        self.lan, self.mac, self.alive = lan, Mac(bytes((2, 0, 0, 0, 0, number))), True
        self.said: list[tuple[float, object]] = []
        numbers = count(order)

        def incarnate(known: Incarnation) -> Incarnation:
            fresh = incarnation(next(numbers), number)
            return fresh if fresh > known else above(known, number)

        self.machine = Ownership(name, incarnate, lan.now, api=api)

    def start(self) -> None:
        self.step(LinkChanged(LINK, up=True))
        for eip in EIPS:
            self.step(EligibilityChanged(eip, LINK))

    def step(self, event: Event) -> None:
        if not self.alive:
            return
        for order in self.machine.step(self.lan.now, event):
            self.said.append((self.lan.now, order))
            if isinstance(order, SendHello):
                self.lan.broadcast(self, order.hello)
            elif isinstance(order, Ask):
                self.lan.at(self.lan.now + 0.001, lambda: self.step(FrameHeard(LINK)))  # there are clients
        life = self.machine.next_wake(self.lan.now)
        self.lan.at(max(life, self.lan.now + 1e-6), lambda: self.step(Tick()) if self._due() else None)

    def _due(self) -> bool:
        return self.alive and self.machine.next_wake(self.lan.now) <= self.lan.now

    def orders(self, kind: type) -> Iterator[object]:
        return (order for _, order in self.said if isinstance(order, kind))

    @property
    def held(self) -> set[IPAddress]:
        return set(self.machine.held()) if self.alive else set()


class Lan:
    """Frames take ``DELAY`` and carry their sender's MAC; ``cut`` keeps those of one from another."""

    def __init__(self) -> None:
        self.now = 0.0
        self.hosts: list[Host] = []
        self.cut: set[frozenset[int]] = set()
        self.looping = False
        self._queue: list[tuple[float, int, object]] = []
        self._order = count()

    def host(self, name: str, order: int, **named: bool) -> Host:
        self.hosts.append(host := Host(self, name, len(self.hosts) + 1, order, **named))
        host.start()
        return host

    def at(self, when: float, work: object) -> None:
        heapq.heappush(self._queue, (when, next(self._order), work))

    def broadcast(self, sender: Host, hello: Hello) -> None:
        for other in self.hosts:
            if other is sender and not self.looping:
                continue
            if frozenset((self.hosts.index(sender), self.hosts.index(other))) in self.cut:
                continue
            event = HelloHeard(LINK, hello, sender.mac, looped=other.mac == sender.mac)
            self.at(self.now + DELAY, lambda other=other, event=event: other.step(event))  # type: ignore[misc]

    def run(self, until: float) -> None:
        while self._queue and self._queue[0][0] <= until:
            self.now, _, work = heapq.heappop(self._queue)
            work()  # type: ignore[operator]
        self.now = until

    def split(self, *side: Host) -> None:
        inside = {self.hosts.index(host) for host in side}
        outside = set(range(len(self.hosts))) - inside
        self.cut = {frozenset((a, b)) for a in inside for b in outside}


@pytest.fixture
def lan() -> Lan:
    return Lan()


def served_by(lan: Lan) -> list[int]:
    """How many hosts hold each EIP."""
    return [sum(eip in host.held for host in lan.hosts) for eip in EIPS]


@pytest.mark.parametrize("order", [500, 5], ids=["its clock is ahead", "its clock is behind"])
def test_a_clone_that_starts_falls_silent_and_the_original_goes_on(lan: Lan, order: int) -> None:
    original, peer = lan.host("web", 100), lan.host("db", 100)
    lan.run(3.0)
    before = original.held, peer.held
    assert all(before)
    clone = lan.host("web", order)
    lan.run(8.0)
    assert clone.machine.known.silent
    assert not original.machine.known.silent
    assert (original.held, peer.held, clone.held) == (*before, set())
    assert not list(original.orders(Withdraw))
    assert not list(peer.orders(Withdraw))
    (told,), (answer,) = list(clone.orders(NameClash)), list(original.orders(NameClash))
    assert (told, answer) == (
        NameClash(LINK, original.mac, silent=True),
        NameClash(LINK, clone.mac, silent=False),
    ), "both say so, once"


def test_the_clone_speaks_no_more_and_does_not_drain_the_original_when_it_stops(lan: Lan) -> None:
    original, peer = lan.host("web", 100), lan.host("db", 100)
    lan.run(3.0)
    before = original.held
    clone = lan.host("web", 500)
    lan.run(3.1)  # in the middle of it
    clone.step(Drain())
    lan.run(6.0)
    clone.alive = False
    lan.run(8.0)
    assert original.held == before
    assert not list(peer.orders(Withdraw))
    late = [at for at, order in clone.said if isinstance(order, SendHello) and at > 3.5]
    assert late == []


def test_the_clone_takes_the_name_once_the_original_is_gone_for_a_while(lan: Lan) -> None:
    original, peer = lan.host("web", 100), lan.host("db", 100)
    lan.run(3.0)
    clone = lan.host("web", 500)
    lan.run(5.0)
    original.alive = False
    lan.run(5.9)
    assert peer.held == set(EIPS), "the peer has taken over meanwhile"
    lan.run(5.0 + SILENCE + 1.0)
    assert not clone.machine.known.silent
    assert list(clone.orders(NameFree))
    peer.alive = False
    lan.run(5.0 + SILENCE + 3.0)
    assert clone.held == set(EIPS), "and it is heard again"


def test_of_two_that_start_together_the_one_that_began_first_keeps_the_name(lan: Lan) -> None:
    first, second = lan.host("web", 100), lan.host("web", 101)
    lan.run(3.0)
    assert (first.held, second.held) == (set(EIPS), set())
    assert (first.machine.known.silent, second.machine.known.silent) == (False, True)


def test_clones_of_a_running_machine_that_share_even_its_life_are_told_apart(lan: Lan) -> None:
    one, two = lan.host("web", 100), lan.host("web", 100)
    two.machine.known.incarnation = one.machine.incarnation
    two.machine.name.lives = one.machine.name.lives.copy()
    lan.run(4.0)
    assert served_by(lan) == [1] * 4
    assert one.machine.known.silent is not two.machine.known.silent


def test_two_that_both_hold_when_their_lans_are_joined_end_with_one(lan: Lan) -> None:
    hosts = [lan.host("web", 100), lan.host("a", 100), lan.host("web", 200), lan.host("b", 100)]
    lan.split(*hosts[:2])
    lan.run(3.0)
    assert served_by(lan) == [2] * 4
    lan.cut.clear()
    lan.run(5.0)
    assert served_by(lan) == [1] * 4
    assert sorted(host.machine.known.silent for host in hosts[::2]) == [False, True]
    assert not any(host.machine.known.silent for host in hosts[1::2])
    lan.run(30.0)
    assert served_by(lan) == [1] * 4
    assert all(len(list(host.orders(NameClash))) == 1 for host in (hosts[0], hosts[2]))


def test_our_own_frames_that_come_back_are_no_namesake(lan: Lan) -> None:
    lan.looping = True
    one, two = lan.host("web", 100), lan.host("db", 100)
    lan.run(5.0)
    assert not list(one.orders(NameClash))
    assert not list(two.orders(NameClash))
    assert served_by(lan) == [1] * 4


def test_recordings_of_our_previous_life_silence_nobody(lan: Lan) -> None:
    for order in (50, 500):  # the clock may have gone back since
        lan = Lan()
        past = lan.host("web", order)
        lan.host("db", 100)
        lan.run(3.0)
        recorded = [said.hello for said in past.orders(SendHello) if isinstance(said, SendHello)]
        past.alive = False
        host = lan.host("web", 100)
        for n, hello in enumerate(recorded):
            event = HelloHeard(LINK, hello, past.mac)
            lan.at(3.0 + n * 0.05, lambda event=event, host=host: host.step(event))  # type: ignore[misc]
        lan.run(3.0 + len(recorded) * 0.05 + 1)
        assert not host.machine.known.silent
        assert not list(host.orders(NameClash))
        assert any(peer.node == "web" and peer.alive for peer in lan.hosts[1].machine.peers(lan.now)[LINK])


def test_a_peer_hears_one_of_two_with_one_name_and_never_mixes_them(lan: Lan) -> None:
    """Even where the two do not hear each other, and so cannot settle it."""
    original, peer, clone = lan.host("web", 100), lan.host("db", 100), None
    lan.run(3.0)
    before = original.held
    clone = lan.host("web", 500)
    lan.cut = {frozenset((0, 2))}
    lan.run(3.3)
    clone.step(Drain())
    lan.run(3.6)
    assert original.held == before
    (known,) = peer.machine.peers(lan.now)[LINK]
    assert (known.incarnation >> 31, known.draining) == (original.machine.incarnation >> 31, False)


# ── With the API ──────────────────────────────────────────────────────────────────────────────────────────────


def test_another_agent_that_renews_our_lease_is_a_namesake_on_whatever_link(lan: Lan) -> None:
    host = lan.host("web", 100, api=True)
    host.step(ApiUp())
    lan.run(3.0)
    held = host.held
    host.step(LeaseSeen("web", incarnation(50, 7), renewed=True))
    lan.run(3.1)
    assert host.held == held == set(EIPS), "the last renewal of our own previous life may come late"
    lan.run(5.0)
    host.step(LeaseSeen("web", incarnation(50, 7), renewed=True))
    assert host.held == set()
    assert list(host.orders(NameClash)) == [NameClash(None, None, silent=True)]
    reasons = {order.reason for order in host.orders(Withdraw) if isinstance(order, Withdraw)}
    assert reasons == {Yielded.NAME_CLASH}


def test_renewals_of_ours_and_of_a_later_life_keep_the_name_with_us(lan: Lan) -> None:
    host = lan.host("web", 100, api=True)
    host.step(ApiUp())
    lan.run(3.0)
    for at in (3.5, 5.5, 7.5):
        lan.run(at)
        host.step(ApiUp())
        host.step(LeaseSeen("web", host.machine.incarnation, renewed=True))
    assert not list(host.orders(NameClash))
    for at in (8.5, 10.5):
        lan.run(at)
        host.step(LeaseSeen("web", incarnation(500, 7), renewed=True))
    assert list(host.orders(NameClash)) == [NameClash(None, None, silent=False)]
    assert host.held == set(EIPS)


def test_the_silent_one_writes_no_records_of_that_name(lan: Lan) -> None:
    original = lan.host("web", 100, api=True)
    lan.run(3.0)
    clone = lan.host("web", 500, api=True)
    lan.run(5.0)
    assert clone.machine.known.silent
    clone.step(ApiUp())
    for n, eip in enumerate(EIPS):
        clone.step(EligibilityChanged(eip, None))
        clone.step(RecordRead(eip, Record("web", original.machine.incarnation, 1, version=n + 1)))
    lan.run(9.0)
    late = [order for at, order in clone.said if isinstance(order, WriteRecord) and at > 5.0]
    assert late == []


def test_hellos_that_only_name_us_by_an_old_life_prove_nothing(lan: Lan) -> None:
    host = lan.host("web", 100)
    lan.run(3.0)
    (hello, *_) = [said.hello for said in host.orders(SendHello) if isinstance(said, SendHello)]
    other = hello._replace(incarnation=incarnation(1, 1), sequence=10**6, heard={})
    host.step(HelloHeard(LINK, other, Mac(b"\2\0\0\0\0\x63")))
    lan.run(6.0)
    assert not host.machine.known.silent
    assert not list(host.orders(NameClash))
