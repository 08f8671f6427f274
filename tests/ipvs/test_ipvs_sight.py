"""What operators see of IPVS and set of its limits: with traffic, beside what ipvsadm says."""

import asyncio
import io
import json
import re
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

import pytest

from speaker.forwarding.connections import CONNTRACK, connection_lines, survey
from speaker.forwarding.ipvs.forwarder import LOOK_SECONDS, IpvsForwarder
from speaker.forwarding.limits import Use, look, raise_conntrack_max
from speaker.forwarding.nftables.forwarder import NftablesGuard
from speaker.forwarding.plan import Plan, RealServer, VirtualServer
from speaker.lab.namespaces import Namespace
from speaker.model import Protocol
from speaker.settings import AS_THEY_ARE, Timeouts
from speaker.tools.connections import connections

pytestmark = pytest.mark.ipvs

V4, V6 = ip_address("198.51.100.1"), ip_address("2001:db8:100::1")
BACKENDS = {4: ip_address("10.0.1.2"), 6: ip_address("fd00:1::2")}
PATIENCE = 60.0
"""IPVS brings its counters up to date every two seconds."""


LAN = """
    eth0 node client 192.0.2.1/24 192.0.2.10/24 2001:db8:1::1/64 2001:db8:1::10/64
    b1 node backend 10.0.1.1/24 10.0.1.2/24 fd00:1::1/64 fd00:1::2/64
"""


@contextmanager
def lan():
    """(node, client): the backend behind the node echoes on 8080, with TCP and UDP, for as long as the block lasts."""
    with ExitStack() as stack:
        places = {name: stack.enter_context(Namespace(name)) for name in ("node", "client", "backend")}
        node = places["node"]
        for line in LAN.strip().splitlines():
            link, _, peer, *addresses = line.split()
            far = places[peer]
            ip(node, f"link add {link} type veth peer name eth0 netns {far.path}")
            for namespace, name, mine in ((node, link, addresses[::2]), (far, "eth0", addresses[1::2])):
                ip(namespace, "link set lo up", f"link set {name} up")
                ip(namespace, *(f"addr add {each} dev {name} {'nodad' if ':' in each else ''}" for each in mine))
            ip(far, *(f"route add default via {each.partition('/')[0]}" for each in addresses[::2]))
        node.sysctl("net.ipv4.ip_forward", 1)
        node.sysctl("net.ipv6.conf.all.forwarding", 1)
        with places["backend"].entered():
            listener = socket.create_server(("::", 8080), family=socket.AF_INET6, dualstack_ipv6=True)
            datagrams = stack.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
            datagrams.bind(("::", 8080))
        stack.enter_context(listener)
        for serve, opened in ((accept, listener), (echo, datagrams)):
            thread = threading.Thread(target=serve, args=(opened,), daemon=True)
            thread.start()
            stack.callback(ended, opened, thread)
        yield node, places["client"]


def ended(opened, thread):
    """Before it is closed: the thread might read from another socket that gets the same number."""
    with suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)
    thread.join()


def ip(namespace, *lines):
    with namespace.entered():
        subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


