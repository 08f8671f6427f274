"""With 3,000 EIPs, each of the practised faults is the first line of ``speaker doctor``, on one screen.

The node's own part is the real one: the site is settled, decided and put into words as a running speaker does it. What
only the kernel or the LAN shows (who answers, firewalls, drops) is put into the facts as the lab's doctor gathers it,
with what else such a fault shows there. That the lab's nodes gather it so is tested by ``tests/netns/lab``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from ipaddress import ip_address, ip_interface
from pathlib import Path

import pytest
from healthy import matching, of

from speaker.allocator.assign import Allocator
from speaker.allocator.settle import settle
from speaker.api.addresses import parse_range
from speaker.checks import Finding, said
from speaker.diagnosis.chain import examine
from speaker.diagnosis.facts import (
    ANYWHERE,
    Asked,
    Bound,
    Chain,
    Drops,
    Facts,
    HelloSeen,
    LinkSeen,
    Process,
    Tried,
    Way,
)
from speaker.diagnosis.gather import _wanted
from speaker.diagnosis.report import LINES, finding_lines
from speaker.errors import COLUMNS
from speaker.forwarding.forwarder import NoForwarder
from speaker.interfaces.snapshot import LinkAddress, NextHop, Route, RouteTables, Rule, Snapshot
from speaker.lab.practice_table import FAULTS
from speaker.model import (
    CanReach,
    Endpoint,
    Link,
    LinkNames,
    Mac,
    Pool,
    Protocol,
    Service,
    ServiceKey,
    ServicePort,
    TrafficPolicy,
    World,
)
from speaker.node.decide import MayHold, decide
from speaker.node.handlers import know
from speaker.node.known.knowledge import InForce, Rejected
from speaker.node.problems import Problems
from speaker.node.report import Report
from speaker.settings import Node, PeerSettings
from speaker.system.process import Priority
from speaker.telemetry.metrics import Metrics
from speaker.wire.messages import NOBODYS, ClaimStatus, PeerSeen

EIPS = 3000
FIRST, FOREIGN, NAMED = ip_address("10.0.16.1"), ip_address("203.0.113.200"), ip_address("10.0.250.1")
OTHERS_OWN, FREE, OUTSIDE = "10.0.250.6", "10.0.250.7", "10.0.251.50"
MAC, PEERS_MAC, STRANGER, GATEWAY = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:99", "10.0.0.1"
ETH0 = Link(2, "eth0", Mac(bytes.fromhex(MAC.replace(":", ""))))
POD = "10.244.1.11"
NOW = 1_800_000_000.0
N2 = PeerSeen(
    "n2", "eth0", True, False, True, True, 100, int(NOW) - 60, Mac(bytes.fromhex(PEERS_MAC.replace(":", ""))),
    (ip_address("10.0.0.12"),),
)  # fmt: skip


def key(number: int) -> ServiceKey:
    return ServiceKey("lab", f"s{number}")


def service(number: int, address: str, **more) -> Service:
    return Service(key(number), (ServicePort(Protocol.TCP, 80),), addresses=(ip_address(address),), **more)


def pods(*, ready: bool = True) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(ip_address(f"10.244.{n}.11"), 8080, Protocol.TCP, node=f"n{n}", ready=ready, serving=ready)
        for n in (1, 2)
    )


def a_world() -> World:
    addresses = [*(str(FIRST + number) for number in range(EIPS - 2)), str(FOREIGN), str(NAMED)]
    pools = (
        Pool("lan", (parse_range("10.0.16.0/20"), parse_range("10.0.250.6-10.0.250.9"))),
        Pool("foreign", (parse_range(f"{FOREIGN}/32"),), interface=CanReach(ip_address(GATEWAY))),
        Pool("named", (parse_range(f"{NAMED}/32"),), interface=LinkNames(("eth0",))),
    )
    services = {key(number): service(number, address) for number, address in enumerate(addresses)}
    return World({pool.name: pool for pool in pools}, services, dict.fromkeys(services, pods()))


def a_snapshot(link: Link = ETH0, *, way: bool = True) -> Snapshot:
    default = Route(4, 254, 0, 0, (NextHop(2),))
    own = Route(4, 254, int(ip_address("10.0.0.0")), 16, (NextHop(2),))
    tables = RouteTables([own, *([default] if way else [])])
    bound = ip_interface("10.0.0.11/16")
    return Snapshot({2: link}, (LinkAddress(2, bound.ip, bound.network),), (Rule(4, 32766),), tables)


WELL, WELL_LINKED = a_world(), a_snapshot()


@cache
def well_settled():
    return settle(Allocator(), WELL, 0.0)


@cache
def well_decided():
    return decide(WELL, well_settled().assignments, WELL_LINKED, Node("n1"))


@dataclass
class Site:
    """As a fault finds it."""

    world: World = WELL
    snapshot: Snapshot = WELL_LINKED
    peers: tuple[PeerSeen, ...] = (N2,)
    draining: bool = False
    peer_may: bool = False
    """Hold what this node must not."""
    answers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Address → who answers for it, other than should."""
    told: tuple[Finding, ...] = ()
    """By the checks of the running speaker."""
    see: Callable[[Facts], Facts] = lambda facts: facts
    """What the doctor sees besides."""


