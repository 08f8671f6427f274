"""The simulation's own LAN: who is there besides the speakers, whose frames reach whom, what asking finds.

Time is virtual, in seconds.
"""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
from simulation.host import Host, Make
from simulation.promises import Promise
from simulation.schedule import FOR_GOOD, Fault, Kind, Limits, Schedule
from simulation.world import World
from simulation.wrong_machines import made_of

from speaker.ownership.events import Ask, EipAnswered, Event, FrameHeard, HelloHeard, Order, Yielded
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.hearing import Hearing
from speaker.ownership.machine.holding import Claims
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.machine.rules import Rules
from speaker.ownership.machine.segment import Segment

BEGINS = 2.0
TRIO = Schedule(seed=4, nodes=3, eips=4, end=6.0)
LINK = 1


class Listening(Ownership):
    """Keeps what it is told, and asks for nothing itself."""

    def step(self, now: float, event: Event) -> list[Order]:
        self.__dict__.setdefault("told", []).append((round(now, 4), event))
        return [order for order in super().step(now, event) if not isinstance(order, Ask)]


READ = BEGINS + 0.11
"""By then what had arrived before is read."""


def told(host: Host, kind: type, since: float = 0.0) -> list[tuple[float, Event]]:
    """What it heard of a kind, with the time."""
    return [entry for entry in host.machine.__dict__["told"] if isinstance(entry[1], kind) and entry[0] >= since]


def playing(schedule: Schedule, *faults: Fault, until: float = BEGINS + 1.0) -> World:
    return World(replace(schedule, faults=faults), Listening).run(until=until)


def asking(world: World, host: Host, *nodes: str, after: float = 0.05) -> float:
    """When it asked for every EIP; what comes of it is there ``after`` that."""
    began = world.clock.now
    world.stations.ask(host, Ask(LINK, tuple(world.eips), nodes))
    world.run(until=began + after)
    return began


def holder(world: World) -> Host:
    return next(host for host in world.hosts if host.answers(world.eips[0]))


def another(world: World) -> Host:
    return next(host for host in world.hosts if host is not holder(world))


# ── Who hears whom ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_deaf_host_hears_nothing_and_is_heard() -> None:
    world = playing(TRIO, Fault(BEGINS, Kind.DEAF, (0,)))
    assert not told(world.hosts[0], HelloHeard, READ)
    assert any(e.hello.node == "n0" for _, e in told(world.hosts[1], HelloHeard, BEGINS + 0.5))  # type: ignore[attr-defined]


def test_a_mute_host_hears_and_is_heard_by_nobody() -> None:
    world = playing(TRIO, Fault(BEGINS, Kind.MUTE_ALL, (0,)))
    assert told(world.hosts[0], HelloHeard, BEGINS + 0.5)
    heard = [e.hello.node for _, e in told(world.hosts[1], HelloHeard, READ)]  # type: ignore[attr-defined]
    assert set(heard) == {"n2"}


@pytest.mark.parametrize("kind", [Kind.DEAF, Kind.MUTE_ALL, Kind.BLACKOUT, Kind.CABLE])
def test_no_client_reaches_a_host_whose_port_is_sick_and_all_do_once_it_is_mended(kind: Kind) -> None:
    world = playing(TRIO, Fault(BEGINS, kind, (0,), 1.0), until=BEGINS + 0.5)
    stations = world.stations
    everybody = [stations.gateway, *map(stations.client, stations.places)]
    assert not any(stations.reach(LINK, station, world.hosts[0]) for station in everybody)
    assert all(stations.reach(LINK, station, world.hosts[1]) for station in everybody)
    world.run(until=BEGINS + 1.1)
    assert all(stations.reach(LINK, station, world.hosts[0]) for station in everybody)


