"""What goes into a cluster, made of base/, overlays/ and components/ by kustomize, which is in kubectl.

    python manifests/render.py files IMAGE DIRECTORY [COMPONENT ...]     a file for each overlay, and one that cleans up
                                                                         behind them, for `kubectl apply -f`
    python manifests/render.py chart IMAGE DIRECTORY                     a Helm chart of them all, and its archive
    python manifests/render.py alerts                                    components/alerts anew, of alerts/rules.yaml

Every component and every overlay is a value of the chart: the lines that it changes stand under its condition. What
else a user may set (``_opened``) stands where the base has its default. chart/values.yaml repeats those defaults, and a
test compares the two.
"""

import argparse
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from speaker import __version__

MANIFESTS = Path(__file__).resolve().parent
OVERLAYS = tuple(sorted(each.name for each in (MANIFESTS / "overlays").iterdir()))
COMPONENTS = tuple(sorted(each.name for each in (MANIFESTS / "components").iterdir()))
DEFAULT = "default"
"""The overlay that the others are told from: its forwarder is `none`."""
CLEANUP = "cleanup"
"""Behind an overlay that is gone, not beside one."""
UNNAMED = "eip-speaker:dev"
"""The image as overlays/ and chart/values.yaml name it."""
NAME = "eip-speaker"
FIELDS = "eip-speaker-pool-fields"
"""The policy that comes with the definitions."""


def kustomized(kubectl: str, overlay: str, components: Iterable[str] = (), **more: Any) -> str:
    """The YAML that a kustomization of these comes to, or of ``CLEANUP``; ``more``: other fields of it."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made).resolve()

        def at(*parts: str) -> str:
            return os.path.relpath(MANIFESTS.joinpath(*parts), place)

        kustomization = {
            "resources": [at(overlay) if overlay == CLEANUP else at("overlays", overlay)],
            "components": [at("components", each) for each in components],
            **more,
        }
        (place / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        done = subprocess.run([kubectl, "kustomize", place], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"kubectl kustomize: {done.stderr.strip()}")
    return done.stdout


# ── The alerts ──

RULES = MANIFESTS / "alerts" / "rules.yaml"
PROMETHEUS_RULE = MANIFESTS / "components" / "alerts" / "prometheusrule.yaml"


def prometheus_rule() -> str:
    """The alerts of ``RULES`` as the Prometheus operator reads them."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": NAME, "namespace": NAME, "labels": {"app.kubernetes.io/name": NAME}},
        "spec": {"groups": groups},
    }
    head = "# Made by `python manifests/render.py alerts` of alerts/rules.yaml: change that.\n"
    return head + yaml.safe_dump(rule, sort_keys=False, width=120)


# ── A file ──


def image_of(reference: str) -> dict[str, str]:
    """An entry of ``images``. Raises SystemExit where it has neither tag nor digest: it would be another every day."""
    name, _, digest = reference.partition("@")
    if digest:
        return {"name": NAME, "newName": name, "digest": digest}
    name, colon, tag = reference.rpartition(":")
    if not colon or "/" in tag:
        raise SystemExit(f"{reference}: must be NAME:TAG or NAME@DIGEST")
    return {"name": NAME, "newName": name, "newTag": tag}


def rendered(kubectl: str, overlay: str, components: Sequence[str], image: str) -> str:
    """All objects of an installation, in an order in which they can be applied."""
    first = overlay if overlay == CLEANUP else f"overlay {overlay}"
    made_of = " and ".join((first, *(f"component {each}" for each in components)))
    head = f"# speaker {__version__}: {made_of}. Made by `make rendered`.\n"
    return head + kustomized(kubectl, overlay, components, images=[image_of(image)])


# ── A chart ──

WORKLOADS = {"agent": "DaemonSet", "controller": "Deployment"}
CONDITIONS = {
    "alerts": ".Values.prometheusRule.enabled",
    "dashboard": ".Values.dashboard.enabled",
    "make-key": "and .Values.key.create (not .Values.key.existingSecret)",
    "mark-pods-not-ready": ".Values.markPodsNotReady",
    "metrics": "or .Values.metrics.enabled .Values.podMonitor.enabled .Values.serviceMonitor.enabled",
    "mqtt": ".Values.mqtt.enabled",
    "pod-monitor": ".Values.podMonitor.enabled",
    "realtime": ".Values.realtime",
    "service-monitor": ".Values.serviceMonitor.enabled",
}
"""By which values the chart has a component."""


class Threshold(NamedTuple):
    number: float
    place: str
    """In the alert's expression, with ``{}`` for the number."""


