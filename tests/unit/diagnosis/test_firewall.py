"""What becomes of a packet in the chains of others: it passes, is dropped, or a rule that is not understood decides."""

import pytest
from healthy import matching, of
from hypothesis import given
from hypothesis import strategies as st

from speaker.diagnosis.facts import Chain
from speaker.diagnosis.firewall import ANSWER, DNAT, FURTHER, Ruleset, arp_request, completed, ip_packet, ndp
from speaker.diagnosis.firewall import chains as saved

EIP = "192.0.2.200"
SYN = ip_packet("who connects", None, EIP, "tcp", {"dport": 80, "iifname": "eth0"})
SYN6 = ip_packet("who connects", None, "2001:db8::1", "tcp", {"dport": 80, "iifname": "eth0"})
ARP = arp_request(EIP, "eth0")
DROP = [{"drop": None}]
LINK = {"meta": {"key": "iifname"}}


def chain(family, *rules, hook="prerouting"):
    return Chain(family, "fw", "f", hook, "accept", "", tuple(rules))


@pytest.mark.parametrize(
    ("family", "rules", "packet", "dropped"),
    [
        ("ip", [DROP], SYN, True),
        ("ip", [DROP], SYN6, False),
        ("ip6", [DROP], SYN6, True),
        ("inet", [DROP], SYN6, True),
        ("ip", [DROP], ARP, False),
        ("arp", [DROP], ARP, True),
        ("netdev", [DROP], ARP, True),
        ("ip", [[{"counter": {}}, {"log": None}, {"drop": None}]], SYN, True),
        ("ip", [[{"accept": None}], DROP], SYN, False),
        ("ip", [matching(of("ip", "daddr"), "==", EIP, "drop")], SYN, True),
        ("ip", [matching(of("ip", "daddr"), "!=", EIP, "drop")], SYN, False),
        ("ip", [matching(of("ip", "daddr"), "==", "192.0.2.201", "drop")], SYN, False),
        ("ip", [matching(of("ip", "daddr"), "==", {"prefix": {"addr": "192.0.2.0", "len": 24}}, "drop")], SYN, True),
        ("ip", [matching(of("ip", "daddr"), "==", {"prefix": {"addr": "192.0.3.0", "len": 24}}, "drop")], SYN, False),
        ("ip", [matching(of("ip", "daddr"), "==", {"set": [EIP, "192.0.2.7"]}, "drop")], SYN, True),
        ("ip", [matching(of("ip", "daddr"), "==", {"range": ["192.0.2.199", "192.0.2.201"]}, "drop")], SYN, True),
        ("ip", [matching(of("ip", "daddr"), "==", {"range": ["10.0.0.1", "::1"]}, "drop")], SYN, False),
        ("ip", [matching(of("tcp", "dport"), "==", 80, "reject")], SYN, True),
        ("ip", [matching(of("tcp", "dport"), "==", {"range": [70, 90]}, "drop")], SYN, True),
        ("ip", [matching(of("tcp", "dport"), "==", {"set": [22, 443]}, "drop")], SYN, False),
        ("ip", [matching(of("th", "dport"), "==", 80, "drop")], SYN, True),
        ("ip", [matching(of("udp", "dport"), "==", 80, "drop")], SYN, False),
        ("ip", [matching({"meta": {"key": "l4proto"}}, "==", 6, "drop")], SYN, True),
        ("ip", [matching(LINK, "==", "eth*", "drop")], SYN, True),
        ("ip", [matching(LINK, "==", "eth1", "drop")], SYN, False),
        ("netdev", [matching({"meta": {"key": "protocol"}}, "==", "arp", "drop")], ARP, True),
        ("netdev", [matching(of("arp", "operation"), "==", 256, "drop")], ARP, True),  # as nft 1.0.6 prints 1
        ("netdev", [matching(of("arp", "operation"), "==", 2, "drop")], ARP, False),
        ("netdev", [matching(of("ether", "type"), "==", 1544, "drop")], ARP, True),  # and 0x0806
        ("netdev", [matching({"meta": {"key": "protocol"}}, "==", {"set": [8, 56710]}, "drop")], SYN, True),
        ("netdev", [matching({"meta": {"key": "protocol"}}, "!=", 1544, "drop")], ARP, False),
        ("arp", [matching(of("arp", "htype"), "==", 1, "drop")], ARP, True),  # as arptables writes
        ("ip", [matching(of("th", "dport"), "==", 80, "drop")], ip_packet("", None, EIP, "sctp", {"dport": 80}), True),
        ("netdev", [matching(of("ether", "type"), "==", 2054, "drop")], ARP, True),
        ("netdev", [matching(of("ether", "type"), "==", "ip", "drop")], ARP, False),
        ("ip", [matching({"ct": {"key": "state"}}, "in", "new", "drop")], SYN, True),
        ("ip", [matching({"ct": {"key": "state"}}, "in", "invalid", "drop")], SYN, False),
    ],
)
def test_a_packet_is_dropped_or_passes(family, rules, packet, dropped):
    assert verdict([chain(family, *rules)], packet) == ("dropped" if dropped else "passes")


