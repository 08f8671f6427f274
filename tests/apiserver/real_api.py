"""A real etcd and a real kube-apiserver, found where envtest looks for them or `make cluster` leaves them: on loopback,
or on an address inside a network namespace."""

import base64
import ctypes
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

from speaker.lab.namespaces import Namespace

MANIFESTS = Path(__file__).parents[2] / "manifests" / "base"
ENVTEST = Path("/usr/local/kubebuilder/bin")
BUILT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eip-speaker" / "cluster" / "bin"
"""Where `make cluster` leaves them."""
PATIENCE = 120.0
"""Seconds; a guard against a hang, not an expectation."""
PR_SET_PDEATHSIG = 1

USERS = {
    "admin": ("admin-token", "system:masters"),
    "nobody": ("nobody-token", "strangers"),
}
"""Name → token, group. ServiceAccounts get real tokens from the API (``kubectl create token``)."""

_FLAGS = (
    "--authorization-mode=RBAC",
    "--service-account-issuer=https://kubernetes.default.svc",
    "--service-cluster-ip-range=10.96.0.0/12,fd00:10:96::/112",
    "--endpoint-reconciler-type=none",
    "--disable-admission-plugins=ServiceAccount",
    "--profiling=false",
)


def until(holds: Callable[[], Any]) -> Any:
    """Asks again and again; returns what it holds in the end."""
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline
    return found


def missing() -> str:
    """Why there can be no real API server here; '' when there can."""
    directory = binaries()
    absent = [name for name in ("etcd", "kube-apiserver") if not (directory / name).is_file()]
    if absent:
        places = "envtest's place; $KUBEBUILDER_ASSETS names another, and `make cluster` builds them"
        return f"needs {' and '.join(absent)} in {directory} ({places})"
    return "" if shutil.which("openssl") else "needs openssl, to make the key that signs tokens"


def binaries() -> Path:
    """Where etcd, kube-apiserver and their like are."""
    if named := os.environ.get("KUBEBUILDER_ASSETS"):
        return Path(named)
    return BUILT if BUILT.is_dir() and not ENVTEST.is_dir() else ENVTEST


def _free_port(address: str = "127.0.0.1") -> int:
    with socket.create_server((address, 0)) as server:
        port: int = server.getsockname()[1]
        return port


def bound_to_us() -> Callable[[], None]:
    """For ``preexec_fn``: the child is killed when the thread that starts it ends, however that comes (prctl(2))."""
    libc, parent = ctypes.CDLL(None, use_errno=True), os.getpid()

    def bind() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before
            os._exit(1)

    return bind


