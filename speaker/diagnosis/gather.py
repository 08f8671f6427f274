"""Edge: the facts of this node, gathered at the same time; no look waits for longer than some two seconds."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_address, ip_network
from itertools import islice
from pathlib import Path
from typing import TypeVar

from speaker import __version__
from speaker.allocator.ranges import names
from speaker.api.ranges import parse_range
from speaker.diagnosis import asking, connecting, kernel, listening, process
from speaker.diagnosis.asking import Wanted
from speaker.diagnosis.doctor import examine
from speaker.diagnosis.facts import ANYWHERE, Drops, Facts, LinkSeen, Unseen, Way, known_from
from speaker.diagnosis.report import finding_json
from speaker.errors import EdgeError
from speaker.interfaces.addresses import own_addresses
from speaker.interfaces.routing import Found, lookup
from speaker.interfaces.snapshot import Snapshot
from speaker.interfaces.watcher import look
from speaker.model import IPAddress
from speaker.node.control import ask
from speaker.node.known.knowledge import Knowledge, KnownPool, an_address
from speaker.system.threads import in_thread

ANSWER_SECONDS = 1.5
"""For the running speaker's word."""
LOOK_SECONDS = 2.0
"""For each of the others."""
HELLOS = 4.0
"""Intervals for which hellos are listened for; and at least so many seconds:"""
LISTEN_AT_LEAST = 0.5
FREE = 16
"""Addresses of a pool that nobody has, which are asked for."""
LOOKED_AT = 64
"""Addresses of a range, to find those."""
MOST_EIPS = 32

_T = TypeVar("_T")


async def gather(runtime_dir: Path, about: str = "", forwarder: str = "") -> Facts:
    """Everything, of what ``about`` means. Nothing raises: what could not be seen is told of."""
    looks = _Looks()
    drops = looks.now("packets dropped", kernel.dropped, Drops())
    known, words = await in_thread(_asked, runtime_dir, about)
    running = process.listener(runtime_dir, words)
    snapshot = await looks.at("links", look(), Snapshot({}))
    begun = Facts(about, forwarder, time.time(), __version__, process=running, known=known)
    facts = _with_links(begun, snapshot)
    facts = await _look_around(facts, snapshot, looks)
    if heard_meanwhile(facts):
        known, words = await in_thread(_asked, runtime_dir, about)
        facts = replace(facts, known=known, process=replace(running, words=words))
    after = looks.now("packets dropped", kernel.dropped, drops)
    looks.unseen += _blind_spots(known)
    gone = Drops(after.martian - drops.martian, after.reverse_path - drops.reverse_path)
    return replace(facts, drops=gone, unseen=tuple(dict.fromkeys(looks.unseen)))


def examined(runtime_dir: Path) -> list[dict[str, str]]:
    """What ``speaker doctor`` finds, one of each kind, for a process that shows it itself, each as ``finding_json`` has
    it. Blocks for some seconds: in a thread without a loop."""
    return [finding_json(e) for group in examine(asyncio.run(gather(runtime_dir))) for e in group.told()]


def heard_meanwhile(facts: Facts) -> bool:
    """Hellos of a peer arrive that was silent when the speaker was asked: it may have come back since."""
    senders = {hello.mac for hello in facts.hellos}
    return any(not peer.alive and peer.mac in senders for peer in facts.knowledge.peers)


def _blind_spots(known: Knowledge | None) -> Iterator[Unseen]:
    """What nothing here looks at."""
    if known is not None and known.left_out:
        yield Unseen("more of what is asked about", f"{known.left_out} EIPs, Services and pools are left out")
    if known is not None and len(known.eips) > MOST_EIPS:
        yield Unseen("who answers", f"only the first {MOST_EIPS} EIPs were asked for")