def verdict(chains, packet, sets=None):
    """Of all chains with a hook."""
    ruleset = Ruleset.of(chains, sets or {})
    judged = [ruleset.judge(each, packet) for each in chains if each.hook]
    if any(each.drops for each in judged):
        return "dropped"
    return "not seen" if any(each.unseen for each in judged) else "passes"


ACCEPT, JUMP, GOTO = [{"accept": None}], [{"jump": {"target": "x"}}], [{"goto": {"target": "x"}}]
UNKNOWN_DROP = matching(of("ip", "saddr"), "==", "198.51.100.1", "drop")
STATE = {"ct": {"key": "state"}}
VMAP = {"key": of("tcp", "dport"), "data": "@ports"}
SETS = {
    "ip fw blocked": ("192.0.2.7", {"prefix": {"addr": "192.0.2.192", "len": 26}}),
    "ip fw small": ({"range": ["192.0.2.1", "192.0.2.9"]}, {"elem": {"val": "10.0.0.1", "timeout": 5}}),
    "ip fw ports": ([80, {"drop": None}], [{"range": [400, 500]}, {"jump": {"target": "x"}}]),
    "ip fw others": ([22, {"drop": None}], [443, {"accept": None}]),
    "ip fw s": (),
    "ip fw all": ([22, {"accept": None}], ["*", {"drop": None}]),
    "ip fw pairs": ({"concat": [EIP, 80]}, {"concat": [EIP, 443]}),
}
EITHER = {"set": [[2, {"accept": None}], [1, {"drop": None}]]}
BY_LINK = {"set": [["lo", {"accept": None}], ["eth0", {"drop": None}]]}


def pair(protocol):
    return {"concat": [of("ip", "daddr"), of(protocol, "dport")]}


