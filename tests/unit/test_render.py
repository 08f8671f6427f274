"""What `make rendered` and `make chart` make: the same objects as kustomize, whichever way is taken."""

import json
import re
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import chart_mixtures
import jsonschema
import pytest
import yaml
from chart_mixtures import Objects, merged, objects
from chart_values import CHART, RULES, schema
from hypothesis import given
from hypothesis import strategies as st
from pairs import pairs
from render import (
    CLEANUP,
    COMPONENTS,
    CONDITIONS,
    DEFAULT,
    OVERLAYS,
    RULES_OF_ALERTS,
    THRESHOLDS,
    UNNAMED,
    WORKLOADS,
    _under_conditions,
    image_of,
    image_values,
    kustomized,
    rendered,
    write_chart,
    write_files,
)

from speaker import __version__
from speaker.settings import AGENTS_NAMESPACE, DEFAULT_HELLO_MS, DEFAULT_METRICS

IMAGE = "registry.example.com:5000/lb/eip-speaker:1.2.3"
FLAGS = {"agent": ["--ignore-exclude-label", "--hello=50"], "controller": ["--default-class"]}


def together(components: Iterable[str]) -> tuple[str, ...]:
    """Of these what the chart can have: it takes one kind of monitor, which brings `metrics`."""
    found = set(components)
    if found & {"pod-monitor", "service-monitor"}:
        found |= {"metrics"}
    return tuple(
        each for each in COMPONENTS if each in found - ({"service-monitor"} if "pod-monitor" in found else set())
    )


MIXTURES = [
    (
        overlay,
        together(name for name, there in zip(COMPONENTS, components, strict=True) if there),
        FLAGS if flagged else {},
    )
    for overlay, flagged, *components in pairs(OVERLAYS, (False, True), *[(False, True)] * len(COMPONENTS))
]
MIXTURES += [(overlay, together(some), FLAGS) for overlay in OVERLAYS for some in [(), COMPONENTS]]
"""Overlay, components and flags. The chart's conditions stand apart from each other (``_under_conditions`` refuses what
does not), so that two at a time show what there is to see; and all of them, and none, as people take them."""


def only_container(found: Objects, name: str) -> dict[str, Any]:
    (workload,) = (each for (kind, _, _), each in found.items() if kind == WORKLOADS[name])
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    return container


_kustomized = cache(kustomized)
"""Once for a session, as each takes a process."""


def by_kustomize(kubectl: str, overlay: str, components: Iterable[str], flags: dict[str, list[str]]) -> Objects:
    found = objects(_kustomized(kubectl, overlay, tuple(components)))
    for name in WORKLOADS:
        container = only_container(found, name)
        assert container["image"] == UNNAMED
        container["image"] = IMAGE
        container["args"] += flags.get(name, [])
    return found


# ── Files ──


@pytest.mark.parametrize(("overlay", "components"), dict.fromkeys((overlay, some) for overlay, some, _ in MIXTURES))
def test_a_rendered_file_is_the_overlay_with_the_components_and_the_image(kubectl, overlay, components):
    text = rendered(kubectl, overlay, components, IMAGE)
    assert objects(text) == by_kustomize(kubectl, overlay, components, {})
    head, *_ = text.splitlines()
    assert head.startswith("# ")
    assert all(word in head for word in (__version__, overlay, *components))


def test_what_cleans_up_is_rendered_beside_the_overlays_with_the_image(kubectl, tmp_path):
    write_files(kubectl, IMAGE, tmp_path, COMPONENTS)
    assert {file.stem for file in tmp_path.iterdir()} == {*OVERLAYS, CLEANUP}
    (found,) = objects((tmp_path / f"{CLEANUP}.yaml").read_text()).values()
    pod = found["spec"]["template"]["spec"]
    assert {each["image"] for each in (*pod["initContainers"], *pod["containers"])} == {IMAGE}


def test_what_others_need_comes_first(kubectl):
    kinds = [kind for kind, _, _ in objects(rendered(kubectl, DEFAULT, COMPONENTS, IMAGE))]
    assert set(kinds[:2]) == {"Namespace"}
    first = {kind: kinds.index(kind) for kind in kinds}
    assert first["ServiceAccount"] < first["Role"] < first["RoleBinding"] < min(map(first.get, WORKLOADS.values()))


@pytest.mark.parametrize(
    ("reference", "entry"),
    [
        ("example.com/a:1", {"newName": "example.com/a", "newTag": "1"}),
        ("example.com:5000/a/b:1.2", {"newName": "example.com:5000/a/b", "newTag": "1.2"}),
        ("example.com/a@sha256:00", {"newName": "example.com/a", "digest": "sha256:00"}),
        ("example.com:5000/a", None),
        ("a", None),
    ],
)
def test_an_image_is_named_with_a_tag_or_a_digest(reference, entry):
    if entry is None:
        with pytest.raises(SystemExit, match="must be NAME:TAG or NAME@DIGEST"):
            image_of(reference)
    else:
        assert image_of(reference) == {"name": "eip-speaker", **entry}


