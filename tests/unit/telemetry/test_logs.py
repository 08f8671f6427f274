import asyncio
import io
import json
import threading
from enum import Enum
from ipaddress import IPv4Address
from pathlib import Path

import pytest
import structlog
from structlog.testing import CapturingLogger

from speaker.telemetry.lines import BURST, QUIET
from speaker.telemetry.logs import Bounded, Writer, in_words, unfailing


class Stalled(io.StringIO):
    """Takes nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.reached.set()
        self.go.wait()
        return super().write(text)


def test_lines_come_out_in_order_and_the_last_ones_before_the_end():
    out = io.StringIO()
    writer = Writer(out.write)
    for number in range(5000):
        writer.info(str(number))
    writer.finish()
    assert out.getvalue().split() == [str(number) for number in range(5000)]


def test_a_reader_that_stalls_holds_up_nobody_and_what_was_lost_is_told():
    out = Stalled()
    writer = Writer(out.write, most=10)
    writer.info("first")
    out.reached.wait()
    for number in range(25):
        writer.info(str(number))
    out.go.set()
    writer.finish()
    lines = out.getvalue().splitlines()
    assert lines == ["first", *map(str, range(10)), "15 lines were lost: nobody read them in time"]


def test_the_end_does_not_wait_for_a_reader_that_never_comes_back():
    out = Stalled()
    writer = Writer(out.write)
    writer.info("never read")
    writer.finish(seconds=0.01)
    out.go.set()


class Full(io.StringIO):
    """A disk that has no room for the first few lines."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self.refusals = refusals
        self.asked = threading.Semaphore(0)

    def write(self, text: str) -> int:
        self.refusals -= 1
        self.asked.release()
        if self.refusals >= 0:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_a_disk_that_is_full_costs_lines_and_they_are_counted_when_there_is_room():
    out = Full(refusals=3)
    writer = Writer(out.write)
    for number in range(4):
        writer.info(str(number))
        out.asked.acquire()
    writer.finish()
    assert out.getvalue().splitlines() == ["3", "3 lines were lost: nobody read them in time"]


@pytest.fixture
def bounded():
    """``say("event", …)`` logs through what bounds it; ``lines`` is what came of it; the ``clock`` is moved by hand."""
    now = [0.0]
    processor, writer = Bounded(lambda: now[0]), CapturingLogger()
    before = structlog.get_config()
    structlog.configure(
        processors=[processor, lambda _, __, fields: ((), fields)],
        wrapper_class=structlog.BoundLogger,
        logger_factory=lambda *_: writer,
        cache_logger_on_first_use=False,
    )
    yield structlog.get_logger().warning, processor, now, lambda: [call.kwargs for call in writer.calls]
    structlog.configure(**before)


def test_a_flood_of_lines_is_cut_and_its_length_told_when_it_is_over(bounded):
    say, processor, now, lines = bounded
    for number in range(1000):
        say("conflict", eip=number)
    processor.tell()
    assert len(lines()) == BURST
    now[0] = QUIET
    processor.tell()
    assert lines()[BURST:] == [{"event": "lines left out", "source": "conflict", "lines": 1000 - BURST, "seconds": 0.0}]


def test_an_edge_that_fails_in_ever_new_words_does_not_silence_another(bounded):
    say, _, _, lines = bounded
    for number in range(1000):
        say("edge failed", edge="netlink", error=str(number))
    say("edge failed", edge="forwarding", error="no")
    assert [line["edge"] for line in lines()].count("forwarding") == 1


def test_the_writer_asks_now_and_then():
    asked = threading.Event()
    writer = Writer(io.StringIO().write, now_and_then=lambda: bool(asked.set()))
    assert asked.wait(60)
    writer.finish()


def test_the_writer_is_stirred_when_lines_begin_to_be_left_out_and_asks_again_until_all_is_told(bounded):
    say, processor, now, _ = bounded
    stirred = []
    processor.stir = lambda: stirred.append(now[0])
    for _ in range(BURST):
        say("conflict")
    assert (stirred, processor.tell()) == ([], False)
    for _ in range(3):
        say("conflict")
    assert (stirred, processor.tell()) == ([0.0], True)
    now[0] = QUIET
    assert processor.tell() is False
    say("conflict")
    assert (stirred, processor.tell()) == ([0.0], False)  # there was room for it