THRESHOLDS = {
    "EipFlapping": Threshold(3, "> {}"),
    "PoolNearlyFull": Threshold(0.9, "> {}"),
    "PoolFullSoon": Threshold(0.5, "> {}"),
    "ServicesWithoutEip": Threshold(0, "> {}"),
    "SpeakerLost": Threshold(0, "> {}"),
    "HellosLost": Threshold(0.8, "{} *"),
    "ObjectsWithoutRoom": Threshold(0, "> {}"),
    "ConntrackNearlyFull": Threshold(0.8, "> {}"),
}
RUNBOOKS = "https://github.com/REPOSITORY/blob/main/docs/runbooks.md"
RULES_OF_ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}
_END = "{{- end }}"


def chart(kubectl: str, image: str) -> Iterator[tuple[str, str]]:
    """Its files: path and text."""
    for file in sorted((MANIFESTS / "chart").iterdir()):
        text = file.read_text()
        if file.name == "Chart.yaml":
            text += f"version: {__version__}\nappVersion: {__version__}\n"
        if file.name == "values.yaml":
            for field, value in image_values(image).items():
                text = re.sub(rf"(?m)^  {field}: .*$", f"  {field}: {json.dumps(value)}", text, count=1)
        yield ("templates/" if file.name in ("_helpers.tpl", "checks.yaml", "NOTES.txt") else "") + file.name, text
    variants = [
        (f'if eq .Values.forwarder "{overlay}"', _documents(kustomized(kubectl, overlay)))
        for overlay in OVERLAYS
        if overlay != DEFAULT
    ]
    variants += [(f"if {CONDITIONS[each]}", _documents(kustomized(kubectl, DEFAULT, [each]))) for each in COMPONENTS]
    plain = _documents(kustomized(kubectl, DEFAULT))
    for name in dict.fromkeys((*plain, *(each for _, documents in variants for each in documents))):
        changed = [(opening, documents[name]) for opening, documents in variants if name in documents]
        if name in plain:
            lines = _under_conditions(plain[name], changed)
        else:
            ((opening, added),) = changed
            lines = iter([f"«- {opening}»", *added, "«- end»"])
        yield f"templates/{name}.yaml", "".join(f"{line}\n" for each in lines for line in _template(each))


def image_values(reference: str) -> dict[str, str]:
    """An image as chart/values.yaml has it."""
    found = image_of(reference)
    name, tag = found["newName"], found.get("newTag", "")
    if "digest" in found and ":" in name.rpartition("/")[2]:
        name, _, tag = name.rpartition(":")
    registry, slash, repository = name.partition("/")
    if not slash or not re.search(r"[.:]|^localhost$", registry):
        registry, repository = "", name
    return {"registry": registry, "repository": repository, "tag": tag, "digest": found.get("digest", "")}


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as such."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _Dumper.represent_text)


def _documents(text: str) -> dict[str, list[str]]:
    """Kind and name → lines, with marks where a template is to have what a user sets (``_template``)."""
    found: dict[str, list[str]] = {}
    for document in text.split("\n---\n"):
        name, lines = _named_lines(document)
        if name in found:
            raise SystemExit(f"two are named {name}: the chart has a file for each")
        found[name] = lines
    return found


@cache
def _named_lines(text: str) -> tuple[str, list[str]]:
    document = yaml.load(text, Loader=yaml.CSafeLoader)
    opened = _opened(document)
    lines = yaml.dump(opened, Dumper=_Dumper, sort_keys=False, width=10**9, allow_unicode=True).splitlines()
    condition = _condition(opened)
    name = f"{document['kind']}-{document['metadata']['name']}".lower()
    return name, [f"«- if {condition}»", *lines, "«- end»"] if condition else lines


def _condition(opened: dict[str, Any]) -> str:
    """Of the whole object."""
    match opened["kind"]:
        case "CustomResourceDefinition":
            return ".Values.crds.enabled"
        case "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding" if opened["metadata"]["name"] == FIELDS:
            return ".Values.crds.enabled"
        case "NetworkPolicy":
            return ".Values.networkPolicy.enabled"
        case "Namespace":
            # One that `helm install --create-namespace` made cannot be made again.
            return f"and .Values.namespaces.create (ne .Release.Namespace {opened['metadata']['name'].strip('«»')})"
    return ""