@pytest.mark.parametrize(
    ("rules", "x", "policy", "told"),
    [
        ([], [], "drop", "dropped"),
        ([JUMP], [DROP], "accept", "dropped"),
        ([JUMP], [ACCEPT], "drop", "passes"),
        ([JUMP], [], "drop", "dropped"),
        ([JUMP, ACCEPT], [[{"return": None}], DROP], "drop", "passes"),
        ([GOTO, ACCEPT], [], "drop", "dropped"),
        ([GOTO, DROP], [], "accept", "passes"),
        ([matching(STATE, "in", [2, 4], "accept")], [], "drop", "dropped"),
        ([matching(STATE, "==", {"set": [8, 64]}, "accept")], [], "drop", "passes"),
        ([matching(STATE, "!=", 2, "drop")], [], "accept", "dropped"),
        ([[{"vmap": {"key": STATE, "data": EITHER}}]], [], "drop", "dropped"),
        ([[{"vmap": {"key": STATE, "data": {"set": [[8, {"goto": {"target": "x"}}]]}}}]], [ACCEPT], "drop", "passes"),
        ([[{"vmap": VMAP}]], [], "accept", "dropped"),
        ([[{"vmap": VMAP | {"data": "@others"}}]], [], "accept", "passes"),
        ([[{"vmap": VMAP | {"data": "@unknown"}}]], [], "accept", "not seen"),
        ([[{"vmap": VMAP | {"data": "@all"}}]], [], "accept", "dropped"),
        ([[{"vmap": {"key": LINK, "data": BY_LINK}}]], [], "accept", "dropped"),
        ([matching(of("ip", "daddr"), "==", "@blocked", "drop")], [], "accept", "dropped"),
        ([matching(of("ip", "daddr"), "==", "@small", "drop")], [], "accept", "passes"),
        ([matching(of("ip", "daddr"), "!=", "@blocked", "drop")], [], "accept", "passes"),
        ([matching(of("ip", "daddr"), "==", "@unknown", "drop")], [], "accept", "not seen"),
        ([matching(pair("tcp"), "==", "@pairs", "drop")], [], "accept", "dropped"),
        ([matching(pair("udp"), "==", "@pairs", "drop")], [], "accept", "passes"),
        ([matching({"&": [of("tcp", "flags"), ["syn", "ack"]]}, "==", 2, "drop")], [], "accept", "dropped"),
        # nft 1.1 joins the bits of a mask by "|", which 1.0 lists
        ([matching({"&": [of("tcp", "flags"), {"|": ["syn", "ack"]}]}, "==", 2, "drop")], [], "accept", "dropped"),
        ([matching({"&": [of("tcp", "flags"), {"|": [1, 2]}]}, "==", {"|": [1, 8]}, "drop")], [], "accept", "passes"),
        ([matching({"&": [of("tcp", "flags"), ["syn", "ack"]]}, "==", ["syn"], "drop")], [], "accept", "dropped"),
        ([matching({"&": [of("tcp", "flags"), ["syn", "cwr"]]}, "==", "syn", "drop")], [], "accept", "not seen"),
        ([matching(STATE, "!=", {"|": [2, 4]}, "drop")], [], "accept", "dropped"),
        # one of them is set, or none
        ([matching(of("tcp", "flags"), "in", [1, 2], "drop")], [], "accept", "dropped"),
        ([matching(of("tcp", "flags"), "in", [1, 4], "drop")], [], "accept", "passes"),
        ([matching(of("tcp", "flags"), "!", [1, 4], "drop")], [], "accept", "dropped"),
        ([matching(of("tcp", "flags"), "!", [1, 2], "drop")], [], "accept", "passes"),
        ([matching(of("tcp", "flags"), "!", ["cwr"], "drop")], [], "accept", "not seen"),
        ([matching({"meta": {"key": "nfproto"}}, "==", 10, "drop")], [], "accept", "passes"),
        # not understood: what counts is whether it decides
        ([UNKNOWN_DROP], [], "accept", "not seen"),
        ([UNKNOWN_DROP], [], "drop", "dropped"),
        ([UNKNOWN_DROP, DROP], [], "accept", "dropped"),
        ([ACCEPT, UNKNOWN_DROP], [], "drop", "passes"),
        ([matching(of("ip", "saddr"), "==", "198.51.100.1", "accept")], [], "accept", "passes"),
        ([[{"limit": {"rate": 1}}, {"drop": None}]], [], "accept", "not seen"),
        ([[{"queue": {"num": 1}}]], [], "accept", "not seen"),
        ([[{"jump": {"target": "nowhere"}}]], [], "accept", "not seen"),
        ([JUMP], [UNKNOWN_DROP], "accept", "not seen"),
        ([[{"xt": None}]], [], "accept", "not seen"),
        ([[{"xt": {"type": "match", "name": "conntrack"}}, {"drop": None}]], [], "accept", "not seen"),
        ([[{"xt": {"type": "target", "name": "REJECT"}}]], [], "accept", "dropped"),
        ([[{"xt": {"type": "target", "name": "TARPIT"}}]], [], "accept", "not seen"),
        ([[{"xt": {"type": "target", "name": "LOG"}}]], [], "accept", "passes"),
        ([[{"xt": {"type": "match", "name": "comment"}}, {"drop": None}]], [], "accept", "dropped"),
        ([matching({"meta": {"key": "mark"}}, "==", 1, "drop")], [], "accept", "not seen"),
        # what changes the packet
        ([[{"mangle": {"key": {"meta": {"key": "mark"}}, "value": 1}}]], [], "accept", "passes"),
        ([[{"mangle": {"key": of("ip", "dscp"), "value": 1}}]], [], "accept", "passes"),
        ([[{"mangle": {"key": of("tcp", "dport"), "value": 81}}]], [], "accept", "not seen"),
        ([[{"mangle": {"key": of("ip", "ttl"), "value": 1}}]], [], "accept", "not seen"),
        ([[{"mangle": {"key": {"ct": {"key": "zone"}}, "value": 1}}]], [], "accept", "not seen"),
        ([[{"mangle": {"key": {"meta": {"key": "pkttype"}}, "value": "other"}}]], [], "accept", "not seen"),
        ([[{"xt": {"type": "target", "name": "TTL"}}]], [], "accept", "not seen"),
        ([[{"notrack": None}]], [], "accept", "not seen"),
        ([[{"synproxy": {"mss": 1460}}]], [], "accept", "not seen"),
        ([[{"tproxy": {"port": 3128}}]], [], "accept", "not seen"),
        ([[{"set": {"op": "add", "elem": of("ip", "saddr"), "set": "@s"}}, {"drop": None}]], [], "accept", "dropped"),
        ([[{"set": {"op": "add", "elem": of("ip", "saddr"), "set": "@t"}}, {"drop": None}]], [], "accept", "not seen"),
        # a header that it has not
        ([matching({"exthdr": {"name": "rt", "field": "type"}}, "==", 0, "drop")], [], "accept", "passes"),
        ([matching({"exthdr": {"name": "rt"}}, "==", True, "drop")], [], "accept", "not seen"),
        (
            [[{"set": {"op": "add", "set": "@s", "stmt": [{"limit": {"rate": 1}}]}}, {"drop": None}]],
            [],
            "accept",
            "not seen",
        ),
    ],
)
def test_jumps_maps_sets_states_and_policies_are_followed(rules, x, policy, told):
    base = Chain("ip", "fw", "f", "forward", policy, "", tuple(rules))
    assert verdict([base, Chain("ip", "fw", "x", "", "accept", "", tuple(x))], SYN, SETS) == told


