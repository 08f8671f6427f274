"""``Service`` (core/v1) → ``Service``, if it is ours to serve.

Nothing that restricts access is ever dropped silently: source ranges become part of the value, and a field that core/v1
does not have is refused, because a misspelt ``loadBalancerSourceRanges`` opens a Service to the world. The substitute
for a bad field restricts as well, for readers that must continue with what the API server let through.

Other programs use ``clusterIP``, node ports and ``externalIPs`` (kube-proxy), and ``targetPort`` (EndpointSlices carry
the real one). Of these fields only what an API server would refuse is refused.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum, StrEnum
from ipaddress import IPv4Network, IPv6Network, collapse_addresses
from typing import Any, Literal, cast

from speaker.api import fields
from speaker.api.addresses import parse_eip, parse_source_range
from speaker.api.eip import MAX_PREFERENCES, MAX_WEIGHT
from speaker.api.fields import TOP, Field, did_you_mean, dns_label, dns_subdomain, duration, metadata, names
from speaker.api.others import WISHES, balancer_of
from speaker.model import (
    NOBODY,
    Balancer,
    Family,
    FamilyPolicy,
    HealthCheck,
    IPAddress,
    IPNetwork,
    LabelRule,
    LabelSelector,
    PreferredNodes,
    Protocol,
    Service,
    ServiceKey,
    ServicePort,
    TrafficPolicy,
)

PREFIX = "eip-speaker.io/"
LOAD_BALANCER_CLASS = "eip-speaker.io/speaker"
SOURCE_RANGES_ANNOTATION = "service.beta.kubernetes.io/load-balancer-source-ranges"

_NAMES = "pool addresses release share share-namespaces scheduler health-check node-preference record"
_ANNOTATIONS = tuple(PREFIX + name for name in _NAMES.split())
POOL, ADDRESSES, RELEASE, SHARE, SHARE_NAMESPACES, SCHEDULER, HEALTH_CHECK, NODE_PREFERENCE, RECORD = _ANNOTATIONS
"""The last one is the controller's: no wish."""

# ServiceSpec and ServicePort of core/v1 (staging/src/k8s.io/api/core/v1/types.go).
_SPEC = names(
    "allocateLoadBalancerNodePorts clusterIP clusterIPs externalIPs externalName externalTrafficPolicy "
    "healthCheckNodePort internalTrafficPolicy ipFamilies ipFamilyPolicy loadBalancerClass loadBalancerIP "
    "loadBalancerSourceRanges ports publishNotReadyAddresses selector sessionAffinity sessionAffinityConfig "
    "trafficDistribution type"
)
_PORT = frozenset({"appProtocol", "name", "nodePort", "port", "protocol", "targetPort"})

# ip_vs(9) schedulers: net/netfilter/ipvs/ip_vs_*.c up to Linux 6.12; two of them can look at the client's port as well,
# by the name that ipvsadm -b gives to that.
SCHEDULERS = names("dh fo lblc lblcr lc mh nq ovf rr sed sh twos wlc wrr mh-port sh-port")

_PORT_NAME = re.compile("(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")

MAX_SHARE_NAMESPACES = 256
"""As many Services may share an EIP. Each is looked for whenever there is none that may be joined."""
MAX_ADDRESSES = 8
"""Of each family, that a Service may name."""
MAX_POOLS = 8
"""Of which a Service may ask for an address each."""
MAX_HELD = len(Family) * (MAX_ADDRESSES + MAX_POOLS)
"""Addresses that a Service may have."""
MAX_UNKNOWN = 10
"""Annotations that are none of ours, though they look like it, of which it is said what was meant."""

MAX_PORTS = 4096
"""Of a Service; those behind are not served. The API server takes 20,000."""
MAX_SOURCE_RANGES = 4096
"""Of one list; behind them nobody is let in. The API server takes 55,000."""
MERGED_FROM = 64
"""Source ranges, from which on those that touch are kept as one; shorter lists stay as people wrote them."""
MAX_MISSPELT = 1000
"""Source ranges of one list that cannot be read; behind the next one nobody looks, and nobody is let in."""