def _template(line: str) -> Iterator[str]:
    """What stands in a template for a line with marks: «with X» for a field that is left out if X is empty, «value X»
    the same in one line, «more X» for what is added to a list or a mapping, «if X» for what depends on X, «- X» for a
    line of its own. Everywhere else «X» is X's value."""
    indent, item, rest = re.fullmatch(r"( *)((?:- )*)(.*)", line).groups()  # type: ignore[union-attr]
    depth = len(indent)
    if found := re.fullmatch(r"«- (.*)»", rest):
        yield f"{{{{- {found[1]} }}}}"
    elif found := re.fullmatch(r"«more (.*)»(?:: '')?", rest):
        yield f"{{{{- with {found[1]} }}}}"
        yield f"{{{{- toYaml . | nindent {depth} }}}}"
        yield _END
    elif found := re.fullmatch(r"(\S+: )«(with|value) (.*)»", rest):
        field, how, value = found.groups()
        yield f"{{{{- with {value} }}}}"
        yield f"{indent}{item}{field}{{{{ toYaml . }}}}" if how == "value" else f"{indent}{field.strip()}"
        if how == "with":
            yield f"{indent}  {{{{- toYaml . | nindent {depth + 2} }}}}"
        yield _END
    elif found := re.fullmatch(r"«if (.*?)»(.*)", rest):
        yield f"{{{{- if {found[1]} }}}}"
        yield _inline(f"{indent}{item}{found[2]}")
        yield _END
    else:
        yield _inline(line)


def _inline(line: str) -> str:
    """What has braces already is for others, as Prometheus' labels."""
    return re.sub(r"«(.*?)»", r"{{ \1 }}", line.replace("{{", '{{ "{{" }}'))


# ── What a user may set ──

_PLACES = {
    ("namespace", "eip-speaker"): "«.Values.namespaces.controller»",
    ("namespace", "eip-speaker-agents"): "«.Values.namespaces.agents»",
    ("secretName", "eip-speaker-key"): '«.Values.key.existingSecret | default "eip-speaker-key"»',
    ("secretName", "eip-speaker-mqtt"): "«.Values.mqtt.secret»",
    ("name", "eip-speaker-mqtt"): "«.Values.mqtt.secret»",
    ("port", 8883): "«int .Values.mqtt.port»",
    ("mountPath", "/run/eip-speaker"): "/run/eip-speaker«with .Values.agent.group»-«.»«end»",
    ("path", "/run/eip-speaker"): "/run/eip-speaker«with .Values.agent.group»-«.»«end»",
}
"""Key and value, wherever they stand in an object, and what stands there instead of the value."""
_ACCOUNTS = {
    f"system:serviceaccount:{NAME}:": "system:serviceaccount:«.Values.namespaces.controller»:",
    f"system:serviceaccount:{NAME}-agents:": "system:serviceaccount:«.Values.namespaces.agents»:",
}
_HONOURED = ".Values.controller.honourAnnotations"
_IN_KERNEL = 'and (eq .Values.forwarder "none") (has .Values.agent.responder (list "auto" "kernel"))'
"""What the other overlays have anyway."""
_USUAL_RESPONDER = '(ternary "socket" "auto" (eq .Values.forwarder "none"))'
_RESPONDER = f"--responder=«.Values.agent.responder | default {_USUAL_RESPONDER}»"
_FLAGS = {
    "agent": [
        ("ne (int .Values.agent.hello) 100", "--hello=«int .Values.agent.hello»"),
        (".Values.agent.group", "--group=«.Values.agent.group»"),
        (".Values.defaultClass", "--default-class"),
        (".Values.agent.ignoreExcludeLabel", "--ignore-exclude-label"),
        (".Values.agent.page", "--page=«.Values.agent.page»"),
        ('ne .Values.agent.logLevel "info"', "--log-level=«.Values.agent.logLevel»"),
    ],
    "controller": [
        ('ne .Values.namespaces.agents "eip-speaker-agents"', "--agents-namespace=«.Values.namespaces.agents»"),
        (".Values.defaultClass", "--default-class"),
        (
            ".Values.controller.honourAnnotations",
            '--honour-annotations=«join "," .Values.controller.honourAnnotations»',
        ),
        (".Values.controller.page", "--page=«.Values.controller.page»"),
        ('ne .Values.controller.logLevel "info"', "--log-level=«.Values.controller.logLevel»"),
    ],
}
"""Condition and flag; in the place of the base's, if that has one."""


