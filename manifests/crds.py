"""The CustomResourceDefinitions, made from the definitions that the code reads with. Pure.

``python manifests/crds.py`` in the project's directory writes the files; a test fails when they differ from this.

What the API server lets through and ``speaker.api`` then refuses becomes a condition: IPv6 ranges that run backwards or
around a forbidden block, entries that overlap, an exclusion that excludes nothing. What it refuses and a file may have:
gratuitous times as decimal numbers (write ``1.1s``), leading zeros in a prefix length, and more entries than the limits
below, which keep a rule's cost within what the API server allows.
"""

import dataclasses
from pathlib import Path
from typing import Any, Final, TypeAlias

import cel
import yaml

from speaker.api.eip import (
    INT32,
    MAX_BURST,
    MAX_INTERVAL,
    MAX_PREFERENCES,
    MAX_REFRESH,
    MAX_SELECTORS,
    MAX_WEIGHT,
    MIN_INTERVAL,
    MIN_REFRESH,
    SPEC,
)
from speaker.api.fields import DURATION, LABEL, QUALIFIED
from speaker.api.kinds import MAX_LINE
from speaker.api.reading import EIP
from speaker.api.records import IN_ONE_LINE, LINK, MAC, NODE, REASONS, RIVAL, SERVICE, TIME
from speaker.model import MAX_TERM, Gratuitous, Pool

Schema: TypeAlias = dict[str, Any]

DIRECTORY: Final = Path("manifests/base/crds")

MAX_RANGES = 256
"""Entries of ``addresses``, and of ``exclude``."""
MAX_RANGE_TEXT = 100
"""Two IPv6 addresses written out in full, a '-', and room for spaces."""
MAX_INTERFACE_TEXT = 191
"""Twelve link names of the longest kind."""
MAX_NAMESPACES = 1024
MAX_LABELS = 64
"""Entries of ``matchLabels``, of ``matchExpressions``, and of the ``values`` of one."""
MAX_PREFERRED_LABELS = 16
"""The same in a term of ``nodePreference``, of which there are many."""

_INTEGER: Final[Schema] = {"type": "integer", "format": "int64", "minimum": 0}
_TEXT: Final[Schema] = {"type": "string"}
_TIME: Final[Schema] = {"type": "string", "format": "date-time"}

# ── Eip ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _described(schema: Schema, text: str) -> Schema:
    return {"description": text, **schema}


def _object(properties: dict[str, Schema], **more: Any) -> Schema:
    return {"type": "object", "properties": properties, **more}


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, "x-kubernetes-list-type": "atomic", **more}


def _line() -> Schema:
    """What ``kinds.in_one_line`` makes: a column shows a list as JSON, and of ``[*]`` its first entry."""
    return {"type": "string", "maxLength": MAX_LINE}


def _ranges() -> Schema:
    entry = {"type": "string", "maxLength": MAX_RANGE_TEXT, "x-kubernetes-validations": cel.addresses()}
    spelling = "192.0.2.10, 192.0.2.10-192.0.2.20, 192.0.2.0/28, 192.0.2.0/255.255.255.240, or the same of IPv6."
    return _list(_described(entry, spelling), maxItems=MAX_RANGES)


