"""One estate of pools, Services, endpoints and nodes, told twice: by files to ``speaker run``, and by an API to the
controller and an agent. ``Estate.differences`` says where the two come to different ends.

docs/kubernetes.md says what may differ, and why ("Differences from running without Kubernetes"). A comment says so here
where it is passed over.
"""

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any, Protocol

import msgspec

from speaker.agent.view import News as AgentNews
from speaker.agent.view import Reader, ViewSettings, node_intent
from speaker.allocator.assign import Allocator
from speaker.allocator.book import Ledger
from speaker.allocator.settle import settle, with_former_pools, with_own_addresses
from speaker.api.fields import ApiObject
from speaker.api.kinds import (
    ASSIGNED,
    EIPS,
    AssignedObject,
    EipObject,
    HostObject,
    NodeObject,
    ServiceObject,
    SliceObject,
    condition_of,
)
from speaker.api.objects import Key, Object
from speaker.api.reading import read_world
from speaker.api.service import RECORD
from speaker.controller.decider import ControllerSettings, Decider, News
from speaker.interfaces.snapshot import LinkAddress, NextHop, Route, RouteTables, Rule, Snapshot, own
from speaker.model import IPAddress, Link, Mac, Pool, ServiceKey
from speaker.node.decide import Decision
from speaker.node.decide import NodeDecider as NodeDecider
from speaker.settings import Node
from speaker.standalone.document import parse

Json = dict[str, Any]

NODE = "n1"
REST = 60.0
NAMESPACES = ("default", "shop")
SERVICES, NODES, SPACES = "/api/v1/services", "/api/v1/nodes", "/api/v1/namespaces"
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))
ETH1 = Link(3, "eth1", Mac(b"\x02\0\0\0\0\x02"))


def path_of(found: Json) -> str:
    """Where an object lives."""
    meta, kind = found["metadata"], found["kind"]
    collection = {"Eip": EIPS, "Service": SERVICES, "EndpointSlice": SLICES, "Namespace": SPACES, "Node": NODES}[kind]
    if namespace := meta.get("namespace"):
        head, _, resource = collection.rpartition("/")
        collection = f"{head}/namespaces/{namespace}/{resource}"
    return f"{collection}/{meta['name']}"


class Refused(Exception):
    """Raised when the API does not take an object."""


# ── Two APIs ──────────────────────────────────────────────────────────────────────────────────────────────────


class Store(Protocol):
    def list(self, collection: str) -> list[Json]: ...
    def get(self, path: str) -> Json | None: ...
    def put(self, path: str, found: Json) -> None:
        """Made or replaced, but for its status. Raises Refused."""

    def patch(self, path: str, body: Json) -> None:
        """Merged, unless it names a version that is past."""

    def delete(self, path: str) -> None: ...


class Memory:
    """As much of an API as one thread needs that does one thing after the other."""

    def __init__(self) -> None:
        self._objects: dict[str, Json] = {}
        self._version = 0

    def list(self, collection: str) -> list[Json]:
        resource = collection.rpartition("/")[2]
        kinds = {"services": "Service", "eips": "Eip", "endpointslices": "EndpointSlice", "nodes": "Node"}
        kind = kinds.get(resource, "Namespace")
        return [found for found in self._objects.values() if found["kind"] == kind]

    def get(self, path: str) -> Json | None:
        return self._objects.get(path)

    def put(self, path: str, found: Json) -> None:
        known = self._objects.get(path)
        self._version += 1
        made = {"uid": str(self._version), "generation": 0, "creationTimestamp": _time(self._version)}
        kept = known["metadata"] if known is not None else made
        meta = {**found["metadata"], **{name: kept[name] for name in made}}
        if "deletionTimestamp" in kept:
            meta["deletionTimestamp"] = kept["deletionTimestamp"]
        if known is None or known.get("spec") != found.get("spec"):
            meta["generation"] += 1
        status = found.get("status") if found["kind"] == "Node" else (known or {}).get("status")
        self._write(path, {**found, "metadata": meta, "status": status or {}})

    def patch(self, path: str, body: Json) -> None:
        path = path.removesuffix("/status")
        known = self._objects.get(path)
        if known is None or body["metadata"]["resourceVersion"] != known["metadata"]["resourceVersion"]:
            return
        merged = _merged(known, body)
        if merged["metadata"].get("deletionTimestamp") and not merged["metadata"].get("finalizers"):
            del self._objects[path]
        elif merged != known:
            self._write(path, merged)

    def delete(self, path: str) -> None:
        known = self._objects.get(path)
        if known is None:
            return
        if known["metadata"].get("finalizers"):
            meta = {**known["metadata"], "deletionTimestamp": "2030-01-01T00:00:00Z"}
            self._write(path, {**known, "metadata": meta})
        else:
            del self._objects[path]

    def _write(self, path: str, found: Json) -> None:
        self._version += 1
        self._objects[path] = {**found, "metadata": {**found["metadata"], "resourceVersion": str(self._version)}}


