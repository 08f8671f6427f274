"""May this node hold the claim to an EIP? Pure; the hard rules only (ownership.md, rule 10)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from speaker.model import Endpoint, Family, IPAddress, Pool, Service, ServiceKey, TrafficPolicy


class Ineligible(Enum):
    """Why this node must not answer for an EIP. The value is the metric label."""

    NODE_NOT_SELECTED = "node_not_selected"
    NO_LOCAL_ENDPOINT = "no_local_endpoint"


@dataclass(frozen=True, slots=True)
class Veto:
    reason: Ineligible
    message: str


def veto(
    address: IPAddress,
    pool: Pool | None,
    services: Iterable[Service],
    endpoints: Mapping[ServiceKey, tuple[Endpoint, ...]],
    node: str,
    labels: Mapping[str, str],
) -> Veto | None:
    """None when this node may hold the EIP.

    ``externalTrafficPolicy: Local`` drops traffic on a node without an endpoint of its own, so such a node must not
    attract it. Services that share an EIP and ask for Local have the same backends (the allocator sees to that).
    """
    if pool is not None and not pool.node_selector.matches(labels):
        return Veto(Ineligible.NODE_NOT_SELECTED, f"the nodeSelector of pool {pool.name} does not match node {node}")
    family = Family.of(address)
    for service in services:
        if service.traffic_policy is TrafficPolicy.LOCAL and not _served_here(
            endpoints.get(service.key, ()), family, node
        ):
            return Veto(
                Ineligible.NO_LOCAL_ENDPOINT,
                f"{service.key} has externalTrafficPolicy: Local and no ready {family} endpoint on node {node}",
            )
    return None


def _served_here(endpoints: Iterable[Endpoint], family: Family, node: str) -> bool:
    here = [e for e in endpoints if e.node == node and Family.of(e.address) is family]
    # KEP-1669: terminating endpoints carry the traffic when nothing else is left.
    return any(e.ready or (e.serving and e.terminating) for e in here)