def _selector(most: int = MAX_LABELS) -> Schema:
    """``most``: entries of each list."""
    value = {"type": "string", "maxLength": 63, "pattern": f"^({QUALIFIED.pattern})?$"}
    expression = _object(
        {
            "key": _described(
                {"type": "string", "maxLength": 317, "x-kubernetes-validations": cel.label_key()}, "Of the label."
            ),
            "operator": _described(
                {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                "What the label's value must be to `values`; the last two take none.",
            ),
            "values": _described(
                _list(_described(value, "Of the label."), maxItems=most), "For In and NotIn: one at least."
            ),
        },
        required=["key", "operator"],
        **{"x-kubernetes-validations": cel.match_expression()},
    )
    labels = {
        "type": "object",
        "additionalProperties": _described({**value, "nullable": True}, "Of the label of that name."),
        "minProperties": 1,
        "maxProperties": most,
        "x-kubernetes-validations": cel.match_labels(),
    }
    expressions = _list(_described(expression, "A rule for one label."), minItems=1, maxItems=most)
    # Empty it would select everything, and what a template makes of nothing is empty.
    return _object(
        {
            "matchLabels": _described(labels, "Labels that must be there with just these values."),
            "matchExpressions": _described(expressions, "Rules for labels, all of which must hold."),
        },
        minProperties=1,
    )


def _preference() -> Schema:
    weight = {"type": "integer", "minimum": 1, "maximum": MAX_WEIGHT}
    term = _selector(MAX_PREFERRED_LABELS)
    properties = {"weight": _described(weight, "How much the nodes that match are preferred."), **term["properties"]}
    either = "has(self.matchLabels) || has(self.matchExpressions)"
    labels = cel.rule(either, "must have matchLabels or matchExpressions")
    whole = _object(properties, required=["weight"], **{"x-kubernetes-validations": [labels]})
    return _list(_described(whole, "Nodes that are preferred."), minItems=1, maxItems=MAX_PREFERENCES)


def _selectors() -> Schema:
    return _list(_described(_selector(), "Any of them may fit."), minItems=1, maxItems=MAX_SELECTORS)


_PLURALS: Final = ("namespaceSelector", "serviceSelector")


def _not_both(name: str) -> Schema:
    return cel.rule(f"!has(self.{name}) || !has(self.{name}s)", f"{name} must be left out beside {name}s")


def _seconds(low: float, high: float, *, or_zero: bool = False) -> Schema:
    return {
        "x-kubernetes-int-or-string": True,
        "maxLength": 32,
        "x-kubernetes-validations": cel.seconds(DURATION.pattern, low, high, or_zero=or_zero),
    }


def _gratuitous() -> Schema:
    default = Gratuitous()
    return _object(
        {
            "burst": _described(
                {"type": "integer", "minimum": 1, "maximum": MAX_BURST},
                f"How many announcements a change of owner brings. Default {default.burst}.",
            ),
            "interval": _described(
                _seconds(MIN_INTERVAL, MAX_INTERVAL),
                f"Between two of them: seconds, or a duration. Default {default.interval:g}s.",
            ),
            "refresh": _described(
                _seconds(MIN_REFRESH, MAX_REFRESH, or_zero=True),
                f"Between two announcements while nothing changes: seconds, or a duration. 0 is never. Default "
                f"{default.refresh:g}.",
            ),
        }
    )


def _eip_spec() -> Schema:
    default = {field.name: field.default for field in dataclasses.fields(Pool)}
    fields: dict[str, Schema] = {
        "addresses": _described(
            {**_ranges(), "minItems": 1},
            "Single addresses, ranges a-b, CIDRs, and IPv4 networks with a netmask. Both families may mix.",
        ),
        "exclude": _described(_ranges(), "Addresses among these that are never given away. Same spellings."),
        "interface": _described(
            {"type": "string", "maxLength": MAX_INTERFACE_TEXT, "x-kubernetes-validations": cel.interface()},
            "The link that announces: names in order of preference, separated by commas, or can_reach:IP for the "
            "link towards that address. Left out: the link whose own subnet holds the address.",
        ),
        "nodeSelector": _described(_selector(), "Nodes that may hold these addresses. Left out: every node."),
        "nodePreference": _described(
            _preference(),
            "Of the nodes that may hold these addresses, those that hold them sooner: the weights of all terms that "
            "match a node add up, and the highest sum goes first. Left out: all nodes are alike.",
        ),
        "failback": _described(
            {"type": "string", "maxLength": 64, "x-kubernetes-validations": cel.failback()},
            "never, or preferred-after and a duration: an address moves to a preferred node that is back for so long. "
            "Default never.",
        ),
        "namespaces": _described(
            _list(
                _described({"type": "string", "maxLength": 63, "pattern": f"^{LABEL.pattern}$"}, "Of a namespace."),
                minItems=1,
                maxItems=MAX_NAMESPACES,
            ),
            "Namespaces whose Services may use the pool, besides those that are selected. Neither: every namespace.",
        ),
        "namespaceSelector": _described(_selector(), "Namespaces whose Services may use the pool, by their labels."),
        "namespaceSelectors": _described(_selectors(), "The same, if any of these fits. Not beside namespaceSelector."),
        "serviceSelector": _described(_selector(), "Services that may use the pool, by their labels."),
        "serviceSelectors": _described(_selectors(), "The same, if any of these fits. Not beside serviceSelector."),
        "perNamespace": _described(
            _object(
                {
                    "max": _described(
                        {"type": "integer", "minimum": 1, "maximum": INT32 - 1},
                        "Addresses of each family. One that several Services share counts once.",
                    )
                },
                required=["max"],
            ),
            "What the Services of one namespace may have of the pool. Left out: any number.",
        ),
        "priority": _described(
            {"type": "integer", "minimum": -INT32, "maximum": INT32 - 1, "default": default["priority"]},
            "Of several pools that fit, the one with the highest number is asked first.",
        ),
        "autoAssign": _described(
            {"type": "boolean", "default": default["auto_assign"]},
            "false: only Services that name the pool, or an address in it, get one.",
        ),
        "avoidNetworkAndBroadcast": _described(
            {"type": "boolean", "default": default["avoid_network_and_broadcast"]},
            "Leave the first and last address of a CIDR alone, and those that end in .0 and .255.",
        ),
        "disabled": _described(
            {"type": "boolean", "default": default["disabled"]}, "Nothing new is assigned; what was assigned stays."
        ),
        "gratuitous": _described(_gratuitous(), "How a change of owner is announced to the neighbours."),
    }
    assert fields.keys() == SPEC  # a field that the code reads and the schema lacks would be pruned in silence
    # A field that is misspelt reaches the policy (``_policy``) and the code, where it would be dropped without a word.
    kept = {"x-kubernetes-preserve-unknown-fields": True}
    return _object(fields, required=["addresses"], **kept, **{"x-kubernetes-validations": [*map(_not_both, _PLURALS)]})


def _use() -> Schema:
    return _object(
        {
            "size": _described(_INTEGER, "Addresses that the pool offers; at most 2^63 - 1 is told."),
            "used": _described(_INTEGER, "Addresses that Services have."),
        }
    )


def _conditions() -> Schema:
    """``metav1.Condition``."""
    condition = _object(
        {
            "type": _described(
                {"type": "string", "maxLength": 316},
                "Ready: whether the pool is in use. Stalled: a mistake, which no waiting mends. NamespacesFull: "
                "whether any has all it may.",
            ),
            "status": _described({"type": "string", "enum": ["True", "False", "Unknown"]}, "Whether that is so."),
            "reason": _described({"type": "string", "minLength": 1, "maxLength": 1024}, "Why, in a word."),
            "message": _described({"type": "string", "maxLength": 32768}, "Why, in a sentence."),
            "lastTransitionTime": _described(_TIME, "Since when `status` is so."),
            "observedGeneration": _described(_INTEGER, "Of the spec that this was said of."),
        },
        required=["type", "status", "reason", "message", "lastTransitionTime"],
    )
    return {
        "type": "array",
        "items": _described(condition, "What is so of the pool, since when and why."),
        "maxItems": 8,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }


_READY: Final = '.status.conditions[?(@.type=="Ready")]'
_PENDING: Final[Schema] = {
    "type": "Ready",
    "status": "Unknown",
    "reason": "Pending",
    "message": "No controller has looked at it yet.",
    "lastTransitionTime": "1970-01-01T00:00:00Z",
}
"""What the API server says of a pool until the controller does, as it does of a Gateway."""


def _eip() -> Schema:
    status = _object(
        {
            "observedGeneration": _described(_INTEGER, "Of the spec that this status was made of."),
            "addressesText": _described(_line(), "`spec.addresses` in one line, for kubectl get."),
            "usedText": _described(_line(), "How many addresses Services have, for kubectl get."),
            "freeText": _described(_line(), "How many they do not have, for kubectl get."),
            "ipv4": _described(_use(), "How many IPv4 addresses there are, and how many Services have."),
            "ipv6": _described(_use(), "How many IPv6 addresses there are, and how many Services have."),
            "conditions": _described(
                _conditions(),
                "Ready: whether the pool is in use, or why not. NamespacesFull: which have perNamespace.max.",
            ),
        },
        default={"conditions": [_PENDING]},
    )
    columns = [
        # The status has the short form, the spec the whole list; the first that is there is shown.
        _column("Addresses", "..['status','spec']['addressesText','addresses']"),
        _column("Used", ".status.usedText"),
        _column("Free", ".status.freeText"),
        _column("Ready", _READY + ".status"),
        _column("Age", ".metadata.creationTimestamp", "date"),
        _column("Interface", ".spec.interface", wide=True),
        _column("Auto", ".spec.autoAssign", "boolean", wide=True),
        _column("Priority", ".spec.priority", "integer", wide=True),
        _column("Disabled", ".spec.disabled", "boolean", wide=True),
        _column("Reason", _READY + ".reason", wide=True),
    ]
    parts = {
        "spec": _described(_eip_spec(), "What is offered, to whom, and where it may be announced."),
        "status": _described(status, "What the controller says of it."),
    }
    schema = _object(parts, required=["spec"])
    about = _described(schema, "A pool: EIPs, and where they may be announced.")
    return _definition("Eip", "eips", about, columns, short=[])


# ── Announcement ──────────────────────────────────────────────────────────────────────────────────────────────

_NAME_RULE = (
    "(isIP(self.metadata.name) && ip(self.metadata.name).family() == 4) || "
    "self.metadata.name.matches('^([0-9a-f]{4}-){7}[0-9a-f]{4}$')"
)


def _text(pattern: str, most: int) -> Schema:
    return {"type": "string", "maxLength": most, "pattern": f"^({pattern})$"}


def _announcement() -> Schema:
    status = _object(
        {
            "holder": _described(_text(f"({NODE})?", 253), "The node that answers for the EIP; '' is none."),
            "incarnation": _described(_INTEGER, "Which start of the holder's agent."),
            "term": _described(
                {
                    **_INTEGER,
                    "maximum": MAX_TERM,  # one above it is from before there was a limit, and has to go
                    "x-kubernetes-validations": [
                        cel.rule(
                            f"self >= oldSelf || oldSelf > {MAX_TERM}",
                            "must never go down: with a lower term a node that lost the EIP could take it back",
                        )
                    ],
                },
                "Raised by every change of holder: the higher term wins.",
            ),
            "link": _described(_text(LINK, 15), "The holder's link that announces."),
            "mac": _described(_text(MAC, 17), "That link's address, which neighbours should have for the EIP."),
            "since": _described(_text(TIME, 35) | _TIME, "When the holder began to answer, by its clock: for people."),
            "services": _described(
                _list(_described(_text(SERVICE, 127), "namespace/name."), maxItems=1024),
                "namespace/name of each Service on the EIP, whether or not anybody holds it.",
            ),
            "servicesText": _described(_text(IN_ONE_LINE, MAX_LINE), "`services` in one line, for kubectl get."),
            "conflict": _described(
                _text(RIVAL, 36), "Who else on the LAN answers for the EIP: MAC and link; left out is nobody."
            ),
            "reason": _described(
                {"type": "string", "enum": [*REASONS]},
                "While nobody holds the EIP: why the node that had it last let it go.",
            ),
            "takenFrom": _described(_text(NODE, 253), "The node that had it before and fell silent, where one did."),
            "unansweredMilliseconds": _described(
                {"type": "integer", "format": "int32", "minimum": 0},
                "From the last sign of that node until the holder answered; left out is no failover.",
            ),
        },
        **{
            "x-kubernetes-validations": [
                cel.rule("!has(oldSelf.term) || has(self.term)", "term must never be taken away: it must never go down")
            ]
        },
    )
    columns = [
        _column("Holder", ".status.holder"),
        _column("Link", ".status.link"),
        _column("MAC", ".status.mac"),
        _column("Services", ".status.servicesText"),
        _column("Since", ".status.since", "date"),
        _column("Conflict", ".status.conflict"),
        _column("Reason", ".status.reason"),
        _column("Term", ".status.term", "integer", wide=True),
    ]
    rules = [
        cel.rule(
            _NAME_RULE,
            "metadata.name must be the EIP: an IPv4 address, or an IPv6 address written out in full with '-' for ':', "
            "such as 2001-0db8-0000-0000-0000-0000-0000-0010",
        ),
        cel.rule("!has(oldSelf.status) || has(self.status)", "status must never be taken away: it holds the term"),
    ]
    told = {"status": _described(status, "Who holds it, as who holds it says.")}
    schema = _object(told, **{"x-kubernetes-validations": rules})
    about = "Which node answers for one EIP. Written by the agents; the name is the address."
    return _definition("Announcement", "announcements", _described(schema, about), columns, apart={}, short=["ann"])


# ── Both ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _column(name: str, path: str, kind: str = "string", *, wide: bool = False) -> Schema:
    # Priority 0 is shown always, above only with `-o wide`.
    return {"name": name, "type": kind, "jsonPath": path, **({"priority": 1} if wide else {})}


_STATUS: Schema = {"subresources": {"status": {}}}
"""Written apart from the rest, by others."""


_CATEGORY: Final = "eip-speaker"
"""``kubectl get eip-speaker`` shows all that there is of ours."""


def _definition(
    kind: str, plural: str, schema: Schema, columns: list[Schema], *, short: list[str], apart: Schema = _STATUS
) -> Schema:
    group, version = EIP[0].split("/")
    own = {
        "apiVersion": _described(_TEXT, f"{group}/{version}."),
        "kind": _described(_TEXT, f"{kind}."),
        "metadata": {"type": "object"},  # the API server describes it
    }
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {**names, "categories": [_CATEGORY], **({"shortNames": short} if short else {})},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    **apart,
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": {**schema, "properties": {**own, **schema["properties"]}}},
                }
            ],
        },
    }


