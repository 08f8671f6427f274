"""What is asked and written when agents miss a node, and when no more is; in virtual time."""

import asyncio
import json
from types import SimpleNamespace

import msgspec
import pytest

from speaker.api.kinds import NodeObject
from speaker.api.objects import Key
from speaker.api.records import MISSES, LeaseObject
from speaker.controller.marker import LOOK, Marker
from speaker.controller.sessions import GAP, STALE
from speaker.errors import ApiRefused, ApiUnreachable

NODES = ("a", "b", "c", "d")
SESSIONS = "/apis/coordination.k8s.io/v1/namespaces/there/leases"
KUBELET = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a"
PODS = "/api/v1/pods"
PATH = "/api/v1/namespaces/default/pods/on-a/status"
OTHER = {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def word(agent, misses):
    metadata = {"name": agent, "annotations": {MISSES: misses}}
    return msgspec.convert({"metadata": metadata}, LeaseObject)


class Api:
    """Answers, mirrors and takes writes, and notes when it was asked what."""

    def __init__(self):
        self.asked, self.failing, self.told, self.following, self.lists = [], {}, [], True, 1
        self.changed, self.news, self.wanted = asyncio.Event(), {}, []
        self.version, self.ready = 1, "True"
        self.all_nodes = SimpleNamespace(
            following=True, store=[msgspec.convert({"metadata": {"name": node}}, NodeObject) for node in NODES]
        )

    async def get(self, path, query=None, **_):
        self.asked.append((asyncio.get_running_loop().time(), path))
        if path in self.failing:
            raise self.failing[path]
        if path == PODS:
            assert query["fieldSelector"] == "spec.nodeName=a"
        metadata = {"name": "on-a", "namespace": "default", "resourceVersion": "7"}
        ready = {**OTHER, "type": "Ready", "status": self.ready}
        answers = {
            SESSIONS: {"metadata": {}, "items": [{"metadata": {"name": node}} for node in NODES]},
            KUBELET: {"metadata": {"name": "a", "resourceVersion": str(self.version)}},
            PODS: {"metadata": {}, "items": [{"metadata": metadata, "status": {"conditions": [OTHER, ready]}}]},
        }
        return json.dumps(answers[path]).encode()

    def take(self):
        news, self.news = self.news, {}
        return news

    def say(self, *agents, misses="a"):
        self.news |= {Key("there", agent): word(agent, misses) if misses else None for agent in agents}
        self.changed.set()

    def failed(self, what, error):
        self.told.append((what, str(error)))

    async def want(self, orders):
        now = asyncio.get_running_loop().time()
        self.wanted += [(now, path, order) for path, order in orders.items()]

    def paths(self):
        return {path for _, path in self.asked}

    def marked(self):
        return [(at, path) for at, path, order in self.wanted if order is not None]


@pytest.fixture
def play(in_virtual_time):
    """``play(story)``: with a marker that has heard what stood there when it began: nothing."""

    def played(story):
        async def whole():
            api = Api()
            clock = asyncio.get_running_loop().time
            marker = Marker(api, "there", api, api.all_nodes, api, api, clock=clock)
            task = asyncio.create_task(marker.run())
            api.changed.set()
            await asyncio.sleep(1)
            try:
                await story(api)
            finally:
                task.cancel()

        return in_virtual_time(whole())

    return played


def test_while_no_agent_misses_anybody_nothing_is_asked(play):
    async def story(api):
        await asyncio.sleep(3600)
        assert api.asked == []

    play(story)


def test_the_pods_of_one_that_most_miss_are_marked_once_its_kubelet_was_silent_for_long(play):
    async def story(api):
        api.say("b", "c")
        begun = asyncio.get_running_loop().time()
        await asyncio.sleep(STALE - LOOK)
        assert api.paths() == {SESSIONS, KUBELET}
        await asyncio.sleep(3 * LOOK)
        (at, path), *_ = api.marked()
        assert STALE <= at - begun <= STALE + 2 * LOOK
        assert path == PATH
        body = api.wanted[0][2].body()
        assert body["metadata"] == {"resourceVersion": "7"}
        other, ready = body["status"]["conditions"]
        assert other == OTHER
        assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "False", "NodeSilent")
        assert ready["message"] == "b, c do not hear a, and its kubelet has renewed no Lease for 15 s"

    play(story)


def test_once_no_pod_is_ready_nothing_more_is_asked_of_that_node_and_nothing_is_wanted(play):
    async def story(api):
        api.say("b", "c", "d")
        await asyncio.sleep(STALE + 2 * LOOK)
        assert api.marked()
        api.say("b", "c", "d")
        api.ready = "False"
        await asyncio.sleep(2 * LOOK)
        assert api.wanted[-1][1:] == (PATH, None)
        api.asked.clear()
        api.say("b", "c", "d")
        await asyncio.sleep(2 * LOOK)
        assert api.paths() == {SESSIONS}

    play(story)