def accept(listener):
    """Every connection is held open and answered."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=converse, args=(connection,), daemon=True).start()


def converse(connection):
    with suppress(ConnectionError), connection:  # a client that leaves before it has read all resets it
        while heard := connection.recv(1000):
            connection.sendall(heard)


def echo(datagrams):
    while True:
        try:
            heard, client = datagrams.recvfrom(1000)
            if client is None:  # it was shut down
                return
            datagrams.sendto(heard, client)
        except OSError:
            return


@contextmanager
def talking(client, eip, port, kind, text):
    """Somebody who has said ``text`` and heard it back."""
    family = socket.AF_INET if eip.version == 4 else socket.AF_INET6
    with client.entered():
        sock = socket.socket(family, kind)
    with sock:
        sock.settimeout(PATIENCE)
        sock.connect((str(eip), port))
        sock.send(text)
        assert sock.recv(1000) == text
        yield sock


def server(eip, port, protocol, **others):
    return VirtualServer(eip, protocol, port, real_servers=(RealServer(BACKENDS[eip.version], 8080),), **others)


SERVERS = (
    server(V4, 80, Protocol.TCP),
    server(V4, 53, Protocol.UDP, persistence=60),
    server(V6, 80, Protocol.TCP),
    server(V6, 443, Protocol.TCP),
)
PLAN = Plan(frozenset({V4, V6}), {each.key: each for each in SERVERS})


class Node:
    """A forwarder in the node's namespace, as one process after the other would have it."""

    def __init__(self, namespace, runtime_dir):
        self.namespace, self.runtime_dir, self.now = namespace, runtime_dir, 0.0
        self.start()

    def start(self, timeouts=AS_THEY_ARE):
        self.forwarder = IpvsForwarder(self.runtime_dir, NftablesGuard(), lambda: self.now, timeouts)

    def run(self, work):
        with self.namespace.entered():
            return asyncio.run(work())

    def apply(self):
        return self.run(lambda: self.forwarder.apply(PLAN))

    def traffic(self):
        with self.namespace.entered():
            return self.forwarder.traffic(real_servers=True)

    def tables(self):
        with self.namespace.entered():
            return look(ipvs=True)

    def connections(self, eip="", limit="100", *, as_json=True):
        out = io.StringIO()
        with self.namespace.entered():
            assert connections(Path("/nowhere"), out, eip, limit, as_json) == 0
        return json.loads(out.getvalue()) if as_json else out.getvalue().splitlines()

    def ipvsadm(self, *arguments):
        with self.namespace.entered():
            done = subprocess.run(["ipvsadm", *arguments], capture_output=True, text=True, check=True)
        return done.stdout


@pytest.fixture
def bare(new_namespace, tmp_path):
    """A node without a LAN."""
    node = Node(new_namespace("node"), tmp_path)
    yield node
    node.run(node.forwarder.cleanup)


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """A node with connections of every kind, two of them to somebody else's virtual server, and two that have ended."""
    theirs = ip_address("192.0.2.1")
    open_ones = ((V4, 80, "STREAM"), (V4, 53, "DGRAM"), (V6, 80, "STREAM"), (V6, 80, "STREAM"), (theirs, 80, "STREAM"))
    with lan() as (namespace, client), ExitStack() as stack:
        node = Node(namespace, tmp_path_factory.mktemp("run"))
        node.ipvsadm("-A", "-t", "192.0.2.1:80", "-s", "rr")
        node.ipvsadm("-a", "-t", "192.0.2.1:80", "-r", "10.0.1.2:8080", "-m")
        node.apply()
        for eip in (V4, theirs):
            with talking(client, eip, 80, socket.SOCK_STREAM, b"over"):
                pass
        for eip, port, kind in open_ones:
            stack.enter_context(talking(client, eip, port, getattr(socket, f"SOCK_{kind}"), bytes(500)))
        yield node


WORDS = {"ESTABLISHED": "established", "UDP": "datagrams", "ASSURED": "sticks to it"}


def test_the_connections_are_those_that_ipvsadm_lists(busy):
    listed = [line.split() for line in busy.ipvsadm("-Lnc").splitlines()[2:]]
    ours = busy.connections()
    left = {  # seconds until it is forgotten, by everything else
        (protocol, state, client, virtual, real): int(expire[:2]) * 60 + int(expire[3:])
        for protocol, expire, state, client, virtual, real in listed
    }
    shown = {
        tuple(line[name] for name in ("protocol", "state", "client", "virtual_server", "real_server")): line
        for line in ours["shown"]
    }
    words = {
        (key[0], "closed" if key[1] == "TIME_WAIT" else WORDS.get(key[1], "closing"), *key[2:]): key for key in left
    }
    assert shown.keys() == words.keys()
    assert len(shown) == 8
    assert all(left[words[key]] - line["forgotten_in"] in (0, 1, 2) for key, line in shown.items())
    assert ours["connections"] == 7
    assert {
        (each["virtual_server"], each["established"], each["others"], each["sticking"]) for each in ours["real_servers"]
    } == {
        ("198.51.100.1:80", 1, 1, 0),
        ("198.51.100.1:53", 0, 1, 1),
        ("[2001:db8:100::1]:80", 2, 0, 0),
        ("192.0.2.1:80", 1, 1, 0),
    }


