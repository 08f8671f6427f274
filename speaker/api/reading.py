"""API objects → the values of ``model``, by the reader of each kind (``service``, ``eip``, ``endpoints``). Pure.

Objects from files become a ``World`` together: one mistake refuses all of them. Objects from the API are read one at a
time, each as far as possible, and a bad one affects no other.
"""

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from ipaddress import ip_address
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import msgspec

from speaker.api.addresses import Span, Together, overlaps, span, without
from speaker.api.eip import pool
from speaker.api.endpoints import NamespaceLabels, Slice, endpoint_slice, merged, namespace
from speaker.api.fields import ApiObject, Field, Path, did_you_mean, names, read, read_leniently, show_path, some
from speaker.api.kinds import AssignedObject, EipObject, HostObject, HostStatus, ServiceObject, SliceObject
from speaker.api.objects import Key
from speaker.api.others import SPELLED, owner, unheeded
from speaker.api.service import ADDRESSES, LOAD_BALANCER_CLASS, POOL, NotOurs, service
from speaker.errors import InvalidField, InvalidManifests, Place, set_aside
from speaker.model import Balancer, Family, IPAddress, Pool, Service, ServiceKey, World

_Decode: TypeAlias = Callable[[Field], Service | NotOurs]

EIP = ("eip-speaker.io/v1alpha1", "Eip")
SERVICE = ("v1", "Service")
ENDPOINT_SLICE = ("discovery.k8s.io/v1", "EndpointSlice")
NAMESPACE = ("v1", "Namespace")
LIST = ("v1", "List")
READ = (EIP, SERVICE, ENDPOINT_SLICE, NAMESPACE)
_VERSIONS = sorted({version for version, _ in READ})

# What else lives in the groups we read (kubectl api-resources): all the rest there is a slip of the pen. Not here:
# core/v1 Endpoints, deprecated since 1.33, because passing it over would leave a Service without backends.
_OF_THE_CORE = names(
    "Binding ComponentStatus ConfigMap Event LimitRange Node PersistentVolume PersistentVolumeClaim Pod PodTemplate "
    "ReplicationController ResourceQuota Secret ServiceAccount"
)
_PASSED_OVER = {("eip-speaker.io/v1alpha1", "Announcement"), *(("v1", kind) for kind in _OF_THE_CORE)}

_NOT_OURS = {
    NotOurs.NOT_A_LOAD_BALANCER: "ignored: it is not of type LoadBalancer",
    NotOurs.OTHER_CLASS: f"ignored: its loadBalancerClass is not {LOAD_BALANCER_CLASS}",
    NotOurs.NO_CLASS: f"ignored: it names no loadBalancerClass (ours is {LOAD_BALANCER_CLASS})",
}


class Notice(NamedTuple):
    """Something a person may want to know that is no mistake."""

    place: Place
    subject: str
    sentence: str

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.place), self.subject, self.sentence) if part)


class Reading(NamedTuple):
    world: World
    notices: tuple[Notice, ...] = ()


@dataclass(slots=True)
class _Draft:
    """A reading while it grows. The lists keep each thing with the object it came from."""

    pools: list[tuple[ApiObject, Pool]] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)
    slices: list[tuple[ApiObject, Slice]] = field(default_factory=list)
    namespaces: list[NamespaceLabels] = field(default_factory=list)
    passed_over: set[ServiceKey] = field(default_factory=set)
    seen: dict[tuple[str, object, object], Place] = field(default_factory=dict)
    problems: list[InvalidField] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)

    def notice(self, source: ApiObject, sentence: str) -> None:
        self.notices.append(Notice(source.locate(()), source.subject, sentence))


def _problem(source: ApiObject, path: Path, rule: str) -> InvalidField:
    return InvalidField(show_path(path), source.at(*path), rule, source.subject, source.locate(path))