class Wire:
    """What the wire process says."""

    def __init__(self, site: Site, claims):
        self.draining, self._site, self._claims = site.draining, site, claims

    async def peers(self):
        return list(self._site.peers)

    async def claim_statuses(self, addresses):
        return {address: self._claims[address] for address in addresses}


def claims_of(site: Site, in_force: InForce):
    """Half of the EIPs are this node's, the others its peer's."""
    mine, peers = ClaimStatus(True, "n1", 3, NOW - 60), ClaimStatus(False, "n2", 3, None, 2)
    alone = not any(peer.alive for peer in site.peers)
    claims = {}
    for number, (address, eip) in enumerate(in_force.decision.eips.items()):
        may = isinstance(eip, MayHold) and not site.draining
        if may:
            claims[address] = mine if alone or number % 2 else peers
        else:
            claims[address] = peers if site.peer_may else NOBODYS
    return claims


async def facts_of(site: Site, tmp_path: Path) -> Facts:
    """As the doctor's, of a node in this state for ten seconds."""
    settlement = well_settled() if site.world is WELL else settle(Allocator(), site.world, 0.0)
    as_usual = site.world is WELL and site.snapshot is WELL_LINKED
    decision = well_decided() if as_usual else decide(site.world, settlement.assignments, site.snapshot, Node("n1"))
    in_force = InForce(settlement, decision, {}, site.world, "n1")
    clock = [0.0]
    report = Report(Metrics(), tmp_path, lambda: clock[0])
    wire = Wire(site, claims_of(site, in_force))
    report.draining = lambda: site.draining
    report.environment(site.told, Priority.REAL_TIME)
    report.losses(site.peers)
    report.brought_about(in_force)
    for clock[0] in (0.0, 1.0, 11.0):
        await report.publish(wire.claim_statuses, ready=True)
    known = await know("n1", PeerSettings(), wire, report, NoForwarder(tmp_path))
    link = site.snapshot.links[2]
    begun = Facts(
        now=NOW,
        process=Process("", 4711, "S", 0x3000),
        known=replace(known, forwarder="nftables", version="1"),
        version="1",
        links=(LinkSeen(link.name, MAC, link.up, link.carrier, "veth", subnets=("10.0.0.0/16",)),),
        bound=(Bound("eth0", "10.0.0.11", 16),),
        gateways=(("eth0", GATEWAY),),
        tried=(Tried(POD, 8080, True), Tried("10.244.2.11", 8080, True)),
        hellos=tuple(HelloSeen("eth0", 0x88B5, PEERS_MAC, peer.node) for peer in site.peers if peer.heard),
        sysctls={"net.ipv4.ip_forward": "1"},
        ways=(Way(ANYWHERE, "eth0"), Way(GATEWAY, "eth0"), Way(POD, "pods")),
    )
    return site.see(replace(begun, asked=tuple(asked(site, begun))))


def asked(site: Site, facts: Facts) -> Iterator[Asked]:
    """Each that the doctor asks for, with who answers."""
    mine = {eip.address for eip in facts.knowledge.eips.first if eip.mine or eip.holder is None}
    for link, wanted in _wanted(facts).items():
        for address, what, _ in wanted:
            macs = {"eip": () if str(address) in mine else (PEERS_MAC,), "peer": (PEERS_MAC,)}.get(what, ())
            macs = (STRANGER,) if str(address) == GATEWAY else macs
            yield Asked(str(address), link, what, site.answers.get(str(address), macs))


# ── the faults ──


