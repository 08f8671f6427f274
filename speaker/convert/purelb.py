"""PureLB: ``ServiceGroup`` and ``LBNodeAgent`` (purelb.io/v2 as of 2026-08, 08b4e19; purelb.io/v1 as of v0.16).

A Service that names no group gets one that lists its namespace, or else the group ``default``; if that is full, no
other group helps out. A namespace with an enforcing group is fenced: no group that does not list it may serve it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network

from speaker.api.eip import MAX_INTERVAL, MIN_INTERVAL
from speaker.api.fields import Field, seconds
from speaker.convert.document import BGP, KEEP, Document, heading, link, no_pool, read_kind, texts
from speaker.convert.draft import Draft, Made
from speaker.convert.ranges import less, parse_block
from speaker.convert.selectors import all_but, either, read
from speaker.model import AddressRange, LabelSelector

VERSIONS = frozenset({"purelb.io/v1", "purelb.io/v2"})

_SUBNET = "the link whose own subnet holds an EIP answers for it"
_MASK = "an EIP is bound nowhere, or as a host address, so it adds no route"


@dataclass(frozen=True, slots=True)
class _Group:
    document: Document
    draft: Draft
    local: bool
    namespaces: list[str]
    enforced: bool
    default: bool


@dataclass(frozen=True, slots=True)
class _Agent:
    document: Document
    nodes: LabelSelector
    interface: str
    gratuitous: dict[str, object]


def made(documents: Sequence[Document]) -> Made:
    groups = read_kind(documents, "ServiceGroup", _group)
    agents = read_kind(documents, "LBNodeAgent", _agent)
    for document in documents:
        if document.source.kind not in ("ServiceGroup", "LBNodeAgent"):
            document.leave((), BGP, KEEP)
    found = Made()
    for group in groups:
        if group.local:
            _open(group, groups)
            _announce(group.draft, agents)
            found.drafts.append(group.draft)
        else:
            why = "its addresses are announced by routing, or come from another system: only local ones are on the LAN"
            found.leave_elsewhere(group.draft, why, KEEP)
    return found


# ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────


def _group(document: Document, root: Field) -> _Group:
    name, labels = heading(document, root, VERSIONS)
    spec = root["spec"]
    for kind in ("remote", "external", "netbox"):
        document.take(spec[kind])
    local = spec["local"]
    return _Group(
        document,
        Draft(document, name, _blocks(document, local if local.given else spec["remote"]), labels),
        local=local.given and not any(spec[kind].given for kind in ("remote", "external", "netbox")),
        namespaces=texts(document.take(spec["namespaces"])),
        enforced=document.take(spec["enforceNamespaces"]).boolean(False),
        default=document.take(spec["namespaceDefault"]).boolean(False),
    )


def _blocks(document: Document, local: Field) -> list[AddressRange]:
    """Of ``v4pool`` and the like, and of ``pool`` itself in v1."""
    path = local.path
    document.leave((*path, "skipIPv6DAD"), "the kernel does no DAD for an EIP, as it is on no link that clients see")
    if document.take(local["multiPool"]).boolean(False):
        why = "here a Service gets one address of each family from a pool"
        document.leave((*path, "multiPool"), why, "make a pool for each subnet, and list them in eip-speaker.io/pool")
    if document.take(local["balancePools"]).boolean(False):
        why = "addresses are given out from the lowest one up"
        document.leave((*path, "balancePools"), why, "make a pool for each range if they must be used evenly")
    entries = [local[key] for key in ("v4pool", "v6pool")] + [
        item for key in ("v4pools", "v6pools") for item in local[key].items()
    ]
    found = [_block(document, entry) for entry in entries if entry.given]
    if local["pool"].given:
        found.append(_block(document, local))
    if local.given and not found:
        local.refuse("must have at least one pool of addresses")
    return [block for block in found if block is not None]


def _block(document: Document, entry: Field) -> AddressRange | None:
    block = document.take(entry["pool"]).require().parsed(parse_block)
    subnet = entry["subnet"].require().parsed(_subnet)
    document.leave((*entry.path, "subnet"), _SUBNET)
    document.leave((*entry.path, "aggregation"), _MASK)
    if block is not None and subnet is not None and less([block], [subnet]):
        entry["pool"].refuse("must be in its subnet: PureLB refuses the group")
    return block


def _subnet(text: str) -> AddressRange:
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        raise ValueError("must be a CIDR") from None
    return AddressRange(network[0], network[-1])


def _agent(document: Document, root: Field) -> _Agent:
    no_pool(document, root, VERSIONS)
    spec, local, path = root["spec"], root["spec"]["local"], ("spec", "local")
    for key in ("dummyInterface", "extlbint"):
        document.leave((*path, key), "addresses that are announced by routing are not converted")
    document.leave((*path, "addressConfig"), _MASK)
    document.leave((*path, "sendgarp"), "a change of holder is always announced")
    why = "here a pool lists the links that may be used; without a list, the link whose subnet holds the EIP is used"
    document.leave((*path, "interfaces"), why, "write the links into the pools' interface, in order of preference")
    return _Agent(
        document,
        read(document.take(spec["nodeSelector"])),
        _interface(document, local["localInterface"]) or _interface(document, local["localint"]),
        _gratuitous(document, local["garpConfig"]),
    )


def _interface(document: Document, value: Field) -> str:
    if document.take(value).nonempty().value in (None, "default"):
        return ""
    return link(document, value) or ""


def _gratuitous(document: Document, garp: Field) -> dict[str, object]:
    path = garp.path
    if not document.take(garp["enabled"]).boolean(True):
        document.leave((*path, "enabled"), "a change of holder is always announced", "nothing, unless a switch minds")
    document.leave((*path, "initialDelay"), "the first announcement goes out at once, when the holder begins to answer")
    document.leave((*path, "verifyBeforeSend"), "only the holder announces")
    burst = document.take(garp["count"]).integer(0, 1, 50)
    interval = seconds(document.take(garp["interval"]), 0.0, MIN_INTERVAL, MAX_INTERVAL)
    return ({"burst": burst} if burst else {}) | ({"interval": interval} if interval else {})


# ── Deciding ──────────────────────────────────────────────────────────────────────────────────────────────────


def _open(group: _Group, groups: list[_Group]) -> None:
    """Who may use it, and who gets it without naming it."""
    draft, document = group.draft, group.document
    is_default = draft.name == "default" and not group.enforced
    fenced = {name for other in groups if other.enforced for name in other.namespaces}
    if is_default:
        _open_to_the_rest(group, groups, fenced)
        return
    if not group.namespaces:
        draft.auto_assign = False
        draft.namespace_selector = all_but(sorted(fenced))
        return
    draft.namespaces = group.namespaces
    chosen = [name for name in group.namespaces if _is_chosen(group, name, groups)]
    draft.auto_assign = len(chosen) == len(group.namespaces)
    if chosen and not draft.auto_assign:
        why = f"only Services in {', '.join(chosen)} get it unasked, but here a pool has one autoAssign"
        document.leave(("spec", "namespaces"), why, "let these Services name the pool")
    elif not group.enforced:
        why = "here they are access control: a Service in another namespace that names the pool is refused"
        document.leave(("spec", "namespaces"), why)


def _open_to_the_rest(group: _Group, groups: list[_Group], fenced: set[str]) -> None:
    """The group ``default``: for Services of all namespaces for which no other group is chosen."""
    elsewhere = {
        name
        for other in groups
        for name in other.namespaces
        if other is not group and (_is_chosen(other, name, groups) or name in fenced)
    }
    closed = {name for name in elsewhere if not _is_chosen(group, name, groups)}
    group.draft.namespace_selector = all_but(sorted(closed))
    group.document.leave(("spec", "namespaces"), "as the group default it serves every namespace")
    if closed:
        why = "Services in namespaces that another group lists get it only by name: here they never get it"
        group.document.leave(("metadata", "name"), why, "give these Services the pool that lists their namespace")


def _is_chosen(group: _Group, namespace: str, groups: list[_Group]) -> bool:
    serving = [other for other in groups if namespace in other.namespaces]
    marked = [other for other in serving if other.default]
    return serving == [group] or marked == [group]


def _announce(draft: Draft, agents: list[_Agent]) -> None:
    if not agents:
        return
    found = either([agent.nodes for agent in agents])
    draft.node_selector = found.selector
    for i in found.over:
        why = "here a pool has one node selector: only the first is kept"
        agents[i].document.leave(("spec", "nodeSelector"), why, "give the nodes a common label")
    kept = [agent for i, agent in enumerate(agents) if i not in found.over]
    draft.interface, draft.gratuitous = kept[0].interface, kept[0].gratuitous
    for agent in kept[1:]:
        if (agent.interface, agent.gratuitous) != (draft.interface, draft.gratuitous):
            why = f"differs from {kept[0].document.subject}, which the pools follow, as they are the same on all nodes"
            agent.document.leave(("spec", "local"), why, "name several links in the pools' interface")
