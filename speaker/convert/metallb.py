"""MetalLB: ``IPAddressPool`` and ``L2Advertisement`` (metallb.io/v1beta1) as of 2026-07, 7938d3f; before them
``AddressPool``, and up to 0.12 the text of a ConfigMap, where a pool itself says its protocol.

A pool serves the LAN only if an ``L2Advertisement`` selects it. Several of them cannot be said by one of our pools if
they differ in more than one of links, nodes and Services.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any, TypeAlias, cast

from speaker.api.eip import MAX_PREFERENCES
from speaker.api.fields import ApiObject, Field, Path
from speaker.api.others import METALLB, owner
from speaker.convert.document import BGP, KEEP, Document, config_map, heading, no_pool, read_kind, texts
from speaker.convert.draft import Draft, Made
from speaker.convert.ranges import parse_block
from speaker.convert.selectors import ALL, both, either, read
from speaker.errors import Place
from speaker.model import AddressRange, Balancer, LabelSelector

Parse: TypeAlias = Callable[[str], Sequence[ApiObject]]

VERSIONS = frozenset({"metallb.io/v1beta1"})
KINDS = ("IPAddressPool", "L2Advertisement", "AddressPool", "ConfigMap")

_OF_A_CONFIG = ("address-pools", "bfd-profiles", "bgp-communities", "peer-autodiscovery", "peers")
_BFD = "BFD watches BGP sessions; speakers watch each other by hellos"
_NO_EQUAL = {"BGPAdvertisement": BGP, "BGPPeer": BGP, "BFDProfile": _BFD, "Community": BGP}
_STATUSES = ("ServiceL2Status", "ServiceBGPStatus", "ConfigurationState")

_FIRST_ONLY = "here a pool has one selector: only the first is kept, so the pool serves less"
_SPLIT = "split the pool, or give everything that they select a common label"


@dataclass(frozen=True, slots=True)
class _Pool:
    draft: Draft
    allocation: bool
    priority: int
    namespaces: list[str]
    by_label: list[LabelSelector]
    services: list[LabelSelector]


@dataclass(frozen=True, slots=True)
class _Advertisement:
    document: Document
    pools: list[str]
    by_label: list[LabelSelector]
    nodes: list[LabelSelector]
    preferred: list[tuple[int, LabelSelector]]
    interfaces: list[str]
    services: list[LabelSelector]

    def selects(self, pool: _Pool) -> bool:
        everything = not self.pools and not self.by_label
        return (
            everything
            or pool.draft.name in self.pools
            or any(each.matches(pool.draft.labels) for each in self.by_label)
        )


class _Protocol(StrEnum):
    LAYER2 = "layer2"
    BGP = "bgp"


def opened(source: ApiObject, parse: Parse) -> ApiObject:
    """For MetalLB up to 0.12, the ConfigMap with an object instead of the text, also if only the text is given; any
    other object unchanged."""
    if not source.kind and isinstance(source.at("address-pools"), list):
        return as_config_map(source)
    if source.kind != "ConfigMap" or owner(source) is not Balancer.METALLB:
        return source
    key = next((key for key in METALLB if isinstance(source.at("data", key), str)), None)
    read = parse(cast(str, source.at("data", key))) if key else ()
    if key is None or len(read) != 1:
        return source
    inner = of_text(source, ("data", key), read[0])

    def locate(path: Path) -> Place:
        return inner.locate(path[2:]) if path[:2] == ("data", key) else source.locate(path)

    data = cast(dict[str, Any], source.data)
    return ApiObject({**data, "data": {**data["data"], key: inner.data}}, locate)


def of_text(source: ApiObject, path: Path, inner: ApiObject) -> ApiObject:
    """``inner`` was read from the text at ``path``: the same, with its place in the file."""
    place = source.locate(path)
    if not place.line or place.file.endswith(".json"):  # JSON has all the text in one line
        return ApiObject(inner.data, lambda _: place)
    return ApiObject(inner.data, lambda path: Place(place.file, place.line + inner.locate(path).line))


def as_config_map(config: ApiObject) -> ApiObject:
    """MetalLB's configuration up to 0.12, wherever it stands, as the ConfigMap that Helm makes of it."""
    heading = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "configInline"}}
    return ApiObject({**heading, "data": {METALLB[0]: config.data}}, lambda path: config.locate(path[2:]))


