"""docs/ownership.md, the code and the tests agree on which rules there are."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs" / "ownership.md"
CITED = re.compile(r"\b[Rr]ules? (\d+)(?:(?:, | and | to | or )(\d+))*")
"""In docstrings and comments of what deals with ownership: `rule 8`, `rules 3 to 6`."""
CITING = (
    "speaker/ownership",
    "speaker/wire",
    "speaker/layer2",
    "tests/unit/ownership",
    "tests/scenarios",
    "tests/simulation",
)


def rules() -> dict[int, str]:
    """Number → text."""
    found = re.split(r"^(\d+)\. ", DOCS.read_text(), flags=re.MULTILINE)
    return {int(number): text for number, text in zip(found[1::2], found[2::2], strict=True)}


def citations() -> list[tuple[str, int]]:
    files = [path for part in CITING for path in sorted((ROOT / part).rglob("*.py"))]
    return [
        (f"{path.relative_to(ROOT)}: {match[0]}", int(number))
        for path in files
        for match in CITED.finditer(path.read_text())
        for number in re.findall(r"\d+", match[0])
    ]


def test_the_rules_are_numbered_from_one_without_a_gap() -> None:
    assert list(rules()) == list(range(1, len(rules()) + 1))


def test_every_rule_that_is_cited_is_there() -> None:
    cited = citations()
    assert len(cited) > 30
    assert [where for where, number in cited if number not in rules()] == []


@pytest.mark.parametrize("number", rules())
def test_every_rule_names_tests_and_these_exist(number: int) -> None:
    named = re.findall(r"`(tests?[/_][\w/.]+)`", rules()[number].split("*Tests:*")[1])
    tests = "\n".join(path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py")))
    for name in named:
        assert (ROOT / name).exists() or re.search(rf"^(async )?def {name}\(", tests, re.MULTILINE), name
    assert named or "as 19" in rules()[number]
