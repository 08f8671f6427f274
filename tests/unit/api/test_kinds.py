"""What an agent keeps of ten thousand objects."""

import json
import tracemalloc

import msgspec
import pytest

from speaker.agent.view import concerns_us
from speaker.api.endpoints import MAX_ENDPOINTS
from speaker.api.kinds import AssignedObject, ServiceObject, SliceObject
from speaker.api.reading import Unreadable, read_service
from speaker.api.records import AnnouncementObject
from speaker.api.service import MAX_PORTS, MAX_SOURCE_RANGES

SPEC = {
    "type": "LoadBalancer",
    "loadBalancerClass": "eip-speaker.io/speaker",
    "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    "ipFamilies": ["IPv4"],
    "ipFamilyPolicy": "SingleStack",
}
SERVICE = {"spec": SPEC, "status": {"conditions": [{"type": "eip-speaker.io/Assigned"}]}}
ENDPOINTS = [{"addresses": ["10.0.0.1"], "conditions": {"ready": True, "serving": True}, "nodeName": "node1"}]
SLICE = {"addressType": "IPv4", "endpoints": ENDPOINTS, "ports": [{"name": "http", "port": 8080}]}
ANNOUNCEMENT = {"status": {"holder": "node1", "link": "eth0", "mac": "02:00:00:00:00:01"}}


def decoded(kind, body, name):
    text = json.dumps({"metadata": {"name": name, "namespace": "default"}, **body})
    return msgspec.json.decode(text, type=kind)


@pytest.mark.parametrize(
    ("kind", "body", "parts"),
    [
        (AssignedObject, SERVICE, lambda one: (one.metadata.namespace, one.spec.ports, one.status.conditions)),
        (AssignedObject, SERVICE, lambda one: (one.spec.load_balancer_class, one.spec.ip_families)),
        (SliceObject, SLICE, lambda one: (one.address_type, one.ports, one.metadata.namespace)),
        (SliceObject, SLICE, lambda one: (one.endpoints[0].conditions, one.endpoints[0].node_name)),
        (AnnouncementObject, ANNOUNCEMENT, lambda one: (one.status.holder, one.status.link, one.status.mac)),
    ],
)
def test_what_two_objects_say_alike_is_kept_once(kind, body, parts):
    first, second = parts(decoded(kind, body, "a")), parts(decoded(kind, body, "b"))
    assert first == second
    assert all(one is other for one, other in zip(first, second, strict=True))


RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"


@pytest.mark.parametrize(
    ("kind", "long"),
    [
        (AssignedObject, lambda n: {"metadata": {"annotations": {RANGES: f"{n}" + "x" * 250_000}}}),
        (AssignedObject, lambda n: {"metadata": {"annotations": {"eip-speaker.io/scheduler": f"{n}" + "x" * 250_000}}}),
        (AssignedObject, lambda n: {"spec": {"ports": [{"port": n, "name": f"{p}"} for p in range(2_000)]}}),
        (AssignedObject, lambda n: {"status": {"conditions": [{"type": "x", "message": f"{n}" + "x" * 30_000}]}}),
        (SliceObject, lambda n: {"ports": [{"port": n, "name": f"{p}"} for p in range(2_000)]}),
    ],
    ids=["source ranges", "scheduler", "ports", "conditions", "ports of a slice"],
)
def test_who_writes_something_long_again_and_again_fills_no_memory(kind, long):
    tracemalloc.start()
    try:
        for n in range(20):
            msgspec.json.decode(json.dumps({"metadata": {}, **long(n)}), type=kind)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000


def test_what_they_say_differently_stays_theirs():
    other = {**SERVICE, "spec": {**SPEC, "ports": [{"name": "http", "port": 81}]}}
    assert decoded(AssignedObject, SERVICE, "a").spec.ports[0].port == 80
    assert decoded(AssignedObject, other, "b").spec.ports[0].port == 81


HEAVY = {f"example.com/{number}": "x" * 1000 for number in range(200)}