def pool(name: str, **changes) -> World:
    return replace(WELL, pools={**WELL.pools, name: replace(WELL.pools[name], **changes)})


def asked_for(address: str, name: int = EIPS) -> World:
    return replace(WELL, services={**WELL.services, key(name): service(name, address)},
                   endpoints={**WELL.endpoints, key(name): pods()})  # fmt: skip


def endpoints(found: tuple[Endpoint, ...], **more) -> World:
    """Of the first Service."""
    services = {**WELL.services, key(0): replace(WELL.services[key(0)], **more)}
    return replace(WELL, services=services, endpoints={**WELL.endpoints, key(0): found})


def seen(**changes) -> Callable[[Facts], Facts]:
    return lambda facts: replace(facts, **changes)


def also(name: str, *more) -> Callable[[Facts], Facts]:
    return lambda facts: replace(facts, **{name: (*getattr(facts, name), *more)})


def chained(family: str, hook: str, *rules, policy: str = "accept") -> Callable[[Facts], Facts]:
    return seen(chains=(Chain(family, "fw", "f", hook, policy, "eth0" if family == "netdev" else "", rules),))


def told(kind: str, mend: str = "true", **more) -> Site:
    return Site(told=(Finding(kind, f"as the running speaker finds {kind}", mend),), **more)


def said_by_problems(find: Callable[[Problems], object], **more) -> Site:
    problems = Problems()
    find(problems)
    return Site(told=tuple(problems.all(0.0)), **more)


LOCAL_ENDPOINT = (replace(pods()[0], address=ip_address("10.0.0.50")),)
GONE = N2._replace(alive=False, heard=False, hears_us=False)
WITH_DUMMY = also("bound", Bound("kube-ipvs0", str(FIRST), 32))
EIGHT = str(FIRST)

