"""What /metrics says of EIPs, as a node comes to know it."""

import threading
from ipaddress import ip_address

import pytest

from speaker.allocator.settle import Settlement
from speaker.errors import EdgeError
from speaker.interfaces.snapshot import Snapshot
from speaker.model import Endpoint, Gratuitous, Link, Mac, Protocol, ServiceKey, World
from speaker.model.events import Conflict, EipYielded, PeerChanged
from speaker.node.decide import Decision, MayHold, MayNotHold, decide
from speaker.node.known.knowledge import InForce
from speaker.node.publishing import places
from speaker.node.report import Report
from speaker.node.standing import MAX_DEAD, Alive
from speaker.node.status import NAME
from speaker.ownership.preference import Preferred
from speaker.ownership.witness import Place
from speaker.settings import Node
from speaker.telemetry.metrics import Metrics
from speaker.wire.messages import NOBODYS, ClaimStatus

A, B, C = (ip_address(f"192.0.2.{number}") for number in (10, 11, 12))
WEB, DNS = ServiceKey("default", "web"), ServiceKey("default", "dns")
ETH0, ETH1 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01")), Link(3, "eth1", Mac(b"\x02\0\0\0\0\x03"))
STRANGER = Mac(b"\x02\0\0\0\0\x66")
EMPTY = decide(World(), {}, Snapshot({}), Node.parse("n1")).forwarding
MINE, THEIRS = ClaimStatus(True, "n1", 7, 12.5), ClaimStatus(False, "n2", 8, None, ETH1.index)


def may(eip, *services):
    return MayHold(eip, "lan", services, ETH0, Gratuitous())


def may_not(eip):
    return MayNotHold(eip, "lan", (), "no_local_endpoint", "no endpoint is ready here")


@pytest.fixture
def site(tmp_path):
    return Metrics(), tmp_path


async def published(report, eips, claims, recorded=lambda _: None, endpoints=None):
    decision = Decision({eip.address: eip for eip in eips}, EMPTY)
    report.brought_about(InForce(Settlement({}, {}), decision, {}, World(endpoints=endpoints or {})))

    async def claim_statuses(_):
        return claims

    await report.publish(claim_statuses, True, recorded)


def states(metrics):
    names = ("held", "held_by_peer", "by_nobody", "conflict")
    return tuple(int(metrics.registry.get_sample_value("eip_speaker_eips", {"state": name})) for name in names)


@pytest.mark.parametrize(
    ("recorded", "found"),
    [(None, (0, 0, 1, 0)), ("n3", (0, 1, 0, 0)), ("dead", (0, 0, 1, 0)), ("back", (0, 1, 0, 0))],
)
async def test_where_no_link_leads_to_an_eip_the_record_says_whose_it_is_unless_that_node_died(site, recorded, found):
    metrics, home = site
    report = Report(metrics, home)
    for node, alive in (("dead", True), ("dead", False), ("back", False), ("back", True)):
        report.hear(PeerChanged(node, ETH0, alive))
    await published(report, [may_not(A)], {A: NOBODYS}, lambda _: recorded)
    assert states(metrics) == found
    report.stale.clear()
    report.records_changed()
    assert report.stale.is_set()


async def test_what_this_node_may_hold_itself_is_nobodys_whatever_the_record_says(site):
    metrics, home = site
    report = Report(metrics, home)
    await published(report, [may(A)], {A: NOBODYS}, lambda _: "n3")
    assert states(metrics) == (0, 0, 1, 0)
    report.stale.clear()
    report.records_changed()
    assert not report.stale.is_set(), "the record is not asked"


async def test_a_claimed_eip_that_a_stranger_keeps_silent_is_a_conflict_until_he_is_not_heard_any_more(site):
    metrics, home = site
    now = [0.0]
    report = Report(metrics, home, lambda: now[0])
    report.hear(Conflict(ETH0, A, STRANGER, held=False))
    await published(report, [may(A), may(B)], {A: MINE, B: MINE})
    assert states(metrics) == (1, 0, 0, 1)
    now[0] = 31.0
    await published(report, [may(A), may(B)], {A: MINE, B: MINE})
    assert states(metrics) == (2, 0, 0, 0)


