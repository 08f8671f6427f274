"""What a switch drops in each scenario, for how long, and who is out of whose reach because of it."""

import pytest

from speaker.lab.breaking.sickness import COURSES, Drop, Limit, Step, Ward
from speaker.lab.request import SICK_LINKS

NODES = ("node1", "node2", "node3", "node4")
SIDES = (frozenset({"client", "gateway", "node1", "node2"}), frozenset({"client2", "node3", "node4"}))
OTHERS = frozenset({"client", "client2", "gateway"})


def ward(**changes):
    return Ward(
        **{"nodes": NODES, "victim": "node2", "others": OTHERS, "seconds": 2.0, "after": 10.0, "sides": SIDES} | changes
    )


def passes(step, sender, receiver, hello=False):
    return not any(
        sender in drop.senders and receiver in drop.receivers and (hello or not drop.hellos) for drop in step.drops
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


@pytest.mark.parametrize("scenario", sorted(set(COURSES) - {"flap"}))
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
    ],
)
def test_a_client_reaches_the_nodes_that_hear_it_and_that_it_hears(scenario, client, reached):
    assert COURSES[scenario](ward()).steps[0].in_reach(client, NODES) == reached


def test_a_lossy_link_is_no_sick_one():
    some = Drop(frozenset(NODES) | OTHERS, frozenset(NODES) | OTHERS, percent=30)
    assert Step(0.0, "lossy", (some,)).in_reach("client", NODES) == set(NODES)


def test_who_may_not_speak_for_one_address_is_in_reach():
    guarded = Drop(frozenset(NODES), OTHERS, claiming="192.0.2.200")
    assert Step(0.0, "guarded", (guarded,)).in_reach("client", NODES) == set(NODES)


def test_every_scenario_that_can_be_asked_for_has_a_course():
    assert set(SICK_LINKS) == set(COURSES)
