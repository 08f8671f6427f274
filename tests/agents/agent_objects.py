"""What is asked of the agents under test, as the API's objects: nodes, a pool, a Service for each EIP. Pure.

Every node has a ready endpoint of every Service; every other Service wants the node that answers to have one
(``externalTrafficPolicy: Local``).
"""

from collections.abc import Iterable, Sequence
from typing import Any

from speaker.lab.speakers import ECHO_PORT, POD_PORT, service_of
from speaker.lab.topology import Topology
from speaker.model import Family, IPAddress

Body = dict[str, Any]

POOL, NAMESPACE = "lan", "lab"
SERVES = "example.com/edge"
"""The pool's nodes are those with this label."""
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
DRAIN = "eip-speaker.io/drain"
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}

SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
NODES = "/api/v1/nodes"
POOLS = "/apis/eip-speaker.io/v1alpha1/eips"
ANNOUNCEMENTS = "/apis/eip-speaker.io/v1alpha1/announcements"
AGENTS = "eip-speaker-agents"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{AGENTS}/leases"


def whole_node() -> Body:
    """A merge patch: nothing keeps it from holding EIPs."""
    labels = {SERVES: "yes", EXCLUDED: None}
    return {"metadata": {"labels": labels, "annotations": {DRAIN: None}}, "spec": {"taints": None}}


def readiness(ready: bool) -> Body:
    """A patch of a node's status."""
    word = "True" if ready else "Unknown"
    when = "2026-11-21T12:00:00Z"
    condition = {"type": "Ready", "status": word, "reason": "Test", "message": "", "lastHeartbeatTime": when}
    return {"status": {"conditions": [{**condition, "lastTransitionTime": when}]}}


def agent_pod(node: str) -> Body:
    spec = {
        "serviceAccountName": "eip-speaker-agent",
        "nodeName": node,
        "containers": [{"name": "agent", "image": "eip-speaker"}],
    }
    return {"metadata": {"name": f"agent-{node}"}, "spec": spec}


def ranges(eips: Sequence[IPAddress]) -> list[str]:
    """From the first to the last of each family."""
    families = {Family.of(eip): [each for each in eips if Family.of(each) is Family.of(eip)] for eip in eips}
    return [f"{them[0]}-{them[-1]}" for them in families.values()]


def pool(addresses: Sequence[str], interface: str = "") -> Body:
    spec: Body = {"addresses": list(addresses), "nodeSelector": {"matchLabels": {SERVES: "yes"}}}
    if interface:
        spec["interface"] = interface
    return {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": POOL}, "spec": spec}


UDP_ECHO: Body = {"name": "echo", "protocol": "UDP", "port": ECHO_PORT, "targetPort": POD_PORT}


def service(eip: IPAddress, *, local: bool = False) -> Body:
    spec = {
        "type": "LoadBalancer",
        "loadBalancerClass": "eip-speaker.io/speaker",
        "ipFamilies": [Family.of(eip).value],
        "externalTrafficPolicy": "Local" if local else "Cluster",
        "ports": [UDP_ECHO],
    }
    metadata = {"name": service_of(eip), "annotations": {"eip-speaker.io/addresses": str(eip)}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def slice_of(eip: IPAddress, endpoints: Sequence[Body]) -> Body:
    name = service_of(eip)
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": Family.of(eip).value,
        "ports": [{"name": UDP_ECHO["name"], "protocol": "UDP", "port": POD_PORT}],
        "endpoints": list(endpoints),
    }


def endpoints(topology: Topology, eip: IPAddress, ready_on: Iterable[str]) -> list[Body]:
    """One for each pod of each node; ready on those nodes only."""
    ready, family = set(ready_on), Family.of(eip)
    return [
        {"addresses": [str(address)], "nodeName": node, "conditions": {"ready": node in ready}}
        for node in topology.nodes
        for pod in topology.pods_of(node)
        for address in topology.host(pod).addresses
        if Family.of(address) is family
    ]
