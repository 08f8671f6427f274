"""Sets the gauges to what there is now, and counts events."""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from speaker.allocator.assign import Outcome
from speaker.allocator.settle import Settlement, given, tally
from speaker.forwarding.limits import Tables, Use
from speaker.health.judge import Tally
from speaker.kubeproxy.watch import LookReport
from speaker.model import Endpoint, Family, IPAddress, ServiceKey, Usage, events
from speaker.node.decide import MayHold, MayNotHold
from speaker.node.standing import Claim, standings
from speaker.ownership.events import NameClash, NameFree
from speaker.telemetry.metrics import PROTOCOLS, Metrics
from speaker.wire.messages import Began, ClaimStatus, PeerSeen, WireEvent


class Counted:
    """Things that are only counted, and neither logged nor in the status file."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.draining: Callable[[], bool] = lambda: False
        """Whether this node is handing everything over."""

    def losses(self, peers: Collection[PeerSeen]) -> None:
        """A peer that is no longer heard has no value."""
        self._metrics.hello_loss_ratio.clear()
        self._metrics.link_sick.clear()
        self._metrics.hello_patience_seconds.clear()
        for peer in peers:
            self._metrics.link_sick.labels(peer.link).set(peer.sick)
            if peer.patience_ms:
                self._metrics.hello_patience_seconds.labels(peer.link, peer.node).set(peer.patience_ms / 1000)
            if peer.heard and peer.loss is not None:
                self._metrics.hello_loss_ratio.labels(peer.link, peer.node).set(peer.loss / 100)

    def answer_for(self, verdicts: Mapping[IPAddress, int], unicast: Collection[IPAddress] = ()) -> None:
        """How many hosts answer for each EIP that this node asks for. ``unicast``: EIPs whose holder answers only if it
        alone is asked."""
        self._metrics.of_eips.answered = {str(eip): hosts for eip, hosts in verdicts.items()}

    def answering(self, eip: str) -> int | None:
        """The same for one EIP; None if this node does not ask for it."""
        return self._metrics.of_eips.answered.get(eip)

    def removals_waiting(self, resource: str, number: int) -> None:
        """Objects missing from one list, which are kept until a second list lacks them too."""
        self._metrics.removals_waiting.labels(resource).set(number)

    def mirrored(self, most: float, taken: Callable[[], float], without_room: Callable[[], float]) -> None:
        """Memory of the API's objects: the bytes they may take and do take, and how many objects are set aside."""
        self._metrics.mirror_room_bytes.set(most)
        self._metrics.mirror_bytes.set_function(taken)
        self._metrics.objects_without_room.set_function(without_room)

    def own_loop_delay(self, late: float, busy: float) -> None:
        """Delay in the process that reads and forwards. Answers and hellos do not wait for it."""
        self._metrics.main_loop_delay_max_seconds.rise(late)
        self._metrics.main_loop_busy_max_seconds.rise(busy)


def count_event(metrics: Metrics, event: Began | WireEvent, *, draining: bool) -> None:
    """``draining``: this node is handing everything over."""
    match event:
        case events.EipClaimed(unanswered=unanswered):
            metrics.claim_changes.labels("claimed").inc()
            if unanswered is not None:
                metrics.failover_seconds.observe(unanswered)
        case events.EipYielded(reason=reason, holder=holder):
            metrics.claim_changes.labels(reason).inc()
            if draining:
                metrics.hand_overs.labels("taken" if holder is not None else "given_up").inc()
        case events.Conflict(held=held):
            metrics.conflicts.labels("defended" if held else "not_answered").inc()
        case events.HellosFiltered(link=link):
            metrics.hellos_filtered.labels(link.name).inc()
        case NameClash():
            metrics.name_clashes.inc()
            metrics.name_taken.set(1)
        case NameFree():
            metrics.name_taken.set(0)
        case events.PeersCounted(link=name, number=number, silent=silent):
            metrics.peers.labels(name).set(number)
            metrics.peers_silent.labels(name).set(silent)
        case events.LinkLost():
            metrics.edge_errors.labels("link").inc()
        case events.JoinFailed():
            metrics.group_join_failures.inc()
        case events.WasFrozen():
            metrics.frozen.inc()
        case Began(before=before) if before.end:
            metrics.main_process_replaced.inc()
        case events.Counts(counts=counts, delays=delays):
            for what, number in counts.items():
                _count(metrics, what, number)
            for late, busy in delays:
                metrics.loop_delay_seconds.observe(late)
                metrics.loop_delay_max_seconds.rise(late)
                metrics.loop_busy_max_seconds.rise(busy)


