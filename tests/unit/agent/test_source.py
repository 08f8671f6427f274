"""An agent against an API in memory, in virtual time: what it asks of its node, and what the wire process is told."""

import asyncio
import json
from collections import defaultdict
from contextlib import asynccontextmanager
from copy import deepcopy
from ipaddress import ip_address

import msgspec
import pytest
from structlog.testing import capture_logs

from speaker.agent.last_known import RECALL_SECONDS, known, recall, remember
from speaker.agent.mirrors import MANY, MAX_NOTED, PAUSE, LateSlices
from speaker.agent.session import WORD_SECONDS, WORDS
from speaker.agent.source import AgentSettings, Cluster
from speaker.agent.view import DRAIN, ViewSettings
from speaker.api.kinds import (
    ASSIGNED,
    ASSIGNED_FROM,
    AssignedMetadata,
    AssignedObject,
    NodeObject,
    SliceLabels,
    SliceMetadata,
    SliceObject,
)
from speaker.api.objects import INITIAL_EVENTS_END, Key
from speaker.api.records import MISSES, OTHER_GROUPS
from speaker.cluster.feed import Change
from speaker.errors import ApiRefused, ApiUnreachable, WireError
from speaker.model import Gratuitous, Link, Mac, Placement, ServiceKey
from speaker.model.events import LifeBegan, OtherGroupsHold
from speaker.node.report import Report
from speaker.ownership.events import NameClash, WriteRecord, gone
from speaker.ownership.hello import Incarnation
from speaker.ownership.parameters import Parameters
from speaker.settings import Node
from speaker.telemetry.metrics import Metrics
from speaker.wire.messages import Before, Began, Resumed

SERVICES, NODES = "/api/v1/services", "/api/v1/nodes"
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
SLICES_HERE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
EIPS, ANNOUNCEMENTS = ("/apis/eip-speaker.io/v1alpha1/" + kind for kind in ("eips", "announcements"))
LEASES = "/apis/coordination.k8s.io/v1/namespaces/speaker/leases"
A, B = ip_address("192.0.2.10"), ip_address("192.0.2.11")
WEB, DNS = ServiceKey("default", "web"), ServiceKey("default", "dns")
ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))
AS_IT_COMES = ViewSettings()
TIMES = Parameters.for_hello(0.1)
SETTLE = 30.0


def service(name, *eips, **spec):
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": "eip-speaker.io/speaker",
            "ports": [{"port": 80}],
            **spec,
        },
        "status": {
            "loadBalancer": {"ingress": [{"ip": str(eip), "ipMode": "VIP"} for eip in eips]},
            "conditions": [{"type": ASSIGNED}, {"type": ASSIGNED_FROM, "message": "IPv4 from lan"}] if eips else [],
        },
    }