class _Looks:
    """``unseen``: those that were refused."""

    def __init__(self) -> None:
        self.unseen: list[Unseen] = []

    async def at(self, what: str, looking: Awaitable[_T], otherwise: _T) -> _T:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await looking
        except EdgeError as error:
            self.unseen.append(Unseen(what, str(error)))
        except TimeoutError:
            self.unseen.append(Unseen(what, f"it took longer than {LOOK_SECONDS:g} s"))
        return otherwise

    def now(self, what: str, looking: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return looking()
        except EdgeError as error:
            self.unseen.append(Unseen(what, str(error)))
        return otherwise


def _asked(runtime_dir: Path, about: str) -> tuple[Knowledge | None, str]:
    """What the speaker knows, or why it does not say."""
    try:
        for answer in ask(runtime_dir, "facts", ANSWER_SECONDS, about=about):
            return known_from(answer.get("knowledge")), ""
    except EdgeError as error:
        return None, str(error)
    return None, "the speaker said nothing"


def _with_links(facts: Facts, snapshot: Snapshot) -> Facts:
    subnets: dict[int, list[str]] = {}
    for bound in snapshot.addresses:
        if not bound.address.is_link_local:
            subnets.setdefault(bound.link, []).append(str(bound.subnet))
    links = tuple(
        LinkSeen(
            link.name,
            link.mac.hex(":"),
            link.up,
            link.carrier,
            "loopback" if link.loopback else link.kind,
            link.ethernet and link.arp and link.master is None,
            tuple(subnets.get(link.index, ())),
            kernel.is_wireless(link),
            kernel.deaf_ports(link) if link.kind == "bridge" else (),
        )
        for link in snapshot.links.values()
    )
    names_ = {link.index: link.name for link in snapshot.links.values()}
    gateways = sorted((names_.get(each.link, ""), str(each.address)) for each in snapshot.gateways)
    return replace(facts, links=links, gateways=tuple(gateways), ways=tuple(_ways(facts, snapshot, names_)))


def _ways(facts: Facts, snapshot: Snapshot, names_: Mapping[int, str]) -> Iterator[Way]:
    """To each endpoint, to each target of ``can_reach``, and to everywhere."""
    known = facts.knowledge
    places = {each.address for service in known.services for each in service.endpoints[: connecting.MOST]}
    targets = {pool.target for pool in known.pools if pool.target}
    for place in sorted({*places, *targets, ANYWHERE, "::"}):
        match lookup(ip_address(place), snapshot):
            case Found(_, hops):
                yield Way(place, names_.get(hops[0].link, ""))
            case _:
                yield Way(place, "")


async def _look_around(facts: Facts, snapshot: Snapshot, looks: _Looks) -> Facts:
    known = facts.knowledge
    links = {link.name: link for link in snapshot.links.values()}
    lan = tuple(name for name in known.links if name in links)
    tcp = [
        (each.address, each.port)
        for service in known.services
        for each in service.endpoints
        if each.protocol == "TCP" and each.takes_new
    ]
    seconds = max(LISTEN_AT_LEAST, HELLOS * known.hello_ms / 1000)
    own = own_addresses(snapshot, links.values())
    asked, hellos, tried, (chains, sets), (old, _) = await asyncio.gather(
        looks.at("who answers", asking.ask_links(links, own, _wanted(facts)), ()),
        looks.at("who says hello", listening.listen([links[name] for name in lan], seconds), ()),
        looks.at("endpoints", connecting.connect_all(tcp), ()),
        looks.at("firewalls (nftables)", kernel.rules(), ((), {})),
        looks.at("firewalls (old iptables)", kernel.legacy_rules(), ((), {})),
    )
    return replace(
        facts,
        asked=asked,
        hellos=hellos,
        tried=tried,
        chains=chains + old,
        sets=sets,
        has_ipvs=kernel.has_ipvs(),
        bound=looks.now("addresses", lambda: kernel.addresses(snapshot.links), ()),
        sysctls=looks.now("settings", lambda: kernel.sysctls(links), {}),
    )


def _wanted(facts: Facts) -> dict[str, list[Wanted]]:
    """What is asked on each link: EIPs, gateways, what ``can_reach`` names, silent peers, and free addresses of the
    pools where everything was asked about."""
    known = facts.knowledge
    wanted: dict[str, dict[IPAddress, str]] = {name: {} for name in known.links}

    def want(link: str, address: str, what: str) -> None:
        if link in wanted and (parsed := an_address(address)) is not None:
            wanted[link].setdefault(parsed, what)

    for eip in known.eips[:MOST_EIPS]:
        for link in [eip.link] if eip.link else known.links:
            want(link, eip.address, "eip")
    for link, gateway in facts.gateways:
        want(link, gateway, "gateway")
    for pool in known.pools:
        for way in facts.ways:
            if way.to == pool.target:
                want(way.link, pool.target, "target")
    for peer in known.peers:
        for address in peer.addresses:
            want(peer.link, address, "peer")
    if not facts.about:
        for link, address in _free(facts, known):
            want(link, address, "free")
    return {link: [Wanted(*each) for each in addresses.items()] for link, addresses in wanted.items() if addresses}


def _free(facts: Facts, known: Knowledge) -> Iterator[tuple[str, str]]:
    """Link and address: those of pools that no Service has, where a subnet of the link holds them."""
    taken = {eip.address for eip in known.eips} | {bound.address for bound in facts.bound}
    subnets = [
        (link.name, ip_network(subnet)) for link in facts.links if link.name in known.links for subnet in link.subnets
    ]
    for pool in known.pools:
        on_a_link = (
            (link, str(address))
            for address in _offered(pool)
            for link in [next((name for name, subnet in subnets if address in subnet), "")]
            if link and str(address) not in taken
        )
        yield from islice(on_a_link, FREE)


def _offered(pool: KnownPool) -> Iterator[IPAddress]:
    """The first of each range."""
    exclude = [parse_range(each) for each in pool.exclude]
    for span in map(parse_range, pool.addresses):
        last = min(int(span.last), int(span.first) + LOOKED_AT)
        for number in range(int(span.first), last + 1):
            if not names(exclude, address := type(span.first)(number)):
                yield address
