"""IPVS for real: client, node and two backends in network namespaces, sockets on both ends, ipvsadm as the oracle.

The backends of most tests know no way back to the client, as behind another default route: only masquerade helps.
"""

import asyncio
import dis
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from speaker.api.service import SCHEDULERS
from speaker.forwarding.changes import EipChange, RealChange
from speaker.forwarding.ipvs.decisions import DRAIN_SECONDS
from speaker.forwarding.ipvs.forwarder import LOOK_SECONDS, IpvsForwarder, open_ipvs
from speaker.forwarding.nftables.forwarder import NftablesGuard
from speaker.forwarding.plan import EMPTY, Plan, RealServer, VirtualServer
from speaker.lab.namespaces import Namespace
from speaker.model import Protocol

pytestmark = pytest.mark.ipvs

V4, V6 = ip_address("198.51.100.1"), ip_address("2001:db8:100::1")
TCP, UDP = Protocol.TCP, Protocol.UDP
B1, B2 = ip_address("10.0.1.2"), ip_address("10.0.2.2")
B1_V6, B2_V6 = ip_address("fd00:1::2"), ip_address("fd00:2::2")
KINDS = socket.SOCK_STREAM, socket.SOCK_DGRAM
BACKENDS = {4: (B1, B2), 6: (B1_V6, B2_V6)}

TCP_REPAIR = 19  # linux/tcp.h

LAN = """
    lan node client 192.0.2.1/24 192.0.2.10/24 2001:db8:1::1/64 2001:db8:1::10/64
    b1 node b1 10.0.1.1/24 10.0.1.2/24 fd00:1::1/64 fd00:1::2/64
    b2 node b2 10.0.2.1/24 10.0.2.2/24 fd00:2::1/64 fd00:2::2/64
"""


def server(eip=V4, port=80, protocol=TCP, **others):
    reals = tuple(RealServer(address, 8080) for address in BACKENDS[eip.version])
    return VirtualServer(eip, protocol, port, **{"real_servers": reals, **others})


def plan(*servers, eips=()):
    return Plan(frozenset(eips) | {server.address for server in servers}, {server.key: server for server in servers})


# ── The LAN ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Lan:
    client: Namespace
    node: Namespace
    b1: Namespace
    b2: Namespace

    def ask(self, to, port, kind=socket.SOCK_STREAM, patience=5, *, by=None, say=b"?", source_port=0):
        """What a server on that port says of itself and of us; raises what the socket raises."""
        family = socket.AF_INET if to.version == 4 else socket.AF_INET6
        with (by or self.client).entered():
            sock = socket.socket(family, kind)
        with sock:
            sock.settimeout(patience)
            sock.bind(("", source_port))
            sock.connect((str(to), port))
            if kind == socket.SOCK_DGRAM:
                sock.send(say)
            return sock.recv(100).decode().split()

    def node_conf(self, link):
        with self.node.entered():
            folder = Path("/proc/sys/net/ipv4/conf", link)
            return tuple((folder / name).read_text().strip() for name in ("arp_ignore", "arp_announce"))


@pytest.fixture(scope="module")
def lan():
    with ExitStack() as stack:
        lan = Lan(*(stack.enter_context(Namespace(name)) for name in ("client", "node", "b1", "b2")))
        for line in LAN.strip().splitlines():
            link, _, peer, *addresses = line.split()
            far = getattr(lan, peer)
            ip(lan.node, f"link add {link} type veth peer name eth0 netns {far.path}")
            for namespace, name, mine in ((lan.node, link, addresses[::2]), (far, "eth0", addresses[1::2])):
                ip(namespace, "link set lo up", f"link set {name} up")
                ip(namespace, *(f"addr add {address} dev {name} {nodad(address)}" for address in mine))
        ip(lan.client, "route add 198.51.100.0/24 via 192.0.2.1", "route add 2001:db8:100::/64 via 2001:db8:1::1")
        lan.node.sysctl("net.ipv4.ip_forward", 1)
        lan.node.sysctl("net.ipv6.conf.all.forwarding", 1)
        for name in ("b1", "b2"):
            for kind in KINDS:
                serve(stack, getattr(lan, name), name, 8080, kind)
        for kind in KINDS:
            serve(stack, lan.node, "host", 22, kind)
        yield lan


def nodad(address):
    return "nodad" if ":" in address else ""