def endpoint_slice(service, number, *addresses):
    labels = {"kubernetes.io/service-name": service}
    return {
        "metadata": {"name": f"{service}-{number}", "namespace": "default", "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [each], "conditions": {"ready": True}} for each in addresses],
        "ports": [{"port": 8080, "protocol": "TCP"}],
    }


def node(name, ready="True", **metadata):
    return {"metadata": {"name": name, **metadata}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def announcement(name, holder="n2", term=3):
    return {"metadata": {"name": name}, "status": {"holder": holder, "incarnation": 5, "term": term}}


POOL = {"metadata": {"name": "lan"}, "spec": {"addresses": ["192.0.2.10-192.0.2.20"]}}


class Api:
    """A ``Client`` whose API is here: lists, watches, patches and creations. ``away``: nothing is answered."""

    def __init__(self):
        self.objects, self.events, self.watches = defaultdict(dict), defaultdict(list), []
        self.version, self.away = 100, False
        self.hides = lambda path, found: False
        self.asked_afresh = 0
        self.refuses, self.answers_after = set(), 0.0
        """Ends of paths that get no answer; and after how many seconds slices of one namespace do."""
        self.put(NODES, node("n1", uid="u1"))
        self.put(EIPS, POOL)

    def put(self, collection, found):
        self.version += 1
        name = found["metadata"]["name"]
        kept = json.loads(json.dumps(found))
        kept["metadata"] = {"uid": name, **kept["metadata"], "resourceVersion": str(self.version)}
        known = name in self.objects[collection]
        self.objects[collection][name] = kept
        self._happened(collection, "MODIFIED" if known else "ADDED", kept)
        return kept

    def remove(self, collection, name):
        self.version += 1
        found = deepcopy(self.objects[collection].pop(name))
        found["metadata"]["resourceVersion"] = str(self.version)
        self._happened(collection, "DELETED", found)

    def _happened(self, collection, kind, found):
        self.events[collection].append((self.version, kind, found))
        for watched, queue in self.watches:
            if watched == collection:
                queue.put_nowait((kind, found))

    def go_away(self):
        self.away = True
        for _, queue in self.watches:
            queue.put_nowait(None)

    def back_up(self):
        return deepcopy(self.objects), self.version

    def restore(self, backup, written_since):
        """And others write so often before anybody looks."""
        self.events.clear()
        self.objects, self.version = deepcopy(backup[0]), backup[1] + written_since
        for _, queue in self.watches:
            queue.put_nowait(None)

    def list_without(self, *paths):
        """From now on lists of these are empty, and nobody may go on watching."""
        self.hides = lambda path, found: path in paths
        for _, queue in self.watches:
            queue.put_nowait(("ERROR", {"code": 410, "reason": "Expired", "metadata": {"name": "n1"}}))

    @property
    def afresh(self):
        self.asked_afresh += 1
        return self

    def _reached(self, path):
        if self.away:
            raise ApiUnreachable(f"{path}: connection refused")

    async def get(self, path, query=None, *, within=0.0):
        self._reached(path)
        if path.endswith(tuple(self.refuses)):
            raise ApiUnreachable(path)
        if path == SLICES_HERE:
            found = [each for each in self._listed(SLICES) if _of_service(each) == query["labelSelector"]]
            answer = json.dumps({"metadata": {"resourceVersion": str(self.version)}, "items": found}).encode()
            await asyncio.sleep(self.answers_after)
            return answer
        if path not in (SERVICES, NODES, SLICES, EIPS, ANNOUNCEMENTS, LEASES):
            return self._one(path)
        items = [found for found in self._listed(path) if _selected(found, query)]
        return json.dumps({"metadata": {"resourceVersion": str(self.version)}, "items": items}).encode()

    def _listed(self, path):
        return [found for found in self.objects[path].values() if not self.hides(path, found)]

    async def create(self, path, body, *, within=0.0):
        self._reached(path)
        return json.dumps(self.put(path, body)).encode()

    async def patch(self, path, body, *, within=0.0):
        self._reached(path)
        self._one(path)
        collection, _, name = path.rpartition("/")
        found, asked = self.objects[collection][name], body["metadata"].get("resourceVersion")
        if asked not in (None, found["metadata"]["resourceVersion"]):
            raise ApiRefused(409, "Conflict", "it was changed")
        merged = {**found, **body, "metadata": {**found["metadata"], **body["metadata"]}}
        for part in ("labels", "annotations"):
            changed = {**found["metadata"].get(part, {}), **body["metadata"].get(part, {})}
            merged["metadata"][part] = {name: value for name, value in changed.items() if value is not None}
        merged["status"] = {**found.get("status", {}), **body.get("status", {})}
        return json.dumps(self.put(collection, merged)).encode()

    def _one(self, path):
        collection, _, name = path.rpartition("/")
        if name not in self.objects[collection]:
            raise ApiRefused(404, "NotFound", path)
        return json.dumps(self.objects[collection][name]).encode()

    @asynccontextmanager
    async def stream(self, path, query, *, within=0.0):
        self._reached(path)
        queue = asyncio.Queue()
        if since := query["resourceVersion"]:
            past = [(kind, found) for version, kind, found in self.events[path] if version > int(since)]
        else:
            end = {"resourceVersion": str(self.version), "annotations": {INITIAL_EVENTS_END: "true"}}
            past = [("ADDED", found) for found in self._listed(path)] + [("BOOKMARK", {"metadata": end})]
        for each in past:
            queue.put_nowait(each)
        watch = path, queue
        self.watches.append(watch)
        try:
            yield Stream(queue, query)
        finally:
            self.watches.remove(watch)


def _of_service(found):
    return f"kubernetes.io/service-name={found['metadata']['labels']['kubernetes.io/service-name']}"


def _selected(found, query):
    selector = (query or {}).get("fieldSelector", "")
    return not selector or selector == f"metadata.name={found['metadata']['name']}"


class Stream:
    def __init__(self, queue, query):
        self._queue, self._query = queue, query

    async def read(self, within):
        async with asyncio.timeout(within):
            while True:
                if (event := await self._queue.get()) is None:
                    raise ApiUnreachable("the connection broke")
                kind, found = event
                if kind == "BOOKMARK" or _selected(found, self._query):
                    return json.dumps({"type": kind, "object": found}).encode() + b"\n"


class Wire:
    """The wire process: all that it was told, by name."""

    def __init__(self):
        self.told, self.placements, self.peer_reads_api, self.known_records = [], {}, False, ()
        self.refuses = set()
        """What it takes in vain once, by name."""
        self.held = frozenset()
        self.takes_records = asyncio.Event()
        self.takes_records.set()

    def __getattr__(self, name):
        async def tell(*arguments):
            if name in self.refuses:
                self.refuses.discard(name)
                raise WireError(name)
            self.told.append((name, *arguments))

        return tell

    async def records(self, records):
        await self.takes_records.wait()
        self.told.append(("records", records))

    async def informed(self):
        return self.peer_reads_api

    async def recorded(self):
        return self.known_records

    def offered(self, eip):
        return self.placements.get(eip)

    def heard(self, *names):
        """Of these, in order, since the call before."""
        found, self.told = [each for each in self.told if each[0] in names], []
        return found


class Agent:
    """n1, its API, and its wire process; ``view`` is what a pass over everything would ask for."""

    def __init__(self, home, settings=AS_IT_COMES, settle=SETTLE):
        self.api, self.wire, self.report = Api(), Wire(), Report(Metrics(), home)
        self.changes = 0
        asked = AgentSettings(node=Node("n1"), view=settings, runtime_dir=home, settle_seconds=settle)
        self.source = Cluster(self.api, asked, "speaker", self.report)

    def _changed(self):
        self.changes += 1

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.source.run(self.wire, self._changed))
        self.source.hear(LifeBegan(Incarnation(7)))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def view(self):
        return await self.source.view({})


@pytest.fixture
def play(in_virtual_time, tmp_path):
    """``play(story)``: with an agent that runs and, but with ``begun=False``, has read everything once."""

    def played(story, settings=AS_IT_COMES, before=lambda agent: None, begun=True):
        async def whole():
            agent = Agent(tmp_path, settings)
            before(agent)
            async with agent.running():
                if begun:
                    await asyncio.sleep(1)
                    assert await agent.view() is not None
                    agent.changes, agent.wire.told = 0, []
                await story(agent)

        in_virtual_time(whole())

    return played


def assigned(view):
    return {key.name: [*map(str, each.addresses)] for key, each in view.settlement.assignments.items()}


# ── A source ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_asked_of_a_node_before_everything_was_heard_once(play):
    async def story(agent):
        agent.api.away = True
        await asyncio.sleep(3)
        assert await agent.view() is None
        agent.api.away = False
        await asyncio.sleep(30)
        assert agent.changes
        assert assigned(await agent.view()) == {"web": ["192.0.2.10"]}

    play(story, before=lambda agent: agent.api.put(SERVICES, service("web", A)), begun=False)


def test_the_records_are_known_to_the_wire_process_before_this_node_may_have_any_eip(play):
    async def story(agent):
        agent.wire.takes_records.clear()
        await asyncio.sleep(1)
        viewing = asyncio.create_task(agent.view())
        await asyncio.sleep(60)
        assert not viewing.done()
        agent.wire.takes_records.set()
        assert await viewing is not None
        ((_, told),) = agent.wire.heard("records")[:1]
        assert [str(eip) for eip, _ in told] == ["192.0.2.10"]

    play(story, before=lambda agent: agent.api.put(ANNOUNCEMENTS, announcement("192.0.2.10")), begun=False)


def test_a_service_that_comes_changes_and_goes_is_all_that_is_read_again(play):
    async def story(agent):
        for found, expected in (
            (service("web", A), {"web": ["192.0.2.10"]}),
            (service("web", B), {"web": ["192.0.2.11"]}),
            (service("web"), {}),
        ):
            agent.api.put(SERVICES, found)
            await asyncio.sleep(0.1)
            assert agent.changes == 1
            view = await agent.view()
            assert (assigned(view), view.changed) == (expected, {WEB})
            agent.changes = 0
        agent.api.put(SERVICES, service("web", A))
        agent.api.remove(SERVICES, "web")
        await asyncio.sleep(0.1)
        assert assigned(await agent.view()) == {}

    play(story)


@pytest.mark.parametrize("written_since", [0, 1000])
def test_of_a_restored_api_everything_is_read_anew_however_much_was_written_since(play, written_since):
    async def story(agent):
        backup = agent.api.back_up()
        agent.api.put(SERVICES, service("dns", B))
        agent.api.put(ANNOUNCEMENTS, announcement("192.0.2.10", holder="n1", term=4))
        await asyncio.sleep(2 * TIMES.renew)
        assert assigned(await agent.view()).keys() == {"web", "dns"}
        agent.wire.told = []
        agent.api.restore(backup, written_since)
        await asyncio.sleep(2 * TIMES.renew)
        assert assigned(await agent.view()).keys() == {"web"}
        told = agent.wire.heard("restored", "records")
        again = told[[name for name, *_ in told].index("restored") + 1 :]
        assert [(str(eip), found.holder, found.term) for eip, found in again[0][1]] == [("192.0.2.10", "n2", 3)]
        assert [name for name, *_ in told].count("restored") == 1

    def before(agent):
        agent.api.put(SERVICES, service("web", A))
        agent.api.put(ANNOUNCEMENTS, announcement("192.0.2.10"))

    play(story, before=before)


def test_a_view_that_nothing_changed_is_the_same_and_says_so(play):
    async def story(agent):
        agent.api.put(SERVICES, service("web", A))
        await asyncio.sleep(0.1)
        first, second = await agent.view(), await agent.view()
        assert second.changed == frozenset()
        assert second._replace(changed=first.changed) == first

    play(story)


def test_of_slices_only_those_of_services_that_matter_are_news(play):
    async def story(agent):
        agent.api.put(SERVICES, service("web", A))
        agent.api.put(SERVICES, service("dns"))
        await asyncio.sleep(0.1)
        await agent.view()
        agent.changes = 0
        agent.api.put(SLICES, endpoint_slice("dns", 1, "10.0.0.9"))
        await asyncio.sleep(0.1)
        assert agent.changes == 0, "dns has no EIP"
        agent.api.put(SLICES, endpoint_slice("web", 1, "10.0.0.1"))
        await asyncio.sleep(0.1)
        assert agent.changes == 1
        view = await agent.view()
        assert view.changed == {WEB}
        assert [str(each.address) for each in view.world.endpoints[WEB]] == ["10.0.0.1"]
        agent.api.remove(SLICES, "web-1")
        await asyncio.sleep(0.1)
        assert (await agent.view()).world.endpoints[WEB] == ()

    play(story, ViewSettings(forwards=True))


def test_a_change_of_pools_or_of_nodes_addresses_may_change_anything(play):
    async def story(agent):
        agent.api.put(EIPS, {**POOL, "spec": {"addresses": ["192.0.2.10-192.0.2.30"]}})
        await asyncio.sleep(0.1)
        assert (await agent.view()).changed is None

    play(story)


def test_a_node_with_other_labels_may_hold_other_eips(play):
    async def story(agent):
        agent.api.put(NODES, node("n1", labels={"rack": "b"}))
        await asyncio.sleep(0.1)
        view = await agent.view()
        assert (view.changed, view.node.labels) == (None, {"rack": "b"})
        assert (await agent.view()).changed == frozenset()

    play(story)


@pytest.mark.parametrize(("others", "missed"), [((), False), (("n2",), True)])
def test_nobody_is_missed_on_the_lan_in_a_cluster_of_one_node(play, others, missed):
    async def story(agent):
        agent.report.losses(())
        told = [each.kind for each in agent.report.findings()]
        assert told == ["no_peers"] * missed

    def before(agent):
        for name in others:
            agent.api.put(NODES, node(name))

    play(story, before=before)


def test_a_node_that_cannot_be_read_may_hold_nothing_and_that_is_a_problem(play):
    async def story(agent):
        await asyncio.sleep(1)
        view = await agent.view()
        assert view.node.excluded
        assert any("cannot be read" in problem for problem in agent.report.problems())

    play(story, before=lambda agent: agent.api.put(NODES, node("n1", labels="none")), begun=False)


@pytest.mark.parametrize("settings", [ViewSettings(), ViewSettings(drain_cordoned=True)])
def test_a_drain_and_its_end_are_handed_on_once_each(play, settings):
    async def story(agent):
        for metadata, told in (({"annotations": {DRAIN: "true"}}, True), ({}, False)):
            agent.api.put(NODES, node("n1", **metadata))
            await asyncio.sleep(0.1)
            await agent.view()
            await agent.view()
            assert agent.wire.heard("set_draining") == [("set_draining", told)]

    play(story, settings)


def test_a_wish_of_our_node_that_the_wire_process_refused_is_handed_on_again(play):
    async def story(agent):
        agent.api.put(NODES, node("n1", "Unknown", labels={"lan": "no"}, annotations={DRAIN: "true"}))
        await asyncio.sleep(0.1)
        for name in ("set_draining", "demote"):
            agent.wire.refuses = {name}
            with pytest.raises(WireError):
                await agent.view()
        agent.wire.told.clear()
        view = await agent.view()
        assert (view.node.labels, view.changed) == ({"lan": "no"}, None)
        assert agent.wire.heard("set_draining", "demote") == [("set_draining", True), ("demote", True)]

    play(story)


@pytest.mark.parametrize("value", ["True", "yes", "1", ""])
def test_a_drain_in_words_that_mean_nothing_is_a_problem_until_they_are_others(play, value):
    async def story(agent):
        for said, told in ((value, 1), ("false", 0), (value, 1), ("true", 0)):
            agent.api.put(NODES, node("n1", annotations={DRAIN: said}))
            await asyncio.sleep(0.1)
            await agent.view()
            assert agent.report.problems() == told * [
                f"Node/n1: metadata.annotations[{DRAIN}]: {value!r}: must be true or false: the node is not drained"
            ]
        assert agent.wire.heard("set_draining") == [("set_draining", True)]

    play(story)


def test_of_a_node_that_is_deleted_what_it_asked_for_last_counts_until_it_is_back(play):
    async def story(agent):
        agent.api.put(NODES, node("n1", labels={"lan": "no"}, annotations={DRAIN: "true"}))
        await asyncio.sleep(0.1)
        before = (await agent.view()).node
        agent.api.remove(NODES, "n1")
        await asyncio.sleep(0.1)
        assert (await agent.view()).node == before
        assert agent.wire.heard("set_draining") == [("set_draining", True)]
        assert agent.report.problems() == ["Node/n1: it is gone, and its last settings apply until it is back"]
        agent.api.put(NODES, node("n1"))
        await asyncio.sleep(0.1)
        assert (await agent.view()).node.labels != before.labels
        assert agent.wire.heard("set_draining")[-1] == ("set_draining", False)
        assert agent.report.problems() == []

    play(story)


def test_a_node_that_is_not_ready_goes_behind_others_until_it_is(play):
    async def story(agent):
        for ready, demoted in (("Unknown", True), ("True", False)):
            agent.api.put(NODES, node("n1", ready))
            await asyncio.sleep(0.1)
            await agent.view()
            await agent.view()
            assert agent.wire.heard("demote") == [("demote", demoted)]

    play(story)


def test_a_reading_that_meets_a_bug_is_made_again_of_everything(play):
    async def story(agent):
        agent.api.put(SERVICES, service("web", A))
        await asyncio.sleep(0.1)
        agent.source._news.eips = 7  # nothing that is ever there
        with pytest.raises(TypeError):
            await agent.view()
        view = await agent.view()
        assert (assigned(view), view.changed) == ({"web": ["192.0.2.10"]}, None)
        assert (await agent.view()).changed == frozenset()

    play(story)


def test_what_was_read_when_the_look_at_kube_proxys_endpoints_met_a_bug_is_read_again(play):
    async def story(agent):
        agent.api.put(SERVICES, service("web", A))
        await asyncio.sleep(0.1)
        endpoints = agent.source._local._endpoints
        awaited, endpoints._awaited = endpoints._awaited, 7  # nothing that is ever there
        with pytest.raises(AttributeError):
            await agent.view()
        endpoints._awaited = awaited
        view = await agent.view()
        assert (assigned(view), view.changed) == ({"web": ["192.0.2.10"]}, None)

    play(story)


# ── Without an API ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def play_recalled(play, tmp_path):
    """As ``play``, from a start without the API, which has web: dns is remembered, and there was time to recall it."""

    def played(story):
        last = msgspec.convert(service("dns", B), AssignedObject)
        remember(tmp_path, known("n1", None, [last], (), (), ()))

        async def recalled(agent):
            agent.api.away = True
            await asyncio.sleep(RECALL_SECONDS + 1)
            await story(agent)

        play(recalled, before=lambda agent: agent.api.put(SERVICES, service("web", A)), begun=False)

    return played


async def back(agent):
    agent.api.away = False
    await asyncio.sleep(60)


def test_without_an_api_from_the_start_it_goes_by_what_was_known_last_until_there_is_one(play_recalled):
    async def story(agent):
        assert agent.changes
        assert assigned(await agent.view()) == {"dns": ["192.0.2.11"]}
        assert agent.wire.heard("recalled") == [("recalled", True)]
        await back(agent)
        view = await agent.view()
        assert (assigned(view), view.changed) == ({"web": ["192.0.2.10"]}, None)
        assert agent.wire.heard("recalled") == [("recalled", False)]
        await agent.view()
        assert agent.wire.heard("recalled") == []

    play_recalled(story)


def test_a_drain_that_ended_while_there_was_no_api_ends_once_there_is_one(play, tmp_path):
    async def story(agent):
        agent.api.away = True
        await asyncio.sleep(RECALL_SECONDS + 1)
        await agent.view()
        assert agent.wire.heard("set_draining") == [("set_draining", True)]
        await back(agent)
        await agent.view()
        assert agent.wire.heard("set_draining") == [("set_draining", False)]

    drained = msgspec.convert(node("n1", annotations={DRAIN: "true"}), NodeObject)
    last = msgspec.convert(service("dns", B), AssignedObject)
    remember(tmp_path, known("n1", drained, [last], (), (), ()))
    play(story, begun=False)


def test_what_a_main_process_that_died_without_an_api_said_of_itself_is_taken_back(play):
    async def story(agent):
        await asyncio.sleep(1)
        await agent.view()
        assert agent.wire.heard("recalled") == [("recalled", False)]
        await agent.view()
        assert agent.wire.heard("recalled") == []

    play(story, begun=False)


def test_what_was_known_last_is_put_away_also_where_the_wire_process_refuses_that_at_first(play_recalled):
    async def story(agent):
        await agent.view()
        await back(agent)
        agent.wire.told, agent.wire.refuses = [], {"recalled"}
        with pytest.raises(WireError):
            await agent.view()
        assert assigned(await agent.view()) == {"web": ["192.0.2.10"]}
        assert agent.wire.heard("recalled") == [("recalled", False)]

    play_recalled(story)


def test_what_is_known_is_kept_for_a_start_without_an_api(play, tmp_path):
    async def story(agent):
        agent.api.put(SERVICES, service("web", A))
        await asyncio.sleep(0.1)
        await agent.view()
        await asyncio.sleep(60)
        kept = recall(tmp_path, "n1")
        assert [each.key for each in kept.services] == [Key("default", "web")]
        assert (kept.node.metadata.name, [each.metadata.name for each in kept.eips]) == ("n1", ["lan"])

    play(story)


# ── Up and down ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_wire_process_hears_that_the_api_is_up_gone_and_back(play):
    async def story(agent):
        assert agent.api.objects[LEASES]["n1"]["spec"]["holderIdentity"] == "n1_7"
        await asyncio.sleep(TIMES.renew + 1)
        assert agent.wire.heard("api")[-1] == ("api", True)
        agent.api.go_away()
        await asyncio.sleep(2)
        assert agent.wire.heard("api")[-1] == ("api", False)
        agent.api.away = False
        await asyncio.sleep(60)
        assert agent.wire.heard("api")[-1] == ("api", True)

    with capture_logs() as logs:
        play(story)
    assert [line["event"] for line in logs if line["event"].startswith("api")] == ["api answers"], "it was short"


def test_whom_this_node_misses_is_in_its_lease_at_once_and_no_longer_than_it_does(play):
    async def story(agent):
        for missed, said in (({"n3", "n2"}, {MISSES: "n2,n3"}), ((), {})):
            agent.source.lost(frozenset(missed))
            await asyncio.sleep(0.1)
            assert agent.api.objects[LEASES]["n1"]["metadata"]["annotations"] == said

    play(story)


def test_what_other_groups_hold_is_in_its_lease_at_once(play):
    async def story(agent):
        for held, said in (({"192.0.2.9": "group b", "2001:db8::9": "group b"}, "192.0.2.9,2001:db8::9"), ({}, None)):
            agent.source.hear(OtherGroupsHold({ip_address(eip): group for eip, group in held.items()}))
            await asyncio.sleep(0.1)
            found = agent.api.objects[LEASES]["n1"]["metadata"]["annotations"]
            assert found.get(OTHER_GROUPS) == said

    play(story)


def test_of_a_node_that_comes_and_goes_the_lease_tells_at_first_and_then_no_more_often_than_it_may(play):
    async def story(agent):
        versions = set()
        for number in range(1200):
            agent.source.lost(frozenset({"n2"} if number % 2 == 0 else ()))
            await asyncio.sleep(0.5)
            versions.add(agent.api.objects[LEASES]["n1"]["metadata"]["resourceVersion"])
        assert 600 / TIMES.renew <= len(versions) <= WORDS + 600 / WORD_SECONDS + 600 / TIMES.renew
        agent.source.lost(frozenset({"n3"}))
        await asyncio.sleep(TIMES.renew + 1)
        assert agent.api.objects[LEASES]["n1"]["metadata"]["annotations"] == {MISSES: "n3"}

    play(story)


def test_the_lease_belongs_to_our_node_and_ends_with_it(play):
    async def story(agent):
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}
        await asyncio.sleep(TIMES.renew + 1)
        assert agent.api.objects[LEASES]["n1"]["metadata"]["ownerReferences"] == [owner]

    play(story)


