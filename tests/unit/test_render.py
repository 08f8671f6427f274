"""What `make rendered` and `make chart` make: the same objects as kustomize, whichever way is taken."""

import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pairs import pairs
from real_api import BUILT
from render import (
    CLEANUP,
    COMPONENTS,
    DEFAULT,
    MANIFESTS,
    OVERLAYS,
    UNNAMED,
    WORKLOADS,
    _under_conditions,
    image_of,
    kustomized,
    rendered,
    value_of,
    write_chart,
    write_files,
)

from speaker import __version__

IMAGE = "registry.example.com:5000/lb/eip-speaker:1.2.3"
FLAGS = {"agent": ["--ignore-exclude-label", "--hello=50"], "controller": ["--default-class"]}
MIXTURES = [
    (
        overlay,
        tuple(name for name, there in zip(COMPONENTS, components, strict=True) if there),
        FLAGS if flagged else {},
    )
    for overlay, flagged, *components in pairs(OVERLAYS, (False, True), *[(False, True)] * len(COMPONENTS))
]
MIXTURES += [(overlay, some, FLAGS) for overlay in OVERLAYS for some in [(), COMPONENTS]]
"""Overlay, components and flags. The chart's conditions stand apart from each other (``_under_conditions`` refuses what
does not), so that two at a time show what there is to see; and all of them, and none, as people take them."""

Objects = dict[tuple[str, str, str], dict[str, Any]]


def objects(text: str) -> Objects:
    found: Objects = {}
    for each in filter(None, yaml.load_all(text, Loader=yaml.CSafeLoader)):
        key = each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]
        assert key not in found
        found[key] = each
    return found


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


def played(text: Iterable[str], values: dict[str, Any], here: str = "") -> list[str]:
    """As Helm reads what the chart is made of: `if`, `else`, `range` and `end` on lines of their own, `quote`, and
    braces in quotes."""
    lines, said = iter(text), []

    def value(path: str) -> Any:
        *_, found = accumulate(path.split(".")[2:], lambda within, name: within[name], initial=values)
        return here if path == "." else found

    for line in lines:
        if opening := re.fullmatch(r"\{\{- (if|range) (eq )?(\S+) ?(\S*) \}\}", line):
            word, equal, path, wanted = opening.groups()
            inside, otherwise = _halves(lines)
            if word == "range":
                said += [each for one in value(path) for each in played(inside, values, one)]
            else:
                true = value(path) == wanted.strip('"') if equal else value(path)
                said += played(inside if true else otherwise, values, here)
        else:
            quoted = re.sub(r"\{\{ quote (\S+) \}\}", lambda found: json.dumps(value(found[1])), line)
            said.append(quoted.replace('{{ "{{" }}', "{{"))
    return said


def _halves(lines: Iterator[str]) -> tuple[list[str], list[str]]:
    """What stands before the `else` of a block that was opened, and after it; the block's end is consumed."""
    halves: tuple[list[str], list[str]] = [], []
    half, depth = 0, 1
    for line in lines:
        depth += line.startswith(("{{- if ", "{{- range ")) - (line == "{{- end }}")
        if depth == 0:
            break
        if line == "{{- else }}" and depth == 1:
            half = 1
        else:
            halves[half].append(line)
    return halves


@given(LINES, LINES)
def test_what_one_changes_stands_under_its_condition_and_the_rest_as_it_was(plain, changed):
    lines = list(_under_conditions(plain, [("if .Values.it", changed)]))
    assert played(lines, {"it": True}) == changed
    assert played(lines, {"it": False}) == plain


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


def test_every_component_and_overlay_is_a_value_that_is_explained_and_bound():
    text = (MANIFESTS / "chart" / "values.yaml").read_text()
    values = yaml.safe_load(text)
    schema = yaml.safe_load((MANIFESTS / "chart" / "values.schema.json").read_text())["properties"]
    assert values.keys() == {"image", "forwarder", *map(value_of, COMPONENTS), *WORKLOADS}
    assert schema.keys() == {"global", *values}
    assert set(schema["forwarder"]["enum"]) == {"none", *OVERLAYS} - {DEFAULT}
    assert values["image"] == UNNAMED
    for name in values:
        assert re.search(rf"^# .*\n{name}:|^{name}:\n  # ", text, re.MULTILINE), name


@pytest.fixture(scope="module")
def chart(kubectl: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("chart")
    write_chart(kubectl, IMAGE, directory)
    return directory


@pytest.fixture(scope="module")
def helm(chart: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """``helm("template", *flags)`` on the chart."""
    if (program := shutil.which("helm", path=f"{BUILT}{os.pathsep}{os.environ['PATH']}")) is None:
        pytest.skip("needs helm (`make cluster` builds one)")

    def run(command: str, *words: str) -> "subprocess.CompletedProcess[str]":
        name = ("eip-speaker",) if command == "template" else ()
        return subprocess.run(
            [program, command, *name, chart / "eip-speaker", *words], capture_output=True, text=True, check=False
        )

    return run


def values_of(overlay: str, components: Iterable[str], flags: dict[str, list[str]]) -> dict[str, Any]:
    chosen: dict[str, Any] = {value_of(each): each in components for each in COMPONENTS}
    return {
        **chosen,
        "image": IMAGE,
        "forwarder": "none" if overlay == DEFAULT else overlay,
        **{name: {"args": flags.get(name, [])} for name in WORKLOADS},
    }


def assert_the_same(found: Objects, wanted: Objects) -> None:
    assert found.keys() == wanted.keys()
    for key, each in found.items():
        if key[0] == "CustomResourceDefinition":  # what Helm is told beside what Kubernetes is
            assert each["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert each == wanted[key]


@pytest.mark.parametrize(("overlay", "components", "flags"), MIXTURES)
def test_the_chart_has_the_same_objects_as_kustomize(kubectl, chart, overlay, components, flags):
    """Without Helm: as ``played`` reads it."""
    values = values_of(overlay, components, flags)
    templates = sorted((chart / "eip-speaker" / "templates").iterdir())
    text = "\n---\n".join("\n".join(played(file.read_text().splitlines(), values)) for file in templates)
    assert_the_same(objects(text), by_kustomize(kubectl, overlay, components, flags))


@pytest.mark.parametrize(("overlay", "components", "flags"), MIXTURES)
def test_helm_makes_the_same_objects_as_kustomize(kubectl, helm, tmp_path, overlay, components, flags):
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values_of(overlay, components, flags)))
    done = helm("template", f"--values={tmp_path / 'values.yaml'}")
    assert done.returncode == 0, done.stderr
    assert_the_same(objects(done.stdout), by_kustomize(kubectl, overlay, components, flags))


def test_helm_finds_no_fault(helm):
    done = helm("lint", "--strict")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "wrong",
    ["forwader=ipvs", "forwarder=auto", "image=eip-speaker", "makeKey=maybe", "agent.args[0]=hello", "agent.arg=1"],
)
def test_a_value_that_cannot_be_meant_is_refused(helm, wrong):
    done = helm("template", f"--set={wrong}")
    assert done.returncode != 0
    assert wrong.partition("=")[0].split(".")[0].split("[")[0] in done.stderr


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
