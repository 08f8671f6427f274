"""Every metric, by name, in one place. Labels are closed sets: nothing a stranger sends can grow them."""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

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
from speaker.model import Family
from speaker.system.threads import in_thread

disable_created_metrics()  # type: ignore[no-untyped-call]

NAMESPACE = "eip_speaker"
"""Every name begins with it."""
PROTOCOLS = {Family.IPV4: "arp", Family.IPV6: "ndp"}
"""What answers and announces for each family, as a label."""


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
    """A counter of the kernel's, as it was last read."""

    def __init__(self, name: str, documentation: str, registry: CollectorRegistry) -> None:
        self._name, self._documentation, self._value = name, documentation, 0.0
        registry.register(self)

    def set(self, value: float) -> None:
        self._value = value

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self._name, self._documentation, value=self._value)


class _Made:
    """Makes metrics that ``registry`` serves; None: nobody serves them."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self._registry = registry

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, NAMESPACE, registry=self._registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, NAMESPACE, registry=self._registry)

    def maximum(self, name: str, text: str) -> Maximum:
        return Maximum(f"{NAMESPACE}_{name}", text, self._registry)


class GivenMetrics:
    """What was given to whom: the same wherever that is decided, by `speaker run` and by the controller that leads.
    ``registry`` None: nothing is decided here, and nothing served."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        gauge = _Made(registry).gauge
        self._services = gauge("services", "Services, by what they were assigned", "outcome")
        self._refused = gauge("services_refused", "Services that lack something they ask for, by reason", "reason")
        of_pool, resting = ("pool", "family"), "Addresses that were released and are not yet assigned to others"
        self._pools = (
            gauge("pool_addresses", "Addresses that a pool can assign", *of_pool),
            gauge("pool_addresses_in_use", "Addresses of a pool that are in use", *of_pool),
            gauge("pool_addresses_resting", resting, *of_pool),
        )
        full = "Addresses of a namespace that has as many of a pool as it may"
        self._full = gauge("pool_namespace_full", full, *of_pool, "namespace")

    def count(
        self,
        services: Mapping[str, int],
        lacking: Mapping[str, int],
        pools: Mapping[tuple[str, str], tuple[int, int, int]],
        full: Mapping[tuple[str, str, str], int],
    ) -> None:
        """All that there is now, as ``allocator.settle`` counts it."""
        self.clear()
        for outcome, number in services.items():
            self._services.labels(outcome).set(number)
        for reason, number in lacking.items():
            self._refused.labels(reason).set(number)
        for labels, numbers in pools.items():
            for gauge, number in zip(self._pools, numbers, strict=True):
                gauge.labels(*labels).set(number)
        for place, number in full.items():
            self._full.labels(*place).set(number)

    def clear(self) -> None:
        """Nothing is decided here any longer."""
        for gauge in (self._services, self._refused, *self._pools, self._full):
            gauge.clear()


