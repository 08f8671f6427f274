"""Where each event goes: the log, the metrics, the problems; and whether the status file is to be written anew."""

import asyncio
import json
from ipaddress import ip_address

import pytest
from structlog.testing import capture_logs

from speaker.allocator.assign import Usage
from speaker.allocator.refusals import Refusal, RefusalReason
from speaker.allocator.settle import Settlement
from speaker.api.reading import Reading
from speaker.checks import said
from speaker.errors import EdgeError, InvalidField, InvalidManifests, Place
from speaker.forwarding.changes import EipChange
from speaker.forwarding.handing_over import NextHop
from speaker.forwarding.limits import Tables, Use
from speaker.forwarding.plan import EMPTY
from speaker.kubeproxy.judge import Judgement, KubeProxy, Mode
from speaker.kubeproxy.watch import LookReport
from speaker.model import Assignment, Family, Gratuitous, Link, Mac, Placement, ServiceKey, World
from speaker.model.events import (
    Conflict,
    Counts,
    EipClaimed,
    EipYielded,
    HellosFiltered,
    HellosReceived,
    HellosSent,
    LinkLost,
    PeerChanged,
    PeersCounted,
    WasFrozen,
)
from speaker.node.decide import Decision, MayHold
from speaker.node.known.knowledge import InForce
from speaker.node.problems import HOLDER_SECONDS, RIVAL_SECONDS
from speaker.node.report import Report
from speaker.ownership.events import NameClash, NameFree, PeersAddress
from speaker.ownership.hellos.frames import Rejected
from speaker.system.process import Priority
from speaker.telemetry.logs import QUIET_SECONDS
from speaker.telemetry.metrics import Metrics
from speaker.wire.messages import Before, Began, ClaimStatus, PeerSeen, Resumed

ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))
N2 = PeerSeen("n2", "eth0", True, False, loss=50, sick=True)
STRANGER = Mac(b"\x02\0\0\0\0\x99")
A, B = ip_address("192.0.2.10"), ip_address("192.0.2.11")
WEB = ServiceKey("default", "web")
HOP = NextHop("eth0", ip_address("192.0.2.2"))
KUBE_PROXY = Judgement(
    KubeProxy(Mode.IPTABLES), said("kube_proxy", ["it is in our way"], ""), ("a note",), without_rules=3
)
LATE = EdgeError("took longer than 2 s")
GIVEN = Settlement({WEB: Assignment(WEB, (A,), ("lan",))}, {})
NOTHING = InForce(Settlement({}, {}), Decision({}, EMPTY), {})


class Site:
    """A report whose clock is the loop's."""

    def __init__(self, home, *, take_over=False):
        self.metrics = Metrics()
        self.report = Report(self.metrics, home, asyncio.get_running_loop().time, take_over)

    def counted(self, name, **labels):
        return self.metrics.registry.get_sample_value(f"eip_speaker_{name}", labels)

    def stale(self):
        """Since the call before."""
        stale = self.report.stale.is_set()
        self.report.stale.clear()
        return stale

    async def publish(self, ready=True):
        async def claim_statuses(eips):
            return {eip: ClaimStatus(eip == A, "n1", 1, None) for eip in eips}

        await self.report.publish(claim_statuses, ready)


@pytest.fixture
def play(in_virtual_time, tmp_path):
    """``play(story)``: with a site; the lines that were logged."""

    def played(story):
        async def whole():
            site = Site(tmp_path)
            await story(site)
            site.report.telling.finish()

        with capture_logs() as logs:
            in_virtual_time(whole())
        return logs

    return played


