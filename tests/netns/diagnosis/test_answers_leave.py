"""Where the kernel sends answers, on a node whose VPN takes everything: as wg-quick and as an exit node set it up."""

import asyncio
import re
from dataclasses import replace

import pytest

from speaker.diagnosis.facts import Back, Bound, Facts, LinkSeen, Way
from speaker.diagnosis.node_checks import answers_elsewhere
from speaker.diagnosis.returning import FAR, backs
from speaker.interfaces.watcher import look
from speaker.node.known.knowledge import Cut, Knowledge, KnownEip, KnownEndpoint, KnownService

pytestmark = pytest.mark.netns

EIP, POD = "192.0.2.200", "10.244.1.11"
ONE = (KnownEndpoint(POD, 8080, "TCP", "n1", True, True),)
TUNNEL = "which is not an Ethernet link (a tunnel?)"
WG_QUICK = (
    "ip route add default dev wg0 table 51820",
    "ip rule add not fwmark 51820 table 51820 priority 32765",
    "ip rule add table main suppress_prefixlength 0 priority 32764",
)
EXIT_NODE = (
    "ip route add default dev wg0 table 52",
    "ip route add throw 192.0.2.0/24 table 52",
    "ip route add throw 10.244.0.0/16 table 52",
    "ip rule add fwmark 0x80000/0xff0000 table main priority 5210",
    "ip rule add table 52 priority 5270",
)
OF_MAIN = ("ip route replace default dev wg0 metric 1",)


@pytest.fixture
def node(new_namespace, wire, sh):
    node, lan, pods = (new_namespace(name) for name in ("node", "lan", "pods"))
    wire(node, "eth0", lan, "port0")
    wire(node, "cni0", pods, "eth0")
    for line in (
        "ip addr add 192.0.2.11/24 dev eth0",
        "ip addr add 10.244.1.1/24 dev cni0",
        "ip route add default via 192.0.2.1 dev eth0 metric 100",
        "ip tuntap add dev wg0 mode tun",
        "ip link set wg0 up",
        "ip addr add 10.9.0.2/32 dev wg0",
    ):
        sh(node, line)
    node.sysctl("net.ipv4.ip_forward", 1)
    return node


def seen_in(node, forwarder="nftables", bound=(), endpoints=ONE, sysctls=None) -> Facts:
    """As far as it counts here."""
    held = KnownEip(EIP, ("lab/web",), "lan", True, "n1", 1, 0.0, "", "", "eth0", "02:00:00:00:00:01")
    web = KnownService("lab/web", ("TCP 80",), ("IPv4",), "Cluster", (EIP,), ("lan",), Cut(endpoints))
    known = Knowledge("n1", forwarder, eips=Cut((held,)), services=Cut((web,)), links=("eth0",))
    link = LinkSeen("eth0", held.mac, True, True, "veth")
    facts = Facts(
        known=known,
        links=(link,),
        gateways=(("eth0", "192.0.2.1"),),
        ways=(Way(POD, "cni0"),),
        bound=bound,
        sysctls=sysctls or {},
    )
    with node.entered():
        snapshot = asyncio.run(look())
        return replace(facts, backs=backs(facts, snapshot, 9))


def test_without_a_vpn_answers_leave_by_the_link_of_the_eip(node):
    found = seen_in(node)
    assert found.backs == (Back(EIP, True, "eth0"), Back(EIP, False, "eth0"))
    assert list(answers_elsewhere(found)) == []


@pytest.mark.parametrize("vpn", [WG_QUICK, EXIT_NODE, OF_MAIN], ids=["wg-quick", "an exit node", "a default route"])
@pytest.mark.parametrize("endpoints", [ONE, ()], ids=["pod", "unread"])
@pytest.mark.parametrize("strict", [0, 1])
def test_behind_a_full_tunnel_the_answer_is_lost_and_the_mend_brings_it_back(node, sh, vpn, endpoints, strict):
    for line in vpn:
        sh(node, line)
    node.sysctl("net.ipv4.conf.eth0.rp_filter", strict)
    found = seen_in(node, endpoints=endpoints)
    assert {(each.beyond, each.link, each.lost) for each in found.backs} == {(True, "wg0", TUNNEL), (False, "eth0", "")}
    (finding,) = answers_elsewhere(found)
    assert "wg0" in finding.what
    client = FAR[4]
    command = finding.mend.partition("NET: ")[2].replace("NET", f"{client}/32")
    for line in command.split("; "):
        sh(node, line)
    assert list(answers_elsewhere(seen_in(node, endpoints=endpoints))) == []
    # and what comes in passes the filter, however strict: the kernel would route it to the pod
    assert re.search("dev cni0", sh(node, f"ip route get {POD} from {client} iif eth0"))


def test_a_strict_filter_in_front_of_a_tunnel_refuses_who_asks(node, sh):
    """What the mend above is held to."""
    for line in WG_QUICK:
        sh(node, line)
    node.sysctl("net.ipv4.conf.eth0.rp_filter", 1)
    assert "dev cni0" not in sh(node, f"ip route get {POD} from {FAR[4]} iif eth0", check=False)


def test_ipvs_routes_by_the_eip_and_the_rules_for_it_are_followed(node, sh):
    for line in (*WG_QUICK, f"ip addr add {EIP}/32 dev lo", f"ip rule add from {EIP} table main priority 100"):
        sh(node, line)
    unbound = seen_in(node, forwarder="ipvs")
    assert unbound.backs == (Back(EIP, True, "wg0", TUNNEL), Back(EIP, False, "eth0"))
    bound = seen_in(node, forwarder="ipvs", bound=(Bound("lo", EIP, 32),))
    assert bound.backs == (Back(EIP, True, "eth0"), Back(EIP, False, "eth0"))


def test_the_marks_that_rules_ask_for_are_tried(node, sh):
    for line in (*OF_MAIN, "ip route add default via 192.0.2.1 dev eth0 table 101"):
        sh(node, line)
    sh(node, "ip rule add fwmark 0x100000/0x100000 table 101 priority 1001")
    assert seen_in(node).backs[0] == Back(EIP, True, "wg0", TUNNEL, (0x100000,))


def test_a_link_that_does_not_forward_is_told_as_that_and_not_as_a_lost_answer(node):
    node.sysctl("net.ipv4.conf.cni0.forwarding", 0)
    off = seen_in(node, sysctls={"net.ipv4.conf.cni0.forwarding": "0"})
    assert list(answers_elsewhere(off)) == []


def test_a_node_whose_rules_refuse_everything_beyond_says_so(node, sh):
    sh(node, f"ip rule add to {FAR[4]} unreachable priority 50")
    assert seen_in(node).backs[0] == Back(EIP, True, "", "network is unreachable")
