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
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import cluster_keys
from cluster_lan import has_ipvs, lay, sweep
from cluster_nodes import CNI, DEPTH, Node, boot, furnish, kube_proxy
from cluster_parts import CACHE, DEV, PROGRAMS
from cluster_world import World, completed, into, make_groups, told_ready

LOGS = CACHE / "logs"
"""Of the cluster that ended last."""
MODES = tuple(os.environ.get("EIP_SPEAKER_MODES", "").split()) or ("iptables", "nftables", "ipvs")
"""Of kube-proxy."""
PACE = float(os.environ.get("EIP_SPEAKER_PACE", "1"))
"""Of clients, and of pods that end: a tenth is for machines that are so much slower than others."""
LINGER = round(3 / PACE - 3)
"""Seconds that a pod goes on serving besides, once it is told to end: kube-proxy goes on sending to it meanwhile."""
PATIENCE = 240.0
"""Seconds; a guard against a hang, not an expectation."""
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
SPEAKER_NAMESPACE = "eip-speaker-agents"
SERVICES = ("10.96.0.0/16", "fd00:10:96::/112")
MANIFESTS = Path(__file__).parent
COMM = 15
"""Characters of a program's name that the kernel keeps (proc(5))."""


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
        return "needs a kernel with ip_vs: `make test-cluster-ipvs` brings one"
    return ""


