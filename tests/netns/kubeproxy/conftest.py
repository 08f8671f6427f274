"""A node on a LAN with a stand-in for kube-proxy: its ports, and what it makes in the kernel."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from site_yaml import endpoint, pool, service

from speaker.lab.namespaces import Namespace

Pages = dict[str, tuple[int, bytes]]


@pytest.fixture
def node(new_namespace, wire, sh) -> Namespace:
    """Has 198.51.100.1/24 on eth0."""
    node, peer = new_namespace("node"), new_namespace("peer")
    wire(node, "eth0", peer, "eth0")
    sh(node, "ip addr add 198.51.100.1/24 dev eth0")
    sh(node, "ip addr add 2001:db8::1/64 dev eth0 nodad")
    sh(peer, "ip addr add 198.51.100.2/24 dev eth0")
    node.sysctl("net.ipv4.ip_forward", 1)
    node.sysctl("net.ipv6.conf.all.forwarding", 1)
    return node


@pytest.fixture
def site() -> Callable[..., str]:
    """``site(spec, place)``: a pool, the Service default/web at 198.51.100.70, and one endpoint on node n1."""

    def text(spec: str = "", place: str = "addresses: [10.0.0.1], nodeName: n1") -> str:
        made: str = pool("198.51.100.70-198.51.100.79") + service("web", spec) + endpoint("web", place)
        return made

    return text


class StandIn:
    """Answers as kube-proxy does; ``pages`` may be changed while it runs, and ``close`` ends it."""

    def __init__(self, node: Namespace, mode: str, configuration: dict[str, Any]) -> None:
        told = json.dumps({"kubeproxy.config.k8s.io": {"mode": mode, **configuration}})
        self.pages: Pages = {
            "/proxyMode": (200, mode.encode()),
            "/configz": (200, told.encode()),
            "/healthz": (200, b'{"healthy": true}'),
        }
        pages = self.pages

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = pages.get(self.path, (404, b""))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        with node.entered():
            self._servers = [ThreadingHTTPServer((host, port), Handler) for host, port in PORTS]
        for server in self._servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._servers = []


PORTS = (("127.0.0.1", 10249), ("0.0.0.0", 10256))


@pytest.fixture
def kube_proxy() -> Iterator[Callable[..., StandIn]]:
    """``kube_proxy(node, "nftables", nodePortAddresses=[…])``."""
    with ExitStack() as stack:

        def begin(node: Namespace, mode: str, **configuration: Any) -> StandIn:
            found = StandIn(node, mode, configuration)
            stack.callback(found.close)
            return found

        yield begin
