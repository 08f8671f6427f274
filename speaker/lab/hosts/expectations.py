"""What the demo's manifests promise, read as plainly as possible.

On purpose not with ``speaker.standalone``: the lab checks the speaker, so it reads the few fields it needs by itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import yaml

from speaker.lab.network.topology import Topology
from speaker.model import Family, Protocol


@dataclass(frozen=True, slots=True)
class Listener:
    """A backend's name and the port it listens on."""

    backend: str
    protocol: Protocol
    port: int


@dataclass(frozen=True, slots=True)
class Expectation:
    """One port of one Service in one family: who has to answer when a client asks there."""

    service: str
    family: Family
    protocol: Protocol
    port: int
    listeners: frozenset[Listener]

    @property
    def backends(self) -> frozenset[str]:
        return frozenset(listener.backend for listener in self.listeners)


def read_expectations(directory: Path, topology: Topology) -> tuple[Expectation, ...]:
    """Every Service port of the manifests in ``directory``, once a family, in the order of files and lines.

    For the lab's own manifests: ValueError when an endpoint is no backend of ``topology``.
    """
    objects = [thing for path in sorted(directory.glob("*.yaml")) for thing in yaml.safe_load_all(path.read_text())]
    slices = [thing for thing in objects if thing["kind"] == "EndpointSlice"]
    services = [thing for thing in objects if thing["kind"] == "Service"]
    return tuple(expected for service in services for expected in _expected_of(service, slices, topology))


def _expected_of(service: dict[str, Any], slices: list[dict[str, Any]], topology: Topology) -> Iterator[Expectation]:
    namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
    mine = [
        slice_
        for slice_ in slices
        if slice_["metadata"]["namespace"] == namespace
        and slice_["metadata"]["labels"]["kubernetes.io/service-name"] == name
    ]
    for family in map(Family, service["spec"]["ipFamilies"]):
        for port in service["spec"]["ports"]:
            listeners = frozenset(
                _listener(address, slice_port, topology)
                for slice_ in mine
                if slice_["addressType"] == family
                for slice_port in slice_["ports"]
                if slice_port.get("name") == port.get("name")
                for endpoint in slice_["endpoints"]
                for address in endpoint["addresses"]
            )
            yield Expectation(f"{namespace}/{name}", family, Protocol(port["protocol"]), port["port"], listeners)


def _listener(address: str, port: dict[str, Any], topology: Topology) -> Listener:
    backend = topology.backend_at(ip_address(address))
    if backend is None:
        raise ValueError(f"{address} is no backend of this lab: {', '.join(topology.backends)}")
    return Listener(backend, Protocol(port["protocol"]), port["port"])
