"""What `speaker control-plane` writes, on every node beside the cluster's own agents: a static pod of another group."""

import sys
from pathlib import Path

from cluster_keys import certify_server
from cluster_parts import DEV
from ready import PORT
from real_cluster import SPEAKER_NAMESPACE, RealCluster

ADDRESS, GROUP = "192.0.2.250", "control-plane"
TARGET = f"{ADDRESS},{PORT}"
PLACE = "/etc/eip-speaker-control-plane"
POD = "/etc/kubernetes/manifests/eip-speaker-control-plane.yaml"
SERVER = Path(__file__).with_name("ready.py")


class ControlPlane:
    """Its address is answered, and the cluster's agents have the same key, once it is ``set_up``."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self._key = ""

    def set_up(self) -> None:
        for node in self._cluster.nodes:
            self._serve(node)
            self.write(node)
        self._cluster.kubectl("create", "namespace", SPEAKER_NAMESPACE)
        secret = ("secret", "generic", "eip-speaker-key", f"--from-literal=key={self._key.strip()}")
        self._cluster.kubectl("-n", SPEAKER_NAMESPACE, "create", *secret)
        self._cluster.until(f"{ADDRESS} answers", lambda: self._cluster.ask(f"http://{ADDRESS}:{PORT}/"))

    def write(self, node: str, image: str = DEV) -> None:
        """As the documentation has it; at the end its pod runs that image."""
        servers = ",".join(each.addresses[0] for each in self._cluster.nodes.values())
        first = [] if self._key else ["--bootstrap"]
        if self._key:
            copied = f"mkdir -p {PLACE} && umask 077 && cat > {PLACE}/key <<'END'\n{self._key}END\n"
            self._cluster.in_node(node, "sh", "-c", copied)
        trusted = f"--ca={self._cluster.keys / 'first.crt'}"
        words = ("control-plane", ADDRESS, f"--servers={servers}", trusted, f"--image={image}", *first)
        self._cluster.in_node(node, f"{sys.prefix}/bin/speaker", *words)
        self._key = self._cluster.in_node(node, "cat", f"{PLACE}/key")
        self._cluster.until(f"the pod of {node} runs {image}", lambda: self._runs(node) == image)

    def remove(self, node: str) -> None:
        """As the documentation has it."""
        self._cluster.in_node(node, "rm", POD)
        self._cluster.until("it has ended", lambda: not self.processes(node))
        self._cluster.in_node(node, f"{sys.prefix}/bin/speaker", "cleanup", f"--group={GROUP}")

    def told(self, node: str, *words: str) -> str:
        """By the speaker in the pod of a node."""
        pod = f"eip-speaker-control-plane-{node}"
        return self._cluster.kubectl("-n", "kube-system", "exec", pod, "--", "speaker", *words, f"--group={GROUP}")

    def processes(self, node: str) -> list[str]:
        """Process ids, as the node numbers them."""
        return self._cluster.in_node(node, "pgrep", "--full", f"speaker run .*{GROUP}", check=False).split()

    def _runs(self, node: str) -> str:
        found = self._cluster.get("pod", "-n", "kube-system", f"eip-speaker-control-plane-{node}")
        ready = [each["ready"] for each in found["status"].get("containerStatuses", ())]
        return str(found["spec"]["containers"][0]["image"]) if ready == [True] else ""

    def _serve(self, node: str) -> None:
        name, keys = f"server-of-{node}", self._cluster.keys
        certify_server(keys, name, (self._cluster.nodes[node].addresses[0], ADDRESS))
        files = (keys / f"{name}.crt", keys / f"{name}.key")
        self._cluster.world.start(name, sys.executable, "-I", "-S", SERVER, *files, place=node)