_AFFINITY_DEFAULT, _AFFINITY_MAX = 10800, 86400  # core/v1: three hours, at most a day


class NotOurs(Enum):
    """Why a Service is somebody else's."""

    NOT_A_LOAD_BALANCER = "not_a_load_balancer"
    OTHER_CLASS = "other_class"
    NO_CLASS = "no_class"


class _Type(StrEnum):
    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"
    EXTERNAL_NAME = "ExternalName"


class _Affinity(StrEnum):
    NONE = "None"
    CLIENT_IP = "ClientIP"


def service(
    root: Field,
    *,
    default_class: bool,
    families_told: bool = False,
    fields_alone: bool = False,
    honoured: Collection[Balancer] = (),
) -> Service | NotOurs:
    """``default_class``: Services that name no ``loadBalancerClass`` are ours as well. ``families_told``: an API server
    has filled in ``ipFamilies``, so they are all that the Service has in this cluster. ``fields_alone``: somebody else
    forwards, who reads the source ranges of the spec and not those of the annotation. ``honoured``: what their
    annotations ask for counts where ours do not ask."""
    root.object(TOP, "a Service")
    # Looked at before anything is passed over: a misspelt `type` would make a load balancer look like none.
    spec = root["spec"].object(_SPEC, "a Service's spec")
    kind = spec["type"].sound(lambda value: value.nonempty().choice(_Type, _Type.CLUSTER_IP))
    if (no := _not_ours(kind, spec["loadBalancerClass"], default_class)) is not None:
        return no
    found = _ours(root, spec, families_told, honoured)
    annotation = root["metadata"]["annotations"][SOURCE_RANGES_ANNOTATION]
    if fields_alone and annotation.given and not spec["loadBalancerSourceRanges"].given:
        # Kube-proxy looks at the field alone (pkg/proxy/serviceport.go): the Service would be open to everyone.
        annotation.refuse("is not enforced if the forwarder is none: list it in spec.loadBalancerSourceRanges")
    return found if kind is not None else replace(found, ports=())


def _not_ours(kind: _Type | None, named: Field, default_class: bool) -> NotOurs | None:
    """``kind`` None: it cannot be read."""
    if kind not in (_Type.LOAD_BALANCER, None):
        return NotOurs.NOT_A_LOAD_BALANCER
    if (asked := named.text()) is None:
        return None if default_class else NotOurs.NO_CLASS
    if not asked:
        named.refuse("must be the name of a class, or left out: an API server refuses it")
    return None if asked == LOAD_BALANCER_CLASS else NotOurs.OTHER_CLASS