# ── Each event ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("happens", "logged", "counted", "stale"),
    [
        (
            lambda report: report.hear(EipClaimed(A, Placement(ETH0, Gratuitous()), 7, None)),
            ["claimed"],
            {("claim_changes_total", "claimed"): 1},
            True,
        ),
        (
            lambda report: report.hear(EipClaimed(A, Placement(ETH0, Gratuitous()), 7, "n2", 0.231)),
            ["claimed"],
            {("claim_changes_total", "claimed"): 1},
            True,
        ),
        (
            lambda report: report.hear(EipYielded(A, "drained", "n2")),
            ["withdrawn"],
            {("claim_changes_total", "drained"): 1},
            True,
        ),
        (
            lambda report: report.hear(Conflict(ETH0, A, STRANGER, held=True)),
            ["conflict"],
            {("conflicts_total", "defended"): 1},
            True,
        ),
        (
            lambda report: report.hear(Conflict(ETH0, A, STRANGER, held=False)),
            ["conflict"],
            {("conflicts_total", "not_answered"): 1},
            True,
        ),
        (
            lambda report: report.hear(HellosFiltered(ETH0, "n2", STRANGER, frozenset({A}))),
            ["hellos filtered"],
            {("hellos_filtered_total", "eth0"): 1},
            True,
        ),
        (lambda report: report.hear(PeersAddress(A, "n2")), ["peer's address"], {}, True),
        (lambda report: report.hear(PeersAddress(A, None)), [], {}, True),
        (
            lambda report: report.hear(NameClash(2, STRANGER, silent=True, on=ETH0)),
            ["name clash"],
            {("name_clashes_total",): 1, ("name_taken",): 1},
            True,
        ),
        (
            lambda report: (report.hear(NameClash(2, STRANGER, silent=True, on=ETH0)), report.hear(NameFree())),
            ["name clash", "name free"],
            {("name_clashes_total",): 1, ("name_taken",): 0},
            True,
        ),
        (lambda report: report.hear(PeerChanged("n2", ETH0, alive=True)), ["peer heard"], {}, True),
        (
            lambda report: report.hear(PeersCounted("eth0", 3, 1)),
            [],
            {("peers", "eth0"): 3, ("peers_silent", "eth0"): 1},
            False,
        ),
        (
            lambda report: report.losses([N2, N2._replace(node="n3", heard=False)]),
            ["problem"],
            {("hello_loss_ratio", "eth0", "n2"): 0.5, ("link_sick", "eth0"): 1},
            True,
        ),
        (
            lambda report: report.losses([N2._replace(sick=False, loss=0, loses=0, patience_ms=438)]),
            ["problem"],
            {("hello_patience_seconds", "eth0", "n2"): 0.438},
            True,
        ),
        (lambda report: report.hear(LinkLost(ETH0, "gone")), ["link lost"], {("edge_errors_total", "link"): 1}, False),
        (
            lambda report: report.hear(Counts({HellosSent("eth0", True): 5}, [])),
            [],
            {("hellos_sent_total", "eth0", "left"): 5},
            False,
        ),
        (
            lambda report: report.hear(Counts({HellosSent("eth0", False): 5}, [])),
            [],
            {("hellos_sent_total", "eth0", "no_room"): 5},
            False,
        ),
        (
            lambda report: report.hear(Counts({HellosReceived("eth0", None): 5}, [])),
            [],
            {("hellos_received_total", "eth0", "read"): 5},
            False,
        ),
        (
            lambda report: report.hear(Counts({HellosReceived("eth0", Rejected.WRONG_KEY): 5}, [])),
            ["foreign hellos"],
            {("hellos_received_total", "eth0", "wrong_key"): 5},
            False,
        ),
        (lambda report: report.failed("netlink", LATE), ["edge failed"], {("edge_errors_total", "netlink"): 1}, True),
        (lambda report: report.failed("netlink", LATE, known=True), [], {("edge_errors_total", "netlink"): 1}, True),
        (lambda report: report.failed("netlink", LATE, patience=1), [], {("edge_errors_total", "netlink"): 1}, True),
        (lambda report: report.recovered("netlink"), [], {}, False),
        (
            lambda report: report.martians(7, 2),
            [],
            {("martian_sources_total",): 7, ("reverse_path_drops_total",): 2},
            False,
        ),
        (
            lambda report: report.limits(Tables(Use(5, 100), Use(6, 4096)), said("conntrack_max", ["too low"], "")),
            ["problem"],
            {("conntrack_entries",): 5, ("conntrack_max",): 100}
            | {("ipvs_connections",): 6, ("ipvs_connection_buckets",): 4096},
            True,
        ),
        (lambda report: report.limits(Tables(), ()), [], {("conntrack_entries",): 0, ("ipvs_connections",): 0}, False),
        (
            lambda report: report.environment(said("forwarding_off", ["it is off"], ""), Priority.REAL_TIME),
            ["wire process", "problem"],
            {("wire_real_time",): 1},
            True,
        ),
        (
            lambda report: report.kube_proxy(LookReport(KUBE_PROXY, served=2, left_alone=1)),
            ["kube-proxy", "problem"],
            {("eips_without_rules",): 3, ("health_checks", "served"): 2, ("health_checks", "left_alone"): 1},
            True,
        ),
        (lambda report: report.set_aside(("default/web is set aside",)), ["problem"], {}, True),
        (lambda report: report.unreadable(["one"]), ["problem"], {}, True),
        (lambda report: report.unreadable([]), [], {}, False),
        (lambda report: report.settled(GIVEN), ["assigned"], {}, False),
        (
            lambda report: report.forwarding([EipChange(A), EipChange(B)]),
            ["forwarding"],
            {("forwarding_changes_total",): 2},
            False,
        ),
        (
            lambda report: report.forwarding([], ("otherwise",)),
            ["approximation"],
            {("forwarding_changes_total",): 0},
            False,
        ),
        (
            lambda report: report.unknown_flows(3, {A: HOP, B: None}),
            [],
            {("strays", "handed_over"): 1, ("strays", "dropped"): 1, ("strays", "reset"): 1},
            True,
        ),
        (lambda report: report.unknown_flows(0, {}), [], {("strays", "handed_over"): 0}, False),
        (
            lambda report: report.assisting({"n2": 3}),
            ["assisting kube-proxy"],
            {("assisted_virtual_servers", "n2"): 3},
            True,
        ),
        (lambda report: report.assisting({}), [], {("assisted_virtual_servers", "n2"): None}, False),
        (lambda report: report.holder_silent(HOP, 3), ["previous holder silent"], {}, False),
        (lambda report: report.api(True), ["api answers"], {}, False),
        (lambda report: report.api(False), [], {}, False),
        (
            lambda report: report.hear(Began(Before("exit code 1", 1.25), Resumed(held=dict.fromkeys(range(3))))),
            ["main process replaced"],
            {("main_process_replaced_total",): 1},
            False,
        ),
        (lambda report: report.hear(WasFrozen()), ["frozen"], {("frozen_total",): 1}, False),
        (
            lambda report: report.hear(Counts({}, [(0.5, 0.25)])),
            [],
            {("loop_delay_max_seconds",): 0.5, ("loop_busy_max_seconds",): 0.25, ("loop_delay_seconds_count",): 1},
            False,
        ),
        (
            lambda report: report.own_loop_delay(0.5, 0.25),
            [],
            {("main_loop_delay_max_seconds",): 0.5, ("main_loop_busy_max_seconds",): 0.25},
            False,
        ),
        (
            lambda report: report.good_manifests(Reading(World(), ())),
            ["manifests read"],
            {("manifests_valid",): 1, ("manifest_problems",): 0},
            True,
        ),
        (
            lambda report: report.bad_manifests(EdgeError("no such directory"), still_serving=True),
            ["bad manifest"],
            {("manifests_valid",): 0, ("manifest_problems",): 1},
            True,
        ),
    ],
)
def test_what_happens_is_logged_and_counted_and_in_the_status_file_where_it_is_in_there(
    play, happens, logged, counted, stale
):
    async def story(site):
        happens(site.report)
        assert site.stale() is stale
        found = {
            (
                sample.name.removeprefix("eip_speaker_"),
                *(value for _, value in sorted(sample.labels.items())),
            ): sample.value
            for family in site.metrics.registry.collect()
            for sample in family.samples
        }
        assert {key: found.get(key) for key in counted} == counted

    assert [line["event"] for line in play(story)] == logged


