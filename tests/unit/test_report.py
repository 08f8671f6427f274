"""What is told has a bound, whatever there is to tell."""

from structlog.testing import capture_logs

from speaker.errors import InvalidField, InvalidManifests, Place
from speaker.report import SHOWN, Report
from speaker.telemetry.metrics import Metrics


def test_mistakes_without_end_are_counted_and_told_up_to_a_bound(tmp_path):
    report = Report(Metrics(), tmp_path)
    wrong = tuple(InvalidField("a", number, "is wrong", place=Place("a.yaml", number)) for number in range(20_000))
    with capture_logs() as lines:
        report.bad_manifests(InvalidManifests(wrong), still_serving=True)
    assert len(lines) == SHOWN + 1
    assert lines[-1]["problem"] == f"{20_000 - SHOWN} more: `speaker validate` lists them all"
    assert len(report.problems()) == SHOWN + 1
