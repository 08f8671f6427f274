"""Whether a chain of nftables drops a packet, as far as its rules can be understood. Pure.

A rule counts where each of its matches is understood and true of the packet; one that is not understood makes nothing
certain: neither that it drops, nor what comes behind it. Chains that are jumped to are not followed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

from speaker.diagnosis.facts import Chain

_ETHERTYPES = {"arp": 0x0806, "ip": 0x0800, "ip6": 0x86DD}
_PASSING = {"counter", "log", "comment"}
_FAMILIES = {"ip": {4}, "ip6": {6}, "inet": {4, 6}, "netdev": {4, 6}, "bridge": {4, 6}, "arp": set[int]()}


@dataclass(frozen=True, slots=True)
class Packet:
    """``fields``: by nft's names, such as ``ip daddr``, ``tcp dport`` and ``meta iifname``; what is not there is not
    known, unless ``lacks`` says that the packet has none of that protocol."""

    words: str
    ethertype: str
    fields: Mapping[str, str | int]

    def protocols(self) -> frozenset[str]:
        """Those whose fields it has."""
        found = {name.split()[0] for name in self.fields}
        return frozenset(found | {"ether", "meta", "th" if found & {"tcp", "udp"} else "ether"})


def arp_request(eip: str, link: str) -> Packet:
    return Packet(
        "who asks for it by ARP",
        "arp",
        {"arp daddr ip": eip, "arp operation": "request", "meta iifname": link, "meta iif": link},
    )


def ip_packet(words: str, source: str | None, destination: str | None, protocol: str, ports: Mapping[str, int],
              links: Mapping[str, str]) -> Packet:  # fmt: skip
    """``ports``: sport and dport, ``links``: iifname and oifname, those that are known."""
    address = destination if destination is not None else source
    family = "ip6" if address is not None and ip_address(address).version == 6 else "ip"
    fields: dict[str, str | int] = {"meta l4proto": protocol, f"{family} protocol": protocol, "ip6 nexthdr": protocol}
    for name, value in (("saddr", source), ("daddr", destination)):
        if value is not None:
            fields[f"{family} {name}"] = value
    for name, port in ports.items():
        fields[f"{protocol} {name}"] = fields[f"th {name}"] = port
    for name, link in links.items():
        fields[f"meta {name}"] = link
        fields[f"meta {name.removesuffix('name')}"] = link
    return Packet(words, family, fields)


def drops(chain: Chain, packet: Packet) -> bool:
    """For certain, by one of its rules; the policy is not looked at."""
    if not _concerned(chain, packet):
        return False
    for rule in chain.rules:
        match _verdict(rule, packet):
            case "drop" | "reject":
                return True
            case "accept" | "unknown":
                return False
            case _:
                continue
    return False


def _concerned(chain: Chain, packet: Packet) -> bool:
    if packet.ethertype == "arp":
        return chain.family in ("arp", "netdev", "bridge")
    version = 4 if packet.ethertype == "ip" else 6
    return version in _FAMILIES.get(chain.family, set())


def _verdict(rule: Any, packet: Packet) -> str:
    """``drop``, ``reject``, ``accept``, ``unknown``, or ``next`` where it does not concern the packet."""
    certain = True
    for expression in rule if isinstance(rule, list) else []:
        kind = next(iter(expression), "") if isinstance(expression, dict) else ""
        if kind == "match":
            known = _matches(expression["match"], packet)
            if known is False:
                return "next"
            certain &= known is not None
        elif kind in ("drop", "reject", "accept"):
            return kind if certain else "unknown"
        elif kind in ("continue", *_PASSING):
            continue
        else:  # a limit, a set, a jump, an extension of iptables
            certain = False
    return "next" if certain else "unknown"


def _matches(match: Any, packet: Packet) -> bool | None:
    """None: it cannot be told."""
    name = _field(match.get("left"))
    if name is None:
        return None
    if name in ("meta protocol", "ether type"):
        found: str | int | None = packet.ethertype
    elif name in packet.fields:
        found = packet.fields[name]
    elif name.split()[0] not in (*packet.protocols(), "meta", "ct"):
        return False  # nft asks for the protocol before it looks at its fields
    else:
        return None
    equal = _equal(found, match.get("right"))
    if equal is None or match.get("op") not in ("==", "!=", "in"):
        return None
    return equal is (match.get("op") != "!=")


def _field(left: Any) -> str | None:
    match left:
        case {"payload": {"protocol": str(protocol), "field": str(field)}}:
            return f"{protocol} {field}"
        case {"meta": {"key": str(key)}}:
            return f"meta {key}"
    return None


def _equal(found: str | int | None, right: Any) -> bool | None:
    match right:
        case {"prefix": {"addr": str(address), "len": int(length)}}:
            return _in(found, f"{address}/{length}")
        case {"set": list(members)}:
            each = [_equal(found, member) for member in members]
            return True if True in each else None if None in each else False
        case {"range": [low, high]}:
            return _between(found, low, high)
        case str() | int():
            return _same(found, right)
    return None


def _same(found: str | int | None, right: str | int) -> bool:
    if isinstance(found, str) and isinstance(right, int):
        return _ETHERTYPES.get(found, {"tcp": 6, "udp": 17, "request": 1}.get(found)) == right
    if isinstance(found, str) and isinstance(right, str) and right.endswith("*"):
        return found.startswith(right[:-1])
    return str(found) == str(right)


def _in(found: str | int | None, network: str) -> bool | None:
    try:
        return ip_address(str(found)) in ip_network(network, strict=False)
    except ValueError:
        return None


def _between(found: str | int | None, low: Any, high: Any) -> bool | None:
    try:
        if isinstance(found, int):
            return int(low) <= found <= int(high)
        first, last, it = (ip_address(str(each)) for each in (low, high, found))
        return first.version == it.version and int(first) <= int(it) <= int(last)
    except (TypeError, ValueError):
        return None
