"""kube-vip: the ConfigMap of its cloud provider (``kubevip``, before ``plndr``), as of 2026-02, d3522c6.

A namespace has its own list of addresses (``cidr-NAMESPACE``, or else ``range-NAMESPACE``), or shares the global one. A
``range-`` counts only if neither ``cidr-NAMESPACE`` nor ``cidr-global`` is there. IPv4 addresses that end in .0 or .255
are never given out.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, collapse_addresses, summarize_address_range

from speaker.api.eip import parse_interface
from speaker.api.fields import Field
from speaker.convert.document import Document, config_map
from speaker.convert.draft import Draft, Made
from speaker.convert.ranges import joined, parse_block, without_ends
from speaker.convert.selectors import all_but
from speaker.model import AddressRange

IMAGE = re.compile(r"'image': '(?:[^']*/)?kube-vip[:@']")
POD = (
    "runs kube-vip: neither the control plane's address in it nor its links are converted",
    "use `speaker control-plane` for that address, and write the link for Services into the pools' interface",
)

GLOBAL = "global"
DHCP = f"{IPv4Address(0)}/32"

_PREFIXES = ("cidr-", "range-", "interface-", "allow-share-")
_KEYS = ("search-order", "skip-end-ips-in-cidr")


@dataclass(frozen=True, slots=True)
class _Config:
    document: Document
    lists: dict[str, list[AddressRange] | None]
    """By key; None: addresses come by DHCP."""
    interfaces: dict[str, str]


def made(documents: Sequence[Document]) -> Made:
    read = [document.read(_config) for document in documents]
    return Made([draft for config in read if config is not None for draft in _drafts(config)])


def _config(document: Document, root: Field) -> _Config:
    data = config_map(document, root, "pools are named kube-vip-NAMESPACE")
    keys = {str(value.path[-1]): value for value in data.children()}
    for key, value in keys.items():
        if not key.startswith(_PREFIXES) and key not in _KEYS:
            value.refuse(f"is not a key of kube-vip's; known keys are {', '.join((*_PREFIXES, *_KEYS))}")
    if _word(document, data["search-order"]) == "desc":
        why = "addresses are given out from the lowest one up"
        document.leave(("data", "search-order"), why, "nothing, unless the order of new addresses matters")
    skip = _word(document, data["skip-end-ips-in-cidr"]) == "true"
    for key, value in keys.items():
        if key.startswith("allow-share-"):
            _sharing(document, value)
    return _Config(
        document,
        {key: _list(document, value, skip) for key, value in keys.items() if key.startswith(("cidr-", "range-"))},
        {
            key.removeprefix("interface-"): _interface(document, value)
            for key, value in keys.items()
            if key.startswith("interface-")
        },
    )


def _word(document: Document, value: Field) -> str:
    """A ConfigMap holds text, but samples have booleans without quotes."""
    document.take(value)
    return str(value.value).lower() if isinstance(value.value, bool) else value.text() or ""


def _sharing(document: Document, value: Field) -> None:
    if _word(document, value) in ("1", "t", "true"):
        why = "kube-vip itself puts Services on one address: here they share it only with the same annotation"
        document.leave(value.path, why, "give them eip-speaker.io/share; --adopt does so for Services that share now")
    else:
        document.leave(value.path, "nobody shares an address unless its Service says so")


def _interface(document: Document, value: Field) -> str:
    document.take(value).parsed(parse_interface)
    return value.text() or ""


def _list(document: Document, value: Field, skip: bool) -> list[AddressRange] | None:
    text = document.take(value).text() or ""
    if text.strip() == DHCP:
        return None
    parts = value.nonempty().comma_separated()
    blocks = [block for part in parts if (block := part.parsed(parse_block)) is not None]
    return _without_ends(blocks) if skip and "/" in text else joined(blocks)


def _without_ends(blocks: list[AddressRange]) -> list[AddressRange]:
    """Neighbouring CIDRs count as the CIDR that they form, as they do for kube-vip. IPv6 is unchanged."""
    networks = [net for block in blocks for net in summarize_address_range(block.first, block.last)]
    narrow = collapse_addresses([net for net in networks if isinstance(net, IPv4Network)])
    ends = [without_ends(AddressRange(net[0], net[-1], net)) for net in narrow]
    return ends + [block for block in blocks if block.first.version == 6]


def _drafts(config: _Config) -> list[Draft]:
    document, lists = config.document, config.lists
    for key in lists:
        kind, _, namespace = key.partition("-")
        above = next((cidr for cidr in (f"cidr-{namespace}", "cidr-global") if cidr in lists), None)
        if kind == "range" and above is not None:
            document.leave(("data", key), f"kube-vip does not use it, as {above} is there")
    chosen = {key: blocks for key, blocks in lists.items() if not document.is_listed(("data", key))}
    for key, blocks in chosen.items():
        if blocks is None:
            why = "addresses come by DHCP, but the speaker gives addresses of a pool"
            document.leave(("data", key), why, "take addresses from the LAN that its DHCP server leaves alone")
    own = sorted(key.partition("-")[2] for key in chosen if key.partition("-")[2] != GLOBAL)
    for namespace in config.interfaces.keys() - {GLOBAL, *own}:
        why = "the namespace shares the global addresses, but here a pool has one interface"
        document.leave(("data", f"interface-{namespace}"), why, "split the global addresses")
    return [_draft(config, key, blocks, own) for key, blocks in chosen.items() if blocks is not None]


def _draft(config: _Config, key: str, blocks: list[AddressRange], own: list[str]) -> Draft:
    namespace = key.partition("-")[2]
    shared = namespace == GLOBAL
    draft = Draft(config.document, f"kube-vip-{namespace}", blocks, steps_over=True, path=("data", key))
    draft.interface = config.interfaces.get(namespace) or config.interfaces.get(GLOBAL, "")
    if shared:
        draft.namespace_selector = all_but(own)
    else:
        draft.namespaces = [namespace]
    return draft