# ── The chart ──

LINES = st.lists(st.sampled_from("abc"), max_size=8)


def played(text: Iterable[str], *, it: bool) -> list[str]:
    """As Helm reads what ``_under_conditions`` makes of one change, once its marks are braces."""
    said, shown = [], [True]
    for line in text:
        if opening := re.fullmatch(r"«- if (not )?\(?\.Values\.it\)?»", line):
            shown.append(it is not bool(opening[1]))
        elif line == "«- else»":
            shown.append(not shown.pop())
        elif line == "«- end»":
            shown.pop()
        elif all(shown):
            said.append(line)
    return said


@given(LINES, LINES)
def test_what_one_changes_stands_under_its_condition_and_the_rest_as_it_was(plain, changed):
    lines = list(_under_conditions(plain, [("if .Values.it", changed)]))
    assert played(lines, it=True) == changed
    assert played(lines, it=False) == plain


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("axxd", "abxx"),  # partly the same lines
        ("axxxd", "abycd"),  # in the midst of what goes
    ],
)
def test_two_that_change_the_same_lines_in_different_ways_are_refused(one, other):
    with pytest.raises(SystemExit, match="change"):
        list(_under_conditions(list("abcd"), [("if one", list(one)), ("if other", list(other))]))


VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())


def without_nulls(values: Any) -> Any:
    """As Helm does: null takes a value away."""
    if not isinstance(values, dict):
        return values
    return {name: without_nulls(each) for name, each in values.items() if each is not None}


def faults(**changes: Any) -> list[str]:
    """What the schema says against them, as paths."""
    found = jsonschema.Draft7Validator(SCHEMA).iter_errors(without_nulls(merged(VALUES, changes)))
    return [".".join(map(str, each.absolute_path)) + ": " + each.message for each in found]


def test_the_schema_of_the_values_was_made_of_them():
    assert json.loads((CHART / "values.schema.json").read_text()) == schema(), "python manifests/chart_values.py"


def test_every_component_overlay_and_alert_is_a_value():
    assert CONDITIONS.keys() == set(COMPONENTS)
    assert set(SCHEMA["properties"]["forwarder"]["enum"]) == {"none", *OVERLAYS} - {DEFAULT}
    alerts = SCHEMA["properties"]["prometheusRule"]["properties"]["alerts"]["properties"]
    assert alerts.keys() == RULES_OF_ALERTS.keys()
    assert {name for name, each in alerts.items() if "threshold" in each["properties"]} == THRESHOLDS.keys()


def unexplained(path: str, node: yaml.MappingNode, lines: list[str]) -> Iterator[str]:
    """The values below it that have no comment above them."""
    for key, value in node.value:
        place = f"{path}.{key.value}".lstrip(".")
        inner = isinstance(value, yaml.MappingNode) and value.value
        if inner and not any(fnmatch(place, pattern) for pattern in (*RULES, "*.labels")):
            yield from unexplained(place, value, lines)
        elif not lines[key.start_mark.line - 1].strip().startswith("# "):
            yield place


def test_every_value_but_what_speaks_for_itself_is_explained():
    plain = {"annotations", "labels", "affinity", "topologySpreadConstraints", "priorityClassName", "nodeSelector",
             "podAnnotations", "interval", "scrapeTimeout", "relabelings", "metricRelabelings", "repository", "tag",
             "controller", "agents", "enabled"}  # fmt: skip
    text = (CHART / "values.yaml").read_text()
    without = unexplained("", yaml.compose(text, yaml.SafeLoader), text.splitlines())
    assert [path for path in without if path.rpartition(".")[2] not in plain] == []


def test_the_defaults_that_the_chart_repeats_are_those_of_the_flags():
    agent, controller = VALUES["agent"], VALUES["controller"]
    assert agent["hello"] == DEFAULT_HELLO_MS
    assert DEFAULT_METRICS.endswith(f":{agent['metricsPort']}")
    assert agent["logLevel"] == controller["logLevel"] == "info"
    assert VALUES["namespaces"]["agents"] == AGENTS_NAMESPACE
    assert VALUES["image"] == {**image_values(UNNAMED), "pullPolicy": ""}


