"""Every metric, by name, in one place. Labels are closed sets: nothing a stranger sends can grow them."""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from speaker import __version__
from speaker.model import Family, Tally, Traffic
from speaker.system.threads import in_thread

disable_created_metrics()  # type: ignore[no-untyped-call]

NAMESPACE = "eip_speaker"
"""Every name begins with it."""
PROTOCOLS = {Family.IPV4: "arp", Family.IPV6: "ndp"}
"""What answers and announces for each family, as a label."""

_T = TypeVar("_T")


class Maximum:
    """The most that a value has been since the start."""

    def __init__(self, name: str, documentation: str, registry: CollectorRegistry | None) -> None:
        self._gauge = Gauge(name, documentation, registry=registry)
        self._most = 0.0

    def rise(self, value: float) -> None:
        """To ``value``, if that is more."""
        if value > self._most:
            self._most = value
            self._gauge.set(value)


class Total(Collector):
    """A counter of the kernel, as it was last read."""

    def __init__(self, name: str, documentation: str, registry: CollectorRegistry) -> None:
        self._name, self._documentation, self._value = name, documentation, 0.0
        registry.register(self)

    def set(self, value: float) -> None:
        self._value = value

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self._name, self._documentation, value=self._value)


class _Declared(NamedTuple):
    make: Callable[..., Any]
    api: bool | None


def metric(kind: Callable[..., _T], text: str, labels: str = "", api: bool | None = None, **more: object) -> _T:
    """Declares what each instance of a class gets, by the name of the attribute. ``api``: served only with the
    Kubernetes API (True), only with files (False), or anywhere."""
    if labels:
        more["labelnames"] = labels.split()
    return cast(_T, _Declared(partial(kind, documentation=text, **more), api))


counter, gauge = partial(metric, Counter), partial(metric, Gauge)


def make(
    metrics: object, registry: CollectorRegistry | None, api: bool | None = None, namespace: str = NAMESPACE
) -> None:
    """All that the class declares. What means nothing here is not served here: it has no registry, and what it is set
    to goes nowhere."""
    for attribute, found in vars(type(metrics)).items():
        if isinstance(found, _Declared):
            served = registry if found.api in (None, api) else None
            setattr(metrics, attribute, found.make(f"{namespace}_{attribute}", registry=served))


class GivenMetrics:
    """What was given to whom: the same wherever that is decided, by `speaker run` and by the controller that leads.
    ``registry`` None: nothing is decided here, and nothing served."""

    services = gauge("Services, by what they were assigned", "outcome")
    services_refused = gauge("Services that lack something they ask for, by reason", "reason")
    pool_addresses = gauge("Addresses that a pool can assign", "pool family")
    pool_addresses_in_use = gauge("Addresses of a pool that are in use", "pool family")
    pool_addresses_resting = gauge("Addresses that were released and are not yet assigned to others", "pool family")
    pool_namespace_full = gauge("Addresses of a namespace that has reached the pool's maximum", "pool family namespace")

    def __init__(self, registry: CollectorRegistry | None) -> None:
        make(self, registry)

    def count(self, tally: Tally) -> None:
        """All that there is now, as ``allocator.settle`` counts it."""
        self.clear()
        for outcome, number in tally.services.items():
            self.services.labels(outcome).set(number)
        for reason, number in tally.lacking.items():
            self.services_refused.labels(reason).set(number)
        by_pool = self.pool_addresses, self.pool_addresses_in_use, self.pool_addresses_resting
        for labels, numbers in tally.pools.items():
            for each, number in zip(by_pool, numbers, strict=True):
                each.labels(*labels).set(number)
        for place, number in tally.full.items():
            self.pool_namespace_full.labels(*place).set(number)

    def clear(self) -> None:
        """Nothing is decided here any longer."""
        for each in vars(self).values():
            each.clear()


class MqttMetrics:
    """What is counted of a broker. Registered only where one is configured."""

    connected = gauge("1 while the MQTT broker accepts messages")
    published = counter("Messages that the MQTT broker accepted, by kind", "kind")
    events_dropped = counter("Events that were dropped because too many waited for the MQTT broker")
    waiting = gauge("Messages that wait for the MQTT broker")

    def __init__(self, registry: CollectorRegistry) -> None:
        make(self, registry, namespace=f"{NAMESPACE}_mqtt")