def _time(number: int) -> str:
    return f"2026-01-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z"


def _merged(known: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(known) if isinstance(known, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged


class Http:
    """An API server: the fake without ``token`` and ``tls``, the real one with both."""

    def __init__(self, port: int, token: str = "", tls: ssl.SSLContext | None = None) -> None:
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connection: http.client.HTTPConnection
        if tls is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        else:
            self._connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=tls)

    def ask(self, method: str, path: str, body: Json | None = None, kind: str = "application/json") -> tuple[int, Json]:
        content = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, content, {**self._headers, "Content-Type": kind})
        answer = self._connection.getresponse()
        said, is_json = answer.read(), "json" in answer.headers.get("Content-Type", "")
        return answer.status, json.loads(said) if is_json else {}

    def close(self) -> None:
        self._connection.close()

    def list(self, collection: str) -> list[Json]:
        listed = self.ask("GET", collection)[1]
        kind = listed["kind"].removesuffix("List")
        found = [{**each, "kind": kind} for each in listed["items"] or []]
        return [each for each in found if self._is_ours(collection, each["metadata"])]

    @staticmethod
    def _is_ours(collection: str, meta: Json) -> bool:
        if collection == SPACES:
            return meta["name"] in NAMESPACES
        if meta.get("namespace"):
            return meta["namespace"] in NAMESPACES and meta["name"] != "kubernetes"
        return True

    def get(self, path: str) -> Json | None:
        code, found = self.ask("GET", path)
        return None if code == 404 else found

    def put(self, path: str, found: Json) -> None:
        known = self.get(path)
        if known is None:
            code, said = self.ask("POST", path.rpartition("/")[0], found)
        else:
            meta = {**found["metadata"], "resourceVersion": known["metadata"]["resourceVersion"]}
            code, said = self.ask("PUT", path, {**found, "metadata": meta})
        if code >= 400:
            raise Refused(said)
        if found["kind"] == "Node":
            self.ask("PATCH", f"{path}/status", {"status": found["status"]}, "application/merge-patch+json")

    def patch(self, path: str, body: Json) -> None:
        code, said = self.ask("PATCH", path, body, "application/merge-patch+json")
        assert code < 400 or code in (404, 409), said

    def delete(self, path: str) -> None:
        self.ask("DELETE", path)


# ── Told by files ─────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(4096)
def _read_text(text: str) -> tuple[ApiObject, ...]:
    parsed = parse("told.yaml", text)
    assert not parsed.problems, parsed.problems
    return tuple(parsed.objects)


@dataclass
class End:
    """What one of them came to. ``told``: reason and sentence for each Service that lacks something or is flagged."""

    assigned: Mapping[ServiceKey, Mapping[IPAddress, str]]
    told: Mapping[ServiceKey, tuple[str, str]]
    decision: Decision


class ByFiles:
    def __init__(self) -> None:
        self._allocator = Allocator(REST)
        self._decider = NodeDecider(forwards=True)

    def restart(self, now: float) -> None:
        written = msgspec.json.encode(self._allocator.ledger(now))
        self._allocator, self._decider = Allocator(REST), NodeDecider(forwards=True)
        self._allocator.restore(msgspec.json.decode(written, type=Ledger), now)

    def suspended(self, now: float) -> frozenset[str]:
        return frozenset(address for held in self._allocator.ledger(now).held for address in held.suspended)

    def end(self, objects: list[Json], node: Node, snapshot: Snapshot, now: float) -> End:
        """As ``run.Manifests`` and ``node.Host`` have it."""
        read = [each for found in objects for each in _read_text(json.dumps(found))]
        world = with_own_addresses(read_world(read, default_class=False).world, snapshot.own)
        settlement = settle(self._allocator, world, now)
        world = with_former_pools(world, self._allocator)
        decision, _ = self._decider.decide(world, settlement.assignments, snapshot, node, None)
        told = {key: (each.reason.value, each.told) for key, each in settlement.refusals.items()}
        for key, assignment in settlement.assignments.items():
            if assignment.flagged and key not in told:
                told[key] = "flagged", ", ".join(sorted(map(str, assignment.flagged)))
        assigned = {
            key: dict(zip(each.addresses, each.pools, strict=True)) for key, each in settlement.assignments.items()
        }
        return End(assigned, told, decision)


# ── Told by an API ────────────────────────────────────────────────────────────────────────────────────────────


