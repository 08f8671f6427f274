"""What is wrong with one EIP, step by step along its way. Pure: facts in, findings out."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from ipaddress import ip_address, ip_network

from speaker.api.fields import some
from speaker.checks import Finding
from speaker.diagnosis.facts import Asked, Chain, Facts, Unseen
from speaker.diagnosis.firewall import (
    ANSWER,
    DNAT,
    FURTHER,
    NEW,
    OLD,
    Judged,
    Packet,
    Ruleset,
    arp_answer,
    arp_request,
    ip_packet,
    ndp,
    resolving,
)
from speaker.errors import shown
from speaker.interfaces.snapshot import of_services
from speaker.node.known import trouble
from speaker.node.known.knowledge import KnownEip, KnownEndpoint, KnownService
from speaker.node.problems import find_mac
from speaker.packets.ndp import solicited_node


def services_of(facts: Facts, eip: KnownEip) -> list[KnownService]:
    return [service for service in facts.knowledge.services.first if service.key in eip.services]


def taking(facts: Facts, eip: KnownEip) -> Iterator[tuple[KnownService, KnownEndpoint]]:
    """Endpoints of its Services, of its family, that take new connections."""
    version = ip_address(eip.address).version
    for service in services_of(facts, eip):
        for each in service.endpoints.first:
            if each.takes_new and ip_address(each.address).version == version:
                yield service, each


def way(facts: Facts, to: str) -> str:
    """The link by which this node sends packets to ``to``, or ''."""
    return next((way.link for way in facts.ways if way.to == to), "")


# ── asked for and assigned ──


def refusal(facts: Facts, service: KnownService) -> Iterator[Finding]:
    """The allocator's own words; and if the address is this host's own, how that came about."""
    if service.refused == "host_address":
        yield from (each for address in service.wanted for each in bound_here(facts, address))
    yield from trouble.refusal(service)


# ── who may hold it, on which link ──


def own_address(facts: Facts, eip: KnownEip) -> Iterator[Finding]:
    """The EIP is bound on a link of this host as its own address."""
    yield from bound_here(facts, eip.address)
    yield from (each for each in facts.told("host_address", eip=eip.address) if each.eip)


def bound_here(facts: Facts, address: str) -> Iterator[Finding]:
    """The address is this host's own: bound on a link that is not made for Services."""
    for each in facts.bound:
        if each.address != address or of_services(each.link) or facts.link(each.link) is None:
            continue
        delete = f"ip addr del {address}/{each.prefix} dev {each.link}"
        if each.secondary:
            what = f"{address}/{each.prefix} is bound on {each.link} as a secondary address, so it is this host's own"
            yield Finding("bound_secondary", what, delete, address)
        else:
            what = f"{address}/{each.prefix} is bound on {each.link}, so it is this host's own"
            mend = f"kubectl get eip -o wide   # exclude {address} from its pool; or, if no host needs it: {delete}"
            yield Finding("host_address", what, mend, address)


def no_candidate(facts: Facts, eip: KnownEip) -> Iterator[Finding]:
    return trouble.no_candidate(facts.knowledge.node, eip)


def endpoints_there(facts: Facts, eip: KnownEip) -> Iterator[Finding]:
    return trouble.endpoints_there(eip, services_of(facts, eip))


def nobody_holds(facts: Facts, eip: KnownEip) -> Iterator[Finding]:
    return trouble.nobody_holds(facts.knowledge.node, eip, draining=facts.knowledge.draining)


# ── who answers ──


def expected(facts: Facts, eip: KnownEip) -> str:
    """The MAC that should answer for it; '' if this node cannot tell, or holds it itself."""
    if eip.mine or eip.holder is None:
        return ""
    link = eip.link or None
    macs = [peer.mac for peer in facts.knowledge.peers if peer.node == eip.holder and link in (None, peer.link)]
    return macs[0] if macs else ""


