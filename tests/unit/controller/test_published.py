"""What a controller says to a broker: every EIP in use with its holder by the record, every pool, and what changed."""

import json
from ipaddress import ip_address

import msgspec
import pytest
from mqtt_schemas import mistakes

from speaker.allocator.assign import Outcome, Usage
from speaker.allocator.refusals import Refusal, RefusalReason
from speaker.api.objects import Metadata
from speaker.api.records import RecordedClaim, RecordedObject
from speaker.controller.decider import Decided
from speaker.controller.published import changes, shown
from speaker.model import Assignment, Family, ServiceKey
from speaker.model.events import Assigned, Refused, Released
from speaker.telemetry.mqtt.messages import Topics, event

TOPICS = Topics("eip-speaker")
WEB, DNS = ServiceKey("default", "web"), ServiceKey("default", "dns")
ONE, TWO = ip_address("192.0.2.10"), ip_address("192.0.2.11")
POOLS = {"lan": {Family.IPV4: Usage(254, 2, 1)}}
FULL = Refusal(DNS, RefusalReason.POOL_FULL, "no free address: lan")
REFUSED = Refused(DNS, "pool_full", "no free address: lan")


def has(key, *addresses, refusal=None):
    given = Assignment(key, addresses, ("lan",) * len(addresses)) if addresses else None
    return Outcome(given, refusal)


def record(name, **status):
    return RecordedObject(Metadata(name=name), RecordedClaim(**status))


HELD = record(
    "192.0.2.10", holder="n2", term=4, link="eth0", mac="02:00:00:00:00:01", since="2026-01-02T00:00:00Z", conflict=""
)


def parsed(areas):
    return {topic: json.loads(payload) for states in areas.values() for topic, payload in states.items()}


def test_every_eip_in_use_is_said_with_its_services_and_the_holder_that_its_record_names():
    decided = Decided({WEB: has(WEB, ONE), DNS: has(DNS, ONE, TWO, refusal=FULL)}, POOLS)
    areas = shown(TOPICS, decided, [HELD, record("192.0.2.99", holder="n9"), record("what is this", holder="n9")])
    assert areas.keys() == {TOPICS.all_eips, TOPICS.all_pools}
    found = parsed(areas)
    assert found == {
        "eip-speaker/v1/eips/192.0.2.10": {
            "address": "192.0.2.10",
            "pool": "lan",
            "services": ["default/dns", "default/web"],
            "holder": "n2",
            "term": 4,
            "since": "2026-01-02T00:00:00Z",
            "link": "eth0",
            "mac": "02:00:00:00:00:01",
            "conflict": None,
        },
        "eip-speaker/v1/eips/192.0.2.11": {
            "address": "192.0.2.11",
            "pool": "lan",
            "services": ["default/dns"],
            "holder": None,
            "term": 0,
            "conflict": None,
        },
        "eip-speaker/v1/pools/lan": {"pool": "lan", "families": {"IPv4": {"size": 254, "used": 2, "resting": 1}}},
    }
    assert [each for states in areas.values() for topic, told in states.items() for each in mistakes(topic, told)] == []


def test_a_record_of_nobody_says_so_and_a_conflict_is_told():
    areas = shown(
        TOPICS, Decided({WEB: has(WEB, ONE)}, {}), [record("192.0.2.10", term=5, conflict="02:00:00:00:00:99 on eth0")]
    )
    found = parsed(areas)["eip-speaker/v1/eips/192.0.2.10"]
    assert (found["holder"], found["term"], found["conflict"]) == (None, 5, "02:00:00:00:00:99 on eth0")


def test_of_an_announcement_only_what_is_said_is_decoded():
    body = b'{"metadata":{"name":"192.0.2.10"},"status":{"holder":"n1","term":3,"services":["a/b"],"since":"x"}}'
    assert msgspec.json.decode(body, type=RecordedObject).status == RecordedClaim("n1", term=3, since="x")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({}, {}, []),
        ({}, {WEB: has(WEB, ONE)}, [Assigned(WEB, (ONE,))]),
        ({WEB: has(WEB, ONE)}, {WEB: has(WEB, ONE)}, []),
        ({WEB: has(WEB, ONE)}, {WEB: has(WEB, TWO)}, [Assigned(WEB, (TWO,))]),
        ({WEB: has(WEB, ONE)}, {}, [Released(WEB, (ONE,))]),
        ({WEB: has(WEB, ONE)}, {WEB: has(WEB)}, [Released(WEB, (ONE,))]),
        ({}, {DNS: has(DNS, refusal=FULL)}, [REFUSED]),
        ({DNS: has(DNS, refusal=FULL)}, {DNS: has(DNS, refusal=FULL)}, []),
        ({DNS: has(DNS, refusal=FULL)}, {DNS: has(DNS, ONE)}, [Assigned(DNS, (ONE,))]),
        ({}, {DNS: has(DNS, ONE, refusal=FULL)}, [Assigned(DNS, (ONE,)), REFUSED]),
    ],
)
def test_what_changed_is_an_event_as_documented(before, after, said):
    happened = list(changes(before, after))
    assert happened == said
    messages = [event(TOPICS, one, "host_1", 0.0) for one in happened]
    assert [each for message in messages for each in mistakes(message.topic, message.payload)] == []
