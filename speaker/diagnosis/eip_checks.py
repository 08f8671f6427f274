"""What is wrong with one EIP, step by step of its way. Pure: facts in, findings out."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_address, ip_network

from speaker.checks import Finding
from speaker.diagnosis.facts import Asked, Chain, Facts, Unseen, some
from speaker.diagnosis.firewall import ANSWER, DNAT, OLD, Judged, Packet, Ruleset, arp_request, ip_packet
from speaker.errors import shown
from speaker.interfaces.snapshot import of_services
from speaker.node.known import trouble
from speaker.node.known.knowledge import KnownEip, KnownEndpoint, KnownService
from speaker.node.problems import find_mac


def services_of(facts: Facts, eip: KnownEip) -> list[KnownService]:
    return [service for service in facts.knowledge.services.first if service.key in eip.services]


def taking(facts: Facts, eip: KnownEip) -> Iterator[tuple[KnownService, KnownEndpoint]]:
    """Its Services' endpoints, of its family, that take new connections."""
    version = ip_address(eip.address).version
    for service in services_of(facts, eip):
        for each in service.endpoints.first:
            if each.takes_new and ip_address(each.address).version == version:
                yield service, each


def way(facts: Facts, to: str) -> str:
    """The link by which this node sends packets there; '' if by none."""
    return next((way.link for way in facts.ways if way.to == to), "")


# ── asked for and assigned ──


def refusal(facts: Facts, service: KnownService) -> Iterator[Finding]:
    """The allocator's own words; and where the address is this host's own, how it came to be."""
    if service.refused == "host_address":
        yield from (each for address in service.wanted for each in bound_here(facts, address))
    yield from trouble.refusal(service)


# ── who may hold it, on which link ──


def own_address(facts: Facts, eip: KnownEip) -> Iterator[Finding]:
    """Bound on a link of this host's, as its own."""
    yield from bound_here(facts, eip.address)
    yield from (each for each in facts.told("host_address", eip=eip.address) if each.eip)


def bound_here(facts: Facts, address: str) -> Iterator[Finding]:
    """As this host's own: not on a link that is there for Services."""
    for each in facts.bound:
        if each.address != address or of_services(each.link) or facts.link(each.link) is None:
            continue
        delete = f"ip addr del {address}/{each.prefix} dev {each.link}"
        if each.secondary:
            what = f"{address}/{each.prefix} is bound on {each.link} as a secondary address: it is this host's own"
            yield Finding("bound_secondary", what, delete, address)
        else:
            what = f"{address}/{each.prefix} is bound on {each.link}: it is this host's own"
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
    """The MAC that should answer for it; '' where this node cannot tell, or holds it itself."""
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
            what = f"{mac} on {link} answers for {eip.address} and is no speaker: {whose} holds it"
            yield Finding("stranger", what, find_mac(eip.address, link, mac), eip.address)
    if asked is not None and should and not asked.macs:
        yield _unanswered(facts, eip, asked, should)
    if asked is None:
        yield from _remembered(facts, eip, known)


def _unanswered(facts: Facts, eip: KnownEip, asked: Asked, should: str) -> Finding:
    """Where its holder is heard, and answers for itself, it is the EIP that somebody does not let pass."""
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
        what = f"{holder} holds {eip.address}, and nobody answers for it on {asked.link}"
        return Finding("not_answered", what, f"speaker explain {eip.address}   # on {holder}", eip.address)
    what = (
        f"{holder} holds {eip.address} and is heard on {asked.link}, where it answers for its own {own[0]} and not for "
        "the EIP: something drops what it says of other addresses (port security, ARP inspection, the address filter "
        "of a virtual machine)"
    )
    mend = f"speaker doctor   # on {holder}; then let its port, {should}, speak for {eip.address}"
    return Finding("port_security", what, mend, eip.address)


def _remembered(facts: Facts, eip: KnownEip, known: Mapping[str, str]) -> Iterator[Finding]:
    """Whom the speaker heard of late, where nobody can be asked now."""
    for each in facts.told("stranger", eip=eip.address):
        node = next((shown(node) for mac, node in known.items() if mac in each.what), None)
        mend = each.mend if node is None else f"ip -br addr | grep {eip.address}   # on {node}"
        yield replace(each, kind="stranger" if node is None else "peer_answers", mend=mend)