def answered(facts: Facts, eip: KnownEip) -> Iterator[Finding]:
    """Every MAC that answers, compared with what it should be."""
    asked = facts.answers(eip.address)
    known = {peer.mac: peer.node for peer in facts.knowledge.peers if peer.mac}
    should = expected(facts, eip)
    for mac in asked.macs if asked is not None else ():
        if mac in facts.own_macs or mac == should:
            continue
        if mac in known:
            if not any(facts.told("hellos_filtered")):
                yield _peer_answers(facts, eip, mac, known[mac])
        else:
            link = asked.link if asked is not None else ""
            whose = "this node" if eip.mine else eip.holder or "nobody"
            what = f"{mac} on {link} answers for {eip.address} but is not a speaker: {whose} holds it"
            yield Finding("stranger", what, find_mac(eip.address, link, mac), eip.address)
    if asked is not None and should and not asked.macs:
        yield _unanswered(facts, eip, asked, should)
    if asked is None:
        yield from _remembered(facts, eip, known)


def _unanswered(facts: Facts, eip: KnownEip, asked: Asked, should: str) -> Finding:
    """If its holder is heard and answers for its own address, something blocks the EIP alone."""
    if asked.unicast:
        return trouble.multicast_lost(eip.address, eip.holder or "")
    holder, family = shown(eip.holder or ""), ip_address(eip.address).version
    peers = facts.knowledge.peers
    heard = any(peer.node == eip.holder and peer.link == asked.link and peer.heard for peer in peers)
    own = [
        each.address
        for each in facts.asked
        if (each.what, each.link) == ("peer", asked.link)
        and should in each.macs
        and ip_address(each.address).version == family
    ]
    if not heard or not own:
        what = f"{holder} holds {eip.address}, but nobody answers for it on {asked.link}"
        return Finding("not_answered", what, f"speaker explain {eip.address}   # on {holder}", eip.address)
    what = (
        f"{holder} holds {eip.address} and is heard on {asked.link}, where it answers for its own {own[0]} but not for "
        "the EIP: something drops its answers for other addresses (port security, ARP inspection, the address filter "
        "of a virtual machine)"
    )
    mend = f"speaker doctor   # on {holder}; then allow {eip.address} on the port of {should}"
    return Finding("port_security", what, mend, eip.address)


def _remembered(facts: Facts, eip: KnownEip, known: Mapping[str, str]) -> Iterator[Finding]:
    """Whom the speaker heard recently, for EIPs that cannot be asked for now."""
    for each in facts.told("stranger", eip=eip.address):
        node = next((shown(node) for mac, node in known.items() if mac in each.what), None)
        mend = each.mend if node is None else f"ip -br addr | grep {eip.address}   # on {node}"
        yield replace(each, kind="stranger" if node is None else "peer_answers", mend=mend)


def _peer_answers(facts: Facts, eip: KnownEip, mac: str, node: str) -> Finding:
    holder = "this node" if eip.mine else eip.holder or "nobody"
    what = (
        f"{shown(node)} ({mac}) answers for {eip.address}, which {holder} holds: its kernel has the address and answers"
        " ARP for it, or another host uses its MAC"
    )
    mend = f"ip -br addr | grep {eip.address}; sysctl -w net.ipv4.conf.all.arp_ignore=1   # on {shown(node)}"
    return Finding("peer_answers", what, mend, eip.address)


def kernel_answers(facts: Facts, eip: KnownEip) -> Iterator[Finding]:
    """This node's kernel answers ARP for it, because it is bound and ARP is not strict."""
    if ip_address(eip.address).version != 4:
        return
    bound = [each for each in facts.bound if each.address == eip.address]
    for each in bound:
        for link in facts.knowledge.links:
            value = max(int(facts.sysctls.get(f"net.ipv4.conf.{name}.arp_ignore", "0")) for name in ("all", link))
            if each.link != link and value not in (1, 2, 8):
                what = (
                    f"{eip.address} is bound on {each.link}, and this node's kernel answers ARP for it on {link},"
                    f" whoever holds it (arp_ignore={value})"
                )
                mend = f"sysctl -w net.ipv4.conf.{link}.arp_ignore=1 net.ipv4.conf.{link}.arp_announce=2"
                yield Finding("kernel_answers", what, mend, eip.address)


def target(facts: Facts, eip: KnownEip) -> Iterator[Finding]:
    """The host by whose route the link was chosen does not answer."""
    for pool in facts.knowledge.pools.first:
        if pool.name == eip.pool and pool.target:
            asked = next((each for each in facts.asked if each.address == pool.target), None)
            if asked is not None and asked.what == "target" and not asked.macs and _on_link(facts, asked):
                what = (
                    f"pool {pool.name} chooses {asked.link} by the route to {pool.target}, which does not answer there"
                )
                yield Finding("target_silent", what, f"arping -c 3 -I {asked.link} {pool.target}", eip.address)