def _ours(root: Field, spec: Field, families_told: bool, honoured: Collection[Balancer]) -> Service:
    meta = metadata(root, namespaced=True, short_name=True)
    _refuse_odd(meta.annotations.children())
    if spec["clusterIP"].value == "None":
        spec["clusterIP"].refuse("must not be None where the type is LoadBalancer: an API server refuses it")
    asking = {name: _asking(meta.annotations, name, honoured) for name in (ADDRESSES, POOL, SHARE, SHARE_NAMESPACES)}
    requested = _requested(asking[ADDRESSES], spec["loadBalancerIP"])
    policy = spec["ipFamilyPolicy"].choice(FamilyPolicy, FamilyPolicy.SINGLE)
    # Local is the narrower one: of the nodes only those with endpoints, and of the endpoints only a node's own.
    asked = spec["externalTrafficPolicy"].nonempty()
    traffic_policy = asked.choice(TrafficPolicy, TrafficPolicy.CLUSTER, TrafficPolicy.LOCAL)
    ports = _ports(spec["ports"])
    return Service(
        key=ServiceKey(meta.namespace, meta.name),
        ports=ports,
        labels=meta.labels,
        selector=spec["selector"].sound(fields.label_map) or {},
        families=_families(spec, policy, requested, families_told),
        family_policy=policy,
        traffic_policy=traffic_policy,
        pools=_pools(asking[POOL]),
        addresses=requested,
        release=meta.annotations[RELEASE].parsed(_release) or False,
        share=asking[SHARE].require().text() if asking[SHARE].given else None,
        share_namespaces=_share_namespaces(asking[SHARE_NAMESPACES], asking[SHARE]),
        scheduler=meta.annotations[SCHEDULER].parsed(_scheduler),
        affinity_seconds=_affinity(spec),
        node_preference=meta.annotations[NODE_PREFERENCE].parsed(parse_preference) or (),
        source_ranges=_source_ranges(spec["loadBalancerSourceRanges"], meta.annotations[SOURCE_RANGES_ANNOTATION]),
        health_check_port=_health_check(spec["healthCheckNodePort"], traffic_policy),
        health_check=_active(meta.annotations[HEALTH_CHECK], ports, told=families_told),
        created=meta.created,
        unheeded=_unheeded(meta.annotations, asking),
    )


def _asking(annotations: Field, name: str, honoured: Collection[Balancer]) -> Field:
    """Ours, or where there is none the first of an honoured balancer."""
    ours = annotations[name]
    if ours.given or ours.blank or not honoured:
        return ours
    theirs = (each for each, wish in WISHES.items() if PREFIX + wish == name and balancer_of(each) in honoured)
    return next((annotations[each] for each in theirs if annotations[each].nonempty().given), ours)


def _unheeded(annotations: Field, asking: Mapping[str, Field]) -> tuple[str, ...]:
    """What others are asked for otherwise, of ``WISHES``."""
    given = annotations.value if isinstance(annotations.value, Mapping) else {}
    theirs = [name for name in WISHES if given.get(name)] if given else ()
    return tuple(name for name in theirs if given[name] != asking[PREFIX + WISHES[name]].value)


def _refuse_odd(annotations: Iterable[Field]) -> None:
    """Whatever looks like a wish, and would be passed over: the Service would take what it did not ask for."""
    unknown = 0
    for annotation in annotations:
        name = str(annotation.path[-1])
        try:
            # As ``ValidateAnnotations`` has it: like a label's, but with capitals allowed in the prefix.
            fields.label_key(name.lower(), "annotation")
        except ValueError as error:
            annotation.refuse(str(error))
        if name.lower().startswith(PREFIX) and name not in _ANNOTATIONS:
            unknown += 1
            if unknown <= MAX_UNKNOWN:
                annotation.refuse(f"is not an annotation of the speaker: {did_you_mean(name, _ANNOTATIONS)}")
        elif name in _ANNOTATIONS and annotation.blank:
            annotation.refuse("must have a value; leave it out to ask for nothing")


# ── Addresses and families ────────────────────────────────────────────────────────────────────────────────────


def _pools(annotation: Field) -> tuple[str, ...]:
    if annotation.path[-1] != POOL:  # another balancer's names one
        pool = annotation.parsed(fields.dns_subdomain)
        return (pool,) if pool is not None else ()
    parts = annotation.comma_separated()
    if len(parts) > MAX_POOLS:
        annotation.refuse(f"must be at most {MAX_POOLS} pools")
    named = [part.parsed(fields.dns_subdomain) for part in parts[:MAX_POOLS]]
    if len(set(named)) != len(named):
        annotation.refuse("must name every pool once")
    return tuple(dict.fromkeys(pool for pool in named if pool is not None))


