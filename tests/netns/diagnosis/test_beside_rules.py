"""What drops a client's packets beside a chain that they meet: NDP that is filtered, routes that lead nowhere, programs
on the link."""

import asyncio
import ctypes
import os
import socket
import struct
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
from pyroute2 import IPRoute
from test_answers_leave import seen_in
from trials import EIP6, POD6, facts_of, rules, tried

from speaker.diagnosis import kernel
from speaker.diagnosis.chain import State, explain
from speaker.diagnosis.eip_checks import firewall, unseen_rules
from speaker.diagnosis.facts import Way
from speaker.diagnosis.node_checks import answers_elsewhere
from speaker.errors import Unsupported
from speaker.interfaces.watcher import look
from speaker.layer2.kernel import KernelResponder, bpf
from speaker.packets.ebpf import assembled, leave, move_number

pytestmark = pytest.mark.netns

INPUT = "chain i { type filter hook input priority 0; policy drop; ct state established,related accept; iif lo accept;"
OUTPUT = "chain o { type filter hook output priority 0; policy drop; ct state established,related accept;"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{INPUT} }}", "drops NDP answers of clients and gateways"),
        (f"{INPUT} icmpv6 type echo-request accept; }}", "drops NDP answers of clients and gateways"),
        (f"{INPUT} icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} ip6 hoplimit 255 accept; }}", ""),
        (f"{INPUT} meta l4proto {{ icmp, ipv6-icmp }} accept; }}", ""),
        (f'{INPUT} iifname "eth0" icmpv6 type nd-neighbor-advert accept; }}', "drops NDP answers of endpoints"),
        (f"{OUTPUT} }}", "drops this host's NDP questions to clients and gateways"),
        (f"{OUTPUT} icmpv6 type nd-neighbor-solicit accept; }}", ""),
        ("chain p { type filter hook prerouting priority -300; ct state invalid drop; }", "drops NDP answers"),
        ("chain p { type filter hook prerouting priority -300; rt type 0 drop; }", ""),
        ("chain p { type filter hook prerouting priority -300; icmpv6 type nd-neighbor-advert notrack; }", ""),
        ("chain p { type filter hook postrouting priority 0; icmpv6 type nd-neighbor-solicit drop; }", "NDP questions"),
    ],
)
def test_without_its_neighbours_answers_the_kernel_sends_nothing(node, text, found):
    rules(node, f"table inet fw {{ {text}; }}\n")
    with node.entered():
        chains, sets = asyncio.run(kernel.rules())
    facts = replace(facts_of(EIP6), chains=chains, sets=sets, ways=(Way(POD6, "cni0"),))
    (held,) = facts.knowledge.eips.first
    told = [each.what for each in firewall(facts, held)]
    assert len(told) == bool(found)
    assert all(found in each for each in told)
    assert [*unseen_rules(facts, held)] == []


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((), []),
        (("ip rule add iif eth0 unreachable",), ["answers_elsewhere"]),
        (("ip rule add iif eth0 blackhole",), ["answers_elsewhere"]),
        (("ip rule add from 10.244.0.0/16 blackhole",), ["answers_elsewhere"]),
        (("ip rule add from 10.244.0.0/16 prohibit",), ["answers_elsewhere"]),
        (("ip route add blackhole 10.244.1.11/32",), ["answers_elsewhere"]),
        (("ip rule add fwmark 7 blackhole",), []),  # as long as nobody gives that mark
        (
            (
                *("ip link add eth1 type veth peer name eth2", "ip link set eth1 up", "ip link set eth2 up"),
                *("ip route add 192.0.2.0/25 dev eth1", "ip route add 192.0.2.128/25 dev eth1"),
            ),
            ["reverse_path"],
        ),
    ],
)
def test_routes_that_lead_nowhere_are_found_on_the_way_in_and_back(node, sh, lines, found):
    node.sysctl("net.ipv4.conf.eth0.rp_filter", 1)
    for line in lines:
        sh(node, line)
    facts = seen_in(node, sysctls={"net.ipv4.conf.eth0.rp_filter": "1"})
    assert [each.kind for each in answers_elsewhere(facts)] == found
    assert {mark for back in facts.backs for mark in back.astray} == ({7} if "fwmark" in "".join(lines) else set())


def named(node) -> list[str]:
    with node.entered():
        links = asyncio.run(look()).links.values()
        return [each.why for each in kernel.unread(link for link in links if link.name in ("eth0", "cni0"))]


@pytest.mark.parametrize("side", ["ingress", "egress"])
def test_a_filter_of_tc_is_named_as_not_seen(node, sh, side):
    assert named(node) == []
    sh(node, "tc qdisc add dev eth0 clsact")
    assert named(node) == []
    sh(node, f"tc filter add dev eth0 {side} protocol ip u32 match u32 0 0 action mirred egress redirect dev cni0")
    assert named(node) == [f"tc filter show dev eth0 {side}"]