@pytest.mark.parametrize(
    ("spec", "status", "ours"),
    [
        (SPEC, {}, True),
        ({**SPEC, "loadBalancerClass": "example.com/other"}, {}, False),
        ({**SPEC, "loadBalancerClass": None}, {}, False),
        ({"type": "ClusterIP"}, {}, False),
        ({"type": "ClusterIP"}, {"conditions": [{"type": "eip-speaker.io/Assigned"}]}, False),
        (
            {"type": "ClusterIP"},
            {"conditions": [{"type": "eip-speaker.io/Assigned"}], "loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
            True,
        ),
    ],
    ids=["ours", "another class", "no class", "another type", "was ours", "has an address of ours"],
)
def test_which_services_an_agent_keeps(spec, status, ours):
    assert concerns_us(decoded(AssignedObject, {"spec": spec, "status": status}, "a"), default_class=False) is ours


@pytest.mark.parametrize(
    ("spec", "conditions", "ours"),
    [
        (SPEC, [], True),
        ({**SPEC, "loadBalancerClass": "example.com/other"}, [], False),
        ({**SPEC, "loadBalancerClass": None}, [], True),  # perhaps it is meant for us
        ({"type": "ClusterIP"}, [], False),
        ({"type": "ClusterIP"}, [{"type": "eip-speaker.io/Assigned"}], True),
    ],
    ids=["ours", "another class", "no class", "another type", "to be released"],
)
def test_which_services_the_controller_keeps(spec, conditions, ours):
    found = decoded(ServiceObject, {"spec": spec, "status": {"conditions": conditions}}, "a")
    assert found.concerns_us() is ours


def test_annotations_that_nobody_reads_are_not_kept():
    ours = {"eip-speaker.io/pool": "lan", "EIP-speaker.io/typo": "x", RANGES: "10.0.0.0/8"}
    meta = {"name": "a", "annotations": {**HEAVY, **ours}, "managedFields": [{"manager": "x" * 1000}]}
    found = msgspec.json.decode(json.dumps({"metadata": meta, "spec": SPEC}), type=ServiceObject)
    assert found.metadata.annotations == ours
    assert b"xxx" not in msgspec.json.encode(found)


def test_of_a_slice_no_more_addresses_are_kept_than_are_used_and_one_to_tell_that_there_were_more():
    endpoints = [{"addresses": ["10.0.0.1"] * 100} for _ in range(1000)]
    found = decoded(SliceObject, {**SLICE, "endpoints": endpoints}, "a")
    assert sum(len(each.addresses) for each in found.endpoints) == MAX_ENDPOINTS + 1
    assert len(decoded(SliceObject, {**SLICE, "ports": [{"port": 1}] * 30_000}, "a").ports) == MAX_ENDPOINTS + 1


def test_of_a_service_no_more_is_kept_than_is_read_and_one_to_tell_that_there_was_more():
    long = {**SPEC, "ports": [{"port": 1}] * 9000, "loadBalancerSourceRanges": ["10.0.0.0/8"] * 9000}
    conditions = [{"type": f"example.com/{number}"} for number in range(3000)]
    for kind in (AssignedObject, ServiceObject):
        found = decoded(kind, {"spec": long, "status": {"conditions": conditions}}, "a")
        assert len(found.spec.ports) == MAX_PORTS + 1
        assert len(found.spec.load_balancer_source_ranges) == MAX_SOURCE_RANGES + 1
    assert decoded(AssignedObject, {"spec": long, "status": {"conditions": conditions}}, "a").status.conditions == ()


@pytest.mark.parametrize("kind", [AssignedObject, ServiceObject])
def test_without_room_a_service_keeps_its_eip_and_nobody_reaches_it(kind):
    status = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}, "conditions": [{"type": "eip-speaker.io/Assigned"}]}
    whole = decoded(kind, {"spec": {**SPEC, "loadBalancerSourceRanges": ["10.0.0.0/8"]}, "status": status}, "a")
    left = whole.remnant()
    read = read_service(left, default_class=False)
    assert (left.key, left.status) == (whole.key, whole.status)
    assert isinstance(read, Unreadable)
    assert "writes more than there is memory for" in read.message
    assert read.keep.ports == ()
    assert left.weight() <= whole.weight()
    assert decoded(kind, {"spec": SPEC}, "a").remnant() is None, "it has nothing"


@pytest.mark.parametrize(
    ("kind", "heavy"),
    [
        (
            AssignedObject,
            {"spec": {**SPEC, "loadBalancerSourceRanges": [f"10.{n >> 8}.{n & 255}.0/24" for n in range(4096)][::2]}},
        ),
        (AssignedObject, {"spec": {**SPEC, "ports": [{"name": f"p{n}", "port": n + 1} for n in range(4096)]}}),
        (ServiceObject, {"spec": {**SPEC, "selector": {f"k{n}": "v" * 60 for n in range(4096)}}}),
    ],
    ids=["ranges", "ports", "selector"],
)
def test_a_weight_is_no_less_than_what_it_takes_when_it_is_read(kind, heavy):
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        found = decoded(kind, heavy, "a")
        read = read_service(found, default_class=False)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert read is not None
    assert taken <= found.weight() <= 10 * taken