@pytest.mark.parametrize(
    "happens",
    [
        lambda report: report.failed("netlink", LATE),
        lambda report: report.hear(HellosFiltered(ETH0, "n2", STRANGER, frozenset({A}))),
        lambda report: report.limits(Tables(Use(99, 100)), ()),
        lambda report: report.environment(said("forwarding_off", ["it is off"], ""), Priority.NICE),
        lambda report: report.kube_proxy(LookReport(KUBE_PROXY, 0, 0)),
        lambda report: report.set_aside(("default/web is set aside",)),
        lambda report: report.unreadable(["one"]),
        lambda report: report.settled(GIVEN),
        lambda report: report.unknown_flows(3, {A: HOP}),
        lambda report: report.assisting({"n2": 3}),
        lambda report: report.hear(Counts({HellosReceived("eth0", Rejected.WRONG_KEY): 5}, [])),
    ],
)
def test_the_same_again_is_no_line_and_nothing_new_for_the_status_file(play, happens):
    async def story(site):
        happens(site.report)
        site.report.telling.finish()
        site.stale()
        with capture_logs() as logs:
            happens(site.report)
            site.report.telling.finish()
        assert not site.stale()
        assert logs == []

    play(story)


def test_packets_that_a_reverse_path_filter_drops_are_no_martians(play):
    async def story(site):
        for counts in ((5, 2), (5, 4), (6, 4)):
            site.report.martians(*counts)

    assert [(line["event"], line["packets"]) for line in play(story)] == [("reverse path", 2), ("martian source", 1)]


