"""What happens, as it is told over MQTT: each as its schema has it."""

import json
from ipaddress import ip_address

import pytest
from mqtt_schemas import DIRECTORY, mistakes

from speaker.allocator.refusals import Refusal, RefusalReason
from speaker.allocator.settle import Settlement
from speaker.model import Assignment, Gratuitous, Link, Mac, Placement, ServiceKey
from speaker.model.events import (
    ConflictBegun,
    EdgeFailed,
    EipClaimed,
    EipYielded,
    EndpointUnwell,
    EndpointWell,
    NotClaimed,
    PeerChanged,
    Refused,
    WasFrozen,
)
from speaker.node.transitions import Transitions
from speaker.telemetry.mqtt.messages import Topics, event

TOPICS = Topics("eip-speaker")
EIP = ip_address("192.0.2.10")
ETH0 = Link(2, "eth0", Mac(bytes.fromhex("020000000001")))
WEB = ServiceKey("default", "web")
AT = 1_700_000_000.0


def settled(*, given=True, refused=()):
    assigned = {WEB: Assignment(WEB, (EIP,), ("lan",))} if given else {}
    return Settlement(assigned, {one.service: one for one in refused})


def story():
    """Everything that happens."""
    told = Transitions()
    full = Refusal(WEB, RefusalReason.POOL_FULL, "no free address: lan")
    yield EipClaimed(EIP, Placement(ETH0, Gratuitous()), 7, "n2", 0.231)
    yield EipClaimed(EIP, Placement(ETH0, Gratuitous()), 8, "n2")
    yield EipClaimed(EIP, Placement(ETH0, Gratuitous()), 1, None)
    yield EipYielded(EIP, "yielded", "n2")
    yield EipYielded(EIP, "ineligible", None)
    yield PeerChanged("n2", ETH0, alive=True)
    yield PeerChanged("n2", ETH0, alive=False)
    yield from told.settled(settled())
    yield from told.settled(settled(given=False, refused=[full]))
    yield from told.conflicts({"192.0.2.10": "a stranger uses it"})
    yield from told.conflicts({})
    yield told.api(False, 0.0)
    yield told.api(False, 60.0)
    yield told.api(True, 61.0)
    yield EndpointUnwell("10.0.0.1:80", (WEB,), "tcp", "refused", "connection refused")
    yield EndpointWell("10.0.0.1:80", (WEB,), "tcp")


def told():
    return [message for one in story() if (message := event(TOPICS, one, "n1", AT)) is not None]


def kinds():
    """In the order of the schema."""
    return [one["title"] for one in json.loads((DIRECTORY / "event.schema.json").read_text())["oneOf"]]


def test_every_kind_of_event_happens_in_the_story_and_is_as_its_schema_has_it():
    messages = told()
    assert {json.loads(message.payload)["event"] for message in messages} == {*kinds()}
    assert [mistake for message in messages for mistake in mistakes(message.topic, message.payload)] == []
    assert not any(message.retain for message in messages)
    assert all(message.topic.endswith(f"/events/{json.loads(message.payload)['event']}") for message in messages)


def test_an_eip_that_moved_says_from_whom_at_which_term_and_after_how_long():
    taken = told()[0]
    assert json.loads(taken.payload) == {
        "event": "taken",
        "at": "2023-11-14T22:13:20.000Z",
        "by": "n1",
        "eip": "192.0.2.10",
        "link": "eth0",
        "mac": "02:00:00:00:00:01",
        "term": 7,
        "from": "n2",
        "why": "silent",
        "unanswered": 0.231,
    }


@pytest.mark.parametrize("happened", [WasFrozen(), EdgeFailed("netlink", "no"), NotClaimed(EIP, "link_down", "")])
def test_what_is_no_event_is_passed_over(happened):
    assert event(TOPICS, happened, "n1", AT) is None


@pytest.mark.parametrize("happened", [Refused(WEB, "pool_full", "x" * 5000), ConflictBegun("192.0.2.10", "x" * 5000)])
def test_a_tenants_text_is_cut_off(happened):
    assert len(json.loads(event(TOPICS, happened, "n1", AT).payload)["message"]) == 1024
