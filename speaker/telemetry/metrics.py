"""Every metric, by name, in one place. Labels are closed sets: nothing a stranger sends can grow them."""

import math
from enum import Enum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from speaker import __version__
from speaker.model import Family, IPAddress, Link, Mac
from speaker.telemetry.maximum import Maximum

#: What answers and announces for each family, as a label.
PROTOCOLS = {Family.IPV4: "arp", Family.IPV6: "ndp"}


class Metrics:
    """The speaker's own registry; no process-wide default, so that tests and a lab can hold several."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        Info("eip_speaker_build", "Version of this speaker", registry=registry).info({"version": __version__})
        self.answers = Counter(
            "eip_speaker_answers",
            "ARP replies and neighbour advertisements sent on request",
            ["protocol"],
            registry=registry,
        )
        self.ignored_total = Counter(
            "eip_speaker_ignored", "Packets not answered, by reason", ["protocol", "reason"], registry=registry
        )
        self.announcements = Counter(
            "eip_speaker_announcements",
            "Gratuitous ARP packets and unsolicited neighbour advertisements sent",
            ["protocol"],
            registry=registry,
        )
        self.edge_errors = Counter(
            "eip_speaker_edge_errors",
            "Times the kernel, a file or a program refused, by part",
            ["edge"],
            registry=registry,
        )
        self.eips = Gauge(
            "eip_speaker_eips", "EIPs in use, by whether this node holds the claim", ["state"], registry=registry
        )
        self.services = Gauge("eip_speaker_services", "Services we serve, by result", ["state"], registry=registry)
        self.refused = Gauge(
            "eip_speaker_services_refused", "Services without an EIP, by reason", ["reason"], registry=registry
        )
        self.pool_size = Gauge(
            "eip_speaker_pool_addresses", "Addresses a pool can give", ["pool", "family"], registry=registry
        )
        self.pool_used = Gauge(
            "eip_speaker_pool_addresses_in_use", "Addresses in use", ["pool", "family"], registry=registry
        )
        self.manifests_valid = Gauge(
            "eip_speaker_manifests_valid", "1 when the manifests on disk are the ones in force", registry=registry
        )
        self.manifest_problems = Gauge(
            "eip_speaker_manifest_problems", "Mistakes in the manifests on disk", registry=registry
        )
        self.changes = Counter(
            "eip_speaker_forwarding_changes", "Changes applied to the kernel's forwarding", registry=registry
        )
        self.kube_proxy = Info(
            "eip_speaker_kube_proxy", "Who implements Services on this node, as it was recognised", registry=registry
        )
        self.without_rules = Gauge(
            "eip_speaker_eips_without_rules",
            "EIPs held here that kube-proxy has no rules for, with the forwarder none; NaN where that cannot be told",
            registry=registry,
        )
        self.without_rules.set(math.nan)
        self.health_checks = Gauge(
            "eip_speaker_health_checks",
            "Ports for healthCheckNodePort, by whether this speaker serves them",
            ["state"],
            registry=registry,
        )
        self.martians = Gauge(
            "eip_speaker_martian_sources",
            "Packets from outside that the kernel dropped because their source is bound here (in_martian_src)",
            registry=registry,
        )
        self.reverse_path_drops = Gauge(
            "eip_speaker_reverse_path_drops",
            "Packets from outside that a strict rp_filter dropped, since their way back is another link",
            registry=registry,
        )
        self.conntrack_entries = Gauge(
            "eip_speaker_conntrack_entries", "Connections that the kernel tracks on this node", registry=registry
        )
        self.conntrack_max = Gauge(
            "eip_speaker_conntrack_max", "How many it can track (nf_conntrack_max); 0: it does not", registry=registry
        )
        self.ipvs_connections = Gauge(
            "eip_speaker_ipvs_connections", "Connections in IPVS's table, whoever they are for", registry=registry
        )
        self.ipvs_buckets = Gauge(
            "eip_speaker_ipvs_connection_buckets",
            "Hash buckets of IPVS's table of connections; 0 where IPVS does not forward for us",
            registry=registry,
        )
        self.last_reconcile = Gauge(
            "eip_speaker_last_reconcile_timestamp_seconds", "When the wanted state last was in force", registry=registry
        )
        self.send_failures = Counter(
            "eip_speaker_send_failures",
            "Replies and announcements the link had no room for",
            ["protocol"],
            registry=registry,
        )
        self.join_failures = Counter(
            "eip_speaker_group_join_failures", "Solicited-node groups the kernel refused to join", registry=registry
        )

        self.conflicts = Counter(
            "eip_speaker_conflicts",
            "Conflicts over an EIP with a stranger, at most one in ten seconds each, by what we do",
            ["eip"],
            registry=registry,
        )
        self.name_clashes = Counter(
            "eip_speaker_name_clashes", "Times another host was found to have this node's name", registry=registry
        )
        self.hellos_filtered = Counter(
            "eip_speaker_hellos_filtered",
            "Times a node none of whose hellos arrives was found to answer for EIPs",
            ["link"],
            registry=registry,
        )
        self.claim_changes = Counter(
            "eip_speaker_claim_changes", "EIPs claimed, and let go by reason", ["change"], registry=registry
        )
        self.peers = Gauge("eip_speaker_peers", "Other speakers heard on a link", ["link"], registry=registry)
        self.hellos_sent = Counter(
            "eip_speaker_hellos_sent", "Hellos, by whether the link took them", ["link", "result"], registry=registry
        )
        self.hellos_received = Counter(
            "eip_speaker_hellos_received",
            "Hello frames, read or rejected and why",
            ["link", "result"],
            registry=registry,
        )
        self.own_loop_delay_max = Maximum(
            "eip_speaker_main_loop_delay_max_seconds",
            "The most that the event loop of the process which reads and forwards was late; answers do not wait for it",
            registry,
        )
        self.own_loop_busy_max = Maximum(
            "eip_speaker_main_loop_busy_max_seconds",
            "The most of such a delay that was its thread's own work, in CPU time",
            registry,
        )
        self.strays = Gauge(
            "eip_speaker_strays",
            "EIPs that this node may hold, by what becomes of packets of connections it does not know",
            ["fate"],
            registry=registry,
        )
        self.api = Gauge(
            "eip_speaker_api_up",
            "1 while the API server answers within its time and what its watches say is of now; `speaker agent` only",
            registry=registry,
        )
        self.internal_errors = Counter(
            "eip_speaker_internal_errors",
            "Errors that nobody foresaw, by the task they were raised in; the log has the traceback of each once",
            ["task"],
            registry=registry,
        )
        self.taken_over = Counter(
            "eip_speaker_main_process_replaced",
            "1 where the main process died and this one took its wire process over",
            registry=registry,
        )
        self.real_time = Gauge(
            "eip_speaker_wire_real_time",
            "1 while the process that answers has real-time priority, so that a busy host does not freeze it",
            registry=registry,
        )
        self.frozen = Counter(
            "eip_speaker_frozen",
            "Times this process did not run for so long that it gave everything up",
            registry=registry,
        )
        self.loop_delay = Histogram(
            "eip_speaker_loop_delay_seconds",
            "How late the event loop was: answers and hellos are at least as late",
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
            registry=registry,
        )
        self.loop_delay_max = Maximum(
            "eip_speaker_loop_delay_max_seconds", "The longest of these delays since the start", registry
        )
        self.loop_busy_max = Maximum(
            "eip_speaker_loop_busy_max_seconds",
            "The most of such a delay that was the wire process's own work, in CPU time",
            registry,
        )

    # What layer 2 tells (its Observer protocol):

    def answered(self, family: Family, count: int) -> None:
        self.answers.labels(PROTOCOLS[family]).inc(count)

    def ignored(self, family: Family, reason: Enum, count: int) -> None:
        self.ignored_total.labels(PROTOCOLS[family], reason.value).inc(count)

    def announced(self, family: Family, count: int) -> None:
        self.announcements.labels(PROTOCOLS[family]).inc(count)

    def send_failed(self, family: Family, count: int) -> None:
        self.send_failures.labels(PROTOCOLS[family]).inc(count)

    def join_failed(self, error: Exception) -> None:
        self.join_failures.inc()

    def conflict(self, link: Link, address: IPAddress, mac: Mac, held: bool) -> None:
        self.conflicts.labels("defended" if held else "not_answered").inc()