def _on_link(facts: Facts, asked: Asked) -> bool:
    """Otherwise a gateway would be asked, not the host itself."""
    link = facts.link(asked.link)
    return link is not None and any(ip_address(asked.address) in ip_network(subnet) for subnet in link.subnets)


# ── firewalls ──


def firewall(facts: Facts, eip: KnownEip) -> Iterator[Finding]:
    """Chains that drop requests, connections or answers. What was tried comes before what was only read."""
    tried = [*_walked(facts, eip)]
    yield from tried
    for chain, packet, judged in _judged(facts, eip):
        if not judged.drops or (tried and not _at_links(chain)):
            continue
        where = f"chain {chain.family} {chain.table} {chain.name} ({chain.hook}"
        what = f"{judged.how} {packet.words}, by {judged.drops}"
        if _at_links(chain):
            words = f"{where} of {chain.device or 'every link'}) {what}: {eip.address}"
            yield Finding("frames_dropped", words, _look_at(chain), eip.address)
        else:
            yield Finding("firewall_drops", f"{where}) {what}", _look_at(chain), eip.address)


def _walked(facts: Facts, eip: KnownEip) -> Iterator[Finding]:
    for each in (walk for walk in facts.walks if walk.eip == eip.address):
        for whom, rule in (
            (f"connections to TCP port {each.port}", each.dropped),
            ("its answers", each.answer_dropped),
        ):
            if rule:
                what = f"{rule}, drops {whom}: tried from {each.source}"
                chain = rule.partition(",")[0]
                yield Finding("firewall_drops", what, f"nft -a list {chain}   # then accept it there", eip.address)


def unseen_rules(facts: Facts, eip: KnownEip) -> Iterator[Unseen]:
    """Rules that decide whether packets of the EIP pass, and are not understood."""
    for chain, packet, judged in _judged(facts, eip):
        for rule in judged.unseen:
            yield Unseen(f"{packet.words}, in chain {chain.family} {chain.table} {chain.name}", rule)


def _judged(facts: Facts, eip: KnownEip) -> Iterator[tuple[Chain, Packet, Judged]]:
    """For each chain, the first packet that it drops; otherwise all packets, with the rules that are not understood."""
    services = services_of(facts, eip)
    known = not any(each.unread or each.endpoints.more for each in services)
    ends = frozenset((end.address, end.port) for each in services for end in each.endpoints.first)
    ours = {eip.address, *(address for address, _ in ends)}
    here = frozenset(each.address for each in facts.bound if each.address in ours)
    more = {"bound": eip.address in here, "kube_proxy": _by_kube_proxy(facts)}
    ruleset = Ruleset.of(facts.chains, facts.sets, ends if known else None, **more)
    for chain in (each for each in facts.chains if each.hook):
        found = []
        for packet in _meeting(facts, eip, chain, here):
            judged = ruleset.judge(chain, packet)
            if judged.drops and (not packet.sure or (chain.nat and not _first(facts, chain))):
                judged = Judged(unseen=(judged.drops,))
            if judged.drops:
                found = [(chain, packet, judged)]
                break
            found.append((chain, packet, judged))
        yield from found


def _meeting(facts: Facts, eip: KnownEip, chain: Chain, here: frozenset[str]) -> Iterator[Packet]:
    """``here``: addresses of this host's own that are endpoints."""
    if _at_links(chain):
        return _at_link(facts, eip, chain)
    return _translated(facts, eip, chain) if chain.nat else _passing(facts, eip, chain, here)


def _look_at(chain: Chain) -> str:
    if any(text.startswith("-A ") for text in chain.texts):
        program = "iptables" if chain.family == "ip" else "ip6tables"
        legacy = "-legacy" if chain.table.startswith(OLD) else ""
        return f"{program}{legacy}-save -t {chain.table.removeprefix(OLD)}   # {chain.name}: accept it there"
    return f"nft -a list chain {chain.family} {chain.table} {chain.name}   # then accept it there"


def _at_links(chain: Chain) -> bool:
    """Whether it is asked before or after everything else that the kernel does with a frame."""
    return chain.family in ("netdev", "arp", "bridge") or chain.hook in ("ingress", "egress")