def ip(namespace, *lines):
    with namespace.entered():
        done = subprocess.run(
            ["ip", "-batch", "-"], input="\n".join(lines), capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr


def serve(stack, namespace, name, port, kind):
    """Answers on [::] and 0.0.0.0, as sshd does, with its name and the client's address. Its thread ends before the
    socket is closed: it might accept from another one that gets the same number."""
    over = threading.Event()
    with namespace.entered():
        sock = socket.socket(socket.AF_INET6, kind)
    stack.enter_context(sock)
    sock.bind(("::", port))

    def answer():
        try:
            if kind == socket.SOCK_DGRAM:
                text, client = sock.recvfrom(10_000)
                sock.sendto(f"{name} {client[0]} {len(text)}".encode(), client)
            else:
                connection, client = sock.accept()
                threading.Thread(target=converse, args=(connection, f"{name} {client[0]}"), daemon=True).start()
        except ConnectionError:
            pass  # that client has gone

    def loop():
        while not over.is_set():
            try:
                answer()
            except Exception:
                if not over.is_set():
                    raise

    def end():
        over.set()
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        thread.join()

    if kind == socket.SOCK_STREAM:
        sock.listen(16)
    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    stack.callback(end)


def converse(connection, name):
    """Says its name, then whatever it hears."""
    with connection, suppress(ConnectionError):
        connection.send(name.encode())
        while heard := connection.recv(10_000):
            connection.sendall(heard)


@contextmanager
def talking(lan, eip):
    """A connection from the client to an echo server behind this EIP's port 80."""
    with lan.client.entered(), socket.create_connection((str(eip), 80), 5) as sock:
        assert sock.recv(100)
        assert echo(sock)
        yield sock


def echo(sock):
    sock.send(b"?")
    return sock.recv(100) == b"?"


class Node:
    """A forwarder in a node's namespace, as one process after the other would have it."""

    def __init__(self, namespace, runtime_dir):
        self.namespace, self.runtime_dir = namespace, runtime_dir
        self.now = 0.0
        self.restart()

    def restart(self):
        """As ``open_ipvs``, which starts programs to find out what the kernel has: slow here."""
        self.forwarder = IpvsForwarder(self.runtime_dir, NftablesGuard(), lambda: self.now)

    def apply(self, wanted):
        return self.run(lambda: self.forwarder.apply(wanted))

    def tend(self, after=0.0):
        """Some seconds later."""
        self.now += after
        return self.run(self.forwarder.tend)

    def cleanup(self):
        return self.run(self.forwarder.cleanup)

    def problems(self):
        return tuple(each.what for each in self.run(self.forwarder.problems))

    def run(self, work):
        with self.namespace.entered():
            return asyncio.run(work())

    def killed_after(self, function, work):
        """A process that does ``work(self)`` with a forwarder of its own, killed when ``function`` returns."""

        def kill(frame, event, _):
            if event != "return" or frame.f_code.co_qualname != function:
                return
            if dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN"):  # not one that awaits
                os.kill(os.getpid(), signal.SIGKILL)

        child = os.fork()
        if child == 0:
            self.restart()
            threading.setprofile(kill)
            sys.setprofile(kill)
            work(self)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"{function} was never called"

    def sh(self, *command, text=None):
        with self.namespace.entered():
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def ipvsadm(self):
        return sorted(self.sh("ipvsadm", "-Sn").splitlines())

    def everything(self):
        """All that a forwarder may touch, comparable."""
        with self.namespace.entered():
            settings = {
                path: path.read_text().strip()
                for pattern in ("ipv4/conf/*/arp_*", "ipv4/vs/*conntrack", "ipv4/vs/expire*")
                for path in Path("/proc/sys/net").glob(pattern)
            }
        kept = sorted(self.sh("nft", "-s", "list", "ruleset").split())
        return self.ipvsadm(), kept, self.sh("ip", "-o", "addr").splitlines(), settings


@pytest.fixture
def node(lan, tmp_path):
    node = Node(lan.node, tmp_path)
    yield node
    node.cleanup()


@pytest.fixture
def bare(new_namespace, tmp_path):
    """A node without a LAN."""
    return Node(new_namespace("node"), tmp_path)


# ── Traffic ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_family_and_protocol_goes_round_robin_to_backends_with_another_default_route(lan, node):
    servers = [server(eip, 80, protocol) for eip in (V4, V6) for protocol in (TCP, UDP)]
    node.apply(plan(*servers))
    for eip in (V4, V6):
        for kind in KINDS:
            answers = Counter(lan.ask(eip, 80, kind)[0] for _ in range(6))
            assert answers == {"b1": 3, "b2": 3}, (eip, kind)
    assert node.problems() == ()
    assert node.ipvsadm() == sorted(
        line
        for flag in "tu"
        for eip, reals in ((V4, ["10.0.1.2", "10.0.2.2"]), (f"[{V6}]", ["[fd00:1::2]", "[fd00:2::2]"]))
        for line in (
            f"-A -{flag} {eip}:80 -s rr",
            *(f"-a -{flag} {eip}:80 -r {real}:8080 -m -w 1" for real in reals),
        )
    )


def test_a_backend_on_this_node_sees_the_clients_address(lan, node):
    ip(lan.b1, "route replace default via 10.0.1.1", "route replace default via fd00:1::1")
    reals = {4: (RealServer(B1, 8080, local=True),), 6: (RealServer(B1_V6, 8080, local=True),)}
    for masquerade in (False, True):
        node.apply(plan(*(server(eip, real_servers=reals[eip.version], masquerade=masquerade) for eip in (V4, V6))))
        assert lan.ask(V4, 80) == ["b1", "::ffff:192.0.2.10"]
        assert lan.ask(V6, 80) == ["b1", "2001:db8:1::10"]
    ip(lan.b1, "route del default via 10.0.1.1", "route del default via fd00:1::1")


def test_a_listener_of_the_host_is_reached_by_the_nodes_address_but_never_by_an_eip(lan, node):
    node.apply(plan(server(V4), server(V6)))
    for kind in KINDS:
        assert lan.ask(ip_address("192.0.2.1"), 22, kind)[0] == "host"
        assert lan.ask(ip_address("2001:db8:1::1"), 22, kind)[0] == "host"
        for eip in (V4, V6):
            with pytest.raises(ConnectionRefusedError):
                lan.ask(eip, 22, kind)


def test_what_ipvs_leaves_alone_reaches_no_listener_of_this_host(lan, node):
    """A Service has the port that sshd has. IPVS leaves to the host what comes from port 20 (FTP's data connections,
    ip_vs_schedule) and what was not sent to our MAC alone (ip_vs_in_hook)."""
    node.apply(plan(*(server(eip, 22, protocol) for eip in (V4, V6) for protocol in (TCP, UDP))))
    for eip in (V4, V6):
        for kind in KINDS:
            with pytest.raises(ConnectionRefusedError):
                lan.ask(eip, 22, kind, source_port=20)
    for router in ("192.0.2.1", "2001:db8:1::1"):
        ip(lan.client, f"neigh replace {router} lladdr ff:ff:ff:ff:ff:ff dev eth0 nud permanent")
    try:
        for eip in (V4, V6):
            with pytest.raises((TimeoutError, ConnectionRefusedError)):
                lan.ask(eip, 22, socket.SOCK_DGRAM, patience=0.5)
    finally:
        for router in ("192.0.2.1", "2001:db8:1::1"):
            ip(lan.client, f"neigh del {router} dev eth0")


def test_virtual_servers_that_somebody_clears_leave_no_way_to_a_listener_of_this_host(lan, node):
    node.apply(plan(*(server(eip, 22, protocol) for eip in (V4, V6) for protocol in (TCP, UDP))))
    node.sh("ipvsadm", "-C")
    for eip in (V4, V6):
        for kind in KINDS:
            with pytest.raises(ConnectionRefusedError):
                lan.ask(eip, 22, kind)


def test_an_eip_without_a_service_and_a_service_without_endpoints_refuse(lan, node):
    other = ip_address("198.51.100.2")
    node.apply(plan(server(V4, 22, real_servers=()), eips=[other]))
    for eip in (V4, other):
        with pytest.raises(ConnectionRefusedError):
            lan.ask(eip, 22)


def test_this_node_itself_reaches_the_backends_of_an_eip_and_none_of_its_own_listeners_there(lan, node):
    node.apply(plan(*(server(eip, 80, protocol) for eip in (V4, V6) for protocol in (TCP, UDP))))
    for eip in (V4, V6):
        for kind in KINDS:
            assert {lan.ask(eip, 80, kind, by=lan.node)[0] for _ in range(2)} == {"b1", "b2"}, (eip, kind)
            with pytest.raises(ConnectionRefusedError):
                lan.ask(eip, 22, kind, by=lan.node)


@pytest.mark.parametrize(("local", "masquerade"), [(True, True), (True, False), (False, True)])
def test_a_backend_reaches_itself_through_an_eip(lan, node, local, masquerade):
    """Masqueraded in any case: it would answer itself directly, and not know the answer for one from the EIP."""
    ip(lan.b1, "route replace default via 10.0.1.1", "route replace default via fd00:1::1")
    reals = {4: (RealServer(B1, 8080, local=local),), 6: (RealServer(B1_V6, 8080, local=local),)}
    node.apply(
        plan(
            *(
                server(eip, 80, protocol, real_servers=reals[eip.version], masquerade=masquerade)
                for eip in (V4, V6)
                for protocol in (TCP, UDP)
            )
        )
    )
    for eip, seen_from in ((V4, "::ffff:10.0.1.1"), (V6, "fd00:1::1")):
        for kind in KINDS:
            assert lan.ask(eip, 80, kind, by=lan.b1)[:2] == ["b1", seen_from], (eip, kind)
    ip(lan.b1, "route del default via 10.0.1.1", "route del default via fd00:1::1")


@pytest.mark.parametrize("masquerade", [True, False])
def test_a_listener_of_this_host_can_be_a_real_server(lan, node, masquerade):
    """A pod with hostNetwork has the node's own address."""
    reals = {V4: ip_address("192.0.2.1"), V6: ip_address("2001:db8:1::1")}
    node.apply(
        plan(
            *(
                server(eip, 80, protocol, real_servers=(RealServer(real, 22, local=True),), masquerade=masquerade)
                for eip, real in reals.items()
                for protocol in (TCP, UDP)
            )
        )
    )
    for eip, client in ((V4, "::ffff:192.0.2.10"), (V6, "2001:db8:1::10")):
        for kind in KINDS:
            assert lan.ask(eip, 80, kind)[:2] == ["host", client], (eip, kind)
            assert lan.ask(eip, 80, kind, by=lan.node)[0] == "host", (eip, kind)


def test_datagrams_in_fragments_arrive_whole_or_are_refused(lan, node):
    node.apply(plan(server(V4, 80, UDP), server(V6, 80, UDP)))
    for eip in (V4, V6):
        assert lan.ask(eip, 80, socket.SOCK_DGRAM, say=bytes(5000))[2] == "5000"
        with pytest.raises(ConnectionRefusedError):
            lan.ask(eip, 22, socket.SOCK_DGRAM, say=bytes(5000))


def test_ipv6_extension_headers_are_no_way_around_the_guard(lan, node):
    node.apply(plan(server(V6, 80, UDP)))
    padding = bytes([0, 0, 1, 4, 0, 0, 0, 0])  # RFC 8200, 4.2: PadN
    for option in (socket.IPV6_DSTOPTS, socket.IPV6_HOPOPTS):
        with lan.client.entered():
            sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        with sock:
            sock.setsockopt(socket.IPPROTO_IPV6, option, padding)
            sock.settimeout(5)
            sock.connect((str(V6), 22))
            sock.send(b"?")
            with pytest.raises(ConnectionRefusedError):
                sock.recv(100)


def test_two_clients_with_the_same_port_do_not_get_in_each_others_way(lan, node):
    others = {V4: "192.0.2.11", V6: "2001:db8:1::11"}
    ip(lan.client, "addr add 192.0.2.11/24 dev eth0", "addr add 2001:db8:1::11/64 dev eth0 nodad")
    node.apply(plan(*(server(eip, real_servers=(RealServer(BACKENDS[eip.version][0], 8080),)) for eip in (V4, V6))))
    for eip, other in others.items():
        with ExitStack() as stack:
            for source in ({4: "192.0.2.10", 6: "2001:db8:1::10"}[eip.version], other):
                with lan.client.entered():
                    sock = stack.enter_context(
                        socket.create_connection((str(eip), 80), timeout=5, source_address=(source, 40_000))
                    )
                assert sock.recv(100).decode().split()[0] == "b1"
    ip(lan.client, "addr del 192.0.2.11/24 dev eth0", "addr del 2001:db8:1::11/64 dev eth0")


def test_a_connection_ends_for_a_client_that_is_let_in_no_longer(lan, node):
    for eip in (V4, V6):
        for after in (server(eip, sources=(ip_network("203.0.113.0/24"),)), None):
            node.apply(plan(server(eip)))
            with talking(lan, eip) as sock:
                node.apply(plan(after) if after else plan(eips=[eip]))
                sock.settimeout(0.5)
                with pytest.raises((TimeoutError, ConnectionError)):
                    echo(sock)


def test_a_connection_that_another_node_had_is_reset(lan, node):
    """After a failover: a client that hears nothing would wait for minutes."""
    node.apply(plan(server(V4), server(V6)))
    for eip in (V4, V6):
        with lan.client.entered():
            sock = socket.socket(socket.AF_INET if eip.version == 4 else socket.AF_INET6)
        with sock:
            sock.settimeout(5)
            sock.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
            sock.connect((str(eip), 80))  # established without a packet
            sock.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, -1)
            sock.send(b"?")
            with pytest.raises(ConnectionResetError):
                sock.recv(100)


