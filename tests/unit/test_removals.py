"""What lacks much of what was known has to be said twice; what lacks little counts at once."""

import pytest

from speaker.removals import Removals, Waiting, is_much


@pytest.mark.parametrize(
    ("story", "gone", "known", "said", "much"),
    [
        ("nothing is gone", 0, 10, 10, False),
        ("nothing was known", 0, 0, 0, False),
        ("an empty list, where one was known", 1, 1, 0, True),
        ("an empty list, where many were known", 10, 10, 0, True),
        ("the only one that matters, while others are listed", 1, 1, 5, False),
        ("both that matter, while others are listed", 2, 2, 5, True),
        ("one of two", 1, 2, 1, False),
        ("two of three", 2, 3, 1, False),
        ("three of four", 3, 4, 1, True),
        ("three of twelve", 3, 12, 9, False),
        ("three of eleven", 3, 11, 8, True),
        ("a quarter of many", 250, 1000, 750, False),
        ("a little more than a quarter of many", 251, 1000, 749, True),
    ],
)
def test_how_much_is_much(story, gone, known, said, much):
    assert is_much(gone, known, said) is much, story


TEN = frozenset(range(10))


def test_what_an_empty_list_lacks_stays_until_a_later_list_lacks_it_too():
    removals = Removals(30.0)
    assert set(removals.kept(TEN, 10, 0, 100.0)) == TEN
    assert (removals.waiting, len(removals)) == (Waiting(10, 10, 130.0), 10)
    assert set(removals.kept(TEN, 10, 0, 129.9)) == TEN, "a list that comes sooner decides nothing"
    assert removals.waiting == Waiting(10, 10, 130.0), "and puts nothing off"
    assert set(removals.kept(TEN, 10, 0, 130.0)) == set()
    assert removals.waiting is None


def test_what_comes_back_stays_and_what_is_missed_twice_goes():
    removals = Removals(30.0)
    removals.kept(TEN, 10, 0, 100.0)
    assert set(removals.kept({1, 2, 3, 4}, 10, 6, 130.0)) == set()
    assert removals.waiting is None


def test_what_only_the_second_list_lacks_waits_for_a_third():
    removals = Removals(30.0)
    removals.kept({1, 2, 3, 4}, 10, 6, 100.0)
    assert set(removals.kept({1, 2, 3, 4, 5, 6, 7}, 10, 3, 130.0)) == {5, 6, 7}
    assert removals.waiting == Waiting(7, 10, 160.0)


def test_what_is_deleted_or_changed_by_itself_waits_for_nothing():
    removals = Removals(30.0)
    removals.kept({1, 2}, 2, 0, 100.0)
    removals.heard(1)
    assert (len(removals), removals.waiting) == (1, Waiting(2, 2, 130.0))
    removals.heard(2)
    assert removals.waiting is None


def test_one_that_came_back_in_between_has_to_be_missed_anew():
    removals = Removals(30.0)
    removals.kept(TEN, 10, 0, 100.0)
    removals.kept(frozenset(), 10, 10, 110.0)
    assert set(removals.kept(TEN, 10, 0, 130.0)) == TEN


def test_without_patience_everything_goes_at_once():
    removals = Removals(0.0)
    assert set(removals.kept(TEN, 10, 0, 100.0)) == set()
    assert removals.waiting is None