@pytest.mark.parametrize(
    ("reference", "registry", "repository", "tag", "digest"),
    [
        ("eip-speaker:dev", "", "eip-speaker", "dev", ""),
        ("lb/eip-speaker:1", "", "lb/eip-speaker", "1", ""),
        ("localhost/eip-speaker:1", "localhost", "eip-speaker", "1", ""),
        ("example.com:5000/a/b:1.2", "example.com:5000", "a/b", "1.2", ""),
        ("ghcr.io/a/b:v1@sha256:00", "ghcr.io", "a/b", "v1", "sha256:00"),
        ("example.com:5000/a@sha256:00", "example.com:5000", "a", "", "sha256:00"),
    ],
)
def test_an_image_is_taken_apart(reference, registry, repository, tag, digest):
    found = {"registry": registry, "repository": repository, "tag": tag, "digest": digest}
    assert image_values(reference) == found


def objects_of(rule: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(rule, dict):
        if "properties" in rule:
            yield path, rule
        for name, each in rule.items():
            yield from objects_of(each, f"{path}/{name}")


def test_no_object_of_the_schema_takes_what_it_does_not_name():
    assert [path for path, each in objects_of(SCHEMA) if each.get("additionalProperties") is not False] == []


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("forwader", {"forwader": "ipvs"}),
    ("forwarder", {"forwarder": "auto"}),
    ("image", {"image": "eip-speaker:dev"}),
    ("image", {"image": {"name": "eip-speaker"}}),
    ("image.digest", {"image": {"digest": "sha256:12"}}),
    ("image.tag", {"image": {"tag": "v1:2"}}),
    ("agent.image.pullPolicy", {"agent": {"image": {"pullPolicy": "always"}}}),
    ("imagePullSecrets.0", {"imagePullSecrets": ["mine"]}),
    ("namespaces.agents", {"namespaces": {"agents": "a b"}}),
    ("key.existingSecret", {"key": {"existingSecret": "My Key"}}),
    ("agent", {"agent": {"replicas": 3}}),
    ("agent", {"agent": {"arg": ["--default-class"]}}),
    ("agent", {"agent": {"hello": None}}),
    ("agent.args.0", {"agent": {"args": ["hello"]}}),
    ("agent.env.0", {"agent": {"env": [{"name": "A", "valeu": "b"}]}}),
    ("agent.hello", {"agent": {"hello": 5}}),
    ("agent.group", {"agent": {"group": "a/../b"}}),
    ("agent.page", {"agent": {"page": "everywhere"}}),
    ("agent.logLevel", {"agent": {"logLevel": "all"}}),
    ("agent.tolerations.0", {"agent": {"tolerations": [{"kee": "a"}]}}),
    ("agent.affinity", {"agent": {"affinity": {"nodeAfinity": {}}}}),
    ("agent.affinity.nodeAffinity", {"agent": {"affinity": {"nodeAffinity": {"required": {}}}}}),
    ("agent.resources", {"agent": {"resources": {"request": {}}}}),
    ("agent.podLabels", {"agent": {"podLabels": {"app.kubernetes.io/name": "mine"}}}),
    ("agent.nodeSelector.a", {"agent": {"nodeSelector": {"a": True}}}),
    ("agent.updateStrategy.rollingUpdate", {"agent": {"updateStrategy": {"rollingUpdate": {"unavailable": 1}}}}),
    ("controller.replicas", {"controller": {"replicas": -1}}),
    ("controller.honourAnnotations.0", {"controller": {"honourAnnotations": ["metalb"]}}),
    ("networkPolicy.apiPorts", {"networkPolicy": {"apiPorts": []}}),
    ("networkPolicy", {"networkPolicy": {"apiPorts": None}}),
    ("podMonitor.interval", {"podMonitor": {"interval": "30"}}),
    ("podMonitor", {"podMonitor": {"label": {}}}),
    ("prometheusRule.alerts", {"prometheusRule": {"alerts": {"EipFlaping": {}}}}),
    ("prometheusRule.alerts.EipConflict", {"prometheusRule": {"alerts": {"EipConflict": {"threshold": 3}}}}),
    (
        "prometheusRule.alerts.EipFlapping.threshold",
        {"prometheusRule": {"alerts": {"EipFlapping": {"threshold": "a"}}}},
    ),
    ("mqtt", {"mqtt": True}),
    ("metrics", {"metrics": True}),
]


@pytest.mark.parametrize(("place", "changes"), WRONG, ids=[place for place, _ in WRONG])
def test_a_value_that_cannot_be_meant_is_refused(place, changes):
    assert [each for each in faults(**changes) if each.startswith(f"{place}: ") or f"'{place}'" in each]
    assert faults() == []


