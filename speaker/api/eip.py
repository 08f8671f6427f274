"""``Eip`` (eip-speaker.io/v1alpha1, cluster scoped) → ``Pool``."""

import re

from speaker.api.addresses import Span, Together, overlaps, parse_host, parse_range, span
from speaker.api.fields import TOP, Field, dns_label, metadata, names, seconds, selector
from speaker.model import (
    AddressRange,
    CanReach,
    Gratuitous,
    LabelSelector,
    LinkNames,
    OwnSubnet,
    Pool,
    PreferredNodes,
    Selector,
)

SPEC = names(
    "addresses autoAssign avoidNetworkAndBroadcast disabled exclude failback gratuitous interface namespaceSelector "
    "namespaceSelectors namespaces nodePreference nodeSelector perNamespace priority serviceSelector serviceSelectors"
)

INT32 = 2**31

# dev_valid_name() in net/core/dev.c, less the comma that separates names here.
_LINK_NAME = re.compile(r"[^\s/:,]+")
IFNAMSIZ = 16  # include/uapi/linux/if.h, with the terminating NUL

MAX_PREFERENCES = 16
"""Terms of one preference."""
MAX_WEIGHT = 100
"""Of one term, as in core/v1's PreferredSchedulingTerm."""
MIN_FAILBACK, MAX_FAILBACK = 1.0, 86400.0
FAILBACK = "preferred-after "
MAX_SELECTORS = 16
"""Of one list."""
MAX_BURST = 50
MIN_INTERVAL, MAX_INTERVAL = 0.05, 60.0
MIN_REFRESH, MAX_REFRESH = 1.0, 86400.0


def pool(root: Field) -> Pool:
    """``gratuitous.interval`` and ``refresh`` are seconds: a number, or a duration such as ``1.1s``, ``5m``."""
    root.object(TOP, "an Eip")
    meta = metadata(root, namespaced=False, short_name=False)
    spec = root["spec"].object(SPEC, "an Eip's spec")
    addresses = _ranges(spec["addresses"])
    exclude = _ranges(spec["exclude"])
    _addresses_rules(spec["addresses"], addresses)
    _exclude_rules(spec["exclude"], addresses, exclude)
    return Pool(
        name=meta.name,
        addresses=tuple(addresses.values()),
        exclude=tuple(exclude.values()),
        interface=spec["interface"].parsed(parse_interface) or OwnSubnet(),
        node_selector=selector(spec["nodeSelector"]),
        namespaces=_namespaces(spec["namespaces"]),
        namespace_selectors=_selectors(spec, "namespaceSelector"),
        service_selectors=_selectors(spec, "serviceSelector"),
        per_namespace=_per_namespace(spec["perNamespace"]),
        priority=spec["priority"].integer(0, -INT32, INT32 - 1),
        auto_assign=spec["autoAssign"].boolean(True),
        avoid_network_and_broadcast=spec["avoidNetworkAndBroadcast"].boolean(True),
        disabled=spec["disabled"].boolean(False),
        gratuitous=_gratuitous(spec["gratuitous"]),
        node_preference=_preference(spec["nodePreference"]),
        failback=_failback(spec["failback"]),
    )


def _ranges(value: Field) -> dict[int, AddressRange]:
    """By position in the list, without the entries that are none."""
    found = {}
    for i, item in enumerate(value.items()):
        if (range_ := item.require().parsed(parse_range)) is not None:
            found[i] = range_
    return found


def _addresses_rules(value: Field, addresses: dict[int, AddressRange]) -> None:
    if value.value in (None, []):
        value.refuse("must list at least one address, range or CIDR")
    for former, latter in overlaps(_spans(addresses)):
        value[latter].refuse(f"overlaps with addresses[{former}]: write every address once")


def _exclude_rules(value: Field, addresses: dict[int, AddressRange], exclude: dict[int, AddressRange]) -> None:
    if value.blank:
        value.refuse("must list what is never given away; leave it out to exclude nothing")
    # An exclusion that excludes nothing is a slip of the pen, and the address it meant would be given away.
    wanted = Together(_spans(addresses))
    for hole in _spans(exclude):
        if addresses and not any(wanted.meeting(hole)):
            value[hole.index].refuse("excludes nothing: none of it lies inside the pool's addresses")


def _spans(ranges: dict[int, AddressRange]) -> list[Span]:
    return [span(range_, i) for i, range_ in ranges.items()]


