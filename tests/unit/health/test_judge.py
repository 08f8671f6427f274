"""What results of checks mean for an endpoint, and for what is served."""

from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.health.judge import Condition, Found, Result, Target, behind, judged, targets
from speaker.model import (
    Assignment,
    Endpoint,
    HealthCheck,
    Protocol,
    Service,
    ServiceKey,
    ServicePort,
    TrafficPolicy,
    World,
)
from speaker.ownership.eligibility import Ineligible, veto
from speaker.settings import Node

CHECK = HealthCheck("tcp", rise=2, fall=3)
WEB, API = ServiceKey("default", "web"), ServiceKey("default", "api")
WELL, BAD = Found(Result.WELL), Found(Result.REFUSED, "refused")
LOCAL = TrafficPolicy.LOCAL


def endpoint(number, **other):
    return Endpoint(ip_address(f"10.0.0.{number}"), **{"port": 80, "protocol": Protocol.TCP} | other)


def world(*endpoints, check=CHECK, **other):
    service = Service(WEB, (ServicePort(Protocol.TCP, 80),), health_check=check, **other)
    return World(services={WEB: service}, endpoints={WEB: endpoints})


def unwell(*numbers, port=80, check=CHECK):
    return {Target(ip_address(f"10.0.0.{number}"), port, check): "refused" for number in numbers}


def ready(found):
    return [str(each.address) for each in found.endpoints[WEB] if each.ready]


@pytest.mark.parametrize(
    ("results", "states"),
    [
        ("+", "+"),
        ("-", "-"),
        ("+---", "+++-"),
        ("+--+--+--", "+++++++++"),
        ("-++", "--+"),
        ("-+-+-+", "------"),
        ("+---+++", "+++--++"),
    ],
)
def test_three_failures_in_a_row_make_it_unwell_and_two_successes_well_and_the_first_result_decides(results, states):
    condition, seen = Condition(), ""
    for each in results:
        condition.hear(WELL if each == "+" else BAD, CHECK)
        seen += "+" if condition.well else "-"
    assert seen == states


@given(st.lists(st.booleans(), min_size=1), st.integers(1, 5), st.integers(1, 5))
def test_a_change_is_told_exactly_when_it_happens(results, rise, fall):
    condition, check = Condition(), HealthCheck("tcp", rise=rise, fall=fall)
    for well in results:
        before = condition.well
        assert condition.hear(WELL if well else BAD, check) == (condition.well is not before)
    last = results[-max(rise, fall) :]
    if len(last) == max(rise, fall) and len(set(last)) == 1:
        assert condition.well is last[0]


def test_another_reason_is_told_when_it_has_been_the_same_as_often_as_makes_an_endpoint_unwell():
    condition, other = Condition(), Found(Result.TLS, "its certificate has expired")
    told = [(BAD, True), (other, False), (other, False), (BAD, False), (other, False), (other, False), (other, True)]
    told += [(other, False), (BAD, False), (BAD, False), (WELL, False), (WELL, True), (BAD, False), (other, False)]
    for found, heard in [*told, (BAD, True)]:
        assert condition.hear(found, CHECK) is heard, found
    assert (condition.well, condition.words) == (False, "refused")


def test_the_way_from_one_reason_to_another_is_none_towards_success():
    condition = Condition()
    for each in (BAD, Found(Result.TLS, "tls"), WELL):
        condition.hear(each, CHECK)
    assert condition.well is False


def test_an_address_and_port_are_checked_once_for_all_services_that_name_them():
    one = world(endpoint(1), endpoint(2))
    both = replace(
        one,
        services={**one.services, API: replace(one.services[WEB], key=API)},
        endpoints={**one.endpoints, API: (endpoint(2), endpoint(2, port=81))},
    )
    assert targets(both) == {
        Target(ip_address("10.0.0.1"), 80, CHECK): (WEB,),
        Target(ip_address("10.0.0.2"), 80, CHECK): (WEB, API),
        Target(ip_address("10.0.0.2"), 81, CHECK): (API,),
    }


def test_a_service_without_a_check_has_no_targets():
    assert targets(world(endpoint(1), check=None)) == {}