def test_a_disk_that_is_full_loses_lines_tells_how_many_and_takes_those_that_come_later():
    room, taken, refused = threading.Event(), io.StringIO(), threading.Event()

    def out(text: str) -> None:
        if not room.is_set():
            refused.set()
            raise OSError(28, "No space left on device")
        taken.write(text)

    writer = Writer(out)
    writer.info("lost")
    refused.wait()
    room.set()
    writer.info("kept")
    writer.finish()
    assert taken.getvalue().splitlines() == ["kept", "1 lines were lost: nobody read them in time"]


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "none"),
        (True, "yes"),
        (False, "no"),
        (["192.0.2.1", IPv4Address("192.0.2.2")], "192.0.2.1, 192.0.2.2"),
        ((), "none"),
        ({"n1": None, "n2": [1, 2]}, "n1: none, n2: 1, 2"),
        (Colour.RED, "red"),
        (Path("/run/x"), "/run/x"),
        (7, 7),
        ("as it is", "as it is"),
    ],
)
def test_people_read_words_where_python_has_others(value, said):
    assert in_words(None, "info", {"event": "moved", "before": value}) == {"event": "moved", "before": said}


def test_no_bug_ends_the_thread_that_writes():
    """Nobody else could tell of it."""
    bugs, out, tried = [ValueError("a bug"), MemoryError()], io.StringIO(), threading.Semaphore(0)

    def write(text):
        tried.release()
        if bugs:
            raise bugs.pop()
        out.write(text)

    asked = threading.Event()

    def ask():
        if not asked.is_set():
            asked.set()
            raise TypeError("a bug")
        return False

    writer = Writer(write, now_and_then=ask)
    assert asked.wait(60)
    for number in range(3):
        writer.info(str(number))
        assert tried.acquire(timeout=60)
    writer.finish()
    assert out.getvalue().splitlines() == ["2", "2 lines were lost: nobody read them in time"]


class Stumbling:
    """A processor with a bug: the first lines meet it."""

    def __init__(self, *errors):
        self.errors = list(errors)

    def __call__(self, logger, name, fields):
        if self.errors:
            raise self.errors.pop(0)
        return fields


@pytest.mark.parametrize(
    "error", [KeyError("a bug"), asyncio.CancelledError(), StopIteration(), MemoryError()], ids=repr
)
def test_a_line_that_meets_a_bug_fails_nobody_and_another_says_so(error):
    out = io.StringIO()
    writer = Writer(out.write)
    processors = [Stumbling(error), structlog.processors.JSONRenderer()]
    kind = unfailing(structlog.make_filtering_bound_logger("info"), writer)
    log = structlog.wrap_logger(writer, processors=processors, wrapper_class=kind)
    log.info("claimed", eip="192.0.2.1")
    log.bind(eip="192.0.2.2").warning("withdrawn")
    log.debug("never")
    writer.finish()
    failed, then = map(json.loads, out.getvalue().splitlines())
    assert (failed["event"], failed["task"], failed["line"]) == ("internal error", "log", "claimed")
    assert failed["error"] == repr(error)
    assert then == {"event": "withdrawn", "eip": "192.0.2.2"}


class Unwritable(Writer):
    """It takes no line, for as long as it is told to."""

    refuses = True

    def msg(self, line):
        if self.refuses:
            raise MemoryError("no room")
        super().msg(line)

    error = msg


def test_nor_does_one_of_which_nothing_can_be_said_before_the_next():
    out = io.StringIO()
    writer = Unwritable(out.write)
    log = structlog.wrap_logger(
        writer,
        processors=[structlog.processors.JSONRenderer()],
        wrapper_class=unfailing(structlog.make_filtering_bound_logger("info"), writer),
    )
    for _ in range(3):
        log.error("claimed")
    writer.refuses = False
    writer.msg("then")
    writer.finish()
    assert out.getvalue().splitlines() == ["then", "3 lines were lost: MemoryError('no room')"]