def _at_link(facts: Facts, eip: KnownEip, chain: Chain) -> Iterator[Packet]:
    """The arp family's chains see the kernel's own questions to its neighbours; the speaker's frames bypass them."""
    leaving, version = chain.hook in ("egress", "output", "postrouting"), ip_address(eip.address).version
    if chain.family == "arp":
        yield from _resolving(facts, eip, leaving=leaving) if version == 4 and chain.hook != "forward" else ()
        return
    if chain.hook == "forward":  # between the ports of a bridge
        return
    passing = _leaving(facts, eip) if leaving else _arriving(facts, eip, translated=_called(facts, eip, chain))
    meeting = [(eip.link, packet) for packet in passing]
    meeting += [
        (str(packet.fields[_NAMES_LINK[leaving]]), packet) for packet in _resolving(facts, eip, leaving=leaving)
    ]
    for _, each in taking(facts, eip):
        packets = _to_endpoint(facts, eip, each) if leaving else [_answer(facts, eip, each)]
        meeting += [(way(facts, each.address), packet) for packet in packets]
    for name, packet in meeting:
        if (meets := _meets(facts, name, chain)) is not False:
            yield replace(packet, sure=meets is True, fields={**packet.fields, **_unlike_above(facts, name, chain)})


_NAMES_LINK = {False: "meta iifname", True: "meta oifname"}


def _resolving(facts: Facts, eip: KnownEip, *, leaving: bool) -> Iterator[Packet]:
    """On the EIP's link, and on those of its endpoints."""
    version, ways = ip_address(eip.address).version, (way(facts, each.address) for _, each in taking(facts, eip))
    yield resolving(version, eip.link, "clients and gateways", leaving=leaving)
    for name in dict.fromkeys(ways):
        if name not in ("", eip.link):
            yield resolving(version, name, "endpoints", leaving=leaving)


def _meets(facts: Facts, name: str, chain: Chain) -> bool | None:
    """Whether packets of the link meet the chain. None: it is not known which of them do."""
    link, below = facts.link(name), {name}
    if chain.family == "bridge":
        return link is not None and link.kind == "bridge"
    for _ in range(_LEVELS):
        below |= {up for each in below if (seen := facts.link(each)) is not None for up in seen.uplinks}
    met = {each for each in below if _is_of(each, chain)}
    if name in met or not met:
        return bool(met)
    return True if link is not None and met >= {*link.uplinks} and link.kind != "vlan" else None


_LEVELS = 3
"""A VLAN on a bridge of bonds."""


def _is_of(name: str, chain: Chain) -> bool:
    return not chain.device or any(fnmatch(name, device) for device in chain.device.split(","))


def _unlike_above(facts: Facts, name: str, chain: Chain) -> dict[str, None]:
    """Fields that differ in a bridge and below a link: the name of the port, and the tag of a VLAN."""
    link = facts.link(name)
    fields = [] if link is None or link.kind != "vlan" else ["vlan id"]
    if chain.family == "bridge" or not _is_of(name, chain):
        fields += ["meta iif", "meta iifname", "meta oif", "meta oifname"]
    return dict.fromkeys(fields)


def _called(facts: Facts, eip: KnownEip, chain: Chain) -> bool:
    """Whether the translation is called from the bridge, before this chain."""
    called = facts.sysctls.get(f"net.bridge.bridge-nf-call-ip{'6' * (':' in eip.address)}tables") == "1"
    behind = chain.hook == "input" or chain.priority > 0
    return called and chain.family == "bridge" and behind and facts.knowledge.forwarder != "ipvs"


def _arriving(facts: Facts, eip: KnownEip, *, translated: bool) -> Iterator[Packet]:
    address = ip_address(eip.address)
    if address.version == 4:
        yield arp_request(eip.address, eip.link)
    else:
        group = str(ip_address(solicited_node(address.packed)))
        yield ndp("NDP questions for it", group, 135, {"iifname": eip.link})
    if not translated:
        yield from _to_eip(facts, eip)
    for _, each in taking(facts, eip) if translated else ():
        yield from _to_endpoint(facts, eip, each)


def _leaving(facts: Facts, eip: KnownEip) -> Iterator[Packet]:
    version = ip_address(eip.address).version
    if version == 4:
        yield arp_answer(eip.address, eip.link)
    else:
        yield ndp("its NDP answers", None, 136, {"oifname": eip.link})
    yield from _from_eip(facts, eip)