def test_a_client_is_told_of_a_narrower_link_to_a_backend(lan, node):
    node.apply(plan(*(server(eip, real_servers=(RealServer(BACKENDS[eip.version][0], 8080),)) for eip in (V4, V6))))
    ip(lan.node, "link set b1 mtu 1400")
    for eip in (V4, V6):
        with talking(lan, eip) as sock:
            sock.sendall(bytes(50_000))
            left = 50_000
            while left:
                left -= len(sock.recv(left))
    ip(lan.node, "link set b1 mtu 1500")


def test_this_host_may_connect_from_an_eip(lan, node):
    ip(lan.b1, "route replace default via 10.0.1.1", "route replace default via fd00:1::1")
    node.apply(plan(server(V4), server(V6)))
    for eip, real in ((V4, B1), (V6, B1_V6)):
        with lan.node.entered(), socket.create_connection((str(real), 8080), 5, source_address=(str(eip), 0)) as sock:
            assert sock.recv(100).decode().split()[0] == "b1"
    ip(lan.b1, "route del default via 10.0.1.1", "route del default via fd00:1::1")


def test_a_backend_that_refuses_is_heard(lan, node):
    for eip in (V4, V6):
        real = RealServer(BACKENDS[eip.version][0], 9)
        node.apply(plan(*(server(eip, 80, protocol, real_servers=(real,)) for protocol in (TCP, UDP))))
        for kind in KINDS:
            with pytest.raises(ConnectionRefusedError):
                lan.ask(eip, 80, kind)


