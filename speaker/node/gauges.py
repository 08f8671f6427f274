"""What there is now, in numbers: which gauge gets which."""

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from speaker.allocator.assign import Outcome, Usage
from speaker.allocator.settle import Settlement
from speaker.allocator.tally import given, tally
from speaker.forwarding.limits import Tables, Use
from speaker.kubeproxy.watch import LookReport
from speaker.model import Endpoint, Family, IPAddress, ServiceKey
from speaker.node.decide import MayHold, MayNotHold
from speaker.node.standing import Claim, standings
from speaker.telemetry.metrics import Metrics
from speaker.wire.events import ClaimStatus, PeerSeen


class Counted:
    """What is only counted: none of it is logged, or in the status file."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.answered, self.ignored, self.announced = metrics.answered, metrics.ignored, metrics.announced
        self.send_failed, self.join_failed = metrics.send_failed, metrics.join_failed
        self.draining: Callable[[], bool] = lambda: False
        """Whether this node hands everything over."""

    def let_go(self, reason: str, holder: str | None) -> None:
        self._metrics.claim_changes.labels(reason).inc()
        if self.draining():
            self._metrics.hand_overs.labels("taken" if holder is not None else "given_up").inc()

    def peers(self, link: str, number: int, silent: int) -> None:
        self._metrics.peers.labels(link).set(number)
        self._metrics.peers_silent.labels(link).set(silent)

    def losses(self, peers: Iterable[PeerSeen]) -> None:
        """Whoever is not heard any more has none."""
        self._metrics.hello_loss.clear()
        self._metrics.link_sick.clear()
        self._metrics.hello_patience.clear()
        for peer in peers:
            self._metrics.link_sick.labels(peer.link).set(peer.sick)
            if peer.patience_ms:
                self._metrics.hello_patience.labels(peer.link, peer.node).set(peer.patience_ms / 1000)
            if peer.heard and peer.loss is not None:
                self._metrics.hello_loss.labels(peer.link, peer.node).set(peer.loss / 100)

    def hellos_sent(self, link: str, left: bool, count: int) -> None:
        self._metrics.hellos_sent.labels(link, "left" if left else "no_room").inc(count)

    def taken(self, unanswered: float | None) -> None:
        self._metrics.claim_changes.labels("claimed").inc()
        if unanswered is not None:
            self._metrics.failovers.observe(unanswered)

    def answer_for(self, verdicts: Mapping[IPAddress, int]) -> None:
        """How many hosts answer for each EIP that this node asks for."""
        self._metrics.of_eips.answered = {str(eip): hosts for eip, hosts in verdicts.items()}

    def answering(self, eip: str) -> int | None:
        """The same of one; None where this node does not ask."""
        return self._metrics.of_eips.answered.get(eip)

    def removals_waiting(self, resource: str, number: int) -> None:
        """Objects that a list lacked and that stay until another lacks them too."""
        self._metrics.removals_waiting.labels(resource).set(number)

    def mirrored(self, most: float, taken: Callable[[], float], without_room: Callable[[], float]) -> None:
        """Of the API's objects: the bytes they may take and do, and how many are set aside."""
        self._metrics.mirror_room.set(most)
        self._metrics.mirror_bytes.set_function(taken)
        self._metrics.without_room.set_function(without_room)

    def loop_delay(self, late: float, busy: float) -> None:
        self._metrics.loop_delay.observe(late)
        self._metrics.loop_delay_max.rise(late)
        self._metrics.loop_busy_max.rise(busy)

    def own_loop_delay(self, late: float, busy: float) -> None:
        """Of the process that reads and forwards; answers and hellos do not wait for it."""
        self._metrics.own_loop_delay_max.rise(late)
        self._metrics.own_loop_busy_max.rise(busy)


def count_in_force(metrics: Metrics, settlement: Settlement, usage: Mapping[str, Mapping[Family, Usage]]) -> None:
    assigned, refused = settlement.assignments, settlement.refusals
    services = [given(Outcome(assigned.get(key), refused.get(key))) for key in assigned.keys() | refused.keys()]
    metrics.given.count(*tally(services, usage))
    metrics.last_reconcile.set(time.time())


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


def ready_endpoints(services: Iterable[ServiceKey], endpoints: Mapping[ServiceKey, Collection[Endpoint]]) -> int | None:
    """Addresses that are ready; None where this node does not know of them all."""
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
    """By the hellos. What may be announced where none of this node's links leads is whose the record says."""
    claims = {
        eip: Claim(one.mine, recorded(eip) if one.holder is None and isinstance(eips[eip], MayNotHold) else one.holder)
        for eip, one in found.items()
    }
    states, reasons = standings(eips, claims, rivalled)
    for state, number in states.items():
        metrics.eips.labels(state.value).set(number)
    metrics.by_nobody.clear()
    for reason, number in reasons.items():
        metrics.by_nobody.labels(reason).set(number)


def count_tables(metrics: Metrics, tables: Tables) -> None:
    conntrack, ipvs = tables.conntrack or Use(0, 0), tables.ipvs or Use(0, 0)
    metrics.conntrack_entries.set(conntrack.connections)
    metrics.conntrack_max.set(conntrack.size)
    metrics.ipvs_connections.set(ipvs.connections)
    metrics.ipvs_buckets.set(ipvs.size)


def count_kube_proxy(metrics: Metrics, told: LookReport) -> None:
    seen = told.seen
    metrics.kube_proxy.info({"mode": seen.kube_proxy.mode.value})
    metrics.without_rules.set(math.nan if seen.without_rules is None else seen.without_rules)
    metrics.health_checks.labels("served").set(told.served)
    metrics.health_checks.labels("left_alone").set(told.left_alone)