class Metrics:
    """The speaker's own registry; no process-wide default, so that tests and a lab can hold several.

    ``api``: what is asked comes from the Kubernetes API, and the controller assigns. ``wire``: the process that
    answers, for what it takes of this host; None: nobody asks.
    """

    def __init__(self, *, api: bool = False, wire: int | None = None) -> None:
        self.registry = CollectorRegistry()
        make(self, self.registry, api)
        self.given = GivenMetrics(None if api else self.registry)
        self.of_eips = EipMetrics()
        self.eips_without_rules.set(math.nan)
        Info("build", "Version of this speaker", (), NAMESPACE, registry=self.registry).info({"version": __version__})
        if wire is not None:
            ProcessCollector(registry=self.registry)
            ProcessCollector(namespace="eip_speaker_wire", pid=lambda: wire, registry=self.registry)

    # ── What is said on request, or for EIPs that are held; what refused ──

    answers = counter("ARP replies and neighbour advertisements sent on request", "protocol")
    kernel_answers = counter(
        "Answers that the program in the kernel gave, which are counted among all answers too", "protocol"
    )
    ignored = counter("Packets not answered, by reason", "protocol reason")
    announcements = counter("Gratuitous ARP packets and unsolicited neighbour advertisements sent", "protocol")
    edge_errors = counter("Times the kernel, a file or a program refused, by part", "edge")

    # ── What is in use, and what was asked for ──

    eips = gauge("EIPs in use, by who holds them as far as this node knows", "state")
    eips_not_preferred = gauge("EIPs held here although another node that is there is preferred")
    eips_by_nobody = gauge("EIPs that no node holds, by the reason why this node does not", "reason")
    manifests_valid = gauge("1 when the manifests on disk are the ones in force", api=False)
    manifest_problems = gauge("Mistakes in the manifests on disk", api=False)
    endpoint_checks = counter("Health checks of endpoints, by their result", "result", api=False)
    endpoints_checked = gauge("Endpoints that this node checks, by whether they are healthy", "state", api=False)
    endpoint_checks_late = counter("Health checks that began more than a second late", api=False)

    # ── The kernel's forwarding, its tables, and whoever else is at work on this node ──

    forwarding_changes = counter("Changes applied to the kernel's forwarding")
    kube_proxy = metric(Info, "What implements Services on this node, as far as the speaker recognises it")
    eips_without_rules = gauge(
        "EIPs held here that kube-proxy has no rules for, with the forwarder none; NaN where that is unknown"
    )
    assisted_virtual_servers = gauge(
        "Virtual servers whose new connections avoid the endpoints of this dead node (forwarder assist)", "node"
    )
    health_checks = gauge("Ports for healthCheckNodePort, by whether this speaker serves them", "state")
    martian_sources = metric(
        Total, "IPv4 packets that came in from an EIP bound here, and were dropped; counted while the speaker listens"
    )
    reverse_path_drops = metric(
        Total, "Packets from outside that a strict rp_filter dropped, because the route back uses another link"
    )
    conntrack_entries = gauge("Connections that the kernel tracks on this node")
    conntrack_max = gauge("Connections that the kernel can track (nf_conntrack_max); 0 where it tracks none")
    ipvs_connections = gauge("Connections in the IPVS table, those of other programs included")
    ipvs_connection_buckets = gauge("Hash buckets of the IPVS connection table; 0 where IPVS is not the forwarder")
    last_reconcile_timestamp_seconds = gauge("When the requested state was last in force")

    # ── What goes out and comes in on links, and other speakers ──

    send_failures = counter("Replies and announcements that the queue of the link had no room for", "protocol")
    group_join_failures = counter("Times the kernel refused to join a solicited-node multicast group")
    conflicts = counter(
        "Conflicts over an EIP with another host, at most one per EIP in ten seconds, by what this node does", "fate"
    )
    name_clashes = counter("Times another host was found to use the name of this node")
    name_taken = gauge("1 while another host uses the name of this node")
    hellos_filtered = counter("Times a node was found to answer for EIPs although none of its hellos arrives", "link")
    claim_changes = counter("EIPs claimed, and EIPs given up by reason", "change")
    peers = gauge("Other speakers that are alive, by the link they were heard on", "link")
    peers_silent = gauge(
        "Other speakers heard on a link within the last hour that fell silent without saying goodbye", "link"
    )
    hello_loss_ratio = gauge("Share of the last hellos of a peer that did not arrive here, of 32 at most", "link peer")
    hello_patience_seconds = gauge(
        "Silence after which a peer counts as dead, if its hellos recently came late", "link peer"
    )
    link_sick = gauge("1 while this node's own link loses many hellos, and most peers hear each other", "link")
    failover_seconds = metric(
        Histogram,
        "Time from the last sign of life of a holder until this node held the EIP in its place",
        buckets=(0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.75, 1.0, 2.0, 5.0, 30.0),
    )
    hand_overs = counter("EIPs that this node gave up while it was drained, by who holds them afterwards", "outcome")
    hellos_sent = counter("Hellos sent, by whether the link accepted them", "link result")
    hellos_received = counter(
        "Hello frames received, by whether they were accepted or why they were rejected", "link result"
    )

    # ── This process, and the one that answers ──

    main_loop_delay_max_seconds = metric(
        Maximum, "The longest delay of the main process's event loop since the start; answers do not wait for it"
    )
    main_loop_busy_max_seconds = metric(
        Maximum, "The longest part of such a delay that was the loop's own work, in CPU time"
    )
    strays = gauge(
        "EIPs that this node may hold, by what happens to packets of connections that it does not know", "fate"
    )
    api_up = gauge(
        "1 while the API server answers in time and its watches are up to date; `speaker agent` only", api=True
    )
    removals_waiting = gauge(
        "Objects missing from a list of the API, kept until a second list confirms it, by resource",
        "resource",
        api=True,
    )
    mirror_bytes = gauge("Estimated memory of the API's objects and of what is derived from them", api=True)
    mirror_room_bytes = gauge("Memory that they may take at most", api=True)
    objects_without_room = gauge(
        "Objects of the API that are set aside because their namespace takes too much memory", api=True
    )
    internal_errors = counter(
        "Unexpected errors (bugs of the speaker), by task; the log has the traceback of each once", "task"
    )
    main_process_replaced = counter("1 where an earlier main process died and this one took over its wire process")
    wire_real_time = gauge(
        "1 while the wire process has real-time priority, so that a busy host does not delay its answers"
    )
    frozen = counter("Times the wire process did not run for so long that it gave up all its EIPs")
    loop_delay_seconds = metric(
        Histogram,
        "Delays of the wire process's event loop; answers and hellos are at least as late",
        buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
    )
    loop_delay_max_seconds = metric(Maximum, "The longest delay of the wire process's event loop since the start")
    loop_busy_max_seconds = metric(
        Maximum, "The longest part of such a delay that was the loop's own work, in CPU time"
    )


