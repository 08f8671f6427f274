"""Facts of nodes that are well, in as many ways as one can be."""

from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from hypothesis import strategies as st

from speaker.diagnosis.facts import (
    ANYWHERE,
    Asked,
    Back,
    Bound,
    Chain,
    Facts,
    HelloSeen,
    LinkSeen,
    Process,
    Tried,
    Unseen,
    Walked,
    Way,
)
from speaker.node.known.knowledge import (
    MOST,
    Candidate,
    Cut,
    Knowledge,
    KnownEip,
    KnownEndpoint,
    KnownPeer,
    KnownPool,
    KnownService,
    Rejected,
)

NOW = 1_800_000_000.0
OWN = "02:00:00:01:00:11"
ELSEWHERE = "02:00:00:02:00:11"


def matching(left: dict[str, Any], op: str, right: Any, verdict: str) -> list[Any]:
    """A rule with one match, as nft lists it."""
    return [{"match": {"op": op, "left": left, "right": right}}, {verdict: None}]


def of(protocol: str, field: str) -> dict[str, Any]:
    return {"payload": {"protocol": protocol, "field": field}}


HARMLESS = (
    matching(of("ip", "daddr"), "==", "192.0.2.99", "drop"),
    matching({"meta": {"key": "iifname"}}, "==", "eth7", "drop"),
    matching(of("tcp", "dport"), "==", 23, "reject"),
    matching(of("arp", "operation"), "!=", "request", "accept"),
    [{"counter": {"packets": 1, "bytes": 2}}],
    matching({"ct": {"key": "state"}}, "in", "invalid", "drop"),
    matching(of("ip", "saddr"), "==", "@blocked", "drop"),
    matching(of("ip", "saddr"), "==", {"prefix": {"addr": "198.18.0.0", "len": 15}}, "drop"),
)
"""Who comes from elsewhere, another EIP, another link, another port; what is counted, or cannot be understood."""


def eip_address(number: int) -> str:
    return f"192.0.2.{200 + number}"


@st.composite
def knowledge(draw: st.DrawFn) -> Knowledge:
    peers = draw(st.lists(st.sampled_from(["n2", "n3", "n4"]), unique=True))
    forwarder = draw(st.sampled_from(["none", "ipvs", "nftables"]))
    hello = draw(st.sampled_from([20, 100, 1000])) if peers else draw(st.sampled_from([0, 100]))
    known_peers = tuple(
        KnownPeer(
            node,
            "eth0",
            alive=(alive := draw(st.booleans())),
            draining=not alive or draw(st.booleans()),
            heard=alive,
            hears_us=alive,
            hello_ms=draw(st.sampled_from([0, hello])),
            began=int(NOW) - draw(st.integers(-30, 10**7)),
            mac=f"02:00:00:01:00:{12 + number:02d}",
            addresses=(f"192.0.2.{12 + number}",),
        )
        for number, node in enumerate(peers)
    )
    living = [peer.node for peer in known_peers if peer.alive]
    eips, services = [], []
    for number in range(draw(st.integers(0, 6))):
        holder = draw(st.sampled_from(["n1", *living]))
        policy = draw(st.sampled_from(["Cluster", "Local"]))
        services.append(draw(_service(number, policy, holder)))
        eips.append(_eip(number, holder, draw(st.booleans())))
    offered, out = Cut(("192.0.2.200-192.0.2.220",)), Cut(("192.0.2.210",))
    pool = KnownPool("lan", offered, out, "x", "", False, 9, len(eips))
    return Knowledge(
        "n1",
        forwarder,
        hello,
        0x88B5,
        draining=draw(st.booleans()) and all(eip.holder != "n1" for eip in eips) and bool(living),
        ready=True,
        in_force=True,
        eips=Cut(tuple(eips)),
        services=Cut(tuple(services)),
        pools=Cut((pool,)),
        peers=known_peers,
        rejected=tuple(
            draw(
                st.lists(
                    st.builds(
                        Rejected,
                        st.just("eth0"),
                        st.sampled_from(["replayed", "foreign", "wrong_key"]),
                        st.floats(60, 10**6),
                    )
                )
            )
        ),
        links=("eth0",) if eips else (),
        families=("IPv4",) if eips else (),
    )  # fmt: skip


