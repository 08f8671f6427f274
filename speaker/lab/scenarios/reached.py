"""What ``reach`` found, and whether that is good (pure)."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from speaker.lab.hosts.expectations import Expectation
from speaker.model import Family, IPAddress, Mac, format_mac


@dataclass(frozen=True, slots=True)
class PortResult:
    """``answers`` per backend; ``lost`` probes had none."""

    expected: Expectation
    answers: Mapping[str, int]
    lost: int = 0


@dataclass(frozen=True, slots=True)
class EipResult:
    """One EIP as one Service uses it, seen from the ``observer`` on the segment of ``link``.

    ``mac`` is what the observer's neighbour table says (None: no entry), ``claimed_by`` every MAC it ever heard say
    that it has the address, ``expected`` the MAC of the node's link.
    """

    address: IPAddress
    service: str
    link: str
    observer: str
    expected: Mac
    mac: Mac | None
    claimed_by: frozenset[Mac]
    ports: tuple[PortResult, ...]

    @property
    def answers(self) -> Mapping[str, int]:
        return sum((Counter(port.answers) for port in self.ports), Counter[str]())

    def problems(self) -> Iterator[str]:
        """Why this EIP is not reachable as it should be, in sentences; nothing when all is well."""
        who = f"{self.service} at {self.address}"
        if self.mac != self.expected:
            found = format_mac(self.mac) if self.mac else "no MAC"
            yield f"{who}: {self.observer}'s neighbour table has {found}, not {self.link}'s {format_mac(self.expected)}"
        for stranger in sorted(self.claimed_by - {self.expected}):
            yield f"{who}: {format_mac(stranger)} claimed the address too"
        if not self.ports:
            yield f"{who}: was asked on no port"
        for port in self.ports:
            if silent := sorted(port.expected.backends - port.answers.keys()):
                yield f"{who}, {port.expected.protocol} {port.expected.port}: no answer from {', '.join(silent)}"
            if strange := sorted(port.answers.keys() - port.expected.backends):
                yield f"{who}, {port.expected.protocol} {port.expected.port}: answered by {', '.join(strange)}"

    def as_json(self) -> dict[str, Any]:
        return {
            "address": str(self.address),
            "service": self.service,
            "link": self.link,
            "mac": format_mac(self.mac) if self.mac else None,
            "answers": dict(sorted(self.answers.items())),
            "ports": [
                {
                    "protocol": port.expected.protocol.value,
                    "port": port.expected.port,
                    "answers": dict(sorted(port.answers.items())),
                    "lost": port.lost,
                }
                for port in self.ports
            ],
        }


@dataclass(frozen=True, slots=True)
class Reached:
    """``elapsed``: seconds from the speaker's start until every EIP had answered."""

    eips: tuple[EipResult, ...]
    elapsed: float

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(problem for eip in self.eips for problem in eip.problems())

    @property
    def ok(self) -> bool:
        return bool(self.eips) and not self.problems

    def summary(self) -> str:
        """What was measured, when all is well."""
        addresses, services = {eip.address for eip in self.eips}, {eip.service for eip in self.eips}
        families = " and ".join(sorted({Family.of(address) for address in addresses}))
        ports = sum(len(eip.ports) for eip in self.eips)
        return (
            f"{len(addresses)} EIPs of {len(services)} Services reached over {families}, on each of {ports} ports an "
            f"answer from every backend, {self.elapsed:.1f} s after the speaker's start"
        )

    def as_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "eips": [eip.as_json() for eip in self.eips], "problems": list(self.problems)}
