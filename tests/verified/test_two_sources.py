"""Files and an API that say the same come to the same: assignments, placements, virtual servers, what people are told.

SPEAKER_TWO_SOURCES sets how many histories there are; `make fuzz` asks for many.
"""

import asyncio
import os
import ssl
from typing import Any

import pytest
from crds import definitions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from real_api import USERS
from two_sources import EIPS, NAMESPACES, NODE, SERVICES, SLICES, Estate, Http, Memory, offered, path_of

from speaker.api.addresses import parse_range
from speaker.model import Pool

ASKED = os.environ.get("SPEAKER_TWO_SOURCES")
"""Of a search (``make fuzz``), which is another each time; a test is the same every time where Hypothesis is (CI)."""
HISTORIES = int(ASKED or 150)
STEPS = 6
SEARCH = 5000
"""Histories of one search: Hypothesis remembers them all, and becomes slow."""
BY_HTTP = 20
"""Histories that an API server is told."""

Json = dict[str, Any]

BLOCKS = (
    "192.0.2.10-192.0.2.11",
    "192.0.2.10",
    "192.0.2.12/31",
    "192.0.2.14",
    "198.51.100.0/30",
    "2001:db8::10-2001:db8::11",
    "2001:db8::14",
)
NAMES = ("lan", "wan", "six")
KEYS = (("default", "a"), ("default", "b"), ("default", "c"), ("shop", "a"), ("shop", "d"))
FAMILIES = (
    (["IPv4"], "SingleStack"),
    (["IPv4"], "SingleStack"),
    (["IPv6"], "SingleStack"),
    (["IPv4", "IPv6"], "PreferDualStack"),
    (["IPv6", "IPv4"], "PreferDualStack"),
    (["IPv4", "IPv6"], "RequireDualStack"),
)
WANTED = {
    "IPv4": (None, None, None, "192.0.2.10", "192.0.2.12", "192.0.2.14", "192.0.2.99", "192.0.2.10,192.0.2.12"),
    "IPv6": (None, None, None, "2001:db8::10", "2001:db8::14"),
}
PORTS = (
    [{"name": "http", "port": 80, "protocol": "TCP"}],
    [{"name": "dns", "port": 53, "protocol": "UDP"}],
    [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}],
)
OWN = ("192.0.2.5", "192.0.2.10", "192.0.2.14", "2001:db8::10")

rarely = st.integers(0, 4).map(lambda number: number == 0)