def test_another_port_may_be_checked_for_all_of_an_address():
    check = HealthCheck("tcp", port=9000)
    found = world(endpoint(1), endpoint(1, port=81, port_name="b"), endpoint(2), check=check)
    assert [each.port for each in targets(found)] == [9000, 9000]
    found = judged(found, unwell(1, port=9000, check=check))
    assert [bool(each.unwell) for each in found.endpoints[WEB]] == [True, True, False]


def test_who_is_unwell_gets_nothing_new():
    found = judged(world(endpoint(1), endpoint(2)), unwell(1))
    assert ready(found) == ["10.0.0.2"]
    assert [each.unwell for each in found.endpoints[WEB]] == ["refused", ""]


def test_who_is_well_and_not_ready_by_its_slice_stays_so():
    assert ready(judged(world(endpoint(1, ready=False), endpoint(2)), unwell(2))) == ["10.0.0.2"]


def test_where_none_is_well_all_are_served():
    found = judged(world(endpoint(1), endpoint(2)), unwell(1, 2))
    assert ready(found) == ["10.0.0.1", "10.0.0.2"]
    assert [each.unwell for each in found.endpoints[WEB]] == ["refused", "refused"]


def test_a_port_without_a_well_endpoint_is_served_by_all_and_another_is_not():
    found = judged(
        world(
            endpoint(1, port_name="a"),
            endpoint(2, port_name="a"),
            endpoint(1, port=81, port_name="b"),
            endpoint(2, port=81, port_name="b"),
        ),
        unwell(1, 2) | unwell(1, port=81),
    )
    assert [each.ready for each in found.endpoints[WEB]] == [True, True, False, True]


def test_a_family_without_a_well_endpoint_is_served_by_all():
    other = Endpoint(ip_address("2001:db8::1"), 80, Protocol.TCP)
    found = judged(world(endpoint(1), endpoint(2), other), {Target(other.address, 80, CHECK): "timeout"} | unwell(1))
    assert [each.ready for each in found.endpoints[WEB]] == [False, True, True]


@pytest.mark.parametrize(
    ("bad", "eligible"),
    [((), "ab"), ((1,), "b"), ((2,), "a"), ((1, 2), "ab")],
)
def test_with_local_a_node_whose_endpoint_is_unwell_may_not_hold_it_while_another_has_a_well_one(bad, eligible):
    asked = world(endpoint(1, node="a"), endpoint(2, node="b"), traffic_policy=LOCAL)
    found = judged(asked, unwell(*bad))
    for node in "ab":
        no = veto(ip_address("192.0.2.1"), None, found.services.values(), found.endpoints, Node(node))
        assert (no is None) == (node in eligible)
        assert no is None or no.reason is Ineligible.NO_LOCAL_ENDPOINT


def test_with_local_one_bad_port_makes_all_of_an_address_unwell():
    asked = world(
        endpoint(1, node="a"),
        endpoint(1, node="a", port=81, port_name="b"),
        endpoint(2, node="b"),
        endpoint(2, node="b", port=81, port_name="b"),
        traffic_policy=LOCAL,
    )
    assert ready(judged(asked, unwell(1, port=81))) == ["10.0.0.2", "10.0.0.2"]


@pytest.mark.parametrize(
    ("bad", "behind_others"),
    [((), False), ((1,), False), ((1, 2), True), ((1, 2, 3), False)],
)
def test_a_node_whose_own_endpoints_are_all_unwell_lets_others_go_first_while_they_have_a_well_one(bad, behind_others):
    asked = world(endpoint(1, node="a"), endpoint(2, node="a"), endpoint(3, node="b"))
    eip, new = ip_address("192.0.2.1"), ip_address("2001:db8::1")
    found = judged(asked, unwell(*bad))
    assigned = {WEB: Assignment(WEB, (eip, new), ("lan", "lan"))}
    assert behind(found, assigned, "a") == (frozenset({eip}) if behind_others else frozenset())
    assert behind(found, assigned, "c") == behind(found, {}, "a") == frozenset()


def test_what_nobody_finds_unwell_is_the_same_object():
    asked = world(endpoint(1))
    assert judged(asked, {}) is asked