@pytest.fixture(scope="module")
def chart(kubectl: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("chart")
    write_chart(kubectl, IMAGE, directory)
    return directory


@pytest.fixture(scope="module")
def helm(chart: Path, helm_program: str) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """``helm("template", *flags)`` on the chart."""

    def run(command: str, *words: str) -> "subprocess.CompletedProcess[str]":
        name = ("eip-speaker",) if command == "template" else ()
        return subprocess.run(
            [helm_program, command, *name, chart / "eip-speaker", *words], capture_output=True, text=True, check=False
        )

    return run


def test_helm_refuses_what_the_schema_refuses(helm):
    for wrong, told in (("forwader=ipvs", "forwader"), ("agent.tolerations[0].kee=a", "kee"),
                        ("namespaces.agents=eip-speaker", "must be two"),
                        ("podMonitor.enabled=true,serviceMonitor.enabled=true", "would be scraped twice")):  # fmt: skip
        done = helm("template", f"--set={wrong}")
        assert done.returncode != 0
        assert told in done.stderr


SWITCHES = {
    "alerts": "prometheusRule.enabled",
    "dashboard": "dashboard.enabled",
    "make-key": "key.create",
    "mark-pods-not-ready": "markPodsNotReady",
    "metrics": "metrics.enabled",
    "mqtt": "mqtt.enabled",
    "pod-monitor": "podMonitor.enabled",
    "realtime": "realtime",
    "service-monitor": "serviceMonitor.enabled",
}


def values_of(overlay: str, components: Iterable[str], flags: dict[str, list[str]]) -> dict[str, Any]:
    chosen: dict[str, Any] = {"forwarder": "none" if overlay == DEFAULT else overlay}
    for component, switch in SWITCHES.items():
        section, _, name = switch.rpartition(".")
        (chosen.setdefault(section, {}) if section else chosen)[name] = component in components
    return {**chosen, **{name: {"args": flags.get(name, [])} for name in WORKLOADS}}


def assert_the_same(found: Objects, wanted: Objects) -> None:
    assert found.keys() == wanted.keys()
    for key, each in found.items():
        if key[0] == "CustomResourceDefinition":  # what Helm is told beside what Kubernetes is
            assert each["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert each == wanted[key]


@pytest.mark.parametrize(("overlay", "components", "flags"), MIXTURES)
def test_helm_makes_the_same_objects_as_kustomize(kubectl, helm, tmp_path, overlay, components, flags):
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values_of(overlay, components, flags)))
    done = helm("template", f"--values={tmp_path / 'values.yaml'}")
    assert done.returncode == 0, done.stderr
    assert_the_same(objects(done.stdout), by_kustomize(kubectl, overlay, components, flags))


@pytest.mark.parametrize("mixture", chart_mixtures.MIXTURES, ids=range(len(chart_mixtures.MIXTURES)))
def test_what_a_user_sets_shows_in_the_objects(helm, tmp_path, mixture):
    values = chart_mixtures.values_of(mixture)
    assert faults(**values) == []
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    done = helm("template", f"--values={tmp_path / 'values.yaml'}")
    assert done.returncode == 0, done.stderr
    found = objects(done.stdout)
    assert [choice.name for choice in mixture if not choice.shows(found)] == []


def test_a_namespace_that_helm_has_made_is_not_made_again(helm):
    done = helm("template", "--namespace=eip-speaker", "--create-namespace")
    assert [name for kind, _, name in objects(done.stdout) if kind == "Namespace"] == ["eip-speaker-agents"]


def test_helm_finds_no_fault(helm):
    done = helm("lint", "--strict")
    assert done.returncode == 0, done.stdout


def test_alerts_of_a_release_lead_to_its_runbooks(kubectl, tmp_path, monkeypatch):
    monkeypatch.setenv("REPOSITORY", "somebody/eips")
    write_chart(kubectl, IMAGE, tmp_path)
    told = yaml.safe_load((tmp_path / "eip-speaker" / "values.yaml").read_text())
    assert told["prometheusRule"]["runbookUrl"] == "https://github.com/somebody/eips/blob/main/docs/runbooks.md"
    assert not [file for file in (tmp_path / "eip-speaker").rglob("*.*") if "/REPOSITORY/" in file.read_text()]


def test_the_archive_is_the_chart_and_the_same_every_time(kubectl, chart, tmp_path):
    name = f"eip-speaker-{__version__}.tgz"
    write_chart(kubectl, IMAGE, tmp_path)
    assert (tmp_path / name).read_bytes() == (chart / name).read_bytes()
    with tarfile.open(chart / name) as tar:
        packed = {entry.name: tar.extractfile(entry).read().decode() for entry in tar}  # type: ignore[union-attr]
    files = {str(file.relative_to(chart)): file.read_text() for file in (chart / "eip-speaker").rglob("*.*")}
    assert packed == files
    told = yaml.safe_load(packed["eip-speaker/Chart.yaml"])
    assert (told["version"], told["appVersion"]) == (__version__, __version__)
