"""What a real API server stores of Services and EndpointSlices without a word, and what an agent makes of it."""

import json

import msgspec
import pytest
from asking import Asking
from real_api import RealApi

from speaker.agent.view import News, Reader, ViewSettings
from speaker.api.kinds import ASSIGNED, AssignedObject, ServiceObject, SliceObject
from speaker.api.reading import read_service
from speaker.api.service import SOURCE_RANGES_ANNOTATION
from speaker.cluster.feed import Feed, Resource
from speaker.model import NOBODY, Service, ServiceKey

pytestmark = pytest.mark.apiserver

SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
WEB = ServiceKey("default", "web")
EIP = "192.0.2.10"


@pytest.fixture
def ask(api_server):
    """As the administrator; what a test made is gone when it ends."""
    asking = Asking(api_server)
    yield asking
    asking("DELETE", f"{SERVICES}/web")
    asking("DELETE", f"{SLICES}/web-1")


def service(annotations=None, **spec):
    ports = [{"name": "http", "port": 80}]
    spec = {"type": "LoadBalancer", "loadBalancerClass": "eip-speaker.io/speaker", "ports": ports, **spec}
    return {"metadata": {"name": "web", "annotations": annotations or {}}, "spec": spec}


def slice_of(endpoints=("198.51.100.1",), ports=({"name": "http", "port": 8080},), **more):
    return {
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [each]} for each in endpoints],
        "ports": list(ports),
        **more,
    }


def stored(ask, path, body):
    code, answer = ask("POST", path, body)
    assert code == 201, answer
    return answer


def stored_service(ask, body):
    stored(ask, SERVICES, body)
    condition = {"type": ASSIGNED, "status": "True", "reason": "Assigned", "message": ""}
    status = {
        "loadBalancer": {"ingress": [{"ip": EIP}]},
        "conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }
    code, answer = ask("PATCH", f"{SERVICES}/web/status", {"status": status})
    assert code == 200, answer
    return answer


def decoded(kind, found):
    feed = Feed(Resource("/things", kind))
    feed.begin_list()
    feed.add(msgspec.Raw(json.dumps(found).encode()))
    list(feed.end_list("1", 0.0))
    assert feed.set_aside == {}
    return next(iter(feed.store))


def seen(service, *slices):
    """Service, the endpoints' addresses and ports, and the problems, as a forwarding agent has them."""
    reader, found = Reader(ViewSettings(forwards=True)), decoded(AssignedObject, service)
    world, _, _ = reader.read(
        News({found.key: found}), lambda key: [decoded(SliceObject, each) for each in slices] if key == WEB else []
    )
    endpoints = sorted((str(each.address), each.port) for each in world.endpoints[WEB])
    return world.services[WEB], endpoints, reader.problems()


def with_port(number):
    return slice_of(ports=[{"name": "odd", "port": number}, {"name": "http", "port": 8080}])


ODD_SLICES = [
    *((with_port(number), f"ports[0].port: {number}") for number in (0, -1, 65536, 2**31 - 1)),
    (with_port(None), "ports[0].port"),
    *(
        (slice_of(endpoints=[odd, "198.51.100.1"]), f"endpoints[0].addresses[0]: '{odd}'")
        for odd in ("239.1.1.1", "255.255.255.255", "0.1.2.3")
    ),
]


@pytest.mark.parametrize(("body", "what"), ODD_SLICES, ids=[what for _, what in ODD_SLICES])
def test_it_stores_slices_that_no_kernel_could_carry_out_and_the_rest_of_them_is_used(ask, body, what):
    answer = stored(ask, SLICES, body)
    _, endpoints, problems = seen(stored_service(ask, service()), answer)
    assert endpoints == [("198.51.100.1", 8080)]
    (problem,) = problems
    assert problem.startswith(f"EndpointSlice/default/web-1: {what}: ")


def test_it_stores_endpoints_without_ports(ask):
    _, endpoints, problems = seen(stored_service(ask, service()), stored(ask, SLICES, slice_of(ports=())))
    assert (endpoints, len(problems)) == ([], 1)


def test_it_stores_a_slice_of_more_pairs_than_anybody_has(ask):
    ports = [{"name": f"p{number}", "port": number} for number in range(1, 1001)]
    found = stored(ask, SLICES, slice_of([f"198.51.{i // 250}.{i % 250 + 1}" for i in range(1000)], ports))
    _, endpoints, problems = seen(stored_service(ask, service()), found)
    assert (len(endpoints), len(problems)) == (20_000, 1)


@pytest.mark.parametrize(
    ("annotations", "spec", "sources"),
    [
        ({}, {"loadBalancerSourceRanges": [" 10.0.0.0/8"]}, ["10.0.0.0/8"]),
        ({}, {"loadBalancerSourceRanges": ["10.0.0.0/8\t"]}, ["10.0.0.0/8"]),
        ({SOURCE_RANGES_ANNOTATION: " 10.0.0.0/8,192.0.2.0/24 "}, {}, ["10.0.0.0/8", "192.0.2.0/24"]),
        ({"eip-speaker.io/scheduler": "wrrr"}, {"loadBalancerSourceRanges": ["10.0.0.0/8"]}, ["10.0.0.0/8"]),
        ({SOURCE_RANGES_ANNOTATION: "anything"}, {"loadBalancerSourceRanges": ["10.0.0.0/8"]}, list(map(str, NOBODY))),
        ({SOURCE_RANGES_ANNOTATION: ""}, {}, list(map(str, NOBODY))),
        ({"eip-speaker.io/scheduler": "wrrr"}, {}, []),
    ],
)
def test_source_ranges_that_it_stores_hold(ask, annotations, spec, sources):
    found, _, _ = seen(stored_service(ask, service(annotations, **spec)))
    assert [str(network) for network in found.source_ranges] == sources


def families(answer):
    read = read_service(decoded(ServiceObject, answer), default_class=False)
    assert isinstance(read, Service)
    return list(map(str, read.families))


def test_preferring_two_families_is_what_the_cluster_has_of_them(ask, tmp_path):
    body = service(ipFamilyPolicy="PreferDualStack")
    assert families(stored(ask, SERVICES, body)) == ["IPv4", "IPv6"]
    with RealApi(tmp_path, "--service-cluster-ip-range=10.96.0.0/12") as of_one_family:
        assert families(stored(Asking(of_one_family), SERVICES, body)) == ["IPv4"]
