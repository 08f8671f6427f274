"""A cluster that moves from another load balancer to us and back: three nodes, a real API server, the other's own
programs, our own controller and agents.

The lines of a page are typed into a shell. Meanwhile ``follow`` does what a cluster's controllers and kubelets would:
it runs as many programs as the Deployments and DaemonSets ask for, and says so in their statuses.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import yaml
from agent_cluster import AGENTS, API_HOST, GUARD, POLL, SERVICES, SLICES, Cluster, endpoints, slice_of
from agent_objects import NAMESPACE, UDP_ECHO
from agent_process import Process
from load_balancers import LoadBalancer
from real_api import binaries, bound_to_us

from speaker.lab.lan import Lan
from speaker.lab.namespaces import Namespace
from speaker.lab.speakers import service_of
from speaker.lab.topology import lab_topology
from speaker.model import Family, IPAddress

OUR_CONTROLLER = "/apis/apps/v1/namespaces/eip-speaker/deployments/eip-speaker-controller"
OUR_AGENTS = f"/apis/apps/v1/namespaces/{AGENTS}/daemonsets/eip-speaker-agent"
AGENT = {"app.kubernetes.io/component": "agent"}
EIPS = tuple(first + number for first in map(ip_address, ("192.0.2.200", "2001:db8:0:1::200")) for number in range(6))
TCP_PORT, TCP_POD_PORT = 80, 8080
RESTARTS = 1.0
"""Seconds after a start before which nothing is started again."""
SHARED = "shared-tcp"
"""A Service at the address of the first under Cluster."""

KUBE_PROXY = f"""
table inet kube-proxy-tcp {{
  chain prerouting {{
    type nat hook prerouting priority dstnat
    ip daddr 192.0.2.200/29 tcp dport {TCP_PORT} redirect to :{TCP_POD_PORT}
    ip6 daddr 2001:db8:0:1::200/120 tcp dport {TCP_PORT} redirect to :{TCP_POD_PORT}
  }}
}}
"""


class Program:
    """Another load balancer's, in a namespace; dies with the thread that starts it."""

    def __init__(self, place: Namespace, log: Path, *command: str | Path, **environment: str) -> None:
        self.log, self.began = log, time.monotonic()
        with log.open("ab") as out, place.entered():
            self._from = out.tell()
            self.process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **environment},
                preexec_fn=bound_to_us(),
            )

    def said(self) -> str:
        with self.log.open("rb") as log:
            log.seek(self._from)
            return log.read().decode(errors="replace")

    def terminate(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()


class Moving(Cluster):
    """``with Moving(directory, lan) as cluster``: the other answers for every EIP; nothing of ours runs.

    ``flags``: of our agents.
    """

    other: LoadBalancer
    flags: tuple[str, ...] = ()

    # ── Building it ──

    def _start_controller(self, *flags: str) -> None:
        """The other's."""
        self.running: dict[str, Program | Process] = {}
        self.controller = _All(self)  # type: ignore[assignment]
        token = self.api.kubectl("create", "token", "eip-speaker-controller", "--namespace=eip-speaker")
        self._ours = (*self._access("controller", token), "--metrics", "off", "--log-format", "json")
        for path in (OUR_CONTROLLER, OUR_AGENTS):
            self.done("PATCH", path, {"spec": stopped(path)})
        self.follow()

    def _objects(self) -> None:
        self.other.install(self)
        for node in self.nodes:
            self.done("PATCH", f"/api/v1/namespaces/{AGENTS}/pods/agent-{node}", {"metadata": {"labels": AGENT}})
        objects = [*self.other.objects(), *asked(self.eips, self.other)]
        self.api.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))
        for eip in self.eips:
            self.done("POST", SLICES, slice_of(eip, endpoints(self.lan.topology, eip, self.nodes)))
        self.done("POST", SLICES, _slice_of_shared(self.lan.topology, self.eips[1], self.nodes))
        for node in self.nodes:
            with self.lan.namespace(node).entered():
                subprocess.run(["nft", "-f", "-"], input=KUBE_PROXY, text=True, check=True)

    # ── What a cluster does by itself ──

    def follow(self) -> None:
        """What the objects ask for runs, and nothing else; a program that is to end is told once."""
        wanted = dict(self._wanted())
        self.seen |= {*self.addresses().items()}
        for name in [name for name in self.running if name not in wanted]:
            program = self.running[name]
            if program.process.poll() is None:
                if name not in self.told:
                    self.told.add(name)
                    program.terminate()
                continue
            self.told.discard(name)
            del self.running[name]
            if name.startswith("agent-"):
                self.agents.pop(name.removeprefix("agent-"))
                self.ask("DELETE", f"/api/v1/namespaces/{AGENTS}/pods/{name}?gracePeriodSeconds=0")
        for name, start in wanted.items():
            if name not in self.running or self._ended(self.running[name]):
                self.running[name] = start()

    told: set[str]
    """What is to end."""
    seen: set[tuple[str, tuple[str, ...]]]
    """Service, and the addresses that it had at some time."""

    def _wanted(self) -> Iterator[tuple[str, Any]]:
        admin = self.lan.namespace(API_HOST)
        for kind, name in self.other.workloads.items():
            path = f"/apis/apps/v1/namespaces/{self.other.namespace}/{kind.lower()}s/{name}"
            if kind == "Deployment" and self._replicas(path):
                yield name, lambda kind=kind, name=name: self._theirs(name, admin, kind)
            elif kind == "DaemonSet" and self._is_wanted(path):
                for node in self.nodes:
                    pod, place = f"{name}-{node}", self.lan.namespace(node)
                    yield pod, lambda kind=kind, pod=pod, place=place, node=node: self._theirs(pod, place, kind, node)
        for number in range(self._replicas(OUR_CONTROLLER)):
            log = self.directory / f"our-controller-{number}.log"
            command = ("controller", *self._ours, "--default-class")
            yield f"our-controller-{number}", lambda log=log, command=command: Process(admin, log, *command)
        if self._is_wanted(OUR_AGENTS):
            for node in self.nodes:
                yield f"agent-{node}", lambda node=node: self._agent(node)

    def _agent(self, node: str) -> Process:
        self.start(node, "--default-class", *self.flags)
        return self.agents[node]

    def _theirs(self, pod: str, place: Namespace, kind: str, node: str = "") -> Program:
        (program, *flags), environment = self.other.command(kind, node, self)
        return Program(place, self.directory / f"{pod}.log", self.other.programs / program, *flags, **environment)

    def _ended(self, program: Program | Process) -> bool:
        """By itself: the kubelet starts it anew, after a while."""
        ended = isinstance(program, Program) and program.process.poll() is not None
        return ended and time.monotonic() - program.began > RESTARTS

    def _replicas(self, path: str) -> int:
        code, found = self.ask("GET", path)
        return found["spec"].get("replicas", 1) if code == 200 else 0

    def _is_wanted(self, path: str) -> bool:
        code, found = self.ask("GET", path)
        selector = found["spec"]["template"]["spec"].get("nodeSelector", {}) if code == 200 else {}
        return code == 200 and "stopped" not in selector

    # ── Who follows the page ──

    async def type(self, text: str, directory: Path) -> None:
        """Into a shell, as an administrator has it; what is for one Service, for each."""
        if "NAMESPACE" in text:
            for name in self.services:
                await self.type(text.replace("NAMESPACE", NAMESPACE).replace("NAME", name), directory)
            return
        path = os.pathsep.join(map(str, (Path(sys.executable).parent, binaries(), os.environ["PATH"])))
        here = {"PATH": path, "KUBECONFIG": str(self.api.kubeconfig()), "HOME": str(self.api.directory)}
        typing = self._shell(text, directory, here)
        while typing.poll() is None:
            self.follow()
            await asyncio.sleep(POLL)
        said = typing.communicate()[0]
        assert typing.returncode in ((0, 1) if " convert " in text else (0,)), f"{text}: {said}"
        self.follow()

    def _shell(self, text: str, directory: Path, here: dict[str, str]) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with self.api.inside():
            return subprocess.Popen(["bash", "-c", text], cwd=directory, env=os.environ | here, **pipes)

    async def until(self, holds: Any, told: Any = lambda: "") -> Any:
        deadline = time.monotonic() + GUARD
        while not (found := holds()):
            assert time.monotonic() < deadline, told()
            self.follow()
            await asyncio.sleep(POLL)
        return found

    def addresses(self) -> dict[str, tuple[str, ...]]:
        """Service → those in its status."""
        return {
            each["metadata"]["name"]: tuple(one["ip"] for one in each["status"]["loadBalancer"].get("ingress", ()))
            for each in self.done("GET", SERVICES)["items"]
        }

    def conditions(self, kind: str) -> set[str]:
        """The Services of which it is true."""
        return {
            each["metadata"]["name"]
            for each in self.done("GET", SERVICES)["items"]
            if (kind, "True") in [(one["type"], one["status"]) for one in each["status"].get("conditions", ())]
        }

    def waits(self) -> set[str]:
        """The EIPs that some agent waits for, or holds as the other load balancer's own node."""
        found = set()
        for agent in self.agents.values():
            for eip in agent.status().get("eips", ()):
                if eip["claimed"] or "falls silent" in eip.get("message", ""):
                    found.add(eip["address"])
        return found

    def is_back(self) -> bool:
        """The other only waits for us to be gone."""
        said = {name: program.said() for name, program in self.running.items() if isinstance(program, Program)}
        return self.other.is_back(said, self.services)

    @property
    def services(self) -> set[str]:
        return {*map(service_of, self.eips), SHARED}