def read_world(
    objects: Iterable[ApiObject], *, default_class: bool, named: bool = False, honoured: Collection[Balancer] = ()
) -> Reading:
    """Everything the objects ask for; raises InvalidManifests with every problem of every object.

    ``default_class``: Services without a ``loadBalancerClass`` are ours as well. ``named``: each of ours must name an
    address of every family it has. ``honoured`` as in ``service``.
    """
    draft = _Draft()
    decode = partial(service, default_class=default_class, honoured=honoured)
    for source in chain.from_iterable(map(flattened, objects)):
        try:
            _add(draft, source, decode, named)
        except InvalidManifests as error:
            draft.problems.extend(error.problems)
    draft.problems.extend(_overlapping_pools(draft.pools))
    if draft.problems:
        raise InvalidManifests(tuple(draft.problems))
    _notice_orphans(draft)
    world = World(
        pools={pool.name: pool for _, pool in draft.pools},
        services={service.key: service for service in draft.services},
        endpoints={service.key: () for service in draft.services} | merged(found for _, found in draft.slices),
        namespaces={found.name: found.labels for found in draft.namespaces},
    )
    return Reading(world, tuple(draft.notices))


def flattened(source: ApiObject) -> Iterator[ApiObject]:
    """The objects of a ``List`` (as ``kubectl get -o yaml`` writes them), however deep; anything else is itself. So are
    those of a ``ServiceList`` and its like, as the API server writes them: an object in it need not say its kind."""
    waiting: list[tuple[ApiObject, Path]] = [(source, ())]
    while waiting:
        found, path = waiting.pop()
        items = found.at("items")
        of = str(found.kind).removesuffix("List")
        wrong = of == str(found.kind) if of else (found.api_version, found.kind) != LIST
        if wrong or not isinstance(items, list | None) or (items is None and of):
            yield found
        elif items is not None:
            kind = {"apiVersion": found.api_version, "kind": of} if of else {}
            inside = [(*path, "items", i) for i in range(len(items))]
            pairs = [*zip(items, inside, strict=True)]
            waiting.extend((_inner(source, item, at, kind), at) for item, at in reversed(pairs))


def _inner(source: ApiObject, data: object, path: Path, kind: Mapping[str, object]) -> ApiObject:
    known = {**kind, **data} if isinstance(data, dict) else data
    return ApiObject(known, lambda rest: source.locate((*path, *rest)))


def _add(draft: _Draft, source: ApiObject, decode: _Decode, named: bool) -> None:
    kind = read(source, _kind)
    if (balancer := owner(source)) is not None:
        draft.notice(source, f"ignored: it belongs to {SPELLED[balancer]}: `speaker convert` translates it")
        return
    if kind not in READ:
        draft.notice(source, f"ignored: the speaker does not read this kind of apiVersion {kind[0]!r}")
        return
    _refuse_second(draft, source)
    if kind == EIP:
        draft.pools.append((source, read(source, pool)))
    elif kind == ENDPOINT_SLICE:
        if source.at("addressType") == "FQDN":
            rule = "must be IPv4 or IPv6: the speaker does not resolve names, so list addresses"
            draft.problems.append(_problem(source, ("addressType",), rule))
        draft.slices.append((source, read(source, endpoint_slice)))
    elif kind == NAMESPACE:
        draft.namespaces.append(read(source, namespace))
    else:
        _add_service(draft, source, decode, named)


def _add_service(draft: _Draft, source: ApiObject, decode: _Decode, named: bool) -> None:
    match read(source, decode):
        case NotOurs() as reason:
            draft.passed_over.add(ServiceKey(_namespace(source), source.name))
            draft.notice(source, _NOT_OURS[reason] + _misspelt(source))
        case found:
            draft.notices += _beside(source, found)
            draft.services.append(found)
            if named:
                draft.problems.extend(_unnamed(source, found))


def _misspelt(source: ApiObject) -> str:
    cls = source.at("spec", "loadBalancerClass")
    near = isinstance(cls, str) and difflib.get_close_matches(cls[:64].lower(), (LOAD_BALANCER_CLASS,), cutoff=0.9)
    return ": did you mean that?" if near else ""


