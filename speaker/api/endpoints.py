"""``EndpointSlice`` (discovery.k8s.io/v1) → the endpoints of one Service; ``Namespace`` → its labels."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from speaker.api.addresses import parse_host
from speaker.api.fields import TOP, Field, dns_label, metadata
from speaker.model import Endpoint, Family, IPAddress, Protocol, ServiceKey

SERVICE_NAME = "kubernetes.io/service-name"

MAX_ENDPOINTS = 20_000
"""Pairs of address and port, of one slice and of one Service. A slice of the API may have 1,000 endpoints of 100
addresses each, and 20,000 ports."""

_SLICE = frozenset({"addressType", "apiVersion", "endpoints", "kind", "metadata", "ports"})
_ENDPOINT = frozenset(
    {"addresses", "conditions", "deprecatedTopology", "hints", "hostname", "nodeName", "targetRef", "zone"}
)
_CONDITIONS = frozenset({"ready", "serving", "terminating"})
_PORT = frozenset({"appProtocol", "name", "port", "protocol"})


class _AddressType(StrEnum):
    IPV4 = "IPv4"
    IPV6 = "IPv6"
    FQDN = "FQDN"


class Slice(NamedTuple):
    """What one EndpointSlice says: a Service may have many."""

    service: ServiceKey
    endpoints: tuple[Endpoint, ...]


def endpoint_slice(root: Field) -> Slice:
    """Every address of an endpoint counts as a backend. Slices of type FQDN have none: names are not resolved. What
    cannot be read is left out, and so is what exceeds MAX_ENDPOINTS."""
    root.object(_SLICE, "an EndpointSlice")
    meta = metadata(root, namespaced=True, short_name=False)
    owner = root["metadata"]["labels"][SERVICE_NAME].require().parsed(dns_label)
    key = ServiceKey(meta.namespace, owner or "")
    address_type = root["addressType"].require().choice(_AddressType, _AddressType.FQDN)
    ports = [port for item in root["ports"].items() if (port := item.sound(_port)) is not None]
    if address_type is _AddressType.FQDN:
        return Slice(key, ())
    items = root["endpoints"].items()
    if (pairs := sum(map(_count, items)) * len(ports)) > MAX_ENDPOINTS:
        rule = f"must be at most {MAX_ENDPOINTS} pairs of address and port: write several slices"
        Field(f"{pairs} pairs", root["endpoints"].path, root.report).refuse(rule)
    return Slice(key, tuple(islice(_endpoints(items, Family(address_type), ports), MAX_ENDPOINTS)))


def _port(value: Field) -> tuple[Protocol, int, str]:
    value.object(_PORT, "an EndpointSlice's port")
    number, name = value["port"], value["name"]
    if not number.given:
        number.refuse("is required: without it the slice does not say where to send traffic")
    protocol = value["protocol"].choice(Protocol, Protocol.TCP)
    return protocol, number.integer(0, 1, 65535), name.nonempty().parsed(dns_label) or ""


def _count(endpoint: Field) -> int:
    addresses = endpoint["addresses"].value
    return len(addresses) if isinstance(addresses, list | tuple) else 0


def _endpoints(items: list[Field], family: Family, ports: list[tuple[Protocol, int, str]]) -> Iterator[Endpoint]:
    """Of MAX_ENDPOINTS addresses: no more can be of use."""
    left = MAX_ENDPOINTS
    for value in items:
        value.object(_ENDPOINT, "an endpoint")
        ready, serving, terminating = _conditions(value["conditions"])
        node = value["nodeName"].text()
        addresses = _listed(value["addresses"])[:left]
        left -= len(addresses)
        for item in addresses:
            if (address := _address(item, family)) is not None:
                for protocol, port, name in ports:
                    yield Endpoint(address, port, protocol, name, ready, serving, terminating, node)


def _conditions(value: Field) -> tuple[bool, bool, bool]:
    """Ready, serving, terminating. Unknown means ready, and serving means ready where it is not said (discovery/v1
    EndpointConditions)."""
    value.object(_CONDITIONS, "conditions")
    ready = value["ready"].boolean(True)
    return ready, value["serving"].boolean(ready), value["terminating"].boolean(False)


def _listed(value: Field) -> list[Field]:
    if value.value in (None, [], ()):
        value.refuse("must list at least one address")
    return value.items()


def _address(item: Field, family: Family) -> IPAddress | None:
    address = item.require().parsed(parse_host)
    if address is not None and Family.of(address) is not family:
        item.refuse(f"must be {family}, as addressType says")
        return None
    return address


def merged(slices: Iterable[Slice]) -> dict[ServiceKey, tuple[Endpoint, ...]]:
    """All endpoints of each Service.

    While one moves between slices it may be in both (discovery/v1: consumers must handle duplicates): the ready one
    counts, otherwise the first.
    """
    found: dict[ServiceKey, dict[tuple[IPAddress, int, Protocol, str], Endpoint]] = {}
    for part in slices:
        known = found.setdefault(part.service, {})
        for endpoint in part.endpoints:
            identity = (endpoint.address, endpoint.port, endpoint.protocol, endpoint.port_name)
            if identity not in known or (endpoint.ready and not known[identity].ready):
                known[identity] = endpoint
    return {service: tuple(endpoints.values()) for service, endpoints in found.items()}


class NamespaceLabels(NamedTuple):
    name: str
    labels: dict[str, str]


def namespace(root: Field) -> NamespaceLabels:
    """With the label that the API server gives every namespace."""
    root.object(TOP, "a Namespace")
    meta = metadata(root, namespaced=False, short_name=True)
    return NamespaceLabels(meta.name, {**meta.labels, "kubernetes.io/metadata.name": meta.name})
