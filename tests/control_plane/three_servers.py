"""Three control-plane nodes with a real etcd and a real kube-apiserver each, behind one address that clients use.

::

    client ─┐                                 node1 .11   speaker, etcd, kube-apiserver; pod1, pod2 behind it
            ├── lan 192.0.2.0/24 ─────────────node2 .12   the same
            │   2001:db8:0:1::/64             node3 .13   the same

What starts a speaker is what ``speaker control-plane`` wrote: the arguments of its static pod, with paths below a
directory of the node. Everything is started in kubeadm's order, killed with its node, and gone with this process.
"""

import ctypes
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import yaml
from real_api import PATIENCE, binaries, bound_to_us

from speaker.lab.lan import Lan
from speaker.lab.namespaces import Namespace
from speaker.lab.switch import cut, mend
from speaker.lab.topology import lab_topology
from speaker.model import with_port

CLONE_NEWUTS = 0x04000000
LINKS = ("eth0", "eth1")
TOKEN = "admin-token"  # noqa: S105 -- of three API servers that nobody else reaches
PORT = 6443
LAN_OF = {4: "192.0.2.{}", 6: "2001:db8:0:1::{}"}
POLL = 0.05


def until(holds: Callable[[], Any], what: str = "it") -> Any:
    """Asks again and again; returns what it holds in the end."""
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what} did not come about within {PATIENCE:g} s"
        time.sleep(POLL)
    return found


class Authority:
    """A CA, and what kubeadm makes with it: serving certificates that name the address, and a key that signs tokens."""

    def __init__(self, directory: Path, address: str) -> None:
        self.directory, self._address = directory, address
        directory.mkdir()
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        self._key = key
        self._openssl(
            *("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-days", "30", "-subj", "/CN=kubernetes"),
            *("-addext", "keyUsage=critical,keyCertSign,digitalSignature"),
        )
        self._openssl("genrsa", "-out", "sa.key", "2048")
        (directory / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"')

    @property
    def ca(self) -> Path:
        return self.directory / "ca.crt"

    def certify(self, name: str, own: str, days: int = 30) -> tuple[Path, Path]:
        """Certificate and key of an API server; ``days`` below 0: expired."""
        names = ",".join(f"IP:{each}" for each in (own, self._address, "127.0.0.1"))
        (self.directory / f"{name}.ext").write_text(f"subjectAltName={names},DNS:kubernetes.default.svc")
        subject = ("-subj", "/CN=kube-apiserver")
        self._openssl("req", *self._key, "-keyout", f"{name}.key", "-out", f"{name}.csr", *subject)
        self._openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-days", str(days), "-extfile", f"{name}.ext", "-out", f"{name}.crt"),
        )
        return self.directory / f"{name}.crt", self.directory / f"{name}.key"

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.directory, check=True, capture_output=True)


