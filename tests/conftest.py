"""What every test may ask for: network namespaces that vanish, commands run inside them, and the real speaker."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from real_api import BUILT, ENVTEST, RealApi, missing

from speaker.lab.namespaces import Namespace

#: Tests that several suites import.
pytest.register_assert_rewrite("local_clients", "service_fields")

Shell = Callable[..., str]


@pytest.fixture(scope="session")
def namespaces() -> None:
    """For tests that make their own: skips where the machine does not let us make any."""
    try:
        Namespace("may we?").close()
    except PermissionError as error:
        pytest.skip(f"needs the right to make network namespaces (root, or `unshare -Urnm`): {error}")


@pytest.fixture
def new_namespace(namespaces: None) -> Iterator[Callable[[str], Namespace]]:
    """A factory of empty namespaces, gone when the test ends."""
    with ExitStack() as stack:

        def new(label: str) -> Namespace:
            namespace = stack.enter_context(Namespace(label))
            with namespace.entered():
                subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            return namespace

        yield new


@pytest.fixture
def sh() -> Shell:
    """``sh(namespace, "ip addr add …")`` runs one command line inside and returns its output; fails loudly."""

    def run(namespace: Namespace, line: str, *, check: bool = True) -> str:
        with namespace.entered():
            done = subprocess.run(line.split(), capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{namespace.label}: {line}: exit {done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout + done.stderr

    return run


@pytest.fixture
def wire(sh: Shell) -> Callable[[Namespace, str, Namespace, str], None]:
    """``wire(a, "eth0", b, "eth0")`` joins two namespaces with a veth pair, both ends up."""

    def join(a: Namespace, a_name: str, b: Namespace, b_name: str) -> None:
        # Both ends are made in `a` under their own names, then one moves: `netns` takes our own pid's fd path.
        with a.entered():
            subprocess.run(
                ["ip", "link", "add", a_name, "type", "veth", "peer", "name", b_name, "netns", b.path],
                check=True,
            )
        sh(a, f"ip link set {a_name} up")
        sh(b, f"ip link set {b_name} up")

    return join


#: A guard against a hang in any one wait, not an expectation: in a User-Mode Linux guest Python takes seconds to start.
PATIENCE = 180.0


class Running:
    """One real ``speaker run`` inside a namespace, watched through what an operator has: its log, its status file,
    /healthz and /metrics. ``until`` reads the log as it comes; nothing sleeps."""

    def __init__(self, node: Namespace, manifests: Path, directory: Path, name: str, *flags: str) -> None:
        self.node, self.directory, self.name = node, directory, name
        self.log: list[dict[str, Any]] = []
        with node.entered():
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "speaker", "run", str(manifests), "--node", name),
                    *("--state", str(directory / "state.json"), "--runtime-dir", str(directory / "run")),
                    *("--log-format", "json", *flags),
                ],
                stderr=subprocess.PIPE,
                text=True,
            )

    @contextmanager
    def patience(self) -> Iterator[None]:
        guard = threading.Timer(PATIENCE, self.process.kill)
        guard.start()
        try:
            yield
        finally:
            guard.cancel()

    def until(self, event: str, **fields: object) -> dict[str, Any]:
        """The next log line with this event and these fields; fails when the speaker ends before."""
        assert self.process.stderr is not None
        with self.patience():
            for line in self.process.stderr:
                entry = json.loads(line)
                self.log.append(entry)
                if entry["event"] == event and all(entry.get(name) == value for name, value in fields.items()):
                    return entry
        raise AssertionError(f"ended without {event} {fields}: {self.log}")

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / "run" / "status.json").read_text())
        return found

    def get(self, path: str) -> str:
        with self.node.entered(), urllib.request.urlopen(f"http://127.0.0.1:9900{path}", timeout=PATIENCE) as answer:
            body: bytes = answer.read()
            return body.decode()

    def children(self) -> list[int]:
        """Of the wire process: the main one."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        assert self.process.stderr is not None
        with self.patience():
            self.log.extend(json.loads(line) for line in self.process.stderr)
            return self.process.wait()

    def last_words(self) -> str:
        """What is left on stderr, whether it is the log or not."""
        assert self.process.stderr is not None
        with self.patience():
            return self.process.stderr.read()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """``start(node, *flags, name="n1")`` runs a speaker over ``tmp_path/manifests``; killed when the test ends. Several
    have different names, or a ``home`` of their own."""
    with ExitStack() as stack:

        def begin(node: Namespace, *flags: str, name: str = "n1", home: str | None = None) -> Running:
            directory = tmp_path if name == "n1" and home is None else tmp_path / (home or name)
            running = Running(node, tmp_path / "manifests", directory, name, *flags)
            stack.callback(running.close)
            return running

        yield begin


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., None]:
    """``write("a.yaml", text)`` puts a manifest in place the way an editor does: whole, by rename."""

    def put(name: str, text: str) -> None:
        directory = tmp_path / "manifests"
        directory.mkdir(exist_ok=True)
        draft = tmp_path / f"draft.{os.getpid()}"
        draft.write_text(text)
        draft.replace(directory / name)

    return put


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApi]:
    """A real kube-apiserver with its etcd, one for the whole session; skips where the binaries are not."""
    if reason := missing():
        pytest.skip(reason)
    with RealApi(tmp_path_factory.mktemp("apiserver")) as api:
        yield api


@pytest.fixture(scope="session")
def kubectl() -> str:
    """Where it is; skips where it is not."""
    places = (os.environ.get("KUBEBUILDER_ASSETS"), str(ENVTEST), str(BUILT), os.environ["PATH"])
    found = shutil.which("kubectl", path=os.pathsep.join(filter(None, places)))
    if found is None:
        pytest.skip("needs kubectl (`make cluster` builds one)")
    return found


@pytest.fixture(scope="session")
def helm_program() -> str:
    """Where Helm is; skips where it is not."""
    found = shutil.which("helm", path=os.pathsep.join((str(BUILT), os.environ["PATH"])))
    if found is None:
        pytest.skip("needs helm (`make cluster` builds one)")
    return found