def test_an_eip_answers_pings(lan, node):
    node.apply(plan(server(V4), server(V6)))
    for eip in (V4, V6):
        with lan.client.entered():
            subprocess.run(["ping", "-c", "1", "-W", "5", str(eip)], check=True, stdout=subprocess.DEVNULL)


def test_only_source_ranges_get_through_and_a_change_of_them_is_a_change(lan, node):
    ranges = ip_network("192.0.2.0/24"), ip_network("2001:db8:1::/64")
    node.apply(plan(server(V4, sources=ranges), server(V6, sources=ranges)))
    assert {lan.ask(eip, 80)[0] for eip in (V4, V6)} <= {"b1", "b2"}
    of_the_other_family = ip_network("2001:db8:1::/64")
    changed = node.apply(plan(server(V4, sources=(of_the_other_family,)), server(V6, sources=ranges)))
    assert [str(change) for change in changed] == [
        "~ TCP 198.51.100.1:80 rr from 2001:db8:1::/64 (was TCP 198.51.100.1:80 rr from 192.0.2.0/24,2001:db8:1::/64)"
    ]
    with pytest.raises(TimeoutError):
        lan.ask(V4, 80, patience=0.3)


def test_persistence_keeps_a_client_with_one_backend(lan, node):
    node.apply(plan(server(V4, persistence=600), server(V6, persistence=600)))
    for eip in (V4, V6):
        assert len({lan.ask(eip, 80)[0] for _ in range(4)}) == 1
    assert "-A -t 198.51.100.1:80 -s rr -p 600" in node.ipvsadm()
    assert "-A -t [2001:db8:100::1]:80 -s rr -p 600" in node.ipvsadm()  # and no -M: each address for itself


def test_nothing_new_goes_to_weight_0(lan, node):
    node.apply(plan(server(V4)))
    changes = node.apply(plan(server(V4, real_servers=(RealServer(B1, 8080, weight=0), RealServer(B2, 8080)))))
    assert [type(change) for change in changes] == [RealChange]
    assert {lan.ask(V4, 80)[0] for _ in range(4)} == {"b2"}


def test_a_udp_client_that_keeps_its_port_moves_on_when_its_backend_is_gone(lan, node):
    node.apply(plan(server(V4, 53, UDP)))
    with lan.client.entered():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sock:
        sock.connect((str(V4), 53))
        first, *_ = ask_again(sock)
        other = {"b1": B2, "b2": B1}[first]
        node.apply(plan(server(V4, 53, UDP, real_servers=(RealServer(other, 8080),))))
        assert ask_again(sock)[0] == {"b1": "b2", "b2": "b1"}[first]


def ask_again(sock):
    """As resolvers do: the packet that finds its backend gone may be lost."""
    sock.settimeout(0.5)
    for _ in range(10):
        with suppress(TimeoutError):
            sock.send(b"?")
            return sock.recv(100).decode().split()
    raise AssertionError("no answer")


# ── Graceful change ───────────────────────────────────────────────────────────────────────────────────────────