def _to_eip(facts: Facts, eip: KnownEip, states: Iterable[str] = (NEW, FURTHER)) -> Iterator[Packet]:
    for protocol, port in _ports(facts, eip):
        for state in states:
            words = f"{'connections' if state == NEW else 'further packets'} to {protocol.upper()} port {port}"
            packet = ip_packet(words, None, eip.address, protocol, {"dport": port, "iifname": eip.link}, state)
            yield replace(packet, translated=facts.knowledge.forwarder != "ipvs")


def _from_eip(facts: Facts, eip: KnownEip) -> Iterator[Packet]:
    for protocol, port in _ports(facts, eip):
        words = f"answers from {protocol.upper()} port {port}"
        yield ip_packet(words, eip.address, None, protocol, {"sport": port, "oifname": eip.link}, ANSWER)


def _ports(facts: Facts, eip: KnownEip) -> Iterator[tuple[str, int]]:
    for service in services_of(facts, eip):
        for written in service.ports:
            protocol, _, port = written.partition(" ")
            yield protocol.lower(), int(port)


_DSTNAT, _SRCNAT, _IPVS = -100, 100, 99
"""Priorities at which addresses are translated, and at which IPVS takes packets (docs/forwarding.md)."""


def _by_kube_proxy(facts: Facts) -> bool:
    return facts.knowledge.forwarder in ("none", "assist")


def _passing(facts: Facts, eip: KnownEip, chain: Chain, here: frozenset[str]) -> Iterator[Packet]:
    """Packets to the EIP, then to its endpoints after translation, and back. IPVS takes packets from input and sends
    them by output. Packets to addresses in ``here`` are not forwarded."""
    ipvs, endpoints = facts.knowledge.forwarder == "ipvs", [each for _, each in taking(facts, eip)]
    endpoints = endpoints or [*_unread(facts, eip)]
    if ":" in eip.address and chain.hook != "forward":
        yield from _resolving(facts, eip, leaving=chain.hook in ("output", "postrouting"))
    hook, after = chain.hook, chain.priority > (_DSTNAT if chain.hook == "prerouting" else _SRCNAT)
    to_eip = (hook == "prerouting" and (ipvs or not after)) or (hook == "input" and ipvs and chain.priority < _IPVS)
    to_endpoint = hook == "postrouting" or (hook == "output" if ipvs else hook == "forward" or (after and not to_eip))
    from_eip = hook == "postrouting" and (ipvs or after)
    if to_eip:
        yield from _to_eip(facts, eip)
    for each in endpoints:
        local = not ipvs and each.address in here
        if hook == "input" if local and hook in ("input", "forward", "postrouting") else to_endpoint:
            yield from _to_endpoint(facts, eip, each, hook)
        answered = hook == "output" if local else hook in ("prerouting", "forward")
        if answered or (hook == "postrouting" and not from_eip):
            yield _answer(facts, eip, each, hook)
    if from_eip:
        yield from _from_eip(facts, eip)


def _unread(facts: Facts, eip: KnownEip) -> Iterator[KnownEndpoint]:
    """In place of endpoints that this node does not read."""
    for protocol, _ in _ports(facts, eip) if any(each.unread for each in services_of(facts, eip)) else ():
        yield KnownEndpoint("", 0, protocol.upper(), None, True, True)


def _translated(facts: Facts, eip: KnownEip, chain: Chain) -> Iterator[Packet]:
    """A packet that one of these chains has translated meets none of the others."""
    if chain.hook == "prerouting" and (_first(facts, chain) or chain.priority == _turn(facts)):
        yield from _to_eip(facts, eip, (NEW,))
    elif chain.hook == "postrouting":
        yield from (next(_to_endpoint(facts, eip, each, chain.hook)) for _, each in taking(facts, eip))


def _turn(facts: Facts) -> int:
    """The priority at which packets to EIPs are translated."""
    return _DSTNAT if _by_kube_proxy(facts) else _DSTNAT - 5


