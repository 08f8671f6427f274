"""What the records tell of failovers: each once, as an Event of each Service that has the EIP."""

from ipaddress import ip_address

import pytest

from speaker.api.kinds import FullMetadata
from speaker.api.objects import Key, Metadata
from speaker.api.records import RecordedClaim, RecordedObject
from speaker.controller.announced import Failover, Failovers, Users, left_out, told
from speaker.model import ServiceKey
from speaker.telemetry.lines import SHOWN, Bound

WEB, DNS = ServiceKey("default", "web"), ServiceKey("default", "dns")
EIP = "192.0.2.10"
AT = "2026-11-21T18:00:00Z"
HELD = {"holder": "n1", "term": 3}
SINCE = "2026-11-21T17:59:59Z"
TAKEN = {"holder": "n2", "term": 4, "taken_from": "n1", "unanswered": 231, "since": SINCE}
FAILOVER = Failover(ip_address(EIP), EIP, "n1", "n2", 0.231, 4, SINCE)


def heard(*stages, name=EIP):
    """What is news of each of these states of one record; None: it is gone."""
    found = Failovers()
    objects = [None if status is None else RecordedObject(Metadata(name), RecordedClaim(**status)) for status in stages]
    return [one for each in objects for one in found.news({Key("", name): each})]


@pytest.mark.parametrize(
    "stages",
    [
        pytest.param([HELD, TAKEN], id="taken from another"),
        pytest.param([HELD, HELD | {"holder": ""}, TAKEN], id="let go meanwhile"),
        pytest.param([HELD, TAKEN, TAKEN | {"term": 5}], id="and raised by its holder"),
        pytest.param([{}, TAKEN], id="of nobody, as its record had it"),
    ],
)
def test_a_failover_is_news_once(stages):
    assert heard(*stages) == [FAILOVER]


@pytest.mark.parametrize(
    "stages",
    [
        pytest.param([TAKEN], id="what was so before"),
        pytest.param([HELD, None, TAKEN], id="a record that was made anew"),
        pytest.param([HELD, HELD | {"holder": "n2"}], id="a hand-over"),
        pytest.param([HELD, HELD | {"link": "eth1"}], id="another link"),
        pytest.param([HELD, {**TAKEN, "holder": ""}], id="of nobody"),
    ],
)
def test_what_is_none_is_none(stages):
    assert heard(*stages) == []


def test_a_record_of_a_name_that_none_of_us_gave_is_passed_over():
    assert heard(HELD, TAKEN, name="whatever") == []


@pytest.mark.parametrize("free", ["\x1b[2J", "pay to mallory", "https://example.com/pay", "x" * 300])
def test_nothing_that_an_agent_made_up_is_told(free):
    assert heard(HELD, TAKEN | {"taken_from": free, "since": free, "mac": free}) == [
        FAILOVER._replace(before="", since="")
    ]


def test_a_node_that_the_cluster_does_not_have_is_not_named():
    found = Failovers({"n2"}.__contains__)
    objects = [RecordedObject(Metadata(EIP), RecordedClaim(**status)) for status in (HELD, TAKEN)]
    assert [one.before for each in objects for one in found.news({Key("", EIP): each})] == [""]


def about(key):
    return FullMetadata(name=key.name, namespace=key.namespace, uid=f"u-{key.name}", resource_version="7")


def having(*keys):
    """These Services have the EIP."""
    return lambda names: {EIP: Users([*map(about, keys)])} if EIP in names else {}


def said(failover, *keys, room=None):
    return list(told([failover], having(*keys), AT, room or Bound(3, 1.0), 100.0))


def test_of_very_many_at_once_only_some_have_events_and_later_ones_again_and_the_rest_is_counted():
    room = Bound(3, 1.0)
    assert len(list(told([FAILOVER] * 10, having(WEB), AT, room, 100.0))) == 3
    assert len(list(told([FAILOVER] * 10, having(WEB), AT, room, 102.0))) == 2
    assert [left_out(room, 100.0 + seconds) for seconds in (2.0, 100.0, 200.0)] == [0, 15, 0]


def test_each_service_that_has_the_eip_gets_an_event_with_the_nodes_and_the_seconds():
    found = [event.body() for event in said(FAILOVER, DNS, WEB)]
    assert [body["involvedObject"]["name"] for body in found] == ["dns", "web"]
    assert {(body["type"], body["reason"]) for body in found} == {("Warning", "FailedOver")}
    words = "192.0.2.10: n2 answers in place of n1, which fell silent, 0.231 s after its last sign"
    assert {body["message"] for body in found} == {words}
    assert said(FAILOVER) == []
    assert {event.logged().event for event in said(FAILOVER, DNS, WEB)} == {"failed over"}


def test_of_very_many_services_of_one_eip_some_have_an_event():
    assert len(said(FAILOVER, *(ServiceKey("default", f"web{number}") for number in range(SHOWN + 9)))) == SHOWN


def test_two_failovers_of_a_service_that_nobody_touched_have_events_of_their_own_and_each_one_name():
    again = FAILOVER._replace(term=5, before="n2", node="n1")
    anew = FAILOVER._replace(since="2026-11-21T19:00:00Z")  # its record was deleted, and terms began anew
    names = [said(each, WEB)[0].body()["metadata"]["name"] for each in (FAILOVER, again, anew, FAILOVER)]
    assert names[0] == names[3]
    assert len(set(names)) == 3


def test_a_holder_that_nobody_knew_by_name_is_some_node():
    assert "a node that fell silent" in str(FAILOVER._replace(before=""))


def test_what_a_record_says_of_nodes_does_not_speak_to_the_terminal():
    odd = FAILOVER._replace(before="n1\x1b[2J", node="n2\u202e")
    (event,) = said(odd, WEB)
    assert event.message.isprintable()
    assert "\\x1b[2J" in event.message