def reals(*addresses, **settings):
    return tuple(RealServer(address, 8080, **settings) for address in addresses)


def weights(node):
    """What ipvsadm says of each real server of V4's: its weight."""
    found = (re.match(rf"-a -[tu] {V4}:\d+ -r (\S+):8080 -m -w (\d+)", line) for line in node.ipvsadm())
    return {match[1]: int(match[2]) for match in found if match}


@contextmanager
def talking_to(lan, node, real):
    """An established connection through V4 to this real server, which is then joined by the other."""
    node.apply(plan(server(V4, real_servers=reals(real))))
    with talking(lan, V4) as sock:
        node.apply(plan(server(V4)))
        yield sock


def test_a_real_server_that_goes_keeps_its_connections_gets_no_new_ones_and_is_gone_when_its_time_is_up(lan, node):
    with talking_to(lan, node, B1) as sock:
        changes = node.apply(plan(server(V4, real_servers=reals(B2))))
        assert [type(change) for change in changes] == [RealChange]
        assert weights(node) == {"10.0.1.2": 0, "10.0.2.2": 1}
        assert {lan.ask(V4, 80)[0] for _ in range(4)} == {"b2"}
        assert node.tend(after=DRAIN_SECONDS - 1) == ()
        assert echo(sock)
        assert list(map(str, node.tend(after=2))) == [f"  - {B1}:8080 weight 0 for TCP {V4}:80"]
        assert weights(node) == {"10.0.2.2": 1}
        sock.settimeout(0.5)
        with pytest.raises((TimeoutError, ConnectionError)):
            echo(sock)


def test_a_real_server_is_removed_when_its_last_connection_has_ended(lan, node):
    with talking_to(lan, node, B1) as sock:
        node.apply(plan(server(V4, real_servers=reals(B2))))
        assert node.tend() == ()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    # Reset, IPVS remembers it for 10 s of the kernel's own clock (ip_vs_proto_tcp.c), and that cannot be set.
    remembered = True
    while not (changes := node.tend()):
        assert remembered
        remembered = "10.0.1.2" in node.sh("ipvsadm", "-Lcn")
        threading.Event().wait(1)
    assert list(map(str, changes)) == [f"  - {B1}:8080 weight 0 for TCP {V4}:80"]
    assert weights(node) == {"10.0.2.2": 1}


def test_a_real_server_that_comes_back_is_taken_back_with_its_connections(lan, node):
    with talking_to(lan, node, B1) as sock:
        node.apply(plan(server(V4, real_servers=reals(B2))))
        changes = node.apply(plan(server(V4)))
        assert [type(change) for change in changes] == [RealChange]
        assert weights(node) == {"10.0.1.2": 1, "10.0.2.2": 1}
        assert node.tend(after=2 * DRAIN_SECONDS) == ()
        assert echo(sock)


def test_a_speaker_that_was_killed_is_followed_by_one_that_takes_on_what_was_going(lan, node):
    with talking_to(lan, node, B1) as sock:
        leaving = plan(server(V4, real_servers=reals(B2)))
        node.killed_after("IpvsTables.change", lambda self: self.apply(leaving))
        node.restart()
        assert node.apply(leaving) == ()
        assert node.tend() == ()
        assert weights(node) == {"10.0.1.2": 0, "10.0.2.2": 1}
        assert echo(sock)
        assert len(node.tend(after=DRAIN_SECONDS)) == 1
        assert weights(node) == {"10.0.2.2": 1}


def test_sticky_clients_leave_a_real_server_that_goes(lan, node):
    node.apply(plan(server(V4, persistence=600)))
    first = lan.ask(V4, 80)[0]
    other = {"b1": B2, "b2": B1}[first]
    node.apply(plan(server(V4, persistence=600, real_servers=reals(other))))
    assert {lan.ask(V4, 80)[0] for _ in range(2)} == {"b1", "b2"} - {first}


def test_the_last_real_server_gone_refuses_new_clients_and_keeps_the_old(lan, node):
    with talking_to(lan, node, B1) as sock:
        node.apply(plan(server(V4, real_servers=())))
        with pytest.raises(ConnectionRefusedError):
            lan.ask(V4, 80)
        assert echo(sock)


def test_500_connections_outlive_endpoints_rolled_one_by_one_and_a_speaker_killed_on_the_way(lan, node):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # both ends are here
    with ExitStack() as stack:
        socks = []
        for real in (B1, B2):
            node.apply(plan(server(V4, real_servers=reals(real))))
            socks += [stack.enter_context(talking(lan, V4)) for _ in range(250)]
        for real_servers in (reals(B1, B2), reals(B1), reals(B1, B2), reals(B2)):
            node.apply(plan(server(V4, real_servers=real_servers)))
            node.tend()
        assert sum(map(echo, socks)) == 500
        node.killed_after("IpvsTables.change", lambda self: self.apply(plan(server(V4, real_servers=()))))
        node.restart()
        node.apply(plan(server(V4, real_servers=())))
        node.tend()
        node.apply(plan(server(V4)))
        assert sum(map(echo, socks)) == 500


def test_a_virtual_server_that_others_have_cleared_or_changed_is_put_right_within_a_minute(bare):
    wanted = plan(server(V4, real_servers=(RealServer(B1, 80),)), server(V6, persistence=60))
    bare.apply(wanted)
    before = bare.ipvsadm()
    for lines in (
        "-C",
        f"-d -t {V4}:80 -r {B1}:80",
        f"-e -t {V4}:80 -r {B1}:80 -m -w 7",
        f"-e -t {V4}:80 -r {B1}:80 -g",
        f"-E -t {V4}:80 -s sh",
        f"-E -t {V4}:80 -s sh -b sh-port",
        f"-E -t [{V6}]:80 -s rr -p 60 -M 64",
    ):
        bare.sh("ipvsadm", *lines.split())
        assert bare.ipvsadm() != before, lines
        assert bare.tend(after=LOOK_SECONDS), lines
        assert bare.ipvsadm() == before, lines
        assert bare.tend(after=LOOK_SECONDS) == ()


