"""docs/forwarding.md says of every field what the code does with it: read as the API has it, planned, and compared."""

import re
from pathlib import Path

import pytest

from speaker.api import endpoints, service
from speaker.api.fields import ApiObject, read
from speaker.errors import InvalidManifests
from speaker.forwarding.nftables.ruleset import approximations, forwarder_ruleset
from speaker.forwarding.plan import Plan, plan
from speaker.model import Assignment, World

PAGE = (Path(__file__).parents[3] / "docs" / "forwarding.md").read_text()
VERDICTS = {"supported", "nearly", "ignored", "kube-proxy"}


def table(heading: str) -> dict[str, dict[str, str]]:
    """Per name in the first column: the verdict of each forwarder."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    ]
    return {
        name: dict(zip(head[1:-1], row[1:-1], strict=True)) for row in rows for name in re.findall(r"`([^`]+)`", row[0])
    }


FIELDS, ENDPOINT, SCHEDULERS = (table(name) for name in ("Fields of a Service", "Fields of an endpoint", "Schedulers"))
ELSEWHERE = {"type", "loadBalancerClass", "loadBalancerIP", "ipFamilies", "ipFamilyPolicy"}


def test_every_field_that_there_is_has_a_row():
    named = {name for name in FIELDS if "." not in name} | ELSEWHERE
    assert named == service._SPEC - {"ports"}
    assert {name.removeprefix("ports.") for name in FIELDS if name.startswith("ports.")} == service._PORT
    assert all(f"`{name}`" in PAGE.split("## Fields of an endpoint")[0] for name in ELSEWHERE)
    assert {name.split(".")[0] for name in ENDPOINT} == endpoints._ENDPOINT
    assert SCHEDULERS.keys() == service.SCHEDULERS
    assert {
        verdict for rows in (FIELDS, ENDPOINT, SCHEDULERS) for row in rows.values() for verdict in row.values()
    } <= (VERDICTS)


def made(spec: object = (), endpoint: object = (), annotations: object = ()) -> Plan:
    """The plan of node a for a Service with these fields and two endpoints, the second of which has these."""
    meta = {"name": "web", "annotations": dict(annotations)}
    port = {"name": "http", "port": 80, "targetPort": "web"}
    whole = {"type": "LoadBalancer", "ports": [port | dict(dict(spec).pop("ports", {}))]} | {
        name: value for name, value in dict(spec).items() if name != "ports"
    }
    found = read(
        ApiObject({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": whole}),
        lambda root: service.service(root, default_class=True),
    )
    assert not isinstance(found, service.NotOurs)
    slice_ = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": [{"addresses": ["10.0.0.3"], "nodeName": "a"}, {"addresses": ["10.0.0.4"]} | dict(endpoint)],
    }
    served = read(ApiObject(slice_), endpoints.endpoint_slice)
    world = World(services={found.key: found}, endpoints={found.key: served.endpoints})
    eips = (service.parse_eip("192.0.2.10"),)
    return plan(world, {found.key: Assignment(found.key, eips, ("lan",))}, "a")


AFFINITY = {"sessionAffinity": "ClientIP"}
OTHER_VALUES = {
    "ports.port": ({}, {"ports": {"port": 81}}),
    "ports.protocol": ({}, {"ports": {"protocol": "UDP"}}),
    "ports.name": ({}, {"ports": {"name": "admin"}}),
    "ports.nodePort": ({}, {"ports": {"nodePort": 30080}}),
    "ports.appProtocol": ({}, {"ports": {"appProtocol": "kubernetes.io/h2c"}}),
    "externalTrafficPolicy": ({}, {"externalTrafficPolicy": "Local"}),
    "sessionAffinity": ({}, AFFINITY),
    "sessionAffinityConfig": (
        AFFINITY,
        {**AFFINITY, "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}},
    ),
    "loadBalancerSourceRanges": ({}, {"loadBalancerSourceRanges": ["198.51.100.0/24"]}),
    "publishNotReadyAddresses": ({}, {"publishNotReadyAddresses": True}),
    "allocateLoadBalancerNodePorts": ({}, {"allocateLoadBalancerNodePorts": False}),
    "internalTrafficPolicy": ({}, {"internalTrafficPolicy": "Local"}),
    "trafficDistribution": ({}, {"trafficDistribution": "PreferClose"}),
    "clusterIP": ({}, {"clusterIP": "10.96.0.9"}),
    "clusterIPs": ({}, {"clusterIPs": ["10.96.0.9"]}),
    "externalIPs": ({}, {"externalIPs": ["203.0.113.1"]}),
    "externalName": ({}, {"externalName": "example.com"}),
    "selector": ({}, {"selector": {"app": "web"}}),
}
NUMBERED_BY_SLICES = {"ports.targetPort"}
ANSWERED = {"healthCheckNodePort"}
"""Not forwarded: tests/netns/kubeproxy has it."""


def rules(made: Plan) -> dict[str, str]:
    """What nftables makes of it, but for the comments that remember what it cannot express."""
    ruleset = forwarder_ruleset(made)
    return {
        **{name: rule.split(" comment ")[0] for name, rule in ruleset.chains.items()},
        **{name: str(sorted(elements)) for name, elements in ruleset.elements.items()},
    }


def test_every_field_of_a_service_has_another_value_to_compare():
    assert OTHER_VALUES.keys() | NUMBERED_BY_SLICES | ANSWERED == FIELDS.keys()


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_a_field_of_a_service_changes_what_is_forwarded_exactly_if_the_table_says_so(name):
    one, other = map(made, OTHER_VALUES[name])
    assert (one != other) is (FIELDS[name]["IPVS"] == "supported")
    assert (rules(one) != rules(other)) is (FIELDS[name]["nftables"] == "supported")
    assert FIELDS[name]["none"] == "kube-proxy"


READY, BACK_TO_ONE = {"ready": True}, {"ready": False, "serving": False, "terminating": False}
OTHER_ENDPOINTS = {
    "addresses": ({}, {"addresses": ["10.0.0.5"]}),
    "conditions.ready": ({}, {"conditions": BACK_TO_ONE}),
    "nodeName": ({}, {"nodeName": "a"}),
    "hints": ({}, {"hints": {"forZones": [{"name": "z"}]}}),
    "zone": ({}, {"zone": "z"}),
    "deprecatedTopology": ({}, {"deprecatedTopology": {"kubernetes.io/hostname": "b"}}),
    "hostname": ({}, {"hostname": "web-0"}),
    "targetRef": ({}, {"targetRef": {"kind": "Pod", "name": "web-0"}}),
}
ONLY_TOGETHER = {"conditions.serving", "conditions.terminating"}
"""Where nothing is ready: test_plan_of_a_world has the table."""


@pytest.mark.parametrize("name", OTHER_ENDPOINTS)
def test_a_field_of_an_endpoint_changes_what_is_forwarded_exactly_if_the_table_says_so(name):
    assert OTHER_ENDPOINTS.keys() | ONLY_TOGETHER == ENDPOINT.keys()
    one, other = (made(endpoint=fields) for fields in OTHER_ENDPOINTS[name])
    assert (one != other) is (ENDPOINT[name]["IPVS"] == "supported")
    assert (rules(one) != rules(other)) is (ENDPOINT[name]["nftables"] == "supported")


@pytest.mark.parametrize("name", sorted(service.SCHEDULERS))
def test_nftables_schedules_as_the_table_says(name):
    approximate = approximations(made(annotations={service.SCHEDULER: name}))
    assert SCHEDULERS[name] == {"IPVS": "supported", "nftables": "nearly" if approximate else "supported"}


REFUSED = [
    {"loadBalancerSourceRange": ["198.51.100.0/24"]},
    {"loadBalancerSourceRanges": []},
    {"loadBalancerSourceRanges": ["everybody"]},
    {"healthCheckNodePort": 30001},
    {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}},
    {**AFFINITY, "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}}},
]


@pytest.mark.parametrize("spec", REFUSED)
def test_what_the_page_calls_refused_is(spec):
    with pytest.raises(InvalidManifests):
        made(spec)


def test_a_scheduler_that_ipvs_does_not_have_is_refused():
    with pytest.raises(InvalidManifests, match="is not an IPVS scheduler: did you mean 'mh-port'"):
        made(annotations={service.SCHEDULER: "mh-prot"})
