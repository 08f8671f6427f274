"""Every metric, by name, in one place. Labels are closed sets: nothing a stranger sends can grow them."""

import math

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)

from speaker import __version__
from speaker.model import Family
from speaker.telemetry.eips import EipMetrics
from speaker.telemetry.given import GivenMetrics
from speaker.telemetry.rising import Maximum, Total

disable_created_metrics()  # type: ignore[no-untyped-call]

#: What answers and announces for each family, as a label.
PROTOCOLS = {Family.IPV4: "arp", Family.IPV6: "ndp"}


class Metrics:
    """The speaker's own registry; no process-wide default, so that tests and a lab can hold several.

    ``api``: what is asked comes from the Kubernetes API, and the controller assigns. A metric that means nothing here
    is not served here: it has no registry, and what it is set to goes nowhere.
    """

    def __init__(self, *, api: bool = False, wire: int | None = None) -> None:
        """``wire``: the process that answers, for what it takes of this host; None: nobody asks."""
        self.registry = CollectorRegistry()
        self._of_files = None if api else self.registry
        self._of_api = self.registry if api else None
        self.given = GivenMetrics(self._of_files)
        self.of_eips = EipMetrics()
        if wire is not None:
            ProcessCollector(registry=self.registry)
            ProcessCollector(namespace="eip_speaker_wire", pid=lambda: wire, registry=self.registry)
        self._make_answers()
        self._make_eips()
        self._make_forwarding()
        self._make_links()
        self._make_process()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _make_answers(self) -> None:
        """What is said on request, or for EIPs that are held; what refused."""
        Info("eip_speaker_build", "Version of this speaker", registry=self.registry).info({"version": __version__})
        self.answers = self._counter(
            "eip_speaker_answers", "ARP replies and neighbour advertisements sent on request", "protocol"
        )
        self.ignored_total = self._counter(
            "eip_speaker_ignored", "Packets not answered, by reason", "protocol", "reason"
        )
        self.announcements = self._counter(
            "eip_speaker_announcements",
            "Gratuitous ARP packets and unsolicited neighbour advertisements sent",
            "protocol",
        )
        self.edge_errors = self._counter(
            "eip_speaker_edge_errors", "Times the kernel, a file or a program refused, by part", "edge"
        )

    def _make_eips(self) -> None:
        """What is in use, and what was asked for."""
        self.eips = self._gauge("eip_speaker_eips", "EIPs in use, by who holds them as far as this node knows", "state")
        self.by_nobody = self._gauge(
            "eip_speaker_eips_by_nobody", "EIPs that no node holds, by the reason why this node does not", "reason"
        )
        self.manifests_valid = Gauge(
            "eip_speaker_manifests_valid",
            "1 when the manifests on disk are the ones in force",
            registry=self._of_files,
        )
        self.manifest_problems = Gauge(
            "eip_speaker_manifest_problems", "Mistakes in the manifests on disk", registry=self._of_files
        )

    def _make_forwarding(self) -> None:
        """The kernel's forwarding, its tables, and whoever else is at work on this node."""
        self.changes = self._counter("eip_speaker_forwarding_changes", "Changes applied to the kernel's forwarding")
        self.kube_proxy = Info(
            "eip_speaker_kube_proxy",
            "What implements Services on this node, as far as the speaker recognises it",
            registry=self.registry,
        )
        self.without_rules = self._gauge(
            "eip_speaker_eips_without_rules",
            "EIPs held here that kube-proxy has no rules for, with the forwarder none; NaN where that is unknown",
        )
        self.without_rules.set(math.nan)
        self.health_checks = self._gauge(
            "eip_speaker_health_checks", "Ports for healthCheckNodePort, by whether this speaker serves them", "state"
        )
        self.martians = Total(
            "eip_speaker_martian_sources",
            "Packets from outside that the kernel dropped because their source is bound here (in_martian_src)",
            self.registry,
        )
        self.reverse_path_drops = Total(
            "eip_speaker_reverse_path_drops",
            "Packets from outside that a strict rp_filter dropped, because the route back uses another link",
            self.registry,
        )
        self.conntrack_entries = self._gauge(
            "eip_speaker_conntrack_entries", "Connections that the kernel tracks on this node"
        )
        self.conntrack_max = self._gauge(
            "eip_speaker_conntrack_max",
            "Connections that the kernel can track (nf_conntrack_max); 0 where it tracks none",
        )
        self.ipvs_connections = self._gauge(
            "eip_speaker_ipvs_connections", "Connections in the IPVS table, those of other programs included"
        )
        self.ipvs_buckets = self._gauge(
            "eip_speaker_ipvs_connection_buckets",
            "Hash buckets of the IPVS connection table; 0 where IPVS is not the forwarder",
        )
        self.last_reconcile = self._gauge(
            "eip_speaker_last_reconcile_timestamp_seconds", "When the state that is asked for was last in force"
        )

    def _make_links(self) -> None:
        """What goes out and comes in on links, and other speakers."""
        self.send_failures = self._counter(
            "eip_speaker_send_failures",
            "Replies and announcements that the queue of the link had no room for",
            "protocol",
        )
        self.join_failures = self._counter(
            "eip_speaker_group_join_failures", "Times the kernel refused to join a solicited-node multicast group"
        )
        self.conflicts = self._counter(
            "eip_speaker_conflicts",
            "Conflicts over an EIP with another host, at most one per EIP in ten seconds, by what this node does",
            "fate",
        )
        self.name_clashes = self._counter(
            "eip_speaker_name_clashes", "Times another host was found to use the name of this node"
        )
        self.name_taken = self._gauge("eip_speaker_name_taken", "1 while another host uses the name of this node")
        self.hellos_filtered = self._counter(
            "eip_speaker_hellos_filtered",
            "Times a node was found to answer for EIPs although none of its hellos arrives",
            "link",
        )
        self.claim_changes = self._counter(
            "eip_speaker_claim_changes", "EIPs claimed, and EIPs given up by reason", "change"
        )
        self.peers = self._gauge(
            "eip_speaker_peers", "Other speakers that live, by the link they were heard on", "link"
        )
        self.peers_silent = self._gauge(
            "eip_speaker_peers_silent",
            "Other speakers heard on a link within the last hour that fell silent without saying goodbye",
            "link",
        )
        self.hello_loss = self._gauge(
            "eip_speaker_hello_loss_ratio",
            "Share of the last hellos of a peer that did not arrive here, of 32 at most",
            "link",
            "peer",
        )
        self.hello_patience = self._gauge(
            "eip_speaker_hello_patience_seconds",
            "Silence after which a peer counts as dead, if its hellos recently came late",
            "link",
            "peer",
        )
        self.link_sick = self._gauge(
            "eip_speaker_link_sick",
            "1 while this node's own link loses what most peers hear of each other",
            "link",
        )
        self.failovers = Histogram(
            "eip_speaker_failover_seconds",
            "Time from the last sign of life of a holder until this node held the EIP in its place",
            buckets=(0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.75, 1.0, 2.0, 5.0, 30.0),
            registry=self.registry,
        )
        self.hand_overs = self._counter(
            "eip_speaker_hand_overs",
            "EIPs that this node gave up while it was drained, by who holds them afterwards",
            "outcome",
        )
        self.hellos_sent = self._counter(
            "eip_speaker_hellos_sent", "Hellos sent, by whether the link accepted them", "link", "result"
        )
        self.hellos_received = self._counter(
            "eip_speaker_hellos_received",
            "Hello frames received, by whether they were accepted or why they were rejected",
            "link",
            "result",
        )

    def _make_process(self) -> None:
        """This process, and the one that answers."""
        self.own_loop_delay_max = Maximum(
            "eip_speaker_main_loop_delay_max_seconds",
            "The longest delay of the main process's event loop since the start; answers do not wait for it",
            self.registry,
        )
        self.own_loop_busy_max = Maximum(
            "eip_speaker_main_loop_busy_max_seconds",
            "The longest part of such a delay that was the loop's own work, in CPU time",
            self.registry,
        )
        self.unknown_flows = self._gauge(
            "eip_speaker_strays",
            "EIPs that this node may hold, by what happens to packets of connections that it does not know",
            "fate",
        )
        self.api = Gauge(
            "eip_speaker_api_up",
            "1 while the API server answers in time and its watches are up to date; `speaker agent` only",
            registry=self._of_api,
        )
        self.removals_waiting = Gauge(
            "eip_speaker_removals_waiting",
            "Objects missing from a list of the API, kept until a second list confirms it, by resource",
            ["resource"],
            registry=self._of_api,
        )
        self.mirror_bytes = Gauge(
            "eip_speaker_mirror_bytes",
            "Estimated memory of the API's objects and of what is derived from them",
            registry=self._of_api,
        )
        self.mirror_room = Gauge(
            "eip_speaker_mirror_room_bytes", "Memory that they may take at most", registry=self._of_api
        )
        self.without_room = Gauge(
            "eip_speaker_objects_without_room",
            "Objects of the API that are set aside because their namespace takes too much memory",
            registry=self._of_api,
        )
        self.internal_errors = self._counter(
            "eip_speaker_internal_errors",
            "Unexpected errors (bugs of the speaker), by task; the log has the traceback of each once",
            "task",
        )
        self.taken_over = self._counter(
            "eip_speaker_main_process_replaced",
            "1 where an earlier main process died and this one took over its wire process",
        )
        self.real_time = self._gauge(
            "eip_speaker_wire_real_time",
            "1 while the wire process has real-time priority, so that a busy host does not delay its answers",
        )
        self.frozen = self._counter(
            "eip_speaker_frozen", "Times the wire process did not run for so long that it gave up all its EIPs"
        )
        self.loop_delay = Histogram(
            "eip_speaker_loop_delay_seconds",
            "Delays of the wire process's event loop; answers and hellos are at least as late",
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
            registry=self.registry,
        )
        self.loop_delay_max = Maximum(
            "eip_speaker_loop_delay_max_seconds",
            "The longest delay of the wire process's event loop since the start",
            self.registry,
        )
        self.loop_busy_max = Maximum(
            "eip_speaker_loop_busy_max_seconds",
            "The longest part of such a delay that was the loop's own work, in CPU time",
            self.registry,
        )
