"""The manifests that several nodes share in the failover scenarios: one Service for each EIP, named by address.

``externalTrafficPolicy: Local``, with pods of every node behind every EIP: whichever node holds one answers through a
pod of its own, so a probe tells of that node alone and not of the way to another node's pods. Pure.
"""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

import yaml

from speaker.lab.topology import MAX_EIPS, Topology
from speaker.model import Family, IPAddress

#: RFC 862's, on which the Services listen, and the one that their pods do.
ECHO_PORT, POD_PORT = 7, 7007

ELSEWHERE = ip_address("198.51.100.200")
"""An EIP on the nodes' other link: hellos go there too, and tell at once what a pulled cable made a node give up."""

_FIRST = {Family.IPV4: ip_address("192.0.2.200"), Family.IPV6: ip_address("2001:db8:0:1::200")}


def lab_eips(count: int) -> tuple[IPAddress, ...]:
    """``count`` EIPs on the nodes' eth0, a quarter of them IPv6; ValueError outside 1 to MAX_EIPS."""
    if not 1 <= count <= MAX_EIPS:
        raise ValueError(f"a lab has 1 to {MAX_EIPS} EIPs, not {count}")
    of_ipv6 = count // 4
    return (
        *(_FIRST[Family.IPV4] + number for number in range(count - of_ipv6)),
        *(_FIRST[Family.IPV6] + number for number in range(of_ipv6)),
    )


def failover_manifests(topology: Topology, eips: tuple[IPAddress, ...]) -> str:
    """A file for the manifests directory."""
    documents = [pool("lan", map(str, eips)), *(each for eip in eips for each in _service(topology, eip))]
    text: str = yaml.safe_dump_all(documents, sort_keys=False)
    return text


def service_of(eip: IPAddress) -> str:
    """The name of the Service that has ``eip``, in namespace ``lab``."""
    return f"echo-{eip.exploded.replace(':', '-').replace('.', '-')}"


def _service(topology: Topology, eip: IPAddress) -> tuple[dict[str, Any], dict[str, Any]]:
    family = Family.of(eip)
    endpoints = [
        {"addresses": [str(address)], "nodeName": node}
        for node in topology.nodes
        for pod in topology.pods_of(node)
        for address in topology.host(pod).addresses
        if Family.of(address) is family
    ]
    spec = {"loadBalancerClass": "eip-speaker.io/speaker", "externalTrafficPolicy": "Local"}
    port = {"protocol": "UDP", "port": ECHO_PORT, "targetPort": POD_PORT}
    return service(service_of(eip), str(eip), family, port, endpoints, ipFamilies=[family.value], **spec)


# ── Objects, as their manifests have them ─────────────────────────────────────────────────────────────────────


def pool(name: str, addresses: Iterable[str], **spec: Any) -> dict[str, Any]:
    spec = {"addresses": [*addresses], **spec}
    return {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": name}, "spec": spec}


def service(
    name: str, eip: str | None, family: Family, port: dict[str, Any], endpoints: list[dict[str, Any]], **spec: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The Service ``lab/NAME`` that asks for ``eip``, if for any in particular, and its EndpointSlice."""
    metadata = {"namespace": "lab", "name": name}
    annotations = {"eip-speaker.io/addresses": eip} if eip is not None else {}
    of_pods = {key: value for key, value in port.items() if key != "targetPort"} | {"port": port["targetPort"]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**metadata, "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": [port], **spec},
    }, {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**metadata, "labels": {"kubernetes.io/service-name": name}},
        "addressType": family.value,
        "ports": [of_pods],
        "endpoints": endpoints,
    }
