"""What nobody foresaw is logged once, counted each time, and a problem for a while."""

import asyncio

import pytest
from structlog.testing import capture_logs

from speaker.system.supervise import heed_callbacks
from speaker.telemetry.logs import MAX_KNOWN, QUIET_SECONDS, InternalErrors
from speaker.telemetry.metrics import Metrics


@pytest.fixture
def world():
    return World()


class World:
    def __init__(self):
        self.now, self.changes, metrics = 0.0, 0, Metrics()
        self.registry = metrics.registry
        self.errors = InternalErrors(metrics.internal_errors, self.changed, lambda: self.now)

    def changed(self):
        self.changes += 1

    def stumble(self, word):
        try:
            raise KeyError(word)
        except KeyError as error:
            self.errors.internal_error("decide", error)

    def count(self):
        return self.registry.get_sample_value("eip_speaker_internal_errors_total", {"task": "decide"})


def test_one_line_of_code_is_logged_once_with_its_traceback_and_counted_each_time(world):
    with capture_logs() as logs:
        for word in ("a", "b", "c"):
            world.stumble(word)
    (line,) = logs
    assert (line["event"], line["task"], line["error"]) == ("internal error", "decide", "KeyError: 'a'")
    assert "raise KeyError(word)" in line["traceback"]
    assert world.count() == 3


def test_it_is_a_problem_until_it_has_been_quiet(world):
    world.stumble("a")
    world.now = QUIET_SECONDS - 1
    world.stumble("b")
    world.now += QUIET_SECONDS - 1
    (problem,) = world.errors.problems()
    assert "internal error in decide: KeyError: 'b'" in problem
    world.now += 1
    assert world.errors.problems() == ()


def test_a_new_problem_is_news_and_a_repeated_one_is_not(world):
    world.stumble("a")
    world.stumble("b")
    assert world.changes == 1


def test_of_a_group_each_is_told(world):
    world.errors.internal_error("decide", ExceptionGroup("tasks", [ValueError("a"), TypeError("b")]))
    assert world.count() == 2


def test_errors_without_end_are_counted_and_logged_up_to_a_bound(world):
    with capture_logs() as logs:
        for number in range(MAX_KNOWN + 10):
            world.errors.told("decide", "KeyError", f"KeyError at line {number}", "")
    assert len(logs) == MAX_KNOWN
    assert world.count() == MAX_KNOWN + 10


def test_those_that_another_process_meets_again_are_counted_and_keep_it_a_problem(world):
    world.errors.told("decide", "KeyError: 'a'", "KeyError at line 1", "")
    world.now = QUIET_SECONDS - 1
    with capture_logs() as logs:
        world.errors.again("decide", 7)
    world.now += QUIET_SECONDS - 1
    (problem,) = world.errors.problems()
    assert "KeyError: 'a'" in problem
    assert (world.count(), logs, world.changes) == (8, [], 1)


async def test_what_a_callback_raises_is_told_each_time_and_logged_once_also_a_cancellation(world):
    def callback():
        raise asyncio.CancelledError

    heed_callbacks(world.errors)
    with capture_logs() as logs:
        for _ in range(3):
            asyncio.get_running_loop().call_soon(callback)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    (line,) = logs
    assert (line["event"], line["task"]) == ("internal error", "callback")
    count = world.registry.get_sample_value("eip_speaker_internal_errors_total", {"task": "callback"})
    assert count == 3


def test_a_main_process_that_was_replaced_is_a_problem_for_longer_than_any_other_error(world):
    world.errors.told("main process", "it made no progress", "the main process", "stacks")
    world.stumble("a")
    world.now += QUIET_SECONDS
    (problem,) = world.errors.problems()
    assert "internal error in main process: it made no progress" in problem
    world.now += 600.0
    assert world.errors.problems() == ()
