"""What people are told never depends on what is told: whatever was decided, saying it raises nothing."""

import asyncio
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from speaker.allocator.assign import Allocator, Usage
from speaker.allocator.refusals import Refusal, RefusalReason
from speaker.allocator.settle import Settlement, settle
from speaker.api.addresses import parse_range
from speaker.errors import EdgeError, InvalidField, InvalidManifests, Place
from speaker.forwarding.changes import EipChange
from speaker.forwarding.handing_over import NextHop
from speaker.interfaces.snapshot import LinkAddress, Snapshot
from speaker.model import (
    Assignment,
    Family,
    FamilyPolicy,
    Gratuitous,
    Link,
    Mac,
    Placement,
    Pool,
    Protocol,
    Service,
    ServiceKey,
    ServicePort,
    World,
    rank,
)
from speaker.model.events import EipClaimed, EipYielded, HellosFiltered
from speaker.node.decide import Decision, MayHold, MayNotHold, decide
from speaker.node.known.knowledge import InForce
from speaker.node.problems import SHOWN
from speaker.node.report import Report
from speaker.node.transitions import MISTAKES
from speaker.settings import Node
from speaker.telemetry.metrics import Metrics
from speaker.wire.messages import ClaimStatus

NODE = Node.parse("n1")
WEB = ServiceKey("default", "web")
ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))


@pytest.fixture
def report(tmp_path):
    return Report(Metrics(), tmp_path)


def dual_stack(key=WEB):
    families = (Family.IPV4, Family.IPV6)
    ports = (ServicePort(Protocol.TCP, 80),)
    return Service(key, ports, families=families, family_policy=FamilyPolicy.REQUIRE_DUAL)


def world(*ranges):
    pool, service = Pool("lan", tuple(map(parse_range, ranges))), dual_stack()
    return World(pools={pool.name: pool}, services={service.key: service})


def events(logs, name):
    return [eip for entry in logs if entry["event"] == name for eip in entry.get("eips", (entry.get("eip"),))]


def test_a_pool_shrunk_under_a_dual_stack_service_is_told_and_both_addresses_stay(report):
    allocator = Allocator()
    snapshot = Snapshot(links={2: ETH0}, addresses=(LinkAddress(2, *_bound("192.0.2.1/24")),))
    before = world("192.0.2.10-192.0.2.20", "2001:db8::10-2001:db8::20")
    after = world("192.0.2.15-192.0.2.20", "2001:db8::15-2001:db8::20")
    with capture_logs() as logs:
        for asked in (before, after, after):
            settlement = settle(allocator, asked, 0.0)
            report.settled(settlement)
            decision = decide(asked, settlement.assignments, snapshot, NODE)
            report.decided(decision)
            report.brought_about(InForce(settlement, decision, {"lan": allocator.usage("lan")}))
    assert settlement.assignments[WEB].addresses == (ip_address("192.0.2.10"), ip_address("2001:db8::10"))
    assert events(logs, "flagged") == ["default/web 192.0.2.10", "default/web 2001:db8::10"], "once, IPv4 first"


def _bound(text):
    bound = ip_interface(text)
    return bound.ip, bound.network


def test_rank_sorts_addresses_of_both_families():
    texts = ["2001:db8::1", "203.0.113.9", "::", "0.0.0.0", "2001:db8::"]
    assert [str(each) for each in sorted(map(ip_address, texts), key=rank)] == [
        *("0.0.0.0", "203.0.113.9"),
        *("::", "2001:db8::", "2001:db8::1"),
    ]


async def test_a_status_file_that_could_not_be_written_is_written_later_without_any_news(tmp_path, monkeypatch):
    monkeypatch.setattr("speaker.node.report.WRITE_AGAIN", 0.0)
    report = Report(Metrics(), tmp_path / "run")
    nothing = decide(World(), {}, Snapshot({}), NODE)
    report.brought_about(InForce(Settlement({}, {}), nothing, {}))

    async def claim_statuses(_):
        return {}

    (tmp_path / "run").write_text("no directory")
    with pytest.raises(EdgeError, match=r"status\.json"):
        await report.publish(claim_statuses, ready=True)
    (tmp_path / "run").unlink()
    async with asyncio.timeout(60):
        await report.stale.wait()
    await report.publish(claim_statuses, ready=True)
    assert (tmp_path / "run" / "status.json").exists()


async def test_who_hears_what_is_told_and_meets_a_bug_keeps_nothing_from_being_published(tmp_path):
    report = Report(metrics := Metrics(), tmp_path)

    def stumble(event):
        raise KeyError(type(event).__name__)

    report.hearers.append(stumble)
    eip = ip_address("192.0.2.10")
    with capture_logs() as logs:
        report.hear(EipClaimed(eip, Placement(ETH0, Gratuitous()), 3, None))
        report.kube_proxy(None)  # what is no report at all
    assert report.stale.is_set()
    assert "KeyError: 'EipClaimed'" in [entry["error"] for entry in logs if entry["event"] == "internal error"]
    assert metrics.registry.get_sample_value("eip_speaker_internal_errors_total", {"task": "report"}) == 2
    assert metrics.registry.get_sample_value("eip_speaker_claim_changes_total", {"change": "claimed"}) == 1


