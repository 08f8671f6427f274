"""What the controller reads of Services and Eips: only these fields are decoded, whatever else a server sends.

So a field that a newer Kubernetes adds to a Service is no mistake here, as it is in a file that a person wrote.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from speaker.api.service import (
    LOAD_BALANCER_CLASS,
    MAX_PORTS,
    MAX_SOURCE_RANGES,
    PREFIX,
    RECORD,
    SHARE,
    SOURCE_RANGES_ANNOTATION,
)
from speaker.cluster.objects import RANGE_BYTES, Metadata, Object, apart, cut
from speaker.model import Family, IPAddress, ServiceKey

Condition = dict[str, Any]
"""As the API writes it; others' are kept as they came."""

ASSIGNED = "eip-speaker.io/Assigned"
"""The condition that the controller writes beside a Service's addresses: they are its doing, unless it says that there
are none."""
NOT_ASSIGNED = "False"
"""The status of that condition beside which an address is another controller's."""
ASSIGNED_FROM = "eip-speaker.io/AssignedFrom"
"""The condition beside it that says which pool each address is from. Agents go by that, not by which pool has the
address now; and nobody but the controller may write a Service's status, its owner least of all."""


_NAME = re.compile("[a-z0-9.-]{1,253}")
"""Of a pool or a node, as admission policies take it: thieves of a key or a token make up others."""
_IN_A_LINE = 3
"""Entries; kubectl shows as many of an Ingress's hosts."""
MAX_LINE = 512
"""Characters, of three entries and a number."""

_OF_A_REMNANT = RECORD, SHARE
"""Annotations that say what a Service has."""
_LOAD_BALANCER = "LoadBalancer"
UNREADABLE = "(unreadable)"
"""Stands in a spec for what could not be decoded: no value that Kubernetes has."""
WITHOUT_ROOM = "(set aside: its namespace writes more than there is memory for)"
"""The same for a spec that was decoded, and is not kept."""


class FullMetadata(Metadata, frozen=True, rename="camel", gc=False):
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    """Those that anybody here reads."""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None

    def __post_init__(self) -> None:
        ours = {name: text for name, text in self.annotations.items() if _is_read(name)}
        msgspec.structs.force_setattr(self, "annotations", ours)


class EipMetadata(FullMetadata, frozen=True, rename="camel", gc=False):
    finalizers: tuple[str, ...] = ()
    generation: int = 0


def weight_of_ranges(listed: Collection[str], written: str | None) -> int:
    """Bytes, of a Service's source ranges: those of its spec, and of its annotation."""
    return RANGE_BYTES * (len(listed) + min((written or "").count(","), MAX_SOURCE_RANGES))


def _is_read(annotation: str) -> bool:
    return annotation == SOURCE_RANGES_ANNOTATION or annotation.lower().startswith(PREFIX)