def _count(metrics: Metrics, what: events.Countable, number: int) -> None:
    match what:
        case events.Answers(family=family):
            metrics.answers.labels(PROTOCOLS[family]).inc(number)
        case events.KernelAnswers(family=family):
            metrics.kernel_answers.labels(PROTOCOLS[family]).inc(number)
        case events.Ignorings(family=family, reason=reason):
            metrics.ignored.labels(PROTOCOLS[family], reason.value).inc(number)
        case events.Announcements(family=family):
            metrics.announcements.labels(PROTOCOLS[family]).inc(number)
        case events.SendFailures(family=family):
            metrics.send_failures.labels(PROTOCOLS[family]).inc(number)
        case events.HellosSent(link=link, left=left):
            metrics.hellos_sent.labels(link, "left" if left else "no_room").inc(number)
        case events.HellosReceived(link=link, rejected=rejected):
            metrics.hellos_received.labels(link, rejected.value if rejected else "read").inc(number)
        case events.BugsMetAgain() | events.PeersClaims():
            pass


def count_in_force(metrics: Metrics, settlement: Settlement, usage: Mapping[str, Mapping[Family, Usage]]) -> None:
    assigned, refused = settlement.assignments, settlement.refusals
    services = [given(Outcome(assigned.get(key), refused.get(key))) for key in assigned.keys() | refused.keys()]
    metrics.given.count(tally(services, usage))
    metrics.last_reconcile_timestamp_seconds.set(time.time())


def count_held(
    metrics: Metrics,
    eips: Mapping[IPAddress, MayHold | MayNotHold],
    found: Mapping[IPAddress, ClaimStatus],
    endpoints: Mapping[ServiceKey, Collection[Endpoint]],
) -> None:
    mine = {eip: one.since or 0.0 for eip, one in found.items() if one.mine}
    ready = {str(eip): ready_endpoints(eips[eip].services, endpoints) for eip in mine}
    metrics.of_eips.since = {str(eip): since for eip, since in mine.items()}
    metrics.of_eips.endpoints = {eip: number for eip, number in ready.items() if number is not None}
    metrics.of_eips.unhealthy = Counter(
        (str(eip), each.ready)
        for eip in mine
        for key in eips[eip].services
        for each in endpoints.get(key, ())
        if each.unwell and each.address.version == eip.version
    )


def ready_endpoints(services: Iterable[ServiceKey], endpoints: Mapping[ServiceKey, Collection[Endpoint]]) -> int | None:
    """Number of ready addresses; None if this node does not know all of them."""
    found = [endpoints.get(key) for key in services]
    if any(some is None for some in found):
        return None
    return len({each.address for some in found for each in some or () if each.ready})


def count_eips(
    metrics: Metrics,
    eips: Mapping[IPAddress, MayHold | MayNotHold],
    found: Mapping[IPAddress, ClaimStatus],
    recorded: Callable[[IPAddress], str | None],
    rivalled: Collection[str],
) -> None:
    """Holders come from hellos. For EIPs on links that this node does not have, they come from the records."""
    claims = {
        eip: Claim(one.mine, recorded(eip) if one.holder is None and isinstance(eips[eip], MayNotHold) else one.holder)
        for eip, one in found.items()
    }
    states, reasons = standings(eips, claims, rivalled)
    for state, number in states.items():
        metrics.eips.labels(state.value).set(number)
    metrics.eips_not_preferred.set(sum(one.mine and one.elsewhere is not None for one in found.values()))
    metrics.of_eips.conflicts = dict.fromkeys(rivalled, 1)
    metrics.eips_by_nobody.clear()
    for reason, number in reasons.items():
        metrics.eips_by_nobody.labels(reason).set(number)


def count_checks(metrics: Metrics, tally: Tally) -> None:
    for result, number in tally.results.items():
        metrics.endpoint_checks.labels(result.value).inc(number)
    for state, well in (("well", True), ("unwell", False), ("unknown", None)):
        metrics.endpoints_checked.labels(state).set(tally.states.get(well, 0))
    metrics.endpoint_checks_late.inc(tally.late)


def count_tables(metrics: Metrics, tables: Tables) -> None:
    conntrack, ipvs = tables.conntrack or Use(0, 0), tables.ipvs or Use(0, 0)
    metrics.conntrack_entries.set(conntrack.connections)
    metrics.conntrack_max.set(conntrack.size)
    metrics.ipvs_connections.set(ipvs.connections)
    metrics.ipvs_connection_buckets.set(ipvs.size)


def count_kube_proxy(metrics: Metrics, told: LookReport) -> None:
    seen = told.seen
    metrics.kube_proxy.info({"mode": seen.kube_proxy.mode.value})
    metrics.eips_without_rules.set(math.nan if seen.without_rules is None else seen.without_rules)
    metrics.health_checks.labels("served").set(told.served)
    metrics.health_checks.labels("left_alone").set(told.left_alone)