def _beside(source: ApiObject, found: Service) -> Iterator[Notice]:
    """What it asks for, and not of us."""
    if found.unheeded:
        place = source.locate(("metadata", "annotations", found.unheeded[0]))
        yield Notice(place, source.subject, unheeded(found.unheeded))
    if source.at("spec", "externalIPs"):
        why = "are left to kube-proxy, which takes them on every node; the speaker does not answer for them"
        yield Notice(source.locate(("spec", "externalIPs")), source.subject, f"spec.externalIPs {why}")


def _unnamed(source: ApiObject, found: Service) -> Iterator[InvalidField]:
    """Families whose address the Service leaves to be chosen: each host would choose its own."""
    by_family = set(map(Family.of, found.addresses))
    if len(found.pools) > 1:
        rule = "must be one pool: several hosts serve this Service, so name the addresses instead, each of its own pool"
        yield _problem(source, ("metadata", "annotations", POOL), rule)
    if missing := [family for family in found.families if family not in by_family]:
        addresses = " and ".join(f"an {family} address" for family in missing)
        rule = f"must name {addresses}: several hosts serve this Service, and each would choose its own"
        yield _problem(source, ("metadata", "annotations", ADDRESSES), rule)


# ── Kinds ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _kind(root: Field) -> tuple[str, str]:
    """``apiVersion`` and ``kind``, with a problem where they look like a slip of the pen."""
    if not isinstance(root.value, dict):
        root.refuse("must be a Kubernetes object: a mapping with apiVersion, kind and metadata")
        return ("", "")
    version, kind = root["apiVersion"].require().text(), root["kind"].require().text()
    if version is None or kind is None:
        return ("", "")
    if (version, kind) == LIST:
        root["items"].items()  # where they are no list: a list was opened before
    elif (version, kind) not in (*READ, *_PASSED_OVER):
        _refuse_misspelt(root, version, kind)
    return (version, kind)


def _refuse_misspelt(root: Field, version: str, kind: str) -> None:
    neighbours = [known for group, known in (*READ, *_PASSED_OVER) if group == version]
    if (version, kind) == ("v1", "Endpoints"):
        root["kind"].refuse("is not read because it is deprecated: write an EndpointSlice (discovery.k8s.io/v1)")
    elif neighbours:
        root["kind"].refuse(f"is not a kind of {version}: {did_you_mean(kind, neighbours)}")
    elif _meant_for_us(version, kind):
        root["apiVersion"].refuse(f"is not an apiVersion that the speaker reads: {did_you_mean(version, _VERSIONS)}")


def _meant_for_us(version: str, kind: str) -> bool:
    """Our groups in another version, the core group (the only one without a name), or nearly one of them."""
    group, _, _ = version.rpartition("/")
    nearly = kind in {known for _, known in READ} and difflib.get_close_matches(version[:64], _VERSIONS, cutoff=0.8)
    return bool(nearly) or group in {known.rpartition("/")[0] for known in _VERSIONS}


# ── Rules between objects ─────────────────────────────────────────────────────────────────────────────────────


def _namespace(source: ApiObject) -> str:
    namespace = source.at("metadata", "namespace")
    return namespace if isinstance(namespace, str) and namespace else "default"


def _refuse_second(draft: _Draft, source: ApiObject) -> None:
    if not source.name:
        return
    identity = (source.kind, _namespace(source), source.name)
    here = source.locate(("metadata", "name"))
    first = draft.seen.setdefault(identity, here)
    if first is not here:
        where = f" at {first}" if str(first) else ""
        rule = f"must be declared once: {source.subject} is already declared{where}"
        draft.problems.append(_problem(source, ("metadata", "name"), rule))


