"""When two Services may share one EIP: both agree, no packet could mean either, and one node can serve both."""

from speaker.allocator.refusals import RefusalReason, in_use
from speaker.model import IPAddress, Service, TrafficPolicy


def objection(service: Service, other: Service, address: IPAddress) -> tuple[RefusalReason, str, str] | None:
    """Why ``service`` may not share ``address`` with ``other``, as in ``Refusal``; None when it may. The rule itself is
    symmetric. Only who agrees to share is told with whom."""
    if service.share is None or service.share != other.share:
        then = ": ask for another address, or give both Services the same eip-speaker.io/share key"
        return RefusalReason.ADDRESS_IN_USE, *in_use(service.key, other.key, address, "held by", then)
    if not _namespaces_agree(service, other):
        then = ": each of the two must name the other's namespace in eip-speaker.io/share-namespaces"
        return RefusalReason.SHARED_NAMESPACE, *in_use(service.key, other.key, address, "held by", then)
    if clashing := _ports(service) & _ports(other):
        protocol, port = min(clashing)
        return (
            RefusalReason.SHARED_PORT_CLASH,
            f"port {protocol}/{port} of {address} is served by Service {other.key}, which shares it: "
            f"change the port, or ask for another address",
            "",
        )
    if not _backends_agree(service, other):
        return (
            RefusalReason.SHARED_BACKENDS,
            f"{address} is shared with Service {other.key}, and with externalTrafficPolicy Local both need the same "
            f"(and not an empty) selector in one namespace, as one node must have endpoints of both: use Cluster, or "
            f"another address",
            "",
        )
    return None


def _ports(service: Service) -> set[tuple[str, int]]:
    return {(port.protocol.value, port.port) for port in service.ports}


def _namespaces_agree(service: Service, other: Service) -> bool:
    mine, theirs = service.key.namespace, other.key.namespace
    return mine == theirs or (theirs in service.share_namespaces and mine in other.share_namespaces)


def _backends_agree(service: Service, other: Service) -> bool:
    """A Service without a selector has endpoints that somebody else writes: nothing says they are the same."""
    if TrafficPolicy.LOCAL not in (service.traffic_policy, other.traffic_policy):
        return True
    same_pods = service.key.namespace == other.key.namespace and service.selector == other.selector
    return bool(service.selector) and same_pods
