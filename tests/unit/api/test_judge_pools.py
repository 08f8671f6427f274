"""Of pools that overlap the older one stands, in whatever order they were read."""

from ipaddress import IPv4Address
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speaker.api.reading import Verdict, judge


def verdicts(*eips):
    return {name: each.verdict for name, each in judge(eips).items()}


def test_the_older_of_two_that_overlap_stands(eip_object):
    younger, older = eip_object("a", "192.0.2.0/28"), eip_object("b", "192.0.2.8-192.0.2.20", age=1)
    assert verdicts(younger, older) == {"a": Verdict.OVERLAP, "b": Verdict.ACCEPTED}
    assert "Eip b" in judge([younger, older])["a"].message


def test_of_two_made_in_one_second_the_name_decides(eip_object):
    assert verdicts(eip_object("b", "192.0.2.1"), eip_object("a", "192.0.2.1")) == {
        "a": Verdict.ACCEPTED,
        "b": Verdict.OVERLAP,
    }


def test_who_is_refused_refuses_nobody(eip_object):
    oldest = eip_object("oldest", "192.0.2.1-192.0.2.10", age=2)
    middle = eip_object("middle", "192.0.2.10-192.0.2.20", age=1)
    youngest = eip_object("youngest", "192.0.2.20-192.0.2.30")
    assert verdicts(youngest, middle, oldest) == {
        "oldest": Verdict.ACCEPTED,
        "middle": Verdict.OVERLAP,
        "youngest": Verdict.ACCEPTED,
    }


def test_of_very_many_that_it_overlaps_with_some_are_named(eip_object):
    older = [eip_object(f"p{number:03}" + "x" * 249, f"192.0.2.{number}", age=1) for number in range(1, 251)]
    message = judge([*older, eip_object("lan", "192.0.2.0/24")])["lan"].message
    assert "p010" in message
    assert "p011" not in message
    assert "and 240 more" in message
    assert len(message) < 32768  # as the CRD has it


def test_what_one_excludes_another_may_offer(eip_object):
    old = eip_object("old", "192.0.2.1-192.0.2.10", age=1, exclude=["192.0.2.5"])
    assert verdicts(old, eip_object("new", "192.0.2.5"))["new"] is Verdict.ACCEPTED


@pytest.mark.parametrize(
    ("parts", "verdict", "usable"),
    [
        ({}, Verdict.ACCEPTED, True),
        ({"disabled": True}, Verdict.DISABLED, True),
        ({"priority": "high"}, Verdict.INVALID, False),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, Verdict.TERMINATING, True),
    ],
)
def test_a_pool_alone(eip_object, parts, verdict, usable):
    judged = judge([eip_object("lan", "192.0.2.1", **parts)])["lan"]
    assert (judged.verdict, judged.pool is not None) == (verdict, usable)


def test_a_pool_that_is_being_deleted_gives_nothing_new(eip_object):
    judged = judge([eip_object("lan", "192.0.2.1", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})])["lan"]
    assert judged.pool is not None
    assert judged.pool.disabled


RANGES = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 8)), min_size=1, max_size=8)


@given(ranges=RANGES, shuffle=st.randoms())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_no_two_accepted_pools_offer_one_address_and_the_order_of_reading_is_nothing(eip_object, ranges, shuffle):
    spans = {f"p{i}": (first, first + more) for i, (first, more) in enumerate(ranges)}
    eips = [
        eip_object(name, f"{IPv4Address(first)}-{IPv4Address(last)}".replace("0.0.0.", "10.0.0."), age=i)
        for i, (name, (first, last)) in enumerate(spans.items())
    ]
    judged = judge(eips)
    shuffle.shuffle(eips)
    assert judge(eips) == judged
    accepted = sorted(spans[name] for name, each in judged.items() if each.verdict is Verdict.ACCEPTED)
    assert all(before[1] < after[0] for before, after in pairwise(accepted))
    assert judged[f"p{len(ranges) - 1}"].verdict is Verdict.ACCEPTED  # the oldest