class MqttMetrics:
    """What is counted of a broker. Registered only where one is configured."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = _Made(registry).counter, _Made(registry).gauge
        dropped = "Events that were dropped because too many waited for the MQTT broker"
        self.connected = gauge("mqtt_connected", "1 while the MQTT broker accepts messages")
        self.published = counter("mqtt_published", "Messages that the MQTT broker accepted, by kind", "kind")
        self.dropped = counter("mqtt_events_dropped", dropped)
        self.waiting = gauge("mqtt_waiting", "Messages that wait for the MQTT broker")


class Metrics:
    """The speaker's own registry; no process-wide default, so that tests and a lab can hold several.

    ``api``: what is asked comes from the Kubernetes API, and the controller assigns. A metric that means nothing here
    is not served here: it has no registry, and what it is set to goes nowhere.
    """

    def __init__(self, *, api: bool = False, wire: int | None = None) -> None:
        """``wire``: the process that answers, for what it takes of this host; None: nobody asks."""
        self.registry = CollectorRegistry()
        self._made = _Made(self.registry)
        self._of_files, self._of_api = _Made(None if api else self.registry), _Made(self.registry if api else None)
        self.given = GivenMetrics(None if api else self.registry)
        self.of_eips = EipMetrics()
        if wire is not None:
            ProcessCollector(registry=self.registry)
            ProcessCollector(namespace="eip_speaker_wire", pid=lambda: wire, registry=self.registry)
        self._make_answers()
        self._make_eips()
        self._make_forwarding()
        self._make_links()
        self._make_process()

    def _make_answers(self) -> None:
        """What is said on request, or for EIPs that are held; what refused."""
        counter = self._made.counter
        Info("build", "Version of this speaker", (), NAMESPACE, registry=self.registry).info({"version": __version__})
        self.answers = counter("answers", "ARP replies and neighbour advertisements sent on request", "protocol")
        self.kernel_answers = counter("kernel_answers", "Those of the answers that the kernel gave for us", "protocol")
        self.ignored_total = counter("ignored", "Packets not answered, by reason", "protocol", "reason")
        self.announcements = counter(
            "announcements", "Gratuitous ARP packets and unsolicited neighbour advertisements sent", "protocol"
        )
        self.edge_errors = counter("edge_errors", "Times the kernel, a file or a program refused, by part", "edge")

    def _make_eips(self) -> None:
        """What is in use, and what was asked for."""
        gauge = self._made.gauge
        self.eips = gauge("eips", "EIPs in use, by who holds them as far as this node knows", "state")
        self.not_preferred = gauge("eips_not_preferred", "EIPs held here although another node here is preferred")
        self.by_nobody = gauge(
            "eips_by_nobody", "EIPs that no node holds, by the reason why this node does not", "reason"
        )
        self.manifests_valid = self._of_files.gauge(
            "manifests_valid", "1 when the manifests on disk are the ones in force"
        )
        self.manifest_problems = self._of_files.gauge("manifest_problems", "Mistakes in the manifests on disk")

        self.endpoint_checks = self._of_files.counter(
            "endpoint_checks", "Health checks of endpoints, by their result", "result"
        )
        self.endpoints_checked = self._of_files.gauge(
            "endpoints_checked", "Endpoints that this node checks, by whether they are well", "state"
        )
        self.endpoint_checks_late = self._of_files.counter(
            "endpoint_checks_late", "Health checks that began more than a second late"
        )

    def _make_forwarding(self) -> None:
        """The kernel's forwarding, its tables, and whoever else is at work on this node."""
        counter, gauge = self._made.counter, self._made.gauge
        self.changes = counter("forwarding_changes", "Changes applied to the kernel's forwarding")
        text = "What implements Services on this node, as far as the speaker recognises it"
        self.kube_proxy = Info("kube_proxy", text, (), NAMESPACE, registry=self.registry)
        self.without_rules = gauge(
            "eips_without_rules",
            "EIPs held here that kube-proxy has no rules for, with the forwarder none; NaN where that is unknown",
        )
        self.without_rules.set(math.nan)
        text = "With the forwarder assist: virtual servers that are led past the endpoints of this dead node"
        self.assisted = gauge("assisted_virtual_servers", text, "node")
        self.health_checks = gauge(
            "health_checks", "Ports for healthCheckNodePort, by whether this speaker serves them", "state"
        )
        self.martians = Total(
            "eip_speaker_martian_sources",
            "IPv4 packets that came in from an EIP bound here, and were dropped; counted while the speaker listens",
            self.registry,
        )
        self.reverse_path_drops = Total(
            "eip_speaker_reverse_path_drops",
            "Packets from outside that a strict rp_filter dropped, because the route back uses another link",
            self.registry,
        )
        self.conntrack_entries = gauge("conntrack_entries", "Connections that the kernel tracks on this node")
        self.conntrack_max = gauge(
            "conntrack_max", "Connections that the kernel can track (nf_conntrack_max); 0 where it tracks none"
        )
        self.ipvs_connections = gauge(
            "ipvs_connections", "Connections in the IPVS table, those of other programs included"
        )
        self.ipvs_buckets = gauge(
            "ipvs_connection_buckets", "Hash buckets of the IPVS connection table; 0 where IPVS is not the forwarder"
        )
        self.last_reconcile = gauge(
            "last_reconcile_timestamp_seconds", "When the state that is asked for was last in force"
        )

    def _make_links(self) -> None:
        """What goes out and comes in on links, and other speakers."""
        counter, gauge = self._made.counter, self._made.gauge
        self.send_failures = counter(
            "send_failures", "Replies and announcements that the queue of the link had no room for", "protocol"
        )
        self.join_failures = counter(
            "group_join_failures", "Times the kernel refused to join a solicited-node multicast group"
        )
        self.conflicts = counter(
            "conflicts",
            "Conflicts over an EIP with another host, at most one per EIP in ten seconds, by what this node does",
            "fate",
        )
        self.name_clashes = counter("name_clashes", "Times another host was found to use the name of this node")
        self.name_taken = gauge("name_taken", "1 while another host uses the name of this node")
        self.hellos_filtered = counter(
            "hellos_filtered", "Times a node was found to answer for EIPs although none of its hellos arrives", "link"
        )
        self.claim_changes = counter("claim_changes", "EIPs claimed, and EIPs given up by reason", "change")
        self.peers = gauge("peers", "Other speakers that live, by the link they were heard on", "link")
        self.peers_silent = gauge(
            "peers_silent",
            "Other speakers heard on a link within the last hour that fell silent without saying goodbye",
            "link",
        )
        self.hello_loss = gauge(
            "hello_loss_ratio",
            "Share of the last hellos of a peer that did not arrive here, of 32 at most",
            "link",
            "peer",
        )
        self.hello_patience = gauge(
            "hello_patience_seconds",
            "Silence after which a peer counts as dead, if its hellos recently came late",
            "link",
            "peer",
        )
        self.link_sick = gauge(
            "link_sick", "1 while this node's own link loses many hellos, and most peers hear each other", "link"
        )
        self.failovers = Histogram(
            "failover_seconds",
            "Time from the last sign of life of a holder until this node held the EIP in its place",
            buckets=(0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.75, 1.0, 2.0, 5.0, 30.0),
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.hand_overs = counter(
            "hand_overs", "EIPs that this node gave up while it was drained, by who holds them afterwards", "outcome"
        )
        self.hellos_sent = counter("hellos_sent", "Hellos sent, by whether the link accepted them", "link", "result")
        self.hellos_received = counter(
            "hellos_received",
            "Hello frames received, by whether they were accepted or why they were rejected",
            "link",
            "result",
        )

    def _make_process(self) -> None:
        """This process, and the one that answers."""
        counter, gauge, maximum = self._made.counter, self._made.gauge, self._made.maximum
        self.own_loop_delay_max = maximum(
            "main_loop_delay_max_seconds",
            "The longest delay of the main process's event loop since the start; answers do not wait for it",
        )
        self.own_loop_busy_max = maximum(
            "main_loop_busy_max_seconds", "The longest part of such a delay that was the loop's own work, in CPU time"
        )
        self.unknown_flows = gauge(
            "strays",
            "EIPs that this node may hold, by what happens to packets of connections that it does not know",
            "fate",
        )
        self.api = self._of_api.gauge(
            "api_up", "1 while the API server answers in time and its watches are up to date; `speaker agent` only"
        )
        self.removals_waiting = self._of_api.gauge(
            "removals_waiting",
            "Objects missing from a list of the API, kept until a second list confirms it, by resource",
            "resource",
        )
        self.mirror_bytes = self._of_api.gauge(
            "mirror_bytes", "Estimated memory of the API's objects and of what is derived from them"
        )
        self.mirror_room = self._of_api.gauge("mirror_room_bytes", "Memory that they may take at most")
        self.without_room = self._of_api.gauge(
            "objects_without_room",
            "Objects of the API that are set aside because their namespace takes too much memory",
        )
        self.internal_errors = counter(
            "internal_errors",
            "Unexpected errors (bugs of the speaker), by task; the log has the traceback of each once",
            "task",
        )
        self.taken_over = counter(
            "main_process_replaced", "1 where an earlier main process died and this one took over its wire process"
        )
        self.real_time = gauge(
            "wire_real_time",
            "1 while the wire process has real-time priority, so that a busy host does not delay its answers",
        )
        self.frozen = counter("frozen", "Times the wire process did not run for so long that it gave up all its EIPs")
        self.loop_delay = Histogram(
            "loop_delay_seconds",
            "Delays of the wire process's event loop; answers and hellos are at least as late",
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.loop_delay_max = maximum(
            "loop_delay_max_seconds", "The longest delay of the wire process's event loop since the start"
        )
        self.loop_busy_max = maximum(
            "loop_busy_max_seconds", "The longest part of such a delay that was the loop's own work, in CPU time"
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
CONNECTIONS = "eip_speaker_virtual_server_connections_total"
PACKETS = "eip_speaker_virtual_server_packets_total"
BYTES = "eip_speaker_virtual_server_bytes_total"
REAL_SERVER = "eip_speaker_real_server_connections"
TEXTS = {
    SINCE: "When this node began to hold the EIP; only its holder has this",
    ENDPOINTS: "Ready endpoints of the EIP's Services, on whatever node, as its holder counts them",
    ANSWERED: "Hosts that answer for the EIP when a node that does not hold it asks by ARP or NDP",
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

    def text(self) -> bytes:
        return "".join(self._lines()).encode()

    def _lines(self) -> Iterator[str]:
        for metric, values in ((SINCE, self.since), (ENDPOINTS, self.endpoints), (ANSWERED, self.answered)):
            yield _head(metric, "gauge")
            for eip, value in values.items():
                yield f'{metric}{{eip="{eip}"}} {value}\n'


def exposition(
    virtual_servers: Mapping[tuple[str, str, str], tuple[int, int, int, int, int]],
    real_servers: Mapping[tuple[str, str, str, str], tuple[int, int]],
) -> bytes:
    """By EIP, protocol and port: connections, packets in and out, bytes in and out. By these and ``address:port`` of
    the real server: active and inactive connections."""
    return "".join(_traffic(virtual_servers, real_servers)).encode()


def _traffic(
    virtual_servers: Mapping[tuple[str, str, str], tuple[int, int, int, int, int]],
    real_servers: Mapping[tuple[str, str, str, str], tuple[int, int]],
) -> Iterator[str]:
    counts = [
        (f'eip="{eip}",protocol="{protocol}",port="{port}"', counted)
        for (eip, protocol, port), counted in virtual_servers.items()
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
    for (eip, protocol, port, place), (active, inactive) in real_servers.items():
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