def made(documents: Sequence[Document]) -> Made:
    pools = read_kind(documents, "IPAddressPool", _pool)
    advertisements = read_kind(documents, "L2Advertisement", _advertisement)
    former = read_kind(documents, "AddressPool", _of_itself) + read_kind(documents, "ConfigMap", _config)
    for document in documents:
        _pass_over(document)
    _names_of_no_pool(advertisements, {pool.draft.name for pool in pools})
    priorities = _priorities(pools)
    found = Made()
    for draft, protocol in chain.from_iterable(former):
        if protocol is _Protocol.LAYER2:
            found.drafts.append(draft)
        else:
            found.leave_elsewhere(draft, BGP, KEEP)
    for pool in pools:
        if chosen := [each for each in advertisements if each.selects(pool)]:
            found.drafts.append(_draft(pool, chosen, priorities))
        else:
            why = "no L2Advertisement in the input selects it, so MetalLB answers for none of it on the LAN"
            do = "convert it together with its L2Advertisement, or go on announcing it by BGP"
            found.leave_elsewhere(pool.draft, why, do)
    return found


def _pass_over(document: Document) -> None:
    kind = document.source.kind
    if kind in _NO_EQUAL:
        document.leave((), _NO_EQUAL[kind], KEEP)
    elif kind == "MetalLB":
        do = "run the agents on the same nodes" if document.source.at("spec", "nodeSelector") else ""
        document.leave((), "says how and where MetalLB's operator runs it", do)
    elif kind in _STATUSES:
        document.leave((), "MetalLB's own report, which is not needed without it")
    elif kind not in KINDS:
        document.leave((), "is not a known MetalLB kind", "convert it to IPAddressPool and L2Advertisement")


# ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────


def _pool(document: Document, root: Field) -> _Pool:
    name, labels = heading(document, root, VERSIONS)
    spec, allocation = root["spec"], root["spec"]["serviceAllocation"]
    for key in ("namespaceSelectors", "namespaces", "priority", "serviceSelectors"):
        document.take(allocation[key])
    if not allocation.value:
        document.take(allocation)
    draft = Draft(document, name, _blocks(document, spec["addresses"]), labels)
    draft.auto_assign = document.take(spec["autoAssign"]).boolean(True)
    draft.steps_over = document.take(spec["avoidBuggyIPs"]).boolean(False)
    return _Pool(
        draft,
        allocation=allocation.given,
        priority=allocation["priority"].integer(0, 0, 2**31 - 1),
        namespaces=texts(allocation["namespaces"]),
        by_label=[read(item) for item in allocation["namespaceSelectors"].items()],
        services=[read(item) for item in allocation["serviceSelectors"].items()],
    )


def _blocks(document: Document, addresses: Field) -> list[AddressRange]:
    if not document.take(addresses).value:
        addresses.refuse("must list at least one range")
    found = [item.require().parsed(parse_block) for item in addresses.items()]
    return [block for block in found if block is not None]


def _of_itself(document: Document, root: Field) -> list[tuple[Draft, _Protocol]]:
    name, labels = heading(document, root, {*VERSIONS, "metallb.io/v1alpha1"})
    document.leave(("spec", "name"), "the name in its metadata is used")
    draft, protocol = _announced(document, root["spec"], name, str)
    draft.labels = labels
    return [(draft, protocol)]


