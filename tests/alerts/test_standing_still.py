"""What excuses a test of what must be in time: ``standing_still.py``."""

import signal
import time

import pytest
from alert_lan import fires
from playing import Phase, Scrape
from standing_still import LONG, longest, told, watches


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


def recorded(*counters):
    """A phase in which each of these grew by one."""

    def scrape(at, value):
        return Scrape(at, {"speaker": {"n1": "".join(f"{name} {value}\n" for name in counters)}})

    return [Phase("calm", scrape(0.0, 0), scrape(1.0, 0)), Phase("sick", scrape(2.0, 1), scrape(3.0, 1))]


STEPS = {"calm": 4, "sick": 4}


@pytest.mark.parametrize(
    ("counters", "stood", "outcome"),
    [
        (["eip_speaker_frozen_total"], 0.0, AssertionError),
        (["eip_speaker_frozen_total"], 1.0, pytest.skip.Exception),
        (["eip_speaker_frozen_total", "eip_speaker_internal_errors_total"], 1.0, AssertionError),
        (["eip_speaker_internal_errors_total"], 1.0, AssertionError),
    ],
)
def test_frozen_speakers_are_excused_where_the_machine_stood_still_and_nothing_else_is(
    tmp_path, counters, stood, outcome
):
    with pytest.raises(outcome):
        fires(recorded(*counters), STEPS, {}, tmp_path, lambda: stood)


def test_what_is_right_is_right_however_long_it_stood_still(tmp_path):
    fires(recorded(), STEPS, {}, tmp_path, lambda: 9.0)