def _first(facts: Facts, chain: Chain) -> bool:
    """Whether the chain is asked before packets of EIPs are translated, or leads to the translation itself."""
    if chain.hook == "postrouting":
        return chain.priority < _SRCNAT - 5
    leads = _by_kube_proxy(facts) and any("KUBE-SERVICES" in text for text in chain.texts)
    return facts.knowledge.forwarder == "ipvs" or leads or chain.priority < _turn(facts)


def _to_endpoint(facts: Facts, eip: KnownEip, each: KnownEndpoint, hook: str = "") -> Iterator[Packet]:
    """The first one, and a later one."""
    links = {"oifname": way(facts, each.address) or None} if hook not in ("prerouting", "input") else {}
    if facts.knowledge.forwarder != "ipvs" and hook in ("prerouting", "forward", "input"):
        links["iifname"] = eip.link
    fields = {"dport": each.port or None, **links, **_original(facts, eip)}
    to, version, whom = each.address or None, ip_address(eip.address).version, each.address or "of its Service"
    for words, state in ((f"packets to endpoint {whom}", NEW), (f"further packets to endpoint {whom}", FURTHER)):
        yield ip_packet(words, None, to, each.protocol.lower(), fields, state, version)


def _answer(facts: Facts, eip: KnownEip, each: KnownEndpoint, hook: str = "") -> Packet:
    came = {"iifname": way(facts, each.address) or None} if hook not in ("postrouting", "output") else {}
    links = came | ({"oifname": eip.link} if hook in ("forward", "postrouting", "output") else {})
    fields = {"sport": each.port or None, **links, **_original(facts, eip)}
    words, version = f"answers of endpoint {each.address or 'of its Service'}", ip_address(eip.address).version
    packet = ip_packet(words, each.address or None, None, each.protocol.lower(), fields, ANSWER, version)
    return replace(packet, translated=facts.knowledge.forwarder != "ipvs")


def _original(facts: Facts, eip: KnownEip) -> dict[str, str | int]:
    family = "ip" if ip_address(eip.address).version == 4 else "ip6"
    status: dict[str, str | int] = {"ct status": DNAT} if facts.knowledge.forwarder != "ipvs" else {}
    return {f"ct original {family} daddr": eip.address, **status}


# ── the kernel's forwarding, and what is behind it ──


def in_kernel(facts: Facts, eip: KnownEip) -> Iterator[Finding]:
    if facts.knowledge.forwarder == "ipvs" and not facts.has_ipvs:
        yield Finding("ip_vs_missing", "this kernel has no IPVS", "modprobe ip_vs", eip.address)
    elif eip.missing:
        what = f"the kernel lacks {some(eip.missing)}: another program removed it; it is put back within seconds"
        yield Finding("not_in_kernel", what, "nft monitor   # which program removes it?", eip.address)


def backends(facts: Facts, eip: KnownEip) -> Iterator[Finding]:
    """Whether each endpoint accepts a connection from here, and its answers come back through here."""
    tried = {(each.address, each.port): each for each in facts.tried}
    for service, each in taking(facts, eip):
        found = tried.get((each.address, each.port))
        if found is not None and not found.accepted:
            what = f"{each.address}:{each.port} of {service.key}: {found.words}"
            if found.words == "refused":
                mend = f"kubectl get pods -A -o wide | grep {each.address}"
                yield Finding("backend_refuses", f"{what}: nothing listens there", mend, eip.address)
            else:
                mend = f"ip route get {each.address}; ping -c 3 {each.address}"
                yield Finding("backend_silent", f"{what}: it is down, filtered, or has no way back", mend, eip.address)
        elif _answers_past_us(facts, eip, service, each):
            what = (
                f"{each.address} of {service.key} is reached over {eip.link} and sees the client's address"
                " (externalTrafficPolicy: Local), so its answers to clients bypass this node"
            )
            own = next((b.address for b in facts.bound if b.link == eip.link and not b.secondary), "this node")
            mend = f"ip route replace default via {own}   # on {each.address}; or set traffic policy Cluster"
            yield Finding("no_way_back", what, mend, eip.address)


def _answers_past_us(facts: Facts, eip: KnownEip, service: KnownService, endpoint: KnownEndpoint) -> bool:
    """This happens without masquerade, if the endpoint is on the clients' own segment and this node would use it."""
    known = facts.knowledge
    if known.forwarder in ("none", "assist") or endpoint.node != known.node or service.policy != "Local":
        return False
    return eip.mine and way(facts, endpoint.address) == eip.link