def _namespaces(value: Field) -> frozenset[str]:
    # [] from an empty template would otherwise open the pool to everyone.
    if value.blank or value.value == []:
        value.refuse("must name at least one namespace; leave it out to serve every namespace")
    names = (item.require().parsed(dns_label) for item in value.items())
    return frozenset(name for name in names if name is not None)


def _selectors(spec: Field, name: str) -> tuple[LabelSelector, ...]:
    """One selector by its own name, or a list of them by the plural: any of them may match."""
    one, several = spec[name], spec[f"{name}s"]
    if not several.given and not several.blank:
        return (selector(one),) if one.given or one.blank else ()
    items = several.items()
    if one.given or one.blank:
        one.refuse(f"must be left out beside {name}s: put it into that list")
    if not 1 <= len(items) <= MAX_SELECTORS:
        several.refuse(f"must be 1 to {MAX_SELECTORS} selectors; leave it out to ask for nothing")
    return tuple(selector(item.require()) for item in items[:MAX_SELECTORS])


def _per_namespace(value: Field) -> int | None:
    value.object({"max"}, "perNamespace")
    if not value.given and not value.blank:
        return None
    return value["max"].require().integer(1, 1, INT32 - 1)


def parse_interface(text: str) -> Selector:
    """``eth0``, ``eth1,eth0`` or ``can_reach:IP``; ValueError says the rule."""
    head, colon, target = text.partition(":")
    if not colon:
        return LinkNames(_link_names(text))
    if head != "can_reach":
        raise ValueError("must be link names separated by commas, or can_reach:IP")
    try:
        return CanReach(parse_host(target))
    except ValueError as error:
        raise ValueError(f"can_reach: {target!r} {error}") from None


def _link_names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if not _LINK_NAME.fullmatch(name) or name in (".", "..") or len(name.encode(errors="replace")) >= IFNAMSIZ:
            raise ValueError(f"{name!r} is not a link name: 1-15 bytes without space, '/', ':' or ','")
        if name == "lo":
            raise ValueError("must not be lo: nobody on the LAN would hear it")
    if len(set(names)) != len(names):
        raise ValueError("must name every link once")
    return names


def _preference(value: Field) -> tuple[PreferredNodes, ...]:
    """Terms as in ``preferredDuringSchedulingIgnoredDuringExecution`` of core/v1, without the word ``preference``."""
    if value.blank or value.value == []:
        value.refuse("must list at least one term; leave it out to prefer no node")
    items = value.items()
    if len(items) > MAX_PREFERENCES:
        value.refuse(f"must be at most {MAX_PREFERENCES} terms")
    terms = (item.require().sound(_term) for item in items[:MAX_PREFERENCES])
    return tuple(term for term in terms if term is not None)


def _term(value: Field) -> PreferredNodes:
    if not (value["matchLabels"].given or value["matchExpressions"].given):
        value.refuse("must have matchLabels or matchExpressions: without them it prefers every node alike")
    weight = value["weight"].require().integer(1, 1, MAX_WEIGHT)
    return PreferredNodes(weight, selector(value, beside=frozenset({"weight"})))


def _failback(value: Field) -> float | None:
    text = value.text()
    if text is None or text == "never":
        return None
    if not text.startswith(FAILBACK):
        value.refuse(f"must be never, or {FAILBACK.strip()} and a duration, such as {FAILBACK}5m")
        return None
    waits = Field(text.removeprefix(FAILBACK).strip(), value.path, value.report)
    return seconds(waits, MAX_FAILBACK, MIN_FAILBACK, MAX_FAILBACK)


def _gratuitous(value: Field) -> Gratuitous:
    value.object({"burst", "interval", "refresh"}, "gratuitous")
    default = Gratuitous()
    return Gratuitous(
        burst=value["burst"].integer(default.burst, 1, MAX_BURST),
        interval=seconds(value["interval"], default.interval, MIN_INTERVAL, MAX_INTERVAL),
        refresh=_refresh(value["refresh"], default.refresh),
    )


def _refresh(value: Field, default: float) -> float:
    found = seconds(value, default, 0.0, MAX_REFRESH)
    if 0.0 < found < MIN_REFRESH:
        value.refuse(f"must be 0 (never) or at least {MIN_REFRESH:g} second")
    return found