def _requested(annotation: Field, field: Field) -> tuple[IPAddress, ...]:
    most = MAX_ADDRESSES if annotation.path[-1] == ADDRESSES else 1
    parts = annotation.comma_separated()
    named = [part.parsed(parse_eip) for part in parts[: most * len(Family)]]
    by_annotation = tuple(address for address in named if address is not None)
    versions = [address.version for address in by_annotation]
    if len(parts) > most * len(Family) or any(versions.count(each) > most for each in (4, 6)):
        annotation.refuse(f"must be at most {'one address' if most == 1 else f'{most} addresses'} of each family")
    if len(set(by_annotation)) != len(by_annotation):
        annotation.refuse("must name every address once")
    by_field = field.nonempty().parsed(parse_eip)
    if by_field is not None and annotation.given and by_annotation != (by_field,):
        field.refuse(f"must be the same as the annotation {annotation.path[-1]}, or left out")
    return by_annotation or ((by_field,) if by_field is not None else ())


def _families(spec: Field, policy: FamilyPolicy, requested: tuple[IPAddress, ...], told: bool) -> tuple[Family, ...]:
    """As the API server fills them in (pkg/registry/core/service/storage/alloc.go), in order of preference. Where it
    has done so, PreferDualStack in a cluster of one family names one."""
    asked = _asked_families(spec["ipFamilies"])
    if told and spec["ipFamilies"].given:
        families = asked
    else:
        families = asked or tuple(dict.fromkeys(map(Family.of, requested))) or (Family.IPV4,)
        if policy is not FamilyPolicy.SINGLE:
            families = tuple(dict.fromkeys((*families, *Family)))
    if policy is FamilyPolicy.SINGLE and len(families) > 1:
        why = "ipFamilies has two" if asked else "addresses of both families are requested"
        spec["ipFamilyPolicy"].refuse(f"must be PreferDualStack or RequireDualStack where {why}")
    for address in requested:
        if Family.of(address) not in families:
            spec["ipFamilies"].refuse(f"must include {Family.of(address)}, the family of the requested {address}")
    return families


def _asked_families(value: Field) -> tuple[Family, ...]:
    read = [item.sound(lambda entry: entry.require().choice(Family, Family.IPV4)) for item in value.items()]
    asked = [family for family in read if family is not None]
    if len(set(asked)) != len(asked):
        value.refuse("must name every family once")
    return tuple(dict.fromkeys(asked))


# ── Ports ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _ports(value: Field) -> tuple[ServicePort, ...]:
    items = value.items()
    if value.value in (None, [], ()):
        value.refuse("must list at least one port")
    ports: dict[str, int] = {}
    names: dict[str, int] = {}
    found = []
    if len(items) > MAX_PORTS:
        value.refuse(f"must be at most {MAX_PORTS} ports: those behind are not served")
    for i, item in enumerate(items[:MAX_PORTS]):
        port = item.sound(_port)
        if port is None:
            continue
        nameless = not port.name and len(items) > 1
        if nameless:
            item["name"].refuse("is required where a Service has several ports")
        repeats = _repeats(item, f"{port.protocol} {port.port}", ports, i, "port")
        if not (_repeats(item["name"], port.name, names, i, "name") or repeats or nameless):
            found.append(port)
    return tuple(found)


def _port(value: Field) -> ServicePort:
    value.object(_PORT, "a Service's port")
    _check_target(value["targetPort"].nonempty())
    return ServicePort(
        protocol=value["protocol"].nonempty().choice(Protocol, Protocol.TCP),
        port=value["port"].require().integer(0, 1, 65535),
        name=value["name"].nonempty().parsed(dns_label) or "",
    )


def _check_target(value: Field) -> None:
    """As an API server does (IsValidPortNum and IsValidPortName of apimachinery); 0 and '' are the port itself."""
    if isinstance(value.value, str):
        value.parsed(_port_name)
    else:
        value.integer(0, 0, 65535)


def _port_name(text: str) -> str:
    if text.isdecimal():
        raise ValueError("must be a number without quotes, or the name of a port: an API server refuses it")
    if not _PORT_NAME.fullmatch(text) or "--" in text:
        raise ValueError("must be a number, or 1-15 of a-z, 0-9 and single '-', with a letter (RFC 6335)")
    return text


