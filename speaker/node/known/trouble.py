"""What is wrong with an EIP or a Service, as far as the node knows, for ``problems`` and the doctor. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import ip_address

from speaker.checks import FEW, KINDS, Finding
from speaker.errors import shown
from speaker.forwarding.plan import EMPTY
from speaker.model import IPAddress, ServiceKey, with_port
from speaker.node.decide import MayHold, MayNotHold
from speaker.node.known.knowledge import InForce, KnownEip, KnownService, known_eip, known_service
from speaker.wire.messages import NOBODYS, ClaimStatus

_LINKLESS = "loopback", "dummy", "port", "not_ethernet", "no_arp", "route_refuses"
"""The resolver's reasons that share the finding ``no_link``."""
_FAILING = "no_carrier", "link_down"
_REFUSALS = "pool_full", "address_not_in_pool", "host_address"
"""The allocator's reasons that are kinds of findings. Its ``address_in_use`` is not: it means another Service, not a
host."""


def refusal(service: KnownService) -> Iterator[Finding]:
    """A Service was refused an EIP; the words are the allocator's."""
    if service.refused:
        kind = service.refused if service.refused in _REFUSALS else "refused"
        namespace, _, name = service.key.partition("/")
        mend = {
            "pool_full": "kubectl get eip   # add addresses to the full pool, or free one",
            "host_address": f"kubectl -n {namespace} annotate service {name} eip-speaker.io/addresses-",
        }.get(service.refused, f"kubectl -n {namespace} edit service {name}   # or the pool: see the message")
        what = f"{service.key}: {'' if service.addresses else 'no EIP: '}{shown(service.message)}"
        yield Finding(kind, what, mend)


def no_candidate(node: str, eip: KnownEip) -> Iterator[Finding]:
    """This node must not hold the EIP, and nobody does; or this node's link fails, whoever holds it."""
    if not eip.reason or (eip.holder is not None and eip.reason not in _FAILING):
        return
    kind = eip.reason if eip.reason in KINDS else "no_link" if eip.reason in _LINKLESS else "not_eligible"
    yield Finding(kind, shown(eip.message), _mend(node, eip, kind), eip.address)


def _mend(node: str, eip: KnownEip, kind: str) -> str:
    match kind:
        case "no_subnet" if ip_address(eip.address).version == 6 and eip.services:
            namespace, _, name = eip.services[0].partition("/")
            asking = f"kubectl -n {namespace} annotate service {name} eip-speaker.io/addresses=NEW --overwrite"
            return f"{asking}   # if the prefix was renumbered: NEW must be in the new prefix and in a pool"
        case "no_such_link" | "no_link" | "no_subnet":
            return f"kubectl edit eip {eip.pool}   # spec.interface: a link of this node, as `ip -br link` lists them"
        case "no_carrier":
            return "ip -br link   # also check the cable and the switch port"
        case "link_down":
            return f"ip link set dev {eip.message.split(': ')[0].split()[-1]} up"
        case "no_route" | "route_refuses":
            to = eip.chosen.rpartition(":")[2]
            return f"ip route get {to}   # add a route, or set another interface in {eip.pool}"
        case "node_excluded":
            return f"kubectl label node {node} node.kubernetes.io/exclude-from-external-load-balancers-"
        case "node_not_selected":
            return f"kubectl get node {node} --show-labels   # compare with spec.nodeSelector of {eip.pool}"
        case "no_local_endpoint":
            return "kubectl get endpointslices -A -o wide   # is one ready? Or set externalTrafficPolicy: Cluster"
        case _:
            return "speaker status"


def endpoints_there(eip: KnownEip, services: Collection[KnownService]) -> Iterator[Finding]:
    """Findings where there is no endpoint to forward to."""
    for service in services:
        if service.unread or (endpoints := service.endpoints.whole) is None:
            continue
        family = ip_address(eip.address).version
        mine = [each for each in endpoints if ip_address(each.address).version == family]
        namespace, _, name = service.key.partition("/")
        mend = f"kubectl -n {namespace} get endpointslices -l kubernetes.io/service-name={name}"
        if not mine:
            what = f"{service.key} has no IPv{family} endpoint in any EndpointSlice: does its selector match a pod?"
            yield Finding("no_endpoint", what, mend, eip.address)
        elif not any(each.takes_new for each in mine):
            what = f"none of the {len(mine)} IPv{family} endpoints of {service.key} is ready"
            yield Finding("none_ready", what, f"{mend}; kubectl -n {namespace} get pods -o wide", eip.address)


