"""``speaker plan``: what it says is what then happens, and it touches nothing."""

import json
from dataclasses import replace
from ipaddress import ip_address

import msgspec
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from speaker.allocator.assign import Allocator
from speaker.allocator.book import Ledger
from speaker.allocator.settle import settle
from speaker.api.addresses import parse_range
from speaker.cli import main
from speaker.model import (
    Endpoint,
    Family,
    FamilyPolicy,
    Pool,
    Protocol,
    Service,
    ServiceKey,
    ServicePort,
    TrafficPolicy,
    World,
)
from speaker.standalone.state import write_state
from speaker.tools.plan import drained, foresee

NODES = ["node-a", "node-b"]
TEXTS = ["192.0.2.0/30", "192.0.2.4/30", "192.0.2.8", "2001:db8::/126"]
ADDRESSES = [ip_address(f"192.0.2.{n}") for n in (1, 2, 5, 8)] + [ip_address("2001:db8::2")]
REST = 60.0

pools = st.builds(
    Pool,
    name=st.sampled_from(["a", "b"]),
    addresses=st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3, unique=True).map(
        lambda texts: tuple(map(parse_range, texts))
    ),
    namespaces=st.sampled_from([frozenset(), frozenset({"red"})]),
    priority=st.integers(0, 1),
    auto_assign=st.sampled_from([True, True, False]),
    avoid_network_and_broadcast=st.booleans(),
    disabled=st.sampled_from([False, False, True]),
)
services = st.builds(
    Service,
    key=st.builds(ServiceKey, st.sampled_from(["red", "blue"]), st.sampled_from(["s1", "s2", "s3"])),
    ports=st.sampled_from([(80,), (81,), (80, 81)]).map(
        lambda ports: tuple(ServicePort(Protocol.TCP, port, str(port)) for port in ports)
    ),
    selector=st.sampled_from([{"app": "x"}, {}]),
    families=st.sampled_from([tuple(Family), (Family.IPV4,), (Family.IPV6,)]),
    family_policy=st.sampled_from(FamilyPolicy),
    traffic_policy=st.sampled_from(TrafficPolicy),
    pools=st.sampled_from([(), (), ("a",), ("a", "b")]),
    addresses=st.lists(st.sampled_from(ADDRESSES), max_size=1).map(tuple),
    share=st.sampled_from([None, "k"]),
    created=st.sampled_from(["", "2026-01-01T00:00:00Z"]),
)
endpoints = st.builds(
    Endpoint,
    address=st.sampled_from([ip_address("10.0.0.1"), ip_address("10.0.0.2")]),
    port=st.just(8080),
    protocol=st.just(Protocol.TCP),
    port_name=st.sampled_from(["80", "81"]),
    ready=st.booleans(),
    node=st.sampled_from(NODES),
)


@st.composite
def worlds(draw):
    found = draw(st.lists(services, max_size=5, unique_by=lambda each: each.key))
    return World(
        pools={each.name: each for each in draw(st.lists(pools, max_size=2, unique_by=lambda each: each.name))},
        services={each.key: each for each in found},
        endpoints={each.key: tuple(draw(st.lists(endpoints, max_size=2, unique_by=repr))) for each in found},
    )


def remembered(allocator, now):
    """As it comes back from the state file."""
    fresh = Allocator(REST)
    fresh.restore(msgspec.json.decode(msgspec.json.encode(allocator.ledger(now)), type=Ledger), now)
    return fresh


@settings(max_examples=examples(), deadline=None)
@given(history=st.lists(worlds(), min_size=1, max_size=3), then=worlds(), drain=st.sets(st.sampled_from(NODES)))
def test_each_random_change_comes_out_as_it_was_planned(history, then, drain):
    running, now = Allocator(REST), 0.0
    for world in history:
        now += 40.0
        before = settle(running, world, now)
    then = drained(then, frozenset(drain))
    planned = foresee(remembered(running, now), history[-1], then, now)

    after = settle(running, then, now)
    changed = {each.service: each for each in planned.services}
    for key in history[-1].services.keys() | then.services.keys():
        was = (before.assignments.get(key), before.refusals.get(key))
        comes = (after.assignments.get(key), after.refusals.get(key))
        if key in changed:
            told = (changed[key].before, changed[key].after)
            assert [fate and (fate.assignment, fate.refusal) for fate in told] == [
                was if key in history[-1].services else None,
                comes if key in then.services else None,
            ]
        else:
            assert was == comes