class RealCluster:
    """``with RealCluster(store()) as cluster``: Ready nodes, pods can run; nothing of the speaker yet (``install``)."""

    def __init__(
        self,
        images: Path,
        *,
        nodes: int = 3,
        proxy: str = "iptables",
        forwarder: str = "none",
        components: Sequence[str] = (),
        plain_ca: bool = False,
        grace: int = 0,
        name: str = "",
    ) -> None:
        """``grace``: seconds after which the control plane takes a silent node for NotReady; 0 is Kubernetes' 50."""
        self.name = name or f"eip-cluster-{time.time_ns() // 1_000_000 % 10**9:x}"
        self.directory = CACHE / "running" / self.name
        self.proxy, self.plain_ca, self.grace = proxy, plain_ca, grace
        self.forwarder, self.components = forwarder, ("make-key", *components)
        self.images = images
        self.keys = self.directory / "keys"
        self.manifest = self.directory / "speaker.yaml"
        self.nodes = {
            f"node{number}": Node(f"node{number}", number, self.directory / f"node{number}")
            for number in range(1, nodes + 1)
        }
        self.world = World(self.name, self.directory)
        self._controls: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.world)
            stack.callback(self._keep_logs)
            cluster_keys.make(self.keys, self.nodes, plain_ca=self.plain_ca)
            make_groups(self.name, *self.nodes)
            lay(self.world, self.nodes.values())
            booting = [(node, self._boot(node)) for node in self.nodes.values()]
            self.start(*CONTROL_PLANE)
            for node, process in booting:
                node.first = told_ready(process, DEPTH)
            self.until("the nodes are Ready", lambda: self.ready() == set(self.nodes))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, tb)

    # ── Using it ──

    def kubectl(self, *words: str | Path, stdin: str = "", check: bool = True) -> str:
        return self.world.run(*self.words_in_api("kubectl"), *words, place="api", stdin=stdin, check=check)

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
        """The speaker, with one file, as a newcomer does it: controllers and agents are Ready at the end."""
        from render import rendered  # `make cluster-down` has no more than Python

        overlay = "default" if self.forwarder == "none" else self.forwarder
        manifests = rendered(str(PROGRAMS / "kubectl"), overlay, self.components, DEV)
        self.manifest.write_text(manifests)
        self.apply(manifests)
        self.await_speaker()

    def apply(self, manifests: str) -> None:
        """Again, where a busy API server takes a part of them only."""
        self.until("the manifests are taken", lambda: self.kubectl("apply", "--filename", "-", stdin=manifests))

    def await_speaker(self) -> None:
        self.rolled_out("daemonset/eip-speaker-agent", SPEAKER_NAMESPACE)
        self.rolled_out("deployment/eip-speaker-controller", "eip-speaker")

    def rolled_out(self, what: str, namespace: str = "default") -> None:
        self.kubectl("-n", namespace, "rollout", "status", what, f"--timeout={PATIENCE:.0f}s")

    def serve(self) -> None:
        """A pool, pods on every node, and Services for them."""
        web = (MANIFESTS / "web.yaml").read_text().replace("{seconds: 0}", f"{{seconds: {LINGER}}}")
        web = web.replace("GracePeriodSeconds: 10", f"GracePeriodSeconds: {10 + LINGER}")
        self.apply(web)
        self.kubectl("scale", "deployment/web", f"--replicas={len(self.nodes)}")

    def eips(self, service: str) -> list[str]:
        """What a Service has been given; empty as long as it waits."""
        return [each["ip"] for each in self.get("service", service)["status"]["loadBalancer"].get("ingress", [])]

    def holder(self, eip: str) -> str:
        """The node whose MAC answers the client; '' for nobody."""
        if ":" in eip:
            self.world.run("ip", "-6", "neigh", "flush", "to", eip, place="client")
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
        node, before = self.nodes[name], self._renewed(name)
        sweep(self.world, name)
        self.world.run("ip", "link", "set", name, "up")
        node.first = told_ready(self._boot(node), DEPTH)
        self.until(f"{name} speaks again", lambda: self._renewed(name) != before)
        self.until(f"{name} is Ready", lambda: name in self.ready())

    def _renewed(self, node: str) -> str:
        """When its kubelet was last heard."""
        return str(self.get("lease", "-n", "kube-node-lease", node)["spec"]["renewTime"])

    def processes(self, node: str, program: str) -> list[str]:
        """Process ids, as the node numbers them."""
        return self.in_node(node, "pgrep", "--exact", program[:COMM], check=False).split()

    def _started(self, node: str, program: str) -> list[str]:
        """Of the node's own programs. While one starts another there are two of its name: not both are the node's."""
        return self.in_node(node, "pgrep", "--exact", "--parent=1", program, check=False).split()

    def signal(self, node: str, program: str, name: str) -> None:
        """To one of the node's programs; one that ends is started again."""
        self.in_node(node, "kill", f"-{name}", *self._started(node, program))

    def restart(self, node: str, program: str) -> None:
        """It is running again at the end, which is not to say that it is ready."""
        (before,) = self._started(node, program)
        self.signal(node, program, "KILL")
        self.until(f"{program} of {node} runs again", lambda: self._started(node, program) not in ([], [before]))

    def restart_everywhere(self, program: str) -> None:
        """On one node after the other."""
        for node in self.nodes:
            self.restart(node, program)

    def change_proxy(self, name: str, mode: str) -> None:
        """kube-proxy of a node is in another mode, and has written its rules, at the end."""
        node = self.nodes[name]
        furnish(node, self.images, self.keys, self._group(node), mode)  # it ends when its configuration changes
        self.until(f"kube-proxy of {name} is in {mode} mode", lambda: self._proxy_says(name, "10249/proxyMode") == mode)
        self.until(f"kube-proxy of {name} has its rules", lambda: self._proxy_says(name, "10256/healthz"))

    def set_proxy(self, name: str, own: Mapping[str, Any] | None = None, **settings: Any) -> None:
        """kube-proxy of a node has these settings besides, ``own`` for its mode, or none, and its rules, at the end."""
        usual = kube_proxy(self.keys, name, self.proxy)
        settings[self.proxy] = {**usual.get(self.proxy, {}), **(own or {})}
        before = self.processes(name, "kube-proxy")
        (self.nodes[name].directory / "kube-proxy.yaml").write_text(json.dumps({**usual, **settings}))
        self.until("kube-proxy runs again", lambda: self.processes(name, "kube-proxy") not in ([], before))
        self.until(f"kube-proxy of {name} has its rules", lambda: self._proxy_says(name, "10256/healthz"))

    def _proxy_says(self, name: str, where: str) -> str:
        return self.in_node(name, "curl", "--silent", "--fail", "--max-time", "2", f"http://127.0.0.1:{where}").strip()

    def stop(self, control: str) -> None:
        """A part of the control plane is killed."""
        process = self._controls.pop(control)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()  # nsenter's
        os.kill(int(children[0]), signal.SIGKILL)
        process.wait()

    def start(self, *controls: str) -> None:
        """Parts of the control plane; the API server is ready at the end."""
        for name in controls:
            self._controls[name] = self.world.start(name, PROGRAMS / name, *self._flags(name), place="api")
            if name == "kube-apiserver":
                self.until("the API server is ready", lambda: self.kubectl("get", "--raw=/readyz") == "ok")

    # ── How it is made ──

    def _keep_logs(self) -> None:
        shutil.rmtree(LOGS, ignore_errors=True)
        for log in (
            log for logs in ("*.log", "*/*.log", "*/var-log/pods/*/*/*.log") for log in self.directory.glob(logs)
        ):
            target = LOGS / log.relative_to(self.directory)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log, target)

    @property
    def etcd(self) -> Path:
        return self.directory / "etcd"

    def _flags(self, control: str) -> list[str]:
        keys, etcd, peer = self.keys, "http://127.0.0.1:2379", "http://127.0.0.1:2380"
        return {
            "etcd": [
                f"--data-dir={self.etcd}", "--unsafe-no-fsync",
                f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
            ],
            "kube-apiserver": [
                f"--etcd-servers={etcd}", "--secure-port=6443", "--advertise-address=192.0.2.5",
                "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
                "--allow-privileged=true", f"--service-cluster-ip-range={','.join(SERVICES)}",
                f"--client-ca-file={keys / 'ca.crt'}",
                f"--tls-cert-file={keys / 'apiserver.crt'}", f"--tls-private-key-file={keys / 'apiserver.key'}",
                "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
                f"--service-account-key-file={keys / 'accounts.key'}",
                f"--service-account-signing-key-file={keys / 'accounts.key'}",
                f"--kubelet-client-certificate={keys / 'apiserver-to-kubelets.crt'}",
                f"--kubelet-client-key={keys / 'apiserver-to-kubelets.key'}",
                "--kubelet-preferred-address-types=InternalIP", "--profiling=false",
            ],
            "kube-controller-manager": [
                f"--kubeconfig={keys / 'kube-controller-manager.kubeconfig'}",
                "--use-service-account-credentials", "--leader-elect=false", "--bind-address=127.0.0.1",
                f"--service-account-private-key-file={keys / 'accounts.key'}", f"--root-ca-file={keys / 'ca.crt'}",
                *([f"--node-monitor-grace-period={self.grace}s"] if self.grace else []),
            ],
            "kube-scheduler": [
                f"--kubeconfig={keys / 'kube-scheduler.kubeconfig'}",
                "--leader-elect=false", "--bind-address=127.0.0.1",
            ],
        }[control]  # fmt: skip

    def _group(self, node: Node) -> str:
        return f"/{self.name}/{node.name}"

    def _boot(self, node: Node) -> "subprocess.Popen[str]":
        furnish(node, self.images, self.keys, self._group(node), self.proxy)
        return boot(self.world, node)

    def words_in_api(self, program: str) -> list[str]:
        """An administrator's kubectl or helm, as ``api`` has it."""
        return [
            "env",
            f"HOME={self.directory}",
            f"KUBECONFIG={self.keys / 'admin.kubeconfig'}",
            str(PROGRAMS / program),
        ]