def _opened(document: dict[str, Any]) -> dict[str, Any]:
    """With marks where a user may set something."""
    document = _placed(document, "")
    metadata = document["metadata"]
    match document["kind"]:
        case "Namespace":
            metadata["name"] = _PLACES["namespace", metadata["name"]]
        case "CustomResourceDefinition":
            # With the definition go the pools; and while a Service has an EIP, a pool cannot go.
            metadata.setdefault("annotations", {})["«if .Values.crds.keep»helm.sh/resource-policy"] = "keep"
        case "NetworkPolicy":
            (rule,) = document["spec"]["egress"]
            rule["ports"] = ['«- include "eip-speaker.ports" . | nindent 4»', *rule["ports"][2:]]
        case "PodMonitor":
            _monitor(document, ".Values.podMonitor", document["spec"]["podMetricsEndpoints"])
        case "ServiceMonitor":
            _monitor(document, ".Values.serviceMonitor", document["spec"]["endpoints"])
        case "ConfigMap":
            del metadata["labels"]["grafana_dashboard"]
            _told(metadata, ".Values.dashboard")
        case "PrometheusRule":
            _told(metadata, ".Values.prometheusRule")
            for group in document["spec"]["groups"]:
                group["rules"] = [part for rule in group["rules"] for part in _alert(rule)]
        case kind:
            for name in WORKLOADS:
                if kind == WORKLOADS[name]:
                    _workload(document, name)
    return document


def _placed(value: Any, key: str) -> Any:
    match value:
        case dict():
            return {name: _placed(each, name) for name, each in value.items()}
        case list():
            return [_placed(each, "") for each in value]
        case str():
            for account, mark in _ACCOUNTS.items():
                value = value.replace(account, mark)
    return _PLACES.get((key, value), value)


def _told(metadata: dict[str, Any], values: str) -> None:
    metadata.setdefault("labels", {})[f"«more {values}.labels»"] = ""
    metadata["annotations"] = f"«with {values}.annotations»"


def _monitor(document: dict[str, Any], values: str, endpoints: list[dict[str, Any]]) -> None:
    _told(document["metadata"], values)
    for endpoint in endpoints:
        endpoint |= {field: f"«value {values}.{field}»" for field in ("interval", "scrapeTimeout")}
        endpoint |= {field: f"«with {values}.{field}»" for field in ("relabelings", "metricRelabelings")}


def _alert(rule: dict[str, Any]) -> Iterator[Any]:
    name, severity = rule["alert"], rule["labels"]["severity"]

    def settable(field: str, default: object) -> str:
        return f'dig "{name}" "{field}" {json.dumps(default)} .Values.prometheusRule.alerts'

    if name in THRESHOLDS:
        number, place = THRESHOLDS[name]
        if place.format(number) not in rule["expr"]:
            raise SystemExit(f"{name}: {place.format(number)} is not in its expression")
        rule["expr"] = rule["expr"].replace(place.format(number), place.format(f"«{settable('threshold', number)}»"))
    rule["for"] = f"«value {settable('for', rule.get('for', ''))}»"
    rule["labels"]["severity"] = f"«{settable('severity', severity)}»"
    url = rule["annotations"]["runbook_url"]
    rule["annotations"]["runbook_url"] = url.replace(RUNBOOKS, "«.Values.prometheusRule.runbookUrl»")
    yield f"«- if {settable('enabled', True)}»"
    yield rule
    yield "«- end»"


def _workload(document: dict[str, Any], who: str) -> None:
    values = f".Values.{who}"
    spec, template = document["spec"], document["spec"]["template"]
    pod, (container,) = template["spec"], template["spec"]["containers"]
    document["metadata"]["name"] = f"«{values}.name»"
    _told(document["metadata"], values)
    template["metadata"]["labels"][f"«more {values}.podLabels»"] = ""
    template["metadata"]["annotations"] = f"«with {values}.podAnnotations»"
    pod |= {field: f"«with {values}.{field}»" for field in ("nodeSelector", "tolerations", "affinity")}
    pod["priorityClassName"] = f"«value {values}.priorityClassName»"
    pod["imagePullSecrets"] = f"«with {values}.imagePullSecrets | default .Values.imagePullSecrets»"
    container["image"] = f'«include "eip-speaker.image" (list .Values.image {values}.image)»'
    container["imagePullPolicy"] = f"«value {values}.image.pullPolicy | default .Values.image.pullPolicy»"
    flags = {flag.partition("=")[0]: f"«if {condition}»{flag}" for condition, flag in _FLAGS[who]}
    flags |= {"--responder": _RESPONDER} if who == "agent" else {}
    kept = [flags.pop(flag.partition("=")[0], flag) for flag in container["args"]]
    container["args"] = [*kept, *flags.values(), f"«more {values}.args»"]
    container["env"].append(f"«more {values}.env»")
    if who == "agent":
        _agent(spec, container)
    else:
        spec["replicas"] = "«int .Values.controller.replicas»"
        spec["strategy"] = "«with .Values.controller.strategy»"
        pod["topologySpreadConstraints"] = "«with .Values.controller.topologySpreadConstraints»"
        container["resources"] = "«with .Values.controller.resources»"


