"""Announcements and Leases, as the ownership machine and as people see them."""

from ipaddress import ip_address
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.agent.record import (
    MAX_SERVICES,
    Facts,
    correction,
    creation,
    eip_of,
    identity,
    life_of,
    path_of,
    read_record,
    update,
)
from speaker.api.records import AnnouncementObject, LeaseObject
from speaker.ownership.events import Record, WriteRecord
from speaker.ownership.hello import MAX_INCARNATION, Incarnation

EIP = ip_address("2001:db8::10")
FACTS = Facts("eth0", "02:00:00:00:00:01", ("default/web",))
LIFE = Incarnation(7 << 31)
AT = "2026-11-21T18:00:00Z"


def announcement(name: str = "192.0.2.10", version: str = "41", **status: Any) -> AnnouncementObject:
    return msgspec.convert(
        {"metadata": {"name": name, "resourceVersion": version}, "status": status}, AnnouncementObject
    )


def lease(holder: str | None, name: str = "n1") -> LeaseObject:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"holderIdentity": holder}}, LeaseObject)


def order(holder: str | None = "n1") -> WriteRecord:
    return WriteRecord(EIP, 1, 41, holder, LIFE, 5)


@pytest.mark.parametrize(
    ("status", "record"),
    [
        ({"holder": "n1", "incarnation": LIFE, "term": 5}, Record("n1", LIFE, 5, 41)),
        ({"holder": "", "incarnation": LIFE, "term": 5}, Record(None, LIFE, 5, 41)),
        ({}, Record(None, Incarnation(0), 0, 41)),
        ({"holder": "n1", "incarnation": LIFE, "term": 2**31}, Record("n1", LIFE, 2**31, 41)),
        ({"holder": "n1", "incarnation": LIFE, "term": 2**31 + 1}, Record(None, Incarnation(0), 0, 41)),
        ({"holder": "n1", "incarnation": LIFE, "term": 2**62}, Record(None, Incarnation(0), 0, 41)),
        ({"holder": "n1", "incarnation": LIFE, "term": -1}, Record(None, Incarnation(0), 0, 41)),
    ],
    ids=["held", "let go", "just created", "the last term", "one behind it", "made up", "below any"],
)
def test_a_record_is_read_from_its_announcement(status, record):
    assert read_record(announcement(**status)) == record


def test_an_ipv6_address_names_its_announcement_and_is_read_back():
    name = creation(order(), FACTS, AT)["metadata"]["name"]
    assert name == "2001-0db8-0000-0000-0000-0000-0000-0010"
    assert path_of(EIP).endswith(name)
    assert eip_of(announcement(name)) == EIP
    assert eip_of(announcement("somebody-elses")) is None


def test_a_write_names_the_version_it_was_decided_from_and_says_what_people_ask():
    patch = update(order(), FACTS, AT)
    assert patch["metadata"] == {"resourceVersion": "41"}
    assert patch["status"] == {
        "holder": "n1",
        "incarnation": LIFE,
        "term": 5,
        "since": AT,
        "link": "eth0",
        "mac": "02:00:00:00:00:01",
        "services": ("default/web",),
        "servicesText": "default/web",
        "conflict": None,
        "reason": None,
        "takenFrom": None,
        "unansweredMilliseconds": None,
    }


@pytest.mark.parametrize(
    ("failover", "said"),
    [
        (None, (None, None)),
        (("n2", 0.231), ("n2", 231)),
        (("", 0.0), (None, 0)),
        (("n2", 1e12), ("n2", 2**31 - 1)),
    ],
)
def test_a_failover_is_written_with_its_claim_and_not_put_right_later(failover, said):
    facts = FACTS._replace(failover=failover)
    status = update(order(), facts, AT)["status"]
    assert (status["takenFrom"], status["unansweredMilliseconds"]) == said
    right = {"link": "eth0", "mac": "02:00:00:00:00:01", "services": ["default/web"]}
    assert correction(announcement(**right), facts) is None