@pytest.mark.parametrize(
    ("hook", "priority", "state", "told"),
    [
        ("prerouting", -300, "invalid", "dropped"),
        ("prerouting", -300, "new", "passes"),
        ("prerouting", -150, "invalid", "passes"),
        ("prerouting", -150, "new", "dropped"),
        ("forward", -300, "invalid", "passes"),
    ],
)
def test_before_the_kernel_knows_its_connection_each_packet_is_an_invalid_one(hook, priority, state, told):
    base = Chain("ip", "fw", "f", hook, "accept", "", (matching(STATE, "in", state, "drop"),), (), priority)
    assert verdict([base], SYN) == told


def test_a_later_packet_of_a_client_is_no_new_one():
    later = ip_packet("goes on", None, EIP, "tcp", {"dport": 80}, FURTHER)
    for rule in (matching(STATE, "in", "established", "drop"), matching(of("tcp", "flags"), "==", "ack", "drop")):
        assert [verdict([chain("ip", rule)], each) for each in (SYN, later)] == ["passes", "dropped"]


def test_chains_that_jump_to_each_other_without_end_are_not_seen():
    base = Chain("ip", "fw", "f", "forward", "accept", "", ([{"jump": {"target": "x0"}}],))
    others = [
        Chain("ip", "fw", f"x{at}", "", "accept", "", ([{"jump": {"target": f"x{(at + 1) % 30}"}}],))
        for at in range(30)
    ]
    assert verdict([base, *others], SYN) == "not seen"


