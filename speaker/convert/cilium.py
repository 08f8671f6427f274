"""Cilium: ``CiliumLoadBalancerIPPool`` (cilium.io/v2 and v2alpha1) and ``CiliumL2AnnouncementPolicy`` (v2alpha1), as of
2026-08.

Pools give addresses; policies say which Services are announced, and where. Only what a policy announces is on the LAN.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from speaker.allocator.pools import NAMESPACE_NAME_LABEL
from speaker.api.addresses import parse_range
from speaker.api.fields import Field
from speaker.api.others import CILIUM
from speaker.convert.document import Document, heading, link, no_pool, read_kind
from speaker.convert.draft import Draft, Made
from speaker.convert.ranges import between, parse_block, without_ends
from speaker.convert.selectors import ALL, both, contradict, either, read
from speaker.model import AddressRange, LabelSelector

VERSIONS = frozenset({"cilium.io/v2", "cilium.io/v2alpha1"})
SERVICE_NAMESPACE, SERVICE_NAME = "io.kubernetes.service.namespace", "io.kubernetes.service.name"

_ONE = "here a pool says what a policy says, and it can say only the first: "
_SPLIT = "split the pool by Services"


class _Ends(StrEnum):
    YES = "Yes"
    NO = "No"


@dataclass(frozen=True, slots=True)
class _Policy:
    document: Document
    services: LabelSelector
    nodes: LabelSelector
    interface: str
    announces: bool


def made(documents: Sequence[Document]) -> Made:
    drafts = read_kind(documents, CILIUM[0], _pool)
    policies = read_kind(documents, CILIUM[1], _policy)
    announcing = [policy for policy in policies if policy.announces]
    for policy in policies:
        if not policy.announces:
            why = "it does not announce loadBalancerIPs, and the speaker does not announce externalIPs"
            policy.document.leave((), why, "make the Service a LoadBalancer with an EIP")
    found = Made()
    for draft in drafts:
        if announcing:
            fitting = [policy for policy in announcing if not contradict(draft.service_selector, policy.services)]
            _announce(draft, fitting or announcing)
            if _by_metadata(draft):
                found.drafts.append(draft)
        else:
            why = "no CiliumL2AnnouncementPolicy in the input announces loadBalancerIPs, so none of it is on the LAN"
            found.leave_elsewhere(draft, why, "convert it together with its policy, or go on announcing it by BGP")
    return found


# ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────


def _pool(document: Document, root: Field) -> Draft:
    name, labels = heading(document, root, VERSIONS)
    spec = root["spec"]
    ends = document.take(spec["allowFirstLastIPs"]).choice(_Ends, _Ends.YES)
    entries = spec["blocks"].items() + spec["cidrs"].items()
    blocks = [block for entry in entries if (block := _block(document, entry, ends)) is not None]
    if not entries:
        spec["blocks"].refuse("must list at least one block")
    return Draft(
        document,
        name,
        blocks,
        labels,
        service_selector=read(document.take(spec["serviceSelector"])),
        disabled=document.take(spec["disabled"]).boolean(False),
    )


def _block(document: Document, entry: Field, ends: _Ends) -> AddressRange | None:
    for key in ("cidr", "start", "stop"):
        document.take(entry[key])
    if entry["cidr"].given:
        if entry["start"].given or entry["stop"].given:
            entry["cidr"].refuse("must be given without start and stop")
        block = entry["cidr"].parsed(parse_block)
        return without_ends(block) if block is not None and ends is _Ends.NO else block
    start, stop = entry["start"].require().parsed(parse_range), entry["stop"].parsed(parse_range)
    if start is None or (stop is None and entry["stop"].given):
        return None
    last = stop or start
    if start.first.version != last.first.version or int(start.first) > int(last.last):
        entry["stop"].refuse("must not come before start, and be of its family")
        return None
    return between(start.first, last.last)


def _policy(document: Document, root: Field) -> _Policy:
    no_pool(document, root, VERSIONS)
    spec = root["spec"]
    if document.take(spec["externalIPs"]).boolean(False):
        why = "the speaker answers only for EIPs, not for spec.externalIPs"
        document.leave(("spec", "externalIPs"), why, "make such a Service a LoadBalancer with an EIP")
    return _Policy(
        document,
        services=read(document.take(spec["serviceSelector"])),
        nodes=read(document.take(spec["nodeSelector"])),
        interface=_interfaces(document, spec["interfaces"]),
        announces=document.take(spec["loadBalancerIPs"]).boolean(False),
    )


def _interfaces(document: Document, value: Field) -> str:
    """Names in order; '' if any of them is not a plain name, so that the link is chosen by its own subnet."""
    found = [link(document, item) for item in value.items()]
    named = [name for name in found if name is not None]
    if len(named) > 1:
        why = "Cilium announces on all of them; here an EIP is on one link, the first one listed"
        document.leave(value.path, why, "put the link first that clients are on")
    return ",".join(dict.fromkeys(named)) if len(named) == len(found) else ""


# ── Deciding ──────────────────────────────────────────────────────────────────────────────────────────────────


def _announce(draft: Draft, policies: list[_Policy]) -> None:
    """Links, nodes and Services of the policies, if one pool can say what all of them say."""
    differ = len({each.nodes for each in policies}) > 1 and len({each.services for each in policies}) > 1
    if differ or len({each.interface for each in policies}) > 1:
        for each in policies[1:]:
            each.document.leave(("spec",), f"{_ONE}{policies[0].document.subject}", _SPLIT)
        policies = policies[:1]
    nodes, services = either([each.nodes for each in policies]), either([each.services for each in policies])
    for field, over in (("nodeSelector", nodes.over), ("serviceSelector", services.over)):
        for i in over:
            policies[i].document.leave(("spec", field), f"{_ONE}{policies[0].document.subject}", _SPLIT)
    draft.node_selector = nodes.selector
    draft.interface = policies[0].interface
    draft.service_selector = both(draft.service_selector, services.selector)
    if services.selector != ALL:
        why = "Cilium gives other Services an address that it never announces; here these pools give them none"
        for each in policies:
            each.document.leave(("spec", "serviceSelector"), why, "make sure that another pool serves them")


def _by_metadata(draft: Draft) -> bool:
    """Writes Cilium's selection by name and namespace as labels. False if that would serve more Services."""
    rules = draft.service_selector.rules
    namespaces = tuple(replace(rule, key=NAMESPACE_NAME_LABEL) for rule in rules if rule.key == SERVICE_NAMESPACE)
    draft.namespace_selector = LabelSelector(namespaces)
    draft.service_selector = LabelSelector(tuple(rule for rule in rules if rule.key != SERVICE_NAMESPACE))
    by_name = [rule for rule in rules if rule.key == SERVICE_NAME]
    if any(rule.operator in ("NotIn", "DoesNotExist") for rule in by_name):
        why = "it excludes Services by name, but here Services are selected only by labels"
        draft.document.leave((), why, "label the other Services, and select that label")
        return False
    if by_name:
        why = f"Services cannot be selected by name: the pool serves Services that have the label {SERVICE_NAME}"
        draft.document.leave(
            ("spec", "serviceSelector"), why, f"give the Service the label {SERVICE_NAME} with its name"
        )
    return True
