"""A failover is told in five places: log, metric, MQTT, the Event of Kubernetes and the page. All have one duration."""

import asyncio
import json
from ipaddress import ip_address

import msgspec
import pytest
from structlog.testing import capture_logs

from speaker.agent.record import Facts, update
from speaker.api.kinds import FullMetadata
from speaker.api.objects import Key
from speaker.api.records import RecordedObject
from speaker.controller.announced import Failovers, Users
from speaker.controller.announced import told as events_of
from speaker.controller.decider import Decided
from speaker.controller.published import ControllerPage
from speaker.model import Gratuitous, Link, Mac, Placement
from speaker.model.events import EipClaimed
from speaker.node.report import Report
from speaker.ownership.events import Claim, WriteRecord
from speaker.ownership.hello import Incarnation
from speaker.telemetry.lines import Bound
from speaker.telemetry.metrics import Metrics
from speaker.telemetry.mqtt.messages import Topics, event
from speaker.telemetry.page.host import HostPage

ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))
EIP = ip_address("192.0.2.10")
NOTHING = {"eips": [], "refused": [], "problems": [], "findings": []}


def recorded(version, order, facts):
    status = update(order, facts, "2026-11-21T18:00:00Z")["status"]
    said = {"metadata": {"name": str(EIP), "resourceVersion": version}, "status": status}
    return msgspec.json.decode(
        msgspec.json.encode(said | {"status": {k: v for k, v in status.items() if v is not None}}), type=RecordedObject
    )


async def happened(seconds, home):
    """What the wire process measured, as it is told everywhere; the log is captured by who calls."""
    metrics = Metrics()
    report = Report(metrics, home)
    page, messages = HostPage("n2", report), []
    report.hearers += [page.hear, lambda one: messages.append(event(Topics("p"), one, "n2", 0.0))]
    unanswered = Claim(EIP, 2, 4, silent_since=1000.0).unanswered(1000.0 + seconds)
    report.hear(EipClaimed(EIP, Placement(ETH0, Gratuitous()), 4, "n1", unanswered))
    report.telling.finish()
    page.shown(NOTHING, {}, {})
    await asyncio.sleep(0)

    # The agent's record, and what the controller makes of it.
    facts = Facts("eth0", "02:00:00:00:00:01", ("default/web",), failover=report.noted.failover(EIP))
    life, key, failovers = Incarnation(1), Key("", str(EIP)), Failovers()
    before = recorded("1", WriteRecord(EIP, 1, 1, "n1", life, 3), facts._replace(failover=None))
    after = recorded("2", WriteRecord(EIP, 1, 1, "n2", life, 4), facts)
    assert list(failovers.news({key: before})) == []
    (failover,) = failovers.news({key: after})
    web = FullMetadata(name="web", namespace="default")
    (told,) = events_of([failover], lambda _: {str(EIP): Users([web])}, "2026-11-21T18:00:00Z", Bound(1, 1.0), 0.0)
    of_controller = ControllerPage("c1", lambda: ())
    of_controller.failed_over(failover)
    of_controller.follow(Decided({}, {}))
    showing = asyncio.create_task(of_controller.run(()))
    await asyncio.sleep(0.01)
    showing.cancel()

    pages = [json.loads(await each.live.now())["failovers"][0]["unanswered"] for each in (page, of_controller)]
    return {
        "metric": metrics.registry.get_sample_value("eip_speaker_failover_seconds_sum"),
        "mqtt": json.loads(messages[0].payload)["unanswered"],
        "event": float(told.message.rsplit(", ", 1)[1].split(" s ")[0]),
        "page": pages[0][0],
        "page of the controller": pages[1][1],
    }


@pytest.mark.parametrize("seconds", [0.0, 0.2314159, 0.2495, 1.001, 29.9996, 12345.6789])
def test_all_that_tells_of_a_failover_says_the_same_number(seconds, tmp_path, in_virtual_time):
    with capture_logs() as lines:
        found = in_virtual_time(happened(seconds, tmp_path))
    (logged,) = [line["unanswered"] for line in lines if line["event"] == "claimed"]
    assert logged == pytest.approx(seconds, abs=0.0005001)
    assert found == dict.fromkeys(found, logged)