def test_the_connections_of_one_eip_are_shown_for_people_no_more_than_asked_for(busy):
    head, _, _, summary, _, _, first, more = busy.connections(str(V6), "1", as_json=False)
    assert head == "connections 2, real servers with any 1"
    assert summary.split() == ["TCP", "[2001:db8:100::1]:80", "[fd00:1::2]:8080", "2", "0", "0"]
    assert re.fullmatch(r"\[2001:db8:1::10\]:\d+ +TCP \[.*\]:80 +\[.*\]:8080 +established +[89]\d\d s", first)
    assert more == "… and 1 more: --limit"


def test_traffic_is_counted_as_ipvsadm_counts_it(busy):
    deadline = time.monotonic() + PATIENCE
    while True:
        before = stats(busy)
        found = busy.traffic().virtual_servers
        if before == stats(busy) and sum(counts[0] for counts in before.values()) == 7:
            break
        assert time.monotonic() < deadline, (before, found)
    assert found == {name: counts for name, counts in before.items() if any(counts) and name[0] != "192.0.2.1"}
    assert {name: counts[0] for name, counts in found.items()} == {
        ("198.51.100.1", "TCP", "80"): 2,
        ("198.51.100.1", "UDP", "53"): 1,
        ("2001:db8:100::1", "TCP", "80"): 2,
    }, "neither the virtual server that nobody asked, nor somebody else's"
    assert all(counts[3] >= 500 and counts[4] >= 500 for counts in found.values())
    assert busy.traffic().real_servers == {
        ("198.51.100.1", "TCP", "80", "10.0.1.2:8080"): (1, 1),
        ("198.51.100.1", "UDP", "53", "10.0.1.2:8080"): (0, 1),
        ("2001:db8:100::1", "TCP", "80", "[fd00:1::2]:8080"): (2, 0),
    }
    (size,) = re.findall(r"size=(\d+)", busy.ipvsadm("-Ln"))  # Linux 7 begins with 256 buckets, and makes more
    assert busy.tables().ipvs == Use(7, int(size)), "somebody else's fill the same table"


def stats(node):
    """Name → connections, packets in and out, bytes in and out, as ipvsadm has them."""
    lines = [line.split() for line in node.ipvsadm("-Ln", "--stats", "--exact").splitlines()]
    found = {}
    for protocol, place, *numbers in (line for line in lines if line[0] in ("TCP", "UDP")):
        address, _, port = place.rpartition(":")
        found[address.strip("[]"), protocol, port] = tuple(map(int, numbers))
    return found


def timeouts(node):
    return node.ipvsadm("-L", "--timeout").strip()


def told(tcp, tcp_fin, udp):
    return f"Timeout (tcp tcpfin udp): {tcp} {tcp_fin} {udp}"


def test_timeouts_are_set_kept_so_and_put_back(bare):
    as_it_was = timeouts(bare)
    bare.start(Timeouts(3600, 0, 30))
    bare.apply()
    assert timeouts(bare) == told(3600, 120, 30)

    bare.ipvsadm("--set", "1", "2", "3")
    bare.now += LOOK_SECONDS
    bare.run(bare.forwarder.tend)
    assert timeouts(bare) == told(3600, 2, 30)

    bare.ipvsadm("--set", "3600", "120", "30")
    bare.start(Timeouts(tcp=600))
    bare.apply()
    assert timeouts(bare) == told(600, 120, 3), "what somebody else had set meanwhile is put back, not the kernel's"

    bare.start()
    assert "IPVS timeout tcp=600" in bare.run(bare.forwarder.cleanup)
    assert timeouts(bare) != as_it_was
    assert timeouts(bare) == told(1, 120, 3)


