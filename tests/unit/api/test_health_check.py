"""The annotation ``eip-speaker.io/health-check``."""

import pytest

from speaker.api.fields import ApiObject, read_leniently
from speaker.api.reading import read_world
from speaker.api.service import MAX_TEXT, health_check, service
from speaker.errors import InvalidManifests
from speaker.model import HealthCheck


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("tcp", HealthCheck("tcp")),
        ("  tcp   fall=1 ", HealthCheck("tcp", fall=1)),
        ("http:/", HealthCheck("http", "/")),
        (f"http:/ server-name=a.{'x' * 63}", HealthCheck("http", "/", server_name=f"a.{'x' * 63}")),
        ("http:/health?full=1&x=%20", HealthCheck("http", "/health?full=1&x=%20")),
        ("tcp interval=2s", HealthCheck("tcp", interval=2.0, jitter=0.2)),
        ("tcp interval=1m30s jitter=0s", HealthCheck("tcp", interval=90.0, jitter=0.0)),
        ("tcp port=8080 timeout=250ms rise=1", HealthCheck("tcp", port=8080, timeout=0.25, rise=1)),
        ("http:/x status=200", HealthCheck("http", "/x", status=((200, 200),))),
        ("http:/x status=200-299,401", HealthCheck("http", "/x", status=((200, 299), (401, 401)))),
        (
            "https:/readyz interval=1s timeout=1s rise=2 fall=3 status=200-399 ca=/path server-name=api.example",
            HealthCheck("https", "/readyz", ca="/path", server_name="api.example"),
        ),
    ],
)
def test_a_check_is_read(text, check):
    assert health_check(text) == check


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "must begin with tcp, http:/PATH or https:/PATH"),
        ("exec:/bin/check", "the speaker runs no commands"),
        ("exec", "the speaker runs no commands"),
        ("icmp", "must begin with tcp"),
        ("tcp:80", "must begin with tcp"),
        ("http", "where PATH has no blanks"),
        ("https:readyz", "where PATH has no blanks"),
        ("HTTP:/x", "must begin with tcp"),
        ("http:/ä", "no characters beyond ASCII"),
        ("http:/x\x00", "no characters beyond ASCII"),
        ("http://api.example/healthz", "no host and"),
        ("http:/x#y", "no #"),
        ("tcp fall", "must have a value: fall=VALUE"),
        ("tcp fall=", "must have a value: fall=VALUE"),
        ("tcp fall=0", "a number from 1 to 100"),
        ("tcp rise=101", "a number from 1 to 100"),
        ("tcp rise=٣", "a number from 1 to 100"),
        ("tcp fall=3 fall=4", "must have fall once"),
        ("tcp fail=3", "did you mean 'fall'?"),
        ("tcp interval=1", "a duration from 0.1s to 1h"),
        ("tcp interval=10ms", "a duration from 0.1s to 1h"),
        ("tcp interval=2h", "a duration from 0.1s to 1h"),
        ("tcp timeout=0s", "a duration from 0.01s to 1h"),
        ("tcp timeout=nan", "a duration from 0.01s to 1h"),
        ("tcp port=65536", "a number from 1 to 65535"),
        ("tcp status=200", "must not have status, which is for http and https"),
        ("http:/ ca=/x", "must not have ca, which is for https"),
        ("http:/ status=100", "statuses from 200 to 599"),
        ("http:/ status=399-200", "statuses from 200 to 599"),
        ("http:/ status=200,", "statuses from 200 to 599"),
        ("https:/ ca=ca.crt", "the full path of a file"),
        ("https:/ server-name=*.example", "must have a name"),
        (f"https:/ server-name=a.{'x' * 64}", "at most 63 characters"),
        ("http:/ server-name=a\r\nX:y", "has the unknown word 'X:y'"),
        ("http:/" + "x" * MAX_TEXT, "at most 1024 characters"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_rule(text, rule):
    with pytest.raises(ValueError, match=r".") as refused:
        health_check(text)
    assert rule in str(refused.value)


def a_service(check, protocol="TCP"):
    metadata = {"name": "web", "annotations": {"eip-speaker.io/health-check": check}}
    spec = {"type": "LoadBalancer", "ports": [{"port": 53, "protocol": protocol}]}
    return ApiObject({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})


def rules(objects):
    with pytest.raises(InvalidManifests) as refused:
        read_world(objects, default_class=True)
    return [str(problem) for problem in refused.value.problems]


def test_a_service_from_files_has_its_check():
    world = read_world([a_service("tcp")], default_class=True).world
    assert [each.health_check for each in world.services.values()] == [HealthCheck("tcp")]


def test_a_mistake_names_object_field_value_and_rule():
    [told] = rules([a_service("tcp fall=x")])
    field = "Service/web: metadata.annotations[eip-speaker.io/health-check]: 'tcp fall=x': "
    assert told == field + "must have a number from 1 to 100: fall=2, not 'x'"


def test_a_port_that_is_not_tcp_needs_another_to_check():
    assert "must say port=NUMBER" in rules([a_service("tcp", "UDP")])[0]
    assert read_world([a_service("tcp port=8080", "UDP")], default_class=True).world.services


def test_in_a_cluster_readiness_comes_from_kubernetes():
    decode = lambda root: service(root, default_class=True, families_told=True)  # noqa: E731
    found, [problem] = read_leniently(a_service("tcp"), decode)
    assert found.health_check is None
    assert "is for Services from files" in str(problem)


def test_names_of_endpoints_are_refused_in_files():
    slice_ = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "FQDN",
        "endpoints": [{"addresses": ["db.example.com"]}],
        "ports": [{"port": 80}],
    }
    [told] = rules([ApiObject(slice_)])
    assert told.startswith("EndpointSlice/web-1: addressType: 'FQDN': must be IPv4 or IPv6: the speaker")
