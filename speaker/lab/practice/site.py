"""What the two nodes of a practice serve: a few Services whose addresses are named, so that both agree. Pure."""

from copy import deepcopy
from typing import Any, TypeAlias

import yaml

from speaker.lab.hosts import failover_manifests as manifests
from speaker.model import Family

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
        "lan": manifests.pool("lan", ["192.0.2.200-192.0.2.204", "192.0.2.206-192.0.2.209", SIX]),
        "foreign": manifests.pool("foreign", [f"{FOREIGN}/32"], interface="can_reach:192.0.2.1"),
        "named": manifests.pool("named", [f"{NAMED}/32"], interface="eth0"),
        **service("web", WEB),
        **service("local", LOCAL, externalTrafficPolicy="Local"),
        **service("foreign", FOREIGN),
        **service("named", NAMED),
        **service("six", SIX, ipFamilies=["IPv6"]),
    }


def service(name: str, address: str | None, **spec: Any) -> Site:
    """The Service ``lab/NAME`` and its EndpointSlice, called ``svc/NAME`` and ``eps/NAME``."""
    six = address is not None and ":" in address
    endpoints = [
        {"addresses": [_pod(number, six)], "nodeName": f"node{number}", "conditions": {"ready": True}}
        for number in (1, 2)
    ]
    port = {"port": 80, "targetPort": PORT}
    found = manifests.service(name, address, Family.IPV6 if six else Family.IPV4, port, endpoints, **spec)
    return dict(zip((f"svc/{name}", f"eps/{name}"), found, strict=True))


def _pod(number: int, six: bool) -> str:
    """The first one of that node."""
    return f"fd00:10:244:{number}::11" if six else f"10.244.{number}.11"


def written(objects: Site) -> str:
    text: str = yaml.safe_dump_all(deepcopy([*objects.values()]), sort_keys=False)
    return text