class _All:
    """What the cluster runs, as its one controller: it ends with it."""

    def __init__(self, cluster: Moving) -> None:
        self._cluster = cluster
        self.log = cluster.directory / "controller.log"

    def kill(self) -> None:
        for program in self._cluster.running.values():
            program.kill()


def stopped(path: str) -> dict[str, Any]:
    """So that none of it runs."""
    return {"replicas": 0} if "/deployments/" in path else {"template": {"spec": {"nodeSelector": {"stopped": "true"}}}}


def asked(eips: tuple[IPAddress, ...], other: LoadBalancer) -> Iterator[dict[str, Any]]:
    """What people asked of it: the first Service under Cluster shares its address with another."""
    yield from other.pools(eips)
    for number, eip in enumerate(eips):
        yield _service(service_of(eip), eip, UDP_ECHO, other.asks(eip, shared=number == 1), local=number % 2 == 0)
    web = {"name": "web", "port": TCP_PORT, "targetPort": TCP_POD_PORT}
    yield _service(SHARED, eips[1], web, other.asks(eips[1], shared=True))


def _service(
    name: str, eip: IPAddress, port: dict[str, Any], annotations: Mapping[str, str], *, local: bool = False
) -> dict[str, Any]:
    spec = {
        "type": "LoadBalancer",
        "ipFamilies": [Family.of(eip).value],
        "externalTrafficPolicy": "Local" if local else "Cluster",
        "ports": [port],
    }
    meta = {"name": name, "namespace": NAMESPACE, "annotations": dict(annotations)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}


def _slice_of_shared(topology: Any, eip: IPAddress, nodes: Any) -> dict[str, Any]:
    found = slice_of(eip, endpoints(topology, eip, nodes))
    ports = [{"name": "web", "protocol": "TCP", "port": TCP_POD_PORT}]
    return {**found, "metadata": {"name": SHARED, "labels": {"kubernetes.io/service-name": SHARED}}, "ports": ports}


@contextmanager
def moving(directory: Path, other: LoadBalancer, *flags: str) -> Iterator[Moving]:
    with Lan(lab_topology(3, 2)) as lan:
        cluster = Moving(directory, lan, EIPS)
        cluster.other, cluster.flags, cluster.told, cluster.seen = other, flags, set(), set()
        with cluster:
            yield cluster