# ── What becomes of it ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("take_over", [False, True], ids=["rivals", "holders that are waited for"])
def test_what_one_says_no_more_is_told_in_time_though_another_goes_on(tmp_path, in_virtual_time, take_over):
    async def story():
        site = Site(tmp_path, take_over=take_over)
        site.report.hear(Conflict(ETH0, A, STRANGER, held=not take_over))
        found = []
        for _ in range(6):
            site.report.hear(Conflict(ETH0, B, STRANGER, held=not take_over))
            site.stale()
            await asyncio.sleep(10.0)
            found.append(site.stale())
        return found

    assert any(in_virtual_time(story())), "the first has fallen silent meanwhile"


def test_a_rival_is_a_problem_until_its_eip_is_let_go_or_it_was_silent_for_a_while(play):
    async def story(site):
        for eip in (A, B):
            site.report.hear(Conflict(ETH0, eip, STRANGER, held=True))
        assert [*site.report.conflicts()] == ["192.0.2.10", "192.0.2.11"]
        site.report.hear(EipYielded(A, "drained", None))
        assert [*site.report.conflicts()] == ["192.0.2.11"]
        site.stale()
        await asyncio.sleep(RIVAL_SECONDS + 2)
        assert site.stale(), "the status file is to be written without it"
        assert site.report.conflicts() == {}

    play(story)


def test_a_node_whose_hellos_arrive_again_is_no_problem_after_a_while(play):
    async def story(site):
        site.report.hear(HellosFiltered(ETH0, "n2", STRANGER, frozenset({A})))
        site.stale()
        await asyncio.sleep(RIVAL_SECONDS / 2)
        site.report.hear(HellosFiltered(ETH0, "n2", STRANGER, frozenset({A})))
        await asyncio.sleep(RIVAL_SECONDS / 2 + 2)
        assert len(site.report.problems()) == 1
        site.stale()
        await asyncio.sleep(RIVAL_SECONDS / 2)
        assert site.report.problems() == []
        assert site.stale()

    play(story)


def test_what_nobody_foresaw_is_a_problem_until_its_task_was_quiet_for_a_while(play):
    async def story(site):
        site.report.internal_error("publish", TypeError("a bug"))
        assert site.stale()
        assert site.report.problems() == [
            "internal error in publish: TypeError: a bug: it is set aside and tried again; the log has its traceback"
        ]
        await asyncio.sleep(QUIET_SECONDS / 2)
        site.report.internal_error("publish", TypeError("a bug"))
        await asyncio.sleep(QUIET_SECONDS - 1)
        assert len(site.report.problems()) == 1
        site.stale()
        await asyncio.sleep(QUIET_SECONDS)
        assert site.stale(), "the status file is to be written without it"
        assert site.report.problems() == []

    logs = play(story)
    assert [line["event"] for line in logs] == ["internal error", "internal error over"]


def test_an_edge_is_tried_told_and_over(play):
    async def story(site):
        with site.report.trying("netlink"):
            raise EdgeError("no buffer space")
        assert site.report.problems() == ["no buffer space"]
        assert site.report.fails("forwarding", "netlink")
        site.stale()
        with site.report.trying("netlink"):
            pass
        assert site.stale()
        assert site.report.problems() == []
        assert not site.report.fails("netlink")
        with site.report.trying("netlink"):
            raise TypeError("a bug")
        assert "TypeError: a bug" in site.report.problems()[0]

    assert [line["event"] for line in play(story)] == ["internal error", "edge failed", "edge recovered"]


@pytest.mark.parametrize("stops", [KeyboardInterrupt, asyncio.CancelledError])
def test_what_stops_on_purpose_is_nobodys_failure(play, stops):
    async def story(site):
        with pytest.raises(stops), site.report.trying("netlink"):
            raise stops
        assert site.report.problems() == []

    play(story)