# ── As text ───────────────────────────────────────────────────────────────────────────────────────────────────
#
# What may be a hundred thousand lines is written in the text format 0.0.4 here, not by ``prometheus_client``: it takes
# 9 µs a line, half a second for 10,000 virtual servers, where this takes 0.3. No label needs escaping: addresses,
# numbers, our own words.

GOOD_SECONDS = 2.0
"""How long a text is handed out again: IPVS brings its own counters up to date every two (ip_vs_est.c)."""

SINCE = "eip_speaker_held_since_timestamp_seconds"
ENDPOINTS = "eip_speaker_endpoints_ready"
ANSWERED = "eip_speaker_answered"
CONFLICT = "eip_speaker_conflict"
UNHEALTHY = "eip_speaker_endpoints_unhealthy"
CONNECTIONS = "eip_speaker_virtual_server_connections_total"
PACKETS = "eip_speaker_virtual_server_packets_total"
BYTES = "eip_speaker_virtual_server_bytes_total"
REAL_SERVER = "eip_speaker_real_server_connections"
TEXTS = {
    SINCE: "When this node began to hold the EIP; only its holder has this",
    ENDPOINTS: "Ready endpoints of the EIP's Services on all nodes, as its holder counts them",
    ANSWERED: "Hosts that answer for the EIP when a node that does not hold it asks by ARP or NDP",
    CONFLICT: "1 while this node has recently heard another host use the EIP",
    UNHEALTHY: "Endpoints that fail their health check, and whether they are used all the same as none is healthy",
    CONNECTIONS: "Connections to a virtual server that has had any on this node",
    PACKETS: "Packets from clients (in) and to them (out)",
    BYTES: "Bytes from clients (in) and to them (out), IP headers included",
    REAL_SERVER: "Connections of a real server now: active, and inactive (closing, or without a state, as UDP is)",
}
"""Every metric that is made here, with its help."""