def _repeats(field: Field, value: str, first: dict[str, int], i: int, what: str) -> bool:
    """Whether an entry before this one, the ``i``-th, says the same. ``first``: value → the entry that had it first."""
    if not value or first.setdefault(value, i) == i:
        return False
    field.refuse(f"must not repeat the {what} of ports[{first[value]}]: {value}")
    return True


# ── The rest ──────────────────────────────────────────────────────────────────────────────────────────────────


_NO_NAMESPACES: frozenset[str] = frozenset()
"""One for all of 10,000 Services."""


def _share_namespaces(value: Field, share: Field) -> frozenset[str]:
    if value.given and not share.given:
        value.refuse(f"needs the annotation {SHARE} as well: without it nothing is shared")
    parts = value.comma_separated()
    if len(parts) > MAX_SHARE_NAMESPACES:
        value.refuse(f"must be at most {MAX_SHARE_NAMESPACES} namespaces")
        return _NO_NAMESPACES
    names = (part.parsed(dns_label) for part in parts)
    return frozenset(name for name in names if name is not None) or _NO_NAMESPACES


def _release(text: str) -> bool:
    if text != "now":
        raise ValueError("must be now, or left out")
    return True


def _scheduler(text: str) -> str:
    if text not in SCHEDULERS:
        raise ValueError(f"is not an IPVS scheduler: {did_you_mean(text, SCHEDULERS)}")
    return text


def parse_preference(text: str) -> tuple[PreferredNodes, ...]:
    """``80 zone=a,disk=ssd; 20 zone=b``: weights, each with the labels that a node must have; ValueError says the
    rule."""
    terms = text.split(";")
    if len(terms) > MAX_PREFERENCES:
        raise ValueError(f"must be at most {MAX_PREFERENCES} terms")
    return tuple(map(_preferred, terms))


def _preferred(term: str) -> PreferredNodes:
    weight, _, labels = term.strip().partition(" ")
    rules = tuple(_label_rule(label.strip()) for label in labels.split(","))
    if not (weight.isascii() and weight.isdecimal() and len(weight) < 4 and 1 <= int(weight) <= MAX_WEIGHT):
        raise ValueError(f"must be terms such as 80 zone=a,disk=ssd joined by ';': a weight of 1 to {MAX_WEIGHT} first")
    if len({rule.key for rule in rules}) != len(rules):
        raise ValueError("must name each label once in a term")
    return PreferredNodes(int(weight), LabelSelector(rules))


def _label_rule(text: str) -> LabelRule:
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError("must name labels as key=value, joined by ','")
    return LabelRule(fields.label_key(key), "In", frozenset({fields.label_value(value)}))


def _affinity(spec: Field) -> int | None:
    config = spec["sessionAffinityConfig"].object({"clientIP"}, "sessionAffinityConfig")
    client_ip = config["clientIP"].object({"timeoutSeconds"}, "clientIP")
    timeout = client_ip["timeoutSeconds"].integer(_AFFINITY_DEFAULT, 1, _AFFINITY_MAX)
    if spec["sessionAffinity"].nonempty().choice(_Affinity, _Affinity.NONE) is _Affinity.CLIENT_IP:
        return timeout
    if config.given:
        config.refuse(f"must be left out unless sessionAffinity is {_Affinity.CLIENT_IP}")
    return None


def _health_check(value: Field, policy: TrafficPolicy) -> int | None:
    """As the API server has it: 0 is none."""
    port = value.integer(0, 0, 65535)
    if port and policy is not TrafficPolicy.LOCAL:
        value.refuse(f"must be left out unless externalTrafficPolicy is {TrafficPolicy.LOCAL}")
    return port or None


