"""One object at a time: what is wrong in it takes nothing away that its Service holds."""

from ipaddress import ip_network

import msgspec
import pytest

from speaker.api.kinds import ServiceObject
from speaker.api.reading import Unreadable, read_pool, read_service
from speaker.api.service import NotOurs
from speaker.model import NOBODY, Family, Protocol, Service, ServicePort, TrafficPolicy


def test_fields_that_nobody_here_knows_are_passed_over():
    body = b"""{"metadata": {"name": "web", "namespace": "default", "resourceVersion": "1", "selfie": true},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": "eip-speaker.io/speaker", "newIn2030": [1],
            "ports": [{"port": 80, "targetPort": "http", "nodePort": 30000, "shape": "round"}],
            "ipFamilies": ["IPv6"], "trafficShape": "Sideways"},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP", "ports": []}]}}}"""
    found = read_service(msgspec.json.decode(body, type=ServiceObject), default_class=False)
    assert isinstance(found, Service)
    assert found.families == (Family.IPV6,)


def test_an_affinity_that_a_later_kubernetes_has_costs_the_affinity_and_not_the_address(service_object):
    found = read_service(service_object("web", sessionAffinity="Sideways"), default_class=False)
    assert isinstance(found, Unreadable)
    assert found.keep is not None
    assert found.keep.affinity_seconds is None


@pytest.mark.parametrize(
    ("spec", "default_class", "reason"),
    [
        ({"type": "ClusterIP"}, True, NotOurs.NOT_A_LOAD_BALANCER),
        ({"loadBalancerClass": "example.com/other"}, True, NotOurs.OTHER_CLASS),
        ({"loadBalancerClass": None}, False, NotOurs.NO_CLASS),
    ],
)
def test_what_is_not_ours_says_why(service_object, spec, default_class, reason):
    found = service_object("web", **spec, annotations={"addresses": "nonsense"})
    assert read_service(found, default_class=default_class) is reason


@pytest.mark.parametrize(
    ("parts", "share"),
    [
        ({"annotations": {"adresses": "192.0.2.1"}}, None),
        ({"annotations": {"addresses": "nonsense", "share": "dns"}}, "dns"),
        ({"annotations": {"share": "dns", "share-namespaces": "UPPER"}}, "dns"),
        ({"loadBalancerIP": "nonsense", "annotations": {"share": "dns"}}, "dns"),
    ],
)
def test_of_a_service_with_a_mistake_remains_what_it_keeps_its_eip_by(service_object, parts, share):
    found = read_service(service_object("web", **parts), default_class=False)
    assert isinstance(found, Unreadable)
    assert found.message
    assert found.keep is not None
    assert (found.keep.share, found.keep.addresses) == (share, ())


ONE, TWO = (ip_network(text) for text in ("10.0.0.0/8", "192.0.2.0/24"))
OLD = "service.beta.kubernetes.io/load-balancer-source-ranges"


@pytest.mark.parametrize(
    ("field", "annotation", "admits"),
    [
        (["10.0.0.0/8"], None, (ONE,)),
        (["10.0.0.0/8", "nonsense"], None, (ONE,)),
        (["nonsense", ""], None, NOBODY),
        (None, "nonsense", NOBODY),
        (None, "", NOBODY),
        (None, ",", NOBODY),
        (None, " 10.0.0.0/8 , nonsense", (ONE,)),
        (["10.0.0.0/8", "192.0.2.0/24"], "10.1.0.0/16,192.0.0.0/8", (TWO, ip_network("10.1.0.0/16"))),
        (["10.0.0.0/8"], "192.0.2.0/24", NOBODY),
        (["10.0.0.0/8"], "2001:db8::/32", NOBODY),
        (["10.0.0.0/8"], "nonsense", NOBODY),
    ],
)
def test_clients_that_cannot_be_read_are_not_let_in_and_those_that_can_are(service_object, field, annotation, admits):
    spec = {} if field is None else {"loadBalancerSourceRanges": field}
    found = service_object("web", annotations={"scheduler": "no such"}, **spec)
    if annotation is not None:
        found.metadata.annotations[OLD] = annotation
    parsed = read_service(found, default_class=False)
    assert isinstance(parsed, Unreadable)
    assert parsed.keep is not None
    assert parsed.keep.source_ranges == admits


def test_blanks_around_a_source_range_are_passed_over_as_kubernetes_does(service_object):
    parsed = read_service(
        service_object("web", loadBalancerSourceRanges=[" 10.0.0.0/8", "192.0.2.0/24\t"]), default_class=False
    )
    assert isinstance(parsed, Service)
    assert parsed.source_ranges == (ONE, TWO)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"ports": [{"port": 0}]}, {"ports": ()}),
        ({"ports": [{"port": 80, "protocol": "QUIC"}]}, {"ports": ()}),
        ({"type": "Sideways"}, {"ports": ()}),
        ({"externalTrafficPolicy": "Sideways"}, {"traffic_policy": TrafficPolicy.LOCAL}),
        ({"ipFamilies": ["IPv5"]}, {"families": ()}),
        ({"ipFamilies": ["IPv5", "IPv6"]}, {"families": (Family.IPV6,)}),
        ({"selector": {"app": "no/value"}}, {"selector": {}}),
        (
            {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": -5}}},
            {"affinity_seconds": 10800},
        ),
    ],
)
def test_what_a_later_kubernetes_may_let_through_makes_a_service_smaller(service_object, spec, expected):
    found = read_service(service_object("web", **spec), default_class=False)
    assert isinstance(found, Unreadable)
    assert found.keep is not None
    assert {name: getattr(found.keep, name) for name in expected} == expected


def test_of_several_ports_those_that_can_be_read_stay(service_object):
    ports = [
        {"name": "a", "port": 80},
        {"name": "b", "port": 70000},
        {"name": "a", "port": 81},
        {"name": "d", "port": 80},
    ]
    found = read_service(service_object("web", ports=ports), default_class=False)
    assert isinstance(found, Unreadable)
    assert found.keep is not None
    assert found.keep.ports == (ServicePort(Protocol.TCP, 80, "a"),)


def test_of_many_mistakes_some_are_named_and_the_rest_is_counted(service_object):
    found = read_service(service_object("web", loadBalancerSourceRanges=["x"] * 1000), default_class=False)
    assert isinstance(found, Unreadable)
    assert found.message.endswith("; and 990 more")


@pytest.mark.parametrize("policy", ["PreferDualStack", "RequireDualStack"])
@pytest.mark.parametrize("families", [["IPv4"], ["IPv6"], ["IPv6", "IPv4"]])
def test_a_service_has_the_families_that_the_api_server_gave_it(service_object, policy, families):
    found = read_service(service_object("web", ipFamilies=families, ipFamilyPolicy=policy), default_class=False)
    assert isinstance(found, Service)
    assert list(found.families) == families


def test_a_pool_that_cannot_be_read_says_where(eip_object):
    found = read_pool(eip_object("lan", "192.0.2.20-192.0.2.10"))
    assert isinstance(found, Unreadable)
    assert "spec.addresses[0]" in found.message
