"""An EndpointSlice of the API → its endpoints, and what is wrong with the rest. Pure.

The API server stores ports of any 32-bit number, multicast addresses, and a million pairs of address and port in one
slice: each of them costs the endpoint that has it, and no other.
"""

from collections.abc import Iterator
from itertools import islice

from speaker.agent.objects import SliceEndpoint, SliceObject, SlicePort
from speaker.api.addresses import parse_host
from speaker.api.endpoints import MAX_ENDPOINTS, Slice
from speaker.api.fields import Path, either, show_path
from speaker.errors import InvalidField
from speaker.model import Endpoint, Family, IPAddress, Protocol

SHOWN = 5
"""Problems of one slice that are named; the count tells the rest."""

_FAMILIES = {family.value: family for family in Family}
_PROTOCOLS = {protocol.value: protocol for protocol in Protocol}
_LEFT_OUT = "it is left out"

_Port = tuple[Protocol, int, str]
_Refused = list[tuple[Path, object, str]]


def read_slice(found: SliceObject) -> tuple[Slice, tuple[str, ...]]:
    """What is left out, and why, in sentences that name the slice and the value."""
    service = found.service_key
    family = _FAMILIES.get(found.address_type)
    if family is None:
        return Slice(service, ()), ()  # names, which are not resolved; or what a later Kubernetes has
    refused: _Refused = []
    ports = [port for i, each in enumerate(found.ports or ()) if (port := _port(each, i, refused)) is not None]
    if found.endpoints and not found.ports:
        refused.append((("ports",), None, "must list the ports of its endpoints: without them none is used"))
    endpoints = tuple(islice(_endpoints(found, family, ports, refused), MAX_ENDPOINTS + 1))
    if len(endpoints) > MAX_ENDPOINTS:
        rule = f"must be at most {MAX_ENDPOINTS} pairs of address and port: the rest are left out"
        refused.insert(0, (("endpoints",), f"{len(found.endpoints or ())} endpoints", rule))
    return Slice(service, endpoints[:MAX_ENDPOINTS]), _told(found, refused)


def _port(port: SlicePort, index: int, refused: _Refused) -> _Port | None:
    protocol = _PROTOCOLS.get(port.protocol or "TCP")
    if protocol is None:
        refused.append((("ports", index, "protocol"), port.protocol, f"must be {either(Protocol)}: {_LEFT_OUT}"))
        return None
    if port.port is None or not 1 <= port.port <= 65535:
        refused.append((("ports", index, "port"), port.port, f"must be from 1 to 65535: {_LEFT_OUT}"))
        return None
    return protocol, port.port, port.name or ""


def _endpoints(found: SliceObject, family: Family, ports: list[_Port], refused: _Refused) -> Iterator[Endpoint]:
    for i, each in enumerate(found.endpoints or ()):
        ready, serving, terminating = _conditions(each)
        for j, text in enumerate(each.addresses):
            address = _address(text, family, ("endpoints", i, "addresses", j), refused)
            if address is None:
                continue
            for protocol, port, name in ports:
                yield Endpoint(address, port, protocol, name, ready, serving, terminating, each.node_name)


def _conditions(endpoint: SliceEndpoint) -> tuple[bool, bool, bool]:
    """Ready, serving, terminating. Unknown means ready, and serving means ready where it is not said (discovery/v1
    EndpointConditions)."""
    conditions = endpoint.conditions
    ready = conditions.ready is not False
    return ready, ready if conditions.serving is None else conditions.serving, bool(conditions.terminating)


def _address(text: str, family: Family, path: Path, refused: _Refused) -> IPAddress | None:
    try:
        address = parse_host(text)
    except ValueError as error:
        refused.append((path, text, f"{error}: {_LEFT_OUT}"))
        return None
    if Family.of(address) is not family:
        refused.append((path, text, f"must be {family}, as addressType says: {_LEFT_OUT}"))
        return None
    return address


def _told(found: SliceObject, refused: _Refused) -> tuple[str, ...]:
    subject = f"EndpointSlice/{found.metadata.namespace}/{found.metadata.name}"
    told = [str(InvalidField(show_path(path), value, rule, subject)) for path, value, rule in refused[:SHOWN]]
    if len(refused) > SHOWN:
        told.append(f"{subject}: {len(refused) - SHOWN} more of its values are left out")
    return tuple(told)
