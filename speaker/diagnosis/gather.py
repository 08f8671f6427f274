"""Edge: gathers this node's facts, all at the same time; no look takes much longer than two seconds."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address, ip_network
from itertools import islice
from pathlib import Path
from typing import TypeVar

from speaker import __version__
from speaker.diagnosis import asking, kernel, returning, trying
from speaker.diagnosis.asking import Wanted
from speaker.diagnosis.chain import examine
from speaker.diagnosis.eip_checks import expected
from speaker.diagnosis.facts import (
    ANYWHERE,
    Back,
    Bound,
    Drops,
    Facts,
    LinkSeen,
    Process,
    Unseen,
    Walked,
    Way,
)
from speaker.diagnosis.report import finding_json
from speaker.errors import EdgeError
from speaker.interfaces.addresses import own_addresses
from speaker.interfaces.martians import coming_in, reverse_path_drops
from speaker.interfaces.routing import Found, lookup
from speaker.interfaces.snapshot import Snapshot, of_services
from speaker.interfaces.watcher import look
from speaker.model import NO_GROUP, Group, IPAddress, Link, Mac
from speaker.node.control import ask, read_answer
from speaker.node.known.knowledge import Knowledge, an_address
from speaker.system.threads import in_thread

ANSWER_SECONDS, PATIENT_SECONDS = 1.5, 12.0
"""Seconds to wait for the running speaker's answer; and if its process runs, as it may only be slow."""
LOOK_SECONDS = 2.0
"""For each of the other looks."""
HELLOS = 4.0
"""Hellos are listened for during so many intervals, and at least for so many seconds:"""
LISTEN_AT_LEAST = 0.5
FREE = 16
"""How many unused addresses of pools are asked for."""
MOST_EIPS = 32

_T = TypeVar("_T")


async def gather(runtime_dir: Path, about: str = "", forwarder: str = "", group: Group = NO_GROUP) -> Facts:
    """Every fact that concerns ``about``. Never raises: what could not be looked at is listed in ``unseen``."""
    looks = _Looks()
    drops = looks.now("packets dropped", reverse_path_drops, 0)
    known, running = await _speaker(runtime_dir, about)
    snapshot = await looks.at("links", look(group.link), Snapshot({}))
    begun = Facts(about, forwarder, time.time(), __version__, process=running, known=known)
    facts = _with_links(begun, snapshot)
    facts = await _look_around(facts, snapshot, looks, group)
    if heard_meanwhile(facts):
        known, running = await _speaker(runtime_dir, about)
        facts = replace(facts, known=known, process=running)
    after = looks.now("packets dropped", reverse_path_drops, drops)
    looks.unseen += _blind_spots(known)
    gone = replace(facts.drops, reverse_path=after - drops)
    return replace(facts, drops=gone, unseen=tuple(dict.fromkeys(looks.unseen)))


def examined(runtime_dir: Path, group: Group) -> list[dict[str, str]]:
    """What ``speaker doctor`` finds, one finding of each kind, in the form of ``finding_json``, for a process that
    shows it itself. Blocks for some seconds, so it runs in a thread without a loop."""
    return [finding_json(e) for group in examine(asyncio.run(gather(runtime_dir, group=group))) for e in group.told()]


def heard_meanwhile(facts: Facts) -> bool:
    """Whether hellos arrive from a peer that was silent when the speaker was asked: it may have come back since."""
    senders = {hello.mac for hello in facts.hellos}
    return any(not peer.alive and peer.mac in senders for peer in facts.knowledge.peers)


def _blind_spots(known: Knowledge | None) -> Iterator[Unseen]:
    """What was left out because there was too much of it."""
    if known is not None and (more := known.eips.more + known.services.more + known.pools.more):
        yield Unseen("more of what is asked about", f"{more} EIPs, Services and pools are left out")
    for service in known.services.first if known is not None else ():
        if service.endpoints.more:
            yield Unseen(f"endpoints of {service.key}", f"{service.endpoints.more} more than were looked at")
    if known is not None and len(known.eips) > MOST_EIPS:
        yield Unseen("who answers", f"only the first {MOST_EIPS} EIPs were asked for")