# ── What no schema says ───────────────────────────────────────────────────────────────────────────────────────

_POLICY: Final = "eip-speaker-pool-fields"
_LIKE_IT: Final = (
    "variables.known.filter(f, f.size() - k.size() < 3 && k.size() - f.size() < 3 && variables.places.exists(i, "
    "i <= k.size() && f.lowerAscii().startsWith(k.lowerAscii().substring(0, i)) && [0, 1, 2].exists(n, "
    "i + n <= k.size() && f.lowerAscii().endsWith(k.lowerAscii().substring(i + n)))))"
)
"""Known fields that are ``k`` but for two letters next to each other at most."""
_LONGER: Final = "variables.known.filter(f, f.lowerAscii().startsWith(k.lowerAscii()))"
_BEGUN_LIKE_IT: Final = _LONGER.replace(
    "(k.lowerAscii())", "(k.lowerAscii().substring(0, k.size() < 4 ? k.size() : 4))"
)
_HINT: Final = (
    f"variables.unknown.map(k, 'spec.' + k + ' is not a field of an Eip: ' + ({_LONGER} + {_LIKE_IT} + "
    f"{_BEGUN_LIKE_IT} + "
    "[''])[0]).map(m, m.endsWith(': ') ? m + 'known are ' + variables.known.join(', ') : "
    "m.replace(': ', ': did you mean ') + '?').join('; ')"
)