# ── Anything that can be decided ──────────────────────────────────────────────────────────────────────────────

addresses = st.builds(IPv4Address, st.integers(0, 2**32 - 1)) | st.builds(IPv6Address, st.integers(0, 2**128 - 1))
keys = st.builds(ServiceKey, st.sampled_from(["a", "b"]), st.sampled_from(["web", "dns", "db"]))
links = st.builds(Link, st.integers(1, 9), st.sampled_from(["eth0", "eth1"]), st.just(ETH0.mac))
words = st.text(max_size=20)


@st.composite
def assignments(draw):
    found = {}
    for key in draw(st.sets(keys)):
        held = draw(st.lists(addresses, min_size=1, max_size=4, unique=True))
        flagged = draw(st.frozensets(st.sampled_from(held)))
        found[key] = Assignment(key, tuple(held), ("lan",) * len(held), flagged)
    return found


refusals = st.dictionaries(keys, st.builds(Refusal, keys, st.sampled_from(RefusalReason), words))
settlements = st.builds(Settlement, assignments(), refusals)
services = st.lists(keys, max_size=3).map(tuple)
held = st.builds(MayHold, addresses, words, services, links, st.just(Gratuitous()))
not_held = st.builds(MayNotHold, addresses, words, services, st.sampled_from(["no_subnet", "node_excluded"]), words)
decisions = st.lists(held | not_held, max_size=5).map(
    lambda eips: Decision({eip.address: eip for eip in eips}, decide(World(), {}, Snapshot({}), NODE).forwarding)
)
claim_statuses = st.builds(
    ClaimStatus, st.booleans(), st.none() | words, st.integers(0, 2**32), st.none() | st.floats(0, 2e9, allow_nan=False)
)
usages = st.dictionaries(words, st.dictionaries(st.sampled_from(Family), st.builds(Usage, *[st.integers(0)] * 3)))
hops = st.builds(NextHop, st.just("eth0"), addresses)


@given(data=st.data())
def test_whatever_was_settled_and_decided_can_be_told(tmp_path_factory, data):
    report = Report(Metrics(), tmp_path_factory.getbasetemp())
    for _ in range(data.draw(st.integers(1, 3), "readings")):
        settlement, decision = data.draw(settlements), data.draw(decisions)
        with capture_logs() as logs:
            report.settled(settlement)
            report.decided(decision)
            report.forwarding(
                [EipChange(eip, bound) for eip in decision.eips for bound in (True, False)], ("sentence",)
            )
            for eip in decision.may_hold().values():
                report.hear(EipClaimed(eip.address, Placement(eip.link, eip.gratuitous), 7, None))
                report.hear(EipYielded(eip.address, "drained", "n2"))
            report.unknown_flows(
                len(decision.eips), data.draw(st.dictionaries(addresses, st.none() | hops, max_size=4))
            )
            in_force = InForce(settlement, decision, data.draw(usages))
            report.brought_about(in_force)
        told = report.status(in_force, {eip: data.draw(claim_statuses) for eip in decision.eips})
        assert msgspec.json.decode(msgspec.json.encode(told))["eips"] == told["eips"]
        flagged = {f"{key} {eip}" for key, each in settlement.assignments.items() for eip in each.flagged}
        assert set(events(logs, "flagged")) <= flagged


def test_mistakes_without_end_are_counted_and_told_up_to_a_bound(tmp_path):
    report = Report(Metrics(), tmp_path)
    wrong = tuple(InvalidField("a", number, "is wrong", place=Place("a.yaml", number)) for number in range(20_000))
    with capture_logs() as lines:
        report.bad_manifests(InvalidManifests(wrong), still_serving=True)
    assert len(lines) <= MISTAKES + 1
    assert lines[-1]["count"] == 20_000
    assert report.findings()[-1].what == f"{20_000 - SHOWN} more: `speaker validate` lists them all"
    assert len(report.findings()) == SHOWN + 1


async def test_a_node_whose_hellos_do_not_arrive_is_a_problem_with_its_mac_and_eips_for_as_long_as_it_answers(report):
    """Told once; counted each time, so that an alert lasts as long."""
    mac, eips = Mac(b"\x02\0\0\0\0\x02"), frozenset(map(ip_address, ("192.0.2.11", "192.0.2.10", "2001:db8::1")))
    with capture_logs() as logs:
        for some in (eips, frozenset({IPv4Address("192.0.2.12")})):
            report.hear(HellosFiltered(ETH0, "n2", mac, some))
        report.hear(HellosFiltered(ETH0, "n3", mac, eips))
        report.telling.finish()
    assert [(one["peer"], one["reason"], one["mac"], one["link"]) for one in logs] == [
        (node, "hellos_filtered", "02:00:00:00:00:02", "eth0") for node in ("n2", "n3")
    ]
    first, _ = (each.what for each in report.findings())
    assert first.startswith(
        "n2 (02:00:00:00:00:02) on eth0 answers for 192.0.2.10, 192.0.2.11, 2001:db8::1, but none of its hellos arrives"
    )
    assert b'eip_speaker_hellos_filtered_total{link="eth0"} 3.0' in generate_latest(report._metrics.registry)
