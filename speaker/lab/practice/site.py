"""What the two nodes of a practice serve: a few Services whose addresses are named, so that both agree. Pure."""

from copy import deepcopy
from typing import Any, TypeAlias

import yaml

Site: TypeAlias = dict[str, dict[str, Any]]
"""Name → object; a fault changes a copy."""

WEB, LOCAL, FOREIGN, NAMED, FREE = "192.0.2.200", "192.0.2.201", "203.0.113.200", "192.0.2.205", "192.0.2.207"
"""EIPs: of any node's pods, of the holder's, beyond the subnet, on a link by name; and an address that nobody has."""
SIX = "2001:db8:0:1::200"
"""Of IPv6."""
EIPS = (WEB, LOCAL, FOREIGN, NAMED, SIX)
"""Of the site."""
PORT = 8080
"""That the pods listen on."""


def site() -> Site:
    """Every EIP has a pod on both nodes."""
    return {
        "lan": _pool("lan", ["192.0.2.200-192.0.2.204", "192.0.2.206-192.0.2.209", SIX], None),
        "foreign": _pool("foreign", [f"{FOREIGN}/32"], "can_reach:192.0.2.1"),
        "named": _pool("named", [f"{NAMED}/32"], "eth0"),
        **service("web", WEB),
        **service("local", LOCAL, externalTrafficPolicy="Local"),
        **service("foreign", FOREIGN),
        **service("named", NAMED),
        **service("six", SIX, ipFamilies=["IPv6"]),
    }


def _pool(name: str, addresses: list[str], interface: str | None) -> dict[str, Any]:
    spec: dict[str, Any] = {"addresses": addresses} | ({"interface": interface} if interface is not None else {})
    return {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": name}, "spec": spec}


def service(name: str, address: str | None, **spec: Any) -> Site:
    """The Service ``lab/NAME`` and its EndpointSlice, called ``svc/NAME`` and ``eps/NAME``."""
    annotations = {"eip-speaker.io/addresses": address} if address is not None else {}
    six = address is not None and ":" in address
    return {
        f"svc/{name}": {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"namespace": "lab", "name": name, "annotations": annotations},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "targetPort": PORT}], **spec},
        },
        f"eps/{name}": {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"namespace": "lab", "name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv6" if six else "IPv4",
            "ports": [{"port": PORT}],
            "endpoints": [
                {"addresses": [_pod(number, six)], "nodeName": f"node{number}", "conditions": {"ready": True}}
                for number in (1, 2)
            ],
        },
    }


def _pod(number: int, six: bool) -> str:
    """The first one of that node."""
    return f"fd00:10:244:{number}::11" if six else f"10.244.{number}.11"


def written(objects: Site) -> str:
    text: str = yaml.safe_dump_all(deepcopy([*objects.values()]), sort_keys=False)
    return text
