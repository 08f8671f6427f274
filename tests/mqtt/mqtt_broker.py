"""Debian's mosquitto in a namespace, and what its own client hears there: neither is ours, nor our library."""

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from speaker.lab.namespaces import Namespace
from speaker.system.programs import end_with

PATIENCE = 180.0
"""Seconds: a guard against a hang, not an expectation."""
BEHIND = "behind"
"""A topic that no test has."""
PLAIN = ("listener 1883 127.0.0.1", "allow_anonymous true")


def missing() -> str | None:
    """Why none can be had."""
    lacking = [name for name in ("mosquitto", "mosquitto_sub") if which(name) is None]
    return f"needs {' and '.join(lacking)}: apt-get install mosquitto mosquitto-clients" if lacking else None


def which(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


class Here:
    """This process's own network."""

    @staticmethod
    def entered() -> AbstractContextManager[None]:
        return nullcontext()


class Broker:
    """Keeps what is retained in ``directory``, over its own ends."""

    def __init__(
        self,
        namespace: Namespace | Here,
        directory: Path,
        *lines: str,
        host: str = "127.0.0.1",
        port: int = 1883,
        disk: str = "",
    ) -> None:
        """``disk``: the size of a tmpfs that it keeps what is retained on."""
        self.namespace, self._disk = namespace, disk
        self.place = ("-V", "5", "-h", host, "-p", str(port))
        directory.mkdir(exist_ok=True, parents=True)
        self._kept = directory / "kept"
        self._kept.mkdir(exist_ok=True)
        kept = ("persistence true", f"persistence_location {self._kept}/", "autosave_interval 1", "user root")
        queues = ("max_queued_messages 0", "log_dest stderr")
        self._config = directory / "mosquitto.conf"
        self._config.write_text("\n".join((*(lines or PLAIN), *kept, *queues)) + "\n")
        self._process: subprocess.Popen[str] | None = None
        self._watchers: list[Watcher] = []
        self.log: list[str] = []

    def start(self) -> None:
        parent = os.getpid()
        command = [which("mosquitto") or "mosquitto", "-c", str(self._config)]
        if self._disk:  # mounted for it alone: it is gone with it
            mounted = f"mount -t tmpfs -o size={self._disk} tmpfs {self._kept} && exec {' '.join(command)}"
            command = ["unshare", "-m", "sh", "-c", mounted]
        with self.namespace.entered():
            self._process = subprocess.Popen(
                command,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=lambda: end_with(parent),
            )
        assert self._process.stderr is not None
        with guarded(self._process):
            for line in self._process.stderr:
                if line.rstrip().endswith("running"):
                    break
            else:
                raise AssertionError(f"mosquitto did not start: {self._config.read_text()}")
        self._reader = threading.Thread(target=self.log.extend, args=(self._process.stderr,), daemon=True)
        self._reader.start()  # it must never wait for us

    def kill(self) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        self._process.kill()
        self._process.wait()
        self._reader.join()
        if self._process.stderr is not None:
            self._process.stderr.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def close(self) -> None:
        for watcher in self._watchers:
            watcher.close()
        self.kill()

    def watch(self, topic: str, *flags: str) -> "Watcher":
        watcher = Watcher(self, topic, *flags)
        self._watchers.append(watcher)
        return watcher

    def retained(self, topic: str) -> dict[str, Any]:
        """What is retained now, by topic: all that comes before what was subscribed to after it."""
        self.publish(BEHIND, "{}", "-r")
        with self.namespace.entered():
            asking = subprocess.Popen(
                ["mosquitto_sub", *self.place, "-t", topic, "-t", BEHIND, "--retained-only", "-F", "%t %p"],
                stdout=subprocess.PIPE,
                text=True,
            )
        found: dict[str, Any] = {}
        with asking, guarded(asking):
            assert asking.stdout is not None
            for line in asking.stdout:
                name, _, payload = line.partition(" ")
                if name == BEHIND:
                    asking.kill()
                    return found
                found[name] = json.loads(payload)
        raise AssertionError(f"not all of it came: {found}")

    def publish(self, topic: str, payload: str, *flags: str) -> None:
        with self.namespace.entered():
            subprocess.run(["mosquitto_pub", *self.place, "-q", "1", "-t", topic, "-m", payload, *flags], check=True)


class Watcher:
    """Hears everything below a topic from now on. ``states``: what was said with the mark to be retained."""

    def __init__(self, broker: Broker, topic: str, *flags: str) -> None:
        self.heard: list[dict[str, Any]] = []
        self.states: dict[str, Any] = {}
        with broker.namespace.entered():
            self._process = subprocess.Popen(
                [
                    *("mosquitto_sub", *broker.place, "-q", "1", "-t", topic, "-F", "%j", *flags),
                    *("--retain-as-published",),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )

    def until(self, well: "Callable[[Mapping[str, Any]], object]") -> None:
        """Reads on until the states are ``well``."""
        if well(self.states):
            return
        with guarded(self._process):
            for _ in self._messages():
                if well(self.states):
                    return
        raise AssertionError(f"the watcher ended: {self.states}")

    def event(self, kind: str, **fields: object) -> dict[str, Any]:
        """The next one with these fields."""
        with guarded(self._process):
            for message in self._messages():
                told = json.loads(message["payload"]) if message["payload"] else {}
                if told.get("event") == kind and all(told.get(name) == value for name, value in fields.items()):
                    return {**told, "message": message}
        raise AssertionError(f"the watcher ended without {kind} {fields}")

    def _messages(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            self.heard.append(message)
            if message["payload"] and message["retain"]:
                self.states[message["topic"]] = json.loads(message["payload"])
            elif not message["payload"]:
                self.states.pop(message["topic"], None)
            yield message

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@contextmanager
def guarded(process: subprocess.Popen[str]) -> Iterator[None]:
    guard = threading.Timer(PATIENCE, process.kill)
    guard.start()
    try:
        yield
    finally:
        guard.cancel()
