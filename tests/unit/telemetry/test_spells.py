"""Troubles that pass are nobody's business; what lasts is told, once for each of its words."""

import pytest

from speaker.telemetry.lines import LASTING, Spell

STORIES = [
    ("one late answer", [(0.0, "late")], []),
    ("it lasts", [(0.0, "late"), (5.0, "late"), (LASTING, "late"), (LASTING + 1, "late")], [LASTING]),
    ("its words change while it is young", [(0.0, "late"), (1.0, "reset"), (2.0, "late")], []),
    ("its words change later", [(LASTING, "late"), (LASTING + 1, "reset")], [LASTING, LASTING + 1]),
]


@pytest.mark.parametrize(("story", "happens", "told"), STORIES, ids=[story for story, *_ in STORIES])
def test_what_is_worth_a_word(story, happens, told):
    spell = Spell(0.0)
    assert [now for now, words in happens if spell.tells(words, now, LASTING)] == told


def test_what_is_for_somebody_to_mend_is_told_at_once():
    assert Spell(7.0).tells("forbidden", 7.0)