def test_the_first_record_of_an_eip_says_all_of_it_at_once_and_nothing_that_is_not_there():
    made = creation(order(), FACTS, AT)
    said = msgspec.convert(made | {"metadata": {"name": "192.0.2.10", "resourceVersion": "41"}}, AnnouncementObject)
    assert read_record(said) == Record("n1", LIFE, 5, 41)
    assert made["status"] == {name: it for name, it in update(order(), FACTS, AT)["status"].items() if it is not None}


def test_who_lets_go_takes_away_what_was_said_of_him_and_keeps_the_term():
    status = update(order(None), None, AT)["status"]
    assert (status["holder"], status["term"]) == ("", 5)
    assert [status[field] for field in ("since", "link", "mac", "services", "conflict", "takenFrom")] == [None] * 6


def test_an_eip_that_nobody_holds_keeps_its_services_and_says_why():
    status = update(order(None), Facts("", "", ("default/web",), reason="no_local_endpoint"), AT)["status"]
    assert status["services"] == ("default/web",)
    assert status["reason"] == "no_local_endpoint"
    assert [status[field] for field in ("since", "link", "mac", "conflict")] == [None] * 4


def test_a_record_is_corrected_only_where_it_is_wrong():
    right = {"link": "eth0", "mac": "02:00:00:00:00:01", "services": ["default/web"]}
    assert correction(announcement(**right), FACTS) is None
    assert correction(announcement(**right, reason="drained"), FACTS) is not None
    shared = FACTS._replace(services=("default/dns", "default/web"))
    patch = correction(announcement(**right), shared)
    assert patch is not None
    assert patch["metadata"] == {"resourceVersion": "41"}
    assert patch["status"]["services"] == ("default/dns", "default/web")
    assert not {"holder", "term", "incarnation"} & patch["status"].keys()


def test_the_services_in_one_line_are_put_right_where_somebody_left_others_but_not_where_they_are_not_known():
    right = {"link": "eth0", "mac": "02:00:00:00:00:01", "services": ["default/web"]}
    assert correction(announcement(**right, servicesText="default/web"), FACTS) is None
    patch = correction(announcement(**right, servicesText="default/dns"), FACTS)
    assert patch is not None
    assert patch["status"]["servicesText"] == "default/web"


def test_more_services_than_a_status_takes_are_left_out_and_that_is_no_mistake():
    many = FACTS._replace(services=tuple(f"default/s{n}" for n in range(MAX_SERVICES + 1)))
    patch = correction(announcement(), many)
    assert patch is not None
    told = announcement(**patch["status"] | {"conflict": "", "reason": ""})
    assert len(told.status.services) == MAX_SERVICES
    assert correction(told, many) is None


@pytest.mark.parametrize("free", ["pay to mallory", "\x1b[2J", "x" * 300])
def test_what_no_record_may_say_is_not_written_and_no_correction_is_due_for_it(free):
    facts = Facts("eth 0/1", "02:00:00:00:00:01", ("default/web",), free, free, (free, 0.2))
    status = update(order(), facts, AT)["status"]
    assert [status[field] for field in ("link", "conflict", "reason", "takenFrom")] == [None] * 4
    assert correction(announcement(mac="02:00:00:00:00:01", services=["default/web"]), facts) is None


@pytest.mark.parametrize("free", ["pay to mallory", "\x1b[2J", "x" * 300, "N1"])
def test_a_holder_that_can_be_no_node_is_nobody(free):
    assert read_record(announcement(holder=free, incarnation=LIFE, term=5)).holder is None


@given(st.integers(0, MAX_INCARNATION))
def test_a_life_is_read_back_from_the_lease_it_was_written_into(number: int):
    assert life_of(lease(identity("n1", Incarnation(number)))) == number


@pytest.mark.parametrize(
    "holder", [None, "", "n1", "n2_5", "n1_", "n1_-5", "n1_5_6", f"n1_{MAX_INCARNATION + 1}", "n1_\u0665"]
)
def test_a_lease_that_no_agent_wrote_says_nothing(holder):
    assert life_of(lease(holder)) is None
