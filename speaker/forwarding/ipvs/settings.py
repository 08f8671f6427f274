"""Edge: IPVS's own settings in the network namespace, which are changed, kept, and restored.

Three parts: the file with the earlier values; ``net.ipv4.vs.*``, which rtnetlink cannot set; and the seconds of silence
after which IPVS forgets a connection (``ipvsadm --set``), which ``adjusted`` decides.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from speaker.checks import Finding
from speaker.errors import EdgeError, as_edge_error
from speaker.forwarding.ipvs.tables import ipvs_tables
from speaker.settings import AS_THEY_ARE, DEFAULT_RUNTIME_DIR, Timeouts
from speaker.system.decoding import UNFIT
from speaker.system.files import read_regular, shown, write_atomically

_MAX_BYTES = 2**20

_originals = msgspec.json.Decoder(dict[str, int])


class Remembered:
    """Original values by name, in a small JSON file that outlives the process but not the machine's uptime.

    It is written before a setting is changed, and completely or not at all: a crash at any moment loses no original.
    ``shared``: for settings that speakers of all groups make alike. Then what others remember counts too, as far as
    their runtime directories are visible here: the last speaker restores what the first one found. Methods raise
    EdgeError if the file cannot be read or written.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        self._path, self._shared = path, shared

    def read(self) -> dict[str, int]:
        known: dict[str, int] = {}
        for other in self._others():
            with suppress(EdgeError):
                known |= Remembered(other)._read()
        return known | self._read()

    def _others(self) -> list[Path]:
        run = self._path.parent
        return [*run.parent.glob(f"{DEFAULT_RUNTIME_DIR.name}*/{self._path.name}")] if self._shared else []

    def _read(self) -> dict[str, int]:
        with as_edge_error(f"cannot read {shown(self._path)}, which holds original settings", (OSError, *UNFIT)):
            try:
                content, _ = read_regular(self._path, _MAX_BYTES)
            except FileNotFoundError:
                return {}
            return _originals.decode(content)

    def add(self, originals: Mapping[str, int], *, keep: Collection[str]) -> None:
        """Remembers values that are about to change. Of those known before, which stay, only names in ``keep`` are
        kept."""
        new = {**originals, **{name: value for name, value in self.read().items() if name in keep}}
        if new == self._read():
            return
        write_atomically(self._path, json.dumps(new, indent=1, sort_keys=True).encode())

    def forget(self) -> None:
        for path in (self._path, *self._others()):
            with as_edge_error(f"cannot remove {path}"):
                path.unlink(missing_ok=True)


# ── net.ipv4.vs.* ─────────────────────────────────────────────────────────────────────────────────────────────

NEEDED = {
    "conntrack": "IPVS's connections are not masqueraded, so endpoints on other hosts do not answer through this node",
    "expire_nodest_conn": "clients of an endpoint that was removed wait for a timeout instead of reaching another",
    "expire_quiescent_template": "clients with session affinity stay with an endpoint that is being removed",
}
"""Settings that must be 1, and what happens while they are not.

``sloppy_tcp``, which takes up connections in their middle, is not one of them: the endpoints of a masqueraded
connection that has moved reset it all the same, and a node with ``externalTrafficPolicy: Local`` has other endpoints
(benchmarks/moves.py). It would only let any packet make an entry, where now a SYN is needed.
"""


FOLDERS = Path("/host/proc/sys/net/ipv4"), Path("/proc/sys/net/ipv4")
"""The first one that exists counts: a pod's own /proc/sys is read-only, and ours mounts this part of the host's."""


class IpvsSettings:
    def __init__(self, remembered: Remembered, folders: Sequence[Path] = FOLDERS) -> None:
        self._remembered = remembered
        self._folder = next((folder for folder in folders if folder.is_dir()), folders[-1]) / "vs"

    def adjust(self) -> None:
        """Sets what can be set; ``problems`` names the rest. Raises EdgeError if the originals cannot be kept."""
        off = {name: value for name, value in self._values().items() if value != 1}
        self._remembered.add(off, keep=NEEDED)
        for name in off:
            self._set(name, 1)

    def restore(self) -> tuple[str, ...]:
        """Restores what was there before, unless somebody has changed it since."""
        values = self._values()
        ours = {name: value for name, value in self._remembered.read().items() if values.get(name) == 1}
        for name, value in ours.items():
            self._set(name, value)
        self._remembered.forget()
        return tuple(f"net.ipv4.vs.{name}=1" for name in ours)

    def problems(self) -> tuple[Finding, ...]:
        return tuple(
            Finding(
                "ipvs_settings",
                f"net.ipv4.vs.{name}={value}: {NEEDED[name]}; `sysctl -w net.ipv4.vs.{name}=1` on the host",
                f"sysctl -w net.ipv4.vs.{name}=1",
            )
            for name, value in self._values().items()
            if value != 1
        )

    def _values(self) -> dict[str, int]:
        with as_edge_error(str(self._folder), (OSError, ValueError)):
            return {name: int((self._folder / name).read_text()) for name in NEEDED if (self._folder / name).exists()}

    def _set(self, name: str, value: int) -> None:
        try:
            (self._folder / name).write_text(str(value))
        except OSError:  # an operator has to do it: see ``problems``
            return


# ── Timeouts ──────────────────────────────────────────────────────────────────────────────────────────────────


class Adjusted(NamedTuple):
    """What the kernel should have, and what to remember, by the name of the timeout: the value that was there before
    (``tcp``) and the one that we set instead (``tcp set``)."""

    timeouts: Timeouts
    remembered: Mapping[str, int]


def adjusted(have: Timeouts, want: Timeouts, remembered: Mapping[str, int]) -> Adjusted:
    """``want`` where it is not 0; otherwise what was there before us. What somebody set after us stays."""
    values: dict[str, int] = {}
    kept: dict[str, int] = {}
    for name, now in have._asdict().items():
        ours = remembered.get(f"{name} set")
        before = remembered.get(name, now) if now == ours else now
        values[name] = getattr(want, name) or before
        if values[name] != before:
            kept |= {name: before, f"{name} set": values[name]}
    return Adjusted(Timeouts(**values), kept)


class IpvsTimeouts:
    """For the calling thread's network namespace."""

    def __init__(self, want: Timeouts, remembered: Remembered) -> None:
        self._want, self._remembered = want, remembered

    def restore(self) -> tuple[str, ...]:
        """Restores what was there before. Returns what was restored. Raises EdgeError."""
        return self.adjust(AS_THEY_ARE)

    def adjust(self, want: Timeouts | None = None) -> tuple[str, ...]:
        """Sets the wanted ones and restores those no longer wanted. Returns what was there before. Raises EdgeError."""
        want = self._want if want is None else want
        remembered = self._remembered.read()
        if not (any(want) or remembered):
            return ()
        with ipvs_tables() as tables:
            have = tables.timeouts()
            goal = adjusted(have, want, remembered)
            if goal.remembered:
                self._remembered.add(goal.remembered, keep=())
            if goal.timeouts != have:
                tables.set_timeouts(goal.timeouts)
        if not goal.remembered:
            self._remembered.forget()
        return tuple(
            f"IPVS timeout {name}={before}"
            for name, before in have._asdict().items()
            if getattr(goal.timeouts, name) != before
        )
