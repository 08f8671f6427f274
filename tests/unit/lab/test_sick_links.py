"""What is made of a client's view of EIPs while links are sick, and which promises are seen broken."""

from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.lab.capture import Reply
from speaker.lab.outage import Sample
from speaker.lab.scene import ASK_INTERVAL
from speaker.lab.sick import summary, totals
from speaker.lab.sick_links import ClaimCount, Done, Sight, Suffered, judge, paired, pairs, twice, undisputed
from speaker.lab.sickness import (
    COURSES,
    SICK_SETTLES,
    STUTTERING,
    Course,
    Drop,
    Hold,
    Step,
    Ward,
    in_bursts,
    in_bursts_between_nodes,
)
from speaker.model import Mac

EIP, OTHER = ip_address("192.0.2.200"), ip_address("192.0.2.201")
NODES = ("node1", "node2", "node3")
MACS = {node: Mac(bytes.fromhex(f"02000001001{node[-1]}")) for node in NODES}
STRANGER = Mac(bytes.fromhex("020000010066"))
HELLO = 100
BEGUN, HEALED, END = 10.0, 12.0, 20.0
ALL = frozenset(NODES) | {"client", "client2"}
QUIET = ClaimCount(0, 8.0)


def answers(who, *times, eip=EIP, unasked=False):
    return [Reply(at, eip, MACS.get(who, STRANGER), unasked) for at in times]


def beat(since, until):
    """When a client asks."""
    return [since + number * ASK_INTERVAL for number in range(round((until - since) / ASK_INTERVAL))]


def served(who, since, until, eip=EIP):
    return answers(who, *(at + 0.001 for at in beat(since, until)), eip=eip)


def sight(*replies, client="client", eips=(EIP,)):
    """Of a client that asks from 9 s to the end; it is answered by whoever replies next."""
    said = sorted((reply for some in replies for reply in some), key=lambda reply: reply.at)
    times = {eip: [reply.at for reply in said if reply.address == eip and not reply.unasked] for eip in eips}
    samples = [
        Sample(eip, at, next((came for came in times[eip] if at < came <= at + ASK_INTERVAL), None))
        for eip in eips
        for at in beat(9.0, END)
    ]
    return Sight(client, said, samples)


def silence_of(*hosts):
    few = frozenset(hosts)
    return (Drop(few, ALL), Drop(ALL, few))


SICK_NODE = silence_of("node1")


def suffered(*sights, drops=SICK_NODE, before=None, course=None, afterwards=QUIET, late=0.0):
    steps = (Step(0.0, "sick", drops), Step(2.0, "well"))
    return Suffered(
        course=course or Course(steps, 10.0),
        nodes=NODES,
        done=[Done(steps[0], BEGUN, BEGUN), Done(steps[1], HEALED, HEALED + late)],
        end=END,
        before=before or {EIP: "node1"},
        sights=sights,
        names={mac: node for node, mac in MACS.items()},
        meanwhile=ClaimCount(0, 2.0),
        afterwards=afterwards,
    )


def promised(promise, step=None):
    """What befell everybody from BEGUN to HEALED, and what is promised of it."""
    step = step or Step(0.0, "all wait", hold=Hold(0.4, ALL, ALL))
    return Course((step, Step(2.0, "well")), 10.0, promise=promise)


def judged(*sights, **circumstances):
    return judge("blip", HELLO, suffered(*sights, **circumstances))


def line_of(*sights, **circumstances):
    (line,) = judged(*sights, **circumstances).lines
    return line


# ── moves ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_sick_node_held_may_move_once_and_stay_there():
    result = judged(sight(served("node1", 9, BEGUN), served("node2", 10.3, END)))
    (line,) = result.lines
    assert (line.before, line.sick, line.after, line.moves, line.left) == ("node1", True, "node2", 1, 0)
    assert result.ok, result.problems


def test_what_moves_back_at_the_heal_left_a_healthy_node():
    result = judged(sight(served("node1", 9, BEGUN), served("node2", 10.3, HEALED), served("node1", HEALED, END)))
    (line,) = result.lines
    assert (line.moves, line.left) == (2, 1)
    assert "left a healthy node: 192.0.2.200 as client saw it" in result.problems


def test_what_a_healthy_node_held_may_not_move_at_all():
    line = line_of(sight(served("node2", 9, 10.3), served("node3", 10.3, END)), before={EIP: "node2"})
    assert (line.sick, line.moves, line.left) == (False, 1, 1)


