"""OpenELB: ``Eip`` (network.kubesphere.io/v1alpha2, and v1alpha1) as of v0.6.0, f35d3f1.

A Service that names no Eip gets one that lists or selects its namespace, or else the default Eip. Namespaces are no
access control there; here they are, so a converted pool may serve less, but never more. Porter, as it was called up to
0.4.3, gave out no .0 and .255 of a v1alpha1 Eip without ``usingKnownIPs``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from speaker.api.eip import parse_interface
from speaker.api.fields import Field
from speaker.convert.document import BGP, KEEP, Document, heading, texts
from speaker.convert.draft import Draft, Made
from speaker.convert.ranges import parse_block
from speaker.convert.selectors import ALL, all_but, both, of_labels
from speaker.model import LabelRule, LabelSelector

_PORTER = "network.kubesphere.io/v1alpha1"
VERSIONS = frozenset({_PORTER, "network.kubesphere.io/v1alpha2"})
DEFAULT, _PORTERS_DEFAULT = (f"eip.{name}.kubesphere.io/is-default-eip" for name in ("openelb", "porter"))
CNI = "openelb.kubesphere.io/cni"

_FIND = "find out what it asks for"
_NO_DEFAULT = "Porter up to 0.3 gives it to any Service, but later versions only to those that name it, as here"

_NAMESPACES = "here they are access control too: a Service in another namespace that names the pool is refused"
_CANNOT = "makes the default Eip serve what one selector here cannot express"
_DO = "check whether these namespaces have a pool, and list them in the pool's namespaces"


class _Protocol(StrEnum):
    BGP = "bgp"
    LAYER2 = "layer2"
    VIP = "vip"


@dataclass(frozen=True, slots=True)
class _Eip:
    document: Document
    draft: Draft
    protocol: _Protocol
    default: bool
    everybody: bool
    """It is for the namespaces of a selector that is empty, so it selects all of them."""
    cni: bool

    @property
    def on_the_lan(self) -> bool:
        return self.protocol is not _Protocol.BGP and not self.cni


def made(documents: Sequence[Document]) -> Made:
    read = [document.read(_eip) for document in documents if _is(document)]
    eips = [each for each in read if each is not None]
    for document in documents:
        if not _is(document):
            told = (BGP, KEEP) if document.source.kind.startswith("Bgp") else ("is not a known OpenELB kind", _FIND)
            document.leave((), *told)
    found = Made()
    for eip in eips:
        if eip.on_the_lan:
            _open(eip, [other for other in eips if other is not eip and not other.draft.disabled])
            found.drafts.append(eip.draft)
        else:
            what = "calico announces it" if eip.cni else "its protocol is bgp"
            found.leave_elsewhere(eip.draft, f"{what}: the speaker answers on the LAN and talks to no router", KEEP)
    return found


def _is(document: Document) -> bool:
    return document.source.kind == "Eip"


def _eip(document: Document, root: Field) -> _Eip:
    annotations = root["metadata"]["annotations"]
    default = any(document.take(annotations[name]).text() == "true" for name in (DEFAULT, _PORTERS_DEFAULT))
    name, labels = heading(document, root, VERSIONS)
    spec = root["spec"]
    block = document.take(spec["address"]).require().parsed(parse_block)
    selector = document.take(spec["namespaceSelector"])
    if old := root["apiVersion"].value == _PORTER:
        document.leave(("apiVersion",), _NO_DEFAULT, "remove autoAssign: false if it is for any Service")
    else:
        document.leave(("spec", "usingKnownIPs"), "OpenELB does not read it either")
    known = document.take(spec["usingKnownIPs"]).boolean(False)
    document.take(spec["interface"]).nonempty().parsed(parse_interface)
    draft = Draft(
        document,
        name,
        [block] if block is not None else [],
        labels,
        steps_over=old and not known,
        namespaces=texts(document.take(spec["namespaces"])),
        namespace_selector=of_labels(selector),
        interface=spec["interface"].text() or "",
        priority=-document.take(spec["priority"]).integer(0, -(2**31) + 1, 2**31 - 1),
        disabled=document.take(spec["disable"]).boolean(False),
    )
    protocol = document.take(spec["protocol"]).nonempty().choice(_Protocol, _Protocol.BGP)
    return _Eip(document, draft, protocol, default, selector.value == {}, CNI in labels)


def _open(eip: _Eip, others: list[_Eip]) -> None:
    """Which Services it serves that name no Eip."""
    draft = eip.draft
    if eip.everybody:
        _note_namespaces(eip, "with an empty selector it serves every namespace")
        draft.namespaces = []
        return
    if not eip.default:
        draft.auto_assign = bool(draft.namespaces) or draft.namespace_selector != ALL
        _note_namespaces(eip, _NAMESPACES)
        return
    if any(other.everybody for other in others):
        _note_namespaces(eip, "another Eip serves every namespace, so this one is given only to Services that name it")
        draft.namespaces, draft.namespace_selector, draft.auto_assign = [], ALL, False
        return
    taken = sorted({name for other in others for name in other.draft.namespaces} - set(draft.namespaces))
    rest = all_but(taken)
    for other in others:
        if other.draft.namespace_selector != ALL:
            rest = both(rest, _outside(eip, other.draft.namespace_selector))
    if rest == ALL:
        _note_namespaces(eip, "as the default Eip it serves every namespace")
        draft.namespaces, draft.namespace_selector = [], ALL
        return
    if draft.namespace_selector not in (ALL, rest):
        eip.document.leave(("spec", "namespaceSelector"), _CANNOT, _DO)
    draft.namespace_selector = rest


def _note_namespaces(eip: _Eip, why: str) -> None:
    for field in ("namespaces", "namespaceSelector"):
        eip.document.leave(("spec", field), why)


def _outside(eip: _Eip, selector: LabelSelector) -> LabelSelector:
    """Namespaces without these labels. Of several labels, namespaces without the first one, which are fewer."""
    first: LabelRule = selector.rules[0]
    if len(selector.rules) > 1:
        eip.document.leave(
            ("metadata", "annotations", DEFAULT), f"another Eip selects by several labels: {_CANNOT}", _DO
        )
    return LabelSelector((replace(first, operator="NotIn"),))
