"""What excuses a test of what must be in time: ``standing_still.py``."""

import signal
import time

import pytest
from standing_still import LONG, longest, told, unless_the_machine_stands_still, watches


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


def test_a_watch_that_does_not_run_tells_for_how_long():
    with watches() as found:
        found[0].send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        while time.monotonic() < begun + 2 * LONG:
            pass
        found[0].send_signal(signal.SIGCONT)
        assert told(found) > LONG


@pytest.mark.parametrize(
    ("most", "why", "outcome"),
    [
        (1e9, "SpeakerFrozen 2", AssertionError),
        (-1.0, "SpeakerFrozen 2", pytest.skip.Exception),
        (-1.0, "EipFlapping 1", AssertionError),
    ],
)
def test_frozen_speakers_are_excused_only_where_the_machine_stood_still_and_nothing_else_is(most, why, outcome):
    @unless_the_machine_stands_still(most)
    def fails():
        raise AssertionError(why)

    with pytest.raises(outcome):
        fails()


def test_what_passes_passes_however_long_it_stood_still():
    with unless_the_machine_stands_still(-1.0):
        pass


def test_what_breaks_otherwise_is_not_excused():
    with pytest.raises(ValueError, match="a slip"), unless_the_machine_stands_still(-1.0):
        raise ValueError("a slip")