@pytest.mark.parametrize("node_gone", [True, False])
def test_a_lease_that_goes_with_its_node_is_no_sign_of_other_data_and_one_that_goes_alone_is(play, node_gone):
    async def story(agent):
        await asyncio.sleep(TIMES.renew + 1)
        if node_gone:
            agent.api.remove(NODES, "n1")
            await asyncio.sleep(0.1)
        agent.wire.told = []
        agent.api.remove(LEASES, "n1")
        await asyncio.sleep(2 * TIMES.renew)
        assert agent.wire.heard("restored") == ([] if node_gone else [("restored",)])
        assert agent.api.objects[LEASES]["n1"]["spec"]["holderIdentity"] == "n1_7"

    play(story)


def test_another_host_that_writes_our_lease_is_told(play):
    async def story(agent):
        theirs = {"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1_99"}}
        agent.api.put(LEASES, theirs)
        await asyncio.sleep(2 * TIMES.renew + 1)
        assert agent.wire.heard("leases") == [("leases", [("n1", Incarnation(99), True)])]
        assert agent.api.objects[LEASES]["n1"]["spec"]["holderIdentity"] == "n1_7", "and we write it all the same"

    play(story)


def test_in_silence_our_lease_is_not_renewed(play):
    async def story(agent):
        agent.source.hear(NameClash(None, None, silent=True))
        await asyncio.sleep(1)
        version = agent.api.objects[LEASES]["n1"]["metadata"]["resourceVersion"]
        await asyncio.sleep(10 * TIMES.renew)
        assert agent.api.objects[LEASES]["n1"]["metadata"]["resourceVersion"] == version

    play(story)


