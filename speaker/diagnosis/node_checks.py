"""What is wrong with a node, whichever EIP is asked about. Pure: facts in, findings out."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address

from speaker.allocator.pools import names as offers
from speaker.api.addresses import parse_range
from speaker.api.fields import some
from speaker.checks import NO_RIGHT, Finding
from speaker.diagnosis.eip_checks import bound_here
from speaker.diagnosis.facts import Back, Facts, Unseen
from speaker.errors import shown
from speaker.forwarding.sysctl import reverse_path
from speaker.model import IPAddress
from speaker.node.known.knowledge import KnownEip
from speaker.node.problems import FIND_FILTER

FRESH = 3.0
"""Seconds for which a hello that could not be read is recent."""
CLOCKS = 60.0
"""How many seconds in our future a peer's start may be."""
_NET_ADMIN, _NET_RAW = 12, 13


def speaker(facts: Facts) -> Iterator[Finding]:
    """Whether it runs, and can do its work."""
    process = facts.process
    if facts.known is None and process.hidden:
        asking = ["explain", facts.about] if facts.about else ["doctor"]
        mend = f"{shlex.join(['sudo', 'speaker', *asking])}   # or as the user that the speaker runs as"
        yield Finding(NO_RIGHT, process.words, mend)
    elif process.state and process.state in "Tt":
        what = f"the speaker's process {process.pid} is stopped (state {process.state}): it answers for nothing"
        yield Finding("speaker_frozen", what, f"kill -CONT -$(ps -o pgid= -p {process.pid} | tr -d ' ')")
    elif facts.known is None and not process.pid and facts.forwarder == "ipvs" and not facts.has_ipvs:
        yield Finding("ip_vs_missing", f"this kernel has no IPVS, and {process.words}", "modprobe ip_vs")
    elif facts.known is None and not process.pid:
        words = process.words or "nobody listens on its control socket"
        yield Finding("speaker_gone", words, "systemctl start eip-speaker   # or look in its log for why it ended")
    elif facts.known is None and process.busy:
        what = f"the speaker{f' (process {process.pid})' if process.pid else ''} works, but is slow: {process.words}"
        yield Finding("speaker_slow", what, "uptime; top -b -n 1 | head -15   # what uses the CPU? Then look again")
    elif facts.known is None:
        what = f"the speaker (process {process.pid}) does not answer: {process.words}"
        yield Finding("speaker_silent", what, f"cat /proc/{process.pid}/stack; systemctl restart eip-speaker")
    if process.capabilities is not None and facts.known is not None:
        yield from _rights(process.capabilities, facts.known.forwarder)


def _rights(capabilities: int, forwarder: str) -> Iterator[Finding]:
    needed = {"CAP_NET_RAW": _NET_RAW} | ({} if forwarder == "none" else {"CAP_NET_ADMIN": _NET_ADMIN})
    for name, bit in needed.items():
        if not capabilities >> bit & 1:
            mend = f"systemctl edit eip-speaker   # AmbientCapabilities={name}; in a pod: securityContext.capabilities"
            yield Finding("capabilities", f"the speaker runs without {name}", mend)


def told(facts: Facts) -> Iterator[Finding]:
    """The running speaker's findings, except those that are checked better here: strangers, who are asked for;
    firewalls, whose rules were read; and reverse path filters, if the answers are lost anyway."""
    looked_at = {"stranger"} | ({"drop_policy"} if facts.chains else set())
    looked_at |= {"reverse_path"} if any(answers_elsewhere(facts)) else set()
    for each in facts.knowledge.problems:
        if each.kind not in looked_at:
            yield replace(each, what=shown(each.what))


def answers_elsewhere(facts: Facts, *eips: str) -> Iterator[Finding]:
    """The kernel sends answers of these EIPs (or of all) by a link that leads to nobody. The same mend helps against a
    strict reverse path filter."""
    given = _marks_given(facts)
    for eip in facts.knowledge.eips.first:
        for back in facts.backs:
            if back.eip != eip.address or given & set(back.marks) or (eips and back.eip not in eips):
                continue
            if not back.lost:
                yield from _refused(facts, eip, back)
                continue
            where = f"behind the gateway of {eip.link}" if back.beyond else f"on {eip.link}"
            how = f"by {back.link}, {back.lost}" if back.link else f"nowhere: {back.lost}"
            what = f"the kernel sends answers to clients {where} {how}, so they get none"
            yield Finding("answers_elsewhere", what, _back_to(facts, eip.link, beyond=back.beyond))