def test_an_announcement_moves_an_eip_too():
    line = line_of(sight(served("node2", 9, 10.3), answers("node1", 10.3, unasked=True)), before={EIP: "node2"})
    assert (line.after, line.left) == ("node1", 1)


def test_while_two_nodes_gainsay_each_other_nothing_has_moved():
    both = sight(served("node2", 9, END), answers("node3", *(at + 0.002 for at in beat(10.3, 11))))
    line = line_of(both, before={EIP: "node2"})
    assert (line.moves, line.after) == (0, "node2")
    assert line.twice_ms == pytest.approx(700, abs=2 * ASK_INTERVAL * 1000)


def test_a_mac_that_is_no_nodes_is_a_stranger():
    assert line_of(sight(served("x", 10.3, END))).after == "a stranger"


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from(NODES)), max_size=30))
def test_no_two_undisputed_replies_gainsay_each_other(said):
    replies = [reply for at, who in said for reply in answers(who, at / 10)]
    kept = sorted(undisputed(replies, 0.1), key=lambda reply: reply.at)
    for one in kept:
        assert not any(one.mac != other.mac and 0 < other.at - one.at <= 0.1 for other in replies)
    if replies:
        assert max(reply.at for reply in replies) in [reply.at for reply in kept]


# ── a LAN in two, and one again ───────────────────────────────────────────────────────────────────────────────

CUT = (Drop(frozenset({"client", "node1"}), frozenset({"client2", "node2"})),)
IN_TWO = tuple(Drop(*pair) for drop in CUT for pair in ((drop.senders, drop.receivers), (drop.receivers, drop.senders)))


LARGER = (*IN_TWO, Drop(frozenset({"client"}), frozenset({"node3"})))
SMALLER = (*IN_TWO, Drop(frozenset({"client2"}), frozenset({"node3"})))
"""The other side is, as client2 can reach one node more or less than the client."""


def two_sides(winner):
    """node1 had it, node2 took it for the other side; then ``winner`` has it. node3 is in the reach of both."""
    mine = sight(served("node1", 9, HEALED), served(winner, HEALED, END))
    others = sight(
        served("node1", 9, BEGUN), served("node2", 10.3, HEALED), served(winner, HEALED, END), client="client2"
    )
    return mine, others


@pytest.mark.parametrize(
    ("winner", "drops", "elsewhere"), [("node1", IN_TWO, 0), ("node1", SMALLER, 0), ("node2", LARGER, 1)]
)
def test_one_of_two_holders_has_to_go_at_a_heal(winner, drops, elsewhere):
    result = judged(*two_sides(winner), drops=drops)
    assert result.ok, result.problems
    assert result.settled == {EIP}
    assert dict(totals(result))["EIPs that came to one of two holders at a heal"].startswith(f"1, {elsewhere} of them")


def test_and_it_is_no_move_of_a_healthy_nodes_eip():
    result = judged(*two_sides("node2"), drops=LARGER)
    assert not result.moved(sick=False)
    assert [line.client for line in result.moved(sick=True)] == ["client2"]


def test_but_not_both_of_them():
    result = judged(*two_sides("node3"), drops=IN_TWO)
    assert [line.left for line in result.lines] == [1, 1]


def test_nor_may_they_change_places():
    (mine, _), (_, others) = two_sides("node2"), two_sides("node1")
    result = judged(mine, others, drops=IN_TWO)
    assert [line.left for line in result.lines] == [1, 0]


@pytest.mark.parametrize(("winner", "drops"), [("node2", IN_TWO), ("node2", SMALLER), ("node1", LARGER)])
def test_but_not_the_larger_part_nor_of_two_alike_who_had_it_before(winner, drops):
    result = judged(*two_sides(winner), drops=drops)
    assert result.left == {EIP}
    assert result.settled == set()


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("", 0),
        ("aaaa", 0),
        ("aaabbb", 0),
        ("aba", 0.02),
        ("aababab", 0.08),
        ("abc", 0),
        ("a......b......a", 0),
        ("ababa..........babab", 0.06),
    ],
)
def test_two_answer_from_the_first_answer_of_one_to_the_last_after_one_of_the_other(said, seconds):
    """One letter a 20 ms."""
    who = {"a": "node1", "b": "node2", "c": "node3"}
    replies = [reply for at, letter in enumerate(said) if letter in who for reply in answers(who[letter], at * 0.02)]
    assert max(twice(replies, 0.1), default=0.0) == pytest.approx(seconds)


def test_what_is_announced_is_no_answer():
    assert twice([*answers("node1", 0, 0.04), *answers("node2", 0.02, unasked=True)], 0.1) == []


