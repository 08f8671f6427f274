"""A peer's ``Service`` → the same Service, asking us for its address."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import cast

from speaker.api.addresses import parse_eip
from speaker.api.fields import Field, dns_label, dns_subdomain
from speaker.api.others import WISHES, balancer_of
from speaker.api.service import ADDRESSES, LOAD_BALANCER_CLASS, POOL, PREFIX, RECORD, SHARE, SHARE_NAMESPACES
from speaker.api.service import service as decode
from speaker.convert.annotations import (
    BGP_CLASS,
    CLASSES,
    DHCP,
    FINALIZERS,
    IGNORE,
    LABELS,
    LISTED,
    OPENELB_OPT_IN,
    PROXY,
)
from speaker.convert.document import Document, as_read, servers
from speaker.model import Family, FamilyPolicy, IPAddress, Service, ServiceKey

_BY_DHCP = (str(IPv4Address(0)), str(IPv6Address(0)))
"""kube-vip takes these as a request for an address from a DHCP server."""


@dataclass(frozen=True, slots=True)
class Rules:
    """``classless``: Services without a class are the peer's, whether or not they say so. ``known``: something says
    which peers there are. ``classes``: more than the known ones. ``default_class``: the controller has that flag.
    ``renamed``: names of pools at the peer that are none here."""

    classless: bool = False
    known: bool = False
    classes: frozenset[str] = frozenset()
    default_class: bool = False
    adopt: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Draft:
    document: Document
    key: ServiceKey
    data: dict[str, object]
    """The manifest without the annotations that the other fields here stand for."""
    addresses: list[IPAddress] = field(default_factory=list)
    present: bool = False
    """Whether it has these addresses now, as far as the input says."""
    pool: str = ""
    share: str = ""
    share_namespaces: list[str] = field(default_factory=list)

    def manifest(self) -> dict[str, object]:
        asked = {
            POOL: self.pool,
            ADDRESSES: ",".join(map(str, self.addresses)),
            SHARE: self.share,
            SHARE_NAMESPACES: ",".join(self.share_namespaces) if self.share else "",
        }
        metadata = cast(dict[str, object], self.data["metadata"])
        annotations = {**cast(dict[str, str], metadata.get("annotations", {})), **{k: v for k, v in asked.items() if v}}
        rest = {name: value for name, value in metadata.items() if name != "annotations"}
        return {**self.data, "metadata": {**rest, "annotations": annotations} if annotations else rest}

    def back(self) -> dict[str, object] | None:
        """What the peer needs of it that ``manifest`` lacks; None: nothing."""
        source = self.document.source
        annotations, address = source.at("metadata", "annotations"), source.at("spec", "loadBalancerIP")
        given = annotations.items() if isinstance(annotations, dict) else ()
        theirs = {name: value for name, value in given if balancer_of(str(name)) is not None}
        if not theirs and not address:
            return None
        metadata = {"name": self.key.name, "namespace": self.key.namespace, "annotations": theirs}
        spec = {"spec": {"loadBalancerIP": address}} if address else {}
        return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, **spec}

    def service(self) -> Service | None:
        """The Service as the speaker reads it. If the speaker would refuse it, leaves it out and returns None."""
        leave_out = partial(self.document.leave, ())
        found = as_read(self.manifest(), lambda root: decode(root, default_class=True), leave_out)
        return found if isinstance(found, Service) else None


def service(document: Document, rules: Rules) -> Draft | None:
    """None if it is not the peer's, or is left out; the document says why."""
    source = document.source
    if source.at("spec", "type") != "LoadBalancer":
        document.leave((), "is not of type LoadBalancer: it stays as it is")
        return None
    if (objection := _not_the_peers(document, rules)) is not None:
        document.leave((), *objection)
        return None
    return document.read(lambda document, root: _service(document, root, rules))


def _not_the_peers(document: Document, rules: Rules) -> tuple[str, str] | None:
    """Why it is not the peer's, and what to do."""
    source = document.source
    annotations = source.at("metadata", "annotations")
    names = list(annotations) if isinstance(annotations, dict) else []
    if any(str(name).startswith(PROXY) for name in names):
        return "OpenELB's NodeProxy serves it on node ports, not with an EIP", "remove the annotation first"
    if source.at("metadata", "annotations", IGNORE) in ("true", True):
        return "kube-vip is told to ignore it: it stays as it is", ""
    if source.at("metadata", "deletionTimestamp") is not None:
        return "is being deleted: it stays as it is", ""
    match source.at("spec", "loadBalancerClass"):
        case None | "":
            return None if _opted_in(document, rules) else _classless(rules)
        case str() as cls if cls in CLASSES or cls in rules.classes or cls == LOAD_BALANCER_CLASS:
            return None
        case str() as cls if cls == BGP_CLASS:
            return "BGP announces it: the speaker answers on the LAN and talks to no router", "keep what announces it"
        case _:
            return "its loadBalancerClass belongs to no known peer: it stays as it is", "name the class by --class"