@pytest.mark.parametrize(
    ("cut_off", "gateway_with"), [((0,), 1), ((1, 2), 0), ((0, 1), 2), ((2, 3), 0), ((0, 1, 2), 2), ((3,), 0)]
)
def test_a_split_takes_clients_along_and_leaves_the_gateway_to_the_larger_part(cut_off, gateway_with) -> None:
    world = playing(replace(TRIO, nodes=4), Fault(BEGINS, Kind.PARTITION, cut_off, 2.0))
    reach, client = world.stations.reach, world.stations.client
    for host in world.hosts:
        assert reach(LINK, client(host.index), host)
        assert reach(LINK, client(0), host) is ((host.index in cut_off) is (0 in cut_off))
        assert reach(LINK, world.stations.gateway, host) is ((host.index in cut_off) is (gateway_with in cut_off))


@pytest.mark.parametrize("kind", [Kind.PAIR, Kind.ONE_WAY])
def test_what_goes_wrong_between_two_hosts_keeps_no_client_from_either(kind: Kind) -> None:
    world = playing(TRIO, Fault(BEGINS, kind, (0, 1)))
    assert not world.network.carries(LINK, 0, 1)
    assert world.network.carries(LINK, 1, 0) is (kind is Kind.ONE_WAY)
    stations = world.stations
    assert all(stations.reach(LINK, stations.client(n), host) for n in range(3) for host in world.hosts)


@pytest.mark.parametrize(
    ("between", "lost"),
    [
        ((), {(a, b) for a in range(3) for b in range(3) if a != b}),
        ((0,), {(0, 1), (0, 2)}),
        ((0, 1), {(0, 1), (1, 0)}),
    ],
)
@pytest.mark.parametrize("mtu", [None, 1500], ids=["values", "frames"])
def test_hellos_are_eaten_and_everything_else_passes(between, lost, mtu) -> None:
    world = playing(replace(TRIO, mtu=mtu), Fault(BEGINS, Kind.HELLOS_EATEN, between, link=LINK))
    ways = {(a, b) for a in range(3) for b in range(3) if a != b}
    assert all(world.network.carries(LINK, a, b) for a, b in ways)
    assert {(a, b) for a, b in ways if not world.network.hears(LINK, a, b)} == lost
    for a, b in ways:
        heard = {e.hello.node for _, e in told(world.hosts[b], HelloHeard, READ)}  # type: ignore[attr-defined]
        assert (world.hosts[a].name in heard) is ((a, b) not in lost)


def test_bursts_lose_the_share_that_was_asked_for_and_many_in_a_row() -> None:
    world = World(replace(TRIO, loss=0.1, burst=0.3))
    lost = []
    for hello in range(20_000):
        world.clock.now = hello * 0.1
        lost.append(world.network.lost(LINK, 0, 1))
    assert sum(lost) / len(lost) == pytest.approx(0.1, abs=0.02)
    again = sum(a and b for a, b in pairwise(lost)) / sum(lost)
    assert again > 0.5


def test_one_way_can_be_worse_than_the_other() -> None:
    world = World(replace(TRIO, lossy=((0, 1, 1.0),)))
    assert all(world.network.lost(LINK, 0, 1) and not world.network.lost(LINK, 1, 0) for _ in range(100))


def test_every_host_can_have_a_hello_interval_of_its_own() -> None:
    world = playing(replace(TRIO, hellos=(0.1, 0.2)))
    count = {n: len([1 for _, e in told(world.hosts[2], HelloHeard, 1.0) if e.hello.node == f"n{n}"]) for n in (0, 1)}  # type: ignore[attr-defined]
    assert count[0] > 1.5 * count[1]
    assert world.hosts[2].times == world.schedule.times


# ── What an Ask finds ─────────────────────────────────────────────────────────────────────────────────────────


def test_an_ask_finds_who_answers() -> None:
    world = playing(TRIO)
    asker = another(world)
    began = asking(world, asker)
    found = {(e.eip, e.node) for _, e in told(asker, EipAnswered, began)}  # type: ignore[attr-defined]
    assert found == {(eip, name) for eip in world.eips for name in world.holders(eip) if name != asker.name}
    assert told(asker, FrameHeard, began)


