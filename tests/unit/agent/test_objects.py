"""What an agent keeps of ten thousand objects."""

import json
import tracemalloc

import msgspec
import pytest

from speaker.agent.objects import AnnouncementObject, AssignedObject, SliceObject

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