def _opted_in(document: Document, rules: Rules) -> bool:
    """OpenELB's former name counts if the Service asks for more under it."""
    annotations = document.source.at("metadata", "annotations")
    given = annotations if isinstance(annotations, dict) else {}
    opt_in = given.get(OPENELB_OPT_IN)
    asks_porter = opt_in == "porter" and any(".porter." in str(name) for name in given)
    return rules.classless or asks_porter or opt_in == "openelb"


def _classless(rules: Rules) -> tuple[str, str]:
    if rules.known:
        return f"OpenELB does not serve it, without the annotation {OPENELB_OPT_IN}: it stays as it is", ""
    return "nothing tells which balancer serves it: it stays as it is", "name the peer by --from"


# ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────


def _service(document: Document, root: Field, rules: Rules) -> Draft:
    for key in ("apiVersion", "kind"):
        document.take(root[key])
    spec = document.take(root["spec"])
    document.leave(("spec", "externalIPs"), "are kube-proxy's, which serves them on every node: they stay as they are")
    servers(document)
    _finalizers(document, root["metadata"]["finalizers"])
    metadata: dict[str, object] = {}
    for key in ("name", "namespace"):
        if document.take(root["metadata"][key]).given:
            metadata[key] = root["metadata"][key].value
    if labels := _labels(document, root["metadata"]["labels"]):
        metadata["labels"] = labels
    if kept := _kept(document, root["metadata"]["annotations"]):
        metadata["annotations"] = kept
    namespace = root["metadata"]["namespace"].nonempty().text() or "default"
    data: dict[str, object] = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": _spec(spec, rules)}
    draft = Draft(document, ServiceKey(namespace, root["metadata"]["name"].require().text() or ""), data)
    _wishes(draft, document, root, rules)
    if rules.adopt:
        _keep_present(draft, root)
    else:
        document.leave(("status",), "its current address is asked for only with --adopt")
    return draft


def _finalizers(document: Document, finalizers: Field) -> None:
    for item in finalizers.items():
        if item.value in FINALIZERS:
            why = "once the peer is gone nobody removes it, and the Service can never be deleted"
            document.leave(item.path, why, "remove it once the peer has stopped: docs/migration")


def _labels(document: Document, labels: Field) -> dict[str, object]:
    kept = {}
    for label in labels.children():
        key = str(label.path[-1])
        value, why = LABELS.get(key, ("", ""))
        if why and value in (None, label.value):
            document.leave(label.path, why)
        else:
            kept[key] = document.take(label).value
    return kept


def _kept(document: Document, annotations: Field) -> dict[str, object]:
    """Annotations that no peer owns are kept; those of peers without an equal are listed."""
    kept = {}
    for annotation in annotations.children():
        key = str(annotation.path[-1])
        if key in LISTED:
            document.leave(annotation.path, *LISTED[key])
        elif key == RECORD:
            document.leave(annotation.path, "the controller writes it")
        elif key in (OPENELB_OPT_IN, IGNORE):
            document.take(annotation)
        elif key not in WISHES and balancer_of(key) is not None:
            document.leave(annotation.path, "is not a known annotation of the peer", "find out what it asks for")
        elif key not in WISHES and not document.is_listed(annotation.path):
            document.take(annotation)
            if not (key.startswith(PREFIX) and key in (POOL, ADDRESSES, SHARE, SHARE_NAMESPACES)):
                kept[key] = annotation.value
    return kept


def _spec(spec: Field, rules: Rules) -> dict[str, object]:
    kept = {str(value.path[-1]): value.value for value in spec.children()}
    kept.pop("loadBalancerIP", None)
    cls = kept.pop("loadBalancerClass", None)
    if cls or not rules.default_class:
        kept["loadBalancerClass"] = LOAD_BALANCER_CLASS
    return kept


# ── What it asks for ──────────────────────────────────────────────────────────────────────────────────────────


