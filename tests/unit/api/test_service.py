"""What is read of a Service, and whose it is."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.api.fields import ApiObject, read, read_leniently
from speaker.api.service import (
    MAX_ADDRESSES,
    MAX_MISSPELT,
    MAX_POOLS,
    MAX_PORTS,
    MAX_SHARE_NAMESPACES,
    MAX_SOURCE_RANGES,
    MAX_UNKNOWN,
    MERGED_FROM,
    NotOurs,
    service,
)
from speaker.errors import InvalidManifests
from speaker.model import (
    NOBODY,
    Family,
    FamilyPolicy,
    LabelRule,
    LabelSelector,
    PreferredNodes,
    Protocol,
    Service,
    ServiceKey,
    ServicePort,
    TrafficPolicy,
)


def service_of(spec, annotations=None, default_class=True):
    data = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]} | spec,
    }
    return read(ApiObject(data), lambda root: service(root, default_class=default_class))


def rules_about(spec, annotations=None):
    with pytest.raises(InvalidManifests) as caught:
        service_of(spec, annotations)
    return [(problem.path, problem.rule) for problem in caught.value.problems]


def test_a_plain_service_gets_the_defaults_of_the_api():
    assert service_of({}) == Service(ServiceKey("default", "web"), (ServicePort(Protocol.TCP, 80),))


def test_a_service_as_the_api_server_fills_it_in_is_read():
    data = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": "4e3f",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{}],
            "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
            "labels": {"tier": "front"},
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{}\n",
                "eip-speaker.io/pool": "lan",
                "eip-speaker.io/addresses": "2001:db8::10, 192.0.2.10",
                "eip-speaker.io/share": "web",
                "eip-speaker.io/share-namespaces": "a, b",
                "eip-speaker.io/scheduler": "mh",
                "eip-speaker.io/node-preference": "80 zone=a, disk=ssd; 20 example.com/rack=",
            },
        },
        "spec": {
            "allocateLoadBalancerNodePorts": True,
            "clusterIP": "10.96.0.7",
            "clusterIPs": ["10.96.0.7", "fd00::7"],
            "externalIPs": ["203.0.113.1"],
            "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 30001,
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv6", "IPv4"],
            "ipFamilyPolicy": "RequireDualStack",
            "loadBalancerClass": "eip-speaker.io/speaker",
            "loadBalancerSourceRanges": ["10.1.2.3/8", "2001:db8::/32", "10.0.0.0/8"],
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": "dns", "nodePort": 30053},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 5353, "appProtocol": "dns"},
            ],
            "publishNotReadyAddresses": False,
            "selector": {"app": "web"},
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
            "trafficDistribution": "PreferClose",
            "type": "LoadBalancer",
        },
        "status": {"loadBalancer": {}},
    }
    assert read(ApiObject(data), lambda root: service(root, default_class=False)) == Service(
        key=ServiceKey("shop", "web"),
        ports=(ServicePort(Protocol.UDP, 53, "dns"), ServicePort(Protocol.TCP, 53, "dns-tcp")),
        labels={"tier": "front"},
        selector={"app": "web"},
        families=(Family.IPV6, Family.IPV4),
        family_policy=FamilyPolicy.REQUIRE_DUAL,
        traffic_policy=TrafficPolicy.LOCAL,
        pools=("lan",),
        addresses=(ip_address("2001:db8::10"), ip_address("192.0.2.10")),
        share="web",
        share_namespaces=frozenset({"a", "b"}),
        scheduler="mh",
        node_preference=(
            PreferredNodes(80, LabelSelector((equals("zone", "a"), equals("disk", "ssd")))),
            PreferredNodes(20, LabelSelector((equals("example.com/rack", ""),))),
        ),
        affinity_seconds=60,
        source_ranges=(ip_network("10.0.0.0/8"), ip_network("2001:db8::/32")),
        health_check_port=30001,
        created="2026-01-01T00:00:00Z",
    )


def equals(key: str, value: str) -> LabelRule:
    return LabelRule(key, "In", frozenset({value}))


CLASS = "loadBalancerClass"
OURS = "eip-speaker.io/speaker"


@pytest.mark.parametrize(
    ("spec", "default_class", "whose"),
    [
        ({"type": "ClusterIP"}, True, NotOurs.NOT_A_LOAD_BALANCER),
        ({"type": None}, True, NotOurs.NOT_A_LOAD_BALANCER),
        ({"type": "NodePort", CLASS: OURS}, True, NotOurs.NOT_A_LOAD_BALANCER),
        ({CLASS: "example.com/other"}, True, NotOurs.OTHER_CLASS),
        ({}, False, NotOurs.NO_CLASS),
        ({}, True, None),
        ({CLASS: OURS}, False, None),
        ({CLASS: OURS}, True, None),
    ],
)
def test_a_service_is_ours_by_type_and_class(spec, default_class, whose):
    found = service_of(spec, default_class=default_class)
    assert found is whose if whose else isinstance(found, Service)


V4, V6 = Family.IPV4, Family.IPV6


@pytest.mark.parametrize(
    ("spec", "requested", "families"),
    [
        ({}, None, (V4,)),
        ({"ipFamilies": ["IPv6"]}, None, (V6,)),
        ({}, "2001:db8::1", (V6,)),
        ({"loadBalancerIP": "2001:db8::1"}, None, (V6,)),
        ({"loadBalancerIP": ""}, None, (V4,)),
        ({"ipFamilyPolicy": "PreferDualStack"}, None, (V4, V6)),
        ({"ipFamilyPolicy": "RequireDualStack"}, None, (V4, V6)),
        ({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]}, None, (V6, V4)),
        ({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]}, "192.0.2.1", (V6, V4)),
        ({"ipFamilyPolicy": "PreferDualStack"}, "2001:db8::1", (V6, V4)),
        ({"ipFamilyPolicy": "RequireDualStack"}, "2001:db8::1,192.0.2.1", (V6, V4)),
    ],
)
def test_families_are_those_asked_for_else_those_of_the_requested_addresses(spec, requested, families):
    annotations = {"eip-speaker.io/addresses": requested} if requested else {}
    assert service_of(spec, annotations).families == families


def test_an_address_may_be_requested_twice_only_in_the_same_words():
    annotation = {"eip-speaker.io/addresses": "192.0.2.1"}
    assert service_of({"loadBalancerIP": "192.0.2.1"}, annotation).addresses == (ip_address("192.0.2.1"),)
    assert rules_about({"loadBalancerIP": "192.0.2.2"}, annotation) == [
        ("spec.loadBalancerIP", "must be the same as the annotation eip-speaker.io/addresses, or left out")
    ]


RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"


def test_source_ranges_come_from_the_field_or_the_old_annotation_and_never_widen():
    ten, private = ip_network("10.0.0.0/8"), ip_network("192.168.0.0/16")
    assert service_of({}, {RANGES: "10.0.0.0/8, 192.168.0.0/16"}).source_ranges == (ten, private)
    both = {"loadBalancerSourceRanges": ["192.168.0.0/16", "10.0.0.0/8"]}
    assert service_of(both, {RANGES: "10.0.0.0/8,192.168.0.0/16"}).source_ranges == (private, ten)
    assert rules_about(both, {RANGES: "10.0.0.0/8"}) == [
        (f"metadata.annotations[{RANGES}]", "must be the same as spec.loadBalancerSourceRanges, or left out")
    ]


@pytest.mark.parametrize("typo", ["loadBalancerSourceRange", "loadbalancerSourceRanges", "sourceRanges"])
def test_a_misspelt_restriction_is_refused_even_where_the_service_would_be_passed_over(typo):
    assert [path for path, _ in rules_about({"type": "ClusterIP", typo: ["10.0.0.0/8"]})] == [f"spec.{typo}"]


def test_annotations_of_others_are_passed_over_as_long_as_an_api_server_would_take_their_keys():
    others = {"Example.COM/Some_Thing": "x", "plain": "", "a.example/b": None}
    assert service_of({}, others) == service_of({})


# ── What there may be very much of ──

FOUR_BITS = st.tuples(st.integers(0, 15), st.integers(0, 4))
NETWORKS = st.lists(
    FOUR_BITS.map(lambda found: IPv4Network((found[0] << 28, found[1]), strict=False))
    | FOUR_BITS.map(lambda found: IPv6Network((found[0] << 124, found[1]), strict=False)),
    min_size=1,
    max_size=6,
)
CLIENTS = [IPv4Address(n << 28 | 1) for n in range(16)] + [IPv6Address(n << 124 | 1) for n in range(16)]


@given(NETWORKS, NETWORKS)
def test_where_field_and_annotation_differ_whoever_both_let_in_is_let_in(by_field, by_annotation):
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerSourceRanges": [*map(str, by_field)]}
    annotations = {RANGES: ",".join(map(str, by_annotation))}
    data = {"kind": "Service", "metadata": {"name": "web", "annotations": annotations}, "spec": spec}
    found, _ = read_leniently(ApiObject(data), lambda root: service(root, default_class=True))
    for client in CLIENTS:
        let_in = [any(client in each for each in some) for some in (by_field, by_annotation, found.source_ranges)]
        assert let_in[2] == (let_in[0] and let_in[1]), client


def test_of_annotations_without_end_that_are_none_of_ours_some_are_told():
    rules = rules_about({}, {f"eip-speaker.io/pool{number}": "lan" for number in range(10_000)})
    assert len(rules) == MAX_UNKNOWN
    assert all("is not an annotation of the speaker" in rule for _, rule in rules)


def test_of_addresses_without_end_no_more_are_looked_at_than_may_be_had():
    for text in (
        "a," * 10_000 + "a",
        "192.0.2.1,2001:db8::1" + ",x" * 10_000,
        ",".join(f"192.0.2.{n}" for n in range(9)),
    ):
        rules = [
            rule for _, rule in rules_about({"ipFamilyPolicy": "PreferDualStack"}, {"eip-speaker.io/addresses": text})
        ]
        assert f"must be at most {MAX_ADDRESSES} addresses of each family" in rules
        assert len(rules) <= 2 * MAX_ADDRESSES


def test_of_pools_without_end_no_more_are_asked_for_than_may_be():
    rules = [rule for _, rule in rules_about({}, {"eip-speaker.io/pool": ",".join(f"p{n}" for n in range(10_000))})]
    assert rules == [f"must be at most {MAX_POOLS} pools"]
    several = {"eip-speaker.io/pool": ",".join(f"p{n}" for n in range(MAX_POOLS))}
    assert service_of({}, several).pools == tuple(f"p{n}" for n in range(MAX_POOLS))
    assert [rule for _, rule in rules_about({}, {"eip-speaker.io/pool": "lan, dmz,lan"})] == [
        "must name every pool once"
    ]


@pytest.mark.parametrize(
    ("spec", "annotation", "refused"),
    [
        pytest.param({}, "10.0.0.0/8", True, id="nobody enforces it"),
        pytest.param({"loadBalancerSourceRanges": ["10.0.0.0/8"]}, "10.0.0.0/8", False, id="the field does"),
        pytest.param({"loadBalancerSourceRanges": ["10.0.0.0/8"]}, None, False, id="the field alone"),
        pytest.param({}, None, False, id="everybody is meant"),
    ],
)
def test_where_others_forward_by_the_fields_alone_the_old_annotation_is_no_restriction(spec, annotation, refused):
    annotations = {RANGES: annotation} if annotation is not None else {}
    data = {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {"name": "web", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], **spec},
    }
    found, problems = read_leniently(ApiObject(data), lambda root: service(root, default_class=True, fields_alone=True))
    assert [problem.path for problem in problems] == ([f"metadata.annotations[{RANGES}]"] if refused else [])
    assert found.source_ranges or annotation is None
    assert read_leniently(ApiObject(data), lambda root: service(root, default_class=True))[1] == ()


def kept_of(spec, annotations=None):
    """What is kept of a Service with problems, and their rules."""
    data = {
        "kind": "Service",
        "metadata": {"name": "web", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]} | spec,
    }
    found, problems = read_leniently(ApiObject(data), lambda root: service(root, default_class=True))
    return found, [problem.rule for problem in problems]


@pytest.mark.parametrize("more", [0, 1, 10_000])
def test_behind_too_many_source_ranges_nobody_is_let_in(more):
    ranges = [str(ip_network(2 * number)) for number in range(MAX_SOURCE_RANGES + more)]
    for found, rules in (
        kept_of({"loadBalancerSourceRanges": ranges}),
        kept_of({}, {RANGES: ",".join(ranges)}),
    ):
        assert {str(network) for network in found.source_ranges} == set(ranges[:MAX_SOURCE_RANGES])
        assert ["the rest let nobody in" in rule for rule in rules] == [True] * bool(more)


def test_many_source_ranges_that_touch_are_one():
    found = service_of({"loadBalancerSourceRanges": [f"10.0.{n}.0/24" for n in range(256)] + ["2001:db8::/33"]})
    assert found.source_ranges == (ip_network("10.0.0.0/16"), ip_network("2001:db8::/33"))
    few = [f"10.0.{n}.0/24" for n in range(MERGED_FROM - 1)]
    assert [*map(str, service_of({"loadBalancerSourceRanges": few}).source_ranges)] == few


def test_behind_too_many_ports_none_is_served():
    ports = [{"name": f"p{number}", "port": number} for number in range(1, MAX_PORTS + 100)]
    found, rules = kept_of({"ports": ports})
    assert len(found.ports) == MAX_PORTS
    assert rules == [f"must be at most {MAX_PORTS} ports: those behind are not served"]


def test_behind_too_many_source_ranges_that_cannot_be_read_none_is_looked_at_and_nobody_let_in():
    for misspelt, let_in in ((MAX_MISSPELT, (ip_network("10.0.0.0/8"),)), (MAX_MISSPELT + 1, NOBODY)):
        text = ",".join((*(f"x{number}" for number in range(misspelt)), "10.0.0.0/8", *["y"] * 10_000))
        data = {
            "kind": "Service",
            "metadata": {"name": "web", "annotations": {RANGES: text}},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        }
        found, problems = read_leniently(ApiObject(data), lambda root: service(root, default_class=True))
        assert found.source_ranges == let_in
        assert len(problems) == MAX_MISSPELT + 2
        assert "the rest let nobody in" in problems[-1].rule


def test_no_more_namespaces_share_than_there_may_be_sharers():
    def names(count):
        return {
            "eip-speaker.io/share": "dns",
            "eip-speaker.io/share-namespaces": ",".join(f"n{i}" for i in range(count)),
        }

    assert len(service_of({}, names(MAX_SHARE_NAMESPACES)).share_namespaces) == MAX_SHARE_NAMESPACES
    assert [rule for _, rule in rules_about({}, names(MAX_SHARE_NAMESPACES + 1))] == ["must be at most 256 namespaces"]