def _refused(facts: Facts, eip: KnownEip, back: Back) -> Iterator[Finding]:
    """What a client sends gets no further, although its answers would reach it."""
    strict = [*reverse_path([eip.link], back.link, 0, facts.setting)]
    if back.refused and not strict:
        where = f"behind the gateway of {eip.link}" if back.beyond else f"on {eip.link}"
        what = f"the kernel sends packets of clients {where} nowhere: {back.refused}, so they get no answer"
        mend = "ip rule show; ip route show table all   # which of them refuses those?"
        yield Finding("answers_elsewhere", what, mend)
    yield from strict if back.refused else ()


def astray(facts: Facts) -> Iterator[Unseen]:
    """Marks that rules give, and with which a packet of an EIP is lost."""
    for back in facts.backs:
        for mark in sorted(_marks_given(facts) & {*back.astray}):
            yield Unseen(f"packets of {back.eip} with the mark 0x{mark:x}", "ip rule show   # sends these nowhere")


def _back_to(facts: Facts, link: str, *, beyond: bool) -> str:
    if not beyond:
        return f"ip route show; ip rule show   # route the subnet of {link} by {link} again"
    gateway = next((address for name, address in facts.gateways if name == link), "GATEWAY")
    return (
        f"ip rule show; ip route show table all   # for the clients' network NET: ip route add NET via {gateway} "
        f"dev {link} table 101; ip rule add priority 100 to NET lookup 101"
    )


_SETS_MARK, _NUMBER = re.compile(r"mark set|set-x?mark|or-mark"), re.compile(r"\b(0x[0-9a-f]+|[0-9]+)\b")


def _marks_given(facts: Facts) -> frozenset[int]:
    """Numbers in rules that set marks."""
    giving = (text for chain in facts.chains for text in chain.texts if _SETS_MARK.search(text))
    return frozenset(int(number, 0 if "x" in number else 10) for text in giving for number in _NUMBER.findall(text))


def peers(facts: Facts) -> Iterator[Finding]:
    """Peers that should be heard but are not, or whose hellos do not fit ours."""
    known = facts.knowledge
    if not known.hello_ms:
        return
    yield from _ethertypes(facts)
    for rejected in known.rejected:
        if rejected.reason in ("wrong_key", "version") and rejected.ago < FRESH:
            heard = {peer.node for peer in known.peers if peer.heard}
            senders = [seen.node for seen in facts.hellos if seen.link == rejected.link and seen.node not in heard]
            whose = f" (they claim to be from {some(senders)})" if senders else ""
            what = f"hellos on {rejected.link} are signed with another key{whose}"
            mend = "sha256sum /etc/speaker/key   # on both: copy it, with its mode, so that all are the same"
            yield Finding("wrong_key", what, mend)
    for peer in known.peers:
        if peer.hello_ms not in (0, known.hello_ms) and peer.alive:
            what = f"{shown(peer.node)} sends hellos every {peer.hello_ms} ms, this node every {known.hello_ms} ms"
            mend = f"systemctl edit eip-speaker   # --hello {known.hello_ms}, the same on all hosts"
            yield Finding("other_hello", what, mend)
        if peer.began > facts.now + CLOCKS:
            ahead = round(peer.began - facts.now)
            what = f"the speaker of {shown(peer.node)} began {ahead} s in the future by this node's clock"
            yield Finding("clock_apart", what, "chronyc tracking   # on both: which clock is wrong?")
    yield from _unheard(facts)
    yield from _silent(facts)