def _peer_answers(facts: Facts, eip: KnownEip, mac: str, node: str) -> Finding:
    holder = "this node" if eip.mine else eip.holder or "nobody"
    what = (
        f"{shown(node)} ({mac}) answers for {eip.address}, which {holder} holds: its kernel has the address and answers"
        " ARP for it, or somebody uses its MAC"
    )
    mend = f"ip -br addr | grep {eip.address}; sysctl -w net.ipv4.conf.all.arp_ignore=1   # on {shown(node)}"
    return Finding("peer_answers", what, mend, eip.address)


def kernel_answers(facts: Facts, eip: KnownEip) -> Iterator[Finding]:
    """This node's kernel answers ARP for it: it is bound, and ARP is not strict."""
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
    """The host by which the link was chosen."""
    for pool in facts.knowledge.pools.first:
        if pool.name == eip.pool and pool.target:
            asked = next((each for each in facts.asked if each.address == pool.target), None)
            if asked is not None and asked.what == "target" and not asked.macs and _on_link(facts, asked):
                what = (
                    f"{pool.target}, by the way to which pool {pool.name} chooses {asked.link}, does not answer there"
                )
                yield Finding("target_silent", what, f"arping -c 3 -I {asked.link} {pool.target}", eip.address)


def _on_link(facts: Facts, asked: Asked) -> bool:
    """Else a gateway would be asked, not the host itself."""
    link = facts.link(asked.link)
    return link is not None and any(ip_address(asked.address) in ip_network(subnet) for subnet in link.subnets)


# ── firewalls ──


def firewall(facts: Facts, eip: KnownEip) -> Iterator[Finding]:
    """Chains that drop who asks, who connects, or who answers: what was tried before what was only read."""
    tried = [*_walked(facts, eip)]
    yield from tried
    for chain, packet, judged in _judged(facts, eip):
        if not judged.drops or (tried and chain.family not in ("netdev", "arp", "bridge")):
            continue
        where = f"chain {chain.family} {chain.table} {chain.name} ({chain.hook}"
        what = f"drops {packet.words}, by {judged.drops}"
        if chain.family in ("netdev", "arp", "bridge"):
            words = f"{where} of {chain.device or 'every link'}) {what}: {eip.address}"
            yield Finding("frames_dropped", words, _look_at(chain), eip.address)
        else:
            yield Finding("firewall_drops", f"{where}) {what}", _look_at(chain), eip.address)


def _walked(facts: Facts, eip: KnownEip) -> Iterator[Finding]:
    for each in (walk for walk in facts.walks if walk.eip == eip.address):
        for whom, rule in (
            (f"who connects to TCP port {each.port}", each.dropped),
            ("the answer", each.answer_dropped),
        ):
            if rule:
                what = f"{rule}, drops {whom}: tried from {each.source}"
                chain = rule.partition(",")[0]
                yield Finding("firewall_drops", what, f"nft -a list {chain}   # and accept it there", eip.address)


def unseen_rules(facts: Facts, eip: KnownEip) -> Iterator[Unseen]:
    """Rules on which it depends whether packets of the EIP pass, and which are not understood."""
    for chain, packet, judged in _judged(facts, eip):
        for rule in judged.unseen:
            yield Unseen(f"{packet.words}, in chain {chain.family} {chain.table} {chain.name}", rule)


def _judged(facts: Facts, eip: KnownEip) -> Iterator[tuple[Chain, Packet, Judged]]:
    """Of each chain the first packet that it drops, or else those of which it cannot be told."""
    ruleset = Ruleset.of(facts.chains, facts.sets)
    for chain in (each for each in facts.chains if each.hook):
        frames = chain.family in ("netdev", "arp", "bridge")
        if frames and chain.device and eip.link not in chain.device.split(","):
            continue
        found = []
        for packet in _arriving(facts, eip) if frames else _passing(facts, eip, chain.hook):
            judged = ruleset.judge(chain, packet)
            if judged.drops:
                found = [(chain, packet, judged)]
                break
            found.append((chain, packet, judged))
        yield from found


def _look_at(chain: Chain) -> str:
    if any(text.startswith("-A ") for text in chain.texts):
        program = "iptables" if chain.family == "ip" else "ip6tables"
        legacy = "-legacy" if chain.table.startswith(OLD) else ""
        return f"{program}{legacy}-save -t {chain.table.removeprefix(OLD)}   # {chain.name}: accept it there"
    return f"nft -a list chain {chain.family} {chain.table} {chain.name}   # and accept it there"


