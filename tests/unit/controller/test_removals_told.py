"""What lists lack and what stays for now is a problem and a number, until it is decided."""

from structlog.testing import capture_logs

from speaker.controller.run import ControllerMetrics
from speaker.removals import Doubt, Waiting

DOUBT = Doubt("services", Waiting(9, 10, 130.0), "2026-11-27T00:00:30Z")
NAME = "eip_speaker_controller_removals_waiting"


def test_what_waits_is_named_with_how_many_of_how_many_and_until_when_and_is_over_when_it_is_decided():
    metrics = ControllerMetrics()
    with capture_logs() as logs:
        metrics.doubted("services", DOUBT)
        (problem,) = metrics.problems()
        assert "services: 9 of 10 are missing from a list: they stay until 2026-11-27T00:00:30Z" in problem
        assert metrics.registry.get_sample_value(NAME, {"resource": "services"}) == 9
        metrics.doubted("services", None)
    assert metrics.problems() == ()
    assert metrics.registry.get_sample_value(NAME, {"resource": "services"}) == 0
    assert [line["event"] for line in logs] == ["removals wait", "removals settled"]