def _unheard(facts: Facts) -> Iterator[Finding]:
    """Peers whose hellos are missing but which answer for their EIPs. The speaker itself waits longer before it reports
    this."""
    for peer in facts.knowledge.peers:
        if not peer.alive or peer.heard or any(hello.mac == peer.mac for hello in facts.hellos):
            continue
        held = [eip.address for eip in facts.knowledge.eips.first if eip.holder == peer.node]
        answered = [each.address for each in facts.asked if each.address in held and peer.mac in each.macs]
        if answered and not any(facts.told("hellos_filtered")):
            what = (
                f"{shown(peer.node)} ({peer.mac}) on {peer.link} answers for {some(answered)}, but none of its hellos"
                " arrives here"
            )
            yield Finding("hellos_filtered", what, FIND_FILTER)


def _ethertypes(facts: Facts) -> Iterator[Finding]:
    own = facts.knowledge.ethertype
    for seen in facts.hellos:
        if seen.ethertype != own:
            what = (
                f"{seen.node or 'somebody'} ({seen.mac}) on {seen.link} sends hellos with EtherType"
                f" 0x{seen.ethertype:04X}, this node with 0x{own:04X}: they do not hear each other"
            )
            mend = f"systemctl edit eip-speaker   # --ethertype 0x{own:04X}, the same on all hosts"
            yield Finding("other_ethertype", what, mend)


def _silent(facts: Facts) -> Iterator[Finding]:
    """A peer that fell silent without announcing it. Its host may be well."""
    for peer in facts.knowledge.peers:
        if peer.alive or peer.draining or any(each.node == peer.node and each.alive for each in facts.knowledge.peers):
            continue
        there = next((asked for asked in facts.asked if asked.address in peer.addresses and asked.macs), None)
        seen = any(hello.mac == peer.mac and hello.link == peer.link for hello in facts.hellos)
        name = shown(peer.node)
        if seen:
            what = f"hellos of {name} arrive on {peer.link}, but the speaker does not get them"
            yield Finding("hellos_filtered", what, "nft list ruleset   # what drops them after they arrive?")
        elif there is not None:
            what = f"{name} sends no hellos on {peer.link}, but its host answers there: is its speaker running?"
            yield Finding("peer_silent", what, "speaker doctor   # on that host")
        else:
            asked = any(each.address in peer.addresses for each in facts.asked)
            what = f"{name} is silent on {peer.link}{', and so is its host' if asked else ''}"
            yield Finding("peer_silent", what, f"ping {some(peer.addresses, 1)}")


def drops(facts: Facts) -> Iterator[Finding]:
    """Packets that the kernel dropped during this check."""
    if facts.drops.reverse_path and not any(answers_elsewhere(facts)):
        yield from reverse_path(facts.knowledge.links, "", facts.drops.reverse_path, facts.setting)
    if facts.drops.martian:
        what = f"{facts.drops.martian} packets from an EIP bound on this host arrived during the check and were dropped"
        yield Finding("martian_source", what, "sysctl -w net.ipv4.conf.all.log_martians=1; dmesg | grep martian")


def links(facts: Facts) -> Iterator[Finding]:
    """Two links in one subnet."""
    able = [link for link in facts.links if link.ethernet and link.up and link.kind not in ("loopback", "dummy")]
    for at, one in enumerate(able):
        for other in able[at + 1 :]:
            if {one.name, other.name} & set(facts.knowledge.links) and (both := set(one.subnets) & set(other.subnets)):
                what = f"{one.name} and {other.name} are both in {some(sorted(both))}"
                unset = [*_unset(facts, one.name, other.name)]
                if unset:
                    what += ", and answers leave by the first of them even when its cable is unplugged"
                    yield Finding("one_subnet", what, f"sysctl -w {' '.join(unset)}")


def _unset(facts: Facts, *links: str) -> Iterator[str]:
    """Settings for two links in one subnet: answer by the link that was asked, and never into an unplugged cable."""
    for name, least in (("arp_ignore", 1), ("arp_announce", 2)):
        values = [max(int(facts.setting("net.ipv4.conf", of, name) or 0) for of in ("all", link)) for link in links]
        if min(values) < least:
            yield f"net.ipv4.conf.all.{name}={least}"
    for link in links:
        if facts.setting("net.ipv4.conf", link, "ignore_routes_with_linkdown") != "1":
            yield f"net.ipv4.conf.{link}.ignore_routes_with_linkdown=1"


