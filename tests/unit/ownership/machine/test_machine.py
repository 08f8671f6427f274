"""The ownership machine, one step at a time. Times are seconds of one clock."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count, pairwise

import pytest
from simulation.wrong_machines import made_of
from stepping import EIP, LIFE, LINK, alone, beside, hello, of_kind, timed

from speaker.ownership.events import (
    Announce,
    ApiDown,
    ApiUp,
    Claim,
    Drain,
    EligibilityChanged,
    Event,
    HelloHeard,
    LinkChanged,
    Listen,
    Order,
    PeersAddress,
    Record,
    RecordRead,
    RecordWritten,
    SendHello,
    Tick,
    Withdraw,
    WriteRecord,
    Yielded,
)
from speaker.ownership.hello import Heard, Hello, Incarnation
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.holding import Claims
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.machine.segment import REPEATED
from speaker.ownership.score import score


def test_a_speaker_listens_before_it_claims() -> None:
    orders = timed(alone(), 0.0, 1.0)
    at, claim = of_kind(orders, Claim)[0]
    assert claim == Claim(EIP, LINK, 1, first=True)
    assert at == pytest.approx(0.4)


def test_a_claim_is_announced_and_said_at_once_in_that_order() -> None:
    machine = alone()
    orders = timed(machine, 0.0, 0.41)
    kinds = [type(order) for at, order in orders if at >= 0.399]
    assert [kind for kind in kinds if kind is not SendHello] == [Claim, Announce]
    said = [order.hello for _, order in of_kind(orders, SendHello) if isinstance(order, SendHello)]
    assert said[-1].claims == {EIP: 1}


def test_answers_end_with_the_self_lease_behind_the_last_hello() -> None:
    machine = alone()
    said_at, _ = of_kind(timed(machine, 0.0, 1.0), SendHello)[-1]
    assert machine.answer_until == said_at + machine.times.self_lease


def test_whoever_was_away_too_long_yields_first_and_listens() -> None:
    machine = alone()
    timed(machine, 0.0, 1.0)
    late = machine.known.sent_at + machine.times.dead
    orders = machine.step(late, hello(machine, 0))
    assert isinstance(orders[0], Withdraw)
    assert orders[0].reason is Yielded.FROZEN
    assert any(isinstance(order, Listen) for order in orders)
    assert machine.known.segments[LINK].peers.by_node == {}, "a hello that waited with us proves nothing"


def test_a_frame_that_does_not_name_our_life_changes_nothing_but_is_echoed() -> None:
    machine = alone()
    timed(machine, 0.0, 1.0)
    machine.step(1.0, hello(machine, 0, {EIP: 9}, heard={}))
    assert machine.holding(EIP)
    assert machine.known.eips[EIP].maxterm == 1
    orders = of_kind(timed(machine, 1.0, 1.02), SendHello)
    sent = [order.hello for _, order in orders if isinstance(order, SendHello)]
    assert sent[0].heard["peer"].incarnation == LIFE


@pytest.mark.parametrize(("incarnation", "link"), [(1, LINK), (None, LINK + 1)], ids=["another life", "another link"])
def test_an_echo_of_something_else_proves_nothing(incarnation: int | None, link: int) -> None:
    machine = alone()
    timed(machine, 0.0, 1.0)
    echo = Heard(Incarnation(incarnation or machine.incarnation), 10, link)
    machine.step(1.0, hello(machine, 0, {EIP: 9}, heard={"me": echo}))
    assert machine.holding(EIP)


def test_a_frame_that_left_by_another_link_counts_only_if_it_names_ours() -> None:
    """A stranger on two LANs repeats on one what a node said on the other: nothing is claimed there, it says."""
    machine = alone()
    machine.step(0.1, hello(machine, 0, {EIP: 3}, link=7))
    machine.step(0.2, hello(machine, 1, {}, link=8, heard={"me": Heard(machine.incarnation, 10, LINK + 1)}))
    assert machine.holder(EIP, 0.2) == ("peer", 3)
    machine.step(0.3, hello(machine, 2, {}, link=8))
    assert machine.holder(EIP, 0.3) is None, "its link became another one, on which it hears us"


def test_a_better_claim_silences_and_a_worse_one_is_answered_with_an_announcement_once() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"peer": {}})
    assert score(EIP, "me") > score(EIP, "peer")
    worse = {EIP: 1}
    assert any(isinstance(order, Announce) for order in machine.step(1.01, hello(machine, 9001, worse)))
    assert not any(isinstance(order, Announce) for order in machine.step(1.02, hello(machine, 9002, worse)))
    orders = machine.step(1.03, hello(machine, 9003, {EIP: 2}))
    assert orders[0] == Withdraw(EIP, LINK, Yielded.BETTER_CLAIM, 1.03 + machine.times.linger)


def test_what_one_gives_way_for_and_another_takes_in_the_same_moment_is_not_answered_for() -> None:
    machine = alone()
    beside(machine, 0.0, 0.3, {"a": {}, "b": {}})
    claimed_at, _ = of_kind(beside(machine, 0.3, 0.5, {"a": {}, "b": {}}), Claim)[0]
    now = claimed_at + machine.times.hello - 1e-3
    assert now < machine.known.eips[EIP].probed_until, "the probe that goes before the first answer is not over"
    machine.step(now, hello(machine, 9000, {}, "a", yielded={EIP: 1})._replace(more=True))
    machine.step(now, hello(machine, 9001, {EIP: 2}, "b")._replace(more=True))
    orders = machine.step(now, Tick())
    assert not machine.holding(EIP)
    assert [type(order) for order in orders if isinstance(order, Claim | Withdraw)] == [Withdraw]


def test_a_replayed_frame_is_refused() -> None:
    machine = alone()
    timed(machine, 0.0, 1.0)
    machine.step(1.0, hello(machine, 5))
    machine.step(1.01, hello(machine, 5, {EIP: 9}))
    machine.step(1.02, hello(machine, 4, {EIP: 9}))
    assert machine.holding(EIP)


def test_a_silent_peer_is_probed_and_then_dead() -> None:
    machine = alone()
    machine.step(0.01, hello(machine, 0, {EIP: 3}))
    heard_at = 0.2
    timed(machine, 0.01, heard_at - 0.001)
    machine.step(heard_at, hello(machine, 1, {EIP: 3}))
    orders = timed(machine, heard_at, 1.0, hears=True)
    probes = [at for at, o in of_kind(orders, SendHello) if isinstance(o, SendHello) and "peer" in o.hello.probes]
    assert probes[0] == pytest.approx(heard_at + machine.times.suspect, abs=machine.times.pace)
    at, claim = of_kind(orders, Claim)[0]
    assert isinstance(claim, Claim)
    assert (at, claim.term) == (pytest.approx(heard_at + machine.times.dead), 4)


def recorded(machine: Ownership, begin: float, end: float) -> WriteRecord:
    """The first record that it has written, and that it hears of as soon as it is."""
    write = of_kind(timed(machine, begin, end), WriteRecord)[0][1]
    assert isinstance(write, WriteRecord)
    record = Record(write.holder, write.incarnation, write.term, 1)
    assert machine.step(end, RecordWritten(write.eip, write.attempt, True, record)) == []
    return write


def test_the_record_follows_the_claim_as_soon_as_nobody_contests_it() -> None:
    machine = alone(api=True)
    machine.step(0.1, ApiUp())
    orders = timed(machine, 0.1, 0.6)
    claimed, written = of_kind(orders, Claim)[0][0], of_kind(orders, WriteRecord)[0]
    assert written == (
        pytest.approx(claimed + machine.times.hello),
        WriteRecord(EIP, 1, 0, "me", machine.incarnation, 1),
    )


def test_an_api_that_says_nothing_delays_no_claim_and_is_down_after_one_write() -> None:
    machine = alone(api=True)
    machine.step(0.1, ApiUp())
    orders = timed(machine, 0.1, 3.0)
    assert [at for at, _ in of_kind(orders, Claim)] == [pytest.approx(0.4)]
    assert len(of_kind(orders, WriteRecord)) == 1
    assert not machine.known.api.up


def test_a_record_is_written_once_and_left_alone() -> None:
    machine = alone(api=True)
    machine.step(0.1, ApiUp())
    recorded(machine, 0.1, 0.55)
    assert of_kind(timed(machine, 0.55, 10.0), WriteRecord) == []


@pytest.mark.parametrize(
    ("stands", "after", "term"),
    [
        pytest.param(Record(None, LIFE, 4, 9), 0.0, 5, id="nobody's, of a higher term"),
        pytest.param(Record("me", LIFE, 1, 9), 0.0, 1, id="ours, of an earlier life"),
        pytest.param(Record("peer", LIFE, 0, 9), 0.0, 1, id="another's, of a lower term"),
        pytest.param(Record("peer", LIFE, 3, 9), 60.0, 4, id="another's, who is not heard: it may hold it for others"),
    ],
)
def test_a_record_that_says_something_else_is_set_right(stands: Record, after: float, term: int) -> None:
    machine = alone(api=True)
    machine.step(0.1, ApiUp())
    recorded(machine, 0.1, 0.55)
    first = [(0.6, order) for order in machine.step(0.6, RecordRead(EIP, stands))]
    at, write = of_kind(first + timed(machine, 0.6, 70.0), WriteRecord)[0]
    assert isinstance(write, WriteRecord)
    assert (at, write.holder, write.term, write.expected) == (pytest.approx(0.6 + after), "me", term, 9)


def test_a_lost_link_yields_at_once_and_frees_the_record_if_nobody_else_writes_it() -> None:
    machine = alone(api=True)
    machine.step(0.1, ApiUp())
    recorded(machine, 0.1, 0.55)
    orders = [(0.6, order) for order in machine.step(0.6, LinkChanged(LINK, up=False))]
    assert isinstance(orders[0][1], Withdraw)
    (at, write) = of_kind(orders + timed(machine, 0.6, 1.5), WriteRecord)[0]
    assert isinstance(write, WriteRecord)
    assert (at, write.holder, write.term) == (pytest.approx(0.6 + machine.times.record_grace), None, 1)


def test_a_peer_that_asks_in_every_hello_is_told_all_once_and_in_slices() -> None:
    machine = alone(eips=3000)
    timed(machine, 0.0, 3.0)
    machine.step(3.0, hello(machine, 0))
    timed(machine, 3.0, 4.0, hears=True)
    said: list[SendHello] = []
    for n in range(1, 10):
        at = 4.0 + n * machine.times.pace
        orders = [*machine.step(at, hello(machine, n, wants=frozenset({"me"})))]
        orders += [order for _, order in timed(machine, at, at + machine.times.pace - 1e-6)]
        said += [order for order in orders if isinstance(order, SendHello)]
    told = [eip for order in said if len(order.hello.claims) > 64 for eip in order.hello.claims]
    assert sorted(told) == [EIP + n for n in range(3000)]
    assert max(len(order.hello.claims) for order in said) <= 1024


def test_the_slices_of_all_it_holds_follow_each_other_without_waiting_for_a_beat() -> None:
    machine = alone(eips=3000)
    timed(machine, 0.0, 3.0)
    met = [(3.0, order) for order in machine.step(3.0, hello(machine, 0))]
    orders = met + timed(machine, 3.0, 3.0 + 3 * machine.times.slot)
    slices = [order.hello.claims for _, order in of_kind(orders, SendHello) if isinstance(order, SendHello)]
    assert {eip for claims in slices for eip in claims} == machine.held().keys()


class Counting(Claims):
    judged = 0

    def judge(self, x: Eip, now: float) -> None:
        self.judged += 1
        super().judge(x, now)


def at_rest(nodes: int, seconds: float) -> tuple[list[list[float]], list[int]]:
    """When each of so many machines on one link sent its hellos, and how often each was woken in the last second. A
    frame travels for 0.2 ms. A routine hello waits until something else wakes whom it reaches, and all that waits is
    read first."""
    machines = [
        Ownership(f"n{n}", lambda above, n=n: Incarnation((above >> 31) + 5 + n << 31), n * 0.037) for n in range(nodes)
    ]
    sent: list[list[float]] = [[] for _ in machines]
    woken = [0] * nodes
    unread: list[list[tuple[float, Hello]]] = [[] for _ in machines]
    queue: list[tuple[float, int, int, Event]] = []
    for n in range(nodes):
        heappush(queue, (n * 0.037, n, n, LinkChanged(LINK, up=True)))
    turn = count(nodes)
    while queue and queue[0][0] < seconds:
        now, _, n, event = heappop(queue)
        if isinstance(event, HelloHeard):
            unread[n].append((now, event.hello))
            if event.hello.routine:
                continue
            event = Tick()
        elif isinstance(event, Tick) and machines[n].next_wake(now) > now + 1e-9:
            continue
        woken[n] += now >= seconds - 1
        for at, other in unread[n]:
            assert not machines[n].step(now, HelloHeard(LINK, other, age=now - at, more=True))
        unread[n].clear()
        for order in machines[n].step(now, event):
            if isinstance(order, SendHello):
                sent[n].append(now)
                for number in set(range(nodes)) - {n}:
                    heappush(queue, (now + 0.0002, next(turn), number, HelloHeard(LINK, order.hello)))
        heappush(queue, (max(machines[n].next_wake(now), now + 1e-6), next(turn), n, Tick()))
    return sent, woken


@pytest.mark.parametrize("nodes", [2, 3, 5, 12])
def test_at_rest_a_node_wakes_for_its_own_hellos_and_for_no_others(nodes: int) -> None:
    sent, woken = at_rest(nodes, 4.0)
    assert max(woken) <= 11
    for times in sent:
        assert len([at for at in times if at >= 3.0]) in (10, 11)
        assert max(b - a for a, b in pairwise(at for at in times if at > 1.0)) < 0.101


def routine(orders: list[tuple[float, Order]], after: float) -> list[bool]:
    """Of each hello said after ``after`` (seconds)."""
    return [order.hello.routine for at, order in of_kind(orders, SendHello) if at > after]  # type: ignore[attr-defined]


def test_a_hello_is_routine_once_its_like_was_said_a_few_times() -> None:
    machine = alone()
    said = routine(beside(machine, 0.0, 2.0, {"peer": {}}), machine.times.listen - machine.times.hello / 2)
    assert said[:REPEATED] == [False] * REPEATED
    assert all(said[REPEATED:])


def test_who_misses_somebody_says_nothing_that_is_routine() -> None:
    """Whoever hears it then did not before, and both may hold the same."""
    machine = alone()
    assert not any(routine(timed(machine, 0.0, 2.0), 0.0)), "nobody is heard"
    beside(machine, 2.0, 5.0, {"peer": {}, "other": {}})
    assert not any(routine(beside(machine, 5.0, 8.0, {"peer": {}}), 5.0 + machine.times.dead))
    machine.step(8.0, hello(machine, 20_000, node="other", draining=True))
    assert all(routine(beside(machine, 8.0, 10.0, {"peer": {}}), 9.0)), "it said that it would go"


def test_who_claims_what_another_may_hold_says_nothing_that_is_routine() -> None:
    machine = alone(eips=0)
    assert all(routine(beside(machine, 0.0, 3.0, {"peer": {}}), 2.0))
    machine.known.segments[LINK].own.add(EIP, 1, 3.0, weak=True)
    assert not any(routine(beside(machine, 3.0, 3.9, {"peer": {}}), 3.0))


NEWS: dict[str, Callable[[Ownership, float], Event]] = {
    "a drain": lambda machine, now: Drain(),
    "an EIP let go": lambda machine, now: EligibilityChanged(EIP, None),
    "a peer that is new": lambda machine, now: hello(machine, 1, node="new"),
    "a peer that asks": lambda machine, now: hello(machine, 10_000, probes=frozenset({"me"})),
}


@pytest.mark.parametrize("what", NEWS)
def test_news_and_their_repetitions_are_not_routine(what: str) -> None:
    machine = alone()
    timed(machine, 0.0, 1.0)
    assert routine(beside(machine, 1.0, 4.0, {"peer": {}}), 3.5) == [True] * 5
    orders = [(4.0, order) for order in machine.step(4.0, NEWS[what](machine, 4.0))]
    said = routine([*orders, *beside(machine, 4.005, 4.3, {"peer": {}})], 3.9)
    assert said
    assert not said[0]
    assert what == "a peer that asks" or not any(said)


def test_who_falls_silent_is_suspect_from_its_last_hello_on_whenever_that_was_read() -> None:
    machine = alone()
    timed(machine, 0.0, 1.0)
    beside(machine, 1.0, 4.0, {"peer": {}})
    machine.step(4.09, hello(machine, 10_000)._replace(age=0.08, more=True))
    probed = [
        at for at, order in timed(machine, 4.09, 5.0) if isinstance(order, SendHello) and "peer" in order.hello.probes
    ]
    assert probed[0] == pytest.approx(4.01 + machine.times.suspect, abs=0.001)


def test_nobody_is_silent_whose_hello_is_read_behind_another_one() -> None:
    machine = alone()
    timed(machine, 0.0, 1.0)
    beside(machine, 1.0, 4.0, {"peer": {}, "other": {}})
    late = 3.9 + machine.times.suspect + 0.001
    timed(machine, 4.0, late - 0.002)
    assert machine.step(late, hello(machine, 10_000)._replace(more=True)) == []
    orders = machine.step(late, hello(machine, 10_000, node="other")._replace(more=True))
    orders += machine.step(late, Tick())
    assert not any(order.hello.probes for order in orders if isinstance(order, SendHello))
    assert all(peer.alive for peer in machine.peers(late)[LINK])


def test_nothing_is_looked_at_between_two_beats_while_everybody_speaks() -> None:
    machine = alone()
    timed(machine, 0.0, 1.0)
    beats = [at for at, order in beside(machine, 1.0, 4.0, {"peer": {}}) if isinstance(order, SendHello) and at > 3.0]
    ticks: list[float] = []
    for n in range(10):
        now = 4.0 + n / 10
        machine.step(now, hello(machine, 10_000 + n))
        while (now := max(machine.next_wake(now), now + 1e-6)) < 4.0999 + n / 10:
            machine.step(now, Tick())
            ticks.append(now)
    assert len(ticks) <= len(beats) + 1


def test_an_api_server_that_answers_now_and_then_has_not_every_eip_looked_at_each_time() -> None:
    machine = alone(eips=500, api=True, kind=made_of(Counting))
    timed(machine, 0.0, 5.0)
    before = machine.claims.judged
    for n in range(20):
        machine.step(5.0 + n / 100, ApiUp())
        timed(machine, 5.0 + n / 100, 5.009 + n / 100)
        machine.step(5.009 + n / 100, ApiDown())
    machine.step(5.2, ApiUp())
    timed(machine, 5.2, 5.9)
    assert 500 <= machine.claims.judged - before < 700
    timed(machine, 5.9, 6.1)
    assert machine.claims.judged - before >= 1000, "all once more, a second after the first time"


def test_what_comes_in_series_waits_for_nothing_that_may_wait_itself() -> None:
    machine = alone(eips=2000, kind=made_of(Counting))
    timed(machine, 0.0, 3.0)
    machine.step(3.0, Drain(on=True))
    before = machine.claims.judged
    for n in range(50):
        machine.step(3.0, EligibilityChanged(EIP + n, LINK))
    assert machine.claims.judged - before == 50
    machine.step(3.0, Tick())
    assert machine.claims.judged - before > 50


def test_a_drained_node_answers_until_somebody_else_does() -> None:
    machine = alone()
    timed(machine, 0.0, 1.0)
    machine.step(1.0, hello(machine, 0))
    machine.step(1.01, Drain())
    assert machine.holding(EIP)
    orders = machine.step(1.05, hello(machine, 1, {EIP: 2}))
    assert [o.reason for o in orders if isinstance(o, Withdraw)] == [Yielded.BETTER_CLAIM]


def test_a_node_that_reads_of_a_later_life_of_its_own_goes_above_it() -> None:
    machine = alone()
    later = Incarnation(machine.incarnation + (3 << 31))
    machine.step(0.1, hello(machine, 0, heard={"me": Heard(later, 65535, LINK)}))
    assert machine.incarnation > later


def test_a_record_of_an_old_version_is_not_read() -> None:
    machine = alone(api=True)
    machine.step(0.1, RecordRead(EIP, Record("b", LIFE, 5, 8)))
    machine.step(0.2, RecordRead(EIP, Record("c", LIFE, 4, 7)))
    assert machine.known.eips[EIP].record == Record("b", LIFE, 5, 8)


def test_nothing_is_judged_again_when_nothing_changed() -> None:
    """A steady hello touches no EIP, however many its sender holds."""
    machine = alone()
    claims = {EIP + n: 1 for n in range(2000)}
    machine.step(0.1, hello(machine, 0, claims))
    while machine.next_wake(0.1) <= 0.1:
        machine.step(0.1, Tick())
    judged: list[object] = []
    original: Callable[..., None] = machine.claims.judge
    machine.claims.judge = lambda x, now: (judged.append(x), original(x, now))[1]  # type: ignore[method-assign]
    machine.step(0.15, hello(machine, 1, claims))
    assert judged == []


def test_a_peer_speaks_for_what_it_claims_or_has_just_let_go_and_for_nothing_else() -> None:
    machine = alone(3)

    def speaks(now: float) -> list[bool]:
        return [machine.speaks_for(LINK, "peer", EIP + n, now) for n in range(3)]

    assert speaks(0.0) == [False] * 3
    machine.step(0.1, hello(machine, 0, {EIP: 1}))
    assert speaks(0.1) == [True, False, False]
    for n in range(1, 60):
        machine.step(0.1 + n * 0.1, hello(machine, n, {}, yielded={EIP: 1} if n < 10 else {}))
    assert speaks(2.9) == [True, False, False], "what it says on the wire may be on its way"
    assert speaks(6.0) == [False] * 3
    assert machine.speaks_for(LINK, "nobody", EIP, 6.0) is False
    machine.step(6.1, hello(machine, 99, {EIP: 7}))
    assert speaks(6.2)[0]
    assert not speaks(6.1 + machine.times.dead)[0], "a dead one claims nothing"


def told_owners(orders: list[Order]) -> list[tuple[object, str | None]]:
    return [(order.eip, order.node) for order in orders if isinstance(order, PeersAddress)]


def test_an_address_that_a_peer_says_is_its_own_is_never_claimed() -> None:
    machine = alone(2)
    orders = machine.step(0.1, hello(machine, 0, own=frozenset({EIP})))
    assert told_owners(orders) == [(EIP, "peer")]
    for n in range(1, 40):
        machine.step(n * 0.1, hello(machine, n, own=frozenset({EIP})))
        timed(machine, n * 0.1, n * 0.1 + 0.1)
    assert machine.held().keys() == {EIP + 1}


@pytest.mark.parametrize(
    "said", [{"own": frozenset({EIP})}, {"addresses": (EIP,)}], ids=["all of them", "the one of a 1.1 hello"]
)
def test_one_that_is_held_already_is_let_go(said: dict[str, object]) -> None:
    machine = alone(2)
    timed(machine, 0.0, 1.0)
    orders = machine.step(1.0, hello(machine, 0, **said))
    assert [(o.eip, o.reason) for o in orders if isinstance(o, Withdraw)] == [(EIP, Yielded.PEERS_ADDRESS)]
    assert told_owners(orders) == [(EIP, "peer")]


def test_it_is_nobodys_eip_while_its_node_is_dead_and_free_once_its_node_says_otherwise() -> None:
    machine = alone(1)
    machine.step(0.1, hello(machine, 0, own=frozenset({EIP})))
    timed(machine, 0.1, 20.0)
    assert machine.held() == {}
    machine.step(20.0, hello(machine, 1))
    orders = machine.step(20.1, hello(machine, 2))
    timed(machine, 20.1, 24.0, hears=True)
    assert machine.held().keys() == {EIP}
    assert told_owners(orders) == [(EIP, None)] or machine.known.eips[EIP].owner is None


def test_a_new_life_of_that_peer_does_not_free_it() -> None:
    machine = alone(1)
    machine.step(0.1, hello(machine, 0, own=frozenset({EIP})))
    timed(machine, 0.1, 2.0)
    event = hello(machine, 0)
    machine.step(2.0, event._replace(hello=event.hello._replace(incarnation=Incarnation(LIFE + (1 << 31)))))
    timed(machine, 2.0, 4.0)
    assert machine.held() == {}


def test_an_address_told_before_its_eip_was_asked_for_counts_too() -> None:
    machine = alone(1)
    machine.step(0.1, hello(machine, 0, own=frozenset({EIP + 9})))
    assert told_owners(machine.step(0.2, EligibilityChanged(EIP + 9, LINK))) == [(EIP + 9, "peer")]
    timed(machine, 0.2, 2.0, hears=True)
    assert machine.held().keys() == {EIP}
    assert told_owners(machine.step(2.0, EligibilityChanged(EIP + 9, None))) == [(EIP + 9, None)]


def on_another_link(machine: Ownership, sequence: int, link: int, **more: object) -> HelloHeard:
    heard = {"me": Heard(machine.incarnation, 10, link)}
    return hello(machine, sequence, heard=heard, **more)._replace(link=link)  # type: ignore[arg-type]


def test_a_link_that_was_made_anew_is_where_an_eip_is_heard_of() -> None:
    machine, anew = alone(), LINK + 5
    machine.step(0.1, hello(machine, 0, {EIP: 3}))
    assert machine.heard_on(EIP, "peer") == LINK
    machine.step(0.11, LinkChanged(LINK, up=False))
    assert machine.heard_on(EIP, "peer") is None
    machine.step(0.12, LinkChanged(anew, up=True))
    machine.step(0.13, on_another_link(machine, 1, anew, claims={EIP: 3}))
    assert machine.heard_on(EIP, "peer") == anew


def test_what_a_peer_says_by_a_link_that_was_made_anew_counts_instead_of_what_it_said_before() -> None:
    machine, anew, its = alone(), LINK + 5, frozenset({EIP + 99})
    machine.step(0.1, hello(machine, 0, own=its | {EIP}))
    machine.step(0.11, LinkChanged(LINK, up=False))
    machine.step(0.12, EligibilityChanged(EIP, anew))
    assert machine.known.eips[EIP].owner == "peer"
    machine.step(0.13, LinkChanged(anew, up=True))
    machine.step(0.14, on_another_link(machine, 1, anew, own=its | {EIP}))
    assert machine.known.eips[EIP].owner == "peer"
    now = 0.14
    for n in range(2, 42):
        now = 0.14 + n / 10
        timed(machine, now - 0.1, now)
        machine.step(now, on_another_link(machine, n, anew, own=its))
    assert machine.known.eips[EIP].owner is None
    assert machine.held().keys() == {EIP}


def test_a_peer_that_is_gone_is_told_of_for_an_hour_and_its_recordings_are_refused_for_ever() -> None:
    machine = alone()
    timed(machine, 0.0, 1.0)
    machine.step(1.0, hello(machine, 5, {EIP: 9}))
    assert [peer.alive for peer in machine.peers(3600.9)[LINK]] == [False]
    assert machine.peers(3601.1)[LINK] == ()
    timed(machine, 1.0, 2.0, hears=True)
    machine.step(2.0, hello(machine, 5, {EIP: 99}))
    assert machine.holding(EIP)
    machine.step(2.1, hello(machine, 6))
    assert [peer.alive for peer in machine.peers(2.1)[LINK]] == [True]
