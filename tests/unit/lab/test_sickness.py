"""What a switch drops in each scenario, for how long, and who is out of whose reach because of it."""

from itertools import pairwise

import pytest

from speaker.lab.request import SICK_LINKS
from speaker.lab.sickness import COURSES, FAILOVER, Cast, Drop, Hold, Limit, Step, Ward

NODES = ("node1", "node2", "node3", "node4")
SIDES = (frozenset({"client", "gateway", "node1", "node2"}), frozenset({"client2", "node3", "node4"}))
OTHERS = frozenset({"client", "client2", "gateway"})
EIPS = ("192.0.2.200", "2001:db8:0:1::200")
USUAL = {
    "nodes": NODES,
    "victim": "node2",
    "others": OTHERS,
    "seconds": 2.0,
    "after": 10.0,
    "sides": SIDES,
    "eips": EIPS,
    "hold": 0.35,
    "stop": 0.2,
}


def ward(**changes):
    return Ward(**USUAL | changes)


def passes(step, sender, receiver, hello=False, cast=Cast.MANY, claiming=""):
    """Of few frames a second; ``claiming``: one that says who has this address."""
    return not any(
        sender in drop.senders
        and receiver in drop.receivers
        and (hello or not drop.hellos)
        and drop.cast in (Cast.ANY, cast)
        and drop.claiming in ("", claiming)
        and not drop.over
        for drop in step.drops
    )


@pytest.mark.parametrize(
    ("scenario", "lost", "kept"),
    [
        ("deaf", [("client", "node2"), ("node1", "node2")], [("node2", "client"), ("node2", "node1")]),
        ("oneway", [("node2", "client"), ("node2", "node1")], [("client", "node2"), ("node1", "node2")]),
        (
            "blip",
            [("node2", "node1"), ("node1", "node2"), ("client", "node2")],
            [("node1", "node3"), ("client", "node1")],
        ),
        ("flap", [("node2", "node1"), ("node1", "node2")], [("node1", "node3")]),
        (
            "stp",
            [("node3", "node4"), ("node3", "node1"), ("client", "node3"), ("client2", "node3")],
            [("node1", "node2")],
        ),
        (
            "partial",
            [("node1", "node4"), ("node4", "node1")],
            [("node1", "node2"), ("client", "node4"), ("node4", "node3")],
        ),
        (
            "minority",
            [("node1", "node3"), ("node3", "node1"), ("client", "node4")],
            [("node3", "node4"), ("client", "node2")],
        ),
        ("filtered", [], [("node1", "node2"), ("client", "node4")]),
        ("nobroadcast", [("client", "node2"), ("node1", "node2")], [("node2", "client"), ("client", "node1")]),
        ("burst", [], [("node1", "node2"), ("client", "node2")]),
        ("stutter", [], [("node1", "node2"), ("client", "node2")]),
        ("mute", [], [("node2", "client"), ("client", "node2")]),
        ("storm", [], [("node2", "client"), ("client", "node2")]),
        ("sick", [], [("node1", "client"), ("client", "node1")]),
    ],
)
def test_each_scenario_loses_these_frames_and_keeps_those(scenario, lost, kept):
    first = COURSES[scenario](ward()).steps[0]
    assert not any(passes(first, *frame) for frame in lost)
    assert all(passes(first, *frame) for frame in kept)


def test_filtered_eats_every_hello_and_nothing_else():
    (drop,) = COURSES["filtered"](ward()).steps[0].drops
    assert drop.hellos
    assert not passes(COURSES["filtered"](ward()).steps[0], "node1", "node4", hello=True)


def test_nobroadcast_passes_what_is_sent_to_the_node_alone():
    first = COURSES["nobroadcast"](ward()).steps[0]
    assert passes(first, "client", "node2", cast=Cast.ONE)


def test_a_mute_node_says_hello_and_has_no_eip_as_clients_hear_it():
    first = COURSES["mute"](ward()).steps[0]
    assert passes(first, "node2", "node1", hello=True)
    assert passes(first, "node2", "client", claiming="192.0.2.12")
    assert not any(passes(first, "node2", "client", claiming=eip) for eip in EIPS)
    assert all(passes(first, "node1", "client", claiming=eip) for eip in EIPS)


def test_one_whose_unicast_is_lost_is_heard_only_by_all_at_once():
    first = COURSES["mute"](ward(unicast=True)).steps[0]
    assert not passes(first, "node2", "client", cast=Cast.ONE)
    assert passes(first, "node2", "client", cast=Cast.MANY)
    assert passes(first, "client", "node2", cast=Cast.ONE)


def test_a_storm_lets_few_frames_of_one_node_out_whatever_they_are_and_all_in():
    (drop,) = COURSES["storm"](ward()).steps[0].drops
    assert drop == Drop(frozenset({"node2"}), OTHERS | set(NODES), over=12)


def test_a_burst_has_every_frame_wait_or_only_those_between_nodes():
    everybody, nodes = OTHERS | set(NODES), frozenset(NODES)
    assert COURSES["burst"](ward()).steps[0].hold == Hold(0.35, everybody, everybody)
    assert COURSES["burst"](ward(nodes_only=True, hold=0.5)).steps[0].hold == Hold(0.5, nodes, nodes)


def test_while_nodes_stutter_each_stops_once_a_second_and_never_two_together():
    course = COURSES["stutter"](ward(seconds=3.0))
    stops = [(step.at, step.stopped) for step in course.steps if step.stopped]
    assert [len(stopped) for _, stopped in stops] == [1] * 12
    assert [at for at, stopped in stops if "node2" in stopped] == [0.25, 1.25, 2.25]
    goes_on = [after.at - step.at for step, after in pairwise(course.steps) if step.stopped]
    assert goes_on == pytest.approx([0.2] * 12)
    assert [step.what for step in course.steps if step.what] == [course.steps[0].what, course.steps[-1].what]


