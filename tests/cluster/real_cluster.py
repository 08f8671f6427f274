"""A real cluster in namespaces of this machine: API server, controllers, scheduler, and nodes that are namespaces with
a containerd, a kubelet and a kube-proxy each, on one LAN with a client.

    client 192.0.2.100 ──┐
    api    192.0.2.5   ──┼── br0 ── node1 192.0.2.11, node2 192.0.2.12, …   (and 2001:db8:1::/64)
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import cluster_keys
from cluster_parts import CACHE, POD, PROGRAMS, ROOT, run
from cluster_world import World, completed, into, make_groups, told_ready

MODES = ("iptables", "nftables", "ipvs")
CNI = Path("/usr/lib/cni")
PATIENCE = 240.0
"""Seconds; a guard against a hang, not an expectation."""
SPEAKER_NAMESPACE = "eip-speaker-agents"
PODS, SERVICES = ("10.244.0.0/16", "fd00:244::/48"), ("10.96.0.0/16", "fd00:10:96::/112")
MANIFESTS = Path(__file__).parent


def missing(mode: str = "iptables") -> str:
    """Why there can be no cluster here; '' when there can."""
    if os.geteuid() != 0:
        return "needs root: containerd mounts file systems"
    absent = [
        name
        for name in ("containerd", "ctr", "runc", "nft", "iptables", "conntrack", "openssl")
        if not shutil.which(name)
    ]
    if absent or not CNI.is_dir():
        return f"needs {', '.join(absent) or 'containernetworking-plugins'}: `make cluster` installs them on Debian"
    if not PROGRAMS.is_dir():
        return "needs Kubernetes' programs: `make cluster` builds them"
    if mode == "ipvs" and not has_ipvs():
        return "needs a kernel with ip_vs"
    return ""


def has_ipvs() -> bool:
    subprocess.run(["modprobe", "ip_vs"], capture_output=True, check=False)
    return Path("/proc/net/ip_vs").exists()


@dataclass
class Node:
    name: str
    number: int
    directory: Path
    first: int = 0
    """Process id of its first process; 0 while it is down."""
    addresses: tuple[str, str] = field(init=False)
    pods: tuple[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.addresses = f"192.0.2.{10 + self.number}", f"2001:db8:1::{10 + self.number}"
        self.pods = f"10.244.{self.number}.0/24", f"fd00:244:0:{self.number}::/64"


class RealCluster:
    """``with RealCluster(...) as cluster``: Ready nodes, pods can run; nothing of the speaker yet (``install``)."""

    def __init__(
        self, images: Sequence[Path], *, nodes: int = 3, proxy: str = "iptables", plain_ca: bool = False, name: str = ""
    ) -> None:
        self.name = name or f"eip-cluster-{time.time_ns() // 1_000_000 % 10**9:x}"
        self.directory = CACHE / "running" / self.name
        self.proxy, self.plain_ca = proxy, plain_ca
        self.images = images
        self.keys = self.directory / "keys"
        self.nodes = {
            f"node{number}": Node(f"node{number}", number, self.directory / f"node{number}")
            for number in range(1, nodes + 1)
        }
        self.world = World(self.name, self.directory)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.world)
            cluster_keys.make(self.keys, self.nodes, plain_ca=self.plain_ca)
            make_groups(self.name, *self.nodes)
            self._lay_lan()
            booting = [(node, self._boot(node)) for node in self.nodes.values()]
            self._start_control_plane()
            for node, process in booting:
                node.first = told_ready(process, 3)
            self.until("the nodes are Ready", lambda: self.ready() == set(self.nodes))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, tb)

    # ── Using it ──

    def kubectl(self, *words: str | Path, stdin: str = "", check: bool = True) -> str:
        return self.world.run(*self._kubectl(), *words, place="api", stdin=stdin, check=check)

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "--output=json"))

    def ready(self) -> set[str]:
        """The nodes that Kubernetes takes for Ready."""
        return {
            node["metadata"]["name"]
            for node in self.get("nodes")["items"]
            if any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])
        }

    def in_node(self, name: str, *command: str, check: bool = True) -> str:
        return completed([*self.inside_node(name), *command], check=check)

    def inside_node(self, name: str) -> list[str]:
        return into(self.nodes[name].first, "mount", "uts", "ipc", "pid")

    def until(self, what: str, ask: Callable[[], Any], patience: float = PATIENCE) -> Any:
        """The first answer that is true; a RuntimeError of the question counts as a no."""
        deadline = time.monotonic() + patience
        while True:
            try:
                if answer := ask():
                    return answer
                why = ""
            except RuntimeError as error:
                why = f": {error}"
            if time.monotonic() > deadline:
                raise TimeoutError(f"not after {patience:.0f} s: {what}{why}")
            time.sleep(0.2)

    def install(self) -> None:
        """The speaker, as its manifests ship it: controllers and agents are Ready at the end."""
        self.kubectl("apply", "--filename", MANIFESTS / "agents-namespace.yaml")
        key = self.directory / "key"
        run(sys.executable, "-m", "speaker", "keygen", key)
        self.kubectl(
            "-n", SPEAKER_NAMESPACE, "create", "secret", "generic", "eip-speaker-key", f"--from-file=key={key}"
        )
        self.until(
            "the manifests are taken", lambda: self.kubectl("apply", "--kustomize", ROOT / "manifests/overlays/default")
        )
        self.await_speaker()

    def await_speaker(self) -> None:
        self.rolled_out("daemonset/eip-speaker-agent", SPEAKER_NAMESPACE)
        self.rolled_out("deployment/eip-speaker-controller", "eip-speaker")

    def rolled_out(self, what: str, namespace: str = "default") -> None:
        self.kubectl("-n", namespace, "rollout", "status", what, f"--timeout={PATIENCE:.0f}s")

    def serve(self) -> None:
        """A pool, pods on every node, and Services for them."""
        self.kubectl("apply", "--filename", MANIFESTS / "web.yaml")
        self.kubectl("scale", "deployment/web", f"--replicas={len(self.nodes)}")

    def eips(self, service: str) -> list[str]:
        """What a Service has been given; empty as long as it waits."""
        return [each["ip"] for each in self.get("service", service)["status"]["loadBalancer"].get("ingress", [])]

    def holder(self, eip: str) -> str:
        """The node whose MAC answers the client; '' for nobody."""
        if ":" in eip:
            self.world.run("ping", "-6", "-c1", "-W1", eip, place="client", check=False)
            found = self.world.run("ip", "-6", "neigh", "show", eip, place="client")
        else:
            found = self.world.run("arping", "-c1", "-w1", "-i", "eth0", eip, place="client", check=False)
        return next((name for name, mac in self.macs().items() if mac in found), "")

    def macs(self) -> dict[str, str]:
        return {
            name: json.loads(self.world.run("ip", "-json", "link", "show", "eth0", place=name))[0]["address"]
            for name in self.nodes
        }

    def agent_on(self, node: str) -> str:
        """The name of its pod."""
        found = self.get("pods", "-n", SPEAKER_NAMESPACE, f"--field-selector=spec.nodeName={node}")["items"]
        return next(str(pod["metadata"]["name"]) for pod in found if "deletionTimestamp" not in pod["metadata"])

    def in_agent(self, node: str, *command: str) -> str:
        return self.kubectl("-n", SPEAKER_NAMESPACE, "exec", self.agent_on(node), "--", *command)

    def ask(self, url: str, *words: str) -> str:
        """What the client gets from there: node and client address, in a line."""
        return self.world.run(
            "curl", "--silent", "--show-error", "--globoff", "--max-time", "5", *words, url, place="client"
        ).strip()

    # ── What befalls it ──

    def crash(self, name: str) -> None:
        """The node is cut off, and dies in the same moment."""
        node = self.nodes[name]
        self.world.run("ip", "link", "set", name, "down")
        os.kill(node.first, signal.SIGKILL)
        node.first = 0

    def boot(self, name: str) -> None:
        """A crashed node, again, with its disk as it was."""
        node = self.nodes[name]
        self._sweep_links(name)
        self.world.run("ip", "link", "set", name, "up")
        node.first = told_ready(self._boot(node), 3)
        self.until(f"{name} is Ready", lambda: name in self.ready())

    def _sweep_links(self, name: str) -> None:
        for link in json.loads(self.world.run("ip", "-json", "link", "show", "type", "veth", place=name)):
            if link["ifname"] != "eth0":
                self.world.run("ip", "link", "delete", link["ifname"], place=name, check=False)

    # ── How it is made ──

    def _lay_lan(self) -> None:
        world = self.world
        world.run("ip", "link", "set", "lo", "up")
        world.run("ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        world.run("ip", "link", "set", "br0", "up")
        self._plug("client", "192.0.2.100", "2001:db8:1::100")
        self._plug("api", "192.0.2.5", "2001:db8:1::5")
        for node in self.nodes.values():
            self._plug(node.name, *node.addresses)
        for node in self.nodes.values():
            for other in self.nodes.values():
                for pods, address in zip(other.pods, other.addresses, strict=True):
                    if other is not node:
                        world.run("ip", "route", "add", pods, "via", address, place=node.name)
            for setting in ("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"):
                world.run("sysctl", "-qw", setting, place=node.name)
            world.run("nft", "-f", "-", place=node.name, stdin=_MASQUERADE)

    def _plug(self, label: str, *addresses: str) -> None:
        world = self.world
        world.add_place(label)
        world.run("ip", "link", "add", label, "type", "veth", "peer", "name", "eth0", "netns", label)
        world.run("ip", "link", "set", label, "up", "master", "br0")
        world.run("ip", "link", "set", "eth0", "up", place=label)
        for address, bits in zip(addresses, (24, 64), strict=True):
            world.run(
                "ip",
                "address",
                "add",
                f"{address}/{bits}",
                "dev",
                "eth0",
                *(["nodad"] if ":" in address else []),
                place=label,
            )
        # Kubernetes' Services are reached by their addresses only where there is some route for them.
        world.run("ip", "route", "add", "default", "dev", "eth0", place=label)
        world.run("ip", "-6", "route", "add", "default", "dev", "eth0", place=label)

    def _start_control_plane(self) -> None:
        keys, etcd, peer = self.keys, "http://127.0.0.1:2379", "http://127.0.0.1:2380"
        self._control(
            "etcd", f"--data-dir={self.directory / 'etcd'}", "--unsafe-no-fsync",
            f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
        )  # fmt: skip
        self._control(
            "kube-apiserver", f"--etcd-servers={etcd}", "--secure-port=6443", "--advertise-address=192.0.2.5",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
            f"--service-cluster-ip-range={','.join(SERVICES)}",
            f"--client-ca-file={keys / 'ca.crt'}",
            f"--tls-cert-file={keys / 'apiserver.crt'}", f"--tls-private-key-file={keys / 'apiserver.key'}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={keys / 'accounts.key'}",
            f"--service-account-signing-key-file={keys / 'accounts.key'}",
            f"--kubelet-client-certificate={keys / 'apiserver-to-kubelets.crt'}",
            f"--kubelet-client-key={keys / 'apiserver-to-kubelets.key'}",
            "--kubelet-preferred-address-types=InternalIP", "--profiling=false",
        )  # fmt: skip
        self.until("the API server is ready", lambda: self.kubectl("get", "--raw=/readyz") == "ok")
        self._control(
            "kube-controller-manager", f"--kubeconfig={keys / 'kube-controller-manager.kubeconfig'}",
            "--use-service-account-credentials", "--leader-elect=false", "--bind-address=127.0.0.1",
            f"--service-account-private-key-file={keys / 'accounts.key'}", f"--root-ca-file={keys / 'ca.crt'}",
        )  # fmt: skip
        self._control(
            "kube-scheduler", f"--kubeconfig={keys / 'kube-scheduler.kubeconfig'}",
            "--leader-elect=false", "--bind-address=127.0.0.1",
        )  # fmt: skip

    def _control(self, name: str, *flags: str) -> None:
        self.world.start(name, PROGRAMS / name, *flags, place="api")

    def _kubectl(self) -> list[str]:
        return [
            "env",
            f"HOME={self.directory}",
            str(PROGRAMS / "kubectl"),
            f"--kubeconfig={self.keys / 'admin.kubeconfig'}",
        ]

    def _boot(self, node: Node) -> "subprocess.Popen[str]":
        directory = node.directory
        directory.mkdir(exist_ok=True)
        (directory / "cni.d").mkdir(exist_ok=True)
        files = {
            "cni.d/10-pods.conflist": _network(node),
            "kubelet.yaml": _kubelet(self.keys, f"/{self.name}/{node.name}"),
            "kube-proxy.yaml": _kube_proxy(self.keys, node.name, self.proxy),
        }
        for name, content in files.items():
            (directory / name).write_text(json.dumps(content, indent=1))
        (directory / "containerd.toml").write_text(_CONTAINERD.format(directory=directory, pod=POD, cni=CNI))
        programs = {
            "containerd": ["containerd", "--config", directory / "containerd.toml"],
            "kubelet": [
                PROGRAMS / "kubelet", "--config", directory / "kubelet.yaml", "--root-dir=/var/lib/kubelet",
                "--kubeconfig", self.keys / f"{node.name}.kubeconfig", f"--hostname-override={node.name}",
                f"--node-ip={','.join(node.addresses)}", "--v=1",
            ],
            "kube-proxy": [PROGRAMS / "kube-proxy", "--config", directory / "kube-proxy.yaml", "--v=2"],
        }  # fmt: skip
        spec = {
            "name": node.name,
            "directory": str(directory),
            "images": [str(image) for image in self.images],
            "programs": {name: [str(word) for word in words] for name, words in programs.items()},
        }
        (directory / "spec.json").write_text(json.dumps(spec))
        apart = ("unshare", "--kill-child", "--fork", "--mount", "--uts", "--ipc", "--pid")
        program = Path(__file__).with_name("cluster_node.py")
        first = (sys.executable, "-I", "-S", str(program), str(directory / "spec.json"))
        with (directory / "node.log").open("ab") as log:
            process = subprocess.Popen(
                [*self.world.inside(node.name), *apart, *first],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        self.world.adopt(process)
        return process


_MASQUERADE = """
table inet pods {
  chain leaving {
    type nat hook postrouting priority 110;
    ip saddr 10.244.0.0/16 ip daddr != { 10.244.0.0/16, 10.96.0.0/16 } oifname eth0 masquerade
    ip6 saddr fd00:244::/48 ip6 daddr != { fd00:244::/48, fd00:10:96::/112 } oifname eth0 masquerade
  }
}
"""

_CONTAINERD = """
version = 2
root = "{directory}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pod}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{directory}/cni.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


def _network(node: Node) -> dict[str, Any]:
    """Each pod has a link of its own to the node and all is routed: kube-proxy would miss a bridge's traffic."""
    ranges = [[{"subnet": subnet}] for subnet in node.pods]
    routes = [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
    link = {"type": "ptp", "mtu": 1500, "ipam": {"type": "host-local", "ranges": ranges, "routes": routes}}
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [link, {"type": "portmap", "capabilities": {"portMappings": True}}],
    }


def _kubelet(keys: Path, group: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("memory.available", "nodefs.available", "imagefs.available", "nodefs.inodesFree"), "0%")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(keys / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": group,
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": ["none"],
        "evictionHard": nothing,  # the disk is the machine's
        "imageGCHighThresholdPercent": 100,
        "clusterDomain": "cluster.local",
        "resolvConf": "/dev/null",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "shutdownGracePeriod": "0s",
    }


def _kube_proxy(keys: Path, node: str, mode: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode,
        "clusterCIDR": ",".join(PODS),
        "hostnameOverride": node,
        "clientConnection": {"kubeconfig": str(keys / "kube-proxy.kubeconfig")},
        # These are the whole machine's.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
