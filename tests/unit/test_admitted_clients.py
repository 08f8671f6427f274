"""Fail closed: whatever becomes of any one field, nobody is let in whom the fields that can be read would not let in.

A Service, its EndpointSlices and the Node are made up, one field of one of them is changed into anything, and what an
agent (or a directory of files) makes of them is compared with what this file says, which reads them by itself.
Clients are the addresses at the edges of every range. SPEAKER_FAIL_CLOSED sets how many examples there are.
"""

import copy
import json
import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

import msgspec
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speaker.agent.view import News, Reader, ViewSettings, node_intent
from speaker.api.fields import ApiObject
from speaker.api.kinds import ASSIGNED, AssignedObject, EipObject, NodeObject, ServiceObject, SliceObject
from speaker.api.reading import read_world
from speaker.cluster.feed import Feed, Resource
from speaker.controller.decider import ControllerSettings, Decider
from speaker.controller.decider import News as ControllerNews
from speaker.errors import InvalidManifests
from speaker.forwarding.nftables.ruleset import expressible, forwarder_ruleset, guard_ruleset
from speaker.forwarding.plan import NUMBERS, Plan, VirtualServer, plan
from speaker.model import NOBODY, Assignment, Pool, Protocol, ServiceKey
from speaker.ownership.eligibility import EXCLUDE, veto

