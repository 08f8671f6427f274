"""The last failovers: many of one cause are one, and there is an end to them."""

import pytest

from speaker.telemetry.page.document import MOST, NAMED_EIPS, TOGETHER, Failovers


def told(*failovers):
    """Each is (at, eip, before, node, seconds). From whom, to whom, how many, the least and the most seconds."""
    found = Failovers()
    for one in failovers:
        found.add(*one)
    return [(each["from"], each["to"], each["count"], *each["unanswered"]) for each in found.told()]


def many(number, at=100.0, before="n1", node="n2"):
    return [(at, f"192.0.2.{each}", before, node, round(0.2 + each / 1000, 3)) for each in range(number)]


@pytest.mark.parametrize(
    ("failovers", "expected"),
    [
        ([], []),
        (many(1), [("n1", "n2", 1, 0.2, 0.2)]),
        (many(100), [("n1", "n2", 100, 0.2, 0.299)]),
        (many(2) + many(3, 100.0 + TOGETHER), [("n1", "n2", 5, 0.2, 0.202)]),
        (many(2) + many(3, 100.1 + TOGETHER), [("n1", "n2", 3, 0.2, 0.202), ("n1", "n2", 2, 0.2, 0.201)]),
        (many(2) + many(2, node="n3"), [("n1", "n3", 2, 0.2, 0.201), ("n1", "n2", 2, 0.2, 0.201)]),
        (many(1) + many(1, node="n3") + many(1), [("n1", "n3", 1, 0.2, 0.2), ("n1", "n2", 2, 0.2, 0.2)]),
        (many(1) + many(1, 50.0), [("n1", "n2", 1, 0.2, 0.2), ("n1", "n2", 1, 0.2, 0.2)]),
    ],
    ids=["none", "one", "a node with many", "soon after", "later", "to two", "in turns", "the clock went back"],
)
def test_what_goes_from_one_node_to_one_other_at_once_is_one(failovers, expected):
    assert told(*failovers) == expected


def test_the_first_eips_of_each_are_named_and_when_it_was():
    found = Failovers()
    for one in many(50):
        found.add(*one)
    (one,) = found.told()
    assert one["eips"] == [f"192.0.2.{number}" for number in range(NAMED_EIPS)]
    assert one["at"] == "1970-01-01T00:01:40.000Z"


def test_of_many_the_last_are_remembered():
    found = told(*((100.0 + 10 * number, "192.0.2.1", f"n{number}", "n0", 0.2) for number in range(MOST + 5)))
    assert len(found) == MOST
    assert found[0][0] == f"n{MOST + 4}"
