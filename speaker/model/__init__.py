"""The values that every part of the speaker works with.

They are frozen, and have no behaviour except naming themselves. Strings stop at the door: ``speaker.api`` turns
manifests and API JSON into these values, and nothing further in parses text.
"""

import typing
from base64 import b32encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Literal, NamedTuple, NewType, TypeAlias

IPAddress: TypeAlias = IPv4Address | IPv6Address
IPNetwork: TypeAlias = IPv4Network | IPv6Network


def with_port(address: IPAddress | str, port: int | str) -> str:
    """As in a URL."""
    text = str(address)
    return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"


def rank(address: IPAddress) -> tuple[int, int]:
    """Sorts addresses of both families, IPv4 first: ``ipaddress`` refuses to compare the two."""
    return address.version, int(address)


EIP_LINK = "eip-speaker0"
"""The speaker's own dummy link, for EIPs that have to be bound."""
KUBE_PROXY_LINK = "kube-ipvs0"
"""The same of kube-proxy in ipvs mode."""


@dataclass(frozen=True, slots=True)
class Group:
    """Speakers that share EIPs. Those of another name, on the same hosts and LAN, share nothing with them
    (docs/groups.md)."""

    name: str = ""
    """A DNS label (RFC 1123); "" is a group as well: the one of all speakers that were given none."""

    def __str__(self) -> str:
        return f"group {self.name}" if self.name else "speakers without a group"

    @property
    def id(self) -> bytes:
        """32 bytes that no other name has."""
        return sha256(b"eip-speaker group\0" + self.name.encode()).digest()

    @property
    def link(self) -> str:
        """Its dummy link. IFNAMSIZ leaves four letters to tell groups apart."""
        return EIP_LINK[:-1] + b32encode(self.id)[:4].decode().lower() if self.name else EIP_LINK

    def table(self, name: str) -> str:
        """Of nftables; no label has a slash."""
        return f"{name}/{self.name}" if self.name else name


NO_GROUP = Group()


def of_speakers(link: str) -> bool:
    """Whether the link of that name is the dummy of some group."""
    return link.startswith(EIP_LINK[:-1])


#: An Ethernet address, six bytes.
Mac = NewType("Mac", bytes)

MAX_TERM = 2**31
"""Of a claim. One change of holder a second for 68 years: no speaker comes to a higher one, somebody made it up."""


def format_mac(mac: bytes) -> str:
    return mac.hex(":")


class Family(StrEnum):
    """An IP family, spelled as in ``Service.spec.ipFamilies``."""

    IPV4 = "IPv4"
    IPV6 = "IPv6"

    @staticmethod
    def of(address: IPAddress | IPNetwork) -> "Family":
        return Family.IPV4 if address.version == 4 else Family.IPV6


NOBODY: tuple[IPNetwork, ...] = (IPv4Network("0.0.0.0/32"), IPv6Network("::/128"))
"""Source ranges that let no client in: no packet has such a source (RFC 1122, 3.2.1.3; RFC 4291, 2.5.2)."""


class Balancer(StrEnum):
    """Another load balancer, by the name that flags have for it."""

    OPENELB = "openelb"
    METALLB = "metallb"
    KUBE_VIP = "kube-vip"
    PURELB = "purelb"
    CILIUM = "cilium"


class FamilyPolicy(StrEnum):
    """``Service.spec.ipFamilyPolicy``."""

    SINGLE = "SingleStack"
    PREFER_DUAL = "PreferDualStack"
    REQUIRE_DUAL = "RequireDualStack"


class Protocol(StrEnum):
    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"


class TrafficPolicy(StrEnum):
    """``Service.spec.externalTrafficPolicy``. LOCAL keeps the client's address and uses this node's endpoints only."""

    CLUSTER = "Cluster"
    LOCAL = "Local"