def test_a_kubelet_that_renews_its_lease_in_time_keeps_its_pods(play):
    async def story(api):
        for _ in range(10):
            api.say("b", "c", "d")
            api.version += 1
            await asyncio.sleep(STALE - LOOK)
        assert api.wanted == []

    play(story)


def test_what_is_not_written_yet_is_wanted_no_more_once_the_kubelet_renews_its_lease(play):
    async def story(api):
        api.say("b", "c", "d")
        await asyncio.sleep(STALE + 2 * LOOK)
        assert api.wanted[-1][2] is not None
        api.version += 1
        await asyncio.sleep(LOOK + 1)
        assert api.wanted[-1][1:] == (PATH, None)
        api.wanted.clear()
        await asyncio.sleep(STALE - 2 * LOOK)
        assert api.wanted == []

    play(story)


def test_what_is_not_written_yet_is_wanted_no_more_once_agents_hear_the_node_again(play):
    async def story(api):
        api.say("b", "c", "d")
        await asyncio.sleep(STALE + 2 * LOOK)
        api.say("b", "c", misses="")
        await asyncio.sleep(1)
        assert api.wanted[-1][1:] == (PATH, None)

    play(story)


@pytest.mark.parametrize("what", ["sessions", "kubelet", "words", "nodes"])
def test_what_is_not_written_yet_is_wanted_no_more_once_nobody_knows(play, what):
    async def story(api):
        api.say("b", "c", "d")
        await asyncio.sleep(STALE + 2 * LOOK)
        assert api.wanted[-1][2] is not None
        api.say("b", "c", "d")
        await asyncio.sleep(1)
        api.failing = {{"sessions": SESSIONS, "kubelet": KUBELET}.get(what, ""): ApiUnreachable("no answer in time")}
        api.following = what != "words"
        api.all_nodes.following = what != "nodes"
        await asyncio.sleep(LOOK + 1)
        assert api.wanted[-1][1:] == (PATH, None)

    play(story)


@pytest.mark.parametrize("error", [ApiUnreachable("no answer in time"), ApiRefused(404, "NotFound", "no such Lease")])
def test_a_kubelet_that_cannot_be_asked_for_is_not_silent(play, error):
    async def story(api):
        api.failing[KUBELET] = error
        for _ in range(4):
            api.say("b", "c", "d")
            await asyncio.sleep(STALE)
        del api.failing[KUBELET]
        api.say("b", "c", "d")
        await asyncio.sleep(STALE - LOOK)
        assert api.wanted == []
        assert {what for what, _ in api.told} == (set() if isinstance(error, ApiRefused) else {KUBELET})

    play(story)


def test_where_sessions_cannot_be_listed_nothing_is_known_and_the_count_begins_anew(play):
    async def story(api):
        api.say("b", "c", "d")
        await asyncio.sleep(STALE - LOOK)
        api.failing[SESSIONS] = ApiUnreachable("no answer in time")
        await asyncio.sleep(GAP + LOOK)
        del api.failing[SESSIONS]
        api.say("b", "c", "d")
        await asyncio.sleep(STALE - LOOK)
        assert api.wanted == []

    play(story)


def test_what_the_mirror_does_not_follow_is_old(play):
    async def story(api):
        api.say("b", "c", "d")
        await asyncio.sleep(STALE - LOOK)
        api.following = False
        await asyncio.sleep(3 * STALE)
        assert api.wanted == []
        api.following, api.lists = True, 2
        api.say("b", "c", "d")
        await asyncio.sleep(2 * STALE)
        assert api.wanted == []

    play(story)


def test_a_new_leader_looks_at_once_and_marks_when_agents_say_it_again(play):
    async def story(api):
        api.lists = 2
        api.say("b", "c", "d")
        await asyncio.sleep(STALE - LOOK)
        assert KUBELET in api.paths()
        await asyncio.sleep(2 * LOOK)
        assert api.wanted == []
        api.say("b", "c")
        await asyncio.sleep(0.5)
        assert [path for _, path in api.marked()] == [PATH]

    play(story)


@pytest.mark.parametrize("what", ["nodes", "words"])
def test_what_was_said_before_all_was_known_is_not_forgotten(play, what):
    async def story(api):
        api.all_nodes.following = what != "nodes"
        api.following = what != "words"
        api.say("b", "c", "d")
        await asyncio.sleep(1)
        api.all_nodes.following = api.following = True
        await asyncio.sleep(LOOK + 1)
        assert KUBELET in api.paths()

    play(story)


def test_one_agent_alone_has_nobody_asked_for(play):
    async def story(api):
        api.say("b")
        await asyncio.sleep(STALE)
        assert api.paths() == {SESSIONS}

    play(story)


def test_the_word_of_one_that_died_saying_it_has_nothing_asked_for_ever(play):
    async def story(api):
        api.say("b", "c", "d")
        await asyncio.sleep(30)
        api.asked.clear()
        await asyncio.sleep(3600)
        assert api.asked == []

    play(story)
