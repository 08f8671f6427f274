"""From the label that excludes a node until it holds nothing: it hands over first."""

import pytest

from speaker.agent.view import Exclusion, NodeIntent
from speaker.settings import Node

DRAIN = 3.0
STEP = DRAIN + 1
FREE, EXCLUDED = NodeIntent(Node("n1")), NodeIntent(Node("n1", excluded=True))
HANDS_OVER, FORBIDDEN_TOO, FORBIDDEN, NOTHING = (False, True), (True, True), (True, False), (False, False)

STORIES = [
    ("is excluded from the start", [(0, EXCLUDED, FORBIDDEN, None)]),
    (
        "is excluded later",
        [
            (0, FREE, NOTHING, None),
            (10, EXCLUDED, HANDS_OVER, STEP),
            (10 + STEP - 0.5, EXCLUDED, HANDS_OVER, 0.5),
            (10 + STEP, EXCLUDED, FORBIDDEN_TOO, STEP),
            (10 + 2 * STEP, EXCLUDED, FORBIDDEN, None),
        ],
    ),
    (
        "is excluded, freed and excluded again",
        [
            (0, FREE, NOTHING, None),
            (10, EXCLUDED, HANDS_OVER, STEP),
            (11, FREE, NOTHING, None),
            (12, EXCLUDED, HANDS_OVER, STEP),
        ],
    ),
    (
        "was excluded at first",
        [(0, EXCLUDED, FORBIDDEN, None), (5, FREE, NOTHING, None), (9, EXCLUDED, HANDS_OVER, STEP)],
    ),
]


@pytest.mark.parametrize(("story", "looks"), STORIES, ids=[story for story, _ in STORIES])
def test_a_node_that(story, looks):
    exclusion = Exclusion(DRAIN)
    for now, wishes, asked, again in looks:
        found, later = exclusion.follow(wishes, now)
        assert ((found.node.excluded, found.drained is not None), later) == (asked, again)


def test_another_reason_to_drain_stays():
    drained = NodeIntent(Node("n1", excluded=True), drained="cordoned")
    exclusion = Exclusion(DRAIN)
    exclusion.follow(FREE, 0)
    assert [exclusion.follow(drained, now)[0].drained for now in (1, 1 + STEP, 1 + 2 * STEP)] == ["cordoned"] * 3
