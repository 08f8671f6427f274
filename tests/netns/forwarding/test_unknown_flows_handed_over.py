"""An EIP moves from node one to node two: what becomes of the connections that one has.

::

              ┌─ one ─┐          ┌─ b1
    client ───┤       ├── back ──┤
              └─ two ─┘          └─ b2

Both nodes forward with nftables. What an announcement does is done to the client's table of neighbours.
"""

import json
import re
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from speaker.forwarding.forwarder import cleanup
from speaker.forwarding.handing_over import NextHop
from speaker.forwarding.nftables.forwarder import NftablesForwarder
from speaker.forwarding.plan import Plan, RealServer, VirtualServer
from speaker.forwarding.unknown_flows import UnknownFlows, open_unknown_flows, remove_unknown_flows
from speaker.lab.namespaces import Namespace
from speaker.model import Mac, Protocol

pytestmark = pytest.mark.netns

both_families = pytest.mark.parametrize("version", [4, 6])
both_policies = pytest.mark.parametrize("policy", ["Cluster", "Local"])

EIP = {4: ip_address("192.0.2.200"), 6: ip_address("2001:db8:2::200")}
FRONT = {4: "192.0.2.", 6: "2001:db8:2::"}
BACK = {4: "10.0.0.", 6: "2001:db8:a::"}
BITS = {4: 24, 6: 64}
NUMBERS = {"one": 1, "two": 2, "client": 9, "b1": 11, "b2": 12}
OWN = {"one": {4: ip_address("192.0.2.1"), 6: ip_address("fe80::1")}}
OWN["two"] = {4: ip_address("192.0.2.2"), 6: ip_address("fe80::2")}
QUIET = 0.3
PATIENCE = 30.0
"""Seconds until a test gives up."""
"""Seconds in which nothing has to happen."""

TCP_REPAIR, TCP_REPAIR_QUEUE, TCP_QUEUE_SEQ, TCP_REPAIR_WINDOW = 19, 20, 21, 29
TCP_REPAIR_ON, TCP_REPAIR_OFF_NO_WP, TCP_SEND_QUEUE = 1, -1, 2
WINDOW = struct.pack("5I", 0, 65535, 65535, 65535, 0)
"""struct tcp_repair_window: the other end takes as much as it can."""
RECVERR = {4: (socket.IPPROTO_IP, 11), 6: (socket.IPPROTO_IPV6, 25)}


def mac(name: str) -> Mac:
    return Mac(bytes([2, 0, 0, 0, 0, NUMBERS[name]]))


SPEAKERS = frozenset({mac("one"), mac("two")})


@dataclass(frozen=True)
class Connection:
    """Its two ends."""

    client: socket.socket
    backend: socket.socket

    def goes_on(self) -> None:
        """Both hear each other; raises OSError otherwise."""
        self.client.sendall(b"question")
        assert self.backend.recv(100) == b"question"
        self.backend.sendall(b"answer")
        assert self.client.recv(100) == b"answer"

    def seen(self) -> IPv4Address | IPv6Address:
        """Whom the backend takes for the client."""
        return ip_address(self.backend.getpeername()[0])