def test_the_speakers_own_filter_is_not(node):
    with node.entered():
        eth0 = asyncio.run(look()).link_named("eth0")
        try:
            with KernelResponder(eth0, None, tcx=False):
                assert named(node) == []
        except Unsupported as error:
            pytest.skip(str(error))


def test_policies_of_ipsec_are_named_as_not_seen(node, sh):
    sh(node, "ip xfrm policy add dir fwd src 192.0.2.50/32 dst 10.244.1.11/32 action block")
    assert named(node) == ["ip xfrm policy"]


def test_a_program_of_xdp_is_named_as_not_seen(node):
    code = ctypes.create_string_buffer(bytes.fromhex("b700000001000000 9500000000000000"), 16)  # XDP_DROP
    licence = ctypes.create_string_buffer(b"GPL")
    head = struct.pack("=IIQQ", 6, 2, ctypes.addressof(code), ctypes.addressof(licence))
    try:
        program = bpf(5, bytearray(head + bytes(40)))
    except OSError as error:
        pytest.skip(f"bpf(2): {error.strerror}")
    with node.entered(), IPRoute() as route:
        route.link("set", index=socket.if_nametoindex("eth0"), xdp_fd=program)
    assert named(node) == ["ip link show eth0"]


def test_a_connection_that_gets_nowhere_is_not_called_well(node, sh):
    """A route refuses it, which is no rule of a chain."""
    sh(node, "ip rule add iif eth0 blackhole")
    facts = tried(node)
    (way_in,) = (step for step in explain(facts).steps if step.name.startswith("way in"))
    assert (way_in.findings, way_in.state) == ((), State.UNKNOWN)


# ── eBPF programs that neither tc nor nft lists ───────────────────────────────────────────────────────────────

TC, IN_NETFILTER = 3, 32
"""Types of programs."""


@contextmanager
def attached(node, kind, where, target, *more):
    """A program that lets everything pass, with its descriptors for as long as the block lasts."""
    code = assembled([move_number(0, 1 if kind == IN_NETFILTER else 0), leave()])
    given, licence = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"GPL")
    head = struct.pack("=IIQQ", kind, len(code) // 8, ctypes.addressof(given), ctypes.addressof(licence))
    loaded = head + struct.pack("=IIQII16sII", 0, 0, 0, 0, 0, b"another", 0, where)
    with node.entered(), ExitStack() as opened:
        try:
            program = bpf(5, bytearray(loaded))
            opened.callback(os.close, program)
            link = bpf(28, bytearray(struct.pack("=8I", program, target, where, 0, *more, *[0] * (4 - len(more)))))
        except OSError as error:
            pytest.skip(f"this kernel has no such program: {error}")
        opened.callback(os.close, link)
        yield


@pytest.mark.parametrize("where", [46, 47], ids=["ingress", "egress"])
def test_a_program_in_tcx_is_named_as_not_seen(node, where):
    with node.entered():
        index = asyncio.run(look()).link_named("eth0").index
    with attached(node, TC, where, index):
        assert named(node) == ["bpftool net show dev eth0"]
    assert named(node) == []


def test_the_speakers_own_program_is_not(node):
    with node.entered():
        eth0 = asyncio.run(look()).link_named("eth0")
        try:
            with KernelResponder(eth0, None):
                assert named(node) == []
        except Unsupported as error:
            pytest.skip(str(error))


def test_a_program_in_netfilter_is_named_as_not_seen(node):
    with attached(node, IN_NETFILTER, 45, 0, 2, 2, 100):  # IPv4, forward, priority 100
        assert named(node) == ["bpftool link show"]


def test_what_else_keeps_them_from_being_listed_is_told(node):
    """A link that goes meanwhile, say."""
    with node.entered():
        eth0 = asyncio.run(look()).link_named("eth0")
        try:
            kernel._tcx(eth0, 46)
        except OSError as error:
            pytest.skip(f"this kernel has no tcx: {error}")
        told = [each.why for each in kernel._in_ebpf([replace(eth0, index=1 << 20)])]
    assert told == ["No such device"]


def test_without_the_right_to_list_them_that_is_told_once(node):
    """As in an agent's pod."""
    script = (
        "import asyncio; from speaker.diagnosis import kernel; from speaker.interfaces.watcher import look;"
        "links = asyncio.run(look()).links.values();"
        "print([each.why for each in kernel.unread(link for link in links if link.name in ('eth0', 'cni0'))])"
    )
    with node.entered():
        argv = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all", sys.executable, "-c", script]
        told = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert told.stdout.strip() == "['listing them takes CAP_SYS_ADMIN']", told.stderr