def test_a_speaker_without_the_flag_puts_back_what_one_with_it_had_set(bare):
    as_it_was = timeouts(bare)
    bare.start(Timeouts(1, 2, 3))
    bare.apply()
    assert timeouts(bare) == told(1, 2, 3)
    bare.start()
    bare.apply()
    assert timeouts(bare) == as_it_was


def test_conntracks_maximum_is_raised_in_the_hosts_own_namespace_and_never_lowered():
    subprocess.run(["/run/modprobe", "nf_conntrack"], check=True)
    before = look(ipvs=False).conntrack.size
    for asked, there in ((before + 1000, before + 1000), (before, before + 1000)):
        assert raise_conntrack_max(asked) == ()
        assert look(ipvs=False).conntrack.size == there


SITE = """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan}
spec: {addresses: [192.0.2.200], interface: eth0}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-4, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.0.1.2]}]
"""


@pytest.fixture
def site():
    with lan() as (node, client):
        yield node, client


def test_what_ipvs_forgets_in_its_time_is_forgotten_by_conntrack_too(site, tmp_path):
    node, client = Node(site[0], tmp_path), site[1]
    node.start(Timeouts(udp=1))
    node.apply()
    with talking(client, V4, 80, socket.SOCK_STREAM, b"stays"), talking(client, V6, 443, socket.SOCK_STREAM, b"stays"):
        server_of_datagrams = server(V4, 54, Protocol.UDP)
        with_it = Plan(PLAN.eips, {**PLAN.virtual_servers, server_of_datagrams.key: server_of_datagrams})
        node.run(lambda: node.forwarder.apply(with_it))
        with talking(client, V4, 54, socket.SOCK_DGRAM, b"goes"):
            assert tracked(node) == {"TCP", "UDP"}
            deadline = time.monotonic() + PATIENCE
            while node.connections()["connections"] != 2 or tracked(node) != {"TCP"}:
                assert time.monotonic() < deadline, (node.connections(), tracked(node))
    node.run(node.forwarder.cleanup)


def tracked(node):
    """Protocols of the translated connections that conntrack has."""
    with node.namespace.entered(), Path("/proc/thread-self/net/nf_conntrack").open() as lines:
        return {line.protocol for line in connection_lines(survey(lines, CONNTRACK, 100, [V4, V6]), CONNTRACK)}


def test_the_speaker_does_all_of_it(site, write, start, sh):
    node, client = site
    write("site.yaml", SITE)
    flags = ("--ipvs-timeouts", "600,60,30", "--conntrack-max", "1000000000", "--metrics-real-servers")
    speaker = start(node, "--forwarder", "ipvs", *flags)
    speaker.until("ready")
    assert sh(node, "ipvsadm -L --timeout").strip() == told(600, 60, 30)
    # Only the host's own network namespace may change it: here it cannot, as in a container with a read-only /proc/sys.
    assert any("nf_conntrack_max=1000000000` on the host" in problem for problem in speaker.status()["problems"])

    with talking(client, ip_address("192.0.2.200"), 80, socket.SOCK_STREAM, b"hello"):
        labels = 'eip="192.0.2.200",protocol="TCP",port="80"'
        deadline = time.monotonic() + PATIENCE
        while f"eip_speaker_virtual_server_connections_total{{{labels}}} 1\n" not in (text := speaker.get("/metrics")):
            assert time.monotonic() < deadline, text
        real = f'eip_speaker_real_server_connections{{{labels},real_server="10.0.1.2:8080",state="active"}} 1\n'
        assert real in text
        while not re.search(r"^eip_speaker_ipvs_connection_buckets [1-9]", text, re.MULTILINE):  # not 0
            assert time.monotonic() < deadline, text
            text = speaker.get("/metrics")
        assert re.search(r"eip_speaker_conntrack_max [1-9]", text)
