"""Converts documents of peers to our pools and Services, and lists everything that has no equal. Pure.

The last step settles the result as a speaker would, so a Service that would be refused is listed too.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from speaker.allocator.assign import Allocator
from speaker.allocator.refusals import Refusal
from speaker.allocator.settle import settle
from speaker.api.addresses import Together
from speaker.api.endpoints import NamespaceLabels, namespace
from speaker.api.fields import ApiObject, Path, read, some
from speaker.api.others import WISHES, balancer_of, owner
from speaker.api.reading import EIP, NAMESPACE, READ, SERVICE, flattened
from speaker.api.service import PREFIX
from speaker.convert import adopting, cilium, kubevip, metallb, openelb, purelb
from speaker.convert.annotations import CLASSES
from speaker.convert.document import CORRECT, Document, Listed
from speaker.convert.draft import Draft as PoolDraft
from speaker.convert.draft import Made
from speaker.convert.empties import without_empties
from speaker.convert.keepalived.site import site
from speaker.convert.keepalived.text import Read
from speaker.convert.ranges import common, less, pieces, spelled
from speaker.convert.selectors import ALL
from speaker.convert.services import Draft as ServiceDraft
from speaker.convert.services import Rules, service
from speaker.errors import InvalidManifests
from speaker.model import Balancer, Service, ServiceKey, World


@dataclass(frozen=True, slots=True)
class Settings:
    """``peer``: which peer Services without a class belong to, if nothing else says so. ``classes``: of Services to
    convert, besides those of known peers. ``default_class``: the speaker runs with that flag, so Services without a
    class stay without one. ``adopt``: every Service asks for the address that it has."""

    peer: Balancer | None = None
    classes: frozenset[str] = frozenset()
    default_class: bool = False
    adopt: bool = False


@dataclass(frozen=True, slots=True)
class Conversion:
    pools: tuple[dict[str, object], ...]
    services: tuple[dict[str, object], ...]
    documents: tuple[Document, ...]
    back: tuple[dict[str, object], ...] = ()
    """What these Services asked the peer for; applied by the server to go back."""
    endpoints: tuple[dict[str, object], ...] = ()
    """EndpointSlices of Services that have no controller to make them."""

    @property
    def listed(self) -> tuple[Listed, ...]:
        return tuple(each for document in self.documents for each in document.listed)

    @property
    def decisions(self) -> tuple[Listed, ...]:
        return tuple(each for each in self.listed if each.do)


_MAKERS = {
    Balancer.OPENELB: openelb.made,
    Balancer.METALLB: metallb.made,
    Balancer.KUBE_VIP: kubevip.made,
    Balancer.PURELB: purelb.made,
    Balancer.CILIUM: cilium.made,
}


_PLAIN = frozenset({*(kind for _, kind in READ), "Kustomization", "CustomResourceDefinition"})
"""Kinds that hold no objects to convert; patches are no objects."""
_HINT = re.compile(
    r"address-pools|ipAddressPools|\bv[46]pools?\b|CiliumLoadBalancerIPPool"
    r"|\b(metallb|purelb|network\.kubesphere)\.io/v\d|\b(cidr|range)-global"
)
_HOLDS = "holds what a load balancer reads, and only that is converted"
_FILE = re.compile(r"[^/]+\.(ya?ml|json)")
"""A resource of kustomize that stands beside it."""


def convert(objects: Iterable[ApiObject], settings: Settings, parse: metallb.Parse) -> Conversion:
    """``parse``: for text that holds objects. A source without data stands for a directory that is not read."""
    documents: list[Document] = []
    for source in (metallb.opened(each, parse) for listed in objects for each in flattened(listed)):
        inside = [*_inside(source, parse)] if owner(source) is None else []
        documents.append(Document(without_empties(source)))
        if inside:
            documents[-1].leave((), _HOLDS, "check that the rest of it restricts nothing, such as nodes")
        documents += [Document(without_empties(metallb.opened(each, parse))) for each in inside]
    of_peers: dict[Balancer, list[Document]] = {}
    of_services: list[Document] = []
    labels: dict[str, Mapping[str, str]] = {}
    for document in documents:
        if (peer := owner(document.source)) is not None:
            of_peers.setdefault(peer, []).append(document)
        elif document.refused:
            pass  # what it holds is converted
        elif (document.source.api_version, document.source.kind) == SERVICE:
            of_services.append(document)
        else:
            _pass_over(document, labels)
    made = Made()
    for peer, theirs in of_peers.items():
        one = _MAKERS[peer](theirs)
        made.drafts += one.drafts
        made.elsewhere += one.elsewhere
    names = Counter(draft.name for draft in made.drafts)
    renamed = {draft.called: draft.name for draft in made.drafts if draft.called and names[draft.name] == 1}
    rules = replace(_rules(settings, set(of_peers), of_services), renamed=renamed)
    services = [draft for document in of_services if (draft := service(document, rules)) is not None]
    return _judged(made, services, documents, labels, settings)


def _inside(source: ApiObject, parse: metallb.Parse, path: Path = ()) -> Iterator[ApiObject]:
    """Peers' objects and MetalLB's configuration in another object, such as values of Helm, also if they are text."""
    value = source.at(*path)
    if isinstance(value, str):
        for each in parse(value) if _HINT.search(value) else ():
            if not isinstance(each.data, str):  # not text again
                yield from _inside(metallb.of_text(source, path, each), parse)
        return
    here = ApiObject(value, lambda inner: source.locate((*path, *inner)))
    if owner(here) is not None:
        yield here
    elif isinstance(here.at("address-pools"), list):
        yield metallb.as_config_map(here)
    elif isinstance(value, dict):
        for key in () if here.kind in _PLAIN else value:
            yield from _inside(source, parse, (*path, key)) if key != "metadata" else ()
    elif isinstance(value, list):
        for i in range(len(value)):
            yield from _inside(source, parse, (*path, i))


def of_keepalived(read: Read) -> Conversion:
    """``read`` must have no problems."""
    found = site(read)
    documents = [found.lines, *(pool.document for pool in found.pools), *(each.document for each in found.services)]
    judged = _judged(Made(found.pools), found.services, documents, {}, Settings())
    kept = (draft.key for draft in found.services if not draft.document.refused)
    return replace(judged, back=(), endpoints=tuple(each for key in kept for each in found.slices[key]))


def _judged(
    made: Made,
    services: list[ServiceDraft],
    documents: Sequence[Document],
    labels: Mapping[str, Mapping[str, str]],
    settings: Settings,
) -> Conversion:
    _each_once(made.drafts)
    _each_service_once(services)
    if settings.adopt:
        adopting.share(services)
    _judge(made, services, labels, settings)
    kept = [draft for draft in services if not draft.document.refused]
    return Conversion(
        tuple(draft.manifest() for draft in made.drafts if not draft.document.refused),
        tuple(draft.manifest() for draft in kept),
        tuple(documents),
        tuple(back for draft in kept if (back := draft.back()) is not None),
    )


def _pass_over(document: Document, labels: dict[str, Mapping[str, str]]) -> None:
    source = document.source
    if (source.api_version, source.kind) == NAMESPACE:
        try:
            found: NamespaceLabels = read(source, namespace)
            labels[found.name] = found.labels
        except InvalidManifests:
            pass  # the pool stays as it is: what it selects is only predicted here
    if (source.api_version, source.kind) == EIP:
        document.leave((), "is already a pool of ours: it is not converted", "validate it together with the result")
    elif source.kind.endswith("List") and source.at("items") is not None:
        document.leave(("items",), "must be a list", CORRECT)
    elif source.data is None:
        document.leave((), "is a directory, whose files are not read", "name it, too, if they matter")
    elif not source.api_version or not source.kind:
        document.leave((), "is not a Kubernetes object", "give only manifests, such as `helm template` prints")
    elif _is_built(source):
        document.leave((), "changes objects, but files are read as they stand", "give what `kubectl kustomize` prints")
    elif kubevip.IMAGE.search(text := "" if source.kind in _PLAIN else str(source.data)):
        document.leave((), *kubevip.POD)
    elif _HINT.search(text):
        why = "seems to hold pools of a load balancer, which cannot be read there"
        document.leave((), why, "give the objects themselves, such as `helm template` prints")
    elif wishes := [name for name in WISHES if name in text]:
        ours = ", ".join(dict.fromkeys(PREFIX + WISHES[name] for name in wishes))
        document.leave((), f"makes a Service that asks by {some(wishes)}: it stays as it is", f"write {ours} into it")
    else:
        document.leave((), "is not an object of a load balancer: it stays as it is")


def _is_built(source: ApiObject) -> bool:
    """Whether kustomize changes objects by it, or adds some from elsewhere."""
    if not source.api_version.startswith("kustomize.") or not isinstance(source.data, dict):
        return False
    if source.api_version.startswith("kustomize.toolkit.fluxcd.io/"):
        return bool(source.at("spec", "patches") or source.at("spec", "postBuild"))
    files = source.data.get("resources")
    plain = [_FILE.fullmatch(str(each)) for each in (files if isinstance(files, list) else ())]
    return not all(plain) or bool(source.data.keys() - {"apiVersion", "kind", "metadata", "resources"})


def _rules(settings: Settings, peers: set[Balancer], services: Sequence[Document]) -> Rules:
    known = set(peers)
    for document in services:
        annotations = document.source.at("metadata", "annotations")
        named = [balancer_of(str(name)) for name in annotations] if isinstance(annotations, dict) else []
        named.append(CLASSES.get(str(document.source.at("spec", "loadBalancerClass"))))
        known |= {balancer for balancer in named if balancer is not None}
    if settings.peer is not None:
        known.add(settings.peer)
    return Rules(
        classless=bool(known - {Balancer.OPENELB}),
        known=bool(known),
        classes=settings.classes,
        default_class=settings.default_class,
        adopt=settings.adopt,
    )


# ── Rules between objects ─────────────────────────────────────────────────────────────────────────────────────


def _each_once(drafts: list[PoolDraft]) -> None:
    """An address or a name that several pools claim belongs to the first one, before pools that were renamed."""
    kept: dict[str, PoolDraft] = {}
    taken = Together(())
    for draft in sorted(drafts, key=lambda each: each.called != ""):
        if draft.name in kept:
            draft.leave_out(f"another pool is also named {draft.name}", "give one of them another name")
            continue
        if any(any(taken.meeting(piece)) for piece in pieces(draft.blocks)):
            _give_up(draft, kept.values())
        for piece in pieces(draft.blocks):
            taken.add(piece)
        kept[draft.name] = draft
    drafts[:] = [draft for draft in drafts if kept[draft.name] is draft and _offers(draft)]


def _give_up(draft: PoolDraft, others: Iterable[PoolDraft]) -> None:
    for other in others:
        if shared := common(draft.blocks, other.blocks):
            text = ", ".join(spelled(shared, steps_over=False))
            why = f"an address belongs to one pool: {text} goes to pool {other.name} and not to pool {draft.name}"
            draft.document.leave(draft.path, why, "decide which of them it belongs to")
            draft.blocks = less(draft.blocks, shared)


def _offers(draft: PoolDraft) -> bool:
    if spelled(draft.blocks, draft.steps_over):
        return not draft.document.refused and draft.pool() is not None
    why = f"pool {draft.name} would be empty, so it is left out"
    draft.document.leave(draft.path, why, "nothing, or give it addresses")
    return False


def _each_service_once(services: list[ServiceDraft]) -> None:
    seen = set()
    for draft in services:
        if draft.key in seen:
            draft.document.leave((), f"Service {draft.key} is in the input twice", "give it only once")
        seen.add(draft.key)
    services[:] = [draft for draft in services if not draft.document.refused]


# ── What a speaker would do with it ───────────────────────────────────────────────────────────────────────────


def _judge(
    made: Made, services: list[ServiceDraft], labels: Mapping[str, Mapping[str, str]], settings: Settings
) -> None:
    readable = {draft.key: found for draft in services if (found := draft.service()) is not None}
    refused = _refused(made, readable, labels)
    if settings.adopt:
        reasons = {key: refusal.reason for key, refusal in refused.items()}
        if pools := adopting.of_their_own(made, services, reasons):
            made.drafts += pools
            made.drafts[:] = [draft for draft in made.drafts if _offers(draft)]
            readable = {draft.key: found for draft in services if (found := draft.service()) is not None}
            refused = _refused(made, readable, labels)
    for draft in services:
        if (refusal := refused.get(draft.key)) is not None:
            why = f"once converted, the Service would be refused ({refusal.reason.value}): {refusal.message}"
            unseen = draft.key.namespace not in labels and any(pool.namespace_selector != ALL for pool in made.drafts)
            seen = f", or also give the Namespace {draft.key.namespace}, as its labels matter" if unseen else ""
            draft.document.leave(("metadata", "name"), why, f"correct the pool or the Service{seen}")


def _refused(
    made: Made, services: Mapping[ServiceKey, Service], labels: Mapping[str, Mapping[str, str]]
) -> Mapping[ServiceKey, Refusal]:
    pools = [found for draft in made.drafts if (found := draft.pool()) is not None]
    world = World(
        pools={pool.name: pool for pool in pools},
        services={found.key: found for found in services.values()},
        namespaces=labels,
    )
    return dict(settle(Allocator(), world, 0.0).refusals)
