"""What the failover scenarios make of a capture and of probes, and which promises they see broken."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from speaker.lab.capture import Reply
from speaker.lab.failover import summary
from speaker.lab.failover_result import (
    FailedOver,
    Healed,
    Instants,
    Observations,
    Promise,
    View,
    broken,
    broken_by_split,
    healed,
    promise_of,
    settle_ms,
    views,
)
from speaker.lab.outage import Outage
from speaker.model import Mac

EIP, OTHER = ip_address("192.0.2.200"), ip_address("192.0.2.201")
NODE1, NODE2, STRANGER = (Mac(bytes.fromhex(f"0200000100{last}")) for last in ("11", "12", "66"))
NAMES = {NODE1: "node1", NODE2: "node2"}
HELLO = 100
SERVED = Outage(0.0, 0, 1000)
PROMISE = Promise(500.0)


def answer(at, mac, address=EIP, unasked=False):
    return Reply(at, address, mac, unasked)


def view_of(*replies, instants=None, outage=SERVED, silence=SERVED, neighbour="client", eip=EIP):
    """The view of EIP, which node1 held at first; the fault is at 10 s unless ``instants`` says otherwise."""
    silences = {} if silence is None else {eip: silence}
    seen = Observations(neighbour, sorted(replies, key=lambda r: r.at), {eip: outage}, silences, {eip: NODE1})
    (view,) = views(seen, NAMES, instants or Instants(10.0), HELLO)
    return view


# ── what is seen ──────────────────────────────────────────────────────────────────────────────────────────────


def test_an_eip_that_nobody_else_claims_stays_where_it_is():
    view = view_of(answer(9.0, NODE1), answer(11.0, NODE1))
    assert (view.before, view.after, view.moves, view.duplicates) == ("node1", "node1", 0, 0)
    assert view.taken_over_ms is None


def test_an_announcement_alone_is_a_move_even_where_the_old_holder_was_never_heard():
    view = view_of(answer(10.4, NODE2, unasked=True))
    assert (view.before, view.after, view.moves) == ("node1", "node2", 1)
    assert view.taken_over_ms == pytest.approx(400)


def test_the_pair_of_answers_around_a_clean_handover_is_no_duplicate():
    view = view_of(answer(10.0, NODE1), answer(10.01, NODE2), answer(10.02, NODE2))
    assert (view.moves, view.duplicates) == (1, 0)


def test_an_old_holder_that_still_answers_after_the_new_one_is_a_duplicate():
    view = view_of(answer(10.0, NODE1), answer(10.01, NODE2), answer(10.02, NODE1), answer(10.5, NODE2))
    assert view.duplicates == 1
    assert view.moves == 3


def test_a_mac_that_is_no_nodes_is_a_stranger():
    assert view_of(answer(10.5, STRANGER)).after == "a stranger"


def test_what_a_thawed_node_says_of_what_it_lost_is_stale_and_no_move():
    said = [answer(9.9, NODE1), answer(10.4, NODE2), answer(15.001, NODE1), answer(15.1, NODE2)]
    view = view_of(*said, instants=Instants(10.0, thawed=15.0))
    assert (view.stale, view.moves, view.after) == (1, 1, "node2")


def test_what_a_node_says_after_a_freeze_of_what_it_never_lost_is_not_stale():
    assert view_of(answer(15.1, NODE1), instants=Instants(10.0, thawed=15.0)).stale == 0


def test_two_holders_may_both_answer_while_they_find_each_other_and_only_the_last_word_counts():
    instants = Instants(10.0, healed=12.0)
    said = [
        answer(12.01, NODE2),
        answer(12.02, NODE1),
        answer(12.03, NODE2),
        answer(12.04, NODE1),
        answer(12.05, NODE2),
    ]
    view = view_of(*said, answer(12.5, NODE2), instants=instants)
    assert (view.moves, view.duplicates, view.after) == (1, 0, "node2")
    assert view.taken_over_ms is None, "this side had a holder all the time"
    late = settle_ms(HELLO) / 1000
    assert view_of(*(answer(r.at + late, r.mac) for r in said), instants=instants).duplicates > 0


# ── what is promised ──────────────────────────────────────────────────────────────────────────────────────────

MOVED = view_of(answer(10.4, NODE2), outage=Outage(400.0, 200, 1000, began=10.0))
STAYED = view_of(answer(10.4, NODE1))


def test_a_crash_promises_half_a_second_at_the_default_hello_and_less_at_a_shorter_one():
    assert promise_of("crash", 100).outage_ms == pytest.approx(500)
    assert promise_of("crash", 25).outage_ms < 250
    assert promise_of("drain", 100).lossless
    assert promise_of("rejoin", 100).lossless
    assert promise_of("cable", 100).outage_ms == 150


def test_the_victims_eips_move_once_and_nobody_elses():
    assert not list(broken(PROMISE, "node1", [MOVED]))
    assert not list(broken(PROMISE, "node2", [STAYED]))
    assert list(broken(PROMISE, "node1", [STAYED])) == [
        "192.0.2.200, seen by client: moved 0 times instead of once, and is node1's now"
    ]
    assert list(broken(PROMISE, "node2", [MOVED])) == [
        "192.0.2.200, seen by client: left node1, to which nothing happened, for node2"
    ]


@pytest.mark.parametrize(
    ("flaw", "problem"),
    [
        ({"outage": Outage(501.0, 250, 1000, began=10.0)}, "was out for 501 ms, promised were 500"),
        ({"outage": Outage(100.0, 50, 1000, began=10.0, over=False)}, "is out to this moment"),
        ({"outage": Outage(0.0, 0, 0)}, "was never probed"),
        ({"silence": None}, "nobody asked for it by ARP"),
        ({"silence": Outage(0.0, 0, 0)}, "nobody asked for it by ARP"),
        (
            {"silence": Outage(520.0, 30, 100, began=10.0)},
            "nobody answered those who asked for it for 520 ms, promised were 500",
        ),
    ],
)
def test_each_way_to_be_served_badly_is_a_problem(flaw, problem):
    view = view_of(answer(10.4, NODE2), **flaw)
    assert list(broken(PROMISE, "node1", [view])) == [f"192.0.2.200, seen by client: {problem}"]


def test_a_new_holder_that_nobody_noticed_in_time_is_a_problem_even_if_nobody_asked():
    (problem,) = broken(PROMISE, "node1", [view_of(answer(10.6, NODE2, unasked=True))])
    assert "for 600 ms" in problem


def test_a_single_lost_probe_breaks_a_lossless_promise():
    view = view_of(answer(10.4, NODE2), outage=Outage(4.0, 1, 1000, began=10.0))
    assert not list(broken(PROMISE, "node1", [view]))
    (problem,) = broken(Promise(500.0, lossless=True), "node1", [view])
    assert "lost 1 of 1000 probes" in problem


def test_one_answer_may_have_been_inside_the_send_call_and_no_second():
    frozen, instants = promise_of("freeze", HELLO), Instants(10.0, thawed=15.0)
    once = view_of(answer(10.4, NODE2), answer(15.001, NODE1), instants=instants)
    twice = view_of(answer(10.4, NODE2), answer(15.001, NODE1), answer(15.002, NODE1), instants=instants)
    assert not list(broken(frozen, "node1", [once]))
    assert list(broken(frozen, "node1", [twice])) == [
        "node1 said 2 times that it has what it had lost, promised were at most 1"
    ]
    assert list(broken(frozen, "node1", [once, once])), "one in all, not one for each EIP"


def test_duplicate_answers_are_a_problem():
    view = view_of(answer(10.0, NODE1), answer(10.01, NODE2), answer(10.02, NODE1), answer(10.5, NODE2))
    assert any("1 duplicate answers" in problem for problem in broken(PROMISE, "node1", [view]))


# ── a switch in two ───────────────────────────────────────────────────────────────────────────────────────────


def side(neighbour, *replies):
    return Observations(neighbour, replies, {}, {}, {EIP: NODE1})


def test_the_loser_is_quiet_within_two_hello_intervals_and_everybody_hears_the_winner():
    one = side("client", answer(12.01, NODE2), answer(12.1, NODE1, unasked=True))
    other = side("client2", answer(11.0, NODE2), answer(12.15, NODE2), answer(12.16, NODE1, unasked=True))
    (found,) = healed([one, other], {EIP: NODE1}, NAMES, at=12.0)
    assert found.winner == "node1"
    assert found.both_ms == pytest.approx(150)
    assert found.unaware == frozenset()
    assert not list(broken_by_split(PROMISE, HELLO, [STAYED], [found]))


def test_a_side_that_only_hears_answers_was_not_told():
    (found,) = healed([side("client2", answer(12.5, NODE1))], {EIP: NODE1}, NAMES, at=12.0)
    assert list(broken_by_split(PROMISE, HELLO, [], [found])) == [
        "192.0.2.200: client2 was not told that it is node1's"
    ]


def test_a_loser_that_goes_on_is_a_problem():
    found = Healed(EIP, "node1", both_ms=settle_ms(HELLO) + 1, unaware=frozenset())
    (problem,) = broken_by_split(PROMISE, HELLO, [], [found])
    assert "two nodes answered for 221 ms, promised were 220" in problem


def test_a_side_that_is_not_served_is_a_problem():
    view = view_of(outage=Outage(600.0, 300, 1000, began=10.0))
    (problem,) = broken_by_split(PROMISE, HELLO, [view], [])
    assert "out for 600 ms" in problem


# ── the result ────────────────────────────────────────────────────────────────────────────────────────────────


def result_of(*seen: View, problems=()):
    return FailedOver("crash", 3, HELLO, "node1", PROMISE, seen, problems)


def test_a_result_without_problems_is_ok_and_one_without_eips_is_not():
    assert result_of(MOVED).ok
    assert not result_of(MOVED, problems=("something",)).ok
    assert not result_of().ok


def test_the_json_tells_each_eips_worst_outage_and_the_sums():
    worse = view_of(answer(10.4, NODE2), outage=Outage(410.0, 205, 1000, began=10.0), neighbour="client2")
    told = result_of(MOVED, worse).as_json()
    assert told["outage_ms"] == {"192.0.2.200": 410.0}
    assert (told["moves"], told["duplicate_answers"], told["problems"]) == (2, 0, [])
    assert [eip["neighbour"] for eip in told["eips"]] == ["client", "client2"]


# ── the closing line ──────────────────────────────────────────────────────────────────────────────────────────

OTHER_MOVED = view_of(answer(10.3, NODE2, OTHER), outage=Outage(300.0, 150, 1000, began=10.0), eip=OTHER)
SIX = ip_address("2001:db8::1")
SIX_STAYED = view_of(silence=None, eip=SIX)
FLAPPED = view_of(answer(10.0, NODE1), answer(10.01, NODE2), answer(10.02, NODE1), answer(10.5, NODE2))
LOSSLESS = Promise(500.0, lossless=True)


def closing(*seen, scenario="crash", victim="node1", promise=PROMISE):
    return summary(FailedOver(scenario, 3, HELLO, victim, promise, seen, ()))


@pytest.mark.parametrize(
    ("story", "line"),
    [
        (
            closing(MOVED, OTHER_MOVED, SIX_STAYED),
            "crash: 400 ms out at worst; never longer without any answer than 400 ms (promised: 500); 2 of 3 EIPs "
            "moved; to 2000 ARP requests no node answered after its successor",
        ),
        (
            closing(STAYED, scenario="rejoin", promise=LOSSLESS),
            "rejoin: none of 1000 probes lost; 0 of 1 EIPs moved; to 1000 ARP requests no node answered after its "
            "successor",
        ),
        (
            closing(FLAPPED, SIX_STAYED, scenario="drain", promise=LOSSLESS),
            "drain: none of 2000 probes lost; 1 of 2 EIPs moved; answers of a node after its successor's: 1",
        ),
        (
            closing(view_of(answer(10.4, NODE2), neighbour="client2"), STAYED, scenario="partition", victim=None),
            "partition: none of 2000 probes lost; never longer without any answer than 400 ms (promised: 500); 1 of 1 "
            "EIPs moved; to 2000 ARP requests no node answered after its successor, but within 220 ms of the healing",
        ),
        (closing(SIX_STAYED), "crash: none of 1000 probes lost; 0 of 1 EIPs moved"),
    ],
)
def test_the_closing_line_says_what_was_measured_and_no_more(story, line):
    assert story == line


def test_an_answer_of_a_thawed_node_is_counted_in_the_closing_line():
    view = view_of(answer(10.4, NODE2), answer(15.001, NODE1), instants=Instants(10.0, thawed=15.0))
    assert closing(view, scenario="freeze").endswith("answers of a node after its successor's: 1")


def test_an_eip_that_went_to_and_fro_moved_once_in_the_closing_line():
    assert FLAPPED.moves == 3
    assert "1 of 1 EIPs moved" in closing(FLAPPED, replace(FLAPPED, neighbour="client2"))