def test_every_scheduler_that_a_service_may_ask_for_is_one(bare):
    named = dict(enumerate(sorted(SCHEDULERS), 80))
    wanted = plan(*(server(V4, port, scheduler=scheduler) for port, scheduler in named.items()))
    bare.apply(wanted)
    shown = {"mh-port": "mh (mh-port)", "sh-port": "sh (sh-port)"}
    assert dict(re.findall(rf"^TCP +{V4}:(\d+) (.+?) *$", bare.sh("ipvsadm", "-Ln"), re.MULTILINE)) == {
        str(port): shown.get(scheduler, scheduler) for port, scheduler in named.items()
    }
    bare.restart()
    assert bare.apply(wanted) == ()


def test_mh_port_spreads_the_connections_of_one_client_and_mh_does_not(lan, node):
    for first_port, scheduler, answering in ((20_100, "mh", 1), (20_200, "mh-port", 2)):  # below ephemeral ones
        node.apply(plan(server(V4, scheduler=scheduler)))
        answers = {lan.ask(V4, 80, source_port=first_port + port)[0] for port in range(12)}
        assert len(answers) == answering, scheduler


def test_sctp_is_forwarded(lan, node):
    sctp = {"type": socket.SOCK_STREAM, "proto": socket.IPPROTO_SCTP}
    with lan.b1.entered():
        listener = socket.socket(socket.AF_INET, **sctp)
    with listener:
        listener.bind((str(B1), 8080))
        listener.listen()
        node.apply(plan(server(V4, 80, Protocol.SCTP, real_servers=reals(B1))))
        with lan.client.entered():
            asking = socket.socket(socket.AF_INET, **sctp)
        with asking:
            asking.settimeout(5)
            asking.connect((str(V4), 80))
            accepted, (client, _) = listener.accept()
            with accepted:
                accepted.send(b"hello")
                assert (asking.recv(10), client) == (b"hello", "10.0.1.1")


# ── Strict ARP, and where an EIP is bound ─────────────────────────────────────────────────────────────────────


def arp_answers(lan, target, wait=0.3):
    """Whether anybody on the LAN answers the client's ARP request for it."""
    with lan.client.entered():
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806))
    with sock:
        sock.bind(("eth0", 0x0806))
        sock.settimeout(wait)
        mac = sock.getsockname()[4]
        start = b"\xff" * 6 + mac + bytes.fromhex("0806 0001 0800 06 04 0001")
        sock.send(start + mac + ip_address("192.0.2.10").packed + bytes(6) + target.packed)
        try:
            while True:
                answer = sock.recv(100)
                if answer[20:22] == b"\0\2" and answer[28:32] == target.packed:
                    return True
        except TimeoutError:
            return False


def test_the_kernel_is_silent_for_an_eip_of_the_nodes_own_subnet_until_cleanup(lan, node):
    eip, bystander, own = map(ip_address, ("192.0.2.200", "192.0.2.201", "192.0.2.1"))
    ip(lan.node, "link add other type dummy", "link set other up", f"addr add {bystander}/32 dev other")
    before = node.everything()
    assert arp_answers(lan, bystander)  # so is any address of a dummy link, unless ARP is strict
    node.apply(plan(server(eip)))
    assert not arp_answers(lan, eip)
    assert not arp_answers(lan, bystander)
    assert arp_answers(lan, own)
    ip(lan.node, "link add late type veth peer name late2", "link set late up")
    node.apply(plan(server(eip)))
    assert lan.node_conf("late") == ("1", "2")
    ip(lan.node, "link del late")
    node.restart()
    node.cleanup()
    assert arp_answers(lan, bystander)
    assert node.everything() == before
    ip(lan.node, "link del other")


def test_the_last_eip_gone_arp_is_as_before(lan, node):
    before = lan.node_conf("lan")
    node.apply(plan(server(V4)))
    assert lan.node_conf("lan") == ("1", "2") != before
    node.apply(EMPTY)
    assert lan.node_conf("lan") == before


def test_a_setting_that_somebody_changed_meanwhile_stays(lan, node):
    node.apply(plan(server(V4)))
    lan.node.sysctl("net.ipv4.conf.lan.arp_ignore", 2)
    node.cleanup()
    assert lan.node_conf("lan") == ("2", "0")
    lan.node.sysctl("net.ipv4.conf.lan.arp_ignore", 0)


def test_an_eip_is_never_secondary_although_the_nic_shares_its_subnet(lan, node):
    eip = ip_address("192.0.2.200")
    node.apply(plan(server(eip)))
    line = next(line for line in node.sh("ip", "-o", "addr").splitlines() if "192.0.2.200" in line)
    assert "eip-speaker0" in line
    assert "192.0.2.200/32" in line
    assert "secondary" not in line
    assert "src 192.0.2.200" in node.sh("ip", "route", "show", "table", "local", "192.0.2.200")
    ip(lan.node, "addr add 192.0.2.201/24 dev lan")  # the way that bit others
    assert "secondary" in node.sh("ip", "-o", "addr", "show", "to", "192.0.2.201")
    assert "src 192.0.2.1" in node.sh("ip", "route", "show", "table", "local", "192.0.2.201")
    ip(lan.node, "addr del 192.0.2.201/24 dev lan")