# ── Services and their endpoints ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, order=True)
class ServiceKey:
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ServicePort:
    """One port of a Service. ``name`` is '' where the Service has a single unnamed port."""

    protocol: Protocol
    port: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """How a speaker finds out by itself whether an endpoint is well: annotation ``eip-speaker.io/health-check``.

    Seconds: a check begins ``interval`` after the one before, and up to ``jitter`` later, and has ``timeout`` to
    succeed. ``rise`` successes in a row make an endpoint well, ``fall`` failures unwell.
    """

    kind: Literal["tcp", "http", "https"]
    path: str = ""
    port: int | None = None
    """None: the endpoint's own."""
    interval: float = 1.0
    jitter: float = 0.1
    timeout: float = 1.0
    rise: int = 2
    fall: int = 3
    status: tuple[tuple[int, int], ...] = ((200, 399),)
    """HTTP statuses that are a success, as ranges with both ends."""
    ca: str = ""
    """A file of the certificates that sign the endpoint's; '': it is not verified, as kubelet's probes do it."""
    server_name: str = ""
    """What HTTP and TLS ask for and the certificate must name; '': the endpoint's address."""

    def __str__(self) -> str:
        return f"{self.kind}{f':{self.path}' if self.path else ''}{f' port={self.port}' if self.port else ''}"