def _config(document: Document, root: Field) -> list[tuple[Draft, _Protocol]]:
    data = config_map(document, root, "pools have names of their own")
    config = next((data[key] for key in METALLB if data[key].given), data[METALLB[0]])
    if isinstance(config.value, str):
        document.take(config).refuse("must be YAML, of one mapping")
    for other in (each for each in data.children() if each.path != config.path):
        document.leave(other.path, "MetalLB does not read it")
    for key in _OF_A_CONFIG[1:]:
        document.leave((*config.path, key), BGP, KEEP)
    found = []
    for entry in config["address-pools"].items():
        name = document.take(entry["name"]).require().text() or ""
        ours = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.")
        draft, protocol = _announced(document, entry, ours or name, _hyphened)
        if draft.name != name:
            draft.called = name
            why = f"the pool is called {ours}, as names here have only a-z, 0-9, '-' and '.' (RFC 1123)"
            document.leave(entry["name"].path, why)
        found.append((draft, protocol))
    return found


def _hyphened(name: str) -> str:
    return re.sub("([A-Z])([A-Z]*)", r"-\1\2", name).lower()


def _announced(document: Document, entry: Field, name: str, spelt: Callable[[str], str]) -> tuple[Draft, _Protocol]:
    """A pool that says itself how it is announced. ``spelt``: how its fields are written."""
    document.leave((*entry.path, spelt("bgpAdvertisements")), BGP)
    draft = Draft(
        document,
        name,
        _blocks(document, entry["addresses"]),
        steps_over=document.take(entry[spelt("avoidBuggyIPs")]).boolean(False),
        auto_assign=document.take(entry[spelt("autoAssign")]).boolean(True),
        path=entry.path,
    )
    return draft, document.take(entry["protocol"]).require().choice(_Protocol, _Protocol.BGP)


def _advertisement(document: Document, root: Field) -> _Advertisement:
    no_pool(document, root, VERSIONS)
    spec = root["spec"]
    for key in ("interfaces", "ipAddressPoolSelectors", "ipAddressPools", "nodeSelectors", "serviceSelectors"):
        document.take(spec[key])
    preferred = document.take(spec["preferredNodeSelectors"]).items()
    return _Advertisement(
        document,
        pools=texts(spec["ipAddressPools"]),
        by_label=[read(item) for item in spec["ipAddressPoolSelectors"].items()],
        nodes=[read(item) for item in spec["nodeSelectors"].items()],
        preferred=[(each["weight"].require().integer(1, 1, 100), read(each["preference"])) for each in preferred],
        interfaces=texts(spec["interfaces"]),
        services=[read(item) for item in spec["serviceSelectors"].items()],
    )


def _names_of_no_pool(advertisements: Sequence[_Advertisement], known: set[str]) -> None:
    for each in advertisements:
        for i, name in enumerate(each.pools):
            if name not in known:
                each.document.leave(
                    ("spec", "ipAddressPools", i), "the input has no such pool", "convert them together"
                )


# ── Deciding ──────────────────────────────────────────────────────────────────────────────────────────────────


def _priorities(pools: Sequence[_Pool]) -> dict[tuple[bool, int], int]:
    """(has an allocation, MetalLB's priority) → our priority: pools without an allocation last, then those of priority
    0."""
    classes = {(pool.allocation, pool.priority) for pool in pools if pool.allocation}
    ordered = sorted(classes, key=lambda each: each[1] or 2**32, reverse=True)
    return {(False, 0): 0, **{each: i for i, each in enumerate(ordered, 1)}}


def _draft(pool: _Pool, chosen: list[_Advertisement], priorities: dict[tuple[bool, int], int]) -> Draft:
    draft, document = pool.draft, pool.draft.document
    draft.priority = priorities[pool.allocation, pool.priority]
    if pool.allocation and not (pool.namespaces or pool.by_label or pool.services):
        why = "it selects neither namespaces nor Services: MetalLB gives the pool only to those that name it"
        document.leave(("spec", "serviceAllocation"), why)
        draft.auto_assign = False
    if ALL not in pool.by_label:
        draft.namespaces = pool.namespaces
        draft.namespace_selector = _first(document, ("serviceAllocation", "namespaceSelectors"), pool.by_label)
    draft.service_selector = _first(document, ("serviceAllocation", "serviceSelectors"), pool.services)
    _announce(draft, chosen)
    return draft