def test_mistakes_in_manifests_are_problems_until_they_can_be_read(play):
    async def story(site):
        wrong = [InvalidField(name, 1, "is wrong", place=Place("a.yaml", 1)) for name in ("a", "b")]
        site.report.bad_manifests(InvalidManifests(tuple(wrong)), still_serving=False)
        site.report.bad_manifests(InvalidManifests(tuple(wrong[:1])), still_serving=False)
        assert site.counted("manifest_problems") == 1
        assert len(site.report.problems()) == 1
        site.report.good_manifests(Reading(World(), ()))
        assert site.report.problems() == []

    events = [line["event"] for line in play(story)]
    assert events == ["bad manifest", "bad manifest", "manifests read"], "what was known is not said again"


# ── The status file ───────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_written_before_anything_is_in_force(play, tmp_path):
    async def story(site):
        site.report.stale.set()
        await site.publish()
        assert not site.stale()
        assert not (tmp_path / "status.json").exists()
        assert site.report.health() == (False, {"ready": False, "problems": []})

    play(story)


def test_a_node_is_ready_once_it_was_and_stays_so_whatever_goes_wrong(play, tmp_path):
    async def story(site):
        site.report.brought_about(NOTHING)
        await site.publish(ready=False)
        assert (tmp_path / "status.json").exists()
        assert site.report.health()[0] is False
        await site.publish(ready=True)
        site.report.failed("netlink", LATE)
        await site.publish(ready=False)
        assert site.report.health() == (True, {"ready": True, "problems": ["took longer than 2 s"]})

    assert [line["event"] for line in play(story)] == ["ready", "edge failed"]


def test_what_is_in_force_is_counted_and_makes_the_status_file_stale(play):
    async def story(site):
        held = [MayHold(eip, "lan", (WEB,), ETH0, Gratuitous()) for eip in (A, B)]
        refused = {WEB: Refusal(WEB, RefusalReason.POOL_FULL, "no free address")}
        usage = {"lan": {Family.IPV4: Usage(size=11, used=2, resting=0)}}
        decision = Decision({each.address: each for each in held}, EMPTY)
        site.report.brought_about(InForce(Settlement(GIVEN.assignments, refused), decision, usage))
        assert site.stale()
        await site.publish()
        states = {state: site.counted("eips", state=state) for state in ("held", "held_by_peer", "by_nobody")}
        assert states == {"held": 1, "held_by_peer": 1, "by_nobody": 0}
        outcomes = [site.counted("services", outcome=outcome) for outcome in ("assigned", "partly", "refused")]
        assert outcomes == [0, 1, 0], "it has one address, and lacks another"
        assert site.counted("services_refused", reason="pool_full") == 1
        pool = {"pool": "lan", "family": Family.IPV4}
        assert (site.counted("pool_addresses", **pool), site.counted("pool_addresses_in_use", **pool)) == (11, 2)
        site.report.brought_about(NOTHING)
        assert site.counted("services_refused", reason="pool_full") is None, "what is over is not counted"
        assert site.counted("pool_addresses", **pool) is None

    play(story)


def test_who_takes_over_waits_for_the_former_holder_and_tells_of_no_conflict(in_virtual_time, tmp_path):
    """What it holds in name only is not told as held."""
    held = InForce(GIVEN, Decision({A: MayHold(A, "lan", (WEB,), ETH0, Gratuitous())}, EMPTY), {})
    seen = []

    async def whole():
        site = Site(tmp_path, take_over=True)
        site.report.brought_about(held)
        for _ in range(2):
            site.report.hear(Conflict(ETH0, A, STRANGER, held=False))
        for wait in (0.0, HOLDER_SECONDS + 2):
            await asyncio.sleep(wait)
            assert site.stale()
            await site.publish()
            eip = json.loads((tmp_path / "status.json").read_text())["eips"][0]
            seen.append((eip["claimed"], eip.get("message", ""), site.counted("eips", state="held")))
        assert site.report.problems() == []
        assert site.report.conflicts() == {}
        site.report.hear(Conflict(ETH0, A, STRANGER, held=True))
        assert [*site.report.conflicts()] == [str(A)], "what it answers for itself is another matter"
        site.report.telling.finish()

    with capture_logs() as logs:
        in_virtual_time(whole())
    waits = "waits until 02:00:00:00:00:99 on eth0, which still answers for it, falls silent"
    assert seen == [(False, waits, 0), (True, "", 1)]
    assert [line["event"] for line in logs if line["event"] in ("waits", "conflict")] == ["waits", "conflict"]
