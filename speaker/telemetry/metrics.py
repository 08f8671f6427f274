"""Every metric, by name, in one place. Labels are closed sets: nothing a stranger sends can grow them."""

from enum import Enum

from prometheus_client import CollectorRegistry, Counter, Gauge, Info

from speaker import __version__
from speaker.model import Family

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
        self.martians = Gauge(
            "eip_speaker_martian_sources",
            "Packets from outside that the kernel dropped because their source is bound here (in_martian_src)",
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