def _first(document: Document, path: tuple[str, ...], several: list[LabelSelector]) -> LabelSelector:
    found = either(several)
    for i in found.over:
        document.leave(("spec", *path, i), _FIRST_ONLY, _SPLIT)
    return found.selector


def _announce(draft: Draft, chosen: list[_Advertisement]) -> None:
    """Links, nodes and Services of the advertisements, if one pool can say what all of them say."""
    links = len({tuple(sorted(each.interfaces)) for each in chosen}) > 1
    nodes = len({tuple(each.nodes) for each in chosen}) > 1
    services_differ = len({tuple(each.services) for each in chosen}) > 1
    by_node = links and nodes and not services_differ and all(each.interfaces and each.nodes for each in chosen)
    if by_node and not either([selector for each in chosen for selector in each.nodes]).over:
        why = "the pool's links are for all its nodes: a node that has several of them uses the first"
        for each in chosen:
            each.document.leave(("spec", "nodeSelectors"), why, "put the link first that clients are on")
    elif links + nodes + services_differ > 1:
        for each in chosen[1:]:
            why = f"differs from {chosen[0].document.subject} in more than one of links, nodes and Services"
            each.document.leave(("spec",), f"{why}: pool {draft.name} follows the first only", _SPLIT)
        chosen = chosen[:1]
    draft.node_selector = _together(chosen, "nodeSelectors", [each.nodes for each in chosen])
    _prefer(draft, chosen)
    services = _together(chosen, "serviceSelectors", [each.services for each in chosen])
    draft.service_selector = both(draft.service_selector, services)
    if services != ALL:
        why = "MetalLB gives other Services an address that it never announces; here the pool gives them none"
        for each in chosen:
            each.document.leave(("spec", "serviceSelectors"), why, "make sure that another pool serves them")
    if all(each.interfaces for each in chosen):
        draft.interface = ",".join(dict.fromkeys(name for each in chosen for name in each.interfaces))
    for each in chosen:
        if "," in draft.interface:
            why = f"MetalLB announces on all of them; here an EIP is on one link, the first of {draft.interface}"
            each.document.leave(("spec", "interfaces"), why, "put the link first that clients are on")


def _prefer(draft: Draft, chosen: list[_Advertisement]) -> None:
    """Weights add up, as in MetalLB. An advertisement's weights are for its own nodes."""
    for each in chosen:
        own = either(each.nodes)
        among = own.selector if any(other.nodes != each.nodes for other in chosen) else ALL
        for i, (weight, whose) in enumerate(each.preferred):
            path, term = ("spec", "preferredNodeSelectors", i), both(whose, among)
            if term == ALL:
                each.document.leave(path, "prefers all nodes equally")
            elif len(draft.node_preference) == MAX_PREFERENCES or (among != ALL and own.over):
                why = f"here a pool has at most {MAX_PREFERENCES} terms, each with one selector"
                each.document.leave(path, why, "write it into the pool's nodePreference")
            else:
                draft.node_preference.append((weight, term))
    if draft.node_preference:
        draft.failback = "preferred-after 1m"
        why = "MetalLB moves an address back once a preferred node returns: here it waits a minute, without a gap"
        next(each for each in chosen if each.preferred).document.leave(("spec", "preferredNodeSelectors"), why)


def _together(chosen: list[_Advertisement], field: str, several: list[list[LabelSelector]]) -> LabelSelector:
    if not all(several):
        return ALL
    found = either([selector for each in several for selector in each])
    places = [(each.document, i) for each, own in zip(chosen, several, strict=True) for i in range(len(own))]
    for position in found.over:
        document, i = places[position]
        document.leave(("spec", field, i), _FIRST_ONLY, _SPLIT)
    return found.selector