def test_the_rule_that_is_not_understood_is_named_as_people_write_it():
    base = Chain("ip", "fw", "f", "forward", "accept", "", (UNKNOWN_DROP,), ("ip saddr 198.51.100.1 drop",))
    assert Ruleset.of([base], {}).judge(base, SYN).unseen == ("ip saddr 198.51.100.1 drop",)


# ── As iptables-save prints them ──

POD = "10.244.1.11"
ORIGINAL = {"ct status": DNAT, "ct original ip daddr": EIP}
IN = ip_packet("in", None, POD, "tcp", {"dport": 8080, "iifname": "eth0", "oifname": "cni0", **ORIGINAL})
OUT = ip_packet("out", POD, None, "tcp", {"sport": 8080, "iifname": "cni0", "oifname": "eth0", **ORIGINAL}, ANSWER)
UFW = """\
:FORWARD {policy} [0:0]
:ufw-before-forward - [0:0]
:ufw-after-forward - [0:0]
:ufw-user-forward - [0:0]
:ufw-reject-forward - [0:0]
:ufw-logging-deny - [0:0]
-A FORWARD -j ufw-before-forward
-A FORWARD -j ufw-after-forward
-A FORWARD -j ufw-reject-forward
-A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ufw-before-forward -p icmp -m icmp --icmp-type 8 -j ACCEPT
-A ufw-before-forward -j ufw-user-forward
-A ufw-logging-deny -m conntrack --ctstate INVALID -m limit --limit 3/min --limit-burst 10 -j RETURN
{more}
"""
FIREWALLD = """\
:FORWARD ACCEPT [0:0]
:FORWARD_IN_ZONES - [0:0]
:FWDI_public - [0:0]
:FWDI_public_allow - [0:0]
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
{dnat}
-A FORWARD -i lo -j ACCEPT
-A FORWARD -j FORWARD_IN_ZONES
-A FORWARD -m conntrack --ctstate INVALID -j DROP
-A FORWARD -j REJECT --reject-with icmp-host-prohibited
-A FORWARD_IN_ZONES -i eth0 -g FWDI_public
-A FORWARD_IN_ZONES -g FWDI_public
-A FWDI_public -j FWDI_public_allow
-A FWDI_public -p icmp -j ACCEPT
{more}
"""
DOCKER = """\
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
:DOCKER-ISOLATION-STAGE-1 - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-ISOLATION-STAGE-1
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o docker0 -j DOCKER
-A FORWARD -i docker0 ! -o docker0 -j ACCEPT
-A DOCKER-ISOLATION-STAGE-1 -j RETURN
{more}
-A DOCKER-USER -j RETURN
"""
KUBE_PROXY = """\
:FORWARD ACCEPT [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-SERVICES - [0:0]
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -m nfacct --nfacct-name ct_state_invalid_dropped_pkts -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-SERVICES -d 10.96.0.9/32 -p tcp -m comment --comment "lab/web has no endpoints" -m tcp --dport 80 -j REJECT
"""
CALICO = """\
:FORWARD {policy} [0:0]
:cali-FORWARD - [0:0]
:cali-from-hep-forward - [0:0]
-A FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD
-A FORWARD -m comment --comment "Policy explicitly accepted packet." -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-FORWARD -m comment --comment "cali:vjrMJCRpqwy5oRoX" -j MARK --set-xmark 0x0/0xe0000
-A cali-FORWARD -m comment --comment "cali:A_sPAO0mcxbT9mOV" -m mark --mark 0x0/0x10000 -j cali-from-hep-forward
-A cali-FORWARD -i cali+ -m comment --comment "cali:8ZoYfO5HKXWbB3pk" -j ACCEPT
"""
ALONE = ":FORWARD {policy} [0:0]\n{more}\n"
USER = "-A ufw-user-forward "
ZONE = "-A FWDI_public_allow "