class _Looks:
    """``unseen``: the looks that failed."""

    def __init__(self) -> None:
        self.unseen: list[Unseen] = []

    async def at(self, what: str, looking: Awaitable[_T], otherwise: _T, seconds: float = LOOK_SECONDS) -> _T:
        try:
            async with asyncio.timeout(seconds):
                return await looking
        except EdgeError as error:
            self.unseen.append(Unseen(what, str(error)))
        except TimeoutError:
            self.unseen.append(Unseen(what, f"it took longer than {seconds:g} s"))
        return otherwise

    def now(self, what: str, looking: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return looking()
        except EdgeError as error:
            self.unseen.append(Unseen(what, str(error)))
        return otherwise


async def _speaker(runtime_dir: Path, about: str) -> tuple[Knowledge | None, Process]:
    """What the speaker knows, and its process. If the process runs, it gets more time: it may lack CPU."""
    known, words = await in_thread(_asked, runtime_dir, about, ANSWER_SECONDS)
    running = kernel.listener(runtime_dir, words)
    if known is None and running.state and running.state in "RSD":
        before = kernel.spent(running.pid)
        known, words = await in_thread(_asked, runtime_dir, about, PATIENT_SECONDS)
        busy = running.busy or running.pid == os.getpid() or kernel.spent(running.pid) > before
        running = replace(running, words=words, busy=busy)
    return known, running


def _asked(runtime_dir: Path, about: str, seconds: float) -> tuple[Knowledge | None, str]:
    """What the speaker knows, or why it does not answer."""
    try:
        for answer in ask(runtime_dir, "facts", seconds, about=about):
            return read_answer(answer.get("knowledge"), Knowledge), ""
    except EdgeError as error:
        return None, str(error)
    return None, "the speaker said nothing"


def _with_links(facts: Facts, snapshot: Snapshot) -> Facts:
    subnets: dict[int, list[str]] = {}
    for bound in snapshot.addresses:
        if not bound.address.is_link_local:
            subnets.setdefault(bound.link, []).append(str(bound.subnet))
    below: dict[int | None, list[Link]] = {}
    for link in snapshot.links.values():
        below.setdefault(link.master, []).append(link)
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
            _uplinks(below.get(link.index, [])) or kernel.below(link),
        )
        for link in snapshot.links.values()
    )
    names_ = {link.index: link.name for link in snapshot.links.values()}
    gateways = sorted((names_.get(each.link, ""), str(each.address)) for each in snapshot.gateways)
    return replace(facts, links=links, gateways=tuple(gateways), ways=tuple(_ways(facts, snapshot, names_)))


def _uplinks(below: Sequence[Link]) -> tuple[str, ...]:
    outward = [link.name for link in below if link.kind not in ("veth", "tun")]
    return tuple(outward or [link.name for link in below])


def _ways(facts: Facts, snapshot: Snapshot, names_: Mapping[int, str]) -> Iterator[Way]:
    """The ways to each endpoint, to each target of ``can_reach``, and everywhere."""
    known = facts.knowledge
    places = {each.address for service in known.services.first for each in service.endpoints.first[: asking.ENDPOINTS]}
    targets = {pool.target for pool in known.pools.first if pool.target}
    for place in sorted({*places, *targets, ANYWHERE, "::"}):
        match lookup(ip_address(place), snapshot):
            case Found(_, hops):
                yield Way(place, names_.get(hops[0].link, ""))
            case _:
                yield Way(place, "")


