"""What is read of Services, EndpointSlices, pools and Nodes in the API: only the fields named here are decoded.

So a field that a newer Kubernetes adds is no mistake here, although it is one in a file. An agent keeps less of a
Service (``AssignedObject``) than the controller does (``ServiceObject``), because there is an agent on every node, and
each keeps all of them. ``records`` has the objects that we write ourselves; ``reading`` turns all of these into values.
"""

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, ClassVar

import msgspec
from msgspec.structs import force_setattr, replace

from speaker.api import service
from speaker.api.addresses import parse_eip
from speaker.api.endpoints import MAX_ENDPOINTS, SERVICE_NAME
from speaker.api.objects import RANGE_BYTES, Metadata, Object, Repetitive, apart, cut
from speaker.api.others import WISHES
from speaker.model import Family, IPAddress, ServiceKey

SERVICES = "/api/v1/services"
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
PODS = "/api/v1/pods"
EIPS = "/apis/eip-speaker.io/v1alpha1/eips"
"""The API has these here, of a whole cluster."""

ASSIGNED = "eip-speaker.io/Assigned"
"""The condition that the controller writes beside a Service's addresses: they are its doing, unless it says that there
are none."""
NOT_ASSIGNED = "False"
"""The status of that condition beside which an address is another controller's."""
ASSIGNED_FROM = "eip-speaker.io/AssignedFrom"
"""The condition beside it that says which pool each address is from. Agents go by that, not by which pool has the
address now; and nobody but the controller may write a Service's status, its owner least of all."""

NAME = re.compile("[a-z0-9.-]{1,253}")
"""Of a pool or a node, as admission policies take it: thieves of a key or a token make up others."""
_IN_A_LINE = 3
"""Entries; kubectl shows as many of an Ingress's hosts."""
MAX_LINE = 512
"""Characters, of three entries and a number."""

_NOBODY_KNOWS: Iterator[str] = iter(())
MAX_SAID = 16384
"""Characters of what ``ASSIGNED_FROM`` says: room for the longest names of as many pools as a Service may have."""

_LOAD_BALANCER = "LoadBalancer"
_READ = frozenset((*WISHES, service.SOURCE_RANGES_ANNOTATION))
_OF_A_REMNANT = service.RECORD, service.SHARE
"""Annotations that say what a Service has."""
UNREADABLE = "(unreadable)"
"""Stands in a spec for what could not be decoded: no value that Kubernetes has."""
WITHOUT_ROOM = "(set aside: its namespace writes more than there is memory for)"
"""The same for a spec that was decoded, and is not kept."""
PAIR_BYTES = 300
"""Memory that a pair of address and port takes once it is read (200, measured with tracemalloc), and what is made of
it."""

Condition = dict[str, Any]
"""As the API writes it; others' are kept as they came."""


# ── Metadata ──────────────────────────────────────────────────────────────────────────────────────────────────


class FullMetadata(Metadata, frozen=True, rename="camel", gc=False):
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    """Those that anybody here reads."""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None

    def __post_init__(self) -> None:
        read = [name for name in self.annotations if name in _READ or name.lower().startswith(service.PREFIX)]
        force_setattr(self, "annotations", {name: self.annotations[name] for name in read})