async def test_only_its_holder_tells_of_an_eip_and_of_endpoints_only_where_it_knows_them(site):
    metrics, home = site
    found = [Endpoint(ip_address(f"10.0.0.{n}"), 80, Protocol.TCP, ready=n < 3) for n in (1, 2, 3)]
    eips = [may(A, WEB), may(B, WEB, DNS), may(C, WEB)]
    await published(Report(metrics, home), eips, {A: MINE, B: MINE, C: THEIRS}, endpoints={WEB: tuple(found)})
    assert metrics.of_eips.since == {str(A): 12.5, str(B): 12.5}
    assert metrics.of_eips.endpoints == {str(A): 2}, "of the other nobody here reads the endpoints"


async def test_its_holder_counts_the_endpoints_that_fail_their_health_check_and_those_used_all_the_same(site):
    metrics, home = site
    found = [
        Endpoint(ip_address(address), 80, Protocol.TCP, ready=ready, unwell="it answers with status 503")
        for address, ready in (("10.0.0.1", True), ("10.0.0.2", False), ("10.0.0.3", False), ("fd00::1", True))
    ]
    endpoints = {WEB: (*found, Endpoint(ip_address("10.0.0.4"), 80, Protocol.TCP))}
    await published(Report(metrics, home), [may(A, WEB), may(C, WEB)], {A: MINE, C: THEIRS}, endpoints=endpoints)
    assert metrics.of_eips.unhealthy == {(str(A), True): 1, (str(A), False): 2}


async def test_an_eip_that_a_stranger_uses_is_named(site):
    metrics, home = site
    report = Report(metrics, home, lambda: 0.0)
    report.hear(Conflict(ETH0, A, STRANGER, held=False))
    await published(report, [may(A), may(B)], {A: MINE, B: MINE})
    assert metrics.of_eips.conflicts == {str(A): 1}


@pytest.mark.parametrize(
    ("draining", "holder", "counted"),
    [(True, "n2", ("taken", 1)), (True, None, ("given_up", 1)), (False, "n2", ("taken", None))],
)
async def test_what_is_let_go_while_this_node_drains_is_handed_over_or_given_up(site, draining, holder, counted):
    metrics, home = site
    report = Report(metrics, home)
    report.draining = lambda: draining
    report.hear(EipYielded(A, "better_claim", holder))
    outcome, number = counted
    assert metrics.registry.get_sample_value("eip_speaker_hand_overs_total", {"outcome": outcome}) == number


def test_others_eips_are_asked_for_where_their_holder_is_heard_and_nobodys_where_they_would_be_held():
    eips = {eip.address: eip for eip in (may(A), may(B), may_not(C))}
    assert places(eips, {A: MINE, B: THEIRS, C: NOBODYS}) == {B: Place(ETH1.index, "n2")}
    assert places(eips, {A: NOBODYS, B: MINE}) == {A: Place(ETH0.index, None)}


def test_a_node_is_dead_once_it_is_heard_on_no_link_and_the_dead_have_a_bound():
    alive = Alive()
    for link in (ETH0, ETH1):
        alive.hear(PeerChanged("n2", link, True))
    alive.hear(PeerChanged("n2", ETH0, False))
    assert alive.on == {ETH0.index: set(), ETH1.index: {"n2"}}
    assert alive.unless_dead("n2") == "n2"
    alive.hear(PeerChanged("n2", ETH1, False))
    assert alive.unless_dead("n2") is None
    for number in range(MAX_DEAD + 1):
        alive.hear(PeerChanged(f"made-up-{number}", ETH0, False))
    assert alive.unless_dead("n2") == "n2", "forgotten"


async def test_what_is_wrong_is_looked_at_in_the_loops_thread_alone_where_it_changes(tmp_path):
    threads = set()

    def clock():
        threads.add(threading.get_ident())
        return 0.0

    report = Report(Metrics(), tmp_path, clock)
    report.failed("links", EdgeError("no buffer space"))
    await published(report, [may(A)], {A: MINE})
    assert "no buffer space" in (tmp_path / NAME).read_text()
    assert threads == {threading.get_ident()}


async def test_what_is_held_though_another_node_is_preferred_is_counted(site):
    metrics, home = site
    at_home, away = ClaimStatus(True, "n1", 1, 0.0), ClaimStatus(True, "n1", 1, 0.0, None, Preferred("n2", 80))
    theirs = ClaimStatus(False, "n2", 1, None, None, Preferred("n3", 80))
    eips = {A: away, A + 1: theirs, A + 2: at_home, A + 3: at_home._replace(preferred=Preferred("n1", 80, 80))}
    await published(Report(metrics, home), [may(eip) for eip in eips], eips)
    assert metrics.registry.get_sample_value("eip_speaker_eips_not_preferred") == 1