def test_whoever_never_said_hello_answers_as_a_stranger() -> None:
    world = playing(replace(TRIO, apart=0.5, api=True), *(Fault(0.0, Kind.WRONG_KEY, (n,)) for n in range(3)))
    asker = another(world)
    began = asking(world, asker)
    assert {e.node for _, e in told(asker, EipAnswered, began)} == {None}  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [Kind.CRASH, Kind.FREEZE, Kind.DEAF, Kind.MUTE_ALL, Kind.CABLE, Kind.PARTITION])
def test_an_ask_does_not_find_who_cannot_answer(kind: Kind) -> None:
    world = playing(TRIO, until=BEGINS)
    sick, asker = holder(world), another(world)
    world.inflict(Fault(BEGINS, kind, (sick.index,)))
    began = asking(world, asker, sick.name)
    assert sick.name not in {e.node for _, e in told(asker, EipAnswered, began)}  # type: ignore[attr-defined]
    assert told(asker, FrameHeard, began), "the gateway and the clients are there"


@pytest.mark.parametrize(
    ("fault", "silent", "hears"),
    [
        (None, 0.0, True),
        (Fault(BEGINS, Kind.DEAF, (0,)), 0.0, False),
        (Fault(BEGINS, Kind.MUTE_ALL, (0,)), 0.0, False),
        (Fault(BEGINS, Kind.PARTITION, (0,)), 0.0, True),
        (None, 9.0, False),
    ],
    ids=["well", "deaf", "mute", "cut off with its client", "a LAN without others"],
)
def test_a_node_whose_only_peer_died_hears_clients_and_the_gateway_if_there_are_any(fault, silent, hears) -> None:
    faults = [Fault(BEGINS, Kind.CRASH, (1,)), *([fault] if fault is not None else [])]
    world = playing(replace(TRIO, nodes=2, silent_until=silent), *faults)
    began = asking(world, world.hosts[0], "n1")
    assert bool(told(world.hosts[0], FrameHeard, began)) is hears


def test_a_frozen_hosts_kernel_answers_for_its_own_address() -> None:
    world = playing(replace(TRIO, nodes=2, silent_until=9.0), Fault(BEGINS, Kind.FREEZE, (1,)), until=BEGINS + 0.1)
    began = asking(world, world.hosts[0], "n1")
    assert told(world.hosts[0], FrameHeard, began)


def test_frames_are_told_while_an_ask_is_young_and_not_one_by_one() -> None:
    world = playing(replace(TRIO, asks=True))
    assert not told(world.hosts[0], FrameHeard), "nobody asked"
    began = asking(world, world.hosts[0], after=3.0)
    heard = told(world.hosts[0], FrameHeard)
    assert 10 < len(heard) <= 50
    assert heard[-1][0] < began + 1.1
    for kind in {event.version for _, event in heard}:
        assert all(b - a >= 0.0199 for a, b in pairwise(at for at, event in heard if event.version == kind))


# ── First claims ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_first_claim_is_answered_once_nobody_else_was_found_to_answer() -> None:
    world = World(replace(TRIO, nodes=2))
    claimed: list[float] = []
    while not claimed:
        world.run(until=world.clock.now + 0.001)
        claimed = [at for at, *_ in world.promises.moves]
    eip = world.promises.moves[0][1]
    world.run(until=claimed[0] + 0.058)
    assert world.holders(eip) == []
    world.run(until=claimed[0] + 0.062)
    assert len(world.holders(eip)) == 1


def test_a_first_claim_of_what_another_answers_for_is_not_answered_until_a_later_look_finds_nobody() -> None:
    keys = tuple(Fault(0.0, Kind.WRONG_KEY, (n,)) for n in range(2))
    world = World(replace(TRIO, nodes=2, eips=1, apart=0.5, faults=keys, limits=Limits(unanswered=11.0)))
    eip = world.eips[0]
    world.run(until=3.0)
    assert world.holders(eip) == ["n0"]
    assert world.hosts[1].machine.holding(eip), "in name"
    world.inflict(Fault(world.clock.now, Kind.CRASH, (0,)))
    assert world.holders(eip) == []
    world.run(until=4.2)
    assert world.holders(eip) == ["n1"]


