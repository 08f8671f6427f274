"""What `speaker control-plane` writes, on every node beside the cluster's own agents: a static pod of another group.

Started as a program, this file stands in for the API server of a node. It answers whoever asks, by TLS and without.

    beside.py CERTIFICATE KEY
"""

import socket
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from real_cluster import RealCluster

ADDRESS, PORT, GROUP = "192.0.2.250", 6443, "control-plane"
TARGET = f"{ADDRESS},{PORT}"
PLACE = "/etc/eip-speaker-control-plane"
POD = "/etc/kubernetes/manifests/eip-speaker-control-plane.yaml"


class ControlPlane:
    """Its address is answered, and the cluster's agents have the same key, once it is ``set_up``."""

    def __init__(self, cluster: "RealCluster") -> None:
        self._cluster = cluster
        self._key = ""

    def set_up(self) -> None:
        from real_cluster import SPEAKER_NAMESPACE as NAMESPACE

        for node in self._cluster.nodes:
            self._serve(node)
            self.write(node)
        self._cluster.kubectl("create", "namespace", NAMESPACE)
        secret = ("secret", "generic", "eip-speaker-key", f"--from-literal=key={self._key.strip()}")
        self._cluster.kubectl("-n", NAMESPACE, "create", *secret)
        self._cluster.until(f"{ADDRESS} answers", lambda: self._cluster.ask(f"http://{ADDRESS}:{PORT}/"))

    def write(self, node: str, image: str = "") -> None:
        """As the documentation has it; at the end its pod runs that image."""
        from cluster_parts import DEV

        servers = ",".join(each.addresses[0] for each in self._cluster.nodes.values())
        image, first = image or DEV, [] if self._key else ["--bootstrap"]
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
        from cluster_keys import certify_server

        name, keys = f"server-of-{node}", self._cluster.keys
        certify_server(keys, name, (self._cluster.nodes[node].addresses[0], ADDRESS))
        files = (keys / f"{name}.crt", keys / f"{name}.key")
        self._cluster.world.start(name, sys.executable, "-I", "-S", __file__, *files, place=node)


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def finish_request(self, request: Any, client_address: Any) -> None:
        if request.recv(1, socket.MSG_PEEK) == b"\x16":  # a handshake
            with self.context.wrap_socket(request, server_side=True) as inside:
                super().finish_request(inside, client_address)
        else:
            super().finish_request(request, client_address)


if __name__ == "__main__":
    _Server.context.load_cert_chain(*sys.argv[1:])
    _Server(("", PORT), _Answer).serve_forever()
