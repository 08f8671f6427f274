"""What is told is written: at once, or after a moment with others of the same cause."""

import structlog

from speaker.telemetry.lines import FEW, Line, Transition
from speaker.telemetry.logs import Telling


def happened(number):
    return Transition("info", "claimed", "eip", f"192.0.2.{number}", "eth0", {"link": "eth0"})


def test_many_things_of_one_cause_are_one_line_and_none_is_none():
    with structlog.testing.capture_logs() as lines:
        Telling().say([*map(happened, range(FEW + 1)), None, Line("info", "api answers", {})])
    assert [line["event"] for line in lines] == ["claimed", "api answers"]


async def test_what_waits_for_others_is_written_at_the_end():
    telling = Telling()
    with structlog.testing.capture_logs() as lines:
        telling.tell(happened(1))
        assert lines == []
        telling.finish()
    assert len(lines) == 1