def forward(text, policy="ACCEPT", more="", dnat=""):
    return [*saved("ip", "filter", text.format(policy=policy, more=more, dnat=dnat))]


@pytest.mark.parametrize(
    ("chains", "comes_in", "goes_out"),
    [
        (forward(ALONE), "passes", "passes"),
        (forward(ALONE, "DROP"), "dropped", "dropped"),
        (forward(ALONE, more="-A FORWARD -p tcp -j TARPIT"), "not seen", "not seen"),
        (forward(ALONE, more="-A FORWARD -p udp -j DROP"), "passes", "passes"),
        (forward(ALONE, more="-A FORWARD -m connlimit --connlimit-above 9 -j REJECT"), "not seen", "not seen"),
        (forward(ALONE, more="-A FORWARD -m comment --comment \"it's a 'quote\" -j DROP"), "dropped", "dropped"),
        (forward(ALONE, more='-A FORWARD -m comment --comment "unfinished -j DROP'), "not seen", "not seen"),
        *(
            (forward(ALONE, more=f"-A FORWARD {match} -j DROP"), "not seen", "not seen")
            for match in (
                "-m set --match-set bad src",
                "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN",
                "-m recent --rcheck --rsource",
                "-m physdev ! --physdev-is-bridged",
                "-m policy --dir in --pol none --strict",
                "-m set --match-set bad src ! -p udp",
                "-m socket",
                "-m rpfilter",
                "-p tcp -m eui64",
            )
        ),
        (forward(ALONE, more='-A FORWARD -m comment --comment "-j ACCEPT" -j DROP'), "dropped", "dropped"),
        (forward(ALONE, more="-A FORWARD -m socket -j ACCEPT\n-A FORWARD -j DROP"), "not seen", "not seen"),
        (forward(ALONE, more="-A FORWARD -j TTL --ttl-set 1"), "not seen", "not seen"),
        (forward(ALONE, more="-A FORWARD -j CT --helper ftp"), "passes", "passes"),
        (forward(ALONE, more="-A FORWARD -j CT --zone 5"), "not seen", "not seen"),
        (forward(ALONE, "DROP", "-A FORWARD -d 10.244.0.0/16 -j ACCEPT"), "passes", "not seen"),
        (forward(ALONE, more="-A FORWARD -d 10.244.0.11/255.255.0.255 -j DROP"), "not seen", "not seen"),
        (forward(ALONE, "DROP", "-A FORWARD ! -d 10.0.0.0/8 -j ACCEPT"), "dropped", "not seen"),
        (forward(UFW, "DROP"), "dropped", "passes"),
        (forward(UFW, more="-A ufw-reject-forward -j REJECT"), "dropped", "passes"),
        (forward(UFW, "DROP", USER + "-p tcp -d 10.244.0.0/16 -j ACCEPT"), "passes", "passes"),
        (forward(UFW, "DROP", USER + "-s 192.0.2.0/24 -j ACCEPT"), "not seen", "passes"),
        (forward(UFW, "DROP", USER + "-p tcp --dport 8000:9000 -j ACCEPT"), "passes", "passes"),
        (forward(UFW, "DROP", USER + "-p tcp -m multiport --dports 22,443 -j ACCEPT"), "dropped", "passes"),
        (forward(FIREWALLD), "dropped", "passes"),
        (forward(FIREWALLD, dnat="-A FORWARD -m conntrack --ctstate DNAT -j ACCEPT"), "passes", "passes"),
        (forward(FIREWALLD, more=ZONE + "-o cni0 -j ACCEPT"), "passes", "passes"),
        (forward(FIREWALLD, more=ZONE + "! -o cni0 -j ACCEPT"), "dropped", "passes"),
        (forward(FIREWALLD, more=ZONE + "-m set --match-set good src -j ACCEPT"), "not seen", "passes"),
        (forward(DOCKER), "dropped", "dropped"),
        (forward(DOCKER, more="-A DOCKER-USER -i eth0 -o cni0 -j ACCEPT"), "passes", "dropped"),
        (forward(DOCKER, more="-A DOCKER-USER -m conntrack --ctstate DNAT -j ACCEPT"), "passes", "passes"),
        (forward(KUBE_PROXY), "passes", "passes"),
        (
            forward(KUBE_PROXY.replace("10.96.0.9", POD).replace("80 -j", "8080 -j")),
            "not seen",
            "passes",
        ),  # by its mark
        (forward(CALICO), "passes", "passes"),
        (forward(CALICO, "DROP"), "not seen", "not seen"),
    ],
)
def test_firewalls_as_they_are_found_on_hosts(chains, comes_in, goes_out):
    assert (verdict(chains, IN), verdict(chains, OUT)) == (comes_in, goes_out)


