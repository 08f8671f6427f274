"""One object at a time: what is wrong in it takes nothing away that its Service holds."""

import msgspec
import pytest

from speaker.api.service import NotOurs
from speaker.cluster.kinds import ServiceObject
from speaker.cluster.reading import Unreadable, read_pool, read_service
from speaker.model import Family, Service


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
        ({"annotations": {"share": "dns", "share-namespaces": "UPPER"}}, None),
        ({"loadBalancerIP": "nonsense", "annotations": {"share": "dns"}}, "dns"),
    ],
)
def test_of_a_service_with_a_mistake_remains_what_it_keeps_its_eip_by(service_object, parts, share):
    found = read_service(service_object("web", **parts), default_class=False)
    assert isinstance(found, Unreadable)
    assert found.message
    assert found.keep is not None
    assert (found.keep.share, found.keep.addresses) == (share, ())


def test_a_service_that_no_api_server_lets_through_keeps_nothing(service_object):
    found = read_service(service_object("web", ports=[{"port": 0}]), default_class=False)
    assert isinstance(found, Unreadable)
    assert found.keep is None


def test_a_pool_that_cannot_be_read_says_where(eip_object):
    found = read_pool(eip_object("lan", "192.0.2.20-192.0.2.10"))
    assert isinstance(found, Unreadable)
    assert "spec.addresses[0]" in found.message
