"""The schema of the chart's values, made of chart/values.yaml.

    python manifests/chart_values.py        writes chart/values.schema.json anew

What a value may be is in ``RULES``. Fields of pods are as Kubernetes ``OLDEST`` has them (the package
kubernetes-validate, which only this command needs), so that a typo in a toleration is refused as well.
"""

import json
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml
from render import MANIFESTS, OVERLAYS, RULES_OF_ALERTS, THRESHOLDS

CHART = MANIFESTS / "chart"
OLDEST = "1.32.0"


Schema = dict[str, Any]

_LABEL = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}
_NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"}
_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
_DURATION = {"type": "string", "pattern": "^([0-9]+(ms|[smhdwy]))*$"}
_WORDS = {"type": "object", "additionalProperties": {"type": "string"}}
_OURS = {"propertyNames": {"not": {"pattern": "^app\\.kubernetes\\.io/(name|component|part-of)$"}}}
_BIND = {"type": "string", "pattern": "^(|(\\[[0-9a-fA-F:]+\\]|[0-9.]+|\\$\\([A-Z_]+\\)):[0-9]+)$"}
_IMAGE: dict[str, Schema] = {
    "registry": {"type": "string", "pattern": "^([a-zA-Z0-9.-]+(:[0-9]+)?)?$"},
    "repository": {"type": "string", "pattern": "^[a-z0-9]+([._/-]+[a-z0-9]+)*$"},
    "tag": {"type": "string", "pattern": "^([a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?$"},
    "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "pullPolicy": {"enum": ["", "Always", "IfNotPresent", "Never"]},
}
_RELABELING: dict[str, Schema] = {
    "action": {"type": "string"},
    "modulus": {"type": "integer"},
    "sourceLabels": {"type": "array", "items": {"type": "string"}},
    **{each: {"type": "string"} for each in ("regex", "replacement", "separator", "targetLabel")},
}


def _only(properties: dict[str, Schema]) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _kubernetes(kind: str) -> Schema:
    return {"$ref": f"#/definitions/{kind}"}


RULES: dict[str, Schema] = {
    **{f"image.{field}": rule for field, rule in _IMAGE.items()},
    "*.image": _only(_IMAGE),
    "*imagePullSecrets": _list(_kubernetes("io.k8s.api.core.v1.LocalObjectReference")),
    "namespaces.c*r": _LABEL,
    "namespaces.agents": _LABEL,
    "forwarder": {"enum": ["none", *(each for each in OVERLAYS if each != "default")]},
    "key.existingSecret": {**_NAME, "pattern": f"^$|{_NAME['pattern']}"},
    "mqtt.secret": _NAME,
    "mqtt.port": _PORT,
    "networkPolicy.apiPorts": {**_list(_PORT), "minItems": 1},  # none would be every port
    "*.interval": _DURATION,
    "*.scrapeTimeout": _DURATION,
    "*elabelings": _list(_only(_RELABELING)),
    "prometheusRule.runbookUrl": {"type": "string", "pattern": "^https?://[^\\s\"'#]+$"},
    "agent.group": {**_LABEL, "pattern": f"^$|{_LABEL['pattern']}"},
    "agent.hello": {"type": "integer", "minimum": 20, "maximum": 1000},
    "agent.responder": {"enum": ["", "socket", "auto", "kernel"]},
    "agent.metricsPort": _PORT,
    "controller.replicas": {"type": "integer", "minimum": 0},
    "controller.honourAnnotations": _list({"enum": ["metallb", "cilium", "kube-vip", "openelb", "purelb"]}),
    "*.name": _NAME,
    "*.resources": _kubernetes("io.k8s.api.core.v1.ResourceRequirements"),
    "*.tolerations": _list(_kubernetes("io.k8s.api.core.v1.Toleration")),
    "*.affinity": _kubernetes("io.k8s.api.core.v1.Affinity"),
    "*.topologySpreadConstraints": _list(_kubernetes("io.k8s.api.core.v1.TopologySpreadConstraint")),
    "*.env": _list(_kubernetes("io.k8s.api.core.v1.EnvVar")),
    "*.updateStrategy": _kubernetes("io.k8s.api.apps.v1.DaemonSetUpdateStrategy"),
    "*.strategy": _kubernetes("io.k8s.api.apps.v1.DeploymentStrategy"),
    "*.priorityClassName": {"type": "string"},
    "*.nodeSelector": _WORDS,
    "*.labels": {**_WORDS, **_OURS},
    "*.podLabels": {**_WORDS, **_OURS},
    "*nnotations": _WORDS,
    "*.logLevel": {"enum": ["debug", "info", "warning", "error"]},
    "*.page": _BIND,
    "*.args": _list({"type": "string", "pattern": "^--[a-z]"}),
}
"""By a path's pattern, of which the first counts. A boolean needs none."""