SITES: dict[str, Site] = {
    "wrong_interface": Site(pool("lan", interface=LinkNames(("eth9",)))),
    "dead_target": Site(pool("foreign", interface=CanReach(ip_address("10.0.0.77"))),
                        see=lambda facts: replace(facts, asked=(*facts.asked, Asked("10.0.0.77", "eth0", "target")))),
    "no_route": Site(pool("foreign", interface=CanReach(ip_address("198.18.0.1"))), a_snapshot(way=False)),
    "address_outside": Site(asked_for(OUTSIDE)),
    "pools_overlap": Site(told=said("bad_manifests", ["site.yaml:3: two pools hold 10.0.16.1"], "speaker validate")),
    "no_endpoint": Site(endpoints(())),
    "none_ready_local": Site(endpoints(pods(ready=False), traffic_policy=TrafficPolicy.LOCAL)),
    "backend_not_listening": Site(see=seen(tried=(Tried(POD, 8080, False, "refused"),))),
    "endpoints_unwell": told("all_unwell"),
    "backend_down": Site(see=seen(tried=(Tried(POD, 8080, False, "no answer"),))),
    "no_way_back": Site(endpoints(LOCAL_ENDPOINT, traffic_policy=TrafficPolicy.LOCAL), peers=(GONE,),
                        see=also("ways", Way("10.0.0.50", "eth0"))),
    "stranger_first": Site(answers={EIGHT: (STRANGER,)}),
    "stranger_later": Site(answers={EIGHT: (PEERS_MAC, STRANGER)}),
    "stranger_of_ipv6": Site(answers={EIGHT: (STRANGER,)}),
    "spoofed_peer": Site(answers={str(FIRST + 1): (PEERS_MAC,)}),
    "address_of_a_node": Site(asked_for(OTHERS_OWN), see=also("bound", Bound("eth0", OTHERS_OWN, 32))),
    "bound_secondary": Site(see=also("bound", Bound("eth0", EIGHT, 16, secondary=True))),
    "kernel_answers": Site(see=WITH_DUMMY),
    "peers_kernel_answers": Site(answers={str(FIRST + 1): (PEERS_MAC,)}),
    "address_in_use": Site(answers={FREE: (STRANGER,)}),
    "reverse_path": told("reverse_path"),
    "forwarding_off": told("forwarding_off", see=seen(sysctls={"net.ipv4.ip_forward": "0"})),
    "link_not_forwarding": told("forwarding_off"),
    "firewall_policy": Site(see=chained("ip", "forward", policy="drop")),
    "firewall_rule": Site(see=chained("inet", "forward", matching(of("ip", "daddr"), "==", POD, "drop"))),
    "netdev_drop": Site(see=chained("netdev", "ingress", matching(of("arp", "daddr ip"), "==", EIGHT, "drop"))),
    "carrier_lost": Site(snapshot=a_snapshot(replace(ETH0, carrier=False)), peers=(GONE,)),
    "link_renamed": Site(pool("lan", interface=LinkNames(("eth0",))), a_snapshot(replace(ETH0, name="lan0"))),
    "gateway_gone": Site(answers={GATEWAY: ()}),
    "two_links": Site(see=also("links", LinkSeen("eth1", STRANGER, True, True, "", subnets=("10.0.0.0/16",)))),
    "other_key": Site(peers=(GONE,), see=lambda facts: replace(
        facts, known=replace(facts.known, rejected=(Rejected("eth0", "wrong_key", 0.1),)))),
    "other_ethertype": Site(peers=(GONE,), see=seen(hellos=(HelloSeen("eth0", 0x88B6, PEERS_MAC, "n2"),))),
    "other_hello": Site(peers=(N2._replace(hello_ms=300),)),
    "hellos_filtered": said_by_problems(lambda found: found.filtered(ETH0, "n2", N2.mac, [FIRST], 0.0),
                                        peers=(N2._replace(heard=False),)),
    "port_security": Site(answers={EIGHT: ()}),
    "same_name": said_by_problems(lambda found: found.name_clash(ETH0, N2.mac, silent=False), peers=()),
    "frozen_holder": Site(see=seen(known=None, process=Process("late", 4711, "T"))),
    "frozen_peer": Site(peers=(GONE,)),
    "bridge_unfiltered": Site(see=lambda facts: replace(
        facts, links=(*facts.links, LinkSeen("pods", STRANGER, True, True, "bridge")))),
    "no_hairpin": Site(see=lambda facts: replace(
        facts, sysctls={**facts.sysctls, "net.bridge.bridge-nf-call-iptables": "1"},
        links=(*facts.links, LinkSeen("pods", STRANGER, True, True, "bridge", deaf_ports=("veth1",))))),
    "drained": Site(draining=True, peers=(N2._replace(draining=True),)),
    "martian_source": Site(see=lambda facts: replace(
        WITH_DUMMY(facts), drops=Drops(martian=3),
        sysctls={**facts.sysctls, "net.ipv4.conf.all.arp_ignore": "1"})),
    "clock_ahead": Site(peers=(N2._replace(began=int(NOW) + 3600),)),
    "speaker_gone": Site(see=seen(known=None, process=Process("no speaker runs here"))),
    "pool_full": Site(world=replace(
        WELL, pools={"lan": replace(WELL.pools["lan"], addresses=(parse_range(f"{FIRST}-{FIRST + 9}"),))},
        services={key(n): service(n, str(FIRST + n)) for n in range(10)}
        | {key(10): Service(key(10), (ServicePort(Protocol.TCP, 80),))})),
    "no_ip_vs": Site(see=lambda facts: replace(facts, known=replace(facts.known, forwarder="ipvs"))),
    "kube_proxy_without_rules": Site(told=(Finding("kube_proxy", "kube-proxy has no rules", "true", str(FIRST)),)),
}  # fmt: skip
ONLY_EXPLAINED = {"not_asked"}
"""Nothing is wrong where nobody asks for an address, unless somebody asks why."""
KINDS_OF = {fault.name: fault.kind for fault in FAULTS}


def screen(facts: Facts) -> list[str]:
    return [*finding_lines(examine(facts), facts.unseen)]


def test_every_practised_fault_is_here():
    assert SITES.keys() | ONLY_EXPLAINED == KINDS_OF.keys()


async def test_nothing_is_wrong_before(tmp_path):
    assert screen(await facts_of(Site(), tmp_path)) == ["nothing is wrong here, as far as this node sees"]


@pytest.mark.parametrize("fault", SITES)
async def test_the_injected_fault_is_the_first_line_of_one_screen(fault, tmp_path):
    lines = screen(await facts_of(SITES[fault], tmp_path))
    told = " ".join(" ".join(lines).split()).split(" why it matters:")[0]
    assert told.startswith("1: "), lines
    assert told.endswith(f"({KINDS_OF[fault]})"), lines
    assert len(lines) <= LINES, lines
    assert all(len(line) <= COLUMNS for line in lines if not line.startswith("  to mend: ")), lines
