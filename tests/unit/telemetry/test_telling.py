"""What is told is written, and heard by whoever else listens: each thing once, whatever lines the log makes of it."""

import structlog

from speaker.telemetry.lines import FEW, Line, Transition
from speaker.telemetry.telling import Telling


def happened(number):
    return Transition("info", "claimed", "eip", f"192.0.2.{number}", "eth0", {"link": "eth0"})


def test_of_many_things_with_one_line_each_is_heard():
    telling, heard = Telling(), []
    telling.heard.append(heard.append)
    with structlog.testing.capture_logs() as lines:
        telling.say([happened(number) for number in range(FEW + 1)])
    assert [line["event"] for line in lines] == ["claimed"]
    assert [line.fields["eip"] for line in heard] == [f"192.0.2.{number}" for number in range(FEW + 1)]


def test_lines_are_heard_as_they_are_and_none_is_none():
    telling, heard = Telling(), []
    telling.heard.append(heard.append)
    line = Line("info", "api answers", {})
    with structlog.testing.capture_logs() as lines:
        telling.say([None, line])
    assert [line["event"] for line in lines] == ["api answers"]
    assert heard == [line]


async def test_what_waits_for_others_in_the_log_is_heard_at_once():
    telling, heard = Telling(), []
    telling.heard.append(heard.append)
    with structlog.testing.capture_logs() as lines:
        telling.tell(happened(1))
        assert (len(heard), lines) == (1, [])
        telling.finish()
    assert len(lines) == 1
