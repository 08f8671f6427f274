"""One real speaker of a lab, whose log, files and processes a test can look at; it never outlives the test."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from speaker.errors import EdgeError
from speaker.lab.lan import Lan
from speaker.lab.speakers import HEALTH, parse_event
from speaker.node.control import ask
from speaker.system.programs import end_with


class Speaker:
    """``speaker run`` on one node, from its own directory of manifests, with ``environment`` beside ours."""

    responder = "socket"

    def __init__(
        self, node: str, lan: Lan, home: Path, environment: Mapping[str, str], hello_ms: int, key: str | None
    ) -> None:
        """``key`` None: it is alone."""
        self.node, self._environment, self._hello_ms = node, environment, hello_ms
        self.namespace = lan.namespace(node)
        self.manifests, self.runtime_dir = home / "manifests", home / "run"
        self.key = home / "key"
        self._log, self._home = home / "log", home
        self.manifests.mkdir(parents=True)
        self._shares = key is not None
        if key is not None:
            self.key.touch(mode=0o600)
            self.key.write_text(key)
        self.process: subprocess.Popen[bytes]

    def start(self) -> None:
        (self.runtime_dir / "status.json").unlink(missing_ok=True)
        self.runtime_dir.mkdir(exist_ok=True)
        us = os.getpid()

        def settle_in() -> None:
            end_with(us)
            self.namespace.join()
            os.setsid()

        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "speaker", "run", str(self.manifests), "--node", self.node),
                    *("--state", str(self._home / "state.json"), "--runtime-dir", str(self.runtime_dir)),
                    *("--responder", self.responder),
                    *("--forwarder", "auto", "--metrics", f"{HEALTH[0]}:{HEALTH[1]}", "--log-format", "json"),
                    *(("--with-peers", "--key", str(self.key)) if self._shares else ()),
                    *(("--hello", str(self._hello_ms)) if self._shares else ()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=os.environ | self._environment,
                preexec_fn=settle_in,
            )

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def logged(self) -> int:
        """Bytes, so far."""
        return self._log.stat().st_size

    def said(self, since: int = 0) -> str:
        with self._log.open("rb") as log:
            log.seek(since)
            return log.read().decode(errors="replace")

    def lines(self, since: int = 0) -> list[Mapping[str, Any]]:
        return [parse_event(line) for line in self.said(since).splitlines()]

    def status(self) -> Mapping[str, Any]:
        with suppress(FileNotFoundError):
            found: Mapping[str, Any] = json.loads((self.runtime_dir / "status.json").read_bytes())
            return found
        return {}

    def asked(self) -> Mapping[str, Any]:
        """What it answers to ``speaker status``; empty where it does not."""
        with suppress(EdgeError):
            return list(ask(self.runtime_dir, "status", timeout=2.0))[-1]
        return {}

    def get(self, path: str, patience: float = 2.0) -> str:
        """Over HTTP; empty where it does not answer in so many seconds."""
        with self.namespace.entered():
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        with sock, suppress(OSError):
            sock.settimeout(patience)
            sock.connect(HEALTH)
            sock.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            return b"".join(iter(lambda: sock.recv(1 << 16), b"")).decode(errors="replace")
        return ""

    def errors_counted(self, *, foreseen: bool = False) -> float:
        """``eip_speaker_internal_errors_total`` of every task; ``foreseen``: and what edges refused."""
        names = ("eip_speaker_internal_errors_total{", *(["eip_speaker_edge_errors_total{"] if foreseen else []))
        lines = self.get("/metrics", patience=30.0).splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(names))