@dataclass(frozen=True, slots=True)
class Service:
    """What the speaker reads of a ``Service`` of ``type: LoadBalancer`` that is ours to serve."""

    key: ServiceKey
    ports: tuple[ServicePort, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    selector: Mapping[str, str] = field(default_factory=dict)
    """Pod selector: two Services of one namespace with equal selectors have the same backends."""
    families: tuple[Family, ...] = (Family.IPV4,)
    """In the order asked for; the first is the primary family."""
    family_policy: FamilyPolicy = FamilyPolicy.SINGLE
    traffic_policy: TrafficPolicy = TrafficPolicy.CLUSTER
    pools: tuple[str, ...] = ()
    """Annotation ``eip-speaker.io/pool``: of several, it asks for an address of each."""
    addresses: tuple[IPAddress, ...] = ()
    """Requested: annotation ``eip-speaker.io/addresses`` or ``spec.loadBalancerIP``."""
    release: bool = False
    """Annotation ``eip-speaker.io/release: now``: gives up what its pool does not offer to it any more, once."""
    share: str | None = None
    """Annotation ``eip-speaker.io/share``: may share an EIP with Services that carry the same key."""
    share_namespaces: frozenset[str] = frozenset()
    """Annotation ``eip-speaker.io/share-namespaces``: other namespaces it agrees to share with."""
    scheduler: str | None = None
    """Annotation ``eip-speaker.io/scheduler``: an IPVS scheduler name."""
    affinity_seconds: int | None = None
    """``sessionAffinity: ClientIP`` and its timeout; None without affinity."""
    source_ranges: tuple[IPNetwork, ...] = ()
    """``spec.loadBalancerSourceRanges``: clients that may reach it; empty means everyone. See ``NOBODY``."""
    health_check_port: int | None = None
    """``spec.healthCheckNodePort``: where others ask whether this node has a ready endpoint; None: nowhere."""
    health_check: HealthCheck | None = None
    """Of its endpoints; None: they are as ready as their EndpointSlice says."""
    created: str = ""
    """``metadata.creationTimestamp`` (RFC 3339, so it sorts); '' where there is none."""
    node_preference: "tuple[PreferredNodes, ...]" = ()
    """Annotation ``eip-speaker.io/node-preference``: in place of the pool's."""
    unheeded: tuple[str, ...] = ()
    """Annotations by which it asks another load balancer for something, and nobody here obeys."""
    left_alone: frozenset[IPAddress] = frozenset()
    """EIPs whose packets nobody on this node carries: neither kube-proxy, as their status says, nor we."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One backend address of one Service port, from an ``EndpointSlice``.

    ``ready`` takes new connections; ``serving`` still answers while it terminates (KEP-1669). ``node`` is the
    node it runs on, None where the slice does not say.
    """

    address: IPAddress
    port: int
    protocol: Protocol
    port_name: str = ""
    ready: bool = True
    serving: bool = True
    terminating: bool = False
    node: str | None = None
    unwell: str = ""
    """What its health check found; '': it is well, or is not checked. One that is ``ready`` all the same is served
    because no other is well."""


Endpoints: TypeAlias = Mapping[ServiceKey, tuple[Endpoint, ...]]


# ── Pools ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class AddressRange:
    """Addresses ``first`` to ``last`` inclusive, one family, ``first <= last``.

    ``network`` is the CIDR it was written as, None for a single address or ``a-b``: only a CIDR has a network and
    a broadcast address to avoid.
    """

    first: IPAddress
    last: IPAddress
    network: IPNetwork | None = None

    def __str__(self) -> str:
        if self.network is not None:
            return str(self.network)
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class LinkNames:
    """``interface: eth0`` or ``eth1,eth0``: the first of these links that can be used."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"interface: {','.join(self.names)}"


@dataclass(frozen=True, slots=True)
class CanReach:
    """``interface: can_reach:IP``: the link the node would send to that address through."""

    target: IPAddress

    def __str__(self) -> str:
        return f"interface: can_reach:{self.target}"


@dataclass(frozen=True, slots=True)
class OwnSubnet:
    """No ``interface:`` given: the link whose own subnet holds the EIP."""

    def __str__(self) -> str:
        return "the link whose own subnet holds the EIP"


Selector: TypeAlias = LinkNames | CanReach | OwnSubnet


@dataclass(frozen=True, slots=True)
class LabelRule:
    """One ``matchExpressions`` entry of a label selector; ``matchLabels`` become ``In`` with one value."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All rules must match; a selector without rules matches everything (as in Kubernetes)."""

    rules: tuple[LabelRule, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(rule.matches(labels) for rule in self.rules)


@dataclass(frozen=True, slots=True)
class PreferredNodes:
    """One term of a preference: nodes that ``selector`` matches are worth ``weight`` more, 1 to 100."""

    weight: int
    selector: LabelSelector


@dataclass(frozen=True, slots=True)
class Gratuitous:
    """How a change of owner is announced: one packet at once, ``burst - 1`` repeats ``interval`` seconds apart
    (later than Linux's 1 s ``locktime``), then one every ``refresh`` seconds; 0 means no refresh."""

    burst: int = 5
    interval: float = 1.1
    refresh: float = 0.0


@dataclass(frozen=True, slots=True)
class Pool:
    """An ``Eip`` object: a named set of addresses and where they may be announced."""

    name: str
    addresses: tuple[AddressRange, ...]
    exclude: tuple[AddressRange, ...] = ()
    interface: Selector = field(default_factory=OwnSubnet)
    node_selector: LabelSelector = field(default_factory=LabelSelector)
    namespaces: frozenset[str] = frozenset()
    """Namespaces that may use it, besides those that match one of ``namespace_selectors``."""
    namespace_selectors: tuple[LabelSelector, ...] = ()
    """None of them and no ``namespaces``: every namespace."""
    service_selectors: tuple[LabelSelector, ...] = ()
    """One of them has to match; none: every Service."""
    per_namespace: int | None = None
    """Addresses of each family that the Services of one namespace may have at most; None: any number."""
    priority: int = 0
    """Higher first."""
    auto_assign: bool = True
    avoid_network_and_broadcast: bool = True
    disabled: bool = False
    """Nothing new is assigned from it; what it gave stays."""
    terminating: bool = False
    """Disabled, and its deletion waits for the last of what it gave: it offers that no more."""
    gratuitous: Gratuitous = field(default_factory=Gratuitous)
    node_preference: tuple[PreferredNodes, ...] = ()
    """Of the nodes that ``node_selector`` allows those whose terms add up to more hold its EIPs sooner."""
    failback: float | None = None
    """Seconds for which a preferred node is back before an EIP moves to it; None: it stays where it is."""


class Places(typing.Protocol):
    """Which addresses of a pool are what: ``allocator/pools.py`` has it."""

    def blocks(self) -> list[int]: ...
    def map(self, block: int) -> tuple[str, list[tuple[str, int]]]: ...


@dataclass(frozen=True, slots=True)
class Usage:
    """Addresses of one family in one pool: ``size`` offered, of which ``used`` are held and ``resting`` released.
    ``full``: namespaces that have as many as they may, and how many each has. ``places``: which addresses these are."""

    size: int
    used: int
    resting: int
    full: tuple[tuple[str, int], ...] = ()
    places: Places | None = field(default=None, compare=False)


class Tally(NamedTuple):
    """What was given: ``services`` by outcome, ``lacking`` something by reason; ``pools``: size, used and resting,
    by pool and family; ``full``: what namespaces have that have all they may, by pool, family and namespace."""

    services: Mapping[str, int]
    lacking: Mapping[str, int]
    pools: Mapping[tuple[str, str], tuple[int, int, int]]
    full: Mapping[tuple[str, str, str], int]


@dataclass(frozen=True, slots=True)
class World:
    """What somebody asked for: one complete, valid reading of the manifests (or of the API)."""

    pools: Mapping[str, Pool] = field(default_factory=dict)
    services: Mapping[ServiceKey, Service] = field(default_factory=dict)
    endpoints: Endpoints = field(default_factory=dict)
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels of each namespace; one that is missing has only ``kubernetes.io/metadata.name``."""
    reserved: Mapping[IPAddress, str] = field(default_factory=dict)
    """Addresses that hosts have for their own, and whose each is, in words: no EIP, whatever a pool says."""
    lost: frozenset[str] = frozenset()
    """Nodes that are known to be dead: their endpoints get nothing new, if there are others."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The EIPs a Service has, in the order of its families, and of one family in that of its pools; each with the pool
    it came from, '' where nobody knows.

    ``flagged`` names the addresses that their pool no longer offers (edited, shrunk, deleted, no longer selected):
    kept until released, and shown.
    """

    service: ServiceKey
    addresses: tuple[IPAddress, ...]
    pools: tuple[str, ...]
    flagged: frozenset[IPAddress] = frozenset()


# ── This node's links ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Link:
    """A kernel network interface as far as layer 2 cares."""

    index: int
    name: str
    mac: Mac
    kind: str = ""
    """rtnetlink's IFLA_INFO_KIND: 'veth', 'bridge', 'bond', 'vlan', 'dummy', ...; '' for hardware."""
    up: bool = True
    """IFF_UP: set by an administrator."""
    carrier: bool = True
    """IFLA_CARRIER: a cable (or peer) is there."""
    loopback: bool = False
    arp: bool = True
    """False with IFF_NOARP."""
    ethernet: bool = True
    """False for tunnels and everything else without a six-byte MAC."""
    master: int | None = None
    """Index of the bridge, bond or VRF it belongs to."""
    master_kind: str = ""
    """'bridge', 'bond', 'vrf', ...; '' without a master."""
    mtu: int = 1500


class Preference(NamedTuple):
    """How much this node is preferred for an EIP. ``number``: of the preference, 64 bits, on every node the same;
    ``weight``: of this node, at least 0; ``failback`` as in ``Pool``."""

    number: int
    weight: int
    failback: float | None = None


class Placement(NamedTuple):
    """Where and how an EIP is answered for."""

    link: Link
    gratuitous: Gratuitous
    preference: Preference | None = None
    """None: all nodes are alike."""


# ── Speakers ──────────────────────────────────────────────────────────────────────────────────────────────────

Incarnation = NewType("Incarnation", int)
"""One life of a node: 63 bits (an API object's int64), compared as a number. The upper 32 are ordered (seconds since
1970, or one more than a refused life's), the lower 31 random: frames recorded before a restart do not name it."""
Addresses: TypeAlias = tuple[IPAddress, ...]
"""A node's own on a link: a unicast IPv4 one, a link-local IPv6 one, either alone, both in that order, or none."""


class Speaker(NamedTuple):
    """Another node on one of our links: which MAC its hellos come from, and its own addresses there."""

    mac: Mac
    addresses: Addresses = ()


class Forwarding(Enum):
    """Who carries an EIP's traffic to the endpoints; one setting for the whole cluster."""

    NONE = "none"
    IPVS = "ipvs"
    NFTABLES = "nftables"
    AUTO = "auto"
    ASSIST = "assist"
    """Kube-proxy does; while a node is dead and it does not know, the speaker, past that node's endpoints."""

    @property
    def ours(self) -> bool:
        """Kube-proxy is to leave the EIPs alone."""
        return self not in (Forwarding.NONE, Forwarding.ASSIST)


# ── What has gone through, for metrics ────────────────────────────────────────────────────────────────────────

Counts: TypeAlias = tuple[int, int, int, int, int]
"""Connections, packets in, packets out, bytes in, bytes out, since the virtual server was made."""
ServerName: TypeAlias = tuple[str, str, str]
"""A virtual server as labels: EIP, protocol, port."""
RealName: TypeAlias = tuple[str, str, str, str]
"""One of its real servers: ``address:port`` comes fourth."""


class Traffic(NamedTuple):
    """Only for virtual servers that have counted anything: every node has those of all EIPs, but traffic for only a
    few. ``real_servers``: active and inactive connections."""

    virtual_servers: Mapping[ServerName, Counts]
    real_servers: Mapping[RealName, tuple[int, int]]
