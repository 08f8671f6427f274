"""What the documentation lists is what the code says, no more and no less."""

import re
from collections.abc import Iterable
from contextlib import nullcontext
from ipaddress import ip_address
from pathlib import Path

import pytest

from speaker.agent.view import DRAIN
from speaker.allocator.assign import Allocator
from speaker.allocator.refusals import RefusalReason as Refused
from speaker.allocator.settle import settle
from speaker.api.kinds import ASSIGNED, ASSIGNED_FROM
from speaker.api.reading import EIP
from speaker.api.records import FORWARDER, MISSES
from speaker.api.service import (
    ADDRESSES,
    LOAD_BALANCER_CLASS,
    NODE_PREFERENCE,
    POOL,
    RECORD,
    SCHEDULER,
    SHARE,
    SHARE_NAMESPACES,
)
from speaker.cli import main
from speaker.controller.run import ControllerMetrics
from speaker.errors import InvalidManifests
from speaker.interfaces.resolve import UnresolvedReason as Unresolved
from speaker.layer2.answer import Ignored
from speaker.model import ServiceKey
from speaker.ownership.eligibility import Ineligible
from speaker.ownership.events import Yielded
from speaker.ownership.hellos.frames import Rejected
from speaker.ownership.hellos.hellos import Replayed
from speaker.standalone.manifests import load
from speaker.telemetry.metrics import TEXTS, Metrics

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def first_column(text: str) -> set[str]:
    cells = (line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    return {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


def section(name: str, heading: str) -> str:
    return (DOCS / name).read_text().split(f"## {heading}")[1].split("\n## ")[0]


def test_every_refusal_is_explained():
    assert first_column(section("manifests.md", "Why a Service has no EIP")) == {reason.value for reason in Refused}


def test_every_reason_not_to_claim_is_explained():
    explained = first_column(section("manifests.md", "Why this node does not answer for an EIP"))
    assert explained == {reason.value for reason in (*Unresolved, *Ineligible)} | {"internal_error"}


def test_every_metric_is_listed():
    names = {
        metric.name
        if metric.type in ("gauge", "histogram", "unknown")
        else f"{metric.name}_{'info' if metric.type == 'info' else 'total'}"
        for api in (False, True)
        for metric in Metrics(api=api).registry.collect()
    }
    assert first_column(section("operations.md", "What to look at")) == names | TEXTS.keys()


def test_every_reason_to_let_a_claim_go_and_to_reject_a_hello_is_listed():
    text = section("operations.md", "What to look at")
    changes = {reason.value for reason in Yielded} | {"claimed"}
    assert {word for word in changes if f"`{word}`" not in text and word != "claimed"} == set()
    assert {reason.value for reason in (*Rejected, *Replayed) if f"`{reason.value}`" not in text} == set()


def test_every_reason_to_ignore_a_packet_is_listed():
    paragraph = (
        (DOCS / "operations.md").read_text().split("Reasons of `eip_speaker_ignored_total`:")[1].split("\n\n")[0]
    )
    assert set(re.findall(r"`([a-z_]+)`", paragraph)) == {reason.value for reason in Ignored}


def commands_in(help_text: str) -> set[str]:
    return set(re.findall(r"^    ([a-z-]+)", help_text, re.MULTILINE))


def test_every_command_is_listed(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert first_column(section("operations.md", "Commands")) == commands_in(capsys.readouterr().out)


def test_every_flag_about_peers_is_a_flag(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    flags = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    listed = first_column(section("operations.md", "Several hosts")) - {"run"}
    assert listed == {"--with-peers", "--key", "--hello", "--ethertype", "--hand-over", "--no-hand-over"}
    assert listed <= flags


# ── What may be copied from it ──


def test_the_pool_of_the_readme_leaves_out_the_router_and_the_hosts(tmp_path):
    (example,) = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "site.yaml").write_text(example)
    world = load(tmp_path).world
    assert settle(Allocator(), world, 0.0).assignments[ServiceKey("default", "web")].addresses == (
        ip_address("192.0.2.10"),
        ip_address("2001:db8::10"),
    )


@pytest.mark.parametrize(
    ("exclude", "taken"), [("192.0.2.9", True), ("192.0.2.14-192.0.2.40", True), ("192.0.2.16-192.0.2.40", False)]
)
def test_an_exclude_need_not_lie_inside_of_a_pool_but_has_to_overlap_it(tmp_path, exclude, taken):
    assert "each entry must overlap `addresses`" in (DOCS / "manifests.md").read_text()
    spec = f"{{addresses: [192.0.2.0/28], exclude: [{exclude}]}}"
    (tmp_path / "lan.yaml").write_text(
        f"{{apiVersion: {EIP[0]}, kind: {EIP[1]}, metadata: {{name: lan}}, spec: {spec}}}"
    )
    with nullcontext() if taken else pytest.raises(InvalidManifests, match="excludes nothing"):
        load(tmp_path)


# ── On Kubernetes ──

ON_KUBERNETES = [DOCS / "kubernetes.md", DOCS / "beside-kube-proxy.md", ROOT / "manifests" / "README.md"]


def help_of(capsys, *command: str) -> str:
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    return capsys.readouterr().out


def flags_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def code_in(text: str) -> Iterable[str]:
    """Inline code, and each line of code blocks."""
    fenced = re.findall(r"^ *```.*?\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^ {4,}(.*)$", prose, re.MULTILINE)
    return (*re.findall(r"`([^`]+)`", prose), *indented, *(line for block in fenced for line in block.splitlines()))


@pytest.mark.parametrize("file", ON_KUBERNETES, ids=lambda file: file.name)
def test_every_flag_of_the_speaker_that_is_named_is_one(capsys, file):
    known = {flag for name in commands_in(help_of(capsys)) for flag in flags_in(help_of(capsys, name))}
    ours = (code.partition("#")[0] for code in code_in(file.read_text()))
    named = set().union(*(flags_in(code) for code in ours if re.match(r"(--|speaker |.* -- speaker )", code)))
    assert named <= known | {"--version"}


def test_every_flag_of_the_table_is_one_of_the_commands_it_names(capsys):
    rows = [line.split("|") for line in section("kubernetes.md", "Install").splitlines() if line.startswith("| `--")]
    assert rows
    for _, flag, of, *_ in rows:
        commands = ("agent", "controller") if of.strip().startswith("both") else (of.split(",")[0].strip(),)
        for command in commands:
            assert flag.strip(" `") in flags_in(help_of(capsys, command)), f"{command}: {flag}"


@pytest.mark.parametrize("file", ON_KUBERNETES, ids=lambda file: file.name)
def test_every_annotation_class_and_condition_that_is_named_is_ours(file):
    known = {
        POOL,
        ADDRESSES,
        SHARE,
        SHARE_NAMESPACES,
        SCHEDULER,
        NODE_PREFERENCE,
        RECORD,
        DRAIN,
        ASSIGNED,
        ASSIGNED_FROM,
        LOAD_BALANCER_CLASS,
        FORWARDER,
        MISSES,
        EIP[0],
    }
    named = set(re.findall(r"(?<![\w.])eip-speaker\.io/[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*", file.read_text()))
    assert named <= known


@pytest.mark.parametrize("file", ON_KUBERNETES, ids=lambda file: file.name)
def test_every_metric_that_is_named_is_one(file):
    registries = Metrics().registry, Metrics(api=True).registry, ControllerMetrics().registry
    metrics = [metric for registry in registries for metric in registry.collect()]
    known = {name for each in metrics for name in (each.name, f"{each.name}_total", f"{each.name}_info")} | TEXTS.keys()
    assert set(re.findall(r"\beip_speaker_[a-z_]+", file.read_text())) <= known


@pytest.mark.parametrize("file", ON_KUBERNETES, ids=lambda file: file.name)
def test_every_overlay_and_component_that_is_named_is_there(file):
    named = set(re.findall(r"\b(?:manifests/)?((?:overlays|components)/[a-z-]+)\b", file.read_text()))
    assert {each for each in named if not (ROOT / "manifests" / each).exists()} == set()
    named = set(re.findall(r"\b(overlay|component)s? `([a-z-]+)`", file.read_text()))
    assert {each for each in named if not (ROOT / "manifests" / f"{each[0]}s" / each[1]).exists()} == set()


# ── Links, paths and lines ──

PLAIN = [ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "manifests" / "README.md", *sorted(DOCS.rglob("*.md"))]


def anchors_in(file: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "file",
    [ROOT / "README.md", *PLAIN],
    ids=lambda file: file.name,
)
def test_every_link_leads_somewhere(file):
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", file.read_text()):
        path, _, anchor = target.partition("#")
        to = (file.parent / path) if path else file
        assert to.exists(), target
        assert not anchor or anchor in anchors_in(to), target


def prose_of(text: str) -> str:
    """Without fenced blocks: what stands there is for another directory, or another program's."""
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("file", [ROOT / "README.md", *PLAIN], ids=lambda file: file.name)
def test_every_file_that_is_named_is_there(file):
    named = re.findall(r"(?<![\w./-])(?:speaker|tests|benchmarks|docs)/[\w./-]*[\w/]", prose_of(file.read_text()))
    assert {name for name in named if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("file", PLAIN, ids=lambda file: file.name)
def test_no_line_is_longer_than_120_but_for_rows_of_tables_which_cannot_be_broken(file):
    lines = enumerate(file.read_text().splitlines(), 1)
    assert [number for number, line in lines if len(line) > 120 and not line.startswith("|")] == []


def signposts() -> Iterable[tuple[Path, str]]:
    for file in sorted((ROOT / "speaker").rglob("*.py")):
        yield from ((file, name) for name in re.findall(r"(?<![\w/.*{])[\w/-]+\.(?:py|md)\b", file.read_text()))


def test_every_file_that_the_code_names_is_there():
    """From where it is named, from the package or from the root."""
    named = [(file, name, (file.parent, file.parents[1], ROOT / "speaker", ROOT, DOCS)) for file, name in signposts()]
    assert len(named) > 50
    assert [(str(file), name) for file, name, places in named if not any((at / name).exists() for at in places)] == []