# ── The schema ──


def schema() -> Schema:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    found = _of("", values)
    found["properties"]["global"] = {"type": "object"}  # Helm gives it to every chart
    found["properties"]["prometheusRule"]["properties"]["alerts"] = _alerts()
    wanted = set(re.findall(r'"#/definitions/([^"]+)"', json.dumps(found)))
    return {"$schema": "http://json-schema.org/draft-07/schema#", **found, "definitions": _definitions(wanted)}


def _of(path: str, value: Any) -> Schema:
    for pattern, rule in RULES.items():
        if fnmatch(path, pattern):
            return rule
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, dict) and value:
        found = _only({name: _of(f"{path}.{name}".lstrip("."), each) for name, each in value.items()})
        return {
            **found,
            "required": sorted(name for name, each in value.items() if _needed(f"{path}.{name}".lstrip("."), each)),
        }
    if path == "prometheusRule.alerts":
        return {}
    raise SystemExit(f"chart/values.yaml: {path}: no rule says what it may be")


def _needed(path: str, value: Any) -> bool:
    """Most lists and mappings may be taken away with null, which leaves their field out."""
    if path.endswith(("image", "apiPorts", "alerts")) or not isinstance(value, list | dict):
        return True
    return bool(value) and not any(fnmatch(path, pattern) for pattern in RULES)


def _alerts() -> Schema:
    """Of each alert its switch, how long it waits, how severe it is and, where it compares with a number, that."""
    common = {"enabled": {"type": "boolean"}, "for": _DURATION, "severity": {"type": "string", "pattern": "^[a-z]+$"}}
    limit = {"threshold": {"type": "number", "minimum": 0}}
    return _only({alert: _only({**common, **(limit if alert in THRESHOLDS else {})}) for alert in RULES_OF_ALERTS})


def _definitions(wanted: set[str]) -> dict[str, Schema]:
    import kubernetes_validate  # a development dependency, and slow

    place = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{OLDEST}-local-strict"
    known = json.loads((place / "_definitions.json").read_text())["$defs"]
    found: dict[str, Schema] = {}
    while missing := sorted(wanted - found.keys()):
        for name in missing:
            found[name] = _strict(known[name])
        wanted |= set(re.findall(r'"#/definitions/([^"]+)"', json.dumps(found)))
    return dict(sorted(found.items()))


_KEPT = ("type", "items", "properties", "required", "additionalProperties", "$ref", "enum", "oneOf", "anyOf")


def _strict(known: Schema) -> Schema:
    """Without descriptions, and without fields that Kubernetes does not have."""
    found = {name: known[name] for name in _KEPT if name in known}
    if "properties" in found:
        found["properties"] = {name: _strict(each) for name, each in found["properties"].items()}
        found.setdefault("additionalProperties", False)
    for inner in ("items", "additionalProperties"):
        if isinstance(found.get(inner), dict):
            found[inner] = _strict(found[inner])
    if "$ref" in found:
        found["$ref"] = f"#/definitions/{found['$ref'].rpartition('/')[2]}"
    return found


def main() -> None:
    (CHART / "values.schema.json").write_text(json.dumps(schema(), indent=1) + "\n")


if __name__ == "__main__":
    main()