def _wishes(draft: Draft, document: Document, root: Field, rules: Rules) -> None:
    annotations = root["metadata"]["annotations"]
    wished = {ours: _first(document, annotations, ours) for ours in (ADDRESSES, POOL, SHARE, SHARE_NAMESPACES)}
    draft.addresses = _addresses(document, wished[ADDRESSES], annotations[ADDRESSES], root["spec"]["loadBalancerIP"])
    _one_of_each_family(draft, root, (wished[ADDRESSES] or annotations[ADDRESSES]))
    draft.pool = _text(
        document, wished[POOL], annotations[POOL], lambda text: dns_subdomain(rules.renamed.get(text, text))
    )
    draft.share = _text(document, wished[SHARE], annotations[SHARE], str)
    draft.share_namespaces = _namespaces(draft, wished[SHARE_NAMESPACES], annotations[SHARE_NAMESPACES])


def _first(document: Document, annotations: Field, ours: str) -> Field | None:
    given = [annotations[name] for name, each in WISHES.items() if PREFIX + each == ours and annotations[name].given]
    for other in given[1:]:
        if other.value == given[0].value:
            document.take(other)
        else:
            why = f"{given[0].path[-1]} says something else about this, and counts"
            document.leave(other.path, why, "take one of them away")
    return given[0] if given else None


def _text(document: Document, peers: Field | None, ours: Field, check: Callable[[str], str]) -> str:
    found = ours if ours.given else peers
    if peers is not None:
        document.take(peers)
    return found.parsed(check) or "" if found is not None and found.nonempty().given else ""


def _addresses(document: Document, peers: Field | None, ours: Field, by_field: Field) -> list[IPAddress]:
    found = ours if ours.given or peers is None else peers
    if peers is not None:
        document.take(peers)
    parts = found.nonempty().comma_separated() or by_field.nonempty().comma_separated()
    if any(part.value in _BY_DHCP for part in parts):
        where = found if found.nonempty().given else by_field
        document.leave(where.path, *DHCP)
        return []
    if by_field.nonempty().given and found.nonempty().given and by_field.value not in [part.value for part in parts]:
        why = f"{found.path[-1]} asks for another address, and counts"
        document.leave(by_field.path, why, "take one of them away")
    return [address for part in parts if (address := part.parsed(parse_eip)) is not None]


def _one_of_each_family(draft: Draft, root: Field, where: Field) -> None:
    policy = root["spec"]["ipFamilyPolicy"].value
    families = {} if policy in (FamilyPolicy.PREFER_DUAL, FamilyPolicy.REQUIRE_DUAL) else {1: 0}
    kept: dict[Family, IPAddress] = {}
    for address in draft.addresses:
        if not (families and kept):
            kept.setdefault(Family.of(address), address)
    if over := [address for address in draft.addresses if address not in kept.values()]:
        left = ", ".join(map(str, over))
        why = f"one address of each family is taken over: {left} is not asked for"
        draft.document.leave(where.path, why, "list it in eip-speaker.io/addresses as well")
    draft.addresses = list(kept.values())


def _namespaces(draft: Draft, peers: Field | None, ours: Field) -> list[str]:
    if ours.given or peers is None:
        return [part.parsed(dns_label) or "" for part in ours.nonempty().comma_separated()]
    if peers.value == "*":
        why = "Services of every namespace may share it; here the namespaces must be named, so none may"
        draft.document.leave(peers.path, why, "list them in eip-speaker.io/share-namespaces")
        return []
    draft.document.take(peers)
    if not draft.share:
        draft.document.leave(peers.path, "has no effect without a sharing key")
    return [part.parsed(dns_label) or "" for part in peers.nonempty().comma_separated()]


def _keep_present(draft: Draft, root: Field) -> None:
    """Prefers the addresses in its status, which it has now, to those that it asks for."""
    document = draft.document
    ingress = root["status"]["loadBalancer"]["ingress"]
    found = []
    for item in ingress.items():
        address = document.take(item["ip"]).nonempty().parsed(parse_eip)
        document.leave((*item.path, "hostname"), "an EIP is an address", "make the DNS name point to the address")
        for name in ("ipMode", "ports"):
            document.leave((*item.path, name), "the controller writes it")
        if address is not None:
            found.append(address)
    for other in root["status"].children():
        if other.path[-1] != "loadBalancer":
            document.leave(other.path, "the peer's controller writes it")
    if not found:
        document.leave(("status",), "it has no address now")
        draft.present = bool(draft.addresses)
        return
    asked = draft.addresses
    draft.addresses, draft.present = list(dict.fromkeys(found)), True
    _one_of_each_family(draft, root, ingress)
    if asked and set(asked) - set(draft.addresses):
        text = ", ".join(map(str, draft.addresses))
        why = f"it asks for {', '.join(map(str, asked))} but has {text}, which it keeps"
        document.leave(ingress.path, why, "correct eip-speaker.io/addresses if it should move")
