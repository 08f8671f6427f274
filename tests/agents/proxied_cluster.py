"""As ``agent_cluster``, with a real kube-proxy in ipvs mode on every node and real pods behind it, in a guest.

Agents have the rights of the shipped DaemonSet: without a forwarder ``NET_RAW`` alone, ``NET_ADMIN`` with one, and a
read-only ``/proc/sys``.

The API server is outside, where it is fast: on the loopback of the machine that the guest runs on, which QEMU's user
networking calls 10.0.2.2. The guest's one link to it is plugged into the host that has the API server elsewhere.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any

from agent_cluster import API_ADDRESS, CLIENT_COUNT, GUARD, MANAGEMENT, NODE_COUNT, Administrator, Cluster, until
from agent_objects import AGENTS, NODES, POOL, POOLS, SERVICES, SLICES, UDP_ECHO, Body, service, slice_of
from asking import Asking
from knock import Knocked, knocking
from pyroute2 import IPRoute
from real_api import RealApi, binaries, bound_to_us

from speaker.lab.hosts.failover_manifests import ECHO_PORT, POD_PORT, service_of
from speaker.lab.network.lan import Lan, netlink_in
from speaker.lab.network.namespaces import Namespace
from speaker.lab.network.topology import lab_topology
from speaker.lab.watching.sending import echo_socket
from speaker.model import IPAddress

OUTSIDE = "EIP_SPEAKER_OUTER_API"
"""The variable that names the API server's port on the machine and the directory with its certificate."""
GUEST, MACHINE, SLIRP = "10.0.2.15", "10.0.2.2", "10.0.2.0/24"
SHARED = Path("/run/out")
"""The guest and the machine see the same there."""
OUT = """
table ip way {
  chain out {
    type nat hook postrouting priority srcnat
    oifname wan masquerade
  }
}
"""
PACE = {"syncPeriod": "600s", "minSyncPeriod": "3s"}
"""A sync starts some hundred programs, for which an emulated processor takes a minute: so not every 30 s, but when
something changes, and when kube-proxy starts."""
HELLO_MS = 1000
"""An emulated processor may keep an agent waiting for longer than its peers wait for three of the usual hellos."""
WEB_PORT = 8080
WEB = {"name": "web", "protocol": "TCP", "port": 80, "targetPort": WEB_PORT}
HEALTH = 10256, "/healthz"
POD_RANGES = "10.244.0.0/16,fd00:10:244::/48"
IN_A_POD = """
mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys || exit
exec setpriv --bounding-set "$0" --no-new-privs -- "$@"
"""
SERVE = """
import asyncio, socket, sys
class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport
    def datagram_received(self, data, sender):
        self.transport.sendto(data, sender)
async def answer(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(f"HTTP/1.0 200 OK\\r\\n\\r\\n{writer.get_extra_info('sockname')[0]}".encode())
    await writer.drain()
    writer.close()
async def serve():
    for number in sys.argv[1:]:
        sock = socket.socket(fileno=int(number))
        sock.setblocking(False)
        if sock.type == socket.SOCK_DGRAM:
            await asyncio.get_running_loop().create_datagram_endpoint(Echo, sock=sock)
        else:
            await asyncio.start_server(answer, sock=sock)
    print(flush=True)
    await asyncio.Event().wait()
asyncio.run(serve())
"""
"""Web servers, which answer with their address, and echoes on the sockets that it is started with; it says when it
serves."""
SHARE = {"eip-speaker.io/share": "both"}
LET_IN = (
    "192.0.2.100/31", "192.0.2.8/29", "10.244.0.0/16",
    "2001:db8:0:1::100/127", "2001:db8:0:1::10/124", "fd00:10:244::/48",
)  # fmt: skip
"""Of the fenced Services' clients: ``client``, nodes and pods; so ``STRANGER`` is out. None is one address alone: those
kube-proxy takes out and puts in again whenever it goes through everything (docs/beside-kube-proxy.md)."""
STRANGER = "host1"
UNAUTHORIZED = 401