class Mirror:
    """What is another than it was at the last look."""

    def __init__(self, store: Store, collection: str, kind: type[Object]) -> None:
        self.objects: dict[Key, Any] = {}
        self._store, self._collection, self._kind = store, collection, kind
        self._versions: dict[Key, str] = {}

    def take(self) -> dict[Key, Any]:
        news: dict[Key, Any] = {}
        found = {Key(each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in self._listed()}
        for key in self._versions.keys() - found.keys():
            del self._versions[key], self.objects[key]
            news[key] = None
        for key, each in found.items():
            if self._versions.get(key) != each["metadata"]["resourceVersion"]:
                self._versions[key] = each["metadata"]["resourceVersion"]
                news[key] = self.objects[key] = msgspec.convert(each, self._kind)
        return news

    def _listed(self) -> list[Json]:
        return self._store.list(self._collection)


class ByApi:
    """The controller and the agent of one node, as often as they are woken."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.restart_controller()
        self.restart_agent()

    def restart_controller(self) -> None:
        self._decider = Decider(ControllerSettings(rest=REST))
        kinds = ((SERVICES, ServiceObject), (EIPS, EipObject), (SPACES, Object), (NODES, HostObject))
        self._seen = [Mirror(self._store, collection, kind) for collection, kind in kinds]

    def restart_agent(self) -> None:
        self._reader, self._node_decider = Reader(ViewSettings(forwards=True)), NodeDecider(forwards=True)
        self._services = Mirror(self._store, SERVICES, AssignedObject)
        self._slices = Mirror(self._store, SLICES, SliceObject)
        self._eips = Mirror(self._store, EIPS, EipObject)
        self._nodes = Mirror(self._store, NODES, NodeObject)
        self._decided_on: tuple[Node, Snapshot] | None = None

    def settle(self, now: float) -> None:
        for _ in range(30):
            news = News(*(mirror.take() for mirror in self._seen))
            orders = self._decider.decide(news, now, "2026-01-02T00:00:00Z")
            writes = [order for order in orders.values() if order is not None]
            if not writes:
                return
            for write in writes:
                self._store.patch(write.path, write.body())
        raise AssertionError(f"it never ends: {[write.body() for write in writes]}")

    def end(self, snapshot: Snapshot) -> End:
        news = AgentNews(self._services.take(), nodes=self._nodes.take())
        before = dict(self._slices.objects)
        for key, after in self._slices.take().items():
            news.slices |= {each.service_key for each in (before.get(key), after) if each is not None}
            if after is None:
                self._reader.forget_slice(key)
        if self._eips.take() or self._decided_on is None:
            news.eips = tuple(self._eips.objects.values())
        world, settlement, changed = self._reader.read(
            news, lambda key: [each for each in self._slices.objects.values() if each.service_key == key]
        )
        node = node_intent(NODE, self._nodes.objects.get(Key("", NODE)), ViewSettings()).node
        if self._decided_on != (node, snapshot):
            changed = None
        self._decided_on = node, snapshot
        decision, _ = self._node_decider.decide(world, settlement.assignments, snapshot, node, changed)
        told, assigned = {}, {}
        for each in self._services.objects.values():
            found = self._store.get(f"/api/v1/namespaces/{each.key.namespace}/services/{each.key.name}")
            assert found is not None
            said = condition_of(tuple(found.get("status", {}).get("conditions", ())), ASSIGNED)
            if said is not None and said["reason"] != "Assigned":
                told[ServiceKey(each.key.namespace, each.key.name)] = said["reason"], said["message"]
        for key, assignment in settlement.assignments.items():
            assigned[key] = dict(zip(assignment.addresses, assignment.pools, strict=True))
        return End(assigned, told, decision)


# ── Both ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Estate:
    """Edits go to both; ``differences`` wakes both."""

    store: Store
    now: float = 1000.0
    own: frozenset[str] = frozenset()
    """Addresses of the node's own."""
    rack: bool = True
    carrier: bool = True
    pools: dict[str, frozenset[IPAddress]] = field(default_factory=dict)
    """What each offers, also those that are yet to go."""
    new_leader: bool = False
    """Whether it has looked at nothing yet."""

    def __post_init__(self) -> None:
        self._told: dict[str, Json] = {}
        self.by_files = ByFiles()
        for name in NAMESPACES:
            self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {}}})
        self.tell_node()
        self.by_api = ByApi(self.store)

    # ── Edits ─────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, found: Json) -> bool:
        """Whether the API takes it; what it refuses nobody is told."""
        path = path_of(found)
        known = self.store.get(path)
        try:
            self.store.put(path, _as_applied(found, known))
        except Refused:
            return False
        if found["kind"] == "Node":
            return True
        now = self.store.get(path)
        assert now is not None
        told = deepcopy(found)
        # Who is older counts, and a file has no time of its own.
        told["metadata"]["creationTimestamp"] = now["metadata"]["creationTimestamp"]
        self._told[path] = told
        return True

    def remove(self, path: str) -> None:
        self._told.pop(path, None)
        self.store.delete(path)

    def told(self, kind: str) -> Iterator[str]:
        """Paths."""
        return (path for path, found in self._told.items() if found["kind"] == kind)

    def tell_node(self) -> None:
        labels = {"kubernetes.io/hostname": NODE} | ({"rack": "a"} if self.rack else {})
        addresses = [{"type": "InternalIP", "address": each} for each in sorted(self.own)]
        metadata = {"name": NODE, "labels": labels}
        self.put({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"addresses": addresses}})

    def restart(self, *, controller: bool, agent: bool) -> None:
        """A leader knows nothing of what rests, and ``speaker run`` does: a minute makes them equal. Nor does it know
        for sure of a place that is kept while a host has the address: the annotation that says it is only a wish."""
        self.now += REST + 1
        kept = self.by_files.suspended(self.now)
        if controller and kept.isdisjoint(self.own):
            self.by_files.restart(self.now)
            self.by_api.restart_controller()
            self.new_leader = True
        if agent:
            self.by_api.restart_agent()

    def going(self) -> frozenset[str]:
        """Pools that were deleted while in use: with an API they stay until they are not."""
        names = {found["metadata"]["name"] for found in self.store.list(EIPS)}
        return frozenset(names - {path.rpartition("/")[2] for path in self.told("Eip")})

    # ── What comes of them ────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self) -> Snapshot:
        links = {2: ETH0, 3: replace(ETH1, carrier=self.carrier)}
        subnets = [(2, ip_interface("192.0.2.1/24")), (2, ip_interface("2001:db8::1/64"))]
        bound = [LinkAddress(link, each.ip, each.network) for link, each in subnets]
        bound += [LinkAddress(3, ip_address(each), ip_network(each)) for each in sorted(self.own)]
        route = Route(4, 254, int(ip_address("203.0.113.0")), 24, (NextHop(3),))
        return Snapshot(links, tuple(bound), (Rule(4, 32766),), RouteTables([route]), own=own(links, bound))

    def differences(self) -> list[str]:
        snapshot = self.snapshot()
        labels = "rack=a" if self.rack else ""
        files = self.by_files.end([*self._told.values()], Node.parse(NODE, labels), snapshot, self.now)
        self.by_api.settle(self.now)
        api = self.by_api.end(snapshot)
        going = self.going()
        self.pools = {name: offered for name, offered in self.pools.items() if name in going or self._declared(name)}
        found = [
            *_different("assigned", files.assigned, api.assigned),
            *_different("placement", files.decision.eips, api.decision.eips),
            *_different("plan", files.decision.forwarding.virtual_servers, api.decision.forwarding.virtual_servers),
        ]
        if (
            self.new_leader
        ):  # nor does it know of what was released while nobody led, and rests in files since this look
            self.new_leader = False
            self.now += REST + 1
        if not going:  # a pool that waits to be deleted is told of otherwise than one whose document is gone
            found += _different("told", _in_api_words(files.told), api.told)
        return found

    def _declared(self, name: str) -> bool:
        return f"{EIPS}/{name}" in self._told