def nothing_or(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from((None, *values))


pools = st.fixed_dictionaries(
    {
        "name": st.sampled_from(NAMES),
        "blocks": st.sets(st.sampled_from(BLOCKS), min_size=1, max_size=4),
        "excludes": rarely,
        "interface": nothing_or("eth1", "eth9,eth1", "can_reach:203.0.113.9"),
        "rack": st.booleans(),
        "access": nothing_or(
            "namespaces", "namespaceSelector", "serviceSelector", "namespaceSelectors", "serviceSelectors"
        ),
        "priority": st.sampled_from((0, 5)),
        "by_name_only": rarely,
        "disabled": rarely,
        "burst": st.sampled_from((5, 2)),
        "most": nothing_or(None, 1, 2),
    }
)
services = st.fixed_dictionaries(
    {
        "key": st.sampled_from(KEYS),
        "ours": rarely.map(lambda given: not given),
        "families": st.sampled_from(FAMILIES),
        "IPv4": st.sampled_from(WANTED["IPv4"]),
        "IPv6": st.sampled_from(WANTED["IPv6"]),
        "pool": nothing_or(None, None, "lan", "wan", "nope", "lan,wan", "wan,six,lan"),
        "release": nothing_or(None, "now"),
        "share": nothing_or(None, "k"),
        "with": st.booleans(),
        "ports": st.sampled_from(PORTS),
        "local": rarely,
        "scheduler": nothing_or("lc"),
        "ranges": nothing_or(["203.0.113.0/24"]),
        "sticky": rarely,
        "web": st.booleans(),
    }
)
slices = st.fixed_dictionaries(
    {
        "key": st.sampled_from(KEYS),
        "family": st.sampled_from(("IPv4", "IPv6")),
        "node": nothing_or(NODE, NODE, "n2"),
        "ready": st.booleans(),
        "terminating": rarely,
        "gone": rarely,
    }
)


class History:
    """What may happen, one thing after the other."""

    def __init__(self, estate: Estate) -> None:
        self.estate = estate
        for wish in STARTS:
            self.pool(wish)

    def pool(self, wish: Json) -> None:
        name = wish["name"]
        if name in self.estate.going():
            return  # with an API it has to be gone before there can be another of its name
        spec = _pool_spec(wish, set().union(*(taken for other, taken in self.estate.pools.items() if other != name)))
        if spec is None:
            return
        metadata = {"name": name}
        found = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": metadata, "spec": spec}
        if self.estate.put(found):
            self.estate.pools[name] = offered(_ranges(spec))

    def pool_gone(self, name: str) -> None:
        """While it is in use the API keeps it as it was changed last; files that nobody read then do not."""
        assert self.estate.differences() == []
        self.estate.remove(f"{EIPS}/{name}")

    def service(self, wish: Json) -> None:
        self.estate.put(_service(wish))

    def service_gone(self, key: tuple[str, str]) -> None:
        namespace, name = key
        self.estate.remove(SERVICES.replace("services", f"namespaces/{namespace}/services/{name}"))

    def slice(self, wish: Json) -> None:
        found = _slice(wish)
        if wish["gone"]:
            self.estate.remove(path_of(found))
        else:
            self.estate.put(found)

    def namespace(self, name: str, gold: bool) -> None:
        labels = {"tier": "gold"} if gold else {}
        self.estate.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})

    def node(self, rack: bool, own: frozenset[str], carrier: bool) -> None:
        self.estate.rack, self.estate.own, self.estate.carrier = rack, own, carrier
        self.estate.tell_node()

    def wait(self, seconds: float) -> None:
        self.estate.now += seconds

    def restart(self, controller: bool, agent: bool) -> None:
        self.estate.restart(controller=controller, agent=agent)


def _pool_spec(wish: Json, taken: set[Any]) -> Json | None:
    """None where others have all that it wishes for: an address belongs to one pool."""
    chosen: list[str] = []
    for block in sorted(wish["blocks"]):
        here = offered(Pool("", (parse_range(block),)))
        if not here & taken:
            chosen.append(block)
            taken = taken | here
    if not chosen:
        return None
    spec: Json = {"addresses": chosen, "priority": wish["priority"], "gratuitous": {"burst": wish["burst"]}}
    if wish.get("most"):
        spec["perNamespace"] = {"max": wish["most"]}
    if wish["excludes"]:
        spec["exclude"] = [chosen[0].partition("-")[0].partition("/")[0]]
    if wish["interface"]:
        spec["interface"] = wish["interface"]
    if wish["rack"]:
        spec["nodeSelector"] = {"matchLabels": {"rack": "a"}}
    match wish["access"]:
        case "namespaces":
            spec["namespaces"] = ["shop"]
        case "namespaceSelector":
            spec["namespaceSelector"] = {"matchLabels": {"tier": "gold"}}
        case "serviceSelector":
            spec["serviceSelector"] = {"matchLabels": {"app": "web"}}
        case "namespaceSelectors":
            gold = {"matchLabels": {"tier": "gold"}}
            spec["namespaceSelectors"] = [gold, {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}]
        case "serviceSelectors":
            several = [
                {"matchLabels": {"app": "web"}},
                {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]},
            ]
            spec["serviceSelectors"] = several[:: 1 if wish["rack"] else 2]
    return {**spec, "autoAssign": not wish["by_name_only"], "disabled": wish["disabled"]}


def _ranges(spec: Json) -> Pool:
    return Pool("", tuple(map(parse_range, spec["addresses"])), tuple(map(parse_range, spec.get("exclude", ()))))


