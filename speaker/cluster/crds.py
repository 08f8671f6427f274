"""The CustomResourceDefinitions, made from the definitions that the code reads with. Pure.

``python -m speaker.cluster.crds`` in the project's directory writes the files; a test fails when they differ from this.

What the API server lets through and ``speaker.api`` then refuses becomes a condition: IPv6 ranges that run backwards or
around a forbidden block, entries that overlap, an exclusion that excludes nothing. What it refuses and a file may have:
gratuitous times as decimal numbers (write ``1.1s``), leading zeros in a prefix length, and more entries than the limits
below, which keep a rule's cost within what the API server allows.
"""

import dataclasses
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from speaker.api.eip import INT32, MAX_BURST, MAX_INTERVAL, MAX_REFRESH, MIN_INTERVAL, MIN_REFRESH, SPEC
from speaker.api.fields import DURATION
from speaker.api.metadata import LABEL, QUALIFIED
from speaker.api.world import EIP
from speaker.cluster import cel
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


def _ranges() -> Schema:
    entry = {"type": "string", "maxLength": MAX_RANGE_TEXT, "x-kubernetes-validations": cel.addresses()}
    return _list(entry, maxItems=MAX_RANGES)


def _selector() -> Schema:
    value = {"type": "string", "maxLength": 63, "pattern": f"^({QUALIFIED.pattern})?$"}
    expression = _object(
        {
            "key": {"type": "string", "maxLength": 317, "x-kubernetes-validations": cel.label_key()},
            "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
            "values": _list(value, maxItems=MAX_LABELS),
        },
        required=["key", "operator"],
        **{"x-kubernetes-validations": cel.match_expression()},
    )
    labels = {
        "type": "object",
        "additionalProperties": {**value, "nullable": True},
        "minProperties": 1,
        "maxProperties": MAX_LABELS,
        "x-kubernetes-validations": cel.match_labels(),
    }
    expressions = _list(expression, minItems=1, maxItems=MAX_LABELS)
    # Empty it would select everything, and what a template makes of nothing is empty.
    return _object({"matchLabels": labels, "matchExpressions": expressions}, minProperties=1)


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
        "namespaces": _described(
            _list(
                {"type": "string", "maxLength": 63, "pattern": f"^{LABEL.pattern}$"},
                minItems=1,
                maxItems=MAX_NAMESPACES,
            ),
            "Namespaces whose Services may use the pool, besides those of namespaceSelector. Neither: every namespace.",
        ),
        "namespaceSelector": _described(_selector(), "Namespaces whose Services may use the pool, by their labels."),
        "serviceSelector": _described(_selector(), "Services that may use the pool, by their labels."),
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
    return _object(fields, required=["addresses"])


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
            "type": {"type": "string", "maxLength": 316},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
            "message": {"type": "string", "maxLength": 32768},
            "lastTransitionTime": _TIME,
            "observedGeneration": _INTEGER,
        },
        required=["type", "status", "reason", "message", "lastTransitionTime"],
    )
    return {
        "type": "array",
        "items": condition,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }


def _eip() -> Schema:
    status = _object(
        {
            "observedGeneration": _INTEGER,
            "ipv4": _use(),
            "ipv6": _use(),
            "conditions": _conditions(),
        }
    )
    columns = [
        _column("Addresses", ".spec.addresses"),
        _column("Interface", ".spec.interface"),
        _column("IPv4 used", ".status.ipv4.used", "integer"),
        _column("IPv4 size", ".status.ipv4.size", "integer"),
        _column("IPv6 used", ".status.ipv6.used", "integer"),
        _column("IPv6 size", ".status.ipv6.size", "integer"),
        _column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        _column("Age", ".metadata.creationTimestamp", "date"),
        _column("Auto", ".spec.autoAssign", "boolean", wide=True),
        _column("Priority", ".spec.priority", "integer", wide=True),
        _column("Disabled", ".spec.disabled", "boolean", wide=True),
        _column("Reason", '.status.conditions[?(@.type=="Ready")].reason', wide=True),
    ]
    schema = _object({"spec": _eip_spec(), "status": status}, required=["spec"])
    return _definition("Eip", "eips", _described(schema, "A pool: EIPs, and where they may be announced."), columns)


# ── Announcement ──────────────────────────────────────────────────────────────────────────────────────────────

_NAME_RULE = (
    "(isIP(self.metadata.name) && ip(self.metadata.name).family() == 4) || "
    "self.metadata.name.matches('^([0-9a-f]{4}-){7}[0-9a-f]{4}$')"
)


def _announcement() -> Schema:
    mac = {"type": "string", "pattern": "^([0-9a-f]{2}:){5}[0-9a-f]{2}$"}
    status = _object(
        {
            "holder": _described(
                {"type": "string", "maxLength": 253}, "The node that answers for the EIP; '' is none."
            ),
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
            "link": _described({"type": "string", "maxLength": 15}, "The holder's link that announces."),
            "mac": _described(mac, "That link's address, which neighbours should have for the EIP."),
            "since": _described(_TIME, "When the holder began to answer, by its clock: for people."),
            "services": _described(
                _list({"type": "string", "maxLength": 127}, maxItems=1024), "namespace/name of each Service on the EIP."
            ),
            "conflict": _described(
                {"type": "string", "maxLength": 1024}, "Who else on the LAN answers for the EIP; left out is nobody."
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
        _column("Services", ".status.services"),
        _column("Since", ".status.since", "date"),
        _column("Conflict", ".status.conflict"),
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
    schema = _object({"status": status}, **{"x-kubernetes-validations": rules})
    about = "Which node answers for one EIP. Written by the agents; the name is the address."
    return _definition("Announcement", "announcements", _described(schema, about), columns, apart={})


# ── Both ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _column(name: str, path: str, kind: str = "string", *, wide: bool = False) -> Schema:
    # Priority 0 is shown always, above only with `-o wide`.
    return {"name": name, "type": kind, "jsonPath": path, **({"priority": 1} if wide else {})}


_STATUS: Schema = {"subresources": {"status": {}}}
"""Written apart from the rest, by others."""


def _definition(kind: str, plural: str, schema: Schema, columns: list[Schema], *, apart: Schema = _STATUS) -> Schema:
    group, version = EIP[0].split("/")
    own = {
        "apiVersion": _TEXT,
        "kind": _TEXT,
        "metadata": {"type": "object"},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
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


def definitions() -> dict[str, Schema]:
    """File name → CustomResourceDefinition."""
    return {"eips.yaml": _eip(), "announcements.yaml": _announcement()}


class _Plain(yaml.SafeDumper):
    """Writes a value that occurs twice twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def files() -> dict[str, str]:
    """File name → its text."""
    head = "# Made by `python -m speaker.cluster.crds`: change speaker/cluster/crds.py instead.\n"
    return {
        name: head + yaml.dump(data, Dumper=_Plain, sort_keys=False, width=120) for name, data in definitions().items()
    }


if __name__ == "__main__":
    for name, text in files().items():
        (DIRECTORY / name).write_text(text)
