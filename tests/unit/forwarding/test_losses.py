"""Whose endpoints get nothing new, by who is heard: at first all are, and then some fall silent."""

import pytest

from speaker.forwarding.losses import BELIEVED, Heard, Losses

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
    losses = Losses()
    for now, speakers in looks:
        found = losses.heard(speakers, now)
    assert found == lost