def test_two_answers_for_longer_than_a_hello_interval_break_the_promise():
    result = judged(sight(served("node2", 9, END), served("node3", 10, 10.3)), before={EIP: "node2"})
    assert any("answered by two nodes for up to" in problem for problem in result.problems)


def test_nobody_answering_for_too_long_breaks_it_too():
    result = judged(sight(served("node1", 9, BEGUN), served("node2", 10.8, END)))
    assert any(problem.startswith("answered by nobody for up to 8") for problem in result.problems)


def test_a_client_that_reaches_no_node_is_owed_nothing_until_it_does():
    apart = sight(served("node2", 9, BEGUN), served("node2", HEALED + 0.1, END), client="client2")
    circumstances = {"drops": silence_of("client2"), "before": {EIP: "node2"}}
    assert judged(apart, **circumstances).ok
    late = sight(served("node2", 9, BEGUN), served("node2", HEALED + 0.6, END), client="client2")
    assert not judged(late, **circumstances).ok
    assert judged(late, **circumstances, late=0.2).ok, "the switch took so long to heal"


def test_nor_is_that_time_counted_where_its_requests_right_before_and_after_it_are_lost():
    few = 3 * ASK_INTERVAL
    line = line_of(
        sight(served("node1", 9, BEGUN - few), served("node1", HEALED + few, END)), drops=silence_of("client")
    )
    assert 0 < line.silence.ms <= 1000 * (2 * few + 2 * ASK_INTERVAL)


def test_an_eip_that_nobody_asked_for_is_not_called_served():
    result = judged(Sight("client", [], []))
    assert "nobody asked for 192.0.2.200 as client saw it" in result.problems


# ── answers that come in bursts, and times that count together ────────────────────────────────────────────────


