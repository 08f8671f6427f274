"""EndpointSlices: what counts as a backend, and what a hostile one cannot do."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from speaker.api.endpoints import Slice, endpoint_slice, merged
from speaker.api.fields import ApiObject, read
from speaker.errors import InvalidManifests
from speaker.model import Endpoint, Protocol, ServiceKey

WEB = ServiceKey("shop", "web")
ONE = Endpoint(ip_address("10.0.0.1"), 80, Protocol.TCP)


def slice_of(endpoints, ports=({"port": 80},), address_type="IPv4"):
    data = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "web-x2b", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": address_type,
        "endpoints": endpoints,
        "ports": None if ports is None else list(ports),
    }
    return read(ApiObject(data), endpoint_slice)


def test_every_address_meets_every_port():
    ports = [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP", "appProtocol": "dns"}]
    endpoints = [
        {"addresses": ["10.0.0.1"], "nodeName": "n1", "zone": "a", "targetRef": {}},
        {"addresses": ["10.0.0.2"]},
    ]
    one, two = ip_address("10.0.0.1"), ip_address("10.0.0.2")
    assert slice_of(endpoints, ports) == Slice(
        WEB,
        (
            Endpoint(one, 80, Protocol.TCP, "http", node="n1"),
            Endpoint(one, 53, Protocol.UDP, "dns", node="n1"),
            Endpoint(two, 80, Protocol.TCP, "http"),
            Endpoint(two, 53, Protocol.UDP, "dns"),
        ),
    )


@pytest.mark.parametrize(
    ("conditions", "ready", "serving", "terminating"),
    [
        (None, True, True, False),
        ({}, True, True, False),
        ({"ready": None, "serving": None, "terminating": None}, True, True, False),
        ({"ready": False}, False, False, False),
        ({"ready": False, "serving": True, "terminating": True}, False, True, True),
        ({"ready": True, "serving": False}, True, False, False),
    ],
)
def test_a_condition_that_is_not_known_counts_as_discovery_v1_says(conditions, ready, serving, terminating):
    (found,) = slice_of([{"addresses": ["10.0.0.1"], "conditions": conditions}]).endpoints
    assert (found.ready, found.serving, found.terminating) == (ready, serving, terminating)


@pytest.mark.parametrize(
    "nothing",
    [
        {"endpoints": None},
        {"endpoints": []},
        {"endpoints": [{"addresses": ["10.0.0.1"]}], "ports": None},
        {"endpoints": [{"addresses": ["db.example.com"]}], "address_type": "FQDN"},
    ],
)
def test_a_slice_may_hold_nothing(nothing):
    assert slice_of(**nothing) == Slice(WEB, ())


@pytest.mark.parametrize(
    ("address", "family"),
    [
        *((address, "IPv4") for address in ("127.0.0.1", "127.1.2.3", "169.254.169.254", "224.0.0.1", "0.0.0.1")),
        *((address, "IPv6") for address in ("::1", "::", "fe80::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1")),
        ("255.255.255.255", "IPv4"),
        ("10.0.0.1", "IPv6"),
        ("fd00::1", "IPv4"),
        ("fe80::1%lo", "IPv6"),
        ("010.0.0.1", "IPv4"),
        ("localhost", "IPv4"),
    ],
)
def test_no_slice_aims_forwarding_at_the_node_itself_or_at_no_host(address, family):
    with pytest.raises(InvalidManifests):
        slice_of([{"addresses": [address]}], address_type=family)


def test_an_endpoint_in_two_slices_counts_once_and_the_ready_one_wins():
    gone = replace(ONE, ready=False, serving=False)
    other = replace(ONE, port=81)
    assert merged([Slice(WEB, (gone, other)), Slice(WEB, (ONE,))]) == {WEB: (ONE, other)}
    assert merged([Slice(WEB, (ONE, other)), Slice(WEB, (gone,))]) == {WEB: (ONE, other)}
