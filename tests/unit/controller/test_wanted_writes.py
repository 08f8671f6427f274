"""Writes are the difference to what the API says: none where it says it already, Events for transitions only."""

from ipaddress import ip_address

import pytest

from speaker.allocator.assign import Outcome, Usage
from speaker.allocator.refusals import Refusal, RefusalReason
from speaker.api.kinds import ASSIGNED, ASSIGNED_FROM, MAX_LINE, EipObject, ServiceObject
from speaker.api.reading import judge, read_service
from speaker.api.service import RECORD
from speaker.controller.wanted import FINALIZER, IpMode, pool_writes, service_write
from speaker.model import Assignment, Family, ServiceKey

AT, LATER = "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"
WEB = ServiceKey("default", "web")
NOTED = {"type": "example.com/Seen", "status": "True", "reason": "Yes", "message": "", "lastTransitionTime": AT}


def assigned(*addresses, flagged=()):
    found = tuple(map(ip_address, addresses))
    one = Assignment(WEB, found, ("lan",) * len(found), frozenset(map(ip_address, flagged)))
    return Outcome(one)


def refused(reason=RefusalReason.POOL_FULL, message="all 1 addresses are in use"):
    return Outcome(None, Refusal(WEB, reason, message))


NOTHING = Outcome(None)


def decide(found: ServiceObject, outcome, *, record=None, duplicate=None, at=AT, mode=IpMode.VIP):
    return service_write(found, read_service(found, default_class=False), outcome, record, duplicate, mode, at)


def event(write):
    return None if write.event is None else (write.event.level, write.event.reason)


@pytest.fixture
def after(service_object):
    """The Service once a write is done."""

    def made(write, name="web", **parts):
        status = write.body()["status"]
        ingress = [each["ip"] for each in (status.get("loadBalancer") or {}).get("ingress") or ()]
        return service_object(name, ingress=ingress, conditions=status["conditions"], **parts)

    return made


def test_a_new_assignment_is_written_at_the_version_it_was_decided_from(service_object):
    write = decide(service_object("web", conditions=[NOTED]), assigned("192.0.2.10", "2001:db8::1"), mode=IpMode.PROXY)
    body = write.body()
    assert write.path == "/api/v1/namespaces/default/services/web/status"
    assert body["metadata"] == {"resourceVersion": "7"}
    assert body["status"]["loadBalancer"]["ingress"] == [
        {"ip": "192.0.2.10", "ipMode": "Proxy"},
        {"ip": "2001:db8::1", "ipMode": "Proxy"},
    ]
    assert [each["type"] for each in body["status"]["conditions"]] == ["example.com/Seen", ASSIGNED, ASSIGNED_FROM]
    assert event(write) == ("Normal", "Assigned")


@pytest.mark.parametrize("outcome", [assigned("192.0.2.10"), assigned("192.0.2.10", flagged=["192.0.2.10"]), refused()])
def test_what_is_written_is_not_written_again(service_object, after, outcome):
    write = decide(service_object("web"), outcome)
    assert decide(after(write), outcome, at=LATER) is None


def test_the_record_goes_with_the_status_and_comes_back_when_somebody_changes_it(service_object, after):
    write = decide(service_object("web"), assigned("192.0.2.10"), record="192.0.2.10")
    assert write.body()["metadata"] == {"annotations": {RECORD: "192.0.2.10"}, "resourceVersion": "7"}
    kept = after(write, annotations={"record": "192.0.2.10"})
    assert decide(kept, assigned("192.0.2.10"), record="192.0.2.10") is None
    changed = decide(after(write, annotations={"record": "x"}), assigned("192.0.2.10"), record="192.0.2.10")
    assert changed.body()["metadata"]["annotations"] == {RECORD: "192.0.2.10"}
    assert "loadBalancer" not in changed.body()["status"]
    assert event(changed) is None
    left = after(write, annotations={"record": "192.0.2.10"}, type="ClusterIP")
    assert decide(left, NOTHING).body()["metadata"]["annotations"] == {RECORD: None}


def test_which_pool_an_eip_is_from_is_written_with_it_and_alone_where_an_earlier_release_did_not(service_object, after):
    outcome = Outcome(Assignment(WEB, (ip_address("192.0.2.10"), ip_address("2001:db8::1")), ("lan", "lan6")))
    write = decide(service_object("web"), outcome)
    assert write.body()["status"]["conditions"][1] == {
        "type": ASSIGNED_FROM,
        "status": "True",
        "reason": "Recorded",
        "message": "IPv4 from lan, IPv6 from lan6",
        "lastTransitionTime": AT,
    }
    found = after(write)
    earlier = service_object("web", ingress=["192.0.2.10", "2001:db8::1"], conditions=[found.status.conditions[0]])
    mended = decide(earlier, outcome, at=LATER)
    assert [each["type"] for each in mended.body()["status"]["conditions"]] == [ASSIGNED, ASSIGNED_FROM]
    assert "loadBalancer" not in mended.body()["status"]
    assert event(mended) is None
    assert decide(found, outcome, at=LATER) is None