class LeanMetadata(Repetitive, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Of what an agent keeps by the ten thousand. What was made anew under its name is the same to it: what it says
    counts."""

    REPEATED: ClassVar[tuple[str, ...]] = ("namespace",)

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    uid: ClassVar[str] = ""


# ── Services ──────────────────────────────────────────────────────────────────────────────────────────────────


class Port(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    name: str = ""
    protocol: str = "TCP"
    port: int = 0


class ServiceSpec(Repetitive, frozen=True, rename="camel", omit_defaults=True, gc=False):
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

    def __post_init__(self) -> None:
        cut(self, "load_balancer_source_ranges", service.MAX_SOURCE_RANGES + 1)
        cut(self, "ports", service.MAX_PORTS + 1)
        super().__post_init__()


class WishingSpec(ServiceSpec, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """With what matters only until the Service has its address."""

    load_balancer_ip: str = msgspec.field(default="", name="loadBalancerIP")
    selector: dict[str, str] | None = None


class Ingress(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    ip: str = ""
    hostname: str = ""
    ip_mode: str = ""


class LoadBalancer(msgspec.Struct, frozen=True, gc=False):
    ingress: tuple[Ingress, ...] = ()

    @property
    def addresses(self) -> tuple[IPAddress, ...]:
        """Without host names, and what a person wrote there: each once, and no more than a Service may have."""
        return readable(each.ip for each in self.ingress)


def readable(texts: Iterable[str]) -> tuple[IPAddress, ...]:
    """The addresses among them, each once, as many as a Service may have."""
    found: dict[IPAddress, None] = {}
    for text in islice(texts, service.MAX_HELD):
        with suppress(ValueError):
            found[parse_eip(text)] = None
    return tuple(found)


class ServiceStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    load_balancer: LoadBalancer = LoadBalancer()
    conditions: tuple[Condition, ...] = ()


class ServiceObject(Object, frozen=True, rename="camel", gc=False):
    """A Service, as the controller keeps it."""

    metadata: FullMetadata
    spec: WishingSpec = WishingSpec()
    status: ServiceStatus = ServiceStatus()

    @property
    def service_key(self) -> ServiceKey:
        return ServiceKey(self.metadata.namespace, self.metadata.name)

    def concerns_us(self) -> bool:
        """It may be ours, or may be meant for us, or has our word in its status."""
        return asks_us(self.spec, default_class=True) or condition_of(self.status.conditions, ASSIGNED) is not None

    def weight(self) -> int:
        return super().weight() + _weight(self.spec, self.metadata.annotations.get(service.SOURCE_RANGES_ANNOTATION))

    def remnant(self) -> "ServiceObject | None":
        kept = {name: text for name in _OF_A_REMNANT if (text := self.metadata.annotations.get(name)) is not None}
        return ServiceRemnant._unserved(replace(self.metadata, labels={}, annotations=kept), self.status, WITHOUT_ROOM)

    @classmethod
    def remains(cls, raw: msgspec.Raw) -> "ServiceObject | None":
        parts = apart(raw, FullMetadata, ServiceStatus)
        return cls._unserved(*parts) if parts is not None else None

    @classmethod
    def _unserved(cls, metadata: FullMetadata, status: ServiceStatus, kind: str = UNREADABLE) -> "ServiceObject | None":
        """One of ours that nobody can serve: its EIP stays its own."""
        if condition_of(status.conditions, ASSIGNED) is None:
            return None
        return cls(metadata, WishingSpec(type=kind, load_balancer_class=service.LOAD_BALANCER_CLASS), status)


class ServiceRemnant(ServiceObject, frozen=True, gc=False):
    """One that there is no room for."""


class Wishes(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The annotations that matter to who forwards."""

    scheduler: str | None = msgspec.field(default=None, name=service.SCHEDULER)
    node_preference: str | None = msgspec.field(default=None, name=service.NODE_PREFERENCE)
    source_ranges: str | None = msgspec.field(default=None, name=service.SOURCE_RANGES_ANNOTATION)


class AssignedMetadata(LeanMetadata, frozen=True, rename="camel", omit_defaults=True, gc=False):
    REPEATED = ("namespace", "annotations")

    annotations: Wishes = Wishes()


class AssignedCondition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""
    message: str = ""


class AssignedStatus(Repetitive, frozen=True, rename="camel", gc=False):
    REPEATED = ("conditions",)

    load_balancer: LoadBalancer = LoadBalancer()
    conditions: tuple[AssignedCondition, ...] | None = None
    """Ours."""

    def __post_init__(self) -> None:
        ours = tuple(each for each in self.conditions or () if each.type in (ASSIGNED, ASSIGNED_FROM))
        force_setattr(self, "conditions", ours)
        super().__post_init__()

    @property
    def is_ours(self) -> bool:
        """As ``has_ours``."""
        said = (each.status for each in self.conditions or () if each.type == ASSIGNED)
        return next(said, NOT_ASSIGNED) != NOT_ASSIGNED


class AssignedObject(Object, frozen=True, gc=False):
    """A Service, as far as who announces it and forwards for it is concerned."""

    metadata: AssignedMetadata  # type: ignore[assignment]  # the same, but for its annotations
    spec: ServiceSpec = ServiceSpec()
    status: AssignedStatus = AssignedStatus()

    def weight(self) -> int:
        return super().weight() + _weight(self.spec, self.metadata.annotations.source_ranges)

    def remnant(self) -> "AssignedObject | None":
        return AssignedRemnant._unserved(replace(self.metadata, annotations=Wishes()), self.status, WITHOUT_ROOM)

    @classmethod
    def remains(cls, raw: msgspec.Raw) -> "AssignedObject | None":
        parts = apart(raw, AssignedMetadata, AssignedStatus)
        return cls._unserved(*parts) if parts is not None else None

    @classmethod
    def _unserved(
        cls, metadata: AssignedMetadata, status: AssignedStatus, kind: str = UNREADABLE
    ) -> "AssignedObject | None":
        """One whose EIP is announced where it has endpoints, and that nobody reaches through us."""
        if all(condition.type != ASSIGNED for condition in status.conditions or ()):
            return None
        spec = ServiceSpec(
            type=kind, load_balancer_class=service.LOAD_BALANCER_CLASS, external_traffic_policy=UNREADABLE
        )
        return cls(metadata, spec, status)


class AssignedRemnant(AssignedObject, frozen=True, gc=False):
    """One that there is no room for."""


def _weight(spec: ServiceSpec, annotation: str | None) -> int:
    """Bytes, of a Service's source ranges: those of its spec, and of its annotation."""
    written = min((annotation or "").count(","), service.MAX_SOURCE_RANGES)
    return RANGE_BYTES * (len(spec.load_balancer_source_ranges) + written)


def asks_us(spec: ServiceSpec, *, default_class: bool) -> bool:
    """Whether a Service with it is ours, as far as its type and class say."""
    classes = (service.LOAD_BALANCER_CLASS, None) if default_class else (service.LOAD_BALANCER_CLASS,)
    return spec.type in (_LOAD_BALANCER, UNREADABLE) and spec.load_balancer_class in classes


def condition_of(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    return next((each for each in conditions if each.get("type") == kind), None)


def has_ours(conditions: tuple[Condition, ...]) -> bool:
    """Whether the addresses beside them are the controller's doing."""
    return (said := condition_of(conditions, ASSIGNED)) is not None and said.get("status") != NOT_ASSIGNED


def pools_said(pools: Iterable[tuple[Family, str]]) -> str:
    """The message of ``ASSIGNED_FROM``: ``IPv4 from lan and dmz, IPv6 from lan``, of each family in the order of its
    addresses, ``?`` where nobody knows. It names no address, as thousands of Services say the same then, and agents
    keep one of it."""
    by_family: dict[Family, list[str]] = {}
    for family, pool in pools:
        by_family.setdefault(family, []).append(pool or "?")
    return ", ".join(f"{family} from {' and '.join(said)}" for family, said in by_family.items() if {*said} != {"?"})


def pools_read(message: str) -> dict[Family, tuple[str, ...]]:
    """The other way, '' for what is not to be understood."""
    said = dict(part for entry in message[:MAX_SAID].split(", ") if len(part := entry.split(" from ")) == 2)
    named = {family: said[family].split(" and ") for family in Family if family in said}
    return {family: tuple(each if NAME.fullmatch(each) else "" for each in of) for family, of in named.items()}


def pools_of(addresses: Sequence[IPAddress], said: Mapping[Family, Sequence[str]]) -> tuple[str, ...]:
    """The pool of each address, by what ``pools_read`` says; '' where it does not go with these addresses."""
    families = [*map(Family.of, addresses)]
    rest = {family: iter(pools) for family, pools in said.items() if len(pools) == families.count(family)}
    return tuple(next(rest.get(family, _NOBODY_KNOWS), "") for family in families)


# ── EndpointSlices ────────────────────────────────────────────────────────────────────────────────────────────


class SliceLabels(msgspec.Struct, frozen=True, gc=False):
    service: str = msgspec.field(default="", name=SERVICE_NAME)


class SliceMetadata(LeanMetadata, frozen=True, rename="camel", omit_defaults=True, gc=False):
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

    def __post_init__(self) -> None:
        """With no more of it than is ever used, and one pair of address and port to tell that there were more."""
        if self.ports:
            cut(self, "ports", MAX_ENDPOINTS + 1)
        if self.endpoints and sum(len(each.addresses) for each in self.endpoints) > MAX_ENDPOINTS:
            force_setattr(self, "endpoints", tuple(_first(self.endpoints, MAX_ENDPOINTS + 1)))
        super().__post_init__()

    @property
    def service_key(self) -> ServiceKey:
        return ServiceKey(self.metadata.namespace, self.metadata.labels.service)

    def weight(self) -> int:
        pairs = sum(len(each.addresses) for each in self.endpoints or ()) * len(self.ports or ())
        return super().weight() + PAIR_BYTES * min(pairs, MAX_ENDPOINTS)


def _first(endpoints: Iterable[SliceEndpoint], addresses: int) -> Iterator[SliceEndpoint]:
    for each in endpoints:
        if addresses <= 0:
            return
        yield replace(each, addresses=each.addresses[:addresses])
        addresses -= len(each.addresses)


def by_service(found: SliceObject) -> Iterable[Hashable]:
    """An index: the Service that a slice belongs to."""
    return (found.service_key,)


def slices_in(namespace: str) -> str:
    """The path of the EndpointSlices of one namespace."""
    return f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"


# ── Pools ─────────────────────────────────────────────────────────────────────────────────────────────────────


class EipMetadata(FullMetadata, frozen=True, rename="camel", gc=False):
    finalizers: tuple[str, ...] = ()
    generation: int = 0


class EipStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    observed_generation: int = 0
    addresses_text: str = ""
    used_text: str = ""
    free_text: str = ""
    ipv4: dict[str, Any] | None = None
    ipv6: dict[str, Any] | None = None
    conditions: tuple[Condition, ...] = ()


class EipObject(Object, frozen=True, gc=False):
    metadata: EipMetadata
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: EipStatus = EipStatus()

    @property
    def used(self) -> int:
        """Addresses of the pool that Services have, as the status says."""
        counts = [family.get("used") for family in (self.status.ipv4, self.status.ipv6) if family]
        return sum(count for count in counts if isinstance(count, int))


def in_one_line(entries: Sequence[str]) -> str:
    """A list for a column of ``kubectl get``: the first of it, and how many more there are."""
    more = f" + {len(entries) - _IN_A_LINE} more" if len(entries) > _IN_A_LINE else ""
    return (",".join(entries[:_IN_A_LINE]) + more)[:MAX_LINE]


# ── Nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────


class NodeAddress(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    address: str = ""


class HostStatus(msgspec.Struct, frozen=True, gc=False):
    addresses: tuple[NodeAddress, ...] | None = None


class HostObject(Object, frozen=True, gc=False):
    """A Node, as far as its addresses go."""

    status: HostStatus = HostStatus()


class NodeCondition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class NodeStatus(HostStatus, frozen=True, gc=False):
    conditions: tuple[NodeCondition, ...] | None = None

    @property
    def ready(self) -> bool:
        # Unknown is what the node controller writes when it hears nothing: that is not to be ready either.
        return next((each.status == "True" for each in self.conditions or () if each.type == "Ready"), True)


class Taint(msgspec.Struct, frozen=True, gc=False):
    key: str = ""


class NodeSpec(msgspec.Struct, frozen=True, gc=False):
    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class NodeObject(HostObject, frozen=True, gc=False):
    metadata: FullMetadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
