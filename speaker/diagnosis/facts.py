"""Everything known about one node when somebody asks why an EIP is not reachable. Pure; can be sent as JSON."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any

import msgspec

from speaker.checks import Finding
from speaker.errors import as_edge_error
from speaker.node.known.knowledge import Knowledge
from speaker.system.decoding import UNFIT


@dataclass(frozen=True, slots=True)
class Process:
    """The speaker's main process. ``state``: the worse of its own and its parent's, as in proc(5); '' if nobody listens
    on the control socket. ``words``: why it did not answer."""

    words: str = ""
    pid: int = 0
    state: str = ""
    capabilities: int | None = None
    """Effective, as bits."""
    seccomp: int = 0
    hidden: bool = False
    """Whoever looks may not ask, so nothing is known about the process, not even whether there is one."""
    busy: bool = False
    """The process was working all the time that its answer was awaited."""


@dataclass(frozen=True, slots=True)
class LinkSeen:
    name: str
    mac: str
    up: bool
    carrier: bool
    kind: str
    ethernet: bool = True
    subnets: tuple[str, ...] = ()
    """Subnets of its addresses."""
    wireless: bool = False
    deaf_ports: tuple[str, ...] = ()
    """For a bridge: ports whose own packets never come back to them."""
    uplinks: tuple[str, ...] = ()
    """The links below a bridge, bond or VLAN, without those of pods and virtual machines if there are others."""


@dataclass(frozen=True, slots=True)
class Bound:
    """An address on a link."""

    link: str
    address: str
    prefix: int
    secondary: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """Who answered this node's ARP or NDP question. ``what``: eip, gateway, target, peer or free. ``unicast``: nobody
    did, but its holder answered when it alone was asked."""

    address: str
    link: str
    what: str
    macs: tuple[str, ...] = ()
    unicast: bool = False


@dataclass(frozen=True, slots=True)
class Tried:
    """A TCP connection from this node. ``words``: why it was not accepted."""

    address: str
    port: int
    accepted: bool
    words: str = ""


@dataclass(frozen=True, slots=True)
class HelloSeen:
    """A frame that begins like our hellos. Anybody may have sent it: nothing in it is verified."""

    link: str
    ethertype: int
    mac: str
    node: str


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of nftables, with its rules as nft lists them. ``hook``: '' if other chains jump to it. ``device``: for
    the netdev family."""

    family: str
    table: str
    name: str
    hook: str
    policy: str
    device: str = ""
    rules: tuple[Any, ...] = ()
    """The expressions of each rule."""
    texts: tuple[str, ...] = ()
    """The same rules in nft's own syntax."""
    priority: int = 0
    nat: bool = False
    """It translates, so it meets only the first packet of each connection."""


ANYWHERE = str(IPv4Address(0))
"""``Way.to`` for the default route."""


@dataclass(frozen=True, slots=True)
class Way:
    """The link by which this node sends packets to ``to``; '' if there is none."""

    to: str
    link: str


@dataclass(frozen=True, slots=True)
class Back:
    """By which link the kernel sends an EIP's answers to a client on the EIP's link, or ``beyond`` its gateway.
    ``lost``: why they reach nobody that way, or ''. ``marks``: with one of these marks, which policy rules ask for,
    they leave by the EIP's link. ``refused``: why it does not pass on what the client sends, or ''. ``astray``: marks
    with which one of the two is lost."""

    eip: str
    beyond: bool
    link: str
    lost: str = ""
    marks: tuple[int, ...] = ()
    refused: str = ""
    astray: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Walked:
    """A new TCP connection to an EIP, tried as a client on its link would, from ``source``, an unused address.
    ``dropped`` and ``answer_dropped``: the chain and the rule. ``last``: the last chain that it met. ``left``: the link
    that the answer was to leave by."""

    eip: str
    port: int
    source: str
    dropped: str = ""
    last: str = ""
    answered: bool = False
    answer_dropped: str = ""
    left: str = ""


@dataclass(frozen=True, slots=True)
class Unseen:
    """What could not be looked at, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Drops:
    """Packets dropped during the check: those that came in with a source address of this host's, and those dropped by a
    reverse path filter."""

    martian: int = 0
    reverse_path: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """``about``: what was asked about, '' for everything. ``now``: seconds since 1970 by this node's clock."""

    about: str = ""
    forwarder: str = ""
    """The forwarder that should work here, if whoever asks knows it."""
    now: float = 0.0
    version: str = ""
    """The version of the program that looked."""
    process: Process = Process()
    known: Knowledge | None = None
    """None: no speaker answered."""
    links: tuple[LinkSeen, ...] = ()
    bound: tuple[Bound, ...] = ()
    gateways: tuple[tuple[str, str], ...] = ()
    """Link and address of each gateway."""
    asked: tuple[Asked, ...] = ()
    tried: tuple[Tried, ...] = ()
    hellos: tuple[HelloSeen, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    chains: tuple[Chain, ...] = ()
    sets: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Elements of sets and maps, by family, table and name."""
    has_ipvs: bool = False
    ways: tuple[Way, ...] = ()
    backs: tuple[Back, ...] = ()
    walks: tuple[Walked, ...] = ()
    drops: Drops = Drops()
    unseen: tuple[Unseen, ...] = ()

    @property
    def knowledge(self) -> Knowledge:
        """What the speaker knows; empty if no speaker answered."""
        return self.known or Knowledge("", "")

    def told(self, *kinds: str, eip: str = "") -> Iterator[Finding]:
        """The running speaker's own findings of these ``kinds``: those about the whole node, and those about
        ``eip``."""
        for each in self.knowledge.problems:
            if each.kind in kinds and each.eip in ("", eip):
                yield each

    def setting(self, name: str, *more: str) -> str:
        """As ``forwarding.sysctl.read``."""
        return self.sysctls.get(".".join((name, *more)), "")

    def link(self, name: str) -> LinkSeen | None:
        return next((link for link in self.links if link.name == name), None)

    def answers(self, address: str) -> Asked | None:
        return next((each for each in self.asked if each.address == address), None)

    @property
    def by_api(self) -> bool:
        """Whether the manifests come from an API and not from files; assumed until a speaker says otherwise."""
        return self.known is None or self.known.cluster

    @property
    def own_macs(self) -> frozenset[str]:
        return frozenset(link.mac for link in self.links)


def encode(facts: Facts) -> bytes:
    return msgspec.json.encode(facts)


def decode(text: bytes) -> Facts:
    """Raises EdgeError if ``text`` is something else."""
    with as_edge_error("these are not the facts of a speaker", UNFIT):
        return msgspec.json.decode(text, type=Facts)