BEFORE6 = """\
:INPUT DROP [0:0]
-A INPUT -m rt --rt-type 0 -j DROP
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 128 -j ACCEPT
-A INPUT -m conntrack --ctstate INVALID -j DROP
-A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type {} -m hl --hl-eq {} -j ACCEPT
"""


@pytest.mark.parametrize(("kind", "hops", "told"), [(136, 255, "passes"), (135, 255, "dropped"), (136, 64, "dropped")])
def test_ufw_lets_neighbours_answer(kind, hops, told):
    answers = ndp("answers", None, 136, {"iifname": "eth0"})
    assert verdict([*saved("ip6", "filter", BEFORE6.format(kind, hops))], answers) == told


def test_rules_of_nft_among_those_of_iptables_are_read_as_nft_lists_them():
    xt, own = [{"xt": {"type": "match", "name": "conntrack"}}, {"drop": None}], matching(STATE, "in", "new", "drop")
    listed = Chain("ip", "filter", "FORWARD", "forward", "accept", "", (xt, own), ("xt match", "ct state new drop"))
    other = Chain("ip", "filter", "mine", "forward", "drop", "", (), (), 10)
    lines = ":FORWARD ACCEPT [0:0]\n-A FORWARD -m conntrack --ctstate INVALID -j DROP\n-A FORWARD -j DROP\n"
    both, mine = completed([listed, other], saved("ip", "filter", lines))
    assert (both.texts, mine) == (("-A FORWARD -m conntrack --ctstate INVALID -j DROP", "ct state new drop"), other)
    assert (verdict([both], SYN), verdict([both], OUT)) == ("dropped", "passes")
    (alone,) = completed([listed], saved("ip", "filter", ":FORWARD ACCEPT [0:0]\n"))
    assert verdict([alone], OUT) == "not seen"


@pytest.mark.parametrize(
    "rule",
    [
        None,
        7,
        "drop",
        [],
        [None],
        ["drop"],
        [{}],
        [{"match": {}}],
        [{"match": None}],
        [{"vmap": None}],
        [{"jump": None}],
    ],
)
def test_what_nft_never_lists_drops_nothing_and_breaks_nothing(rule):
    assert verdict([chain("ip", rule)], SYN) in ("passes", "not seen")


WORDS = (
    *("match", "left", "right", "op", "&", "|", "payload", "protocol", "field", "ct", "key", "meta", "set", "range"),
    *("prefix", "addr", "len", "elem", "val", "concat", "vmap", "data", "target", "xt"),
)
JSON = st.recursive(
    st.none() | st.integers() | st.sampled_from(["@small", "drop", "tcp", "flags", "10.0.0.1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3),
    max_leaves=12,
)
LEFT = st.sampled_from([of("tcp", "flags"), STATE, of("ip", "daddr"), of("tcp", "dport")]) | JSON


@given(LEFT, st.sampled_from(["==", "!=", "in", "!"]), JSON, st.sampled_from(["log", "jump", "vmap"]))
def test_whatever_nft_prints_before_it_a_drop_is_not_taken_for_a_pass(left, op, right, kind):
    rule = [{"match": {"left": left, "op": op, "right": right}}, {kind: right}]
    assert verdict([Chain("ip", "fw", "f", "forward", "accept", "", (rule, DROP))], SYN, SETS) != "passes"