def test_an_ipv6_eip_is_in_no_table_but_local_and_the_link_has_no_address_of_its_own(bare):
    bare.apply(plan(server(V6)))
    assert str(V6) not in bare.sh("ip", "-6", "route", "show", "table", "main")
    assert str(V6) in bare.sh("ip", "-6", "route", "show", "table", "local")
    assert "fe80" not in bare.sh("ip", "addr", "show", "dev", "eip-speaker0")
    assert "NOARP" in bare.sh("ip", "link", "show", "eip-speaker0")


def open_ports(node):
    """The TCP ports of V4 that the guard lets through to IPVS."""
    listed = node.sh("nft", "--numeric", "list", "set", "inet", "eip-speaker-guard", "ports4")
    return set(re.findall(rf"{V4} \. 6 \. (\d+)", listed))


# ── The tables ────────────────────────────────────────────────────────────────────────────────────────────────

FOREIGN = """
-A -t 203.0.113.9:80 -s wlc
-a -t 203.0.113.9:80 -r 10.0.1.2:80 -g -w 3
-A -u [2001:db8:9::9]:53 -s sh -p 300 -M 64
-A -f 7 -s rr
"""
FOREIGN_TABLE = """
table inet filter {
  chain input { type filter hook input priority filter; tcp dport 22 accept; }
}
table ip nat {
  chain postrouting { type nat hook postrouting priority srcnat; meta l4proto udp accept; }
}
"""


@pytest.fixture
def beside_others(bare):
    """A node where another program has virtual servers, and rules in the hooks we have ours in."""
    bare.sh("ipvsadm", "-R", text=FOREIGN)
    bare.sh("nft", "-f", "-", text=FOREIGN_TABLE)
    return bare


MANY = [
    server(eip, port, protocol, scheduler=scheduler, persistence=persistence)
    for eip in (V4, V6, ip_address("192.0.2.200"))
    for protocol in Protocol
    for port, scheduler, persistence in ((80, "rr", None), (443, "wlc", 30), (65535, "sh", None))
]


def test_applied_twice_changes_nothing_also_after_a_restart(beside_others):
    wanted = plan(*MANY, eips=[ip_address("192.0.2.201")])
    changes = beside_others.apply(wanted)
    assert Counter(type(change).__name__ for change in changes) == {
        "EipChange": 4,
        "ServerChange": 27,
        "RealChange": 54,
    }
    after = beside_others.everything()
    assert beside_others.apply(wanted) == ()
    assert beside_others.everything() == after
    beside_others.restart()
    assert beside_others.apply(wanted) == ()
    assert beside_others.everything() == after


def test_nothing_of_anybody_else_is_touched_and_cleanup_removes_all_of_ours(beside_others):
    before = beside_others.everything()
    beside_others.apply(plan(*MANY))
    beside_others.apply(plan(server(V4, 81)))
    assert set(before[0]) <= set(beside_others.ipvsadm())
    assert [line for line in beside_others.ipvsadm() if "198.51.100.1" in line] == [
        "-A -t 198.51.100.1:81 -s rr",
        "-a -t 198.51.100.1:81 -r 10.0.1.2:8080 -m -w 1",
        "-a -t 198.51.100.1:81 -r 10.0.2.2:8080 -m -w 1",
    ]
    removed = beside_others.cleanup()
    assert "link eip-speaker0" in removed
    assert "virtual server TCP 198.51.100.1:81 rr" in removed
    assert beside_others.everything() == before
    assert beside_others.cleanup() == ()


def test_an_eip_that_another_program_already_serves_is_left_to_it_and_named(beside_others):
    taken = ip_address("203.0.113.9")
    before = beside_others.ipvsadm()
    beside_others.apply(plan(server(taken, 443), server(V4)))
    assert [line for line in beside_others.ipvsadm() if "203.0.113.9" in line] == [
        line for line in before if "203.0.113.9" in line
    ]
    assert "203.0.113.9" not in beside_others.sh("ip", "-o", "addr")
    assert any("EIP 203.0.113.9 is not served" in problem for problem in beside_others.problems())
    late = ip_address("203.0.113.10")  # not there when we looked
    beside_others.sh("ipvsadm", "-A", "-t", f"{late}:80", "-s", "rr")
    assert beside_others.apply(plan(server(taken, 443), server(late, 443), server(V4))) == ()
    assert f"-A -t {late}:80 -s rr" in beside_others.ipvsadm()
    assert any(f"EIP {late} is not served" in problem for problem in beside_others.problems())


@pytest.fixture
def beside_kube_proxy(node):
    """In ipvs mode: it has V4 and V6 on its link, and virtual servers for them."""
    node.apply(plan(server(V4), server(V6)))
    mine = f"addr add {V4}/32 dev kube-ipvs0", f"addr add {V6}/128 dev kube-ipvs0 nodad"
    ip(node.namespace, "link add kube-ipvs0 type dummy", "link set kube-ipvs0 up", *mine, "link del eip-speaker0")
    node.restart()
    yield node
    ip(node.namespace, "link del kube-ipvs0")


def let_go(node):
    """What kube-proxy does for ``ipMode: Proxy`` where it may not remove a virtual server (``excludeCIDRs``)."""
    ip(node.namespace, f"addr del {V4}/32 dev kube-ipvs0", f"addr del {V6}/128 dev kube-ipvs0")


def test_kube_proxys_virtual_servers_for_an_eip_are_taken_over_with_their_connections(lan, beside_kube_proxy):
    node = beside_kube_proxy
    with talking(lan, V4) as old, talking(lan, V6) as old_v6:
        assert list(map(str, node.apply(plan(server(V4), server(V6))))) == [f"+ EIP {V4}", f"+ EIP {V6}"]
        assert echo(old)
        let_go(node)
        assert echo(old)
        assert echo(old_v6)
        assert {lan.ask(eip, 80)[0] for eip in (V4, V6) for _ in range(2)} == {"b1", "b2"}
    assert node.problems() == ()
    assert node.tend(after=LOOK_SECONDS) == ()