@pytest.mark.parametrize(
    "event",
    [
        NameClash(None, None, silent=False),
        Began(Before("killed by SIGKILL", 1.0), Resumed(incarnation=Incarnation(7))),
    ],
    ids=["the name stays ours", "we come to a wire process that is at work"],
)
def test_otherwise_it_is_renewed(play, event):
    async def story(agent):
        agent.source.hear(event)
        await asyncio.sleep(1)
        version = agent.api.objects[LEASES]["n1"]["metadata"]["resourceVersion"]
        await asyncio.sleep(10 * TIMES.renew)
        assert agent.api.objects[LEASES]["n1"]["metadata"]["resourceVersion"] != version

    play(story)


# ── Records ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_record_that_the_wire_process_orders_is_written_with_what_people_want_to_know(play):
    async def story(agent):
        agent.api.put(SERVICES, service("web", A))
        await asyncio.sleep(0.1)
        await agent.view()
        agent.wire.placements[A] = Placement(ETH0, Gratuitous())
        order = WriteRecord(eip=A, attempt=1, expected=0, holder="n1", incarnation=Incarnation(7), term=4)
        agent.source.hear(order)
        await asyncio.sleep(0.1)
        status = agent.api.objects[ANNOUNCEMENTS]["192.0.2.10"]["status"]
        assert (status["holder"], status["term"], status["link"]) == ("n1", 4, "eth0")
        assert (status["mac"], status["services"]) == ("02:00:00:00:00:01", ["default/web"])
        (written,) = agent.wire.heard("written")
        assert written[1:3] == (order, True)

    play(story)


