"""``externalTrafficPolicy: Local``: an endpoint that comes to this node counts once kube-proxy sends to it."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from speaker.kubeproxy.health_checks import HealthCheck, LocalEndpoints, answer, read_answer
from speaker.model import Endpoint, Family, Protocol, Service, ServiceKey, ServicePort, TrafficPolicy, World

KEY, OTHER = ServiceKey("shop", "web"), ServiceKey("shop", "api")
V4, V6 = Family.IPV4, Family.IPV6
WEB = Service(KEY, (ServicePort(Protocol.TCP, 80),), traffic_policy=TrafficPolicy.LOCAL, health_check_port=30001)
THIS = frozenset({KEY})


def endpoint(address: str = "10.0.0.1", node: str = "n1", **conditions: bool) -> Endpoint:
    return Endpoint(ip_address(address), 8080, Protocol.TCP, node=node, **conditions)


HERE, THERE, SIX = endpoint(), endpoint("10.0.0.2", "n2"), endpoint("2001:db8::1")
LEAVING = endpoint(ready=False, serving=True, terminating=True)


def world(*endpoints: Endpoint, service: Service = WEB) -> World:
    return World(services={KEY: service}, endpoints={KEY: endpoints})


def begun(*endpoints: Endpoint, service: Service = WEB) -> LocalEndpoints:
    """With these at first."""
    found = LocalEndpoints("n1")
    asked = world(*endpoints, service=service)
    assert found.follow(asked, None) == (asked, None)
    assert not found.awaited
    return found


def counting(found: LocalEndpoints, *endpoints: Endpoint, service: Service = WEB) -> tuple[Endpoint, ...]:
    return found.follow(world(*endpoints, service=service), THIS)[0].endpoints[KEY]


def test_what_was_there_at_first_counts():
    begun(HERE, THERE, SIX)


def test_what_comes_counts_once_kube_proxy_knows_it():
    found = begun(THERE)
    assert counting(found, HERE, THERE) == (THERE,)
    assert found.awaited == {(KEY, V4): 30001}
    assert not found.heard((KEY, V4), 0)
    assert counting(found, HERE, THERE) == (THERE,)
    assert found.heard((KEY, V4), 1)
    assert found.follow(world(HERE, THERE), frozenset()) == (world(HERE, THERE), THIS), "that is news"
    assert found.follow(world(HERE, THERE), frozenset()) == (world(HERE, THERE), frozenset())


def test_where_nobody_says_anything_it_counts():
    found = begun()
    counting(found, HERE)
    assert found.heard((KEY, V4), None)
    assert counting(found, HERE) == (HERE,)


def test_each_family_waits_for_itself():
    found = begun(HERE)
    assert counting(found, HERE, SIX) == (HERE,)
    assert found.awaited == {(KEY, V6): 30001}


@pytest.mark.parametrize(
    "service", [replace(WEB, traffic_policy=TrafficPolicy.CLUSTER), replace(WEB, health_check_port=None)]
)
def test_a_service_that_asks_for_no_such_thing_or_has_no_port_waits_for_nobody(service):
    assert counting(begun(service=service), HERE, service=service) == (HERE,)


def test_another_pod_beside_one_that_counts_counts_and_so_does_the_last_that_leaves():
    found = begun(HERE)
    another = endpoint("10.0.0.3")
    assert counting(found, HERE, another) == (HERE, another)
    assert counting(found, LEAVING) == (LEAVING,)
    assert counting(found, LEAVING, another) == (LEAVING, another)


def test_what_went_and_comes_again_waits_again():
    found = begun(HERE)
    counting(found)
    assert counting(found, HERE) == ()
    counting(found)
    assert not found.awaited
    assert not found.heard((KEY, V4), 1), "it is gone"


def test_a_service_that_is_gone_is_forgotten_whether_or_not_anybody_names_it():
    for changed in (THIS, None):
        found = begun(HERE)
        found.follow(World(), changed)
        assert counting(found, HERE) == ()


def test_a_look_at_everything_finds_what_has_come():
    found = begun()
    known, changed = found.follow(world(HERE), None)
    assert (known.endpoints[KEY], changed) == ((), None)


def test_who_was_asked_is_asked_again_after_the_others():
    found = begun()
    both = World(services={KEY: WEB, OTHER: replace(WEB, key=OTHER)}, endpoints={KEY: (HERE,), OTHER: (HERE,)})
    found.follow(both, frozenset({KEY, OTHER}))
    first, second = found.awaited
    found.heard(first, 0)
    assert list(found.awaited) == [second, first]


@pytest.mark.parametrize("count", [0, 1, 7])
def test_what_kube_proxy_answers_is_read(count):
    assert read_answer(answer(HealthCheck(KEY, count), True).body.encode(), KEY) == count


@pytest.mark.parametrize(
    "body", [b"", b"ok", b"[" * 100_000, b"{}", b"\xff", answer(HealthCheck(OTHER, 1), True).body.encode()]
)
def test_what_is_anything_else_says_nothing(body):
    assert read_answer(body, KEY) is None