def _policy() -> Schema:
    """Refuses fields of a pool that there are not, with the one that was meant."""
    rules = {"apiGroups": ["eip-speaker.io"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"]}
    # What was stored before there was this policy may still be written: its finalizer has to go.
    changed = "oldObject == null || object.spec != oldObject.spec"
    names = ", ".join(f"'{name}'" for name in _eip_spec()["properties"])
    unknown = "dyn(object.spec).filter(k, !(k in variables.known)).map(k, k.size() > 64 ? k.substring(0, 64) : k)"
    variables = {"known": f"[{names}]", "places": str([*range(26)]), "unknown": unknown}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{**rules, "resources": ["eips"], "scope": "*"}]},
        "matchConditions": [{"name": "changed", "expression": changed}],
        "variables": [{"name": name, "expression": text} for name, text in variables.items()],
        "validations": [{"expression": "variables.unknown.size() == 0", "messageExpression": _HINT}],
    }
    return _admission("ValidatingAdmissionPolicy", spec)


def _binding() -> Schema:
    return _admission("ValidatingAdmissionPolicyBinding", {"policyName": _POLICY, "validationActions": ["Deny"]})


def _admission(kind: str, spec: Schema) -> Schema:
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": _POLICY}}
    return {**head, "spec": spec}


def definitions() -> dict[str, Schema]:
    """File name → CustomResourceDefinition."""
    return {"eips.yaml": _eip(), "announcements.yaml": _announcement()}


def admission() -> dict[str, Schema]:
    """File name → what is asked besides the schema."""
    return {"pool-fields.yaml": _policy(), "pool-fields-binding.yaml": _binding()}


class _Plain(yaml.SafeDumper):
    """Writes a value that occurs twice twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def files() -> dict[str, str]:
    """File name → its text."""
    head = "# Made by `python manifests/crds.py`: change manifests/crds.py instead.\n"
    return {
        name: head + yaml.dump(data, Dumper=_Plain, sort_keys=False, width=120)
        for name, data in (definitions() | admission()).items()
    }


if __name__ == "__main__":
    for name, text in files().items():
        (DIRECTORY / name).write_text(text)
