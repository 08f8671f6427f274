"""What excuses a test of what must be in time: ``standing_still.py``."""

import pytest
from standing_still import longest, unless_the_machine_stands_still


def test_the_longest_moment_in_which_it_did_not_run_is_found():
    at = [0.0]

    def ended(seconds):
        at[0] += seconds + (0.5 if at[0] == pytest.approx(0.03) else 0.0)
        return at[0] > 1.0

    assert longest(ended, lambda: at[0]) == pytest.approx(0.5)


def test_who_is_never_kept_waiting_stood_still_for_no_time():
    at = [0.0]

    def ended(seconds):
        at[0] += seconds
        return at[0] > 1.0

    assert longest(ended, lambda: at[0]) == pytest.approx(0.0)


@pytest.mark.parametrize(("most", "outcome"), [(1e9, AssertionError), (-1.0, pytest.skip.Exception)])
def test_what_fails_is_skipped_only_where_the_machine_stood_still(most, outcome):
    @unless_the_machine_stands_still(most)
    def fails():
        raise AssertionError("an alert too many")

    with pytest.raises(outcome, match="an alert too many"):
        fails()


def test_what_passes_passes_however_long_it_stood_still():
    with unless_the_machine_stands_still(-1.0):
        pass


def test_what_breaks_otherwise_is_not_excused():
    with pytest.raises(ValueError, match="a slip"), unless_the_machine_stands_still(-1.0):
        raise ValueError("a slip")
