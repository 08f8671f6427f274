"""Edge: what the kernel shows of the program that implements Services here. Reading its tables needs CAP_NET_ADMIN.

Reading what nft and iptables list for 10,000 addresses takes some 50 ms.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from speaker.errors import EdgeError, Unsupported
from speaker.forwarding.ipvs.dummy import bound_on
from speaker.forwarding.ipvs.strict_arp import answers_for_all
from speaker.forwarding.nftables import nft
from speaker.forwarding.nftables.nft import generation, listed
from speaker.kubeproxy.judge import NFT_TABLE, Mode, Rules
from speaker.model import KUBE_PROXY_LINK, Family, IPAddress, Link
from speaker.system import programs
from speaker.system.process import may_administer_network
from speaker.system.threads import in_thread

_IP = {Family.IPV4: "ip", Family.IPV6: "ip6"}
_T = TypeVar("_T")
Lister: TypeAlias = Callable[..., Awaitable[bytes | None]]
"""As ``nft.list_object``."""
_LEGACY = {Family.IPV4: "iptables-legacy-save", Family.IPV6: "ip6tables-legacy-save"}


class Tables:
    """The kernel's. What ``nft`` has listed of them is remembered as long as nobody changes any table of nftables: each
    listing takes a program. An element that times out is no change; those of kube-proxy's maps have no timeout."""

    def __init__(self, lister: Lister = nft.list_object, generation: Callable[[], int] = generation) -> None:
        self._lister, self._generation = lister, generation
        self._listed: dict[str, tuple[int, Any]] = {}
        """By what was listed: the generation of nftables before that, and what was made of it."""

    async def chains(self) -> frozenset[tuple[str, str]] | None:
        """Table and name of every program's chains; None where they may not be looked at."""
        try:
            _must_be_allowed()
            listed = await self._unchanged("chains", _chains)
            saved = await legacy_save(Family.IPV4, "nat")
        except EdgeError:
            return None
        return listed | {("nat", name) for name in await in_thread(chains_in_save, saved)}

    async def rules(self, mode: Mode, links: Mapping[int, Link]) -> Rules:
        """For which addresses ``mode`` has rules here; ``links`` by number, as they are now. Of one whose tables or
        link are gone there are none."""
        try:
            match mode:
                case Mode.IPVS:
                    return Rules(await _bound(links))
                case Mode.NFTABLES:
                    _must_be_allowed()
                    return await self._unchanged("maps", _in_maps)
                case Mode.IPTABLES:
                    _must_be_allowed()
                    return Rules(await self._unchanged("rules", _in_chains) | await _in_old_chains())
                case Mode.CILIUM:
                    return Rules(None, "Cilium does not show them")
                case Mode.UNKNOWN | Mode.NONE:
                    return Rules(None, "nothing that forwards Services was recognised")
        except EdgeError as error:
            return Rules(None, str(error))

    async def _unchanged(self, what: str, make: Callable[[Lister], Awaitable[_T]]) -> _T:
        now = self._generation()
        before, made = self._listed.pop(what, (None, None))
        if now != before:
            made = await make(self._lister)
        self._listed[what] = now, made
        return cast(_T, made)


async def answering(names: frozenset[str]) -> tuple[str, ...]:
    """Those of the links on which the kernel answers ARP for addresses of other links; none where it does not say."""
    try:
        return await in_thread(answers_for_all, names)
    except EdgeError:
        return ()


async def _bound(links: Mapping[int, Link]) -> frozenset[IPAddress]:
    index = next((link.index for link in links.values() if link.name == KUBE_PROXY_LINK), None)
    return await in_thread(bound_on, index) if index is not None else frozenset()


async def _chains(lister: Lister) -> frozenset[tuple[str, str]]:
    return await in_thread(chains_named, await lister("chains") or b"")


async def _in_maps(lister: Lister) -> Rules:
    """Where the table is not as we know it, it cannot be told; where it is gone there are none."""
    maps = [
        listing
        for ip in _IP.values()
        for name in SERVICE_MAPS
        if (listing := await lister("map", ip, NFT_TABLE, name)) is not None
    ]
    if not maps and NFT_TABLE in tables_named(await lister("tables") or b""):
        return Rules(None, f"there is no map {SERVICE_MAPS[0]} in the nftables table {NFT_TABLE}")
    return Rules(await in_thread(lambda: frozenset[IPAddress]().union(*map(in_map, maps))))


async def _in_chains(lister: Lister) -> frozenset[IPAddress]:
    """Of iptables-nft."""
    found: frozenset[IPAddress] = frozenset()
    for ip in _IP.values():
        for table, chain in SERVICE_CHAINS:
            if (listing := await lister("chain", ip, table, chain)) is not None:
                found |= await in_thread(in_chain, listing)
    return found


async def _in_old_chains() -> frozenset[IPAddress]:
    """Of the old iptables, where that is in use: nobody says which of them kube-proxy took."""
    found: frozenset[IPAddress] = frozenset()
    for family in Family:
        for table, _ in SERVICE_CHAINS:
            found |= await in_thread(in_save, await legacy_save(family, table))
    return found


async def legacy_save(family: Family, table: str) -> str:
    """What the old iptables has in ``table``; '' where the kernel has no such table: asking for one would make it."""
    if table not in _legacy_tables(family):
        return ""
    status, output, complaint = await programs.run(_LEGACY[family], "--table", table)
    if status != 0:
        raise EdgeError(f"{_LEGACY[family]} --table {table}: {complaint}")
    return output.decode(errors="replace")


def _legacy_tables(family: Family) -> tuple[str, ...]:
    try:
        return (*Path(f"/proc/thread-self/net/{_IP[family]}_tables_names").read_text().split(),)
    except OSError:  # a kernel without them
        return ()


def _must_be_allowed() -> None:
    """Raises Unsupported without CAP_NET_ADMIN: no program is started only to be told."""
    try:
        allowed = may_administer_network()
    except (OSError, StopIteration, ValueError) as error:
        raise EdgeError(f"/proc/self/status does not show the capabilities of this process: {error}") from error
    if not allowed:
        raise Unsupported("needs NET_ADMIN")


# ── What nft and iptables list ────────────────────────────────────────────────────────────────────────────────


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
