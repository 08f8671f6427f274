"""What of /metrics a node makes when it is asked."""

import pytest

from speaker.errors import EdgeError
from speaker.node.report import Report
from speaker.node.serve import traffic_told
from speaker.telemetry.metrics import Metrics


class Broken:
    """A forwarder whose counters cannot be read."""

    def __init__(self, error):
        self.error = error

    def traffic(self, *, real_servers):
        raise self.error


@pytest.mark.parametrize(
    ("error", "problem"),
    [(EdgeError("no IPVS"), "no IPVS"), (KeyError("a bug"), "internal error in traffic: KeyError: 'a bug'")],
)
async def test_traffic_that_cannot_be_told_is_a_problem_and_all_else_is_told(tmp_path, error, problem):
    report = Report(Metrics(), tmp_path)
    assert await traffic_told(Broken(error), report, real_servers=False)() == b""
    assert report.problems()[0].startswith(problem)