def _service(wish: Json) -> Json:
    (namespace, name), (families, policy) = wish["key"], wish["families"]
    ours = wish["ours"]
    addresses = ",".join(filter(None, (wish[family] for family in families)))
    annotations = {
        "pool": wish["pool"],
        "addresses": addresses or None,
        "release": wish.get("release"),
        "share": wish["share"],
        "share-namespaces": ",".join(NAMESPACES) if wish["share"] and wish["with"] else None,
        "scheduler": wish["scheduler"],
    }
    spec: Json = {"ports": wish["ports"], "ipFamilies": families, "ipFamilyPolicy": policy, "selector": {"app": "web"}}
    if ours:
        spec |= {"type": "LoadBalancer", "loadBalancerClass": "eip-speaker.io/speaker"}
        spec |= {"externalTrafficPolicy": "Local" if wish["local"] else "Cluster"}
        spec |= {"loadBalancerSourceRanges": wish["ranges"]} if wish["ranges"] else {}
    if wish["sticky"]:
        spec |= {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}
    metadata = {
        "namespace": namespace,
        "name": name,
        "labels": {"app": "web"} if wish["web"] else {},
        "annotations": {f"eip-speaker.io/{each}": value for each, value in annotations.items() if value},
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _slice(wish: Json) -> Json:
    (namespace, name), v4 = wish["key"], wish["family"] == "IPv4"
    endpoint = {
        "addresses": ["10.0.0.1" if v4 else "2001:db8:1::1"],
        "conditions": {"ready": wish["ready"], "serving": True, "terminating": wish["terminating"]},
        **({"nodeName": wish["node"]} if wish["node"] else {}),
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace,
            "name": f"{name}-{wish['family'].lower()}",
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": wish["family"],
        "endpoints": [endpoint],
        "ports": [
            {"name": "http", "port": 8080, "protocol": "TCP"},
            {"name": "dns", "port": 5353, "protocol": "UDP"},
        ],
    }


owns = st.frozensets(st.sampled_from(OWN), max_size=2)
edits = st.one_of(
    st.tuples(st.just("pool"), pools),
    st.tuples(st.just("pool_gone"), st.sampled_from(NAMES)),
    *[st.tuples(st.just("service"), services)] * 3,
    st.tuples(st.just("service_gone"), st.sampled_from(KEYS)),
    st.tuples(st.just("slice"), slices),
    st.tuples(st.just("namespace"), st.sampled_from(NAMESPACES), st.booleans()),
    st.tuples(st.just("node"), st.booleans(), owns, st.booleans()),
    st.tuples(st.just("restart"), st.booleans(), st.booleans()),
)


async def test_an_api_server_is_told_the_same(api):
    store = await asyncio.to_thread(_store, api)

    @given(history=st.lists(edits, min_size=1, max_size=STEPS))
    @settings(max_examples=BY_HTTP, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def tell(history):
        _clear(store)
        told = History(Estate(store))
        for what, *how in history:
            getattr(told, what)(*how)
            assert told.estate.differences() == []

    try:
        await asyncio.to_thread(tell)
        await asyncio.to_thread(_clear, store)
    finally:
        store.close()


def _store(api: Any) -> Http:
    if api.fake is not None:
        return Http(api.port)
    store = Http(api.port, USERS["admin"][0], ssl.create_default_context(cafile=api.real.ca))
    for definition in definitions().values():
        store.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    while store.ask("GET", EIPS)[0] == 404:
        pass
    return store


def _clear(store: Http) -> None:
    """What the last history left."""
    for collection in (SERVICES, SLICES, EIPS):
        for found in store.list(collection):
            if found["metadata"].get("finalizers"):
                store.ask("PATCH", path_of(found), {"metadata": {"finalizers": None}}, "application/merge-patch+json")
            store.delete(path_of(found))


class TwoSources(RuleBasedStateMachine):
    """Now two edits are seen together, now each by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.history = History(Estate(Memory()))
        self.edits = 0

    @rule(wish=pools)
    def pool(self, wish):
        self.history.pool(wish)

    @rule(name=st.sampled_from(NAMES))
    def pool_gone(self, name):
        self.history.pool_gone(name)

    @rule(wish=services)
    def service(self, wish):
        self.history.service(wish)

    @rule(wish=services)
    def another_service(self, wish):
        self.history.service(wish)

    @rule(key=st.sampled_from(KEYS))
    def service_gone(self, key):
        self.history.service_gone(key)

    @rule(wish=slices)
    def slice(self, wish):
        self.history.slice(wish)

    @rule(name=st.sampled_from(NAMESPACES), gold=st.booleans())
    def namespace(self, name, gold):
        self.history.namespace(name, gold)

    @rule(rack=st.booleans(), own=owns, carrier=st.booleans())
    def node(self, rack, own, carrier):
        self.history.node(rack, own, carrier)

    @rule(seconds=st.sampled_from((1.0, 61.0)))
    def wait(self, seconds):
        self.history.wait(seconds)

    @rule(controller=st.booleans(), agent=st.booleans())
    def restart(self, controller, agent):
        self.history.restart(controller, agent)

    @invariant()
    def both_come_to_the_same(self):
        if self.edits % 3:
            assert self.history.estate.differences() == []
        self.edits += 1

    def teardown(self):
        assert self.history.estate.differences() == []


def test_what_is_released_while_nobody_leads_rests_in_files_alone_and_for_no_longer_than_it_does():
    history = History(Estate(Memory()))
    asks = {
        "families": FAMILIES[0], "pool": None, "share": None, "with": False, "ports": PORTS[0], "local": False,
        "scheduler": None, "ranges": None, "sticky": False, "web": False, "IPv4": None,
    }  # fmt: skip
    history.service({"key": KEYS[1], "ours": True, **asks})
    assert history.estate.differences() == []
    history.restart(controller=True, agent=False)
    history.service({"key": KEYS[1], "ours": False, **asks})
    assert history.estate.differences() == []
    history.service({"key": KEYS[0], "ours": True, **asks})
    assert history.estate.differences() == []


def test_what_a_holder_gives_up_goes_to_another_holder_that_lacks_it_before_any_newcomer():
    """The API's controller passed over one that holds only a part of what it asks for, where nothing of its own had
    changed."""
    history = History(Estate(Memory()))
    asks = {
        "pool": None, "share": None, "with": False, "ports": PORTS[0], "local": True, "scheduler": None, "ranges": None,
        "sticky": True, "web": False, "IPv4": None, "IPv6": None, "ours": True,
    }  # fmt: skip
    six, four, both = (["IPv6"], "SingleStack"), (["IPv4"], "SingleStack"), (["IPv4", "IPv6"], "PreferDualStack")
    for key, families in (
        (("shop", "a"), six),
        (("default", "a"), six),
        (("default", "b"), six),
        (("default", "c"), both),
        (("default", "a"), four),
    ):
        history.service({"key": key, "families": families, **asks})
        assert history.estate.differences() == []


PLAIN = {"excludes": False, "access": None, "by_name_only": False, "disabled": False, "burst": 5}
STARTS = (
    {"name": "lan", "blocks": {BLOCKS[0], BLOCKS[5]}, "interface": None, "rack": False, "priority": 0, **PLAIN},
    {"name": "wan", "blocks": {BLOCKS[2], BLOCKS[3]}, "interface": "eth1", "rack": True, "priority": 5, **PLAIN},
)


@pytest.mark.parametrize("histories", [min(SEARCH, HISTORIES - begun) for begun in range(0, HISTORIES, SEARCH)])
def test_files_and_an_api_that_say_the_same_come_to_the_same(histories):
    run_state_machine_as_test(
        TwoSources,
        settings=settings(
            max_examples=histories,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=settings.default.derandomize and ASKED is None,
            suppress_health_check=list(HealthCheck),
        ),
    )
