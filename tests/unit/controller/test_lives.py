"""Which holders are gone: those whose Lease nobody renews, while we look."""

import pytest

from speaker.controller.sessions import LOOK_COUNTS, Lives

N1 = {"n1": "7"}

STORIES = [
    ("one that was just seen is not", [(0, N1)], {}),
    ("one that renews its Lease is not", [(0, N1), (30, {"n1": "8"}), (60, {"n1": "9"})], {}),
    ("one that does not any more is", [(0, N1), (30, N1), (60, N1)], N1),
    ("one is not before its time", [(0, N1), (30, N1), (59.9, N1)], {}),
    ("one that comes back is not", [(0, N1), (30, N1), (60, N1), (75, {"n1": "8"})], {}),
    ("one whose Lease went with its Node is, later", [(0, N1), (30, {}), (60, {}), (90, {})], {"n1": ""}),
    ("one whose Lease was taken away has time to write it", [(0, N1), (30, {}), (60, {"n1": "9"}), (90, N1)], {}),
    ("of one that never had a Lease nothing is known", [(0, {}), (30, {}), (60, {}), (90, {})], {}),
    ("one that had no Lease at first is as others", [(0, {}), (30, N1), (60, N1), (90, N1)], N1),
    ("where we could not look nobody could renew", [(0, N1), (30, N1), (30.1 + LOOK_COUNTS, N1)], {}),
    ("and from then on it is as before", [(0, N1), (100, N1), (130, N1), (160, N1)], N1),
]


@pytest.mark.parametrize(("story", "heard", "gone"), STORIES, ids=[story for story, *_ in STORIES])
def test_who_is_gone(story, heard, gone):
    lives = Lives()
    for now, versions in heard:
        lives.heard(versions, {"n1"}, now)
    assert lives.gone(now) == gone


def test_only_who_is_named_by_a_record_matters():
    lives = Lives()
    for now in (0, 30, 60):
        lives.heard({"n1": "7", "n2": "3"}, {"n2"}, now)
    assert lives.gone(60) == {"n2": "3"}


def test_nothing_is_known_before_we_looked_and_when_we_have_not_for_long():
    lives = Lives()
    assert lives.gone(5) is None
    for now in (0, 30, 60):
        lives.heard(N1, {"n1"}, now)
    assert lives.gone(60 + LOOK_COUNTS) == N1
    assert lives.gone(60.1 + LOOK_COUNTS) is None