def test_what_a_record_of_ours_says_for_people_is_put_right_when_services_change(play):
    async def story(agent):
        agent.wire.placements = dict.fromkeys((A, B), Placement(ETH0, Gratuitous()))
        agent.api.put(ANNOUNCEMENTS, announcement("192.0.2.10", holder="n1"))
        agent.api.put(ANNOUNCEMENTS, announcement("192.0.2.11", holder="n2"))
        agent.api.put(SERVICES, service("web", A))
        await asyncio.sleep(0.1)
        await agent.view()
        await asyncio.sleep(5)
        assert agent.api.objects[ANNOUNCEMENTS]["192.0.2.10"]["status"]["services"] == ["default/web"]
        assert "services" not in agent.api.objects[ANNOUNCEMENTS]["192.0.2.11"]["status"], "another's"

    play(story)


def test_a_record_that_could_not_be_written_is_a_problem_for_as_long_as_it_is_ours_to_write(play):
    async def story(agent):
        async def full(*_, **__):
            raise ApiRefused(500, "InternalError", "etcd: no space")

        agent.wire.placements, agent.api.create = {A: Placement(ETH0, Gratuitous())}, full
        agent.source.hear(WriteRecord(A, 1, expected=0, holder="n1", incarnation=Incarnation(7), term=4))
        for held, problems in ((frozenset((A,)), 1), (frozenset(), 0)):  # another takes it, and writes that
            agent.wire.held = held
            await asyncio.sleep(300)
            assert len(agent.report.problems()) == problems

    play(story)