def _agent(spec: dict[str, Any], container: dict[str, Any]) -> None:
    port = "«int .Values.agent.metricsPort»"
    spec["updateStrategy"] = "«with .Values.agent.updateStrategy»"
    container["args"] = [
        flag.replace(":9900", f":{port}") if flag.startswith("--metrics=") else flag for flag in container["args"]
    ]
    container["securityContext"]["capabilities"]["add"] += [f"«if {_IN_KERNEL}»{it}" for it in ("BPF", "NET_ADMIN")]
    container["ports"] = [{**each, "containerPort": port, "hostPort": port} for each in container["ports"]]
    # The component `realtime` asks for more, unless the user does.
    cpu = container["resources"]["requests"]["cpu"]
    least = f'dict "requests" (dict "cpu" "{cpu}")'
    container["resources"] = f"«with merge (deepCopy (default dict .Values.agent.resources)) ({least})»"


def _under_conditions(plain: list[str], changed: Iterable[tuple[str, list[str]]]) -> Iterator[str]:
    """``plain``, and what each of ``changed`` has otherwise under its opening: `if` or `range`."""
    added: dict[int, list[str]] = defaultdict(list)
    opened: dict[int, list[str]] = defaultdict(list)
    closed: dict[int, list[str]] = defaultdict(list)
    taken: dict[int, tuple[int, int]] = {}
    for opening, lines in changed:
        if lines == plain:
            continue
        for what, begin, end, theirs, until in SequenceMatcher(None, plain, lines, autojunk=False).get_opcodes():
            if what == "insert":
                added[begin] += [f"«- {opening}»", *lines[theirs:until], "«- end»"]
            elif what != "equal":
                there = lines[theirs:until]
                otherwise = re.sub(r"if (.*)", r"if not (\1)", opening)
                opened[begin] += [f"«- {opening}»", *there, "«- else»"] if there else [f"«- {otherwise}»"]
                closed[end].append("«- end»")
                if any(taken.setdefault(line, (begin, end)) != (begin, end) for line in range(begin, end)):
                    raise SystemExit(f"two change the same lines in different ways: {plain[begin:end]}")
    for number in range(len(plain) + 1):
        if added[number] and taken.get(number, (number,))[0] != number:
            raise SystemExit(f"one adds what another changes: {added[number]}")
        yield from (*closed[number], *added[number], *opened[number], *plain[number : number + 1])


# ── Commands ──


def _linked(text: str) -> str:
    """Links lead to the repository that $REPOSITORY names, as OWNER/NAME."""
    return text.replace("github.com/REPOSITORY/", f"github.com/{os.environ.get('REPOSITORY', 'REPOSITORY')}/")


def write_files(kubectl: str, image: str, directory: Path, components: Sequence[str]) -> None:
    for name, wanted in {**dict.fromkeys(OVERLAYS, components), CLEANUP: ()}.items():
        file = directory / f"{name}.yaml"
        file.write_text(_linked(rendered(kubectl, name, wanted, image)))
        sys.stdout.write(f"{file}\n")


def write_chart(kubectl: str, image: str, directory: Path) -> None:
    image_of(image)  # for its mistakes
    shutil.rmtree(directory / NAME, ignore_errors=True)
    files = {path: _linked(text) for path, text in chart(kubectl, image)}
    for path, text in files.items():
        file = directory / NAME / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    archive = directory / f"{NAME}-{__version__}.tgz"
    # The same files, the same bytes: `mtime` is the archive's own.
    with gzip.GzipFile(archive, "wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"{NAME}/{path}")
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    sys.stdout.write(f"{directory / NAME}\n{archive}\n")


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("files", "chart", "alerts"))
    parser.add_argument("image", metavar="IMAGE", nargs="?")
    parser.add_argument("directory", metavar="DIRECTORY", type=Path, nargs="?")
    parser.add_argument("components", metavar="COMPONENT", nargs="*")
    arguments = parser.parse_args(words)
    if arguments.what == "alerts":
        PROMETHEUS_RULE.write_text(prometheus_rule())
        return
    if arguments.directory is None:
        parser.error("IMAGE and DIRECTORY are missing")
    if (kubectl := shutil.which("kubectl")) is None:
        raise SystemExit("needs kubectl in PATH (`make cluster` builds one)")
    arguments.directory.mkdir(parents=True, exist_ok=True)
    if arguments.what == "files":
        write_files(kubectl, arguments.image, arguments.directory, arguments.components)
    else:
        write_chart(kubectl, arguments.image, arguments.directory)


if __name__ == "__main__":
    main(sys.argv[1:])
