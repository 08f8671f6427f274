"""What there is now, in numbers: which gauge gets which."""

import math
import time
from collections import Counter
from collections.abc import Mapping

from speaker.allocator.assign import Usage
from speaker.allocator.settle import Settlement
from speaker.forwarding.limits import Tables, Use
from speaker.kubeproxy.watch import LookReport
from speaker.model import Family
from speaker.telemetry.metrics import Metrics


def count_in_force(metrics: Metrics, settlement: Settlement, usage: Mapping[str, Mapping[Family, Usage]]) -> None:
    metrics.services.labels("assigned").set(len(settlement.assignments))
    metrics.services.labels("refused").set(len(settlement.refusals))
    metrics.refused.clear()
    for reason, count in Counter(r.reason.value for r in settlement.refusals.values()).items():
        metrics.refused.labels(reason).set(count)
    metrics.pool_size.clear()
    metrics.pool_used.clear()
    for pool, families in usage.items():
        for family, numbers in families.items():
            metrics.pool_size.labels(pool, family).set(numbers.size)
            metrics.pool_used.labels(pool, family).set(numbers.used)
    metrics.last_reconcile.set(time.time())


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