def _overlapping_pools(pools: list[tuple[ApiObject, Pool]]) -> Iterator[InvalidField]:
    """What one pool excludes another may offer: that is how an address is moved between pools."""
    entries = [(source, i) for source, pool in pools for i in range(len(pool.addresses))]
    offered: list[Span] = []
    base = 0
    for _, found in pools:
        wanted = [span(range_, base + i) for i, range_ in enumerate(found.addresses)]
        offered += without(wanted, (span(range_, 0) for range_ in found.exclude))
        base += len(wanted)
    for former, latter in sorted(set(overlaps(offered))):
        (first, at), (second, i) = entries[former], entries[latter]
        where = str(first.locate(("spec", "addresses", at)))
        rule = f"overlaps with {first.subject}" + (f" at {where}" if where else "")
        yield _problem(second, ("spec", "addresses", i), f"{rule}: an address belongs to one pool")


def _notice_orphans(draft: _Draft) -> None:
    known = {service.key for service in draft.services} | draft.passed_over
    for source, found in draft.slices:
        if found.service not in known:
            draft.notice(source, f"gives endpoints to Service {found.service}, which is not in these manifests")


# ── Objects of the API, one at a time ───────────────────────────────────────────────────────────────────────

SHOWN = 10
"""Problems of one object that are named, and pools; the count tells the rest."""
SHOWN_OF_A_SLICE = 5


class Unreadable(NamedTuple):
    """``message`` says what to mend. ``keep`` is the Service with what can be read, which is never more than what was
    meant: it keeps what it holds, and is given nothing new; None where not even its name can be read, or its class."""

    message: str
    keep: Service | None = None


Parsed: TypeAlias = Service | NotOurs | Unreadable


def _plain(kind: tuple[str, str], **parts: object) -> ApiObject:
    """By their names in the API."""
    data: dict[str, Any] = msgspec.to_builtins(parts)
    return ApiObject({"apiVersion": kind[0], "kind": kind[1], **data})


# ── Services ──────────────────────────────────────────────────────────────────────────────────────────────────


def read_service(
    found: ServiceObject | AssignedObject,
    *,
    default_class: bool,
    fields_alone: bool = False,
    honoured: Collection[Balancer] = (),
) -> Parsed:
    """As ``service``."""
    parsed, problems = read_leniently(
        _plain(SERVICE, metadata=found.metadata, spec=found.spec),
        lambda root: service(
            root, default_class=default_class, families_told=True, fields_alone=fields_alone, honoured=honoured
        ),
    )
    if not problems:
        return parsed
    if not isinstance(parsed, Service) or parsed.key != ServiceKey(found.key.namespace, found.key.name):
        return Unreadable(_listed(problems))
    # Without its wishes: by them it would be given something new.
    return Unreadable(_listed(problems), replace(parsed, addresses=(), pools=()))


def _listed(problems: tuple[InvalidField, ...]) -> str:
    more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return "; ".join(map(str, problems[:SHOWN])) + more


# ── EndpointSlices ────────────────────────────────────────────────────────────────────────────────────────────


def read_slice(found: SliceObject) -> tuple[Slice, tuple[str, ...]]:
    """What can be read of it, and in sentences what is left out, and why.

    An API server stores ports of any 32-bit number, multicast addresses, and a million pairs of address and port in
    one slice: each of them costs the endpoint that has it, and no other.
    """
    parts = {"addressType": found.address_type, "endpoints": found.endpoints, "ports": found.ports}
    source = _plain(ENDPOINT_SLICE, metadata=found.metadata, **parts)
    slice_, problems = read_leniently(source, endpoint_slice)
    told = [f"{problem} (left out)" for problem in problems[:SHOWN_OF_A_SLICE]]
    if len(problems) > SHOWN_OF_A_SLICE:
        told.append(f"{source.subject}: {len(problems) - SHOWN_OF_A_SLICE} more of its values are left out")
    if found.endpoints and not found.ports:
        told.append(f"{source.subject}: ports: must list the ports of its endpoints: without them none is used")
    return slice_, tuple(told)


# ── Pools: what cannot be read is not used, and of two that overlap only the older ────────────────────────────────


class Verdict(Enum):
    """The value is the condition's reason."""

    ACCEPTED = "Accepted"
    DISABLED = "Disabled"
    INVALID = "Invalid"
    OVERLAP = "Overlap"
    TERMINATING = "Terminating"


