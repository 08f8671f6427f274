"""What there is now, in numbers: which gauge gets which."""

import math
import time
from collections.abc import Collection, Mapping

from speaker.allocator.assign import Outcome, Usage
from speaker.allocator.settle import Settlement
from speaker.allocator.tally import given, tally
from speaker.forwarding.limits import Tables, Use
from speaker.kubeproxy.watch import LookReport
from speaker.model import Family, IPAddress
from speaker.node.decide import Held, NotHeld
from speaker.node.standing import Claim, standings
from speaker.telemetry.metrics import Metrics


def count_in_force(metrics: Metrics, settlement: Settlement, usage: Mapping[str, Mapping[Family, Usage]]) -> None:
    assigned, refused = settlement.assignments, settlement.refusals
    services = [given(Outcome(assigned.get(key), refused.get(key))) for key in assigned.keys() | refused.keys()]
    metrics.given.count(*tally(services, usage))
    metrics.last_reconcile.set(time.time())


def count_eips(
    metrics: Metrics,
    eips: Mapping[IPAddress, Held | NotHeld],
    claims: Mapping[IPAddress, Claim],
    rivalled: Collection[str],
) -> None:
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
