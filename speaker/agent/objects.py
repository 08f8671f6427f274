"""What an agent reads besides Eips: only these fields are decoded. Pure."""

from collections.abc import Hashable, Iterable
from typing import Any, ClassVar

import msgspec

from speaker.api.service import LOAD_BALANCER_CLASS, SCHEDULER, SOURCE_RANGES_ANNOTATION
from speaker.cluster.hosts import HostObject, NodeStatus
from speaker.cluster.kinds import ASSIGNED, UNREADABLE, Port
from speaker.cluster.objects import Metadata, Object, Repetitive, apart
from speaker.model import ServiceKey

# ── Services ──────────────────────────────────────────────────────────────────────────────────────────────────
# Leaner than the controller's: an agent on every node keeps all of them, and looks at little. A namesake that was made
# anew is the same to it: what it says counts.


class Wishes(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The annotations that matter to who forwards."""

    scheduler: str | None = msgspec.field(default=None, name=SCHEDULER)
    source_ranges: str | None = msgspec.field(default=None, name=SOURCE_RANGES_ANNOTATION)


class AssignedMetadata(Repetitive, frozen=True, rename="camel", omit_defaults=True, gc=False):
    REPEATED = ("namespace", "annotations")

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    uid: ClassVar[str] = ""
    annotations: Wishes = Wishes()


class AssignedSpec(Repetitive, frozen=True, rename="camel", omit_defaults=True, gc=False):
    REPEATED = (
        "type",
        "load_balancer_class",
        "ports",
        "ip_families",
        "ip_family_policy",
        "external_traffic_policy",
        "session_affinity",
    )

    type: str = ""
    load_balancer_class: str | None = None
    load_balancer_source_ranges: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    ip_families: tuple[str, ...] = ()
    ip_family_policy: str | None = None
    external_traffic_policy: str | None = None
    health_check_node_port: int = 0
    session_affinity: str | None = None
    session_affinity_config: dict[str, Any] | None = None


class AssignedIngress(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    ip: str = ""
    ip_mode: str = ""


class AssignedLoadBalancer(msgspec.Struct, frozen=True, gc=False):
    ingress: tuple[AssignedIngress, ...] = ()


class AssignedCondition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""
    message: str = ""


class AssignedStatus(Repetitive, frozen=True, rename="camel", gc=False):
    REPEATED = ("conditions",)

    load_balancer: AssignedLoadBalancer = AssignedLoadBalancer()
    conditions: tuple[AssignedCondition, ...] | None = None


class AssignedObject(Object, frozen=True, gc=False):
    """A Service, as far as who announces it and forwards for it is concerned."""

    metadata: AssignedMetadata  # type: ignore[assignment]  # the same, but for its annotations
    spec: AssignedSpec = AssignedSpec()
    status: AssignedStatus = AssignedStatus()

    @classmethod
    def remains(cls, raw: msgspec.Raw) -> "AssignedObject | None":
        """One whose EIP is announced where it has endpoints, and that nobody reaches through us."""
        parts = apart(raw, AssignedMetadata, AssignedStatus)
        if parts is None or all(condition.type != ASSIGNED for condition in parts[1].conditions or ()):
            return None
        spec = AssignedSpec(
            type=UNREADABLE, load_balancer_class=LOAD_BALANCER_CLASS, external_traffic_policy=UNREADABLE
        )
        return cls(parts[0], spec, parts[1])


# ── EndpointSlices ────────────────────────────────────────────────────────────────────────────────────────────


class SliceLabels(msgspec.Struct, frozen=True, gc=False):
    service: str = msgspec.field(default="", name="kubernetes.io/service-name")


class SliceMetadata(Repetitive, frozen=True, rename="camel", gc=False):
    REPEATED = ("namespace",)

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    uid: ClassVar[str] = ""
    labels: SliceLabels = SliceLabels()


class Conditions(msgspec.Struct, frozen=True, gc=False):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class SliceEndpoint(Repetitive, frozen=True, rename="camel", gc=False):
    REPEATED = ("conditions", "node_name")

    addresses: tuple[str, ...] = ()
    conditions: Conditions = Conditions()
    node_name: str | None = None


class SlicePort(msgspec.Struct, frozen=True, gc=False):
    name: str | None = None
    protocol: str | None = None
    port: int | None = None


class SliceObject(Object, Repetitive, frozen=True, rename="camel", gc=False):
    REPEATED = ("address_type", "ports")

    metadata: SliceMetadata  # type: ignore[assignment]  # the same, but for its labels
    address_type: str = ""
    endpoints: tuple[SliceEndpoint, ...] | None = None
    ports: tuple[SlicePort, ...] | None = None

    @property
    def service_key(self) -> ServiceKey:
        return ServiceKey(self.metadata.namespace, self.metadata.labels.service)


def by_service(found: SliceObject) -> Iterable[Hashable]:
    """An index: the Service that a slice belongs to."""
    return (found.service_key,)


# ── Nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────


class NodeMetadata(Metadata, frozen=True, rename="camel", gc=False):
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class Taint(msgspec.Struct, frozen=True, gc=False):
    key: str = ""


class NodeSpec(msgspec.Struct, frozen=True, gc=False):
    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class NodeObject(HostObject, frozen=True, gc=False):
    metadata: NodeMetadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# ── Announcements and Leases ──────────────────────────────────────────────────────────────────────────────────


class AnnouncementStatus(Repetitive, frozen=True, rename="camel", gc=False):
    REPEATED = ("holder", "link", "mac")

    holder: str = ""
    incarnation: int = 0
    term: int = 0
    link: str = ""
    mac: str = ""
    services: tuple[str, ...] = ()
    services_text: str = ""
    conflict: str = ""
    reason: str = ""


class AnnouncementObject(Object, frozen=True, gc=False):
    status: AnnouncementStatus = AnnouncementStatus()


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    holder_identity: str | None = None


class LeaseObject(Object, frozen=True, gc=False):
    spec: LeaseSpec = LeaseSpec()