class Scene:
    def __init__(self, stack: ExitStack, new_namespace, sh, inside, link: str) -> None:
        self.stack, self.sh, self.inside, self.link = stack, sh, inside, link
        self.namespaces: dict[str, Namespace] = {name: new_namespace(name) for name in ("lan", *NUMBERS)}
        for namespace in self.namespaces.values():
            namespace.sysctl("net.ipv6.conf.default.accept_dad", 0)
            namespace.sysctl("net.ipv4.conf.all.rp_filter", 1)
        for bridge in ("front", "back"):
            sh(self["lan"], f"ip link add {bridge} type bridge")
            sh(self["lan"], f"ip link set {bridge} up")
        for name in NUMBERS:
            if name not in ("b1", "b2"):
                self._join(name, "front", FRONT, link if name in OWN else "eth0", mac(name))
            if name != "client":
                self._join(name, "back", BACK, "back")
        for name, addresses in OWN.items():
            sh(self[name], f"ip addr add {addresses[6]}/64 dev {link} nodad")
            self[name].sysctl("net.ipv4.ip_forward", 1)
            self[name].sysctl("net.ipv6.conf.all.forwarding", 1)
        for backend, gateway in (("b1", "one"), ("b2", "two")):
            for version in (4, 6):
                sh(self[backend], f"ip -{version} route add default via {BACK[version]}{NUMBERS[gateway]}")
        self.listeners = [self._listener(name, version) for name in ("b1", "b2") for version in (4, 6)]
        self.flows: UnknownFlows = inside(self["two"], open_unknown_flows)

    def __getitem__(self, name: str) -> Namespace:
        return self.namespaces[name]

    def _join(self, name: str, bridge: str, net: dict[int, str], link: str, address: bytes = b"") -> None:
        port, peer, place = f"{name}-{bridge}", self[name], f"address {address.hex(':')}" if address else ""
        wire = "port" if link == "br0" else link
        self.sh(self["lan"], f"ip link add {port} type veth peer name {wire} {place} netns {peer.path}")
        self.sh(self["lan"], f"ip link set {port} master {bridge} up")
        if wire != link:
            self.sh(peer, f"ip link add {link} {place} type bridge")
            self.sh(peer, f"ip link set {wire} master {link} up")
        self.sh(peer, f"ip link set {link} up")
        for version in (4, 6):
            self.sh(peer, f"ip addr add {net[version]}{NUMBERS[name]}/{BITS[version]} dev {link} nodad")

    def _socket(self, name: str, version: int) -> socket.socket:
        with self[name].entered():
            made = self.stack.enter_context(socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6))
        made.settimeout(PATIENCE)
        return made

    def _listener(self, name: str, version: int) -> socket.socket:
        listener = self._socket(name, version)
        listener.bind((f"{BACK[version]}{NUMBERS[name]}", 8080))
        listener.listen(64)
        listener.setblocking(False)
        return listener

    def forward(self, policy: str) -> None:
        for node, local in (("one", "b1"), ("two", "b2")):
            backends = [local] if policy == "Local" else ["b1", "b2"]
            servers = [
                VirtualServer(
                    EIP[version],
                    Protocol.TCP,
                    80,
                    masquerade=policy == "Cluster",
                    real_servers=tuple(
                        RealServer(ip_address(f"{BACK[version]}{NUMBERS[name]}"), 8080, local=name == local)
                        for name in backends
                    ),
                )
                for version in (4, 6)
            ]
            plan = Plan(frozenset(EIP.values()), {each.key: each for each in servers})
            self.inside(self[node], NftablesForwarder().apply, plan)

    def eip_to(self, node: str) -> None:
        for version in (4, 6):
            lladdr = mac(node).hex(":")
            self.sh(self["client"], f"ip neigh replace {EIP[version]} lladdr {lladdr} dev eth0 nud permanent")

    def connect(self, version: int) -> Connection:
        client = self._socket("client", version)
        client.connect((str(EIP[version]), 80))
        asked, _, _ = select.select(self.listeners, [], [], PATIENCE)
        assert asked, "nobody was asked"
        accepted = self.stack.enter_context(asked[0].accept()[0])
        accepted.settimeout(PATIENCE)
        return Connection(client, accepted)

    def unknown_flow(self, version: int) -> socket.socket:
        """A client's end of a connection that nobody knows, which has just said something (criu.org/TCP_connection)."""
        client = self._socket("client", version)
        client.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_ON)
        client.bind((f"{FRONT[version]}{NUMBERS['client']}", 0))
        client.connect((str(EIP[version]), 80))
        client.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR_WINDOW, WINDOW)
        client.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP)
        client.setsockopt(*RECVERR[version], 1)
        client.sendall(b"question")
        return client

    def say_outside_the_window(self, client: socket.socket, version: int) -> None:
        client.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_ON)
        client.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR_QUEUE, TCP_SEND_QUEUE)
        next_up = client.getsockopt(socket.IPPROTO_TCP, TCP_QUEUE_SEQ) % 2**32
        client.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP)
        ip = (IP if version == 4 else IPv6)(src=client.getsockname()[0], dst=str(EIP[version]))
        tcp = TCP(sport=client.getsockname()[1], dport=80, flags="A", seq=(next_up + 2**30) % 2**32, ack=1)
        with self["client"].entered(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind(("eth0", 0))
            wire.send(bytes(Ether(src=mac("client"), dst=mac("two")) / ip / tcp))

    def hand_over(self, node: str = "two", to: str = "one", speakers: frozenset[Mac] = SPEAKERS) -> bool:
        flows = self.flows if node == "two" else self.inside(self[node], open_unknown_flows)
        hops = {EIP[version]: NextHop(self.link, OWN[to][version]) for version in (4, 6)}
        return self.inside(self[node], flows.bring_to, hops, speakers)

    def moved(self, version: int) -> Connection:
        """One of the old holder, with the EIP at the new one, which hands over."""
        connection = self.connect(version)
        self.hand_over()
        self.eip_to("two")
        return connection

    def drop(self, node: str) -> bool:
        flows = self.inside(self[node], open_unknown_flows)
        return self.inside(self[node], flows.bring_to, dict.fromkeys(EIP.values()), SPEAKERS)

    def count(self, node: str) -> Callable[[], int]:
        """How many TCP packets to an EIP have come in since."""
        self.sh(self[node], "nft add table inet count")
        self.sh(self[node], "nft add chain inet count in { type filter hook prerouting priority -400 ; }")
        self.sh(self[node], f"nft add rule inet count in ip daddr {EIP[4]} meta l4proto tcp counter")
        self.sh(self[node], f"nft add rule inet count in ip6 daddr {EIP[6]} meta l4proto tcp counter")
        return lambda: sum(map(int, re.findall(r"packets (\d+)", self.sh(self[node], "nft list chain inet count in"))))

    def tracked(self, node: str) -> int:
        """Connections that the kernel knows."""
        with self[node].entered():
            return int(Path("/proc/sys/net/netfilter/nf_conntrack_count").read_text())

    def refused_by_rp_filter(self, node: str) -> int:
        with self[node].entered(), Path("/proc/thread-self/net/netstat").open() as lines:
            names, values = [line.split() for line in lines if line.startswith("TcpExt:")]
        return int(dict(zip(names, values, strict=True))["IPReversePathFilter"])


@pytest.fixture
def node(new_namespace) -> Namespace:
    return new_namespace("node")


@pytest.fixture
def link() -> str:
    return "eth0"


@pytest.fixture
def scene(new_namespace, sh, inside, link) -> Iterator[Scene]:
    with ExitStack() as stack:
        made = Scene(stack, new_namespace, sh, inside, link)
        made.forward("Cluster")
        made.eip_to("one")
        yield made


# ── The old holder's connections ──────────────────────────────────────────────────────────────────────────────


@both_policies
@both_families
def test_all_connections_go_on_and_new_ones_are_the_new_holders(scene, version, policy):
    scene.forward(policy)
    scene.drop("one")
    connections = [scene.connect(version) for _ in range(6)]
    scene.hand_over()
    scene.eip_to("two")
    for connection in connections * 2:
        connection.goes_on()
    seen = {scene.connect(version).seen() for _ in range(4)}
    client, node = (ip_address(f"{net[version]}{number}") for net, number in ((FRONT, 9), (BACK, 2)))
    assert seen == {client} if policy == "Local" else node in seen <= {node, client}
    assert [scene.refused_by_rp_filter(node) for node in ("one", "two")] == [0, 0]


@pytest.mark.parametrize("link", ["br0"])
@both_families
def test_the_link_may_be_a_bridge(scene, version):
    connection = scene.moved(version)
    connection.goes_on()


@both_families
def test_a_megabyte_arrives(scene, version):
    connection = scene.moved(version)
    heard = bytearray()
    sending = threading.Thread(target=connection.client.sendall, args=(bytes(1_000_000),))
    sending.start()
    while len(heard) < 1_000_000:
        heard += connection.backend.recv(65536)
    sending.join()


@both_families
def test_the_end_of_a_connection_arrives_even_if_nothing_was_said_since_the_move(scene, version):
    connection = scene.moved(version)
    connection.client.shutdown(socket.SHUT_WR)
    assert connection.backend.recv(1) == b""


@both_families
def test_an_endpoint_is_told_of_an_abort(scene, version):
    connection = scene.moved(version)
    connection.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.client.close()
    with pytest.raises(ConnectionResetError):
        connection.backend.recv(1)


@both_families
def test_conntrack_may_be_strict(scene, version):
    for node in OWN:
        scene[node].sysctl("net.netfilter.nf_conntrack_tcp_loose", 0)
    connection = scene.moved(version)
    connection.goes_on()


@both_families
def test_while_nobody_knows_yet_who_takes_them_they_neither_break_nor_are_answered(scene, version):
    connection = scene.connect(version)
    scene.drop("two")
    scene.eip_to("two")
    connection.client.settimeout(QUIET)
    connection.client.sendall(b"question")
    with pytest.raises(TimeoutError):
        connection.client.recv(1)
    scene.hand_over()
    assert connection.backend.recv(100) == b"question"


@both_families
def test_without_an_entry_they_are_reset(scene, version):
    connection = scene.connect(version)
    scene.hand_over()
    scene.inside(scene["two"], scene.flows.bring_to, {}, SPEAKERS)
    scene.eip_to("two")
    connection.client.sendall(b"question")
    with pytest.raises(ConnectionResetError):
        connection.client.recv(1)


@both_families
def test_the_new_holders_own_connections_stay_there(scene, version):
    scene.eip_to("two")
    connection = scene.connect(version)
    scene.hand_over()
    came = scene.count("one")
    connection.goes_on()
    connection.client.close()
    assert connection.backend.recv(1) == b""
    assert came() == 0


@both_families
def test_what_falls_out_of_the_window_of_a_connection_of_the_new_holder_is_not_handed_over(scene, version):
    """The node before might answer it with a reset."""
    scene.eip_to("two")
    connection = scene.connect(version)
    scene.hand_over()
    came = scene.count("one")
    scene.say_outside_the_window(connection.client, version)
    connection.goes_on()
    assert came() == 0


def test_a_next_hop_on_a_link_that_is_not_there_is_none(scene):
    nowhere = {EIP[4]: NextHop("eth9", OWN["one"][4])}
    scene.inside(scene["two"], scene.flows.bring_to, nowhere, SPEAKERS)
    scene.eip_to("two")
    client = scene.unknown_flow(4)
    with pytest.raises(ConnectionResetError):
        client.recv(1)


# ── Round and round ───────────────────────────────────────────────────────────────────────────────────────────


@both_families
def test_two_nodes_that_name_each_other_do_not_send_a_packet_to_and_fro(scene, version):
    scene.hand_over("two", to="one")
    scene.hand_over("one", to="two")
    scene.eip_to("two")
    came = {node: scene.count(node) for node in OWN}
    client = scene.unknown_flow(version)
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert 0 < came["one"]() == came["two"]() < 4  # it may have said it once more meanwhile


@both_families
def test_not_even_for_ever_if_they_do_not_know_each_others_macs(scene, version):
    scene.hand_over("two", to="one", speakers=frozenset())
    scene.hand_over("one", to="two", speakers=frozenset())
    scene.eip_to("two")
    came = {node: scene.count(node) for node in OWN}
    client = scene.unknown_flow(version)
    with pytest.raises(OSError, match="No route to host"):  # its hop limit was exceeded
        client.recv(1)
    assert 0 < sum(count() for count in came.values()) < 640  # by then it may have said it once more


@both_families
def test_what_comes_from_a_speaker_is_not_handed_on(scene, version):
    scene.hand_over(speakers=SPEAKERS | {mac("client")})
    scene.eip_to("two")
    came = scene.count("one")
    client = scene.unknown_flow(version)
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert came() == 0


@both_families
def test_a_node_that_was_rebooted_and_forwards_nothing_yet_sends_it_back_and_it_is_reset(scene, sh, version):
    scene.hand_over()
    scene.eip_to("two")
    sh(scene["one"], "nft flush ruleset")
    sh(scene["one"], f"ip neigh replace {EIP[version]} lladdr {mac('two').hex(':')} dev eth0 nud permanent")
    came = {node: scene.count(node) for node in OWN}
    with pytest.raises(ConnectionResetError):
        scene.unknown_flow(version).recv(1)
    assert 0 < came["one"]() * 2 == came["two"]() < 8


@both_families
def test_unknown_flows_leave_nothing_behind_in_conntrack(scene, version):
    scene.hand_over()
    scene.eip_to("two")
    connection = scene.connect(version)
    before = scene.tracked("two")
    client = scene.unknown_flow(version)
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    connection.goes_on()
    assert scene.tracked("two") == before


# ── The tables ────────────────────────────────────────────────────────────────────────────────────────────────


def test_brought_there_twice_nothing_is_done_and_what_is_flushed_is_made_again(scene, sh):
    assert scene.hand_over()
    assert not scene.hand_over()
    before = sh(scene["two"], "nft list table ip6 eip-speaker-strays")
    sh(scene["two"], "nft add table inet other")
    assert not scene.hand_over()
    sh(scene["two"], "nft flush ruleset")
    assert scene.hand_over()
    assert sh(scene["two"], "nft list table ip6 eip-speaker-strays") == before
    assert not scene.hand_over()


hops = {
    4: st.sampled_from([None, *(NextHop("lo", ip_address(f"10.0.0.{last}")) for last in (1, 2))]),
    6: st.sampled_from([None, NextHop("lo", ip_address("fe80::1")), NextHop("eth9", ip_address("fe80::1"))]),
}
ways = st.builds(
    lambda *families: {eip: hop for family in families for eip, hop in family.items()},
    *(
        st.dictionaries(st.sampled_from([EIP[version] + more for more in range(4)]), hops[version])
        for version in (4, 6)
    ),
)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(first=ways, second=ways, speakers=st.frozensets(st.sampled_from(sorted(SPEAKERS))))
def test_whatever_was_there_the_kernel_ends_up_with_what_is_wanted(node, inside, sh, first, second, speakers):
    def contents() -> list[str]:
        listed = json.loads(sh(node, "nft --json list ruleset"))["nftables"]
        things = [
            {**thing, "handle": 0, "elem": sorted(map(str, thing.get("elem", ())))}
            for item in listed
            for thing in item.values()
        ]
        return sorted(map(str, things))

    kept, another = UnknownFlows(), UnknownFlows()
    inside(node, kept.bring_to, first, SPEAKERS)
    inside(node, kept.bring_to, second, speakers)
    assert not inside(node, kept.bring_to, second, speakers)
    step_by_step = contents()
    inside(node, another.cleanup)
    inside(node, kept.bring_to, second, speakers)
    assert contents() == step_by_step


def test_cleanup_removes_it_and_nothing_else(scene, inside, sh, tmp_path):
    scene.hand_over()
    sh(scene["two"], "nft add table inet other")
    inside(scene["two"], cleanup, tmp_path, "nftables")
    assert not scene.hand_over()
    removed = inside(scene["two"], remove_unknown_flows)
    assert removed == ("nftables table ip eip-speaker-strays", "nftables table ip6 eip-speaker-strays")
    assert sh(scene["two"], "nft list tables").split("\n") == ["table inet eip-speaker", "table inet other", ""]
    assert inside(scene["two"], remove_unknown_flows) == ()