@st.composite
def _service(draw: st.DrawFn, number: int, policy: str, holder: str) -> KnownService:
    """With a ready endpoint at least, on the holder; others come and go."""
    nodes = [holder, *draw(st.lists(st.sampled_from(["n1", "n2", "n3", None]), max_size=3))]
    states = [True, *(draw(st.booleans()) for _ in nodes[1:])]
    endpoints = tuple(
        KnownEndpoint(f"10.244.{at}.{10 + number}", 8080, draw(st.sampled_from(["TCP", "UDP"])), node, ready, ready)
        for at, (node, ready) in enumerate(zip(nodes, states, strict=True))
    )
    address = eip_address(number)
    return KnownService(f"lab/s{number}", ("TCP 80",), ("IPv4",), policy, (address,), ("lan",), Cut(endpoints))


def _eip(number: int, holder: str, may: bool) -> KnownEip:
    mine = holder == "n1"
    why = {} if mine or may else {"reason": "no_local_endpoint", "message": "no ready endpoint on node n1"}
    where = {"link": "eth0", "mac": OWN} if not why else {}
    return KnownEip(
        eip_address(number),
        (f"lab/s{number}",),
        "lan",
        mine,
        holder,
        7,
        NOW - 60 if mine else None,
        "claimed",
        "interface: eth0",
        candidates=(Candidate("n1", not why, "may hold it"),),
        servers=(f"TCP {eip_address(number)}:80 rr",),
        **where,
        **why,
    )


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    known = draw(knowledge())
    macs = {peer.node: peer.mac for peer in known.peers}
    asked = [
        Asked(eip.address, "eth0", "eip", () if eip.mine else (macs[eip.holder],))
        for eip in known.eips.first
        if eip.holder is not None
    ]
    asked += [Asked(address, "eth0", "peer", (peer.mac,)) for peer in known.peers for address in peer.addresses]
    gateways = draw(st.lists(st.sampled_from(["192.0.2.1", "192.0.2.2"]), unique=True))
    answering = gateways[: draw(st.integers(1, 2))]
    asked += [Asked(g, "eth0", "gateway", (ELSEWHERE,) if g in answering else ()) for g in gateways]
    asked += [Asked(f"192.0.2.{number}", "eth0", "free") for number in range(211, 211 + draw(st.integers(0, 5)))]
    endpoints = [each for service in known.services.first for each in service.endpoints.first]
    bound = [Bound("eth0", "192.0.2.11", 24), Bound("lo", "127.0.0.1", 8), *draw(_others())]
    strict = known.forwarder == "ipvs"
    if strict:
        bound += [Bound("eip-speaker0", eip.address, 32) for eip in known.eips.first]
    bridge = draw(st.booleans())
    seen = [HelloSeen("eth0", 0x88B5, peer.mac, peer.node) for peer in known.peers if peer.alive]
    return Facts(
        about=draw(st.sampled_from(["", *(eip.address for eip in known.eips.first)])),
        now=NOW,
        process=Process("", 4711, draw(st.sampled_from("RSD")), 0x3000 if known.forwarder != "none" else 0x2000),
        known=known,
        links=(
            LinkSeen("eth0", OWN, True, True, "veth", subnets=("192.0.2.0/24",)),
            LinkSeen("eth1", ELSEWHERE, draw(st.booleans()), draw(st.booleans()), "", subnets=("198.51.100.0/24",)),
            LinkSeen("lo", "00:00:00:00:00:00", True, True, "loopback", False),
            LinkSeen("wlan0", OWN[:-1] + "9", True, True, "", wireless=True),
            *([LinkSeen("cni0", ELSEWHERE, True, True, "bridge", True)] if bridge else []),
            *([LinkSeen("eip-speaker0", ELSEWHERE, True, True, "dummy", False)] if strict else []),
        ),
        bound=tuple(bound),
        gateways=tuple(("eth0", gateway) for gateway in gateways),
        asked=tuple(asked),
        tried=tuple(Tried(e.address, e.port, True) for e in endpoints if e.takes_new and e.protocol == "TCP"),
        hellos=tuple(seen),
        sysctls={
            "net.ipv4.ip_forward": "1",
            "net.bridge.bridge-nf-call-iptables": "1" if bridge else "0",
            "net.ipv6.conf.all.forwarding": draw(st.sampled_from("01")),
            "net.ipv4.conf.all.rp_filter": draw(st.sampled_from("012")),
            "net.ipv4.conf.eth0.rp_filter": draw(st.sampled_from("02")),
            "net.ipv4.conf.eth0.forwarding": "1",
            "net.ipv4.conf.all.arp_ignore": "1" if strict else draw(st.sampled_from("012")),
        },
        chains=tuple(draw(st.lists(_chain(strict), max_size=3))),
        has_ipvs=strict or draw(st.booleans()),
        ways=(Way(ANYWHERE, "eth0"), *(Way(each.address, "cni0") for each in endpoints)),
        unseen=draw(st.sampled_from([(), (Unseen("endpoints", "not allowed"),)])),
        backs=tuple(draw(_back(eip.address)) for eip in known.eips.first if eip.link),
        walks=tuple(draw(_walk(eip.address)) for eip in known.eips.first[:2] if eip.mine),
    )