def test_what_is_released_is_from_no_pool_any_more(service_object, after):
    given = after(decide(service_object("web"), assigned("192.0.2.10")))
    assert [each["type"] for each in decide(given, refused()).body()["status"]["conditions"]] == [ASSIGNED]
    unknown = Outcome(Assignment(WEB, (ip_address("192.0.2.10"),), ("",)))
    assert [each["type"] for each in decide(given, unknown).body()["status"]["conditions"]] == [ASSIGNED]


def test_the_same_refusal_in_other_words_is_no_event(service_object, after):
    told = after(decide(service_object("web"), refused()))
    again = decide(told, refused(message="all 2 addresses are in use"), at=LATER)
    assert again is not None
    assert event(again) is None
    assert again.body()["status"]["conditions"][0]["lastTransitionTime"] == AT  # it was False before
    other = decide(told, refused(RefusalReason.NO_SUCH_POOL, "no such pool"))
    assert event(other) == ("Warning", "NoSuchPool")


def test_a_service_that_waited_says_when_it_was_served(service_object, after):
    waiting = after(decide(service_object("web"), refused()))
    write = decide(waiting, assigned("192.0.2.10"), at=LATER)
    assert event(write) == ("Normal", "Assigned")
    assert write.body()["status"]["conditions"][0]["lastTransitionTime"] == LATER


def test_the_mode_of_an_address_is_mended_without_a_word(service_object, after):
    written = after(decide(service_object("web"), assigned("192.0.2.10")))
    write = decide(written, assigned("192.0.2.10"), mode=IpMode.PROXY)
    assert write.body()["status"]["loadBalancer"]["ingress"] == [{"ip": "192.0.2.10", "ipMode": "Proxy"}]
    assert event(write) is None


def test_who_lost_a_duplicate_is_told_so(service_object):
    found = service_object("web", ingress=["192.0.2.10"])
    write = decide(found, assigned("192.0.2.11"), duplicate="192.0.2.10 is also held by …")
    assert event(write) == ("Warning", "DuplicateAddress")


@pytest.mark.parametrize(
    ("spec", "ingress"),
    [({"type": "ClusterIP"}, None), ({"loadBalancerClass": None}, None)],
)
def test_a_service_that_left_loses_what_is_ours_in_its_status(service_object, after, spec, ingress):
    left = after(decide(service_object("web", conditions=[NOTED]), assigned("192.0.2.10")), **spec)
    write = decide(left, NOTHING)
    assert write.body()["status"] == {"loadBalancer": {"ingress": ingress}, "conditions": [NOTED]}
    assert event(write) == ("Normal", "Released")


def test_what_another_class_has_written_already_stays(service_object, after):
    left = after(decide(service_object("web"), assigned("192.0.2.10")), loadBalancerClass="example.com/other")
    assert decide(left, NOTHING).body()["status"] == {"conditions": []}


def test_what_another_gave_a_service_that_got_nothing_of_us_stays_when_it_leaves(service_object, after):
    refused_by_us = after(decide(service_object("web"), refused()))
    assert refused_by_us.status.load_balancer.ingress == ()
    said = refused_by_us.status.conditions
    left = service_object("web", ingress=["203.0.113.1"], conditions=said, loadBalancerClass=None)
    body = decide(left, NOTHING).body()
    assert body["status"] == {"conditions": []}


@pytest.mark.parametrize("spec", [{"type": "ClusterIP"}, {"loadBalancerClass": "example.com/other"}])
def test_what_never_was_ours_is_left_alone(service_object, spec):
    assert decide(service_object("web", ingress=["192.0.2.10"], **spec), NOTHING) is None


# ── Pools ──

USAGE = {"lan": {Family.IPV4: Usage(size=11, used=1, resting=0), Family.IPV6: Usage(size=2**64, used=0, resting=0)}}
IN_USE = [Assignment(WEB, (ip_address("192.0.2.10"),), ("lan",))]


def pools(found: EipObject, assignments=(), usage=None):
    name = found.metadata.name
    usage = (usage or {}).get(name, {})
    writes = pool_writes(found, judge([found])[name], assignments, usage, AT, in_use=bool(assignments))
    return {write.path: write for write in writes}


EIP, STATUS = "/apis/eip-speaker.io/v1alpha1/eips/lan", "/apis/eip-speaker.io/v1alpha1/eips/lan/status"


def test_a_pool_in_use_gets_a_finalizer_beside_those_of_others(eip_object):
    found = eip_object("lan", "192.0.2.10", metadata={"finalizers": ["example.com/mine"]})
    assert pools(found, IN_USE)[EIP].body()["metadata"] == {
        "finalizers": ["example.com/mine", FINALIZER],
        "resourceVersion": "7",
    }
    assert EIP not in pools(found)


def test_a_pool_out_of_use_loses_its_finalizer_only(eip_object):
    found = eip_object("lan", "192.0.2.10", metadata={"finalizers": [FINALIZER, "example.com/mine"]})
    assert pools(found)[EIP].body()["metadata"]["finalizers"] == ["example.com/mine"]
    alone = eip_object("lan", "192.0.2.10", metadata={"finalizers": [FINALIZER]})
    assert pools(alone)[EIP].body()["metadata"]["finalizers"] is None