def test_what_failed_of_an_eip_that_this_node_may_not_hold_any_more_is_over_once_another_record_is_written(play):
    async def story(agent):
        create = agent.api.create

        async def full(path, body, **within):
            if body["metadata"]["name"] == str(A):
                raise ApiRefused(500, "InternalError", "etcd: no space")
            return await create(path, body, **within)

        async def problems_after(eip, *offered):
            agent.wire.placements = dict.fromkeys(offered, Placement(ETH0, Gratuitous()))
            order = WriteRecord(eip, 1, expected=0, holder="n1", incarnation=Incarnation(7), term=4)
            agent.source.hear(order)
            await asyncio.sleep(1)
            return len(agent.report.problems())

        agent.api.create, agent.wire.held = full, frozenset((A, B))
        assert await problems_after(A, A, B) == 1
        assert await problems_after(B, A, B) == 1
        assert await problems_after(B, B) == 0

    play(story)


def test_a_term_that_somebody_made_up_is_a_problem_and_news(play):
    async def story(agent):
        agent.api.put(ANNOUNCEMENTS, announcement("192.0.2.10", term=-1))
        await asyncio.sleep(0.1)
        assert agent.changes
        await agent.view()
        (problem,) = agent.report.problems()
        assert problem.startswith("Announcement/192.0.2.10: its term is higher than any agent's")

    play(story)