def _arriving(facts: Facts, eip: KnownEip) -> Iterator[Packet]:
    if ip_address(eip.address).version == 4:
        yield arp_request(eip.address, eip.link)
    yield from _to_eip(facts, eip)


def _to_eip(facts: Facts, eip: KnownEip) -> Iterator[Packet]:
    for protocol, port in _ports(facts, eip):
        words = f"who connects to {protocol.upper()} port {port}"
        yield ip_packet(words, None, eip.address, protocol, {"dport": port, "iifname": eip.link})


def _ports(facts: Facts, eip: KnownEip) -> Iterator[tuple[str, int]]:
    for service in services_of(facts, eip):
        for written in service.ports:
            protocol, _, port = written.partition(" ")
            yield protocol.lower(), int(port)


_TO_EIP, _TO_ENDPOINT, _ANSWERS = "to the EIP", "to an endpoint", "answers"
_TRANSLATED = {"prerouting": (_TO_EIP, _ANSWERS), "forward": (_TO_ENDPOINT, _ANSWERS), "postrouting": (_TO_ENDPOINT,)}
_BY_IPVS = {
    "prerouting": (_TO_EIP, _ANSWERS),
    "input": (_TO_EIP,),
    "output": (_TO_ENDPOINT,),
    "postrouting": (_TO_ENDPOINT,),
    "forward": (_ANSWERS,),
}
"""What passes each hook; IPVS takes from input, and sends by output (docs/forwarding.md)."""


def _passing(facts: Facts, eip: KnownEip, hook: str) -> Iterator[Packet]:
    """What goes through: to the EIP first, to its endpoints behind the translation, and back."""
    ipvs = facts.knowledge.forwarder == "ipvs"
    passing = (_BY_IPVS if ipvs else _TRANSLATED).get(hook, ())
    family = "ip" if ip_address(eip.address).version == 4 else "ip6"
    original: dict[str, str | int] = {f"ct original {family} daddr": eip.address}
    if not ipvs:
        original["ct status"] = DNAT
    if _TO_EIP in passing:
        yield from _to_eip(facts, eip)
    for _, each in taking(facts, eip):
        protocol, link = each.protocol.lower(), way(facts, each.address)
        if _TO_ENDPOINT in passing:
            words = f"what goes to endpoint {each.address}"
            links = {"oifname": link} if ipvs else {"iifname": eip.link, "oifname": link}
            yield ip_packet(words, None, each.address, protocol, {"dport": each.port, **links, **original})
        if _ANSWERS in passing:
            words = f"what endpoint {each.address} answers"
            links = {"iifname": link} if hook == "prerouting" else {"iifname": link, "oifname": eip.link}
            yield ip_packet(words, each.address, None, protocol, {"sport": each.port, **links, **original}, ANSWER)


# ── the kernel's forwarding, and what is behind it ──


def in_kernel(facts: Facts, eip: KnownEip) -> Iterator[Finding]:
    if facts.knowledge.forwarder == "ipvs" and not facts.has_ipvs:
        yield Finding("ip_vs_missing", "this kernel has no IPVS", "modprobe ip_vs", eip.address)
    elif eip.missing:
        what = f"the kernel lacks {some(eip.missing)}: somebody else removed it; it is put back within seconds"
        yield Finding("not_in_kernel", what, "nft monitor   # who removes it?", eip.address)


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
                f"{each.address} of {service.key} is reached over {eip.link}, and keeps the client's address"
                " (externalTrafficPolicy: Local): it answers clients past this node"
            )
            own = next((b.address for b in facts.bound if b.link == eip.link and not b.secondary), "this node")
            mend = f"ip route replace default via {own}   # on {each.address}; or traffic policy Cluster"
            yield Finding("no_way_back", what, mend, eip.address)


def _answers_past_us(facts: Facts, eip: KnownEip, service: KnownService, endpoint: KnownEndpoint) -> bool:
    """Without masquerade, and on the clients' own segment. It is one of those that this node would use."""
    known = facts.knowledge
    if known.forwarder in ("none", "assist") or endpoint.node != known.node or service.policy != "Local":
        return False
    return eip.mine and way(facts, endpoint.address) == eip.link
