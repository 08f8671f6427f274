"""The real speaker as a child process inside a node's namespace.

It dies with the lab, whatever ends the lab.
"""

import asyncio
import json
import os
import signal
import sys
import urllib.request
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speaker.lab.network.namespaces import Namespace
from speaker.system.programs import end_with
from speaker.system.threads import in_thread

HEALTH = ("127.0.0.1", 9900)
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
#: Seconds a speaker gets to withdraw its EIPs after SIGTERM.
GRACE = 5.0


@dataclass(frozen=True, slots=True)
class SpeakerProcess:
    """One running speaker: its log as it comes, its status file, and the last lines in case it dies."""

    node: str
    namespace: Namespace
    runtime_dir: Path
    process: asyncio.subprocess.Process
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=40))

    def signal(self, number: signal.Signals) -> None:
        """As somebody sends it: what asks a service to stop goes to its first process (kubelet, systemd's
        ``KillMode=mixed``), what happens to a machine (SIGKILL, SIGSTOP, SIGCONT) happens to all of them."""
        if number is signal.SIGTERM:
            self.process.send_signal(number)
        else:
            os.killpg(self.process.pid, number)  # a group of its own: see _settle_in

    async def events(self) -> AsyncIterator[Mapping[str, Any]]:
        """Log lines as they are written, until the speaker ends; other text comes as ``{"event": line}``."""
        assert self.process.stderr is not None
        async for raw in self.process.stderr:
            line = raw.decode(errors="replace").rstrip()
            self.last_lines.append(line)
            yield parse_event(line)

    def status(self) -> Mapping[str, Any]:
        """``status.json``, what the speaker says it does; empty until it is written."""
        with suppress(FileNotFoundError):
            found: Mapping[str, Any] = json.loads((self.runtime_dir / "status.json").read_bytes())
            return found
        return {}

    async def healthy(self) -> bool:
        """Whether ``GET /healthz`` inside the node says 200."""
        with suppress(OSError):  # nobody answers, or 503
            await in_thread(fetched, self.namespace, "/healthz", 1.0)
            return True
        return False


def fetched(node: Namespace, path: str, seconds: float) -> bytes:
    """What the speaker there answers over HTTP. Blocking. Raises OSError, also for an answer that is a failure."""
    with node.entered(), _DIRECT.open(f"http://{HEALTH[0]}:{HEALTH[1]}{path}", timeout=seconds) as answer:
        body: bytes = answer.read()
    return body


@asynccontextmanager
async def started(
    node: str,
    namespace: Namespace,
    manifests: Path,
    directory: Path,
    *flags: str,
    grace: float = GRACE,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[SpeakerProcess]:
    """``speaker run manifests`` with ``flags`` inside ``namespace``, its files under ``directory``.

    At the end it is asked to stop, and after ``grace`` seconds killed. ``environment``: more than this process's own.
    """
    runtime_dir = directory / "run"
    runtime_dir.mkdir(parents=True, exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "speaker", "run", str(manifests), "--node", node),
        *("--state", str(directory / "state.json"), "--runtime-dir", str(runtime_dir)),
        *("--forwarder", "auto", "--metrics", f"{HEALTH[0]}:{HEALTH[1]}", "--log-format", "json", *flags),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 20,  # bytes a log line may have; a list of changes can be long
        env={**os.environ, **(environment or {})},
        preexec_fn=_settle_in(namespace),
    )
    try:
        yield SpeakerProcess(node, namespace, runtime_dir, process)
    finally:
        await _stop(process, grace)


def _settle_in(namespace: Namespace) -> Any:
    """What the child does between fork and exec: only system calls, so that other threads' locks do not matter."""
    lab = os.getpid()

    def settle_in() -> None:
        end_with(lab)
        namespace.join()
        os.setsid()  # a Ctrl-C at the terminal is for the lab, which then stops us in good order

    return settle_in


async def _stop(process: asyncio.subprocess.Process, grace: float) -> None:
    if process.returncode is not None:
        return
    try:
        if grace > 0:
            process.terminate()
        async with asyncio.timeout(grace):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def parse_event(line: str) -> Mapping[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    return event if isinstance(event, dict) else {"event": line}