def test_what_kube_proxy_has_left_behind_for_an_eip_is_taken_over_and_put_right(lan, beside_kube_proxy):
    node = beside_kube_proxy
    let_go(node)
    node.apply(plan(server(V4, real_servers=reals(B2)), server(V6)))
    assert weights(node) == {"10.0.1.2": 0, "10.0.2.2": 1}
    assert {lan.ask(V4, 80)[0] for _ in range(4)} == {"b2"}
    assert node.problems() == ()


def test_kube_proxys_virtual_servers_for_what_nobody_asks_for_here_stay(beside_kube_proxy):
    node = beside_kube_proxy
    of_v6 = [line for line in node.ipvsadm() if str(V6) in line]
    node.apply(plan(server(V4)))
    node.apply(EMPTY)
    assert [line for line in node.ipvsadm() if str(V4) in line] == []
    assert [line for line in node.ipvsadm() if str(V6) in line] == of_v6
    node.apply(plan(server(V6)))  # so that it goes


def test_every_part_of_a_virtual_server_can_change(bare):
    before = server(V4, scheduler="rr")
    bare.apply(plan(before))
    b3 = RealServer(ip_address("10.0.3.2"), 8080)
    for after in (
        replace(before, scheduler="sh"),
        replace(before, persistence=60),
        replace(before, real_servers=(RealServer(B1, 8080, weight=7), b3)),
        replace(before, masquerade=False, real_servers=(replace(b3, local=True),)),
        before,
    ):
        assert bare.apply(plan(after))
        bare.tend()  # nobody was connected to what is going
        scheduler = f"-s {after.scheduler}" + (f" -p {after.persistence}" if after.persistence else "")
        assert bare.ipvsadm() == [
            f"-A -t {V4}:80 {scheduler}",
            *(f"-a -t {V4}:80 -r {real.address}:8080 -m -w {real.weight}" for real in after.real_servers),
        ]
        assert bare.apply(plan(after)) == ()


def test_an_unknown_scheduler_costs_only_its_own_virtual_server_whose_port_stays_closed(bare):
    changes = bare.apply(plan(server(V4, 80, scheduler="nonesuch"), server(V4, 81)))
    assert {str(change).split()[-1] for change in changes if isinstance(change, EipChange)} == {str(V4)}
    assert [line for line in bare.ipvsadm() if line.startswith("-A")] == [f"-A -t {V4}:81 -s rr"]
    assert open_ports(bare) == {"81"}
    assert "this kernel has no scheduler 'nonesuch' (module ip_vs_nonesuch)" in "".join(bare.problems())


def test_an_address_no_real_server_can_have_is_a_problem_of_its_own(bare):
    bad = RealServer(ip_address("224.0.0.1"), 80)
    bare.apply(plan(server(V4, real_servers=(RealServer(B1, 8080), bad))))
    assert bare.ipvsadm() == [f"-A -t {V4}:80 -s rr", f"-a -t {V4}:80 -r 10.0.1.2:8080 -m -w 1"]
    assert "224.0.0.1:80 weight 1 for TCP 198.51.100.1:80: not an address" in "".join(bare.problems())


def test_nft_is_the_guard(bare):
    bare.forwarder = bare.run(lambda: open_ipvs(bare.runtime_dir))
    bare.apply(plan(server(V4)))
    assert open_ports(bare) == {"80"}


def test_the_guard_is_also_what_brings_replies_back_and_nothing_else_does(lan, node):
    node.apply(plan(server(V4), server(V6)))
    assert {lan.ask(V4, 80)[1] for _ in range(2)} == {"::ffff:10.0.1.1", "::ffff:10.0.2.1"}  # the node's own
    assert {lan.ask(V6, 80)[1] for _ in range(2)} == {"fd00:1::1", "fd00:2::1"}
    assert 'masquerade fully-random comment "bring replies back"' in node.sh(
        "nft", "list", "table", "inet", "eip-speaker-guard"
    )


def test_our_link_taken_away_under_us_comes_back_with_its_eips(bare):
    bare.apply(plan(server(V4)))
    after = bare.everything()
    bare.sh("ip", "link", "del", "eip-speaker0")
    assert [str(change) for change in bare.apply(plan(server(V4)))] == [f"+ EIP {V4}"]
    assert [line.split()[1:] for line in bare.everything()[2]] == [line.split()[1:] for line in after[2]]


@pytest.mark.parametrize("step", ["StrictArp.tighten", "DummyLink.bind", "IpvsTables.change", "NftablesGuard.apply"])
def test_killed_at_any_step_the_next_one_repairs_and_cleans_up(beside_others, step):
    node = beside_others
    before = node.everything()
    wanted = plan(*MANY[:6], server(V6))
    node.killed_after(step, lambda self: self.apply(wanted))
    node.restart()
    node.apply(wanted)
    assert node.apply(wanted) == ()
    ours = [line for line in node.ipvsadm() if line.startswith("-A") and line not in before[0]]
    assert len(ours) == len(wanted.virtual_servers)
    node.killed_after(step.replace("StrictArp.tighten", "DummyLink.remove"), cleanup_or_shrink(step))
    node.restart()
    node.cleanup()
    assert node.everything() == before


def cleanup_or_shrink(step):
    """Binding happens in neither way down: that one is killed while it swaps one EIP for another."""
    if step == "DummyLink.bind":
        return lambda self: self.apply(plan(server(ip_address("192.0.2.222"))))
    return lambda self: self.cleanup()
