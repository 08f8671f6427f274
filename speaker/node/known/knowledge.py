"""What a running speaker knows about one thing that is asked about, or about everything, to be judged elsewhere. Pure.

It goes over the control socket, and later over a network, as JSON: addresses and MACs are text.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from speaker.allocator.pools import names
from speaker.allocator.settle import Settlement
from speaker.checks import Finding
from speaker.forwarding.changes import Change, EipChange, address_of, part_of
from speaker.forwarding.plan import Plan
from speaker.model import (
    Endpoint,
    Family,
    IPAddress,
    OwnSubnet,
    Pool,
    Service,
    ServiceKey,
    TrafficPolicy,
    Usage,
    World,
    format_mac,
    rank,
)
from speaker.node.decide import Decision, MayHold, MayNotHold
from speaker.ownership.eligibility import veto
from speaker.ownership.preference import described
from speaker.settings import Node
from speaker.wire.messages import ClaimStatus, PeerSeen

_LOCAL = TrafficPolicy.LOCAL
MOST = 256
"""The most EIPs, Services and pools in one answer, and endpoints of one Service."""
LOOKED_AT = 64
"""How many addresses of a range are examined to find free ones."""


A = TypeVar("A")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cut(Generic[T]):
    """The ``first`` of a list, and how many ``more`` there are. It cannot be iterated, so that nobody mistakes it for
    the whole: "one of the first …" needs ``first``, "none …" needs ``whole``."""

    first: tuple[T, ...] = ()
    more: int = 0

    def __len__(self) -> int:
        return len(self.first) + self.more

    @property
    def whole(self) -> tuple[T, ...] | None:
        """None if there are more."""
        return None if self.more else self.first


def cut(found: Sequence[A], told: Callable[[A], T]) -> Cut[T]:
    return Cut(tuple(map(told, found[:MOST])), max(0, len(found) - MOST))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node, whether it may hold an EIP as far as this one knows, and why or why not."""

    node: str
    may: bool
    why: str


@dataclass(frozen=True, slots=True)
class KnownEip:
    """``reason`` and ``message``: why this node must not answer for it. ``missing``: parts of its forwarding that the
    kernel lacks, or has wrongly."""

    address: str
    services: tuple[str, ...]
    pool: str
    mine: bool
    holder: str | None
    term: int
    since: float | None
    history: str
    chosen: str
    """How its link is chosen."""
    link: str = ""
    mac: str = ""
    reason: str = ""
    message: str = ""
    candidates: tuple[Candidate, ...] = ()
    servers: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    preferred: str = ""
    """Which node it prefers, and when it moves there, in words."""
    preference: str = ""
    """By which labels it prefers nodes, as ``preference.described`` writes it."""


@dataclass(frozen=True, slots=True)
class KnownEndpoint:
    address: str
    port: int
    protocol: str
    node: str | None
    ready: bool
    takes_new: bool
    """Ready, or still serving while it terminates."""
    unwell: str = ""
    """What its health check found."""
    lost: bool = False
    """The speakers believe that its node is dead: we send nothing new there if there are other endpoints."""


@dataclass(frozen=True, slots=True)
class KnownService:
    key: str
    ports: tuple[str, ...]
    families: tuple[str, ...]
    policy: str
    addresses: tuple[str, ...]
    pools: tuple[str, ...]
    endpoints: Cut[KnownEndpoint]
    refused: str = ""
    """The reason; '' if nothing was refused."""
    message: str = ""
    sources: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    """Addresses that the Service names."""
    unread: bool = False
    """This node does not read the Service's endpoints, as another program forwards."""


@dataclass(frozen=True, slots=True)
class KnownPool:
    name: str
    addresses: Cut[str]
    exclude: Cut[str]
    interface: str
    target: str
    """The target of ``can_reach``, or ''."""
    disabled: bool
    size: int
    used: int
    free: tuple[str, ...] = ()
    """Some addresses that no Service has, the first of each range."""


@dataclass(frozen=True, slots=True)
class KnownPeer:
    node: str
    link: str
    alive: bool
    draining: bool
    heard: bool
    hears_us: bool
    hello_ms: int
    began: int
    mac: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """Hellos that could not be read, and why."""

    link: str
    reason: str
    ago: float