def _head(metric: str, kind: str) -> str:
    return f"# HELP {metric} {TEXTS[metric]}\n# TYPE {metric} {kind}\n"


class EipMetrics:
    """By EIP, each from the node that holds it, or that asks for it. What is not known is left out."""

    def __init__(self) -> None:
        self.since: Mapping[str, float] = {}
        self.endpoints: Mapping[str, int] = {}
        self.answered: Mapping[str, int] = {}
        self.conflicts: Mapping[str, int] = {}
        self.unhealthy: Mapping[tuple[str, bool], int] = {}
        """By EIP, and whether they are used all the same."""

    def text(self) -> bytes:
        return "".join(self._lines()).encode()

    def _lines(self) -> Iterator[str]:
        numbers = {SINCE: self.since, ENDPOINTS: self.endpoints, ANSWERED: self.answered, CONFLICT: self.conflicts}
        for metric, values in numbers.items():
            yield _head(metric, "gauge")
            for eip, value in values.items():
                yield f'{metric}{{eip="{eip}"}} {value}\n'
        yield _head(UNHEALTHY, "gauge")
        for (eip, used), number in self.unhealthy.items():
            yield f'{UNHEALTHY}{{eip="{eip}",used="{"yes" if used else "no"}"}} {number}\n'


def exposition(traffic: Traffic) -> bytes:
    return "".join(_lines_of(traffic)).encode()


def _lines_of(traffic: Traffic) -> Iterator[str]:
    counts = [
        (f'eip="{eip}",protocol="{protocol}",port="{port}"', counted)
        for (eip, protocol, port), counted in traffic.virtual_servers.items()
    ]
    yield _head(CONNECTIONS, "counter")
    for labels, counted in counts:
        yield f"{CONNECTIONS}{{{labels}}} {counted[0]}\n"
    for metric, into, out in ((PACKETS, 1, 2), (BYTES, 3, 4)):
        yield _head(metric, "counter")
        for labels, counted in counts:
            yield f'{metric}{{{labels},direction="in"}} {counted[into]}\n'
            yield f'{metric}{{{labels},direction="out"}} {counted[out]}\n'
    yield _head(REAL_SERVER, "gauge")
    for (eip, protocol, port, place), (active, inactive) in traffic.real_servers.items():
        labels = f'eip="{eip}",protocol="{protocol}",port="{port}",real_server="{place}"'
        yield f'{REAL_SERVER}{{{labels},state="active"}} {active}\n'
        yield f'{REAL_SERVER}{{{labels},state="inactive"}} {inactive}\n'


class Kept:
    """A text that takes long to make: in a thread, by one asker at a time, and good for a while."""

    def __init__(self, make: Callable[[], bytes], clock: Callable[[], float] = time.monotonic) -> None:
        self._make, self._clock = make, clock
        self._turn = asyncio.Lock()
        self._text = b""
        self._good_until = float("-inf")

    async def text(self) -> bytes:
        async with self._turn:
            if self._clock() >= self._good_until:
                self._text = await in_thread(self._make)
                self._good_until = self._clock() + GOOD_SECONDS
            return self._text