def _active(value: Field, ports: Iterable[ServicePort], *, told: bool) -> HealthCheck | None:
    """``told``: an API server says what is ready."""
    if told and value.given:
        value.refuse("is for Services from files: in a cluster a readinessProbe of the pods says who is ready")
        return None
    check = value.parsed(health_check)
    if check is not None and check.port is None and any(port.protocol is not Protocol.TCP for port in ports):
        value.refuse("must say port=NUMBER where a port of the Service is not TCP: the port to check instead")
    return check


def _source_ranges(value: Field, annotation: Field) -> tuple[IPNetwork, ...]:
    """Empty means everyone, so nothing that was meant to be a restriction may come out empty: where none of its ranges
    can be read, it is ``NOBODY``. Of a field and an annotation that differ what both let in is let in."""
    for ranges in (value, annotation):
        if ranges.blank or ranges.value in ([], (), ""):
            ranges.refuse("must list at least one CIDR; leave it out to let everyone in")
    by_field = _networks(value, value.items())
    by_annotation = _networks(annotation, annotation.nonempty().comma_separated())
    if by_field is None or by_annotation is None:
        return by_field or by_annotation or ()
    if set(by_field) == set(by_annotation):
        return by_field
    annotation.refuse("must be the same as spec.loadBalancerSourceRanges, or left out")
    # Of two networks that meet one lies in the other.
    common = (*_inside(by_field, by_annotation), *_inside(by_annotation, by_field))
    return tuple(dict.fromkeys(common)) or NOBODY


def _networks(value: Field, items: Iterable[Field]) -> tuple[IPNetwork, ...] | None:
    """None where nothing is written."""
    if not value.given:
        return NOBODY if value.blank else None
    found: dict[IPNetwork, None] = {}
    misspelt = 0
    for i, item in enumerate(items):
        if i >= MAX_SOURCE_RANGES:
            value.refuse(f"has more than {MAX_SOURCE_RANGES} entries: the rest let nobody in")
            break
        network = item.require().parsed(parse_source_range)
        if network is not None:
            found[network] = None
        elif (misspelt := misspelt + 1) > MAX_MISSPELT:
            value.refuse(f"has more than {MAX_MISSPELT} entries that cannot be read: the rest let nobody in")
            break
    return _joined(found) or NOBODY


def _joined(networks: Collection[IPNetwork]) -> tuple[IPNetwork, ...]:
    if len(networks) < MERGED_FROM:
        return tuple(networks)
    old = collapse_addresses(each for each in networks if isinstance(each, IPv4Network))
    new = collapse_addresses(each for each in networks if isinstance(each, IPv6Network))
    return (*old, *new)


def _inside(some: Iterable[IPNetwork], others: Iterable[IPNetwork]) -> Iterator[IPNetwork]:
    """Those that lie in one of ``others``: each is looked for once by each length of these, as there may be thousands
    of both."""
    known = {_prefix(other, other.prefixlen) for other in others}
    lengths = sorted({(version, length) for version, length, _ in known})
    for one in some:
        shorter = (length for version, length in lengths if version == one.version and length <= one.prefixlen)
        if any(_prefix(one, length) in known for length in shorter):
            yield one


def _prefix(network: IPNetwork, length: int) -> tuple[int, int, int]:
    """The network of that length that it lies in."""
    return network.version, length, int(network.network_address) >> (network.max_prefixlen - length)


# ── The health check of an annotation ─────────────────────────────────────────────────────────────────────────


MAX_TEXT = 1024
"""Characters of the annotation."""
HIGHEST = 100
"""Of ``rise`` and ``fall``."""
SHORTEST, LONGEST = 0.1, 3600.0
"""Seconds of an interval, and of a jitter and a timeout at most."""

_RULE = "must begin with tcp, http:/PATH or https:/PATH"
_PATH = re.compile(r'/(?!/)[!"$-~]*')
_RANGE = re.compile(r"([2-5][0-9]{2})(?:-([2-5][0-9]{2}))?")


