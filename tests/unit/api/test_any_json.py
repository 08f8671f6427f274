"""Whatever plain data arrives, a decoder returns a value or raises InvalidManifests."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from speaker.api.eip import pool
from speaker.api.endpoints import endpoint_slice, namespace
from speaker.api.fields import ApiObject, read
from speaker.api.reading import EIP, ENDPOINT_SLICE, NAMESPACE, SERVICE, read_world
from speaker.api.service import service
from speaker.errors import InvalidManifests

KEYS = [
    *("apiVersion", "kind", "metadata", "spec", "status", "name", "namespace", "labels", "annotations"),
    *("addresses", "exclude", "interface", "nodeSelector", "namespaces", "namespaceSelector", "serviceSelector"),
    *("priority", "autoAssign", "gratuitous", "burst", "interval", "refresh", "matchLabels", "matchExpressions"),
    *("key", "operator", "values", "type", "ports", "port", "protocol", "ipFamilies", "ipFamilyPolicy", "selector"),
    *("loadBalancerIP", "loadBalancerSourceRanges", "sessionAffinity", "sessionAffinityConfig", "clientIP"),
    *("timeoutSeconds", "addressType", "endpoints", "conditions", "ready", "items", "kubernetes.io/service-name"),
    *("eip-speaker.io/pool", "eip-speaker.io/addresses", "eip-speaker.io/share", "eip-speaker.io/share-namespaces"),
]
TEXTS = [
    *("LoadBalancer", "IPv4", "IPv6", "ClientIP", "TCP", "PreferDualStack", "In", "Exists", "web", "1.1s", "eth0"),
    *(
        "192.0.2.1",
        "192.0.2.0/24",
        "192.0.2.1-192.0.2.9",
        "2001:db8::/64",
        "0.0.0.0/0",
        "can_reach:192.0.2.1",
        "/",
        ",",
    ),
]

scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.sampled_from(TEXTS))
keys = st.one_of(st.sampled_from(KEYS), st.text(max_size=8))
json = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=8))
mappings = st.dictionaries(keys, json, max_size=8)


@st.composite
def api_objects(draw):
    """Objects of a kind that is read, with anything in them."""
    version, kind = draw(st.sampled_from([EIP, SERVICE, ENDPOINT_SLICE, NAMESPACE, ("v1", "List")]))
    found = draw(mappings) | {"apiVersion": version, "kind": kind}
    if draw(st.booleans()):
        found |= {"metadata": {"name": "web", "labels": {"kubernetes.io/service-name": "web"}}}
    if kind == "Service" and draw(st.booleans()):
        found |= {"spec": draw(mappings) | {"type": "LoadBalancer"}}
    return found


@given(json)
def test_no_json_makes_a_decoder_raise_anything_but_invalid_manifests(data):
    for decode in (pool, endpoint_slice, namespace, lambda root: service(root, default_class=True)):
        with suppress(InvalidManifests):
            read(ApiObject(data), decode)


@given(st.lists(st.one_of(api_objects(), json), max_size=4))
def test_no_objects_make_the_world_raise_anything_but_invalid_manifests(objects):
    with suppress(InvalidManifests):
        read_world(map(ApiObject, objects), default_class=True)
