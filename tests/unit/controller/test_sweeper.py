"""An Announcement goes when its EIP is nobody's any more: soon where nobody holds it, else after a while."""

from ipaddress import ip_address

import msgspec
import pytest

from speaker.api.kinds import ASSIGNED
from speaker.api.records import RecordedObject
from speaker.controller.announced import Grace, Sweeper, Uses
from speaker.controller.wanted import Removal
from speaker.model import Assignment, ServiceKey

GRACE = Grace(vacant=2.0, held=60.0)
EIP = "192.0.2.10"
PATH = f"/apis/eip-speaker.io/v1alpha1/announcements/{EIP}"
WEB, DNS = ServiceKey("default", "web"), ServiceKey("default", "dns")
MARK = {"type": ASSIGNED, "status": "True", "reason": "Assigned", "message": ""}


def announcement(holder: str | None = "n1", *, name: str = EIP, version: str = "5") -> RecordedObject:
    status = {} if holder is None else {"status": {"holder": holder, "term": 3, "mac": "02:00:5e:00:53:01"}}
    metadata = {"name": name, "uid": "u", "resourceVersion": version, "labels": {}}
    return msgspec.json.decode(msgspec.json.encode({"metadata": metadata, **status}), type=RecordedObject)


@pytest.mark.parametrize(
    ("holder", "first"),
    [pytest.param("", 2.0, id="vacant"), pytest.param(None, 2.0, id="never held"), pytest.param("n1", 60.0, id="held")],
)
def test_how_long_an_eip_must_have_been_unused(holder, first):
    sweeper, found = Sweeper(GRACE), [announcement(holder)]
    assert sweeper.step(found, (), 100.0) == {}
    assert sweeper.step(found, (), 100.0 + first - 0.1) == {}
    assert sweeper.step(found, (), 100.0 + first) == {PATH: Removal(PATH, "u", "5")}


def test_what_anybody_has_stays():
    sweeper, found = Sweeper(GRACE), [announcement("")]
    for now in (0.0, 100.0, 200.0):
        assert sweeper.step(found, {EIP}, now) == {}


def test_who_is_used_again_begins_anew():
    sweeper, found = Sweeper(GRACE), [announcement("")]
    sweeper.step(found, (), 0.0)
    sweeper.step(found, {EIP}, 1.9)
    assert sweeper.step(found, (), 2.0) == {}
    assert sweeper.step(found, (), 3.9) == {}
    assert PATH in sweeper.step(found, (), 4.0)


def test_a_removal_is_taken_back_when_the_eip_is_used_again_or_claimed():
    for other, uses in (("", {EIP}), ("n2", ())):
        sweeper = Sweeper(GRACE)
        sweeper.step([announcement("")], (), 0.0)
        assert sweeper.step([announcement("")], (), 2.0)[PATH] is not None
        assert sweeper.step([announcement(other, version="6")], uses, 2.1) == {PATH: None}
        assert sweeper.step([announcement(other, version="6")], uses, 2.2) == {}


def test_when_the_holder_gives_it_up_what_has_passed_counts():
    sweeper = Sweeper(GRACE)
    sweeper.step([announcement("n1")], (), 0.0)
    assert sweeper.step([announcement("", version="6")], (), 5.0) == {PATH: Removal(PATH, "u", "6")}


def test_what_is_gone_is_forgotten():
    sweeper = Sweeper(GRACE)
    sweeper.step([announcement("")], (), 0.0)
    assert sweeper.step([announcement("")], (), 2.0)[PATH] is not None
    assert sweeper.step([], (), 3.0) == {PATH: None}
    assert sweeper.step([announcement("")], (), 4.0) == {}


def test_a_removal_names_the_object_and_the_version_it_was_decided_from():
    assert Removal(PATH, "u", "5").body()["preconditions"] == {"uid": "u", "resourceVersion": "5"}


# ── Uses ──


def assigned(*addresses: str) -> Assignment:
    return Assignment(WEB, tuple(map(ip_address, addresses)), ("lan",) * len(addresses))


def test_an_eip_is_used_from_when_it_is_decided_until_it_stands_in_no_status(service_object):
    uses = Uses()
    uses.note(WEB, service_object("web"), assigned("192.0.2.10", "2001:db8::1"))
    assert "192.0.2.10" in uses
    assert "2001-0db8-0000-0000-0000-0000-0000-0001" in uses
    uses.note(WEB, service_object("web", ingress=["192.0.2.10"], conditions=[MARK]), None)
    assert "192.0.2.10" in uses
    assert "2001-0db8-0000-0000-0000-0000-0000-0001" not in uses
    uses.note(WEB, None, None)
    assert "192.0.2.10" not in uses


def test_what_sharers_have_is_used_until_the_last_is_gone(service_object):
    uses = Uses()
    for key in (WEB, DNS):
        uses.note(key, service_object(key.name), assigned("192.0.2.10"))
    uses.note(WEB, None, None)
    assert "192.0.2.10" in uses
    uses.note(DNS, None, None)
    assert "192.0.2.10" not in uses


def test_what_others_wrote_into_a_status_is_no_use_of_ours(service_object):
    uses = Uses()
    uses.note(WEB, service_object("web", ingress=["192.0.2.10"]), None)
    uses.note(DNS, service_object("dns", ingress=["no address", ""], conditions=[MARK]), None)
    assert "192.0.2.10" not in uses