def _back(eip: str) -> st.SearchStrategy[Back]:
    """By another link with a LAN as well: routers may pass that on."""
    return st.builds(Back, st.just(eip), st.booleans(), st.sampled_from(["eth0", "eth1", ""]))


def _walk(eip: str) -> st.SearchStrategy[Walked]:
    """One whose endpoint accepts nothing, as well."""
    return st.builds(Walked, st.just(eip), st.just(80), st.just("192.0.2.254"), answered=st.booleans())


def many(one: Facts, number: int) -> Facts:
    """The same with so many EIPs, as the speaker tells of them: the first alone. A peer takes one that was free."""
    known, asked = one.knowledge, [*one.asked]
    if not known.eips.first:
        return one
    eips, services = [*known.eips.first], [*known.services.first]
    for at in range(len(eips), min(number, MOST)):
        like = at % len(known.eips)
        address, key = str(ip_address("198.18.0.0") + at), f"lab/m{at}"
        eips.append(replace(eips[like], address=address, services=(key,)))
        services.append(replace(services[like], key=key, addresses=(address,)))
    macs = {peer.node: peer.mac for peer in known.peers}
    answering = ((eip, () if eip.mine else (macs[str(eip.holder)],)) for eip in eips[len(known.eips) : 32])
    asked += [Asked(eip.address, "eth0", "eip", found) for eip, found in answering]
    asked += [Asked(str(ip_address("198.18.0.0") + number), "eth0", "free", (mac,)) for mac in (*macs.values(), OWN)]
    wider = tuple(replace(pool, addresses=Cut((*pool.addresses.first, "198.18.0.0/16"))) for pool in known.pools.first)
    bound = [Bound("eip-speaker0", eip.address, 32) for eip in eips if known.forwarder == "ipvs"]
    more = max(0, number - len(eips))
    told = replace(known, eips=Cut(tuple(eips), more), services=Cut(tuple(services), more), pools=Cut(wider))
    return replace(one, known=told, asked=tuple(asked), bound=(*one.bound, *bound))


@st.composite
def _others(draw: st.DrawFn) -> list[Bound]:
    """Secondary addresses, addresses of /32: of this host's, and no EIPs."""
    addresses = draw(st.lists(st.integers(20, 90).map(lambda last: str(ip_address(f"192.0.2.{last}"))), max_size=3))
    return [Bound("eth0", address, draw(st.sampled_from([24, 32])), draw(st.booleans())) for address in addresses]


@st.composite
def _chain(draw: st.DrawFn, ipvs: bool) -> Chain:
    """IPVS takes what comes in behind such chains; what another forwarder passes on does not get there."""
    family, hook = draw(
        st.sampled_from(
            [("ip", "forward"), ("inet", "prerouting"), ("netdev", "ingress"), ("arp", "input"), ("inet", "input")]
        )
    )
    rules = draw(st.lists(st.sampled_from(HARMLESS), max_size=4))
    may_drop = hook == "input" and family == "inet" and not ipvs
    policy = draw(st.sampled_from(["accept", "drop"])) if may_drop else "accept"
    return Chain(family, "fw", "every", hook, policy, "eth0" if family == "netdev" else "", tuple(rules))