class Judged(NamedTuple):
    """``pool`` is None if it must not be used. ``refused`` is what the pool would be otherwise, if it can be read."""

    pool: Pool | None
    verdict: Verdict
    message: str = ""
    refused: Pool | None = None
    failed: Exception | None = None
    """A bug of ours that its reading met."""


def read_pool(found: EipObject) -> Pool | Unreadable:
    try:
        return read(_plain(EIP, metadata=found.metadata, spec=found.spec), pool)
    except InvalidManifests as error:
        return Unreadable(_listed(error.problems))


def judge(eips: Iterable[EipObject]) -> Mapping[str, Judged]:
    """By name. The older is the one that was created earlier; of two made in one second the first by name.

    What one pool excludes another may offer: that is how an address is moved between pools.
    """
    judged: dict[str, Judged] = {}
    offered = Together(())
    owners: list[str] = []
    for found in sorted(eips, key=lambda each: (each.metadata.creation_timestamp, each.metadata.name)):
        name = found.metadata.name
        try:
            pool = read_pool(found)
            spans = _offered(pool, len(owners)) if isinstance(pool, Pool) else []
        except Exception as error:
            judged[name] = _refused(found, Verdict.INVALID, set_aside(error))._replace(failed=error)
            continue
        if isinstance(pool, Unreadable):
            judged[name] = _refused(found, Verdict.INVALID, pool.message)
            continue
        if rivals := sorted({owners[other.index] for one in spans for other in offered.meeting(one)}):
            rule = "an address belongs to one pool; this pool is the newer one, so nothing is assigned from it"
            overlap = f"overlaps with Eip {some(rivals, SHOWN)}: {rule}"
            judged[name] = _refused(found, Verdict.OVERLAP, overlap, pool)
            continue
        for each in spans:
            offered.add(each)
        owners.append(name)
        judged[name] = _accepted(found, pool)
    return judged


def _refused(found: EipObject, verdict: Verdict, message: str, pool: Pool | None = None) -> Judged:
    """Of one that is being deleted nobody has to mend anything: what matters is whom it waits for."""
    return Judged(None, Verdict.TERMINATING if _is_deleted(found) else verdict, message, pool)


def _is_deleted(found: EipObject) -> bool:
    return found.metadata.deletion_timestamp is not None


def _accepted(found: EipObject, pool: Pool) -> Judged:
    if _is_deleted(found):
        return Judged(replace(pool, disabled=True, terminating=True), Verdict.TERMINATING)
    return Judged(pool, Verdict.DISABLED if pool.disabled else Verdict.ACCEPTED)


def _offered(pool: Pool, index: int) -> list[Span]:
    return without((span(range_, index) for range_ in pool.addresses), (span(range_, index) for range_ in pool.exclude))


# ── Nodes: their addresses are no EIP, whatever a pool says ───────────────────────────────────────────────────────


class Hosts:
    """Nodes come and go, and say much that is no news here."""

    def __init__(self) -> None:
        self._addresses: dict[str, frozenset[IPAddress]] = {}
        self.reserved: Mapping[IPAddress, str] = {}
        """As in ``World``."""

    def hear(self, told: Mapping[Key, HostObject | None]) -> bool:
        """None: that Node is gone. Whether anybody has other addresses than before."""
        before = dict(self._addresses)
        for key, found in told.items():
            self._addresses.pop(key.name, None)
            if found is not None and (addresses := addresses_of(found.status)):
                self._addresses[key.name] = addresses
        if self._addresses == before:
            return False
        names = sorted(self._addresses, reverse=True)
        self.reserved = {address: f"node {name}" for name in names for address in self._addresses[name]}
        return True


def addresses_of(status: HostStatus) -> frozenset[IPAddress]:
    found = set()
    for each in status.addresses or ():
        try:
            found.add(ip_address(each.address))
        except ValueError:  # a host name
            continue
    return frozenset(found)
