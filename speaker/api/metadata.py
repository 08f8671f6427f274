"""Names, labels and label selectors, with the rules of Kubernetes' ``apimachinery/pkg/util/validation``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from speaker.api.fields import Field
from speaker.model import LabelRule, LabelSelector

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)

# ObjectMeta of meta/v1; `clusterName` and `selfLink` are gone from it but not from old dumps.
_METADATA = frozenset(
    {
        "annotations",
        "clusterName",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)

TOP = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})


def dns_label(text: str) -> str:
    """An RFC 1123 label, as Services, ports and namespaces are named; ValueError says the rule."""
    if not LABEL.fullmatch(text):
        raise ValueError("must be 1-63 of a-z, 0-9 and '-', beginning and ending with a letter or digit (RFC 1123)")
    return text


def dns_subdomain(text: str) -> str:
    """An RFC 1123 subdomain, as most objects are named; ValueError says the rule."""
    if len(text) > 253 or not SUBDOMAIN.fullmatch(text):
        raise ValueError("must be labels of a-z, 0-9 and '-' joined by '.', at most 253 characters (RFC 1123)")
    return text


def _label_key(text: str, what: str = "label") -> str:
    prefix, slash, name = text.rpartition("/")
    if not QUALIFIED.fullmatch(name) or (slash and not (len(prefix) <= 253 and SUBDOMAIN.fullmatch(prefix))):
        raise ValueError(
            f"is no {what} key: 1-63 letters, digits, '-', '_' and '.', optionally after a DNS prefix and '/'"
        )
    return text


def annotation_key(text: str) -> str:
    """As ``ValidateAnnotations`` has it: a label's, but for capitals in the prefix. ValueError says the rule."""
    _label_key(text.lower(), "annotation")
    return text


def _label_value(text: str) -> str:
    if text and not QUALIFIED.fullmatch(text):
        raise ValueError("is no label value: at most 63 letters, digits, '-', '_' and '.'")
    return text


def timestamp(text: str) -> str:
    """A moment, written as the API writes it: in UTC, to the second, so that it sorts; '' is none. ValueError says the
    rule."""
    if not text:
        return ""
    if not _TIME.fullmatch(text):
        raise ValueError("must be a time such as 2026-01-31T12:00:00Z (RFC 3339)")
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("is no time that there is") from None
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Metadata:
    name: str
    namespace: str
    """'' for objects that belong to the cluster."""
    labels: Mapping[str, str]
    annotations: Field
    created: str


def metadata(root: Field, *, namespaced: bool, short_name: bool) -> Metadata:
    """``metadata`` of an object. ``short_name``: the name must be a single label (Service, Namespace)."""
    meta = root["metadata"].object(_METADATA, "metadata")
    namespace = meta["namespace"].nonempty()
    if namespace.given and not namespaced:
        namespace.refuse(f"must be left out: {root.report.source.kind} belongs to the cluster, not to a namespace")
    return Metadata(
        name=meta["name"].require().parsed(dns_label if short_name else dns_subdomain) or "",
        # "default" is what kubectl fills in
        namespace=(namespace.parsed(dns_label) or "default") if namespaced else "",
        labels=label_map(meta["labels"]),
        annotations=meta["annotations"],
        created=meta["creationTimestamp"].parsed(timestamp) or "",
    )


def label_map(labels: Field) -> dict[str, str]:
    """``key: value`` pairs."""
    found = {}
    for label in labels.children():
        key = cast(str, label.path[-1])
        _check_key(label, key)
        found[key] = _value_of(label)
    return found


def _value_of(label: Field) -> str:
    if not label.given:
        label.refuse("must be text, not nothing: write '' for an empty value")
    return label.parsed(_label_value) or ""


def _check_key(label: Field, key: str) -> None:
    try:
        _label_key(key)
    except ValueError as error:
        label.refuse(str(error))


def selector(value: Field) -> LabelSelector:
    """A ``LabelSelector`` of meta/v1: ``matchLabels`` and ``matchExpressions``, all of which must match.

    An empty one matches everything in Kubernetes. Here it is refused: a template without a value makes one, and so does
    an API server that drops a label without a value.
    """
    value.object({"matchLabels", "matchExpressions"}, "a label selector")
    for each in (value, value["matchLabels"], value["matchExpressions"]):
        if each.blank or each.value in ({}, []):
            each.refuse("must hold at least one requirement; leave it out to ask for nothing")
    wanted = label_map(value["matchLabels"])
    equal = [LabelRule(key, "In", frozenset({text})) for key, text in wanted.items()]
    return LabelSelector((*equal, *map(_expression, value["matchExpressions"].items())))


def _expression(value: Field) -> LabelRule:
    value.object({"key", "operator", "values"}, "a match expression")
    key = value["key"].require().parsed(_label_key) or ""
    values = frozenset(_value_of(item) for item in value["values"].items())
    match value["operator"].require().text():
        case "In" | "NotIn" as operator:
            if not values:
                value["values"].refuse(f"must list at least one value for the operator {operator}")
            return LabelRule(key, operator, values)
        case "Exists" | "DoesNotExist" as operator:
            if values:
                value["values"].refuse(f"must be left out for the operator {operator}")
            return LabelRule(key, operator)
        case None:
            return LabelRule(key, "Exists")
        case _:
            value["operator"].refuse("must be In, NotIn, Exists or DoesNotExist")
            return LabelRule(key, "Exists")