class ControlPlaneNode:
    """``processes`` are those that run, by name: ``speaker``, ``etcd``, ``kube-apiserver``, and others that are asked
    for."""

    def __init__(self, site: "Site", name: str, number: int) -> None:
        self.site, self.name = site, name
        self.place: Namespace = site.lan.namespace(name)
        self.address = LAN_OF[site.version].format(10 + number)
        self.root = site.directory / name
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.files = site.authority.certify(name, self.address)

    def start(self, name: str, *command: str, environment: dict[str, str] | None = None) -> None:
        bound, libc = bound_to_us(), ctypes.CDLL(None)

        def settle() -> None:
            bound()
            os.setsid()  # a group of its own, so that a kill reaches what it started
            libc.unshare(CLONE_NEWUTS)
            socket.sethostname(self.name)  # by which API servers tell themselves apart

        self.root.mkdir(exist_ok=True)
        with (self.root / f"{name}.log").open("ab") as log, self.place.entered():
            self.processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=settle,
                env={**os.environ, **(environment or {})},
            )

    def end(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """As the kubelet: SIGTERM goes to the first process; SIGKILL to all. Returns when it is gone."""
        process = self.processes.pop(name)
        if number is signal.SIGKILL:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        process.wait()

    def end_gently(self, name: str) -> None:
        self.end(name, signal.SIGTERM)

    def run(self, *command: str) -> str:
        """``speaker COMMAND`` in this host; what it printed."""
        with self.place.entered():
            done = subprocess.run(
                [sys.executable, "-m", "speaker", *command], capture_output=True, text=True, check=False
            )
        assert done.returncode == 0, f"speaker {' '.join(command)} at {self.name}: {done.stderr}{done.stdout}"
        return done.stdout

    # ── What kubeadm and the kubelet do ──

    def write_files(self, *flags: str) -> str:
        """What an operator runs before ``kubeadm``."""
        self.root.mkdir(exist_ok=True)
        servers = ",".join(node.address for node in self.site.nodes)
        words = ("control-plane", self.site.address, "--servers", servers, "--output", str(self.root))
        return self.run(*words, "--ca", str(self.site.authority.ca), *flags)

    def start_speaker(self) -> None:
        """As a kubelet does that finds the static pod."""
        pod = yaml.safe_load((self.root / "etc/kubernetes/manifests/eip-speaker-control-plane.yaml").read_text())
        (container,) = pod["spec"]["containers"]
        for volume in pod["spec"]["volumes"]:
            if volume["hostPath"]["type"] == "DirectoryOrCreate":
                Path(self._inside(volume["hostPath"]["path"])).mkdir(parents=True, exist_ok=True)
        self.start("speaker", sys.executable, "-m", "speaker", *map(self._inside, container["args"]))

    def _inside(self, word: str) -> str:
        """A path of the pod as one of this host's own directory."""
        flag, equals, path = word.rpartition("=")
        return f"{flag}{equals}{self.root}{path}" if path.startswith("/") else word

    @property
    def runtime_dir(self) -> str:
        return f"{self.root}/run/eip-speaker-control-plane"

    def start_etcd(self, *members: "ControlPlaneNode") -> None:
        """``members``: those that there are already, with this one; none where it was one before."""
        peer = f"http://{with_port(self.address, 2380)}"
        joins = ()
        if members:
            cluster = ",".join(f"{each.name}=http://{with_port(each.address, 2380)}" for each in members)
            joins = (f"--initial-cluster={cluster}", f"--initial-cluster-state={'existing' if members[1:] else 'new'}")
        self.start(
            *("etcd", str(binaries() / "etcd"), f"--name={self.name}", f"--data-dir={self.root}/etcd"),
            *("--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", "--unsafe-no-fsync", *joins),
        )

    def add_member(self, other: "ControlPlaneNode") -> None:
        """To the etcd that runs here, as ``kubeadm join`` does; retried until the others are in touch."""
        body = json.dumps({"peerURLs": [f"http://{with_port(other.address, 2380)}"]}).encode()

        def added() -> bool:
            with suppress(OSError), self.place.entered():
                url = "http://127.0.0.1:2379/v3/cluster/member/add"
                with urllib.request.urlopen(urllib.request.Request(url, body), timeout=10):
                    return True
            return False

        until(added, f"etcd takes {other.name} for a member")

    def start_api(self, *flags: str) -> None:
        certificate, key = self.files
        pki = self.site.authority.directory
        self.start(
            *("kube-apiserver", str(binaries() / "kube-apiserver"), f"--secure-port={PORT}"),
            *(f"--bind-address={'0.0.0.0' if self.site.version == 4 else '::'}", f"--advertise-address={self.address}"),
            *("--etcd-servers=http://127.0.0.1:2379", "--authorization-mode=RBAC", "--profiling=false"),
            *(f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}", f"--cert-dir={self.root}/certs"),
            *(f"--token-auth-file={pki}/tokens.csv", f"--service-account-key-file={pki}/sa.key"),
            *(f"--service-account-signing-key-file={pki}/sa.key", "--endpoint-reconciler-type=none"),
            *("--service-account-issuer=https://kubernetes.default.svc", "--disable-admission-plugins=ServiceAccount"),
            f"--service-cluster-ip-range={'10.96.0.0/16' if self.site.version == 4 else 'fd00:10:96::/112'}",
            *flags,
        )

    def stop_api(self) -> None:
        """SIGTERM, and SIGKILL after a while: with a watch open it takes a minute (``real_api.py``)."""
        process = self.processes.pop("kube-apiserver")
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()

    # ── What is asked ──

    def get(self, url: str, path: str = "/readyz", timeout: float = 2.0, place: Namespace | None = None) -> bytes:
        """From this host, or from ``place``. Raises OSError."""
        request = urllib.request.Request(f"{url}{path}", headers={"Authorization": f"Bearer {TOKEN}"})  # noqa: S310
        asking = urllib.request.build_opener(urllib.request.HTTPSHandler(context=self.site.tls))
        with (place or self.place).entered(), asking.open(request, timeout=timeout) as answer:
            body: bytes = answer.read()
            return body

    def send(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """To the API server of this node; HTTP's code and the answer."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        url = f"https://{with_port(self.address, PORT)}{path}"
        request = urllib.request.Request(url, content, headers, method=method)
        asking = urllib.request.build_opener(urllib.request.HTTPSHandler(context=self.site.tls))
        try:
            with self.place.entered(), asking.open(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)

    def answers(self, url: str = "", place: Namespace | None = None) -> bool:
        """Whether an API server says that it is ready, at ``url`` or at the address."""
        with suppress(OSError):
            return self.get(url or self.site.url, place=place) == b"ok"
        return False

    def well(self) -> bool:
        for name, process in self.processes.items():
            if process.poll() is not None:
                log = (self.root / f"{name}.log").read_text(errors="replace")
                raise AssertionError(f"{name} of {self.name} ended with {process.returncode}: {log[-3000:]}")
        return self.answers(f"https://{with_port(self.address, PORT)}")

    def status(self) -> dict[str, Any]:
        with suppress(FileNotFoundError):
            found: dict[str, Any] = json.loads(Path(self.runtime_dir, "status.json").read_bytes())
            return found
        return {}

    def holds(self) -> bool:
        """By its own word."""
        return "speaker" in self.processes and any(eip["claimed"] for eip in self.status().get("eips", ()))

    def crash(self) -> None:
        """The power is off: nothing of it answers, resets or says goodbye."""
        for link in LINKS:
            cut(self.site.lan, self.name, link)
        for name in [*self.processes]:
            self.end(name)

    def forget_the_running_kernel(self) -> None:
        """What a reboot makes void: the kernel's tables, and /run."""
        with self.place.entered():
            subprocess.run(["nft", "flush", "ruleset"], check=True)
            subprocess.run(["ip", "addr", "flush", "dev", "eth0", "to", self.site.address], check=True)
        for file in Path(self.root, "run").rglob("*"):
            if not file.is_dir():
                file.unlink()
        for link in LINKS:
            mend(self.site.lan, self.name, link)


class Site:
    """``with Site(directory) as site``: three hosts with nothing on them, and clients."""

    def __init__(self, directory: Path, version: int = 4, last: int = 10) -> None:
        self.directory, self.version = directory, version
        self.address = LAN_OF[version].format(last)
        self.url = f"https://{with_port(self.address, PORT)}"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.lan = stack.enter_context(Lan(lab_topology(3)))
            self.authority = Authority(self.directory / "pki", self.address)
            self.tls = ssl.create_default_context(cafile=self.authority.ca)
            self.nodes = [ControlPlaneNode(self, name, at) for at, name in enumerate(self.lan.topology.nodes, 1)]
            stack.callback(self._end)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _end(self) -> None:
        for node in self.nodes:
            for name in [*node.processes]:
                node.end(name)

    @property
    def client(self) -> Namespace:
        return self.lan.namespace("client")

    def holder(self) -> ControlPlaneNode | None:
        """The only one that says it holds the address."""
        found = [node for node in self.nodes if node.holds()]
        return found[0] if len(found) == 1 else None

    def bootstrap(self, start: Callable[[ControlPlaneNode, bool], None]) -> None:
        """``kubeadm init`` on the first node and ``join`` on the others. ``start(node, first)``: what holds the
        address, as the kubelet starts it: before there is an API server on its node."""
        first, *others = self.nodes
        start(first, True)
        first.start_etcd(first)
        first.start_api()
        until(first.well, f"the API server of {first.name}")
        until(lambda: first.answers(place=self.client), "an answer at the address")
        for node in others:
            self.join(node, start)

    def join(self, node: ControlPlaneNode, start: Callable[[ControlPlaneNode, bool], None]) -> None:
        start(node, False)
        # Its kubelet asks by the address before its own API server is there: to be let in.
        until(node.answers, f"an answer at the address to the joining {node.name}")
        members = self.nodes[: self.nodes.index(node) + 1]
        members[0].add_member(node)
        node.start_etcd(*members)
        node.start_api()
        until(node.well, f"the API server of {node.name}")

    def start_ours(self, node: ControlPlaneNode, first: bool) -> None:
        """As ``bootstrap`` wants it: the command, the key from the first node, the static pod."""
        if not first:
            source, target = (each.root / "etc/eip-speaker-control-plane/key" for each in (self.nodes[0], node))
            target.parent.mkdir(parents=True)
            target.touch(mode=0o600)
            target.write_bytes(source.read_bytes())
        node.write_files(*["--bootstrap"] * first)
        node.start_speaker()


@contextmanager
def requesting(site: Site, log: Path, *flags: str) -> Iterator[Callable[[], Sequence[dict[str, Any]]]]:
    """Clients that open and hold requests for as long as the block lasts (``requesting.py``). What they saw so far."""
    command = (str(Path(__file__).with_name("requesting.py")), site.url, str(site.authority.ca), TOKEN, str(log))
    with site.client.entered():
        process = subprocess.Popen([sys.executable, *command, *flags], preexec_fn=bound_to_us())

    def seen() -> Sequence[dict[str, Any]]:
        assert process.poll() is None, "the clients ended"
        with log.open() as lines:
            return [json.loads(line) for line in lines if line.endswith("\n")]

    try:
        until(lambda: log.exists() and {each["kind"] for each in seen()} >= {"new", "held", "watch"}, "a first answer")
        yield seen
    finally:
        process.kill()
        process.wait()