def outside() -> tuple[int, Path] | None:
    """Port, and directory, of the API server outside; None where there is none."""
    port, _, directory = os.environ.get(OUTSIDE, "").partition(":")
    return (int(port), Path(directory)) if port else None


ASKABLE = ("start", "back_up", "restore", "another_certificate", "change_certificate")
"""Methods of the API server outside that a test in here may call."""


def do_what_is_asked(directory: Path, api: RealApi) -> None:
    """Outside: of ``OuterApi``'s, by files of a directory that both see."""
    try:
        name = (directory / "asked").read_text()
    except FileNotFoundError:
        return
    (directory / "asked").unlink()
    assert name in ASKABLE, name
    try:
        said, well = getattr(api, name)() or "", True
    except Exception as error:
        said, well = repr(error), False
    (directory / "answer").write_text(json.dumps([well, said]))
    (directory / "answer").replace(directory / "answered")


class OuterApi(RealApi):
    """An API server that somebody else runs, reached from ``place``."""

    def __init__(self, directory: Path, place: Namespace) -> None:
        found = outside()
        assert found is not None, OUTSIDE
        self.port, of = found
        self.directory, self._place, self._address = directory, place, MACHINE
        shutil.copytree(of / "certs", directory / "certs")

    def __enter__(self) -> "OuterApi":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def running(self) -> bool:
        return True

    def thaw(self) -> None:
        pass

    def start(self, *flags: str) -> None:
        self._have("start")

    def back_up(self) -> None:
        self._have("back_up")

    def restore(self) -> None:
        self._have("restore")

    def another_certificate(self) -> str:
        return self._have("another_certificate")

    def change_certificate(self) -> None:
        self._have("change_certificate")

    def _have(self, name: str) -> str:
        (SHARED / "ask").write_text(name)
        (SHARED / "ask").replace(SHARED / "asked")
        deadline = time.monotonic() + GUARD
        while not (SHARED / "answered").exists():
            assert time.monotonic() < deadline, name
            time.sleep(0.1)
        well, said = json.loads((SHARED / "answered").read_text())
        (SHARED / "answered").unlink()
        assert well, (name, said)
        return str(said)


