"""What the log says of many EIPs: one line for one cause, with a count and a few names."""

import asyncio
from ipaddress import ip_address

import pytest
from structlog.testing import capture_logs

from speaker.allocator.refusals import Refusal, RefusalReason
from speaker.allocator.settle import Settlement
from speaker.errors import EdgeError
from speaker.forwarding.plan import EMPTY
from speaker.model import Assignment, Gratuitous, Link, Mac, Placement, ServiceKey
from speaker.model.events import Conflict, EipClaimed, EipYielded, PeerChanged
from speaker.node.decide import Decision, MayNotHold
from speaker.node.report import Report
from speaker.telemetry.lines import LASTING
from speaker.telemetry.metrics import Metrics

LINK = Link(2, "eth0", Mac(b"\2\0\0\0\0\1"))
STRANGER = Mac(b"\2\0\0\0\0\x99")
MANY = [ip_address(f"192.0.{2 + number // 250}.{number % 250}") for number in range(300)]
KEYS = [ServiceKey("default", f"s{number}") for number in range(300)]


def lost_and_back(report):
    """What a link that flaps does to 300 EIPs."""
    for eip in MANY:
        report.hear(EipYielded(eip, "link_down", None))
    no_link = {eip: MayNotHold(eip, "lan", (), "link_down", "eth0: it is down") for eip in MANY}
    report.decided(Decision(no_link, EMPTY))
    report.decided(Decision({}, EMPTY))
    for eip in MANY:
        report.hear(EipClaimed(eip, Placement(LINK, Gratuitous()), 3, None))


def contested(report):
    for eip in MANY:
        report.hear(Conflict(LINK, eip, STRANGER, held=True))


def many_assigned(report):
    given = {key: Assignment(key, (eip,), ("lan",)) for key, eip in zip(KEYS, MANY, strict=True)}
    report.settled(Settlement(given, {}))


def many_refused(report):
    why = {key: Refusal(key, RefusalReason.POOL_FULL, f"{key}: pool has no free IPv4 address: lan") for key in KEYS}
    report.settled(Settlement({}, why))


def ever_other_words(report):
    for number in range(300):
        report.failed("netlink", EdgeError(f"no buffer space at {number}"))


def peers_gone(report):
    for number in range(300):
        report.hear(PeerChanged(f"node{number}", LINK, alive=False))


@pytest.fixture
def said(tmp_path):
    """``said(happens)``: the lines that it comes to."""

    def play(*happens):
        async def inside():
            for one in happens:
                one(report)
            report.telling.finish()

        report = Report(Metrics(), tmp_path)
        with capture_logs() as lines:
            asyncio.run(inside())
        return lines

    return play


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        (lost_and_back, ["not claimed", "withdrawn", "claimed"]),
        (contested, ["conflict"]),
        (many_assigned, ["assigned"]),
        (many_refused, ["refused"]),
        (ever_other_words, ["edge failed"]),
        (peers_gone, ["peer silent"]),
    ],
)
def test_what_happens_to_300_for_one_cause_is_one_line(said, happens, told):
    assert [(line["event"], line["count"]) for line in said(happens)] == [(event, 300) for event in told]


def test_of_many_failovers_the_line_has_the_longest(said):
    def taken(report):
        for number, eip in enumerate(MANY):
            report.hear(EipClaimed(eip, Placement(LINK, Gratuitous()), 3, "n2", 0.2 + number / 1000))

    (line,) = said(taken)
    assert (line["count"], line["before"], line["why"], line["unanswered"]) == (300, "n2", "silent", 0.499)


def test_it_names_the_cause_and_the_first_of_them(said):
    first = [str(eip) for eip in MANY[:10]]
    not_claimed, withdrawn, claimed = said(lost_and_back)
    assert (not_claimed["reason"], not_claimed["message"], not_claimed["eips"]) == (
        "link_down",
        "eth0: it is down",
        first,
    )
    assert (withdrawn["reason"], withdrawn["eips"]) == ("link_down", first)
    assert (claimed["link"], claimed["mac"], claimed["term"], claimed["eips"]) == (
        "eth0",
        "02:00:00:00:00:01",
        3,
        first,
    )


def test_what_happens_to_one_is_told_as_ever(said):
    lines = said(lambda report: report.hear(EipClaimed(MANY[0], Placement(LINK, Gratuitous()), 3, "n2")))
    ((claimed),) = [{name: value for name, value in line.items() if name != "timestamp"} for line in lines]
    assert claimed == {
        "event": "claimed",
        "log_level": "info",
        "eip": "192.0.2.0",
        "link": "eth0",
        "mac": "02:00:00:00:00:01",
        "term": 3,
        "before": "n2",
    }


def test_addresses_of_both_families_are_flagged_in_one_go(said):
    """A pool that shrinks under a dual-stack Service."""
    both = (ip_address("192.0.2.1"), ip_address("2001:db8::1"))
    kept = Assignment(KEYS[0], both, ("lan", "lan"), frozenset(both))
    lines = said(lambda report: report.settled(Settlement({KEYS[0]: kept}, {})))
    assert [line["eip"] for line in lines if line["event"] == "flagged"] == [f"default/s0 {eip}" for eip in both]


def test_an_answer_of_the_api_that_comes_late_now_and_then_is_no_line(said):
    late = EdgeError("n1: the session Lease took longer than 2 s")

    def busy(report):
        report.api(True)
        for _ in range(20):
            report.failed("session", late, patience=LASTING)
            report.api(False)
            report.api(True)
            report.recovered("session")

    assert [line["event"] for line in said(busy)] == ["api answers"]


def test_a_refusal_of_the_api_is_a_line_and_so_is_its_end(said):
    def refused(report):
        report.failed("session", EdgeError("forbidden"))
        report.recovered("session")

    assert [line["event"] for line in said(refused)] == ["edge failed", "edge recovered"]