EXAMPLES = int(os.environ.get("SPEAKER_FAIL_CLOSED", examples(200)))
LIKE_THIS = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
IN_SHORT = settings(LIKE_THIS, max_examples=max(EXAMPLES // 4, 1))

WEB = ServiceKey("default", "web")
HERE = "n1"
EIPS = {"IPv4": "192.0.2.10", "IPv6": "2001:db8::10"}
OLD = "service.beta.kubernetes.io/load-balancer-source-ranges"

RANGES = ["10.0.0.0/8", "10.1.0.0/16", "192.168.1.5/32", "0.0.0.0/0", "2001:db8:1::/48", "::/0", "2001:db8:1:2::/64"]


def _edges() -> Iterator[IPv4Address | IPv6Address]:
    for network in map(ip_network, RANGES):
        whole = 2**network.max_prefixlen
        first, last = int(network.network_address), int(network.broadcast_address)
        for number in (first - 1, first, last, last + 1):
            yield type(network.network_address)(number % whole)


# What no packet comes from is no client.
CLIENTS = sorted({client for client in _edges() if int(client)}, key=lambda each: (each.version, int(each)))

EVERYBODY = frozenset(CLIENTS)
OF_VERSION = {version: frozenset(client for client in CLIENTS if client.version == version) for version in (4, 6)}


@lru_cache(1024)
def _inside(network: IPv4Network | IPv6Network) -> frozenset[IPv4Address | IPv6Address]:
    return frozenset(client for client in CLIENTS if client in network)


def within(networks: Iterable[Any]) -> frozenset[Any]:
    """The clients in any of them."""
    return frozenset().union(*map(_inside, networks))


UNREADABLE: list[Any] = [
    *("no such thing", "§", "10.0.0.0/33", "10.0.0.0/255.0.0.0", "10.0.0", "::/0/0", ",", "-1", "tcp"),
    *(-1, 65536, 2**31 - 1, 2**63, 1.5, True),
    *([], {}, ["no such thing"], [[]], [{}], {"no": "such"}, [-1], ["10.0.0.0/33", 5]),
]
"""Whatever field has one of these, it asks for nothing that can be read, or for nothing more."""
OTHERS: list[Any] = [
    *("", " ", None, 0, 80, 443, 8080, "80", [None], [""], {"": ""}, "127.0.0.1", *EIPS.values(), "224.0.0.1"),
    *("TCP", "UDP", "SCTP", "Local", "Cluster", "IPv4", "IPv6", "FQDN", "ClientIP", "LoadBalancer", "ClusterIP"),
    *(RANGES[1], f" {RANGES[1]} ", [RANGES[0]], [f"\t{RANGES[1]}", "x"], f"{RANGES[1]},{RANGES[4]}", [*RANGES[:2]]),
    *("PreferDualStack", "SingleStack", ["IPv6"], ["IPv6", "IPv4"], "web", "other", HERE, "n2", "http", "sh"),
]

# ── Making them up ────────────────────────────────────────────────────────────────────────────────────────────

PORTS = [
    [{"port": 80}],
    [{"port": 80, "protocol": "UDP"}],
    [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}],
]
SOMETIMES: dict[str, list[Any]] = {
    "loadBalancerSourceRanges": [None, None, *([each] for each in RANGES), RANGES[1:3], RANGES[3:5]],
    "externalTrafficPolicy": [None, "Cluster", "Local"],
    "sessionAffinity": [None, "None", "ClientIP"],
    "healthCheckNodePort": [None, 0],
    "sessionAffinityConfig": [None, {"clientIP": {"timeoutSeconds": 60}}],
}
FAMILIES: list[tuple[list[str] | None, str | None]] = [
    (None, None),
    (["IPv4"], "SingleStack"),
    (["IPv6"], "SingleStack"),
    (["IPv4"], "PreferDualStack"),
    (["IPv4", "IPv6"], "RequireDualStack"),
]
ANNOTATIONS: list[dict[str, str]] = [
    {},
    {},
    *({OLD: each} for each in (RANGES[0], f"{RANGES[1]},{RANGES[4]}", f" {RANGES[2]} ")),
    {"eip-speaker.io/scheduler": "sh"},
    {"eip-speaker.io/scheduler": "wlc", OLD: RANGES[1]},
]


def given_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    """A Service with an EIP of each of its families, a slice of each family, and our Node."""
    families, family_policy = draw(st.sampled_from(FAMILIES))
    ports = draw(st.sampled_from(PORTS))
    spec = {
        "type": "LoadBalancer",
        "loadBalancerClass": "eip-speaker.io/speaker",
        "ports": ports,
        "ipFamilies": families,
        "ipFamilyPolicy": family_policy,
        **{name: draw(st.sampled_from(values)) for name, values in SOMETIMES.items()},
    }
    ingress = [{"ip": EIPS[family]} for family in families or ["IPv4"]]
    service = {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {**named("web"), "annotations": draw(st.sampled_from(ANNOTATIONS))},
        "spec": given_fields(spec),
        "status": {"loadBalancer": {"ingress": ingress}, "conditions": [{"type": ASSIGNED, "status": "True"}]},
    }
    node = {
        "metadata": {
            "name": HERE,
            "uid": "u",
            "resourceVersion": "1",
            "labels": draw(st.sampled_from([{}, {EXCLUDE: ""}])),
        }
    }
    here = draw(st.sampled_from([HERE, "n2", None]))
    return {"service": service, "v4": slice_of(ports, "IPv4", here), "v6": slice_of(ports, "IPv6", here), "node": node}


def named(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}


def slice_of(ports: list[dict[str, Any]], family: str, here: str | None) -> dict[str, Any]:
    hosts = ("198.51.100.1", "198.51.100.2") if family == "IPv4" else ("2001:db8:5::1", "2001:db8:5::2")
    endpoints = [
        given_fields({"addresses": [hosts[0]], "nodeName": here, "conditions": {"ready": True}}),
        {"addresses": [hosts[1]], "nodeName": "n2"},
    ]
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {**named(f"web-{family.lower()}"), "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": family,
        "endpoints": endpoints,
        "ports": [{**port, "port": 8000 + port["port"]} for port in ports],
    }


Place = tuple[str | int, ...]


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Of every field and every entry, however deep."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, child in inner:
        yield (*at, step)
        yield from places(child, (*at, step))


def changed(found: dict[str, Any], place: Place, value: Any) -> dict[str, Any]:
    name, *inside = place
    body = {**found[name], "metadata": {**found[name]["metadata"], "resourceVersion": "2"}}
    return {**found, name: put(body, inside, value)}


def put(inner: Any, place: list[str | int], value: Any) -> Any:
    if not place:
        return value
    step, *rest = place
    made = copy.copy(inner)
    made[step] = put(inner.get(step) if isinstance(inner, dict) else inner[step], rest, value)
    return made


# An object that cannot be told from another is another: whose it is stands in these, and the API server guards them.
_IDENTITY = {"name", "namespace", "uid", "resourceVersion", "metadata", "kind", "apiVersion"}


def is_silent(place: Place, value: Any) -> bool:
    """Whether it can be read after all: nothing is said by it, or that the Service is another controller's. A ``spec``
    without a ``type`` is of a Service that asks for no EIP."""
    return (
        (place[-1] == "loadBalancerClass" and isinstance(value, str))
        or (place == ("service", "spec") and isinstance(value, dict))
        or (place[-1] in ("labels", "annotations") and isinstance(value, dict))
        or (place[-1] in ("loadBalancerSourceRanges", "ipFamilies") and value == [])
    )


def mutations(values: list[Any], *, silent: bool = True) -> st.SearchStrategy[tuple[dict[str, Any], dict[str, Any]]]:
    """Before and after."""

    def mutated(found: dict[str, Any]) -> st.SearchStrategy[tuple[dict[str, Any], dict[str, Any]]]:
        fields = [
            place
            for place in places(found)
            if len(place) > 1
            and not (place[1] in ("kind", "apiVersion", "metadata", "status") and place[-1] in _IDENTITY)
        ]
        either = st.tuples(st.sampled_from(fields), st.sampled_from(values))
        if not silent:
            either = either.filter(lambda drawn: not is_silent(*drawn))
        return either.map(lambda drawn: (found, changed(found, *drawn)))

    return objects().flatmap(mutated)


# ── What comes of them ────────────────────────────────────────────────────────────────────────────────────────

Let = set[tuple[str, str, int, IPv4Address | IPv6Address]]
"""EIP, protocol, port, client."""


def _feed(kind):
    return Feed(Resource("/things", kind))


class Agent:
    """What an agent understands, as its mirrors bring it."""

    def __init__(self) -> None:
        self._service, self._slices, self._node = (
            _feed(AssignedObject),
            _feed(SliceObject),
            _feed(NodeObject),
        )
        self._reader = Reader(ViewSettings(forwards=True))

    def hears(self, found: dict[str, Any]) -> None:
        for feed, names in ((self._service, ("service",)), (self._slices, ("v4", "v6")), (self._node, ("node",))):
            feed.begin_list()
            for name in names:
                feed.add(msgspec.Raw(json.dumps(found[name]).encode()))
            list(feed.end_list("2", 0.0))

    def plan(self) -> Plan:
        services: dict[Any, Any] = {each.key: each for each in self._service.store}
        for gone in self._service.collect():
            services.setdefault(gone.key, None)
        slices = [each for each in self._slices.store if each.service_key == WEB]
        self._slices.collect()
        world, settlement, _ = self._reader.read(News(services, {WEB}), lambda key: slices if key == WEB else ())
        self.assignments, self.world = settlement.assignments, world
        return plan(world, settlement.assignments, HERE)

    def held(self) -> set[str]:
        """Of the EIPs those that this node may hold."""
        wishes = node_intent(
            HERE, next(iter(self._node.store), None), ViewSettings(), unreadable=bool(self._node.set_aside)
        )
        services = list(self.world.services.values())
        pool = Pool("lan", ())
        return {
            str(eip)
            for assignment in self.assignments.values()
            for eip in assignment.addresses
            if veto(eip, pool, services, self.world.endpoints, wishes.node) is None
        }


def let_in(made: Plan) -> Let:
    return {
        (str(server.address), server.protocol.value, server.port, client)
        for server in made.virtual_servers.values()
        if any(real.weight for real in server.real_servers)
        for client in (within(server.sources) if server.sources else EVERYBODY) & OF_VERSION[server.address.version]
    }


def can_be_carried_out(server: VirtualServer) -> bool:
    """By any kernel."""
    ports = [server.port, *(real.port for real in server.real_servers)]
    return all(1 <= port <= 65535 for port in ports) and (server.persistence or 1) in range(1, 86401)


# ── What the fields say ───────────────────────────────────────────────────────────────────────────────────────


def network_of(text: Any) -> Any:
    try:
        return ip_network(text.strip(), strict=False) if "/" in text else None
    except (ValueError, AttributeError, TypeError):
        return None


def limit(entries: list[Any] | None) -> frozenset[Any]:
    if entries is None:
        return EVERYBODY
    return within(network for each in entries if (network := network_of(each)) is not None)


def allowed(service: dict[str, Any], *, files: bool = False) -> Let:
    """By what can be read of a Service: an upper bound, whatever its endpoints."""
    spec, annotations = service["spec"], service["metadata"].get("annotations") or {}
    if not isinstance(spec, dict) or not isinstance(annotations, dict):
        return set()
    if spec.get("type") != "LoadBalancer" or spec.get("loadBalancerClass") != "eip-speaker.io/speaker":
        return set()
    ranges, old = spec.get("loadBalancerSourceRanges"), annotations.get(OLD)
    families = spec.get("ipFamilies")
    if ranges is not None and not isinstance(ranges, list):
        return set()
    if not files:
        ranges, families = ranges or None, families or None  # an API server does not tell an empty list from none
    clients = limit(ranges) & limit(None if old is None else str(old).split(","))
    return {
        (eip, port.get("protocol") or "TCP", port["port"], client)
        for family, eip in EIPS.items()
        if families is None or family in families
        for port in (spec.get("ports") or ())
        if isinstance(port, dict)
        and type(port.get("port")) is int
        and 1 <= port["port"] <= 65535
        and port.get("protocol") in (None, "", "TCP", "UDP", "SCTP")
        for client in clients & OF_VERSION[ip_address(eip).version]
    }


def backends(found: dict[str, Any]) -> set[tuple[str, int]]:
    """Address and port of every endpoint that can be read."""
    return {
        (address, port["port"])
        for name in ("v4", "v6")
        for each in found[name]["endpoints"]
        for address in each["addresses"]
        for port in found[name]["ports"]
    }


def fits(kind: Any, found: dict[str, Any]) -> bool:
    try:
        msgspec.json.decode(json.dumps(found), type=kind)
    except msgspec.DecodeError:
        return False
    return True


# ── Nobody is let in ──────────────────────────────────────────────────────────────────────────────────────────


@LIKE_THIS
@given(mutations([*UNREADABLE, *OTHERS]))
def test_an_agent_lets_in_whom_the_fields_that_can_be_read_let_in_and_nobody_else(drawn):
    before, after = drawn
    agent, fresh = Agent(), Agent()
    agent.hears(before)
    assert let_in(agent.plan()) <= allowed(before["service"])
    agent.hears(after)
    fresh.hears(after)
    readable = allowed(after["service"]) if fits(AssignedObject, after["service"]) else None
    # What cannot be decoded at all counts as it was before; who never knew it lets nobody in.
    assert let_in(agent.plan()) <= (allowed(before["service"]) if readable is None else readable)
    assert let_in(fresh.plan()) <= (set() if readable is None else readable)
    for each in (agent, fresh):
        assert all(map(can_be_carried_out, each.plan().virtual_servers.values()))
        assert all(
            found.health_check_port in range(1, 65536)
            for found in each.world.services.values()
            if found.health_check_port
        )


@LIKE_THIS
@given(mutations(UNREADABLE, silent=False))
def test_a_field_that_cannot_be_read_lets_nobody_in_aims_at_nobody_and_lets_no_other_node_serve(drawn):
    before, after = drawn
    agent, fresh = Agent(), Agent()
    agent.hears(before)
    first = agent.plan()
    let, held = let_in(first), agent.held()
    agent.hears(after)
    fresh.hears(after)
    for each in (agent, fresh):
        made = each.plan()
        assert let_in(made) <= let
        assert each.held() <= held
        aimed = {(str(r.address), r.port) for vs in made.virtual_servers.values() for r in vs.real_servers}
        assert aimed <= backends(before)


@IN_SHORT
@given(mutations([*UNREADABLE, *OTHERS]))
def test_files_let_in_whom_they_say_or_are_refused_as_a_whole(drawn):
    _, after = drawn
    try:
        reading = read_world([ApiObject(after[name]) for name in ("service", "v4", "v6")], default_class=False)
    except InvalidManifests:
        return
    world = reading.world
    assigned = {
        key: Assignment(key, addresses, ("",) * len(addresses))
        for key, service in world.services.items()
        if (addresses := tuple(ip_address(EIPS[family]) for family in service.families))
    }
    made = {each for each in let_in(plan(world, assigned, HERE)) if each[0] in EIPS.values()}
    assert made <= (allowed(put(after["service"], ["spec", "ipFamilies"], None), files=True) if made else set())


@IN_SHORT
@given(mutations(UNREADABLE, silent=False))
def test_an_eip_is_given_to_nobody_else_while_its_service_cannot_be_read(drawn):
    before, after = drawn
    pool = {"metadata": {"name": "lan", "uid": "lan", "resourceVersion": "1"}, "spec": {"addresses": [*EIPS.values()]}}
    other = {**before["service"], "metadata": named("other"), "status": {}}
    namespace = {"metadata": {"name": "default", "uid": "default", "resourceVersion": "1"}}
    known, fresh = Controller(), Controller()
    known.hears([before["service"]], [pool], namespace)
    for controller in (known, fresh):
        if controller is fresh and after["service"]["status"] != before["service"]["status"]:
            continue  # nothing else says what it had
        controller.hears([after["service"], other], [pool], namespace)
        had = {each["ip"] for each in before["service"]["status"]["loadBalancer"]["ingress"]}
        assert not had & controller.given("other")


class Controller:
    def __init__(self) -> None:
        self._services, self._eips, self._decider = (
            _feed(ServiceObject),
            _feed(EipObject),
            Decider(ControllerSettings()),
        )
        self._orders: dict[str, Any] = {}

    def hears(self, services: list[Any], pools: list[Any], namespace: Any) -> None:
        for feed, found in ((self._services, services), (self._eips, pools)):
            feed.begin_list()
            for each in found:
                feed.add(msgspec.Raw(json.dumps(each).encode()))
            list(feed.end_list("2", 0.0))
        news = ControllerNews(
            {each.key: each for each in self._services.store}, {each.key: each for each in self._eips.store}
        )
        self._orders |= self._decider.decide(news, 1.0, "2026-01-01T00:00:00Z")

    def given(self, name: str) -> set[str]:
        order = self._orders.get(f"/api/v1/namespaces/default/services/{name}/status")
        ingress = order.body()["status"].get("loadBalancer", {}).get("ingress") if order is not None else None
        return {each["ip"] for each in ingress or ()}


# ── In the kernel's words ─────────────────────────────────────────────────────────────────────────────────────


@IN_SHORT
@given(mutations([*UNREADABLE, *OTHERS]))
def test_the_rules_of_the_kernel_let_in_whom_the_plan_lets_in(drawn):
    agent = Agent()
    agent.hears(drawn[1])
    made = agent.plan()
    expected = {(eip, NUMBERS[Protocol(protocol)], port, client) for eip, protocol, port, client in let_in(made)}
    form = expressible(made)
    for elements, ports in (
        (forwarder_ruleset(form).elements, "services"),
        (guard_ruleset(form).elements, "ports"),
    ):
        assert expected <= by_nftables(elements, ports, made)
        assert by_nftables(elements, ports, made) <= expected


def by_nftables(elements: Any, ports: str, made: Plan) -> set[Any]:
    """Of the virtual servers with somebody to answer, whom the rules named "not a source range" do not drop."""
    found = set()
    for server in made.virtual_servers.values():
        key = f"{server.address} . {NUMBERS[server.protocol]} . {server.port}"
        version = server.address.version
        opened = any(each.split(" : ")[0] == key for each in elements[f"{ports}{version}"])
        sources = [each.split(" . ")[3] for each in elements[f"sources{version}"] if each.startswith(f"{key} . ")]
        limited = key in elements[f"restricted{version}"]
        found |= {
            (str(server.address), NUMBERS[server.protocol], server.port, client)
            for client in (within(map(ip_network, sources)) if limited else EVERYBODY) & OF_VERSION[version]
            if opened and any(real.weight for real in server.real_servers)
        }
    return found


# ── This file itself ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_clients_that_are_looked_at_tell_every_range_from_every_other():
    assert len({_inside(ip_network(each)) for each in RANGES}) == len(RANGES)
    assert not within(NOBODY)
