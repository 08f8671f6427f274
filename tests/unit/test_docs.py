"""What the documentation lists is what the code says, no more and no less."""

import re
from pathlib import Path

import pytest

from speaker.allocator.refusals import Reason as Refused
from speaker.cli import main
from speaker.interfaces.resolve import Reason as Unresolved
from speaker.layer2.answer import Ignored
from speaker.ownership.eligibility import Ineligible
from speaker.ownership.events import Yielded
from speaker.ownership.frames import Rejected
from speaker.ownership.hellos import Replayed
from speaker.telemetry.metrics import Metrics

DOCS = Path(__file__).parents[2] / "docs"


def first_column(text: str) -> set[str]:
    cells = (line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    return {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


def section(name: str, heading: str) -> str:
    return (DOCS / name).read_text().split(f"## {heading}")[1].split("\n## ")[0]


def test_every_refusal_is_explained():
    assert first_column(section("manifests.md", "Why a Service has no EIP")) == {reason.value for reason in Refused}


def test_every_reason_not_to_claim_is_explained():
    explained = first_column(section("manifests.md", "Why this node does not answer for an EIP"))
    assert explained == {reason.value for reason in (*Unresolved, *Ineligible)}


def test_every_metric_is_listed():
    names = {
        metric.name
        if metric.type in ("gauge", "histogram", "unknown")
        else f"{metric.name}_{'info' if metric.type == 'info' else 'total'}"
        for metric in Metrics().registry.collect()
    }
    assert first_column(section("operations.md", "What to look at")) == names


def test_every_reason_to_let_a_claim_go_and_to_reject_a_hello_is_listed():
    text = section("operations.md", "What to look at")
    changes = {reason.value for reason in Yielded} | {"claimed", "not_offered"}
    assert {word for word in changes if f"`{word}`" not in text and word != "claimed"} == set()
    assert {reason.value for reason in (*Rejected, *Replayed) if f"`{reason.value}`" not in text} == set()


def test_every_reason_to_ignore_a_packet_is_listed():
    paragraph = (
        (DOCS / "operations.md").read_text().split("Reasons of `eip_speaker_ignored_total`:")[1].split("\n\n")[0]
    )
    assert set(re.findall(r"`([a-z_]+)`", paragraph)) == {reason.value for reason in Ignored}


def commands_in(help_text: str) -> set[str]:
    return set(re.findall(r"^    ([a-z]+)\b", help_text, re.MULTILINE))


def test_every_command_is_listed(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert first_column(section("operations.md", "Commands")) == commands_in(capsys.readouterr().out)


def test_every_flag_about_peers_is_a_flag(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    flags = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    listed = first_column(section("operations.md", "Several hosts")) - {"run"}
    assert listed == {"--with-peers", "--key", "--hello", "--ethertype"}
    assert listed <= flags