def health_check(text: str) -> HealthCheck:
    """The annotation ``eip-speaker.io/health-check``. ValueError says the rule.

    ``https:/readyz interval=1s timeout=1s rise=2 fall=3 status=200-399 ca=/etc/ssl/ca.crt server-name=api.example``:
    the first word is ``tcp``, ``http:/PATH`` or ``https:/PATH``, the others are optional, in any order.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"must be at most {MAX_TEXT} characters")
    first, *rest = text.split() or [""]
    kind, colon, path = first.partition(":")
    if kind == "exec":
        raise ValueError(f"{_RULE}: the speaker runs no commands")
    if kind not in ("tcp", "http", "https") or (kind == "tcp" and colon):
        raise ValueError(_RULE)
    if kind != "tcp" and not _PATH.fullmatch(path):
        raise ValueError(f"{_RULE}, where PATH has no blanks, no #, no host and no characters beyond ASCII")
    found = _words(kind, rest)
    if "interval" in found:
        found.setdefault("jitter", found["interval"] / 10)
    return HealthCheck(cast(Literal["tcp", "http", "https"], kind), path, **found)


def _words(kind: str, words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        name = key.replace("-", "_")
        if key not in _KEYS:
            raise ValueError(f"has the unknown word {word!r}: {did_you_mean(key, _KEYS)}")
        if not equals or not value:
            raise ValueError(f"must have a value: {key}=VALUE")
        if name in found:
            raise ValueError(f"must have {key} once")
        if kind not in _KINDS.get(key, (kind,)):
            raise ValueError(f"must not have {key}, which is for {' and '.join(_KINDS[key])}")
        found[name] = _KEYS[key](key, value)
    return found


def _seconds(low: float) -> Callable[[str, str], float]:
    def parse(key: str, text: str) -> float:
        if not low <= (seconds := duration(text)) <= LONGEST:  # NaN is neither
            raise ValueError(f"must have a duration from {low:g}s to {LONGEST / 3600:g}h: {key}=1s, not {text!r}")
        return seconds

    return parse


def _number(high: int) -> Callable[[str, str], int]:
    def parse(key: str, text: str) -> int:
        if not re.fullmatch("[0-9]{1,5}", text) or not 1 <= int(text) <= high:
            raise ValueError(f"must have a number from 1 to {high}: {key}=2, not {text!r}")
        return int(text)

    return parse


def _status(key: str, text: str) -> tuple[tuple[int, int], ...]:
    found = [_RANGE.fullmatch(part) for part in text.split(",")]
    ranges = tuple((int(each[1]), int(each[2] or each[1])) for each in found if each is not None)
    if len(ranges) < len(found) or any(low > high for low, high in ranges):
        raise ValueError(f"must have statuses from 200 to 599: {key}=200-299,401, not {text!r}")
    return ranges


def _file(key: str, text: str) -> str:
    if not text.startswith("/") or not text.isprintable():
        raise ValueError(f"must have the full path of a file: {key}=/etc/ssl/ca.crt, not {text!r}")
    return text


def _name(key: str, text: str) -> str:
    try:
        if max(map(len, text.split("."))) > 63:  # Kubernetes would let it pass, the ssl module fails
            raise ValueError("must be labels of at most 63 characters (RFC 1035)")
        return dns_subdomain(text)
    except ValueError as error:
        raise ValueError(f"must have a name: {key}=api.example: it {error}") from None


_KEYS: Mapping[str, Callable[[str, str], Any]] = {
    "port": _number(65535),
    "interval": _seconds(SHORTEST),
    "jitter": _seconds(0),
    "timeout": _seconds(0.01),
    "rise": _number(HIGHEST),
    "fall": _number(HIGHEST),
    "status": _status,
    "ca": _file,
    "server-name": _name,
}
_KINDS = {"status": ("http", "https"), "server-name": ("http", "https"), "ca": ("https",)}
