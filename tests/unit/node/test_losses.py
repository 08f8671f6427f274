"""Whose endpoints get nothing new, by who is heard: at first all are, and then some fall silent."""

import pytest

from speaker.node.losses import BELIEVED, Heard, Losses

SETTLES = 0.25
ALIVE, SILENT, GOING, GONE = (True, False), (False, False), (True, True), (False, True)


def heard(**nodes):
    return [Heard(node, *how) for node, how in nodes.items()]


STORIES = [
    ("all are heard", [(0, heard(b=ALIVE, c=ALIVE))], set()),
    ("one of three dies", [(0, heard(b=ALIVE, c=ALIVE)), (1, heard(b=SILENT, c=ALIVE))], {"b"}),
    ("one of two dies: or is it us", [(0, heard(b=ALIVE)), (1, heard(b=SILENT))], set()),
    ("two of three die: or is it us", [(0, heard(b=ALIVE, c=ALIVE)), (1, heard(b=SILENT, c=SILENT))], set()),
    ("two of five die", [(0, heard(b=ALIVE, c=ALIVE, d=ALIVE, e=ALIVE)),
                         (1, heard(b=SILENT, c=SILENT, d=ALIVE, e=ALIVE))], {"b", "c"}),
    ("one comes back", [(0, heard(b=ALIVE, c=ALIVE)), (1, heard(b=SILENT, c=ALIVE)), (2, heard(b=ALIVE, c=ALIVE))],
     set()),
    ("one is restarted", [(0, heard(b=ALIVE, c=ALIVE)), (1, heard(b=GOING, c=ALIVE)), (2, heard(b=GONE, c=ALIVE))],
     set()),
    ("one was silent before we looked", [(0, heard(b=SILENT, c=ALIVE)), (1, heard(b=SILENT, c=ALIVE))], set()),
    ("the control plane has had its time", [(0, heard(b=ALIVE, c=ALIVE)), (1, heard(b=SILENT, c=ALIVE)),
                                           (1 + BELIEVED, heard(b=SILENT, c=ALIVE))], set()),
    ("one is heard on another link", [(0, heard(b=ALIVE, c=ALIVE)),
                                      (1, [*heard(b=SILENT, c=ALIVE), *heard(b=ALIVE)])], set()),
]  # fmt: skip


@pytest.mark.parametrize(("story", "looks", "lost"), STORIES, ids=[story for story, *_ in STORIES])
def test_who_is_taken_for_dead(story, looks, lost):
    losses = Losses(SETTLES)
    for now, speakers in looks:
        _, soon = losses.heard(speakers, now)
        found, again = losses.heard(speakers, now + (soon or 0))
        assert again is None
    assert found == lost


def test_who_is_cut_off_takes_nobody_for_dead_though_the_others_fall_silent_one_by_one():
    losses = Losses(SETTLES)
    losses.heard(heard(b=ALIVE, c=ALIVE), 0)
    assert losses.heard(heard(b=SILENT, c=ALIVE), 1) == (frozenset(), SETTLES)
    found, soon = losses.heard(heard(b=SILENT, c=SILENT), 1 + SETTLES / 2)
    assert (found, soon) == (frozenset(), pytest.approx(SETTLES / 2))
    assert losses.heard(heard(b=SILENT, c=SILENT), 1 + 2 * SETTLES) == (frozenset(), None)