async def _look_around(facts: Facts, snapshot: Snapshot, looks: _Looks, group: Group) -> Facts:
    known = facts.knowledge
    links = {link.name: link for link in snapshot.links.values()}
    lan = tuple(name for name in known.links if name in links)
    tcp = [
        (each.address, each.port)
        for service in known.services.first
        for each in service.endpoints.first
        if each.protocol == "TCP" and each.takes_new
    ]
    seconds = max(LISTEN_AT_LEAST, HELLOS * known.hello_ms / 1000)
    own = own_addresses(snapshot, links.values())
    none: tuple[Bound, ...] = ()
    bound = looks.now("addresses", lambda: kernel.addresses(snapshot.links), none)
    eips = [ip_address(each.address) for each in bound if of_services(each.link)]
    asked, hellos, martian, tried, (chains, sets), (old, _) = await asyncio.gather(
        looks.at("who answers", asking.ask_links(links, own, wanted := _wanted(facts)), ()),
        looks.at("hellos", asking.listen([links[name] for name in lan], seconds, group), ()),
        looks.at("packets from EIPs", coming_in([links[name] for name in lan], eips, seconds), 0),
        looks.at("endpoints", asking.connect_all(tcp), ()),
        looks.at("firewalls (nftables)", kernel.rules(), ((), {})),
        looks.at("firewalls (old iptables)", kernel.legacy_rules(), ((), {})),
    )
    unasked = {str(one.address) for each in wanted.values() for one in each if one.what == "eip"}
    unasked -= {each.address for each in asked}
    if unasked and all(each.what != "who answers" for each in looks.unseen):
        why = f"{len(unasked)} not asked for: the link is down, or this node has no IPv6 address there to ask from"
        looks.unseen.append(Unseen("who answers", why))
    found = replace(
        facts,
        asked=asked,
        hellos=hellos,
        tried=tried,
        chains=chains + old,
        sets=sets,
        has_ipvs=kernel.has_ipvs(),
        bound=bound,
        drops=Drops(martian),
        sysctls=looks.now("settings", lambda: kernel.sysctls(links), {}),
    )
    near = {*known.links, *(each.link for each in found.ways)}
    near |= {up for link in found.links if link.name in near for up in link.uplinks}
    looks.unseen += looks.now(
        "programs on links", lambda: kernel.unread(links[name] for name in sorted(near & {*links})), ()
    )
    unknown: tuple[Back, ...] = ()
    backs = looks.now("where answers leave", lambda: returning.backs(found, snapshot, MOST_EIPS), unknown)
    walks: tuple[Walked, ...] = ()
    if facts.about and any(eip.mine for eip in known.eips.first):
        begun = trying.try_all(found, snapshot)
        walks = await looks.at("a new connection, as a client begins it", begun, walks, trying.SECONDS)
    if not facts.about or walks:
        return replace(found, backs=backs, walks=walks)
    # Without the rights for that, or elsewhere than where it is held: at least from this node itself.
    to = [(eip.address, port) for eip in known.eips.first[: trying.EIPS] for port, _ in trying.first_port(facts, eip)]
    connected = await looks.at("connections to it", asking.connect_all(to), ())
    return replace(found, backs=backs, tried=tried + connected)


def _wanted(facts: Facts) -> dict[str, list[Wanted]]:
    """What to ask on each link: EIPs, gateways, targets of ``can_reach``, silent peers, and unused addresses of pools
    if everything was asked about."""
    known = facts.knowledge
    wanted: dict[str, dict[IPAddress, Wanted]] = {name: {} for name in known.links}

    def want(link: str, address: str, what: str, mac: str = "") -> None:
        if link in wanted and (parsed := an_address(address)) is not None:
            wanted[link].setdefault(parsed, Wanted(parsed, what, Mac(bytes.fromhex(mac.replace(":", "")))))

    for eip in known.eips.first[:MOST_EIPS]:
        for link in [eip.link] if eip.link else known.links:
            want(link, eip.address, "eip", expected(facts, eip))
    for link, gateway in facts.gateways:
        want(link, gateway, "gateway")
    for pool in known.pools.first:
        for way in facts.ways:
            if way.to == pool.target:
                want(way.link, pool.target, "target")
    for peer in known.peers:
        for address in peer.addresses:
            want(peer.link, address, "peer")
    if not facts.about:
        for link, address in _free(facts, known):
            want(link, address, "free")
    return {link: [*addresses.values()] for link, addresses in wanted.items() if addresses}


def _free(facts: Facts, known: Knowledge) -> Iterator[tuple[str, str]]:
    """Link and address: addresses of pools that no Service has, if they are in a subnet of the link."""
    taken = {bound.address for bound in facts.bound}
    subnets = [
        (link.name, ip_network(subnet)) for link in facts.links if link.name in known.links for subnet in link.subnets
    ]
    for pool in known.pools.first:
        on_a_link = (
            (link, address)
            for address in pool.free
            for link in [next((name for name, subnet in subnets if ip_address(address) in subnet), "")]
            if link and address not in taken
        )
        yield from islice(on_a_link, FREE)