class ProxiedCluster(Cluster):
    """``with ProxiedCluster(directory, lan, ports=(UDP_ECHO, WEB)) as cluster``."""

    excluded: Sequence[str] = ()
    """CIDRs whose virtual servers no kube-proxy that is started from now on removes."""
    flags: Sequence[str] = ()
    """Of every agent that is started from now on."""

    @property
    def fenced(self) -> tuple[IPAddress, ...]:
        """The EIPs whose Service has source ranges: of both policies and families."""
        return self.eips[2], self.eips[5], self.eips[6]

    @property
    def sticky(self) -> tuple[IPAddress, ...]:
        """Those whose Service has session affinity: of both families, and any node's pods behind them."""
        return self.eips[1], self.eips[7]

    @property
    def shared(self) -> IPAddress:
        """That of two Services: one has the port for TCP, the other that for UDP."""
        return self.eips[3]

    def _objects(self) -> None:
        super()._objects()
        for eip in self.fenced:
            self._change(eip, {"spec": {"loadBalancerSourceRanges": LET_IN}})
        for eip in self.sticky:
            self._change(eip, {"spec": {"sessionAffinity": "ClientIP"}})
        self._change(self.shared, {"spec": {"ports": [WEB]}, "metadata": {"annotations": SHARE}})
        second = service(self.shared), slice_of(self.shared, self._endpoints(self.shared, self.nodes))
        second[0]["metadata"]["annotations"] |= SHARE
        second[1]["metadata"]["labels"]["kubernetes.io/service-name"] = "second"
        for path, each in zip((SERVICES, SLICES), second, strict=True):
            each["metadata"]["name"] = "second"
            self.done("POST", path, each)

    def _change(self, eip: IPAddress, patch: Body) -> None:
        self.done("PATCH", f"{SERVICES}/{service_of(eip)}", patch)

    def _api(self, home: Path, place: Namespace) -> RealApi:
        _plug_in(place)
        place.sysctl("net.ipv4.ip_forward", 1)
        with place.entered():
            subprocess.run(["nft", "-f", "-"], input=OUT, text=True, check=True)
        for node in self.nodes:
            with netlink_in(self.lan.namespace(node)) as netlink:
                link = netlink.link_lookup(ifname=MANAGEMENT)[0]
                netlink.route("add", dst=SLIRP, gateway=API_ADDRESS, oif=link)
        return OuterApi(home, place)

    def start(self, node: str, *flags: str) -> None:
        super().start(node, "--hello", str(HELLO_MS), *self.flags, *flags)

    def _by(self, flags: Sequence[str]) -> Sequence[str]:
        rights = "-all,+net_raw,+net_admin" if "ipvs" in flags else "-all,+net_raw"
        return ("unshare", "--mount", "sh", "-c", IN_A_POD, rights)

    def _let_in(self, node: str) -> None:
        super()._let_in(node)
        addresses = [{"type": "InternalIP", "address": str(each)} for each in self._lan_addresses(node)]
        self.done("PATCH", f"{NODES}/{node}/status", {"status": {"addresses": addresses}})

    def _endpoints(self, eip: IPAddress, ready_on: Iterable[str]) -> list[Body]:
        """One pod of each node: two on one bridge answer each other past the node (no ``br_netfilter`` here)."""
        return super()._endpoints(eip, ready_on)[::2]

    def _lan_addresses(self, node: str) -> Sequence[IPAddress]:
        return [address.ip for address in self.lan.topology.host(node).ports[0].addresses]

    def _forward(self, stack: ExitStack) -> None:
        pods = [self.lan.namespace(pod) for node in self.nodes for pod in self.lan.topology.pods_of(node)]
        stack.enter_context(_serving(pods))
        self._proxies: dict[str, subprocess.Popen[bytes]] = {}
        stack.callback(lambda: [self.end_proxy(node) for node in list(self._proxies)])
        for node in self.nodes:
            self.start_proxy(node)

    # ── kube-proxy ──

    def start_proxy(self, node: str) -> None:
        file = self.directory / f"kube-proxy-{node}.json"
        file.write_text(json.dumps(self._configuration(node)))
        log = (self.directory / f"kube-proxy-{node}.log").open("ab")
        with log, self.lan.namespace(node).entered():
            self._proxies[node] = subprocess.Popen(
                [str(binaries() / "kube-proxy"), "--config", str(file), "--v=2"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=bound_to_us(),
            )  # fmt: skip

    def end_proxy(self, node: str) -> None:
        """Its rules stay."""
        process = self._proxies.pop(node)
        process.kill()
        process.wait()

    def clean(self, node: str) -> None:
        """As a node on which neither an agent nor kube-proxy has ever run, but for the settings of its kernel. By hand:
        `kube-proxy --cleanup` fails in ipvs mode, as it removes chains before those that lead there."""
        self.speaker_cleanup(node)
        for command in ("ipvsadm --clear", "nft flush ruleset", "ip link delete kube-ipvs0", "ipset destroy"):
            self._run(node, *command.split())
        assert self.virtual_servers(node) == set()
        assert self.bound(node) == {}

    @property
    def proxied(self) -> bool:
        """Whether there is any kube-proxy."""
        return bool(self._proxies)

    def speaker_cleanup(self, node: str) -> str:
        """What it says."""
        home = str(self.directory / node / "run")
        return self._run(node, sys.executable, "-m", "speaker", "cleanup", "--runtime-dir", home)

    def _run(self, node: str, *command: str) -> str:
        with self.lan.namespace(node).entered():
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def _configuration(self, node: str) -> Mapping[str, Any]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "ipvs",
            "ipvs": {"strictARP": True, "excludeCIDRs": list(self.excluded), **PACE},
            "nodePortAddresses": ["primary"],
            "clusterCIDR": POD_RANGES,
            "hostnameOverride": node,
            "clientConnection": {"kubeconfig": str(self.api.kubeconfig())},
            # These are the whole machine's.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }

    def virtual_servers(self, node: str) -> set[str]:
        """Of its kernel, whoever made them, as ``ADDRESS:PORT``."""
        words = (line.split() for line in self._run(node, "ipvsadm", "--list", "--numeric").splitlines())
        return {each[1] for each in words if each and each[0] in ("TCP", "UDP")}

    def bound(self, node: str) -> dict[IPAddress, set[str]]:
        """On which links each EIP is bound that is bound at all."""
        found: dict[IPAddress, set[str]] = {}
        for link in json.loads(self._run(node, "ip", "-json", "address")):
            for each in link["addr_info"]:
                if (address := ip_address(each["local"])) in self.eips:
                    found.setdefault(address, set()).add(link["ifname"])
        return found

    async def until_served(self, *nodes: str) -> None:
        """Each of the nodes has a virtual server for every EIP and port."""
        wanted = {f"{eip}:{port}" for eip in map(_bracketed, self.eips) for port in (ECHO_PORT, WEB["port"])}

        def lacking() -> dict[str, set[str]]:
            assert all(process.poll() is None for process in self._proxies.values()), told()
            return {node: less for node in nodes if (less := wanted - self.virtual_servers(node))}

        def told() -> object:
            return {node: (self.directory / f"kube-proxy-{node}.log").read_text()[-1500:] for node in nodes}

        await until(lambda: not lacking(), lambda: (lacking(), told()))

    def modes(self) -> set[str]:
        """``ipMode`` of every EIP, as Services' status has it."""
        services = self.done("GET", SERVICES)["items"]
        return {each["ipMode"] for service in services for each in service["status"]["loadBalancer"]["ingress"]}

    async def until_synced(self, node: str) -> None:
        """It says itself that its rules are as the API has it."""

        await until(lambda: self.says_yes(node, *HEALTH))

    def says_yes(self, node: str, port: int, path: str = "/", host: str = "127.0.0.1") -> bool:
        """Who answers at a port of the node, asked there."""
        return self._answer(node, f"{host}:{port}{path}") is not None

    def pod_behind(self, eip: IPAddress) -> str | None:
        """The address of the one that answers the client's next connection."""
        return self._answer("client", _bracketed(eip))

    def _answer(self, place: str, where: str) -> str | None:
        url = f"http://{where}"
        try:
            with self.lan.namespace(place).entered(), urllib.request.urlopen(url, timeout=5) as answer:
                return bytes(answer.read()).decode() if answer.status == 200 else None
        except OSError:  # nobody, or 503
            return None

    async def rekey(self, step: str) -> None:
        """One of `speaker keygen`'s, until every agent has read what it made, one after the other."""
        self._run(self.nodes[0], sys.executable, "-m", "speaker", "keygen", step, str(self.key))
        for node in self.nodes:
            read = self._keys_read(node)
            self.hand_out_key(node)
            await until(lambda node=node, read=read: self._keys_read(node) > read)

    async def other_token(self, node: str) -> None:
        """Its agent finds another one, until the API knows the former no more."""
        former = Asking(self.api, (self.directory / f"agent-{node}-account" / "token").read_text())
        self.done("DELETE", f"/api/v1/namespaces/{AGENTS}/pods/agent-{node}", {"gracePeriodSeconds": 0})
        self._give_token(node)

        def refused() -> bool:
            with self.api.inside():
                return former("GET", "/version")[0] == UNAUTHORIZED

        await until(refused)

    def trust(self, authorities: str) -> None:
        """Everybody has these for the API server. Kube-proxy reads them when it starts, ours when they change."""
        for file in (self.api.ca, *self.directory.glob("*-account/ca.crt")):
            draft = file.with_suffix(".draft")
            draft.write_text(authorities)
            draft.replace(file)
        self.ask = Administrator(self.api)

    # ── The way out, as docs/kubernetes.md has it, and in again ──

    async def uninstalled(self) -> None:
        for path in (SERVICES, SLICES):
            for found in self.done("GET", path)["items"]:
                self.done("DELETE", f"{path}/{found['metadata']['name']}")
        self.done("DELETE", f"{POOLS}/{POOL}")
        await until(lambda: not any(self.done("GET", path)["items"] for path in (SERVICES, SLICES, POOLS)))
        for node in self.nodes:
            await self.stopped(node)
        self.controller.terminate()
        await until(lambda: self.controller.process.poll() is not None)

    async def installed(self, *flags: str) -> None:
        """``flags``: the controller's."""
        self._objects()
        self._start_controller(*flags)
        await until(self._assigned)

    def left(self, node: str) -> set[str]:
        """What is in its kernel of the EIPs, and of ours."""
        links = [link["ifname"] for link in json.loads(self._run(node, "ip", "-json", "link"))]
        tables = self._run(node, "nft", "list", "tables").split()
        mine = {name for name in (*links, *tables) if "eip-speaker" in name}
        servers = {place for place in self.virtual_servers(node) if ip_address(_host(place)) in self.eips}
        return mine | servers | set(map(str, self.bound(node)))

    def _keys_read(self, node: str) -> int:
        return sum(line.get("event") == "keys read" for line in self.agents[node].said())

    # ── Clients ──

    def targets(self, eips: Iterable[IPAddress]) -> list[str]:
        """What clients of these ask."""
        return [f"{eip}{way}" for eip in eips for way in ("", f",{ECHO_PORT},udp")]

    @contextmanager
    def clients(self, rate: float, least: int, place: str = "client") -> Iterator[Knocked]:
        """One new connection after the other from ``place`` to every EIP: see ``knock``."""
        inside = ("nsenter", f"--net={self.lan.namespace(place).path}")
        with knocking(inside, self.targets(self.eips), rate, least) as knocked:
            yield knocked


def _bracketed(eip: IPAddress) -> str:
    return str(eip) if isinstance(eip, IPv4Address) else f"[{eip}]"


def _host(place: str) -> str:
    """Of ``ADDRESS:PORT``."""
    return place.rpartition(":")[0].strip("[]")


def _plug_in(place: Namespace) -> None:
    """The guest's link becomes ``wan`` in ``place``; closing that gives it back."""
    name = next(link.name for link in Path("/sys/class/net").iterdir() if (link / "device").exists())
    with IPRoute() as here:
        index = here.link_lookup(ifname=name)[0]
        here.link("set", index=index, state="down")
        here.link("set", index=index, ifname="wan")
        here.link("set", index=index, net_ns_fd=place.fileno())
    with netlink_in(place) as there:
        index = there.link_lookup(ifname="wan")[0]
        there.link("set", index=index, state="up")
        there.addr("add", index=index, address=GUEST, prefixlen=24)


@contextmanager
def _serving(places: Sequence[Namespace]) -> Iterator[None]:
    """The web on port WEB_PORT of each and an echo on POD_PORT, by one process."""
    with ExitStack() as stack:
        listeners = []
        for place in places:
            with place.entered():
                web = socket.create_server(("::", WEB_PORT), family=socket.AF_INET6, dualstack_ipv6=True)
                listeners += [stack.enter_context(web), stack.enter_context(echo_socket(place, POD_PORT))]
        numbers = [each.fileno() for each in listeners]
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", SERVE, *map(str, numbers)], stdout=subprocess.PIPE, pass_fds=numbers
        )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()


@contextmanager
def proxied_cluster_in(directory: Path) -> Iterator[ProxiedCluster]:
    topology = lab_topology(NODE_COUNT, CLIENT_COUNT)
    with Lan(topology) as lan, ProxiedCluster(directory, lan, ports=(UDP_ECHO, WEB)) as cluster:
        yield cluster
