"""What goes into a cluster, made of base/, overlays/ and components/ by kustomize, which is in kubectl.

    python manifests/render.py files IMAGE DIRECTORY [COMPONENT ...]     a file for each overlay, and one that cleans up
                                                                         behind them, for `kubectl apply -f`
    python manifests/render.py chart IMAGE DIRECTORY                     a Helm chart of them all, and its archive
    python manifests/render.py alerts                                    components/alerts anew, of alerts/rules.yaml

Every component and every overlay is a value of the chart: the lines that it changes stand under its condition. So the
chart has nothing of its own to be kept in step, but for values.yaml, which names and explains the values.
"""

import argparse
import gzip
import io
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
from pathlib import Path
from typing import Any

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

WORKLOADS = {"agent": "DaemonSet", "controller": "Deployment"}
"""Whose flags the chart lets one add to."""
_MARK = "--more"
_END = "{{- end }}"
_KEPT = {
    "target": {"kind": "CustomResourceDefinition"},
    # With the definition go the pools; and while a Service has an EIP, a pool cannot go.
    "patch": '[{"op": "add", "path": "/metadata/annotations", "value": {"helm.sh/resource-policy": "keep"}}]',
}


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


def chart(kubectl: str, image: str) -> Iterator[tuple[str, str]]:
    """Its files: path and text."""
    for file in sorted((MANIFESTS / "chart").iterdir()):
        text = file.read_text()
        if file.name == "Chart.yaml":
            text += f"version: {__version__}\nappVersion: {__version__}\n"
        yield file.name, text.replace(UNNAMED, image)
    variants = [
        (f"if eq .Values.forwarder {_quoted(overlay)}", _documents(kustomized(kubectl, overlay, patches=[_KEPT])))
        for overlay in OVERLAYS
        if overlay != DEFAULT
    ]
    variants += [
        (f"if .Values.{value_of(each)}", _documents(kustomized(kubectl, DEFAULT, [each], patches=[_KEPT])))
        for each in COMPONENTS
    ]
    variants += [
        (f"range .Values.{name}.args", _documents(kustomized(kubectl, DEFAULT, patches=[_KEPT, _more(kind)])))
        for name, kind in WORKLOADS.items()
    ]
    plain = _documents(kustomized(kubectl, DEFAULT, patches=[_KEPT]))
    for name in dict.fromkeys((*plain, *(each for _, documents in variants for each in documents))):
        changed = [(opening, documents[name]) for opening, documents in variants if name in documents]
        if name in plain:
            lines = _under_conditions(plain[name], changed)
        else:
            ((opening, added),) = changed
            lines = [f"{{{{- {opening} }}}}", *added, _END]
        yield f"templates/{name}.yaml", "".join(f"{line}\n" for line in lines)


def value_of(component: str) -> str:
    """make-key → makeKey"""
    return re.sub(r"-(.)", lambda found: found[1].upper(), component)


def _quoted(text: str) -> str:
    return f'"{text}"'


def _more(kind: str) -> dict[str, Any]:
    patch = f'[{{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "{_MARK}"}}]'
    return {"target": {"kind": kind}, "patch": patch}


def _documents(text: str) -> dict[str, list[str]]:
    """Kind and name → lines, as a template has them."""
    found: dict[str, list[str]] = {}
    for document in text.split("\n---\n"):
        parsed = yaml.safe_load(document)
        name = f"{parsed['kind']}-{parsed['metadata']['name']}".lower()
        if name in found:
            raise SystemExit(f"two are named {name}: the chart has a file for each")
        told = document.replace("{{", '{{ "{{" }}')  # what is for others, as Prometheus' labels
        told = told.replace(f"image: {UNNAMED}", "image: {{ quote .Values.image }}")
        found[name] = told.replace(_MARK, "{{ quote . }}").splitlines()
    return found


def _under_conditions(plain: list[str], changed: Iterable[tuple[str, list[str]]]) -> Iterator[str]:
    """``plain``, and what each of ``changed`` has otherwise under its opening: `if` or `range`."""
    added: dict[int, list[str]] = defaultdict(list)
    opened: dict[int, list[str]] = defaultdict(list)
    closed: dict[int, list[str]] = defaultdict(list)
    taken: dict[int, tuple[int, int]] = {}
    for opening, lines in changed:
        for what, begin, end, theirs, until in SequenceMatcher(None, plain, lines, autojunk=False).get_opcodes():
            if what == "insert":
                added[begin] += [f"{{{{- {opening} }}}}", *lines[theirs:until], _END]
            elif what != "equal":
                opened[begin] += [f"{{{{- {opening} }}}}", *lines[theirs:until], "{{- else }}"]
                closed[end].append(_END)
                if any(taken.setdefault(line, (begin, end)) != (begin, end) for line in range(begin, end)):
                    raise SystemExit(f"two change the same lines in different ways: {plain[begin:end]}")
    for number in range(len(plain) + 1):
        if added[number] and taken.get(number, (number,))[0] != number:
            raise SystemExit(f"one adds what another changes: {added[number]}")
        yield from (*closed[number], *added[number], *opened[number], *plain[number : number + 1])


# ── Commands ──


def write_files(kubectl: str, image: str, directory: Path, components: Sequence[str]) -> None:
    for name, wanted in {**dict.fromkeys(OVERLAYS, components), CLEANUP: ()}.items():
        file = directory / f"{name}.yaml"
        file.write_text(rendered(kubectl, name, wanted, image))
        sys.stdout.write(f"{file}\n")


def write_chart(kubectl: str, image: str, directory: Path) -> None:
    image_of(image)  # for its mistakes
    shutil.rmtree(directory / NAME, ignore_errors=True)
    files = dict(chart(kubectl, image))
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
