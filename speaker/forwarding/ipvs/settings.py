"""``net.ipv4.vs.*``: IPVS's own settings in the network namespace. An edge; rtnetlink has no way to these."""

from collections.abc import Sequence
from pathlib import Path

from speaker.checks import Finding
from speaker.errors import EdgeError
from speaker.forwarding.ipvs.remembered import Remembered

NEEDED = {
    "conntrack": "IPVS's connections are not masqueraded, so endpoints on other hosts do not answer through this node",
    "expire_nodest_conn": "clients of an endpoint that was removed wait for a timeout instead of reaching another",
    "expire_quiescent_template": "clients with session affinity stay with an endpoint that is being removed",
}
"""Settings that must be 1, and what happens while they are not.

``sloppy_tcp``, which takes up connections in their middle, is not one: the endpoints of a masqueraded connection that
has moved reset it all the same, and a node with ``externalTrafficPolicy: Local`` has other endpoints
(benchmarks/moves.py). It would only let any packet make an entry where a SYN is needed now.
"""


FOLDERS = Path("/host/proc/sys/net/ipv4"), Path("/proc/sys/net/ipv4")
"""The first one that is there counts: a pod's own /proc/sys is read-only, and ours mounts this part of the host's."""


class IpvsSettings:
    def __init__(self, remembered: Remembered, folders: Sequence[Path] = FOLDERS) -> None:
        self._remembered = remembered
        self._folder = next((folder for folder in folders if folder.is_dir()), folders[-1]) / "vs"

    def adjust(self) -> None:
        """Set what can be set; ``problems`` names the rest. Raises EdgeError if the originals cannot be kept."""
        off = {name: value for name, value in self._values().items() if value != 1}
        self._remembered.add(off, keep=NEEDED)
        for name in off:
            self._set(name, 1)

    def restore(self) -> tuple[str, ...]:
        """Put back what was there before, unless somebody has changed it since."""
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
        try:
            return {name: int((self._folder / name).read_text()) for name in NEEDED if (self._folder / name).exists()}
        except (OSError, ValueError) as error:
            raise EdgeError(f"{self._folder}: {error}") from error

    def _set(self, name: str, value: int) -> None:
        try:
            (self._folder / name).write_text(str(value))
        except OSError:  # an operator has to do it: see ``problems``
            return
