"""What people are told of objects that cannot be read."""

import pytest
from structlog.testing import capture_logs

from speaker.node.problems import SHOWN
from speaker.node.report import Report
from speaker.telemetry.metrics import Metrics


@pytest.fixture
def report(tmp_path):
    return Report(Metrics(), tmp_path)


def test_what_cannot_be_read_is_a_problem_for_as_long_as_it_lasts_and_its_beginning_and_its_end_are_logged(report):
    with capture_logs() as logged:
        for told in (("one",), ("one",), ("one", "two"), ("two",), ("two",)):
            report.unreadable(told)
            assert report.problems() == list(told)
        report.unreadable(())
    assert [(each["event"], each["message"]) for each in logged] == [
        ("problem", "one"),
        ("problem", "two"),
        ("problem over", "one"),
        ("problem over", "two"),
    ]
    assert report.problems() == []


def test_of_any_number_of_objects_that_cannot_be_read_some_are_named_and_the_rest_is_counted(report):
    with capture_logs() as logged:
        report.unreadable([f"Service/default/s{number}" for number in range(10_000)])
    assert [each["count"] for each in logged] == [len(report.findings())] == [SHOWN + 1]
    assert report.findings()[-1].what == f"{10_000 - SHOWN} more values in the API cannot be read"
