"""docs/troubleshooting.md has every finding and every fault that there is, and every page it leads to is there."""

import re
from pathlib import Path

import pytest

from speaker.checks import KINDS, Symptom
from speaker.lab.practice_table import FAULTS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "troubleshooting.md").read_text()


@pytest.mark.parametrize("symptom", Symptom)
def test_every_finding_stands_below_its_symptom_in_the_order_in_which_it_is_named(symptom):
    section = PAGE.split(f"### {symptom.value}\n", 1)[1].split("\n#", 1)[0]
    of_it = [(kind.name, kind.docs) for kind in KINDS.values() if kind.symptom is symptom]
    assert re.findall(r"\[`(\w+)`\]\(([^)]*)\)", section) == of_it


def test_every_fault_that_can_be_practised_is_listed():
    listed = PAGE.split("The faults are:\n\n", 1)[1].split("\n\n", 1)[0]
    assert re.findall(r"`(\w+)`", listed) == [fault.name for fault in FAULTS]


def anchors(page: str) -> set[str]:
    """As GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", (DOCS / page).read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_finding_leads_to_is_there(kind):
    page, _, anchor = KINDS[kind].docs.partition("#")
    assert anchor in anchors(page)