def test_a_record_that_is_gone_from_a_list_is_told_as_gone(play):
    async def story(agent):
        agent.wire.known_records = (A, B)
        await asyncio.sleep(1)
        await agent.view()
        told = [record for _, records in agent.wire.heard("records") for record in records]
        assert (B, gone(agent.api.version)) in told or any(eip == B and each.holder is None for eip, each in told)
        assert all(each.holder == "n2" for eip, each in told if eip == A)

    play(story, before=lambda agent: agent.api.put(ANNOUNCEMENTS, announcement("192.0.2.10")), begun=False)


def test_what_the_node_forwards_with_is_in_its_lease_at_once_where_it_forwards_nothing(play):
    async def story(agent):
        assert "none" in agent.api.objects[LEASES]["n1"]["metadata"]["labels"].values()

    play(story)


# ── What takes much away at once ──────────────────────────────────────────────────────────────────────────────

EVERYTHING = SERVICES, SLICES, EIPS, NODES, ANNOUNCEMENTS
ASKED = {"web": ["192.0.2.10"], "dns": ["192.0.2.11"]}


def two_services(agent):
    agent.api.put(SERVICES, service("web", A, externalTrafficPolicy="Local"))
    agent.api.put(SERVICES, service("dns", B))
    agent.api.put(SERVICES, service("plain"))
    agent.api.put(SLICES, endpoint_slice("web", 1, "10.0.0.1"))
    agent.api.put(NODES, node("n1", labels={"rack": "a"}))


@pytest.mark.parametrize("lost", [EVERYTHING, (SERVICES,), (SLICES,), (EIPS,), (NODES,)])
def test_an_api_that_suddenly_lists_nothing_takes_no_eip_away_before_it_says_so_again(play, lost):
    async def story(agent):
        before = await agent.view()
        assert assigned(before) == ASKED
        agent.api.list_without(*lost)
        await asyncio.sleep(1)
        for _ in range(14):
            await asyncio.sleep(2)
            view = await agent.view()
            assert (view.settlement, view.world, view.node) == (before.settlement, before.world, before.node)
        assert any("missing from a list" in problem for problem in agent.report.problems())
        agent.api.hides = lambda *_: False
        await asyncio.sleep(5)
        assert (await agent.view()).world == before.world
        assert agent.report.problems() == []
        assert agent.api.asked_afresh >= len(set(lost) - {ANNOUNCEMENTS})

    play(story, before=two_services)


def test_what_two_lists_lack_is_gone_after_the_time_and_is_a_problem_until_then(play):
    async def story(agent):
        agent.api.list_without(SERVICES)
        await asyncio.sleep(1)
        (problem,) = [each for each in agent.report.problems() if "lacks" in each]
        assert "services: 2 of 2 are missing from a list: they stay until 20" in problem
        await asyncio.sleep(SETTLE)
        assert assigned(await agent.view()) == {}
        assert not any("lacks" in each for each in agent.report.problems())

    play(story, before=two_services)


def test_the_last_service_of_all_goes_at_once_where_the_api_says_that_it_was_deleted(play):
    async def story(agent):
        for name in ("web", "dns", "plain"):
            agent.api.remove(SERVICES, name)
        await asyncio.sleep(0.1)
        assert assigned(await agent.view()) == {}
        assert agent.report.problems() == []

    play(story, before=two_services)


def test_an_agent_that_starts_where_the_api_lists_nothing_goes_by_what_it_said_last_until_it_says_so_again(
    in_virtual_time, tmp_path
):
    async def whole():
        first = Agent(tmp_path)
        two_services(first)
        async with first.running():
            await asyncio.sleep(1)
            before = await first.view()
            await asyncio.sleep(1)  # remembered
        second = Agent(tmp_path)
        two_services(second)
        second.api.hides = lambda path, _: path in EVERYTHING
        async with second.running():
            await asyncio.sleep(1)
            view = await second.view()
            assert (view.settlement, view.world, view.node) == (before.settlement, before.world, before.node)
            assert len([each for each in second.report.findings() if "missing from a list" in each.sentence]) == 4
            await asyncio.sleep(SETTLE)
            assert assigned(await second.view()) == {}

    in_virtual_time(whole())