class Port(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    name: str = ""
    protocol: str = "TCP"
    port: int = 0


class ServiceSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    type: str = ""
    load_balancer_class: str | None = None
    load_balancer_ip: str = msgspec.field(default="", name="loadBalancerIP")
    load_balancer_source_ranges: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    selector: dict[str, str] | None = None
    ip_families: tuple[str, ...] = ()
    ip_family_policy: str | None = None
    external_traffic_policy: str | None = None
    session_affinity: str | None = None
    session_affinity_config: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        cut(self, "load_balancer_source_ranges", MAX_SOURCE_RANGES + 1)
        cut(self, "ports", MAX_PORTS + 1)


FORWARDER = "eip-speaker.io/forwarder"
"""A label of an agent's session Lease: what its node forwards with."""
MISSES = "eip-speaker.io/misses"
"""An annotation of an agent's session Lease: the nodes that fell silent, as it hears. And a label of those Leases that
have it, so that who looks for them is told of no others."""
MAX_MISSED = 100
"""Nodes at most that one names: where more fall silent, it is no node that died."""


class Ingress(msgspec.Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    ip: str = ""
    hostname: str = ""
    ip_mode: str = ""


class LoadBalancer(msgspec.Struct, frozen=True, gc=False):
    ingress: tuple[Ingress, ...] = ()


class ServiceStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    load_balancer: LoadBalancer = LoadBalancer()
    conditions: tuple[Condition, ...] = ()


class ServiceObject(Object, frozen=True, rename="camel", gc=False):
    metadata: FullMetadata
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()

    @property
    def service_key(self) -> ServiceKey:
        return ServiceKey(self.metadata.namespace, self.metadata.name)

    def concerns_us(self) -> bool:
        """It may be ours, or may be meant for us, or has our word in its status."""
        return asks_us(self.spec, default_class=True) or condition_of(self.status.conditions, ASSIGNED) is not None

    def weight(self) -> int:
        written = self.metadata.annotations.get(SOURCE_RANGES_ANNOTATION)
        return super().weight() + weight_of_ranges(self.spec.load_balancer_source_ranges, written)

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
        return cls(metadata, ServiceSpec(type=kind, load_balancer_class=LOAD_BALANCER_CLASS), status)


class ServiceRemnant(ServiceObject, frozen=True, gc=False):
    """One that there is no room for."""


class EipStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    observed_generation: int = 0
    addresses_text: str = ""
    ipv4: dict[str, Any] | None = None
    ipv6: dict[str, Any] | None = None
    conditions: tuple[Condition, ...] = ()


class EipObject(Object, frozen=True, gc=False):
    metadata: EipMetadata
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: EipStatus = EipStatus()


class _Asking(Protocol):
    @property
    def type(self) -> str: ...
    @property
    def load_balancer_class(self) -> str | None: ...


def asks_us(spec: _Asking, *, default_class: bool) -> bool:
    """Whether a Service with it is ours, as far as its type and class say."""
    classes = (LOAD_BALANCER_CLASS, None) if default_class else (LOAD_BALANCER_CLASS,)
    return spec.type in (_LOAD_BALANCER, UNREADABLE) and spec.load_balancer_class in classes


def in_one_line(entries: Sequence[str]) -> str:
    """A list for a column of ``kubectl get``: the first of it, and how many more there are."""
    more = f" + {len(entries) - _IN_A_LINE} more" if len(entries) > _IN_A_LINE else ""
    return (",".join(entries[:_IN_A_LINE]) + more)[:MAX_LINE]


def pools_said(pools: Mapping[Family, str]) -> str:
    """The message of that condition: ``IPv4 from lan, IPv6 from lan6``. It names no address, as thousands of Services
    say the same then, and agents keep one of it."""
    return ", ".join(f"{family} from {pool}" for family, pool in pools.items() if pool)


def pools_read(message: str) -> dict[Family, str]:
    """The other way; what is not to be understood is left out."""
    parts = (part.split(" from ") for part in message.split(", "))
    said = {part[0]: part[1] for part in parts if len(part) == 2}
    return {family: pool for family in Family if _NAME.fullmatch(pool := said.get(family, ""))}


def condition_of(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    return next((each for each in conditions if each.get("type") == kind), None)


def has_ours(conditions: tuple[Condition, ...]) -> bool:
    """Whether the addresses beside them are the controller's doing."""
    return (said := condition_of(conditions, ASSIGNED)) is not None and said.get("status") != NOT_ASSIGNED


def misses_said(nodes: Collection[str]) -> str | None:
    """None: no such annotation, and no such label. A name that no Node can have is left out."""
    named = sorted(filter(_NAME.fullmatch, nodes))
    return ",".join(named) if 0 < len(named) <= MAX_MISSED else None


def misses_read(text: str) -> frozenset[str]:
    """The other way; an agent's word, or anybody's who may write its Lease."""
    return frozenset(filter(None, text.split(",")))


def announcement_name(eip: IPAddress) -> str:
    """The name of its Announcement: the address, with '-' for ':', which no object's name may have.

    IPv6 is written out in full, as a name must begin and end with a letter or digit (RFC 1123): ``2001:db8::`` could
    not be one.
    """
    return eip.exploded.replace(":", "-")


def announced_eip(name: str) -> IPAddress | None:
    """The other way; None for what ``announcement_name`` never returns: a name that none of us has given."""
    try:
        eip = IPv6Address(name.replace("-", ":")) if "-" in name else ip_address(name)
        return eip if announcement_name(eip) == name else None
    except ValueError:
        return None