def test_a_pool_that_is_being_deleted_gets_no_finalizer(eip_object):
    found = eip_object("lan", "192.0.2.10", metadata={"deletionTimestamp": AT, "finalizers": ["example.com/mine"]})
    assert EIP not in pools(found, IN_USE)


def test_numbers_are_those_of_the_families_a_pool_has(eip_object):
    found = eip_object("lan", "192.0.2.10-192.0.2.20", status={"ipv6": {"size": 5, "used": 1}})
    status = pools(found, usage={"lan": {Family.IPV4: Usage(11, 1, 0)}})[STATUS].body()["status"]
    assert status["ipv4"] == {"size": 11, "used": 1}
    assert status["ipv6"] is None
    assert status["observedGeneration"] == 1


def test_a_size_beyond_what_the_api_can_say_is_capped(eip_object):
    assert pools(eip_object("lan", "2001:db8::/64"), usage=USAGE)[STATUS].body()["status"]["ipv6"]["size"] == 2**63 - 1


def test_the_addresses_stand_in_one_line_for_a_column(eip_object):
    found = eip_object("lan", "192.0.2.10", "192.0.2.20-192.0.2.29", "198.51.100.0/24", "2001:db8::/120", "203.0.113.1")
    status = pools(found)[STATUS].body()["status"]
    assert status["addressesText"] == "192.0.2.10,192.0.2.20-192.0.2.29,198.51.100.0/24 + 2 more"


def test_a_column_has_an_end_whatever_somebody_wrote_into_a_pool(eip_object):
    status = pools(eip_object("lan", "192.0.2.10", " " * 1000))[STATUS].body()["status"]
    assert len(status["addressesText"]) == MAX_LINE


@pytest.mark.parametrize(
    ("usage", "used", "free"),
    [
        ({Family.IPV4: Usage(11, 1, 2)}, "1", "10"),
        ({Family.IPV4: Usage(11, 1, 0), Family.IPV6: Usage(4, 0, 0)}, "1 IPv4, 0 IPv6", "10 IPv4, 4 IPv6"),
        ({Family.IPV6: Usage(2**64, 3, 0)}, "3", str(2**63 - 1)),
    ],
)
def test_what_is_used_and_free_stands_in_one_line_for_a_column(eip_object, usage, used, free):
    status = pools(eip_object("lan", "192.0.2.10"), usage={"lan": usage})[STATUS].body()["status"]
    assert (status["usedText"], status["freeText"]) == (used, free)


def test_that_nobody_has_looked_yet_is_no_news_once_a_controller_has(eip_object):
    pending = {"type": "Ready", "status": "Unknown", "reason": "Pending", "message": "", "lastTransitionTime": "1970"}
    first = pools(eip_object("lan", "192.0.2.10", status={"conditions": [pending]}))[STATUS]
    assert event(first) is None
    (ready,) = first.body()["status"]["conditions"]
    assert (ready["status"], ready["lastTransitionTime"]) == ("True", AT)


def conditions_of(found):
    return {each["type"]: each for each in pools(found)[STATUS].body()["status"]["conditions"]}


def test_a_pool_with_a_mistake_will_not_become_ready_by_waiting_and_one_that_is_disabled_has_none(eip_object):
    said = conditions_of(eip_object("lan", "nonsense"))
    assert (said["Ready"]["status"], said["Stalled"]["status"]) == ("False", "True")
    assert said["Stalled"]["message"] == said["Ready"]["message"]
    assert said["Stalled"]["observedGeneration"] == 1
    mended = eip_object("lan", "192.0.2.10", status={"conditions": list(said.values())})
    assert conditions_of(mended).keys() == {"Ready"}
    assert conditions_of(eip_object("lan", "192.0.2.10", disabled=True)).keys() == {"Ready"}


def test_only_counts_can_wait_and_the_same_ones_are_not_written_again(eip_object):
    first = pools(eip_object("lan", "192.0.2.10"), usage={"lan": {Family.IPV4: Usage(1, 0, 0)}})[STATUS]
    assert not first.lazy
    found = eip_object("lan", "192.0.2.10", status=first.body()["status"])
    assert STATUS not in pools(found, usage={"lan": {Family.IPV4: Usage(1, 0, 0)}})
    second = pools(found, usage={"lan": {Family.IPV4: Usage(1, 1, 0)}})[STATUS]
    assert second.lazy
    assert event(second) is None


def test_who_holds_a_pool_that_is_being_deleted_is_named_the_first_ten(eip_object):
    found = eip_object("lan", "192.0.2.10", metadata={"deletionTimestamp": AT})
    many = [
        Assignment(ServiceKey("default", f"s{i:02}"), (ip_address(f"192.0.2.{10 + i}"),), ("lan",)) for i in range(12)
    ]
    (condition,) = pools(found, many)[STATUS].body()["status"]["conditions"]
    assert "192.0.2.10 (default/s00)" in condition["message"]
    assert "and 2 more" in condition["message"]
    assert "s10" not in condition["message"]