# ── Slices of others ──────────────────────────────────────────────────────────────────────────────────────────


FORWARDS = ViewSettings(forwards=True)


def in_slices(agent):
    return sorted(found.key.name for found in agent.source._slices.store)


def test_slices_of_services_that_are_none_of_ours_are_not_kept(play):
    def before(agent):
        agent.api.put(SERVICES, service("web", A))
        agent.api.put(SERVICES, service("others", type="ClusterIP"))
        for name in ("web", "others", "nobodys"):
            agent.api.put(SLICES, endpoint_slice(name, 1, "10.0.0.1"))

    async def story(agent):
        assert in_slices(agent) == ["web-1"]
        agent.api.put(SLICES, endpoint_slice("others", 2, "10.0.0.2"))
        agent.api.put(SLICES, endpoint_slice("web", 2, "10.0.0.2"))
        await asyncio.sleep(1)
        assert in_slices(agent) == ["web-1", "web-2"]
        assert [found.key.name for found in agent.source._services.store] == ["web"]

    play(story, FORWARDS, before=before)


def test_slices_of_a_service_that_becomes_ours_are_asked_for(play):
    def before(agent):
        agent.api.put(SERVICES, service("late", type="ClusterIP"))
        agent.api.put(SLICES, endpoint_slice("late", 1, "10.0.0.1"))
        agent.api.put(SLICES, endpoint_slice("nobodys", 1, "10.0.0.9"))

    async def story(agent):
        agent.api.put(SERVICES, service("late", A))
        await asyncio.sleep(1)
        assert in_slices(agent) == ["late-1"]
        agent.api.put(SLICES, endpoint_slice("late", 1, "10.0.0.2"))
        await asyncio.sleep(1)
        view = await agent.view()
        (found,) = view.world.endpoints[ServiceKey("default", "late")]
        assert str(found.address) == "10.0.0.2"

    play(story, FORWARDS, before=before)


def test_slices_that_are_asked_for_in_vain_are_asked_for_again(play):
    def before(agent):
        agent.api.put(SERVICES, service("late", type="ClusterIP"))
        agent.api.put(SLICES, endpoint_slice("late", 1, "10.0.0.1"))

    async def story(agent):
        agent.api.refuses.add("namespaces/default/endpointslices")
        agent.api.put(SERVICES, service("late", A))
        await asyncio.sleep(3)
        assert in_slices(agent) == []
        agent.api.refuses.clear()
        await asyncio.sleep(2 * PAUSE)
        assert in_slices(agent) == ["late-1"]

    play(story, FORWARDS, before=before)


def test_what_was_deleted_while_it_was_asked_for_does_not_come_back(play):
    def before(agent):
        agent.api.put(SERVICES, service("late", type="ClusterIP"))
        for number in (1, 2):
            agent.api.put(SLICES, endpoint_slice("late", number, "10.0.0.1"))

    async def story(agent):
        agent.api.answers_after = 0.5
        agent.api.put(SERVICES, service("late", A))
        await asyncio.sleep(0.2)
        agent.api.remove(SLICES, "late-2")
        await asyncio.sleep(3)
        assert in_slices(agent) == ["late-1"]

    play(story, FORWARDS, before=before)


def test_where_many_services_become_ours_at_once_everything_is_listed_anew(play):
    names = [f"late{number}" for number in range(2 * MANY)]

    def before(agent):
        for name in names:
            agent.api.put(SERVICES, service(name, type="ClusterIP"))
            agent.api.put(SLICES, endpoint_slice(name, 1, "10.0.0.1"))

    async def story(agent):
        lists = agent.source._slices.lists
        for name in names:
            agent.api.put(SERVICES, service(name, A))
        await asyncio.sleep(PAUSE + 3)
        assert len(in_slices(agent)) == len(names)
        assert agent.source._slices.lists == lists + 1

    play(story, FORWARDS, before=before)


def test_of_services_without_end_it_is_noted_of_all_that_they_have_slices():
    late = LateSlices(lambda _: False)
    for number in range(MAX_NOTED + 1):
        late.keeps(slice_object(f"s{number}"))
    assert len(late._noted) == MAX_NOTED
    late.follow([Change(Key("default", "new"), None, AssignedObject(AssignedMetadata("new", "default")))], None)
    assert late._wanted == {ServiceKey("default", "new")}


def slice_object(service):
    return SliceObject(SliceMetadata(f"{service}-1", "default", "7", labels=SliceLabels(service)))


def test_slices_of_a_service_that_is_ours_no_more_are_dropped(play):
    def before(agent):
        agent.api.put(SERVICES, service("web", A))
        agent.api.put(SLICES, endpoint_slice("web", 1, "10.0.0.1"))

    async def story(agent):
        agent.api.put(SERVICES, service("web", type="ClusterIP"))
        await asyncio.sleep(1)
        assert in_slices(agent) == []
        agent.api.put(SERVICES, service("web", A))
        await asyncio.sleep(2)
        assert in_slices(agent) == ["web-1"]

    play(story, FORWARDS, before=before)