def _as_applied(found: Json, known: Json | None) -> Json:
    """As ``kubectl apply`` leaves alone what is others'."""
    if known is None:
        return found
    kept = deepcopy(found)
    meta, others = kept["metadata"], known["metadata"]
    if finalizers := others.get("finalizers"):
        meta["finalizers"] = finalizers
    if (record := (others.get("annotations") or {}).get(RECORD)) is not None:
        meta["annotations"] = {**meta.get("annotations", {}), RECORD: record}
    return kept


def _different(what: str, files: Mapping[Any, Any], api: Mapping[Any, Any]) -> list[str]:
    return [
        f"{what} {key}: by files {files.get(key)}, by the API {api.get(key)}"
        for key in sorted(files.keys() | api.keys(), key=str)
        if files.get(key) != api.get(key)
    ]


def _in_api_words(told: Mapping[ServiceKey, tuple[str, str]]) -> Mapping[ServiceKey, tuple[str, str]]:
    """A condition's reason is in camel case."""

    def said(reason: str, message: str) -> tuple[str, str]:
        if reason == "flagged":
            message += ": kept although its pool no longer offers it to this Service"
        return "".join(word.capitalize() for word in reason.split("_")), message

    return {key: said(*each) for key, each in told.items()}


def offered(pool: Pool) -> frozenset[IPAddress]:
    """Of a small pool, taken literally."""
    excluded = {each for one in pool.exclude for each in _each(one.first, one.last)}
    return frozenset(each for one in pool.addresses for each in _each(one.first, one.last)) - excluded


def _each(first: IPAddress, last: IPAddress) -> Iterator[IPAddress]:
    return (type(first)(number) for number in range(int(first), int(last) + 1))
