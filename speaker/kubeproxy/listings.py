"""For which addresses kube-proxy has rules, from the listings of nft and iptables. Pure; 10,000 of them take some
50 ms.
"""

import re
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

from speaker.forwarding.nftables.nft import listed
from speaker.model import IPAddress

SERVICE_MAPS = ("service-ips", "no-endpoint-services")
"""Of the tables ``ip kube-proxy`` and ``ip6 kube-proxy``: what is forwarded, and what is rejected for lack of endpoints
(pkg/proxy/nftables/proxier.go)."""
SERVICE_CHAINS = (("nat", "KUBE-SERVICES"), ("filter", "KUBE-EXTERNAL-SERVICES"))
"""The same in iptables mode (pkg/proxy/iptables/proxier.go)."""

_APPENDED = re.compile(
    rf"^-A (?:{'|'.join(chain for _, chain in SERVICE_CHAINS)}) .*?(?<!! )-d ([0-9a-f.:]+)/(?:32|128) ", re.MULTILINE
)


def in_map(listing: bytes) -> frozenset[IPAddress]:
    """The addresses of ``nft --json list map``: each key begins with one."""
    return frozenset(_addresses(_map_keys(listing)))


def in_chain(listing: bytes) -> frozenset[IPAddress]:
    """The destinations of ``nft --json list chain``: what iptables-nft made."""
    return frozenset(_addresses(_destinations(listing)))


def in_save(text: str) -> frozenset[IPAddress]:
    """The same of ``iptables-save``."""
    return frozenset(_addresses(iter(_APPENDED.findall(text))))


def chains_named(listing: bytes) -> frozenset[tuple[str, str]]:
    """Table and name of each in ``nft --json list chains``, whatever the family."""
    chains = (item["chain"] for item in listed(listing, "kube-proxy's") if "chain" in item)
    return frozenset((str(chain.get("table")), str(chain.get("name"))) for chain in chains)


def tables_named(listing: bytes) -> frozenset[str]:
    """The names in ``nft --json list tables``, whatever the family."""
    return frozenset(str(item["table"].get("name")) for item in listed(listing, "kube-proxy's") if "table" in item)


def chains_in_save(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"^:(\S+) ", text, re.MULTILINE))


def _addresses(texts: Iterator[str]) -> Iterator[IPAddress]:
    for text in set(texts):
        try:
            yield ip_address(text)
        except ValueError:
            continue


def _list(found: object) -> list[Any]:
    return found if isinstance(found, list) else []


def _map_keys(listing: bytes) -> Iterator[str]:
    for item in listed(listing, "kube-proxy's"):
        for element in _list(item.get("map", {}).get("elem")):
            match element:
                case [{"concat": [str(address), *_]}, _] | [{"elem": {"val": {"concat": [str(address), *_]}}}, _]:
                    yield address


def _destinations(listing: bytes) -> Iterator[str]:
    for item in listed(listing, "kube-proxy's"):
        for part in _list(item.get("rule", {}).get("expr")):
            match part:
                case {"match": {"op": "==", "left": {"payload": {"field": "daddr"}}, "right": str(address)}}:
                    yield address
