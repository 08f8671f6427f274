"""A node may hold an EIP's claim only if it can serve what the EIP's Services promise."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from speaker.model import (
    Endpoint,
    LabelRule,
    LabelSelector,
    Pool,
    Protocol,
    Service,
    ServiceKey,
    ServicePort,
    TrafficPolicy,
)
from speaker.ownership.eligibility import Ineligible, veto
from speaker.settings import Node

EIP = ip_address("192.0.2.10")
WEB = ServiceKey("default", "web")
POOL = Pool("lan", ())
RACK_A = Pool("lan", (), node_selector=LabelSelector((LabelRule("rack", "In", frozenset("a")),)))


def service(policy=TrafficPolicy.LOCAL, key=WEB):
    return Service(key, (ServicePort(Protocol.TCP, 80),), traffic_policy=policy)


def test_who_does_not_forward_holds_no_eip_that_kube_proxy_leaves_alone():
    other = ip_address("192.0.2.11")
    web = replace(service(TrafficPolicy.CLUSTER), left_alone=frozenset({EIP}))
    assert veto(EIP, POOL, [web], {}, Node("n1")).reason is Ineligible.NOT_FORWARDED
    assert veto(other, POOL, [web], {}, Node("n1")) is None


def endpoint(node="n1", address="10.0.0.1", **conditions):
    return Endpoint(ip_address(address), 80, Protocol.TCP, node=node, **conditions)


@pytest.mark.parametrize(
    ("story", "endpoints", "reason"),
    [
        ("a ready endpoint here", [endpoint()], None),
        ("one here, one elsewhere", [endpoint("n2"), endpoint()], None),
        ("only elsewhere", [endpoint("n2")], Ineligible.NO_LOCAL_ENDPOINT),
        ("none at all", [], Ineligible.NO_LOCAL_ENDPOINT),
        ("nobody says where", [endpoint(None)], Ineligible.NO_LOCAL_ENDPOINT),
        ("not ready", [endpoint(ready=False, serving=False)], Ineligible.NO_LOCAL_ENDPOINT),
        ("terminating but still serving", [endpoint(ready=False, serving=True, terminating=True)], None),
        ("serving, not ready, not terminating", [endpoint(ready=False)], Ineligible.NO_LOCAL_ENDPOINT),
        ("ready in the other family only", [endpoint(address="2001:db8::1")], Ineligible.NO_LOCAL_ENDPOINT),
    ],
)
def test_traffic_policy_local_needs_an_endpoint_on_this_node(story, endpoints, reason):
    no = veto(EIP, POOL, [service()], {WEB: tuple(endpoints)}, Node("n1"))
    assert (no and no.reason) == reason


def test_traffic_policy_cluster_needs_none():
    assert veto(EIP, POOL, [service(TrafficPolicy.CLUSTER)], {}, Node("n1")) is None


def test_of_services_that_share_an_eip_every_local_one_must_be_served_here():
    dns = ServiceKey("default", "dns")
    no = veto(EIP, POOL, [service(), service(key=dns)], {WEB: (endpoint(),)}, Node("n1"))
    assert no is not None
    assert "default/dns" in no.message


@pytest.mark.parametrize(("labels", "reason"), [({"rack": "a"}, None), ({"rack": "b"}, Ineligible.NODE_NOT_SELECTED)])
def test_a_node_selector_excludes_the_nodes_it_does_not_match(labels, reason):
    no = veto(EIP, RACK_A, [service(TrafficPolicy.CLUSTER)], {}, Node("n1", labels))
    assert (no and no.reason) == reason


def test_an_eip_whose_pool_is_gone_is_still_held():
    assert veto(EIP, None, [service(TrafficPolicy.CLUSTER)], {}, Node("n1")) is None


def test_an_excluded_node_holds_nothing_whatever_its_labels_are():
    no = veto(EIP, POOL, [service(TrafficPolicy.CLUSTER)], {}, Node("n1", excluded=True))
    assert no is not None
    assert no.reason is Ineligible.NODE_EXCLUDED