def wireless(facts: Facts) -> Iterator[Finding]:
    for link in facts.links:
        if link.wireless and link.name in facts.knowledge.links:
            what = f"{link.name} is a wireless link, and EIPs are announced on it"
            mend = "kubectl get eip -o wide   # give those pools a wired link as spec.interface"
            yield Finding("wireless", what, mend)


_CALL = {4: "net.bridge.bridge-nf-call-iptables", 6: "net.bridge.bridge-nf-call-ip6tables"}


def bridges(facts: Facts) -> Iterator[Finding]:
    """Bridges with endpoints of this node behind them. This is about pods on the same bridge."""
    known = facts.knowledge
    all_ = (each for service in known.services.first for each in service.endpoints.first)
    here = {each.address for each in all_ if each.node == known.node}
    for link in facts.links:
        behind = [way.to for way in facts.ways if way.link == link.name and way.to in here]
        if link.kind != "bridge" or not behind:
            continue
        versions = {ip_address(address).version for address in behind}
        unset = [_CALL[version] for version in sorted(versions) if facts.sysctls.get(_CALL[version]) != "1"]
        if unset:
            what = (
                f"{some(behind)} is behind the bridge {link.name}, and {' and '.join(unset)} is not 1: its answers to "
                "pods beside it bypass the translation"
            )
            mend = f"modprobe br_netfilter; sysctl -w {' '.join(f'{name}=1' for name in unset)}"
            yield Finding("bridge_unfiltered", what, mend)
        elif link.deaf_ports:
            what = (
                f"ports of {link.name} without hairpin mode ({some(link.deaf_ports)}): no endpoint there reaches itself"
            )
            yield Finding("no_hairpin", what, f"bridge link set dev {link.deaf_ports[0]} hairpin on   # and in the CNI")


def releases(facts: Facts) -> Iterator[Finding]:
    if facts.knowledge.version and facts.knowledge.version != facts.version:
        what = f"the running speaker is {shown(facts.knowledge.version)}, but this program is {shown(facts.version)}"
        yield Finding("versions_apart", what, "systemctl restart eip-speaker   # it hands over first")


def free_addresses(facts: Facts) -> Iterator[Finding]:
    """Addresses of pools that other hosts have: a Service that gets one would share it. If a speaker answers for one,
    it may have become an EIP meanwhile."""
    speakers = facts.own_macs | {peer.mac for peer in facts.knowledge.peers}
    for asked in facts.asked:
        macs = [mac for mac in asked.macs if asked.what != "free" or mac not in speakers]
        if asked.what != "eip" and macs and (name := _pool_of(facts, ip_address(asked.address))) is not None:
            whose = "a gateway" if asked.what == "gateway" else "another host" if asked.what == "free" else "a peer"
            what = f"{asked.address} of pool {name} belongs to {whose}: {some(macs)} on {asked.link} answers for it"
            mend = f"kubectl edit eip {name}   # spec.exclude: {asked.address}"
            yield Finding("address_in_use", what, mend)


def own_addresses(facts: Facts) -> Iterator[Finding]:
    """Addresses of pools that are this host's own: a Service that gets one is not served."""
    for bound in facts.bound:
        if _pool_of(facts, ip_address(bound.address)) is not None:
            yield from bound_here(facts, bound.address)


def _pool_of(facts: Facts, address: IPAddress) -> str | None:
    for pool in facts.knowledge.pools.first:
        exclude = pool.exclude.whole
        if exclude is None or offers(map(parse_range, exclude), address):
            continue
        if offers(map(parse_range, pool.addresses.first), address):
            return pool.name
    return None


def gateways(facts: Facts) -> Iterator[Finding]:
    """Links whose gateways of one family are all silent."""
    asked = [(each, (each.link, ip_address(each.address).version)) for each in facts.asked if each.what == "gateway"]
    for link, version in dict.fromkeys(family for _, family in asked):
        there = [each for each, family in asked if family == (link, version)]
        if not any(each.macs for each in there):
            what = f"no IPv{version} gateway of {link} answers ({some([each.address for each in there])})"
            yield Finding("gateway_silent", what, f"ip neigh show dev {link}; ip route get {there[0].address}")