class RealApi:
    """``with RealApi(directory) as api``: serves on ``api.url`` until the block ends. Ends only what it started.

    In ``place`` it listens on ``address`` there, and only those who reach that address reach it. Its processes keep a
    namespace alive, so there they die with the thread that started them: the one that makes the API server has to be
    the one that starts it again.
    """

    def __init__(
        self, directory: Path, *flags: str, place: Namespace | None = None, address: str = "127.0.0.1"
    ) -> None:
        self.directory = directory
        self._flags, self._place, self._address = flags, place, address
        with self.inside():
            self.port, self._etcd_port, self._peer_port = _free_port(address), _free_port(), _free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @contextmanager
    def inside(self) -> Iterator[None]:
        """The calling thread is where the API server is: sockets and processes made in the block stay there."""
        if self._place is None:
            yield
        else:
            with self._place.entered():
                yield

    @property
    def url(self) -> str:
        return f"https://{self._address}:{self.port}"

    @property
    def ca(self) -> Path:
        """The certificate that the server made for itself."""
        return self.directory / "certs" / "apiserver.crt"

    def __enter__(self) -> "RealApi":
        self._write_credentials()
        try:
            self._start_etcd()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # SIGKILL: with a watch open, kube-apiserver takes a minute over SIGTERM.
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()

    def _start_etcd(self) -> None:
        etcd, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self._start(
            "etcd",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )

    def version(self) -> str:
        found: str = json.loads(self._ask("/version"))["gitVersion"]
        return found

    # ── Faults ──

    def start(self, *flags: str) -> None:
        """After ``stop``: on the same port, with everything still there."""
        keys = self.directory / "sa.key"
        self._start(
            "kube-apiserver",
            *_FLAGS,
            f"--bind-address={self._address}",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self.port}",
            f"--cert-dir={self.directory / 'certs'}",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            f"--service-account-key-file={keys}",
            f"--service-account-signing-key-file={keys}",
            *self._flags,
            *flags,
        )
        self._until_ready()

    def stop(self) -> None:
        """SIGKILL: no goodbye."""
        self._kill("kube-apiserver")

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    @property
    def running(self) -> bool:
        return "kube-apiserver" in self._processes

    def freeze(self) -> None:
        self._processes["kube-apiserver"].send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self.running:
            self._processes["kube-apiserver"].send_signal(signal.SIGCONT)

    def compact(self) -> None:
        """Makes etcd forget everything but the present. The API server's own memory of it goes with a restart."""
        key = base64.b64encode(b"compaction").decode()
        revision = self._etcd("kv/range", {"key": key})["header"]["revision"]
        self._etcd("kv/compaction", {"revision": revision, "physical": True})

    def back_up(self) -> None:
        """What etcd knows. Stops both; ``start`` goes on."""
        self._copy("etcd", "backup")

    def restore(self) -> None:
        """What ``back_up`` saw is all there is: versions begin again where they were then. As ``back_up``."""
        self._copy("backup", "etcd")

    def _copy(self, former: str, to: str) -> None:
        self.stop()
        self._kill("etcd")
        shutil.rmtree(self.directory / to, ignore_errors=True)
        shutil.copytree(self.directory / former, self.directory / to)
        self._start_etcd()

    # ── Using it ──

    def kubeconfig(self, user: str = "admin") -> Path:
        """A file for kubectl and for the speaker."""
        return self.kubeconfig_with(user, USERS[user][0])

    def kubeconfig_with(self, user: str, token: str, url: str = "") -> Path:
        path = self.directory / f"{user}.kubeconfig"
        cluster = {"server": url or self.url, "certificate-authority": str(self.ca)}
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "test", "cluster": cluster}],
                    "users": [{"name": user, "user": {"token": token}}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
                    "current-context": "test",
                }
            )
        )
        return path

    def service_account(self, directory: Path, token: str) -> Path:
        """What a pod finds mounted: ``ca.crt`` and ``token``."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "ca.crt").write_bytes(self.ca.read_bytes())
        (directory / "token").write_text(token)
        return directory

    def kubectl(self, *arguments: str, user: str = "admin", stdin: str | None = None) -> str:
        """Its output; raises AssertionError with what it said when it fails."""
        beside = binaries() / "kubectl"
        command = [str(beside) if beside.exists() else "kubectl", f"--kubeconfig={self.kubeconfig(user)}", *arguments]
        with self.inside():
            done = subprocess.run(
                command,
                input=stdin,
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "HOME": str(self.directory)},
                timeout=3 * PATIENCE,
            )
        if done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}")
        return done.stdout

    def install(self) -> None:
        """The shipped definitions and namespaces, and the rights of the controller with what bounds them."""
        self.kubectl("apply", "-k", str(MANIFESTS / "crds"))
        for file in ("namespaces.yaml", "controller-rbac.yaml", "controller-admission.yaml"):
            self.kubectl("apply", "-f", str(MANIFESTS / file))
        names = ("crd/eips.eip-speaker.io", "crd/announcements.eip-speaker.io")
        self.kubectl("wait", "--for=condition=established", *names)

    # ── How ──

    def _write_credentials(self) -> None:
        (self.directory / "certs").mkdir()
        lines = [f'{token},{name},{name},"{group}"' for name, (token, group) in USERS.items()]
        (self.directory / "tokens.csv").write_text("\n".join(lines))
        subprocess.run(
            ["openssl", "genrsa", "-out", str(self.directory / "sa.key"), "2048"], check=True, capture_output=True
        )

    def _start(self, program: str, *flags: str) -> None:
        bound = bound_to_us() if self._place is not None else None
        with (self.directory / f"{program}.log").open("ab") as log, self.inside():
            self._processes[program] = subprocess.Popen(
                [str(binaries() / program), *flags], stdout=log, stderr=log, preexec_fn=bound
            )

    def _until_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    log = (self.directory / f"{name}.log").read_text()
                    raise AssertionError(f"{name} ended with {process.returncode}: {log[-2000:]}")
            try:
                if self._ask("/readyz") == b"ok":
                    return
            except (URLError, OSError):
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def _ask(self, path: str) -> bytes:
        context = ssl.create_default_context(cafile=self.ca if self.ca.exists() else None)
        headers = {"Authorization": f"Bearer {USERS['admin'][0]}"}
        request = urllib.request.Request(f"{self.url}{path}", headers=headers)  # noqa: S310 (of our own making)
        with self.inside(), urllib.request.urlopen(request, timeout=PATIENCE, context=context) as answer:  # noqa: S310
            body: bytes = answer.read()
            return body

    def _etcd(self, method: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._etcd_port}/v3/{method}", data=json.dumps(body).encode()
        )
        with self.inside(), urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310 (of our own making)
            found: dict[str, dict[str, str]] = json.loads(answer.read())
            return found
