"""What is retained: a status in, topics and payloads out, each as its schema has it; and from one such state to
another with nothing but what is needed."""

import json
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqtt_schemas import mistakes

from speaker.allocator.assign import Usage
from speaker.allocator.settle import Settlement
from speaker.checks import Finding
from speaker.model import Family, Gratuitous, Link, Mac, ServiceKey
from speaker.node.decide import Decision, MayHold, MayNotHold
from speaker.node.status import Status
from speaker.telemetry.mqtt import messages
from speaker.telemetry.mqtt.messages import Message, Topics, turn
from speaker.wire.messages import ClaimStatus

TOPICS = Topics("eip-speaker")
ETH0 = Link(2, "eth0", Mac(bytes.fromhex("020000000001")))
MINE, THEIRS, NOBODYS = ip_address("192.0.2.10"), ip_address("192.0.2.11"), ip_address("2001:db8::10")
WEB, DNS = ServiceKey("default", "web"), ServiceKey("default", "dns")


def told():
    """What a status file says of an EIP of ours, one of another node's, and one that nobody may have."""
    eips = {
        MINE: MayHold(MINE, "lan", (WEB, DNS), ETH0, Gratuitous()),
        THEIRS: MayHold(THEIRS, "lan", (WEB,), ETH0, Gratuitous()),
        NOBODYS: MayNotHold(NOBODYS, "six", (WEB,), "link_down", "eth0 is down"),
    }
    claims = {
        MINE: ClaimStatus(True, "n1", 7, 1_700_000_000.25),
        THEIRS: ClaimStatus(False, "n2", 3, None),
        NOBODYS: ClaimStatus(False, None, 0, None),
    }
    return Status().told(Settlement({}, {}), Decision(eips, None), claims, [Finding("late_hellos", "eth0 is down", "")])


def parsed(found):
    return {topic: json.loads(payload) for topic, payload in found.items()}


def test_of_every_eip_in_use_it_is_said_who_has_it():
    found = parsed(messages.shared(TOPICS, told(), {"192.0.2.10": "a stranger uses it"}))
    assert found["eip-speaker/v1/eips/192.0.2.10"] == {
        "address": "192.0.2.10",
        "pool": "lan",
        "services": ["default/dns", "default/web"],
        "holder": "n1",
        "term": 7,
        "link": "eth0",
        "mac": "02:00:00:00:00:01",
        "since": "2023-11-14T22:13:20.250Z",
        "conflict": "a stranger uses it",
    }
    assert found["eip-speaker/v1/eips/192.0.2.11"] == {
        "address": "192.0.2.11",
        "pool": "lan",
        "services": ["default/web"],
        "holder": "n2",
        "term": 3,
        "conflict": None,
    }, "our link and MAC are not another's"
    assert found["eip-speaker/v1/eips/2001:db8::10"]["holder"] is None


def test_a_node_says_what_it_holds_and_nothing_of_the_rest():
    found = parsed(messages.holds(TOPICS, "n1", told()))
    assert found == {
        "eip-speaker/v1/nodes/n1/eips/192.0.2.10": {
            "address": "192.0.2.10",
            "node": "n1",
            "services": ["default/dns", "default/web"],
            "term": 7,
            "link": "eth0",
            "mac": "02:00:00:00:00:01",
            "since": "2023-11-14T22:13:20.250Z",
        }
    }


def test_of_a_node_that_stopped_nothing_is_held_and_the_rest_stays_as_it_is():
    before = messages.shared(TOPICS, told(), {})
    after = parsed(messages.without_holder(before, "n1"))
    changed = [message.topic for message in turn(before, messages.without_holder(before, "n1"))]
    assert changed == ["eip-speaker/v1/eips/192.0.2.10"]
    assert after["eip-speaker/v1/eips/192.0.2.10"] == {
        "address": "192.0.2.10",
        "pool": "lan",
        "services": ["default/dns", "default/web"],
        "holder": None,
        "term": 7,
        "conflict": None,
    }


POOLS = {"lan": {Family.IPV4: Usage(254, 2, 1)}, "six": {Family.IPV6: Usage(2**64, 1, 0)}}


@pytest.mark.parametrize(
    "found",
    [
        messages.shared(TOPICS, told(), {}),
        messages.shared(TOPICS, told(), {"192.0.2.10": "x" * 5000}),
        messages.without_holder(messages.shared(TOPICS, told(), {}), "n1"),
        messages.holds(TOPICS, "n1", told()),
        messages.pools(TOPICS, POOLS),
        messages.node(TOPICS, "n1", "up"),
        messages.node(TOPICS, "n1", "up", 3, ["x" * 5000] * 50),
        messages.node(TOPICS, "n1", "lost"),
        messages.node(TOPICS, "n1", "stopped"),
        messages.controller(TOPICS, "host_1", "up"),
        messages.controller(TOPICS, "host_1", "lost"),
    ],
)
def test_every_state_is_as_its_schema_has_it(found):
    assert found
    assert [mistake for topic, payload in found.items() for mistake in mistakes(topic, payload)] == []


def test_who_is_lost_says_nothing_of_what_it_was():
    assert parsed(messages.node(TOPICS, "n1", "lost", 3, ["a"])) == {
        "eip-speaker/v1/nodes/n1": {"node": "n1", "state": "lost"}
    }


def test_what_did_not_change_is_told_in_the_same_bytes():
    assert messages.shared(TOPICS, told(), {}) == messages.shared(TOPICS, told(), {})


# ── From one to the other ──

SOME = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from([b"1", b"2", b"3"]))


def carried_out(before, messages):
    """As a broker does it."""
    kept = dict(before)
    for message in messages:
        assert message.retain
        if message.payload:
            kept[message.topic] = message.payload
        else:
            del kept[message.topic]  # what is not there is not cleared
    return kept


@pytest.mark.parametrize(
    ("before", "after", "messages"),
    [
        ({}, {}, []),
        ({}, {"a": b"1"}, [Message("a", b"1", True)]),
        ({"a": b"1"}, {"a": b"1"}, []),
        ({"a": b"1"}, {"a": b"2"}, [Message("a", b"2", True)]),
        ({"a": b"1"}, {}, [Message("a", b"", True)]),
        ({"a": b"1", "b": b"1"}, {"b": b"1", "c": b"1"}, [Message("a", b"", True), Message("c", b"1", True)]),
    ],
)
def test_one_state_is_turned_into_the_other(before, after, messages):
    assert list(turn(before, after)) == messages


@given(SOME, SOME)
def test_exactly_the_messages_that_turn_one_into_the_other_are_said(before, after):
    messages = list(turn(before, after))
    assert carried_out(before, messages) == after
    different = {topic for topic in before | after if before.get(topic) != after.get(topic)}
    assert sorted(message.topic for message in messages) == sorted(different)
