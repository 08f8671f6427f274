"""What every scenario gets (the LAN, the manifests, the timeline) and what every scenario returns."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from speaker.lab.network.lan import Lan
from speaker.lab.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Stage:
    """``directory`` is the scenario's own, empty but for ``manifests``; both go away with the lab."""

    lan: Lan
    timeline: Timeline
    directory: Path
    manifests: Path
    responder: str = "socket"


class Outcome(Protocol):
    """A scenario's result: ``ok`` decides the exit code, ``as_json`` is the one object that ``--json`` prints."""

    @property
    def ok(self) -> bool: ...

    def as_json(self) -> dict[str, Any]: ...