@pytest.mark.parametrize("seconds", [0.1, 0.25, 1.0, 1.2, 2.0])
def test_who_stuttered_goes_on_at_the_end(seconds):
    course = COURSES["stutter"](ward(seconds=seconds))
    assert course.steps[-1].healthy
    assert (course.healed, course.seconds) == (seconds, seconds + 10.0)
    assert sorted(step.at for step in course.steps) == [step.at for step in course.steps]


@pytest.mark.parametrize(
    ("scenario", "changes", "owed"),
    [
        ("blip", {}, (FAILOVER, FAILOVER)),
        ("burst", {}, (FAILOVER + 0.35, FAILOVER)),
        ("burst", {"nodes_only": True}, (FAILOVER, FAILOVER)),
        ("stutter", {}, (FAILOVER, FAILOVER)),
        ("nobroadcast", {}, (FAILOVER, 3.0)),
        ("mute", {}, (FAILOVER, 3.0)),
        ("storm", {}, (FAILOVER, 3.0)),
        ("sick", {}, (FAILOVER, 3.0)),
    ],
)
def test_what_is_promised_of_the_eips_of_healthy_nodes_and_of_the_sick_one(scenario, changes, owed):
    promise = COURSES[scenario](ward(**changes)).promise
    assert (promise.dark, promise.sick_dark) == owed
    assert promise.in_sum is (scenario != "blip")
    assert promise.still is (scenario != "stutter" and (scenario != "burst" or bool(changes)))


def test_in_bursts_a_request_waits_for_one_and_its_answer_for_the_next():
    promise = COURSES["burst"](ward(hold=0.35)).promise
    assert 0.7 < promise.patience < 0.35 * 3
    assert promise.apart == 0.35


@pytest.mark.parametrize("scenario", sorted(set(COURSES) - {"flap", "stutter"}))
def test_what_lasts_so_long_is_healed_then_and_watched_for_as_long_as_asked_for(scenario):
    course = COURSES[scenario](ward(seconds=2.0, after=10.0))
    assert [step.at for step in course.steps] == [0.0, 2.0]
    assert course.steps[-1].healthy
    assert not course.steps[0].healthy
    assert (course.healed, course.seconds) == (2.0, 12.0)
    assert course.claims is None


@pytest.mark.parametrize("carrier", [False, True])
def test_a_flapping_link_goes_on_until_the_time_after_the_second_flap_is_over(carrier):
    course = COURSES["flap"](ward(seconds=1.0, after=10.0, carrier=carrier))
    down, up = course.steps[::2], course.steps[1::2]
    assert len(down) == len(up)
    assert [step.at for step in down[:3]] == [0.0, 3.0, 6.0]
    assert [step.at for step in up[:3]] == [1.0, 4.0, 7.0]
    assert all(step.healthy for step in up)
    assert not any(step.healthy for step in down)
    assert course.claims == Limit(since=up[1].at, until=up[1].at + 10.0, most=4)
    assert down[-1].at < course.claims.until < down[-1].at + 3.0, "it flaps to the end of that time, and not for longer"
    assert max(up[-1].at, course.claims.until) <= course.seconds
    assert all(bool(step.pulled) is carrier and bool(step.drops) is not carrier for step in down)
    assert not any(step.in_reach("client", NODES) & {"node2"} for step in down)


def test_a_link_that_flaps_does_so_twice_at_least():
    course = COURSES["flap"](ward(seconds=1.0, after=0.0))
    assert [step.at for step in course.steps] == [0.0, 1.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("scenario", "client", "reached"),
    [
        ("deaf", "client", {"node1", "node3", "node4"}),
        ("oneway", "client", {"node1", "node3", "node4"}),
        ("blip", "client", {"node1", "node3", "node4"}),
        ("stp", "client", {"node1", "node2"}),
        ("stp", "client2", set()),
        ("partial", "client", set(NODES)),
        ("minority", "client", {"node1", "node2"}),
        ("minority", "client2", {"node3", "node4"}),
        ("filtered", "client2", set(NODES)),
        ("burst", "client", set(NODES)),
        ("stutter", "client", set(NODES)),
        ("nobroadcast", "client", {"node1", "node3", "node4"}),
        ("mute", "client", {"node1", "node3", "node4"}),
        ("storm", "client", {"node1", "node3", "node4"}),
        ("sick", "client", {"node1", "node3", "node4"}),
    ],
)
def test_a_client_reaches_the_nodes_that_hear_it_and_that_it_hears(scenario, client, reached):
    assert COURSES[scenario](ward()).steps[0].in_reach(client, NODES) == reached


def test_who_answers_none_alone_is_in_nobodys_reach():
    assert "node2" not in COURSES["mute"](ward(unicast=True)).steps[0].in_reach("client", NODES)


def test_a_lossy_link_is_no_sick_one():
    some = Drop(frozenset(NODES) | OTHERS, frozenset(NODES) | OTHERS, percent=30)
    assert Step(0.0, "lossy", (some,)).in_reach("client", NODES) == set(NODES)


def test_who_may_not_speak_for_one_address_is_in_reach():
    guarded = Drop(frozenset(NODES), OTHERS, claiming="192.0.2.200")
    assert Step(0.0, "guarded", (guarded,)).in_reach("client", NODES) == set(NODES)


def test_every_scenario_that_can_be_asked_for_has_a_course():
    assert set(SICK_LINKS) == set(COURSES)
