"""Whether this node may hold an EIP. Pure; only the hard rules (rule 10)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from speaker.model import Endpoint, Family, IPAddress, Pool, Service, ServiceKey, TrafficPolicy
from speaker.settings import Node

EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"
"""A label of core/v1 (LabelNodeExcludeBalancers): no load balancer may send traffic to the node."""


class Ineligible(Enum):
    """Why this node must not answer for an EIP. The value is the metric label."""

    NODE_NOT_SELECTED = "node_not_selected"
    NODE_EXCLUDED = "node_excluded"
    NO_LOCAL_ENDPOINT = "no_local_endpoint"
    HOST_ADDRESS = "host_address"
    OTHER_GROUP = "other_group"
    NOT_FORWARDED = "not_forwarded"
    POOL_UNKNOWN = "pool_unknown"


@dataclass(frozen=True, slots=True)
class Veto:
    reason: Ineligible
    message: str


def veto(
    address: IPAddress,
    pool: Pool | None,
    services: Iterable[Service],
    endpoints: Mapping[ServiceKey, tuple[Endpoint, ...]],
    node: Node,
) -> Veto | None:
    """None if this node may hold the EIP.

    ``externalTrafficPolicy: Local`` drops traffic on a node without an endpoint of its own, so such a node must not
    attract it. Services that share an EIP and ask for Local have the same backends (the allocator ensures that). Nor
    may a node hold an EIP if nothing would forward its packets, as while a cluster changes its forwarder.
    """
    if node.excluded:
        return Veto(Ineligible.NODE_EXCLUDED, f"node {node.name} has the label {EXCLUDE}")
    if pool is not None and not pool.node_selector.matches(node.labels):
        message = f"the nodeSelector of pool {pool.name} does not match node {node.name}"
        return Veto(Ineligible.NODE_NOT_SELECTED, message)
    family = Family.of(address)
    for service in services:
        if address in service.left_alone:
            message = f"{service.key} has ipMode: Proxy, and node {node.name} forwards nothing itself"
            return Veto(Ineligible.NOT_FORWARDED, message)
        if service.traffic_policy is TrafficPolicy.LOCAL:
            found = endpoints.get(service.key, ())
            here = [e for e in found if e.node == node.name and Family.of(e.address) is family]
            # KEP-1669: terminating endpoints carry the traffic when no others are left.
            if not any(e.ready or (e.serving and e.terminating) for e in here):
                message = f"{service.key} has externalTrafficPolicy: Local and no ready {family} endpoint on node "
                unwell = next((f": {e.address} is unwell: {e.unwell}" for e in here if e.unwell), "")
                return Veto(Ineligible.NO_LOCAL_ENDPOINT, f"{message}{node.name}{unwell}")
    return None