@dataclass(frozen=True, slots=True)
class Knowledge:
    """``hello_ms`` 0: this speaker has no peers. ``ready``: everything asked for has been in force once."""

    node: str
    forwarder: str
    hello_ms: int = 0
    ethertype: int = 0
    draining: bool = False
    ready: bool = False
    in_force: bool = False
    eips: Cut[KnownEip] = Cut()
    services: Cut[KnownService] = Cut()
    pools: Cut[KnownPool] = Cut()
    peers: tuple[KnownPeer, ...] = ()
    problems: tuple[Finding, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    links: tuple[str, ...] = ()
    """Links that EIPs are announced on."""
    families: tuple[str, ...] = ()
    """Address families of the EIPs in use."""
    version: str = ""
    """The running speaker's version."""
    cluster: bool = True
    """Whether an API says what is wanted, and not files."""
    hands_over: bool = True
    """Connections unknown here are handed to the node that knows them."""


class InForce(NamedTuple):
    """The result of the last reconciliation, of which a ``Knowledge`` takes what is asked about."""

    settlement: Settlement
    decision: Decision
    usage: Mapping[str, Mapping[Family, Usage]]
    world: World = World()
    node: str = ""
    forwards: bool = True


def eips_of(state: InForce, about: str) -> list[IPAddress]:
    """EIPs in use that ``about`` means: an address, a Service's ``namespace/name`` or name, or a pool. '' means all; if
    there are more than MOST, the first of every pool come first."""
    eips = state.decision.eips.values()
    chosen = (
        eip.address
        for eip in eips
        if not about
        or about in (str(eip.address), eip.pool)
        or any(about in (str(key), key.name) for key in eip.services)
    )
    ordered = sorted(chosen, key=rank)
    if about or len(ordered) <= MOST:
        return ordered
    turns, met = {}, Counter[str]()
    for eip in ordered:
        pool = state.decision.eips[eip].pool
        turns[eip], met[pool] = met[pool], met[pool] + 1
    return sorted(ordered, key=turns.__getitem__)


def services_of(state: InForce, about: str, eips: Sequence[IPAddress]) -> list[ServiceKey]:
    """Services that are named, that were refused the pool or the address, or that have one of the first MOST of
    ``eips``."""
    first = {key for eip in eips[:MOST] for key in state.decision.eips[eip].services}
    chosen = first.union(key for eip in eips[MOST:] for key in state.decision.eips[eip].services)
    for key, service in state.world.services.items():
        asked = (str(key), key.name, *service.pools, *map(str, service.addresses))
        if not about or about in asked:
            chosen.add(key)
    many, refused = len(chosen) > MOST, state.settlement.refusals
    return sorted(chosen, key=lambda key: (many and key not in first, many and key not in refused, key))


def pools_of(state: InForce, about: str, eips: Collection[IPAddress], services: Collection[ServiceKey]) -> list[str]:
    asked = an_address(about)
    named = {state.decision.eips[eip].pool for eip in eips}
    asking = (found for key in services if (found := state.world.services.get(key)) is not None)
    named |= {pool for found in asking for pool in found.pools}
    return sorted(
        name
        for name, pool in state.world.pools.items()
        if not about or name == about or name in named or (asked is not None and names(pool.addresses, asked))
    )


def an_address(about: str) -> IPAddress | None:
    """None for a Service or a pool."""
    try:
        return ip_address(about)
    except ValueError:
        return None


def known_eip(
    state: InForce,
    address: IPAddress,
    status: ClaimStatus,
    history: str,
    peers: Sequence[PeerSeen],
    pending: Iterable[Change] = (),
) -> KnownEip:
    eip, services = state.decision.eips[address], state.world.services
    pool = state.world.pools.get(eip.pool)
    found = {"link": "", "mac": "", "reason": "", "message": ""}
    match eip:
        case MayHold(link=link):
            found |= {"link": link.name, "mac": format_mac(link.mac)}
        case MayNotHold(reason=reason, message=message):
            found |= {"reason": reason, "message": message}
    own = Candidate(state.node, isinstance(eip, MayHold), found["message"] or f"may hold it, on {found['link']}")
    return KnownEip(
        address=str(address),
        services=tuple(map(str, eip.services)),
        pool=eip.pool,
        mine=status.mine,
        holder=status.holder,
        term=status.term,
        since=status.since,
        history=history,
        chosen=str(pool.interface if pool is not None else OwnSubnet()),
        candidates=(own, *_candidates(state, eip, peers)),
        servers=tuple(_servers(state.decision.forwarding, address)),
        missing=tuple(str(change).strip() for change in pending if _adds(change, address)),
        preferred=status.preferred.words(status.holder or "nobody") if status.preferred is not None else "",
        preference=described(pool, [services[key] for key in eip.services if key in services]),
        **found,
    )


def _candidates(state: InForce, eip: MayHold | MayNotHold, peers: Sequence[PeerSeen]) -> Iterator[Candidate]:
    """Each node decides with the same function, so this node can say what the others decide, as far as it knows the
    facts."""
    services = [state.world.services[key] for key in eip.services if key in state.world.services]
    link = eip.link.name if isinstance(eip, MayHold) else None
    for peer in peers:
        if link is not None and peer.link != link:
            continue
        no = veto(eip.address, None, services, state.world.endpoints, Node(peer.node))
        if no is not None:
            yield Candidate(peer.node, False, no.message)
        elif not peer.alive:
            yield Candidate(peer.node, False, f"silent on {peer.link}")
        elif peer.draining:
            yield Candidate(peer.node, False, "draining")
        else:
            yield Candidate(peer.node, True, f"heard on {peer.link}")


def _servers(plan: Plan, address: IPAddress) -> Iterator[str]:
    for key in sorted(key for key in plan.virtual_servers if key[0] == address):
        server = plan.virtual_servers[key]
        reals = ", ".join(map(str, server.real_servers[:MOST])) or "no real server, so connections are rejected"
        yield f"{server}: {reals}"


def _adds(change: Change, address: IPAddress) -> bool:
    """Whether something is missing or wrong. What the kernel has besides is about to be removed."""
    comes = change.bound if isinstance(change, EipChange) else change.after is not None
    return comes and address_of(part_of(change)) == address


def known_service(state: InForce, key: ServiceKey) -> KnownService:
    service = state.world.services.get(key, Service(key, ()))
    held, refusal = state.settlement.assignments.get(key), state.settlement.refusals.get(key)
    endpoints = sorted(state.world.endpoints.get(key, ()), key=lambda each: not _takes_new(each))
    return KnownService(
        key=str(key),
        ports=tuple(f"{port.protocol} {port.port}" for port in service.ports),
        families=tuple(service.families),
        policy=service.traffic_policy.value,
        addresses=tuple(map(str, held.addresses)) if held is not None else (),
        pools=held.pools if held is not None else (),
        endpoints=cut(endpoints, partial(_known_endpoint, state.world.lost)),
        refused=refusal.reason.value if refusal is not None else "",
        message=refusal.message if refusal is not None else "",
        sources=tuple(map(str, service.source_ranges)),
        wanted=tuple(map(str, service.addresses)),
        unread=not state.forwards and key not in state.world.endpoints and service.traffic_policy is not _LOCAL,
    )


def _known_endpoint(lost: Collection[str], each: Endpoint) -> KnownEndpoint:
    where = str(each.address), each.port, each.protocol.value, each.node
    return KnownEndpoint(*where, each.ready, _takes_new(each), each.unwell, each.node in lost)


def _takes_new(each: Endpoint) -> bool:
    return each.ready or (each.serving and each.terminating)


def known_pool(state: InForce, name: str) -> KnownPool:
    pool = state.world.pools[name]
    usage = state.usage.get(name, {}).values()
    return KnownPool(
        name,
        cut(pool.addresses, str),
        cut(pool.exclude, str),
        str(pool.interface),
        str(getattr(pool.interface, "target", "")),
        pool.disabled,
        sum(each.size for each in usage),
        sum(each.used for each in usage),
        tuple(islice(map(str, _free(state, pool)), MOST)),
    )


def _free(state: InForce, pool: Pool) -> Iterator[IPAddress]:
    for span in pool.addresses[:MOST]:
        last = min(int(span.last), int(span.first) + LOOKED_AT)
        for number in range(int(span.first), last + 1):
            address = type(span.first)(number)
            if address not in state.decision.eips and not names(pool.exclude, address):
                yield address


def known_peer(peer: PeerSeen) -> KnownPeer:
    mac = format_mac(peer.mac) if peer.mac is not None else ""
    states = peer.alive, peer.draining, peer.heard, peer.hears_us
    return KnownPeer(peer.node, peer.link, *states, peer.hello_ms, peer.began, mac, tuple(map(str, peer.addresses)))