def nobody_holds(node: str, eip: KnownEip, *, draining: bool) -> Iterator[Finding]:
    if eip.holder is not None or eip.mine:
        return
    if draining and not any(each.may and each.node != node for each in eip.candidates):
        yield Finding("draining", "this node is drained, and no other node may hold it", "speaker undrain", eip.address)
    elif not eip.reason:
        what = f"nobody holds {eip.address}, though this node may: it hears nobody, is waiting, or another host uses it"
        yield Finding("nobody_holds", what, "speaker status; journalctl -u eip-speaker -n 50", eip.address)


# ── of everything, by the running speaker itself ──


def of_all(
    state: InForce,
    claims: Mapping[IPAddress, ClaimStatus],
    answering: Mapping[IPAddress, int],
    vacant: Collection[IPAddress] = (),
    unicast: Collection[IPAddress] = (),
    *,
    draining: bool = False,
) -> Iterator[Finding]:
    """Findings about every Service and EIP. ``answering``: how many hosts answer for each EIP that is asked for.
    ``vacant``: EIPs that nobody has held for some time. ``unicast``: of those that nobody answers for, the ones whose
    holder answers if it alone is asked."""
    bare = state._replace(decision=state.decision._replace(forwarding=EMPTY))  # its servers do not matter here
    for key in state.settlement.refusals:
        yield from refusal(known_service(state, key))
    for address, eip in state.decision.eips.items():
        claim = claims.get(address, NOBODYS)
        lacking = isinstance(eip, MayNotHold) and (claim.holder is None or eip.reason in _FAILING)
        if lacking or not _serves(state, eip) or address in vacant:
            known = known_eip(bare, address, claim, "", ())
            yield from no_candidate(state.node, known)
            yield from endpoints_there(known, [known_service(state, key) for key in eip.services])
            if address in vacant:
                yield from nobody_holds(state.node, known, draining=draining)
        yield from _unwell(state, address, eip.services)
        if (hosts := answering.get(address, 1)) != 1 and claim.holder is not None:
            yield _answered(str(address), claim.holder, hosts, address in unicast)


def _unwell(state: InForce, eip: IPAddress, services: Iterable[ServiceKey]) -> Iterator[Finding]:
    """What this node's health checks find wrong with the EIP's endpoints."""
    for key in services:
        service, endpoints = state.world.services.get(key), state.world.endpoints.get(key, ())
        mine = [each for each in endpoints if each.address.version == eip.version]
        if service is None or service.health_check is None or not (bad := [each for each in mine if each.unwell]):
            continue
        named = ", ".join(f"{with_port(each.address, each.port)} ({each.unwell})" for each in bad[:FEW])
        more = f" and {len(bad) - FEW} more" if len(bad) > FEW else ""
        served = sum(each.ready for each in bad)
        fate = f"{served} of them are used all the same, as none is well" if served else "they get no new connections"
        what = f"{key}: {len(bad)} of {len(mine)} endpoints are unwell by {service.health_check}: {named}{more}: {fate}"
        mend = f"speaker explain {eip}   # then find out what is wrong with the endpoint"
        yield Finding("all_unwell" if served else "endpoint_unwell", what, mend, str(eip))


def _serves(state: InForce, eip: MayHold | MayNotHold) -> bool:
    """Each of its Services has a ready endpoint, or this node does not read its endpoints."""
    endpoints, version = state.world.endpoints, eip.address.version
    return all(
        key not in state.world.services
        or any(each.ready and each.address.version == version for each in endpoints.get(key, ()))
        or (not state.forwards and key not in endpoints)
        for key in eip.services
    )


def multicast_lost(eip: str, holder: str) -> Finding:
    node = shown(holder)
    if ip_address(eip).version == 4:
        how, lost = "broadcast", f"broadcasts are not forwarded to {node}"
        mend = f"bridge -d link show   # flood settings of {node}'s switch port"
    else:
        how, lost = "multicast", f"multicast is not forwarded to {node} (MLD snooping)"
        mend = f"ip -6 maddr show   # on {node}; then give its VLAN an MLD querier, or switch MLD snooping off there"
    what = f"{node} holds {eip} and answers if it is asked by unicast, but not by {how}, as clients ask: {lost}"
    return Finding("multicast_lost", what, mend, eip)


def _answered(eip: str, holder: str, hosts: int, unicast: bool) -> Finding:
    if hosts:
        return Finding("two_holders", f"{hosts} hosts answer for {eip}", f"speaker explain {eip}", eip)
    if unicast:
        return multicast_lost(eip, holder)
    what = f"{shown(holder)} holds {eip}, but nobody answers for it"
    return Finding("not_answered", what, f"speaker explain {eip}", eip)
