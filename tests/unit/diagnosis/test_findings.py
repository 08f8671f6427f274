"""Every kind of finding, by the least that is wrong: it is named first, by the doctor and where an EIP is explained."""

import re
import subprocess
from dataclasses import replace

import pytest
from healthy import ELSEWHERE, NOW, OWN, matching, of

from speaker.checks import KINDS, Finding, Severity
from speaker.diagnosis.chain import State, explain, findings
from speaker.diagnosis.facts import (
    ANYWHERE,
    Asked,
    Back,
    Bound,
    Chain,
    Drops,
    Facts,
    HelloSeen,
    LinkSeen,
    Process,
    Tried,
    Unseen,
    Walked,
    Way,
)
from speaker.diagnosis.firewall import chains as saved
from speaker.node.known.knowledge import (
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

EIP, PEER, PEERS_MAC, STRANGER = "192.0.2.200", "192.0.2.12", "02:00:00:01:00:12", "02:00:00:09:00:66"

HELD = KnownEip(
    EIP, ("lab/web",), "lan", True, "n1", 3, NOW, "claimed", "interface: eth0", "eth0", OWN,
    candidates=(Candidate("n1", True, "may hold it"), Candidate("n2", True, "heard on eth0")),
    servers=("TCP 192.0.2.200:80 rr",),
)  # fmt: skip
HELD_BY_PEER = replace(HELD, mine=False, holder="n2", since=None)
POD = KnownEndpoint("10.244.1.11", 8080, "TCP", "n1", True, True)
WEB = KnownService("lab/web", ("TCP 80",), ("IPv4",), "Cluster", (EIP,), ("lan",), Cut((POD,)))
LAN = KnownPool("lan", Cut(("192.0.2.200-192.0.2.209",)), Cut(), "interface: eth0", "", False, 10, 1)
N2 = KnownPeer("n2", "eth0", True, False, True, True, 100, int(NOW) - 60, PEERS_MAC, (PEER,))
KNOWN = Knowledge(
    "n1", "nftables", 100, 0x88B5, ready=True, in_force=True, eips=Cut((HELD,)), services=Cut((WEB,)),
    pools=Cut((LAN,)), peers=(N2,), links=("eth0",), families=("IPv4",),
)  # fmt: skip
ETH0 = LinkSeen("eth0", OWN, True, True, "veth", subnets=("192.0.2.0/24",))
WELL = Facts(
    EIP,
    now=NOW,
    process=Process("", 4711, "S", 0x3000),
    known=KNOWN,
    links=(ETH0,),
    bound=(Bound("eth0", "192.0.2.11", 24),),
    asked=(Asked(EIP, "eth0", "eip"), Asked(PEER, "eth0", "peer", (PEERS_MAC,))),
    tried=(Tried(POD.address, POD.port, True),),
    hellos=(HelloSeen("eth0", 0x88B5, PEERS_MAC, "n2"),),
    sysctls={"net.ipv4.ip_forward": "1"},
    ways=(Way(ANYWHERE, "eth0"), Way(POD.address, "pods")),
)


NOTHING = {"eips": Cut(), "services": Cut(), "pools": Cut()}


def known(**changes) -> Facts:
    return replace(WELL, known=replace(KNOWN, **changes))


def eip(**changes) -> Facts:
    return known(eips=Cut((replace(HELD, **changes),)))


def not_here(reason: str) -> Facts:
    own = {"reason": reason, "message": f"eth0: {reason}", "link": "", "mac": "", "mine": False, "holder": None}
    return replace(eip(**own), asked=())


def service(**changes) -> Facts:
    return known(services=Cut((replace(WEB, **changes),)))


def peer(**changes) -> Facts:
    return known(peers=(replace(N2, **changes),))


def told(kind: str, sentence: str = "as the speaker says", eip: str = "") -> Facts:
    """By the running speaker."""
    return known(problems=(Finding(kind, sentence, "a mend", eip),))


def answered(*macs: str, held: KnownEip = HELD) -> Facts:
    found = known(eips=Cut((held,)))
    return replace(found, asked=(Asked(EIP, "eth0", "eip", macs), *WELL.asked[1:]))


def chained(family: str, hook: str, *rules, policy: str = "accept", priority: int = 0, nat: bool = False) -> Facts:
    device = "eth0" if family == "netdev" else ""
    return replace(WELL, chains=(Chain(family, "fw", "f", hook, policy, device, rules, (), priority, nat),))


def with_ipvs(facts: Facts) -> Facts:
    return replace(facts, has_ipvs=True, known=replace(KNOWN, forwarder="ipvs"))


def by_tunnel(*texts: str, marks: tuple[int, ...] = ()) -> Facts:
    """Rules have these texts."""
    chains = (Chain("inet", "fw", "f", "prerouting", "accept", "", ([{"mangle": {}}],) * len(texts), texts),)
    back = Back(EIP, True, "wg0", "which is not an Ethernet link (a tunnel?)", marks)
    return replace(WELL, backs=(Back(EIP, False, "eth0"), back), chains=chains)


SILENT = replace(N2, alive=False, heard=False)
TARGET = KnownPool("lan", LAN.addresses, Cut(), "interface: can_reach:192.0.2.77", "192.0.2.77", False, 10, 1)

FOUND = {
    # Those that concern an EIP: explained, and found by the doctor.
    "frozen": (replace(WELL, known=None, process=Process("late", 4711, "T")), "speaker_frozen"),
    "gone": (replace(WELL, known=None, process=Process("no speaker runs here")), "speaker_gone"),
    "slow": (replace(WELL, known=None, process=Process("late", 4711, "S", busy=True)), "speaker_slow"),
    "silent": (replace(WELL, known=None, process=Process("late", 4711, "S")), "speaker_silent"),
    "no right to send": (replace(WELL, process=Process("", 1, "S", 0x1000)), "capabilities"),
    "no right to forward": (replace(WELL, process=Process("", 1, "S", 0x2000)), "capabilities"),
    "bad manifests": (
        replace(known(**NOTHING, problems=told("bad_manifests").known.problems), about="lab/web"),
        "bad_manifests",
    ),
    "name clash": (told("name_clash"), "name_clash"),
    "bound as secondary": (replace(WELL, bound=(Bound("eth0", EIP, 24, True),)), "bound_secondary"),
    "a host's own": (replace(WELL, bound=(Bound("eth0", EIP, 32),)), "host_address"),
    "a peer's own": (told("host_address", f"{EIP}: node n2 says that it is its own address", EIP), "host_address"),
    "pool full": (service(refused="pool_full", message="pool has no free address", addresses=()), "pool_full"),
    "not in a pool": (service(refused="address_not_in_pool", message="no", addresses=()), "address_not_in_pool"),
    "refused otherwise": (service(refused="share_key", message="no", addresses=()), "refused"),
    "no such link": (not_here("no_such_link"), "no_such_link"),
    "no carrier": (not_here("no_carrier"), "no_carrier"),
    "no carrier here, held there": (
        known(eips=Cut((replace(HELD_BY_PEER, reason="no_carrier", message="eth0: it has no carrier", link=""),))),
        "no_carrier",
    ),
    "link down": (not_here("link_down"), "link_down"),
    "no route": (not_here("no_route"), "no_route"),
    "no subnet": (not_here("no_subnet"), "no_subnet"),
    "a port of a bridge": (not_here("port"), "no_link"),
    "no local endpoint": (not_here("no_local_endpoint"), "no_local_endpoint"),
    "excluded": (not_here("node_excluded"), "node_excluded"),
    "not selected": (not_here("node_not_selected"), "node_not_selected"),
    "not forwarded": (not_here("not_forwarded"), "not_forwarded"),
    "unknown pool": (not_here("pool_unknown"), "not_eligible"),
    "no endpoint": (service(endpoints=Cut()), "no_endpoint"),
    "none ready": (service(endpoints=Cut((replace(POD, ready=False, takes_new=False),))), "none_ready"),
    "all unwell": (told("all_unwell", eip=EIP), "all_unwell"),
    "one unwell": (told("endpoint_unwell", eip=EIP), "endpoint_unwell"),
    "drained": (
        replace(
            known(draining=True, peers=(), eips=Cut((replace(HELD, mine=False, holder=None, candidates=()),))),
            hellos=(),
        ),
        "draining",
    ),
    "nobody holds it": (eip(mine=False, holder=None), "nobody_holds"),
    "another EtherType": (replace(WELL, hellos=(HelloSeen("eth0", 0x88B6, PEERS_MAC, "n2"),)), "other_ethertype"),
    "another key": (known(rejected=(Rejected("eth0", "wrong_key", 0.1),)), "wrong_key"),
    "another pace": (peer(hello_ms=300), "other_hello"),
    "another clock": (peer(began=int(NOW) + 3600), "clock_apart"),
    "filtered": (told("hellos_filtered"), "hellos_filtered"),
    "filtered, as the wire says": (
        replace(
            known(peers=(replace(N2, heard=False),), eips=Cut((HELD_BY_PEER,))),
            hellos=(),
            asked=(Asked(EIP, "eth0", "eip", (PEERS_MAC,)), *WELL.asked[1:]),
        ),
        "hellos_filtered",
    ),
    "filtered behind the link": (known(peers=(SILENT,)), "hellos_filtered"),
    "the kernel answers": (replace(WELL, bound=(Bound("kube-ipvs0", EIP, 32),)), "kernel_answers"),
    "ARP dropped": (chained("netdev", "ingress", matching(of("arp", "daddr ip"), "==", EIP, "drop")), "frames_dropped"),
    "a peer answers too": (answered(PEERS_MAC), "peer_answers"),
    "a stranger answers": (answered(STRANGER), "stranger"),
    "a stranger beside the holder": (answered(PEERS_MAC, STRANGER, held=HELD_BY_PEER), "stranger"),
    "a stranger that spoke": (replace(told("stranger", f"{STRANGER} uses it", EIP), asked=()), "stranger"),
    "the holder does not answer": (
        replace(answered(held=HELD_BY_PEER), asked=(Asked(EIP, "eth0", "eip"), Asked(PEER, "eth0", "peer"))),
        "not_answered",
    ),
    "the holder answers for itself alone": (answered(held=HELD_BY_PEER), "port_security"),
    "the holder answers by unicast alone": (
        replace(answered(held=HELD_BY_PEER), asked=(Asked(EIP, "eth0", "eip", unicast=True), *WELL.asked[1:])),
        "multicast_lost",
    ),
    "the target is silent": (
        replace(known(pools=Cut((TARGET,))), asked=(*WELL.asked, Asked("192.0.2.77", "eth0", "target"))),
        "target_silent",
    ),
    "the gateway is silent": (
        replace(WELL, asked=(*WELL.asked, Asked("192.0.2.1", "eth0", "gateway"))),
        "gateway_silent",
    ),
    "not forwarding": (told("forwarding_off"), "forwarding_off"),
    "a policy drops, and its rules are not seen": (told("drop_policy"), "drop_policy"),
    "a policy drops": (chained("ip", "forward", policy="drop"), "firewall_drops"),
    "a rule drops the way in": (
        chained("inet", "forward", matching(of("ip", "daddr"), "==", POD.address, "drop")),
        "firewall_drops",
    ),
    "a rule drops the way out": (
        chained("inet", "forward", matching(of("ip", "saddr"), "==", POD.address, "drop")),
        "firewall_drops",
    ),
    "a rule rejects the port": (
        chained("inet", "prerouting", matching(of("tcp", "dport"), "==", 80, "reject"), priority=-150),
        "firewall_drops",
    ),
    "a rule behind the translation drops the way in": (
        chained("inet", "prerouting", matching(of("tcp", "dport"), "==", POD.port, "drop")),
        "firewall_drops",
    ),
    "a rule behind the translation drops the answer": (
        chained("inet", "postrouting", matching(of("tcp", "sport"), "==", 80, "drop"), priority=300),
        "firewall_drops",
    ),
    "another's translation drops": (
        chained("ip", "prerouting", [{"drop": None}], priority=-150, nat=True),
        "firewall_drops",
    ),
    "another's translation comes first": (
        chained("ip", "prerouting", [{"dnat": {"addr": "10.9.9.9"}}], priority=-150, nat=True),
        "firewall_drops",
    ),
    "a proxy takes the port": (
        chained("ip", "prerouting", [{"redirect": None}], priority=-150, nat=True),
        "firewall_drops",
    ),
    "with IPVS: another's translation takes the port": (
        with_ipvs(chained("ip", "prerouting", [{"dnat": {"addr": "10.9.9.9"}}], priority=-100, nat=True)),
        "firewall_drops",
    ),
    "what connects is not tracked": (chained("ip", "prerouting", [{"notrack": None}], priority=-300), "firewall_drops"),
    "answers do not leave the link": (
        chained("netdev", "egress", matching(of("tcp", "sport"), "==", 80, "drop")),
        "frames_dropped",
    ),
    "answers by ARP do not leave the link": (
        chained("netdev", "egress", matching(of("arp", "operation"), "==", 2, "drop")),
        "frames_dropped",
    ),
    "neighbours of this host are not heard": (chained("arp", "input", policy="drop"), "frames_dropped"),
    "this host does not ask its neighbours": (chained("arp", "output", policy="drop"), "frames_dropped"),
    "with IPVS: a rule drops what comes in": (
        with_ipvs(chained("inet", "input", matching(of("tcp", "dport"), "==", 80, "drop"))),
        "firewall_drops",
    ),
    "with IPVS: a rule drops the way in": (
        with_ipvs(chained("inet", "output", matching(of("ip", "daddr"), "==", POD.address, "drop"))),
        "firewall_drops",
    ),
    "with IPVS: a rule drops the way out": (
        with_ipvs(chained("inet", "forward", matching(of("ip", "saddr"), "==", POD.address, "drop"))),
        "firewall_drops",
    ),
    "a connection that was tried is dropped": (
        replace(WELL, walks=(Walked(EIP, 80, "192.0.2.254", "chain inet fw f, by its policy"),)),
        "firewall_drops",
    ),
    "its answer is dropped": (
        replace(WELL, walks=(Walked(EIP, 80, "192.0.2.254", "", "", True, "chain inet fw f, by drop"),)),
        "firewall_drops",
    ),
    "answers leave by a tunnel": (by_tunnel(), "answers_elsewhere"),
    "answers leave by a tunnel, and the filter is strict": (
        replace(by_tunnel(), known=told("reverse_path").known, drops=Drops(0, 9)),
        "answers_elsewhere",
    ),
    "answers into a cable that is out": (
        replace(WELL, backs=(Back(EIP, False, "eth1", "which has no carrier"),)),
        "answers_elsewhere",
    ),
    "a strict reverse path": (told("reverse_path"), "reverse_path"),
    "a strict reverse path that drops while it is looked": (
        replace(WELL, sysctls={"net.ipv4.conf.eth0.rp_filter": "1"}, drops=Drops(reverse_path=2)),
        "reverse_path",
    ),
    "martians": (
        replace(
            WELL,
            drops=Drops(martian=3),
            bound=(Bound("eip-speaker0", EIP, 32),),
            sysctls={"net.ipv4.ip_forward": "1", "net.ipv4.conf.all.arp_ignore": "1"},
        ),
        "martian_source",
    ),
    "conntrack full": (told("conntrack_full"), "conntrack_full"),
    "IPVS crowded": (told("table_crowded"), "table_crowded"),
    "IPVS set otherwise": (told("ipvs_settings"), "ipvs_settings"),
    "another forwarder's rules": (told("left_behind"), "left_behind"),
    "a sick link": (told("sick_link"), "sick_link"),
    "no IPVS, and no speaker": (
        replace(WELL, known=None, forwarder="ipvs", process=Process("no speaker runs here")),
        "ip_vs_missing",
    ),
    "no IPVS": (known(forwarder="ipvs"), "ip_vs_missing"),
    "not in the kernel": (eip(missing=("+ TCP 192.0.2.200:80 rr",)), "not_in_kernel"),
    "set aside": (told("not_in_kernel"), "not_in_kernel"),
    "kube-proxy has no rules": (told("kube_proxy", eip=EIP), "kube_proxy"),
    "kube-proxy answers ARP": (told("kernel_answers"), "kernel_answers"),
    "nothing listens": (replace(WELL, tried=(Tried(POD.address, 8080, False, "refused"),)), "backend_refuses"),
    "a pod is down": (replace(WELL, tried=(Tried(POD.address, 8080, False, "no answer"),)), "backend_silent"),
    "no way back": (
        replace(service(policy="Local"), ways=(Way(ANYWHERE, "eth0"), Way(POD.address, "eth0"))),
        "no_way_back",
    ),
}  # fmt: skip

CNI0 = LinkSeen("cni0", ELSEWHERE, True, True, "bridge")
CALLED = {"net.ipv4.ip_forward": "1", "net.bridge.bridge-nf-call-iptables": "1"}


def behind_bridge(**changes) -> Facts:
    return replace(WELL, links=(ETH0, CNI0), ways=(Way(ANYWHERE, "eth0"), Way(POD.address, "cni0")), **changes)


ONLY_THE_DOCTOR = {
    "health checks are late": (told("checks_late"), "checks_late"),
    "pods behind a bridge that the firewall does not see": (behind_bridge(), "bridge_unfiltered"),
    "a bridge that the firewall is told not to see": (
        behind_bridge(sysctls=CALLED | {"net.bridge.bridge-nf-call-iptables": "0"}),
        "bridge_unfiltered",
    ),
    "no hairpin": (
        replace(behind_bridge(sysctls=CALLED), links=(ETH0, replace(CNI0, deaf_ports=("veth1",)))),
        "no_hairpin",
    ),
    "no cable": (replace(WELL, links=(replace(ETH0, wireless=True),)), "wireless"),
    "another release runs": (replace(known(version="1.0"), version="1.1"), "versions_apart"),
    "a peer's speaker is gone": (replace(known(peers=(SILENT,)), hellos=()), "peer_silent"),
    "a peer's host is gone": (replace(known(peers=(SILENT,)), hellos=(), asked=WELL.asked[:1]), "peer_silent"),
    "two links in one subnet": (
        replace(WELL, links=(ETH0, replace(ETH0, name="eth1", mac=ELSEWHERE))),
        "one_subnet",
    ),
    "a free address is this host's own": (
        replace(WELL, bound=(Bound("eth0", "192.0.2.207", 32),)),
        "host_address",
    ),
    "a free address is used": (
        replace(WELL, asked=(*WELL.asked, Asked("192.0.2.207", "eth0", "free", (STRANGER,)))),
        "address_in_use",
    ),
    "bad manifests while it serves": (told("bad_manifests", "lan.yaml:3: wrong"), "bad_manifests"),
    "the API is silent": (told("api_silent"), "api_silent"),
    "a node that nobody hears": (told("mute"), "mute"),
    "a peer that does not hear": (told("deaf_peer"), "deaf_peer"),
    "no broadcasts": (told("no_broadcasts"), "no_broadcasts"),
    "a storm limit": (told("hellos_lost"), "hellos_lost"),
    "nobody to take over": (told("no_peers"), "no_peers"),
    "late hellos": (told("late_hellos"), "late_hellos"),
    "no priority": (told("no_real_time"), "no_real_time"),
    "a limit that is not set": (told("conntrack_max"), "conntrack_max"),
    "a bug": (told("internal_error"), "internal_error"),
    "an edge fails": (told("edge_fails"), "edge_fails"),
}
ONLY_EXPLAINED = {
    "the API never answered": (
        known(
            eips=Cut(),
            services=Cut(),
            pools=Cut(),
            in_force=False,
            problems=told("api_silent").known.problems,
        ),
        "api_silent",
    ),
    "a Service nobody knows": (replace(known(**NOTHING), about="lab/no"), "not_asked"),
    "an address of a pool that nobody asks for": (
        replace(known(eips=Cut(), services=Cut()), about="192.0.2.209"),
        "not_asked",
    ),
    "one that is bound here": (
        replace(known(eips=Cut(), services=Cut()), bound=(Bound("eth0", EIP, 24, True),)),
        "bound_secondary",
    ),
    "an address nobody knows": (
        replace(known(**NOTHING), about="192.0.2.99"),
        "address_not_in_pool",
    ),
    "a pool nobody knows": (replace(known(**NOTHING), about="no"), "not_asked"),
}


@pytest.mark.parametrize(
    "facts",
    [
        behind_bridge(sysctls=CALLED),
        replace(
            behind_bridge(),
            known=replace(KNOWN, services=Cut((replace(WEB, endpoints=Cut((replace(POD, node="n2"),))),))),
        ),
        replace(WELL, links=(ETH0, replace(CNI0, deaf_ports=("veth1",)))),
        replace(WELL, links=(ETH0, replace(ETH0, name="wlan0", mac=ELSEWHERE, subnets=(), wireless=True))),
        replace(known(version="1.0"), version="1.0"),
    ],
    ids=[
        "a bridge as it should be",
        "pods elsewhere",
        "a bridge of others",
        "a wireless link of others",
        "one release",
    ],
)
def test_what_is_no_trouble_here_is_not_named(facts):
    assert findings(facts) == []


def test_a_holder_that_is_not_heard_says_nothing_of_what_lies_between():
    gone = replace(answered(held=HELD_BY_PEER), known=replace(KNOWN, eips=Cut((HELD_BY_PEER,)), peers=(SILENT,)))
    kinds = {finding.kind for finding in findings(gone)}
    assert "not_answered" in kinds
    assert "port_security" not in kinds


def test_endpoints_that_this_node_does_not_read_are_missed_by_nobody():
    found = service(endpoints=Cut(), unread=True)
    assert findings(found) == []
    assert explain(found).code == 0


def test_of_a_speaker_that_has_only_just_begun_nothing_can_be_told():
    chain = explain(known(**NOTHING, in_force=False))
    assert chain.verdict is None
    assert chain.code == 2


def test_a_policy_whose_rules_let_the_eip_pass_is_no_finding_whatever_the_speaker_says_of_it():
    accepts = matching({"ct": {"key": "status"}}, "in", "dnat", "accept")
    facts = replace(chained("ip", "forward", accepts, policy="drop"), known=told("drop_policy").known)
    assert findings(facts) == []
    assert explain(facts).code == 0


def test_with_ipvs_an_input_chain_that_drops_by_default_drops_what_comes_in():
    assert [each.kind for each in findings(with_ipvs(chained("inet", "input", policy="drop")))] == ["firewall_drops"]


def test_nothing_is_called_well_where_a_rule_is_not_understood():
    doubtful = chained("ip", "forward", matching(of("ip", "saddr"), "==", "198.51.100.1", "drop"))
    (chain,) = doubtful.chains
    chain = explain(replace(doubtful, chains=(replace(chain, texts=("ip saddr 198.51.100.1 drop",)),)))
    assert (chain.verdict, chain.code) == (None, 2)
    assert {each.why for each in chain.unseen} == {"ip saddr 198.51.100.1 drop"}
    assert [step.name for step in chain.steps if step.state is State.UNKNOWN] == [f"way in of {EIP}"]


@pytest.mark.parametrize(
    "facts",
    [
        chained("arp", "input", matching(of("arp", "daddr ip"), "==", EIP, "drop")),
        chained("arp", "output", matching(of("arp", "saddr ip"), "==", EIP, "drop")),
        chained("bridge", "forward", policy="drop"),
        chained("bridge", "prerouting", policy="drop"),
        chained("netdev", "egress", matching(of("arp", "saddr ip"), "==", "192.0.2.99", "drop")),
        chained("inet", "prerouting", matching(of("tcp", "dport"), "==", 80, "drop")),
        chained("inet", "postrouting", matching(of("tcp", "sport"), "==", 80, "drop")),
        chained("ip", "prerouting", [{"dnat": {"addr": "10.9.9.9"}}], priority=-100, nat=True),
        chained("ip", "prerouting", [{"dnat": {"addr": POD.address}}], priority=-150, nat=True),
        chained("ip", "postrouting", [{"masquerade": None}], [{"drop": None}], priority=50, nat=True),
        with_ipvs(chained("inet", "input", policy="drop", priority=110)),
    ],
    ids=[
        *("ARP for the EIP, by the kernel", "its answers, by the kernel", "between ports of a bridge"),
        *(
            "ports of a bridge that the link is none of",
            "ARP of another address",
            "the EIP's port behind the translation",
        ),
        *("the EIP's port before the translation back", "a translation behind ours", "a translation to the endpoint"),
        *("a masquerade", "what IPVS has taken before"),
    ],
)
def test_a_rule_that_the_eips_packets_do_not_meet_is_no_finding(facts):
    assert findings(facts) == []


def test_who_may_not_see_firewalls_is_told_that_and_not_that_there_are_none():
    chain = explain(replace(WELL, unseen=(Unseen("firewalls (nftables)", "needs NET_ADMIN"),)))
    (way_in,) = (step for step in chain.steps if step.name.startswith("way in"))
    assert (chain.code, way_in.state) == (2, State.UNKNOWN)
    assert way_in.lines[0].endswith("chains of other programs were not read: needs NET_ADMIN")


def test_what_ipvs_sends_by_output_no_rule_of_what_is_forwarded_can_drop():
    drops = chained("inet", "forward", matching(of("ip", "daddr"), "==", POD.address, "drop"))
    assert [finding.kind for finding in findings(drops)] == ["firewall_drops"]
    assert findings(with_ipvs(drops)) == []


HIDDEN = replace(
    WELL, about="", known=None, process=Process("cannot connect to control: Permission denied", hidden=True)
)


def test_who_may_not_ask_the_speaker_is_told_so_and_not_that_there_is_none():
    (found,) = findings(HIDDEN)
    assert (found.kind, found.what) == ("no_right", "cannot connect to control: Permission denied")
    assert found.mend.startswith("sudo speaker doctor ")
    chain = explain(replace(HIDDEN, about=EIP))
    assert (chain.code, chain.steps[0].state) == (2, State.UNKNOWN)
    assert chain.verdict is not None
    assert chain.verdict.mend.startswith(f"sudo speaker explain {EIP} ")


def test_nothing_is_wrong_with_what_all_of_these_begin_with():
    assert findings(WELL) == []
    assert explain(WELL).code == 0


@pytest.mark.parametrize("case", FOUND | ONLY_THE_DOCTOR)
def test_the_doctor_names_it_first(case):
    facts, kind = (FOUND | ONLY_THE_DOCTOR)[case]
    found = findings(facts)
    assert [finding.kind for finding in found][:1] == [kind], found
    assert all(finding.mend for finding in found)


@pytest.mark.parametrize("case", FOUND | ONLY_EXPLAINED)
def test_the_first_broken_step_of_an_eip_is_that(case):
    facts, kind = (FOUND | ONLY_EXPLAINED)[case]
    chain = explain(facts)
    assert chain.verdict is not None
    assert chain.verdict.kind == kind, chain
    assert chain.code == 1


@pytest.mark.parametrize("case", FOUND | ONLY_THE_DOCTOR | ONLY_EXPLAINED)
def test_where_files_say_what_is_wanted_nothing_is_mended_through_an_api(case):
    facts, _ = (FOUND | ONLY_THE_DOCTOR | ONLY_EXPLAINED)[case]
    if facts.known is not None:
        facts = replace(facts, known=replace(facts.known, cluster=False))
    chain = explain(facts)
    found = [*findings(facts), *chain.others, *filter(None, [chain.verdict])]
    by_kubectl = {each.kind for each in found if "kubectl" in each.mend}
    assert by_kubectl <= {"kube_proxy", "kernel_answers", "node_excluded"}  # of kube-proxy, and of a Node's label


def test_what_is_to_be_corrected_in_files_is_named():
    full = service(refused="pool_full", message="pool has no free address", addresses=())
    (found,) = findings(replace(full, known=replace(full.known, cluster=False)))
    assert found.mend == (
        "speaker validate /etc/eip-speaker   # after you correct Eip there: add addresses to the full pool, or free one"
    )
    (without,) = findings(replace(WELL, known=replace(service(endpoints=Cut()).known, cluster=False)))
    assert without.mend == "speaker validate /etc/eip-speaker   # after you correct an EndpointSlice of lab/web there"
    unknown = replace(known(**NOTHING, cluster=False), about="lab/no")
    assert explain(unknown).others == ()
    assert [each.mend for each in explain(unknown).steps[-1].findings] == [
        "speaker validate /etc/eip-speaker   # after you correct Service/lab/no there"
    ]


def test_every_mend_can_be_pasted_as_it_is():
    """Nothing in the command itself is to be filled in, and a shell can read it."""
    facts = [facts for facts, _ in (FOUND | ONLY_THE_DOCTOR | ONLY_EXPLAINED).values()]
    by_files = [replace(each, known=replace(each.known, cluster=False)) for each in facts if each.known is not None]
    all_ = [*facts, *by_files]
    found = [*(one for each in all_ for one in findings(each)), *(explain(each).verdict for each in all_)]
    mends = sorted({each.mend for each in found if each is not None} - {"a mend"})
    commands = [mend.partition("   # ")[0] for mend in mends]
    assert [each for each in commands if re.search(r"…|(?<!-)\b[A-Z][A-Z_]{2,}\b", each)] == []
    subprocess.run(["bash", "-n"], input="\n".join(mends), text=True, check=True)


def test_nobody_is_told_first_to_take_an_address_from_a_host_that_may_need_it():
    (own,) = findings(replace(WELL, bound=(Bound("eth0", "192.0.2.207", 32),)))
    exclude, _, delete = own.mend.partition("; or, if no host needs it: ")
    assert (exclude, delete) == (
        "kubectl get eip -o wide   # exclude 192.0.2.207 from its pool",
        "ip addr del 192.0.2.207/32 dev eth0",
    )


OF_SEVERAL_NODES = {"two_holders", "external_ips"}
"""Those that ``test_together.py`` and ``tools/test_foreign.py`` find."""
OF_WHOEVER_ASKS = {"no_right"}


def test_every_kind_of_finding_is_found_somewhere_here():
    found = {kind for _, kind in (FOUND | ONLY_THE_DOCTOR | ONLY_EXPLAINED).values()}
    assert found | OF_SEVERAL_NODES | OF_WHOEVER_ASKS == KINDS.keys()


def test_a_tunnel_that_marks_lead_past_is_no_finding_where_a_rule_gives_them():
    """docs/forwarding.md, "Several links", beside a full tunnel."""
    given = "ct direction reply ct original ip daddr 192.0.2.192/26 meta mark set meta mark | 0x00100000"
    assert findings(by_tunnel(given, marks=(0x100000,))) == []
    assert [each.kind for each in findings(by_tunnel(given, marks=(0x80000,)))] == ["answers_elsewhere"]
    assert [each.kind for each in findings(by_tunnel("tcp dport 1048576 accept", marks=(0x100000,)))] == [
        "answers_elsewhere"
    ]


def test_two_links_in_one_subnet_are_no_finding_once_its_mend_was_run():
    two = replace(WELL, links=(ETH0, replace(ETH0, name="eth1", mac=ELSEWHERE)))
    (found,) = findings(two)
    done = dict(each.split("=") for each in found.mend.removeprefix("sysctl -w ").split())
    assert set(done) >= {f"net.ipv4.conf.eth{at}.ignore_routes_with_linkdown" for at in (0, 1)}
    assert findings(replace(two, sysctls={**WELL.sysctls, **done})) == []


def test_the_mend_of_a_tunnel_names_the_gateway_and_lets_a_strict_filter_be():
    strict = replace(
        by_tunnel(), known=told("reverse_path").known, drops=Drops(0, 9), gateways=(("eth0", "192.0.2.1"),)
    )
    (found,) = findings(strict)
    assert "via 192.0.2.1 dev eth0" in found.mend
    assert "rp_filter" not in found.mend


def test_a_peers_mac_is_no_stranger_at_an_address_that_was_free_when_it_was_asked_for():
    """Nor this node's own. A node with more EIPs than are told took the rest of them for free ones."""
    for mac in (PEERS_MAC, OWN):
        assert findings(replace(WELL, asked=(*WELL.asked, Asked("192.0.2.207", "eth0", "free", (mac,))))) == []
    both = replace(WELL, asked=(*WELL.asked, Asked("192.0.2.207", "eth0", "free", (PEERS_MAC, STRANGER))))
    (found,) = findings(both)
    assert STRANGER in found.what
    assert PEERS_MAC not in found.what


def test_of_a_list_that_was_cut_nothing_is_said_that_the_rest_of_it_may_disprove():
    taken = replace(WELL, asked=(*WELL.asked, Asked("192.0.2.207", "eth0", "free", (STRANGER,))))
    pool = replace(LAN, exclude=Cut(("192.0.2.1",), more=9))
    assert findings(replace(taken, known=replace(KNOWN, pools=Cut((pool,))))) == []
    sleepy = replace(POD, ready=False, takes_new=False)
    assert findings(service(endpoints=Cut((sleepy,), more=1))) == []
    six = replace(HELD, address="2001:db8::200")
    assert (
        findings(replace(known(eips=Cut((six,)), services=Cut((replace(WEB, endpoints=Cut((POD,), more=1)),))))) == []
    )


def test_a_peers_host_that_nobody_asked_is_not_called_silent():
    many = replace(known(peers=(SILENT,)), hellos=(), asked=WELL.asked[:1])
    (found,) = findings(many)
    assert "its host" not in found.what
    (asked,) = findings(replace(many, asked=(*many.asked, Asked(PEER, "eth0", "peer"))))
    assert "so is its host" in asked.what


def way_in(facts: Facts):
    (step,) = [step for step in explain(facts).steps if step.name.startswith("way in")]
    return step


WALKED = Walked(EIP, 80, "192.0.2.254", last="chain inet fw f")
NOT_ALLOWED = Unseen("firewalls (nftables)", "nft list chains: Operation not permitted")


def test_a_way_in_that_was_tried_is_well_though_a_rule_is_not_understood():
    doubtful = replace(chained("ip", "forward", matching({"jhash": {}}, "==", 1, "drop")), walks=())
    assert way_in(doubtful).state is State.UNKNOWN
    passed = replace(WALKED, answered=True, left="eth0")
    assert way_in(replace(doubtful, walks=(passed,))).state is State.WELL
    assert "not understood" in " ".join(way_in(replace(doubtful, walks=(passed,))).lines)
    assert way_in(replace(doubtful, walks=(WALKED,))).state is State.UNKNOWN


def test_without_rights_the_way_in_is_not_seen_and_what_a_connection_came_to_is_told():
    blind = replace(WELL, unseen=(NOT_ALLOWED,), tried=(*WELL.tried, Tried(EIP, 80, False, "no answer within 1 s")))
    step = way_in(blind)
    assert step.state is State.UNKNOWN
    assert "chains of other programs were not read" in step.lines[0]
    assert "connected from this node itself: TCP port 80: no answer within 1 s" in step.lines
    assert explain(blind).code == 2


def test_nothing_that_costs_eips_is_proposed_for_a_speaker_that_works():
    (found,) = findings(replace(WELL, known=None, process=Process("late", 4711, "R", busy=True)))
    assert "systemctl" not in found.mend
    assert found.severity is Severity.WARNING


def test_the_way_out_of_a_renumbered_prefix_is_told():
    old = replace(
        HELD, address="2001:db8:1::200", reason="no_subnet", message="no link", link="", mine=False, holder=None
    )
    found = replace(known(eips=Cut((old,))), asked=())
    assert "annotate service web eip-speaker.io/addresses=NEW" in explain(found).verdict.mend


# ── kube-proxy's own translation, and others around it ──

NAT = """\
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:DOCKER - [0:0]
{first}
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A POSTROUTING -s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE --random-fully
-A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 80,443 -j DNAT --to-destination 10.244.9.9:80
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 80 -j DNAT --to-destination 172.17.0.2:80
-A KUBE-SERVICES -d 192.0.2.200/32 -p tcp -m tcp --dport 80 -j KUBE-EXT-LOQ
"""


def translating(forwarder: str, first: str = "", bound: bool = False, old: str = "") -> Facts:
    chains = (*saved("ip", f"{old}nat", NAT.format(first=first)),)
    held = (Bound("eip-speaker0", EIP, 32),) if bound else ()
    sysctls = {**WELL.sysctls, "net.ipv4.conf.all.arp_ignore": "1"}
    facts = replace(WELL, chains=chains, known=replace(KNOWN, forwarder=forwarder), has_ipvs=True, sysctls=sysctls)
    return replace(facts, bound=(*WELL.bound, *held))


PUBLISHED = "-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.9.9.9:80"


@pytest.mark.parametrize("old", ["", "legacy "])
@pytest.mark.parametrize(
    ("forwarder", "first", "bound", "found"),
    [
        ("none", "", False, []),
        ("assist", "", False, []),
        ("nftables", "", False, []),
        ("ipvs", "", False, []),
        ("none", PUBLISHED, False, ["firewall_drops"]),
        ("assist", PUBLISHED, False, ["firewall_drops"]),
        ("nftables", PUBLISHED, False, []),  # ours are asked before
        ("ipvs", PUBLISHED, False, ["firewall_drops"]),
        ("none", PUBLISHED.replace("10.9.9.9:80", f"{POD.address}:{POD.port}"), False, []),
        ("none", "-A PREROUTING -i eth1 -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 3128", False, []),
        ("ipvs", "", True, ["firewall_drops"]),  # the EIP is this host's then, and so a pod's hostPort takes it
    ],
)
def test_whoever_translates_first_has_the_packet(forwarder, first, bound, found, old):
    facts = translating(forwarder, first, bound, old)
    assert [each.kind for each in findings(facts)] == found
    assert not explain(facts).unseen


def test_whether_an_endpoint_serves_at_another_port_too_is_not_seen():
    facts = translating("none", PUBLISHED.replace("10.9.9.9", POD.address), False, "")
    assert (findings(facts), len(explain(facts).unseen)) == ([], 1)


@pytest.mark.parametrize(
    ("devices", "uplinks", "found"),
    [
        ("eno1", ("eno1",), ["frames_dropped"]),
        ("eno1,eno2", ("eno1", "eno2"), ["frames_dropped"]),
        ("eno1", ("eno1", "eno2"), []),  # who comes in by the other one is heard
        ("tap0", ("eno1",), []),
        ("eno1", (), []),
    ],
)
def test_frames_of_a_bridge_or_bond_pass_the_links_below_it(devices, uplinks, found):
    facts = chained("netdev", "ingress", matching(of("arp", "operation"), "==", 1, "drop"))
    (chain,) = facts.chains
    links = tuple(replace(each, uplinks=uplinks) if each.name == "eth0" else each for each in facts.links)
    facts = replace(facts, chains=(replace(chain, device=devices),), links=links)
    assert [each.kind for each in findings(facts)] == found


@pytest.mark.parametrize(
    ("device", "kind", "uplinks", "found", "doubts"),
    [
        ("eno*", "bond", ("eno1", "eno2"), ["frames_dropped"], False),
        ("eno1", "bond", ("eno1", "eno2"), [], True),
        ("eno9", "bond", ("eno1", "eno2"), [], False),
        ("nic", "bridge", ("bond0",), [], True),  # which is below the bond
        ("eno1", "macvlan", ("eno1",), ["frames_dropped"], False),
        ("eno1", "vlan", ("eno1",), [], True),  # by its tag
    ],
)
def test_a_chain_below_the_link_that_may_see_its_frames_is_found_or_not_seen(device, kind, uplinks, found, doubts):
    drops = [matching(of(*of_), "==", value, "drop") for *of_, value in (("arp", "operation", 1), ("vlan", "id", 7))]
    facts = chained("netdev", "ingress", drops[kind == "vlan"])
    (chain,) = facts.chains
    links = (replace(ETH0, kind=kind, uplinks=uplinks), replace(ETH0, name="bond0", subnets=(), uplinks=("nic",)))
    facts = replace(facts, chains=(replace(chain, device=device),), links=links)
    assert [each.kind for each in findings(facts)] == found
    assert bool(explain(facts).unseen) is doubts


@pytest.mark.parametrize(
    ("hook", "rule", "called", "found"),
    [
        ("input", matching({"meta": {"key": "iifname"}}, "==", "eth0", "drop"), "1", []),
        ("input", matching({"meta": {"key": "iifname"}}, "==", "port", "drop"), "1", []),
        ("input", matching(of("ether", "type"), "==", 1544, "drop"), "1", ["frames_dropped"]),
        ("input", matching(of("ip", "daddr"), "==", EIP, "drop"), "0", ["frames_dropped"]),
        ("input", matching(of("ip", "daddr"), "==", POD.address, "drop"), "1", ["frames_dropped"]),
        ("prerouting", matching(of("ip", "daddr"), "==", EIP, "drop"), "1", ["frames_dropped"]),
    ],
)
def test_in_a_bridge_the_ports_count_and_whether_the_translation_is_called_there(hook, rule, called, found):
    facts = chained("bridge", hook, rule)
    calls = {**facts.sysctls, "net.bridge.bridge-nf-call-iptables": called}
    facts = replace(facts, links=(replace(ETH0, kind="bridge"),), sysctls=calls)
    assert [each.kind for each in findings(facts)] == found
    assert bool(explain(facts).unseen) is not bool(found)


@pytest.mark.parametrize(("hook", "found"), [("output", 1), ("input", 1), ("forward", 0)])
def test_the_bridge_of_the_pods_is_one_too(hook, found):
    facts = replace(chained("bridge", hook, policy="drop"), links=(ETH0, replace(CNI0, name="pods")), sysctls=CALLED)
    assert [each.kind for each in findings(facts)] == ["frames_dropped"] * found


def test_what_lets_new_connections_in_must_let_them_go_on():
    rules = (
        matching({"ct": {"key": "state"}}, "==", "new", "accept"),
        matching({"meta": {"key": "iifname"}}, "==", "pods", "accept"),
    )
    (found,) = findings(chained("ip", "forward", *rules, policy="drop"))
    assert "further packets to endpoint" in found.what


def test_where_another_program_forwards_and_endpoints_are_not_read_a_drop_policy_is_not_passed_over():
    closed = chained("ip", "forward", policy="drop")
    unread = replace(KNOWN, forwarder="none", services=Cut((replace(WEB, unread=True, endpoints=Cut()),)))
    assert [each.kind for each in findings(replace(closed, known=unread))] == ["firewall_drops"]
    to_pods = matching(of("ip", "daddr"), "==", {"prefix": {"addr": "10.244.0.0", "len": 16}}, "accept")
    (chain,) = chained("ip", "forward", to_pods, policy="drop").chains
    assert explain(replace(closed, known=unread, chains=(chain,))).code


def test_who_gets_no_answer_although_no_rule_drops_it_is_not_called_well():
    silent = replace(WELL, walks=(Walked(EIP, 80, "192.0.2.254", "", "chain inet fw f"),))
    refused = replace(WELL, tried=(*WELL.tried, Tried(EIP, 80, False, "refused")))
    for facts in (silent, refused):
        (way_in,) = (step for step in explain(facts).steps if step.name.startswith("way in"))
        assert (way_in.state, explain(facts).code) == (State.UNKNOWN, 2)
    limited = replace(KNOWN, services=Cut((replace(WEB, sources=("198.51.100.0/24",)),)))
    assert explain(replace(refused, known=limited)).code == 0  # this node is none of those


def test_a_mark_that_a_rule_gives_and_a_route_refuses_is_not_seen():
    gives = replace(
        by_tunnel("tcp dport 80 meta mark set 0x00000007"), backs=(Back(EIP, False, "eth0", astray=(7, 8)),)
    )
    assert [each.what for each in explain(gives).unseen] == [f"packets of {EIP} with the mark 0x7"]


def test_where_what_clients_send_is_refused_the_filter_or_the_routes_are_named():
    refused = replace(WELL, backs=(Back(EIP, False, "eth1", refused="into a blackhole"),))
    assert [each.kind for each in findings(refused)] == ["answers_elsewhere"]
    strict = replace(refused, sysctls={**WELL.sysctls, "net.ipv4.conf.eth0.rp_filter": "1"})
    assert [each.kind for each in findings(strict)] == ["reverse_path"]


@pytest.mark.parametrize(
    ("hook", "priority", "local", "elsewhere"),
    [
        ("forward", 0, [], ["firewall_drops"]),
        ("input", 0, ["firewall_drops"], []),
        ("output", 0, ["firewall_drops"], []),
        ("prerouting", -150, ["firewall_drops"], ["firewall_drops"]),
        ("prerouting", 0, ["firewall_drops"], ["firewall_drops"]),
        ("postrouting", 0, ["firewall_drops"], ["firewall_drops"]),
        ("postrouting", 300, ["firewall_drops"], ["firewall_drops"]),
    ],
)
def test_what_an_endpoint_of_the_hosts_own_gets_is_not_forwarded(hook, priority, local, elsewhere):
    """A pod with hostNetwork."""
    facts = chained("inet", hook, policy="drop", priority=priority)
    assert [each.kind for each in findings(facts)] == elsewhere
    own = replace(facts, bound=(*facts.bound, Bound("eth0", POD.address, 24)))
    assert [each.kind for each in findings(own)] == local


def test_of_whom_an_address_is_that_an_endpoint_has_is_not_known():
    rule = matching({"fib": {"result": "type", "flags": ["daddr"]}}, "!=", "local", "drop")
    facts = with_ipvs(chained("inet", "output", rule))
    assert [each.kind for each in findings(facts)] == []
    assert explain(facts).unseen


def test_the_holders_step_says_what_the_preference_is_and_who_is_preferred():
    facts = eip(preference="80 zone=a; 20 zone=b", preferred="n2 is preferred (weight 80, n1 has 20)")
    (step,) = [step for step in explain(facts).steps if step.name.startswith("holder of")]
    assert list(step.lines[1:3]) == ["prefers nodes by 80 zone=a; 20 zone=b", "n2 is preferred (weight 80, n1 has 20)"]