def in_burst(who, since, until, hold, eip=EIP):
    """What a client that asks from ``since`` on gets: an answer to each request, with the second burst after it."""
    return answers(who, *(((at // hold) + 2) * hold + 0.001 for at in beat(since, until)), eip=eip)


HOLD = 0.4
BURSTS = {"drops": (), "course": promised(in_bursts(HOLD))}


def test_answers_that_all_come_in_the_second_burst_leave_nothing_unanswered():
    everything = sight(served("node1", 9, BEGUN), in_burst("node1", BEGUN, HEALED, HOLD), served("node1", HEALED, END))
    (line,) = judged(everything, **BURSTS).lines
    assert (line.dark_ms, line.twice_ms, line.moves) == (0, 0, 0)


def test_requests_that_no_burst_answers_count_together():
    half = sight(
        *(served("node1", 9, BEGUN), served("node1", HEALED, END)),
        *(in_burst("node1", at, at + 0.2, HOLD) for at in (10.0, 10.4, 10.8, 11.2, 11.6)),
    )
    result = judged(half, **BURSTS)
    assert result.lines[0].dark_ms == pytest.approx(1000, abs=100)
    assert [problem.split(":")[0] for problem in result.problems] == [
        f"answered by nobody in sum for up to {result.lines[0].dark_ms:.0f} ms, promised were at most 900"
    ]
    assert "in sum at most (promised: 900)" in summary(result)


def test_two_nodes_that_answer_in_every_burst_answer_twice_and_one_after_another_do_not():
    def bursts_of(*who):
        return sight(
            *(served("node1", 9, BEGUN), served(who[-1], HEALED + 0.4, END)),
            *(in_burst(one, BEGUN, HEALED, HOLD) for one in who[1:]),
        )

    assert judged(bursts_of("", "node1", "node2"), **BURSTS).lines[0].twice_ms > 1000
    assert judged(bursts_of("", "node2"), **BURSTS).lines[0].twice_ms == 0


def test_a_move_is_nothing_that_was_promised_where_every_frame_waits():
    moved = sight(served("node1", 9, BEGUN), served("node2", BEGUN, END))
    assert judged(moved, **BURSTS).ok
    assert not judged(moved, drops=(), course=promised(in_bursts_between_nodes(0.5))).ok


def test_two_short_times_of_two_answers_count_together():
    twice_over = sight(
        served("node1", 9, END),
        answers("node2", *(at + 0.002 for at in beat(10.1, 10.2))),
        answers("node2", *(at + 0.002 for at in beat(11.1, 11.2))),
    )
    assert not any("two nodes" in problem for problem in judged(twice_over, drops=()).problems)
    assert any(
        "two nodes in sum" in each for each in judged(twice_over, drops=(), course=promised(SICK_SETTLES)).problems
    )


def test_a_stop_may_cost_what_it_lasts_and_all_of_them_one_failover():
    stop = promised(STUTTERING, Step(0.0, "node1 stands still", stopped=frozenset({"node1"})))
    (line,) = judged(sight(served("node1", 9, END)), drops=(), course=stop).lines
    assert line.owed_ms == 500, "nobody did, by what was done"
    found = suffered(sight(served("node1", 9, BEGUN), served("node1", HEALED + 0.4, END)), course=stop)
    done = [Done(step, at, at) for step, at in zip(stop.steps, (BEGUN, HEALED), strict=True)]
    result = judge("stutter", HELLO, replace(found, done=done))
    assert result.lines[0].owed_ms == pytest.approx(2500)
    assert result.lines[0].dark_ms == pytest.approx(2400, abs=2 * ASK_INTERVAL * 1000)
    assert result.ok, result.problems


def test_only_the_eips_of_the_sick_node_may_take_longer_to_settle():
    def late(node, seconds):
        gone = sight(served(node, 9, BEGUN), served("node3", BEGUN + seconds, END))
        return judged(gone, before={EIP: node}, course=replace(promised(SICK_SETTLES), seconds=10.0))

    assert late("node1", 1.9).ok
    assert not late("node2", 0.6).ok
    assert late("node1", 3.2).problems == (
        "answered by nobody in sum for up to 3200 ms, promised were at most 3000: 192.0.2.200 as client saw it",
    )


@pytest.mark.parametrize(
    ("asked", "came", "answered"),
    [
        ([1, 2, 3], [1.5, 2.5, 3.5], {0: 1.5, 1: 2.5, 2: 3.5}),
        ([1, 2, 3], [3.1, 3.2, 3.3], {0: 3.1, 1: 3.2, 2: 3.3}),
        ([1, 2, 3], [3.1], {2: 3.1}),
        ([1, 2, 3], [9.0], {}),
        ([1, 2, 7], [7.5, 7.6], {2: 7.6}),
        ([1], [0.5, 1.5, 1.6], {0: 1.6}),
        ([1, 2, 3], [1.5], {0: 1.5}),
        ([], [1], {}),
    ],
)
def test_as_many_requests_are_answered_as_replies_came_in_time(asked, came, answered):
    assert pairs(asked, came, 5.0) == answered


@given(st.lists(st.integers(0, 100), unique=True), st.lists(st.integers(0, 100)), st.integers(1, 100))
def test_no_request_is_answered_before_it_was_asked_or_too_late_or_by_what_another_had(asked, came, patience):
    times = sorted(asked)
    found = pairs(times, sorted(at + 0.5 for at in came), patience)
    assert all(0 < at - times[number] <= patience for number, at in found.items())
    assert len(found) <= len(came)


def test_a_request_is_answered_whoever_answers_it_and_by_no_announcement():
    asked = [Sample(EIP, at, None) for at in (1.0, 1.1, 1.2)]
    said = [*answers("node1", 1.25), *answers("node2", 1.26), *answers("node3", 1.27, unasked=True)]
    assert [sample.answered for sample in paired(asked, said, 0.5)] == [None, 1.25, 1.26]


# ── claims, and the words for it ──────────────────────────────────────────────────────────────────────────────

FLAPS = COURSES["flap"](Ward(NODES, "node1", frozenset({"client"}), 1.0, 60.0))
WELL = sight(served("node1", 9, END))


@pytest.mark.parametrize(("claims", "ok"), [(0, True), (4, True), (5, False)])
def test_at_most_four_claims_follow_the_second_flap(claims, ok):
    result = judged(WELL, course=FLAPS, afterwards=ClaimCount(claims, 60.0))
    assert result.ok is ok
    assert f"{claims} claims in the 60 s after the second flap (promised: 4 in a minute)" in summary(result)


def test_claims_that_nothing_was_promised_of_are_told_and_not_judged():
    result = judged(WELL, afterwards=ClaimCount(1000, 30.0))
    assert result.ok
    assert "claims" not in summary(result)
    assert ("claims after it", "1000 in 30.0 s (2000 a minute)") in totals(result)


def test_as_json_it_says_what_the_table_says():
    found = judged(sight(served("node2", 9, END), eips=(EIP, OTHER)), before={EIP: "node2", OTHER: "node1"}).as_json()
    assert found["ok"] is False
    assert (found["healthy"], found["sick"]) == (1, 1)
    assert [eip["unanswered_ms"] > 1000 for eip in found["eips"]] == [False, True]