LAN = """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan}
spec: {addresses: [%s]}
"""
WEB = """
---
apiVersion: v1
kind: Service
metadata: {name: %s}
spec: {type: LoadBalancer, ports: [{port: 80}], externalTrafficPolicy: %s}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-1, labels: {kubernetes.io/service-name: %s}}
addressType: IPv4
ports: [{name: "", port: 8080}]
endpoints: [{addresses: [10.0.0.1], nodeName: node-a}]
"""


def web(name="web", policy="Cluster"):
    return WEB % (name, policy, name, name)


@pytest.fixture
def planned(tmp_path, capsys):
    for name in ("now", "then"):
        (tmp_path / name).mkdir()

    def run(now, then, *flags):
        (tmp_path / "now" / "a.yaml").write_text(now)
        (tmp_path / "then" / "a.yaml").write_text(then)
        state = ("--state", str(tmp_path / "state"))
        code = main(["plan", str(tmp_path / "now"), str(tmp_path / "then"), *state, *flags])
        return code, capsys.readouterr()

    return run


def test_the_same_manifests_change_nothing(planned):
    code, told = planned(LAN % "192.0.2.7" + web(), LAN % "192.0.2.7" + web())
    assert (code, told.out) == (0, "nothing changes\n")


def test_a_pool_that_shrinks_keeps_what_it_gave_and_the_plan_says_so(planned):
    code, told = planned(LAN % "192.0.2.7-192.0.2.9" + web(), LAN % "192.0.2.8-192.0.2.9" + web())
    assert code == 1
    was, comes = "192.0.2.7 from lan", "192.0.2.7 from lan (which no longer offers it)"
    assert told.out == f"Service/default/web: {was} -> {comes}\n"


def test_what_the_speaker_remembers_counts(planned, tmp_path):
    speaker = Allocator(REST)
    key = ServiceKey("default", "web")
    pool = Pool("lan", (parse_range("192.0.2.7-192.0.2.9"),))
    web_now = Service(key, (ServicePort(Protocol.TCP, 80),), addresses=(ip_address("192.0.2.9"),))
    settle(speaker, World(pools={"lan": pool}, services={key: web_now}), 0.0)
    settle(speaker, World(pools={"lan": pool}, services={key: replace(web_now, addresses=())}), 0.0)
    write_state(tmp_path / "state", speaker.ledger(0.0))
    before = (tmp_path / "state").read_bytes()
    code, told = planned(LAN % "192.0.2.7-192.0.2.9" + web(), LAN % "192.0.2.7-192.0.2.9", "--json")
    assert code == 1
    assert json.loads(told.out)["services"]["default/web"]["before"]["addresses"] == ["192.0.2.9"]
    assert (tmp_path / "state").read_bytes() == before


def test_a_drained_node_takes_its_endpoints_along(planned):
    manifests = LAN % "192.0.2.7" + web(policy="Local")
    code, told = planned(manifests, manifests, "--drain", "node-a")
    assert code == 1
    assert "answered for by node-a -> " in told.out
    assert "no node, as none has a ready endpoint" in told.out


PREFERRING = (LAN % "192.0.2.7").replace(
    "]}",
    "], nodePreference: [{weight: 80, matchExpressions: [{key: disk, operator: In, values: [ssd, hdd]},"
    " {key: edge, operator: Exists}], matchLabels: {zone: a}}, {weight: 5, matchLabels: {zone: b}}],"
    " failback: preferred-after 5m}",
)


def test_other_preferred_nodes_are_a_change_though_every_address_stays(planned):
    code, told = planned(LAN % "192.0.2.7" + web(), PREFERRING + web())
    terms = "80 zone=a, disk In hdd or ssd, edge Exists; 5 zone=b; moves back after 300 s"
    has = "192.0.2.7 from lan"
    assert (code, told.out) == (1, f"Service/default/web: {has} -> {has}; prefers nodes by {terms}\n")
    own = web().replace(
        "{name: web}\nspec", "{name: web, annotations: {eip-speaker.io/node-preference: 7 zone=c}}\nspec"
    )
    code, told = planned(PREFERRING + web(), PREFERRING + own, "--json")
    found = json.loads(told.out)["services"]["default/web"]
    assert (found["before"]["preferred"], found["after"]["preferred"]) == (terms, "7 zone=c; moves back after 300 s")


@pytest.mark.parametrize("which", ["now", "then", "state"])
def test_what_cannot_be_read_ends_with_2(planned, tmp_path, which):
    good, bad = LAN % "192.0.2.7", LAN % "x"
    if which == "state":
        (tmp_path / "state").write_text("{")
    code, told = planned(bad if which == "now" else good, bad if which == "then" else good)
    assert (code, told.out, bool(told.err)) == (2, "", True)