# ── What is promised ──────────────────────────────────────────────────────────────────────────────────────────

SICK = Limits(served=0.5, wire_answer=0.12, no_cause=True, heal_moves=True, causeless=False)


class Reluctant(Claims):
    """Claims nothing that was ever held."""

    def _judge_free(self, x: Eip, now: float) -> float:
        return float("inf") if x.maxterm else super()._judge_free(x, now)


class Stubborn(Rules):
    """Gives nothing back."""

    def beats(self, *arguments: object) -> bool:
        return False


class Capricious(Claims):
    """Lets go of what it holds, every third second."""

    def _judge_held(self, x: Eip, now: float) -> float:
        if now % 3 < 0.1:
            self.yield_(x, Yielded.BETTER_CLAIM, now)
        return min(super()._judge_held(x, now), now + 0.05) if x.holding else float("inf")


class Greedy(Hearing):
    """Takes anew what it is told about by one who comes back."""

    def _become_mutual(self, segment: Segment) -> None:
        now = segment.heard_at
        for x in list(self._k.eips.values()):
            if now > BEGINS and x.link == segment.link and not x.holding:
                self._claims.claim(x, x.maxterm + 1, now)
        super()._become_mutual(segment)


BROKEN: list[tuple[Promise, Make, Fault]] = [
    (Promise.SERVED, made_of(Listening, Reluctant), Fault(BEGINS, Kind.CRASH, (0,))),
    (Promise.WIRE, partial(Listening, rules=Stubborn()), Fault(BEGINS, Kind.PARTITION, (0, 1), 1.0)),
    (Promise.NO_CAUSE, made_of(Listening, Capricious), Fault(BEGINS, Kind.STALE_WATCH, (0,), 1.0)),
    (Promise.HEAL_MOVES, made_of(Listening, Greedy), Fault(BEGINS, Kind.CRASH, (0,), 1.0)),
]


@pytest.mark.parametrize(("promise", "make", "fault"), BROKEN, ids=[row[0].value for row in BROKEN])
def test_a_machine_that_does_not_keep_a_promise_is_found_out(promise, make, fault) -> None:
    limits = replace(SICK, one_answer=9.0, **{"served": None} if promise is not Promise.SERVED else {})
    limits = replace(limits, no_cause=promise is Promise.NO_CAUSE, unanswered=9.0)
    world = World(replace(TRIO, nodes=4, faults=(fault,), limits=limits), make).run()
    assert world.promises.broken is not None
    assert world.promises.broken.promise is promise


def test_what_a_sick_node_loses_is_no_move_without_a_cause() -> None:
    for kind in (Kind.CRASH, Kind.CABLE, Kind.BLACKOUT):
        limits = Limits(no_cause=True)
        world = World(replace(TRIO, faults=(Fault(BEGINS, kind, (0,), FOR_GOOD),), limits=limits))
        world.run(until=BEGINS + 0.25)
        assert world.promises.broken is None


def test_a_client_that_reaches_no_healthy_node_waits_for_nothing() -> None:
    everybody = Fault(BEGINS, Kind.BLACKOUT, (0, 1, 2), 1.5)
    limits = Limits(served=0.5, unanswered=9.0, causeless=False)
    world = World(replace(TRIO, faults=(everybody,), limits=limits)).run(until=BEGINS + 1.4)
    assert world.promises.broken is None


def test_clients_stand_where_the_schedule_says() -> None:
    """Nobody waits on the side of a split that has none."""
    limits = Limits(served=0.5, settled=False, causeless=False)
    fault = Fault(BEGINS, Kind.PARTITION, (0,))
    schedule = replace(TRIO, faults=(fault,), limits=limits)
    for clients, broken in (((1, 2), None), ((0,), Promise.SERVED)):
        make = made_of(Listening, Reluctant) if broken else Ownership
        found = World(replace(schedule, clients=clients), make).run().promises.broken
        assert (found.promise if found else None) is broken
