"""What an agent reads besides Services and Eips: only these fields are decoded. Pure."""

from collections.abc import Hashable, Iterable

import msgspec

from speaker.cluster.objects import Metadata, Object
from speaker.model import ServiceKey

# ── EndpointSlices ────────────────────────────────────────────────────────────────────────────────────────────


class SliceLabels(msgspec.Struct, frozen=True, gc=False):
    service: str = msgspec.field(default="", name="kubernetes.io/service-name")


class SliceMetadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: SliceLabels = SliceLabels()


class Conditions(msgspec.Struct, frozen=True, gc=False):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class SliceEndpoint(msgspec.Struct, frozen=True, rename="camel", gc=False):
    addresses: tuple[str, ...] = ()
    conditions: Conditions = Conditions()
    node_name: str | None = None


class SlicePort(msgspec.Struct, frozen=True, gc=False):
    name: str | None = None
    protocol: str | None = None
    port: int | None = None


class SliceObject(Object, frozen=True, rename="camel", gc=False):
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


class NodeCondition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class NodeStatus(msgspec.Struct, frozen=True, gc=False):
    conditions: tuple[NodeCondition, ...] | None = None


class NodeObject(Object, frozen=True, gc=False):
    metadata: NodeMetadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# ── Announcements and Leases ──────────────────────────────────────────────────────────────────────────────────


class AnnouncementStatus(msgspec.Struct, frozen=True, gc=False):
    holder: str = ""
    incarnation: int = 0
    term: int = 0
    link: str = ""
    mac: str = ""
    services: tuple[str, ...] = ()
    conflict: str = ""


class AnnouncementObject(Object, frozen=True, gc=False):
    status: AnnouncementStatus = AnnouncementStatus()


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    holder_identity: str | None = None


class LeaseObject(Object, frozen=True, gc=False):
    spec: LeaseSpec = LeaseSpec()
