"""Edge: marks the pods of dead nodes as not ready, so that their endpoints leave every Service.

This is what kube-controller-manager does when it marks a node NotReady, 40 to 60 s later. Nothing else is written, and
above all not the node's own condition: kube-controller-manager marks pods when *it* changes that condition
(monitorNodeHealth in node_lifecycle_controller.go). If it finds it changed already, the pods stay ready until they are
evicted, 300 s later. A living kubelet corrects the status of its pods (needsReconcile in status_manager.go).
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol

import msgspec
import structlog

from speaker.api.kinds import PODS, Condition, NodeObject
from speaker.api.objects import Key, Named, Object
from speaker.api.records import MISSES, LeaseObject, leases_in, misses_read
from speaker.cluster.client import Client, listed
from speaker.cluster.feed import Store
from speaker.cluster.reflector import Hears, Reflector
from speaker.controller.sessions import STALE, Facts, Kubelets, Words, dead, suspected
from speaker.controller.wanted import Write
from speaker.controller.write_queue import WriteQueue
from speaker.errors import ApiRefused, EdgeError
from speaker.system.decoding import UNFIT
from speaker.system.waiting import boottime, set_within, time_of_day

log = structlog.get_logger()

LOOK = 2.0
"""Seconds between two looks while agents miss a node. If none does, nothing is requested."""
PAUSE = 0.2
"""The shortest pause in seconds: many agents report a node one after the other."""
KUBELETS = leases_in("kube-node-lease")
READY, REASON = "Ready", "NodeSilent"
SHOWN = 10
"""How many agents are named."""


class PodStatus(msgspec.Struct, frozen=True, gc=False):
    conditions: tuple[Condition, ...] | None = None


class PodObject(Object, frozen=True, gc=False):
    status: PodStatus = PodStatus()


class Mirror(Protocol):
    """A mirror of the session Leases that have the label; ``changed`` is set if there is news."""

    lists: int
    changed: asyncio.Event

    @property
    def following(self) -> bool: ...
    def take(self) -> Mapping[Key, LeaseObject | None]: ...


class Marker:
    """``agents``: the namespace of the session Leases. ``nodes``: mirrors all Nodes. ``told``: hears of failures."""

    def __init__(
        self,
        client: Client,
        agents: str,
        words: Mirror,
        nodes: Reflector[NodeObject],
        writes: WriteQueue,
        told: Hears,
        *,
        clock: Callable[[], float] = boottime,
    ) -> None:
        self._client, self._sessions, self._mirror = client, leases_in(agents), words
        self._nodes, self._writes, self._told, self._clock = nodes, writes, told, clock
        self._words, self._kubelets = Words(), Kubelets()
        self._wanted: dict[str, frozenset[str]] = {}
        """Node → paths that are to be written."""
        self._done: set[str] = set()
        """Missed nodes that have no pod left to be marked."""

    async def run(self) -> None:
        """Endless."""
        heard = False
        while True:
            quiet = heard and not self._words.any_heard(self._clock()) and not self._wanted
            await set_within(self._mirror.changed, None if quiet else LOOK)
            self._mirror.changed.clear()
            heard = self._nodes.following and self._mirror.following
            if heard:
                await self._look(self._nodes.store)
            else:
                await self._want_only(())
            await asyncio.sleep(PAUSE)

    async def _look(self, nodes: Store[NodeObject]) -> None:
        taken = self._mirror.take()
        words = {key.name: None if found is None else _misses(found) for key, found in taken.items()}
        self._words.heard(words, self._mirror.lists, self._clock())
        silent: Mapping[str, tuple[str, ...]] = {}
        if self._words.any_heard(self._clock()):
            try:
                agents = await listed(self._client, self._sessions, Object)
            except EdgeError as error:
                self._told.failed(self._sessions, error)
            else:
                ready = {found.metadata.name: found.status.ready for found in nodes}
                facts = Facts(ready, frozenset(each.metadata.name for each in agents), self._words.now)
                silent = await self._silent(facts)
        await self._want_only(silent)
        for node, voices in silent.items():
            await self._mark(node, voices)

    async def _want_only(self, nodes: Collection[str]) -> None:
        """Pending writes for other nodes are dropped, and so are all if nothing is known any longer."""
        for node in self._wanted.keys() - set(nodes):
            await self._writes.want(dict.fromkeys(self._wanted.pop(node)))

    async def _silent(self, facts: Facts) -> Mapping[str, tuple[str, ...]]:
        """The dead nodes, without those whose pods are already marked."""
        asked = suspected(facts, self._clock())
        self._done &= asked.keys()
        self._kubelets.only(asked.keys() - self._done)
        for node in asked.keys() - self._done:
            begun = self._clock()
            version = await self._version(f"{KUBELETS}/{node}")
            self._kubelets.looked(node, version, begun, self._clock())
        return dead(facts._replace(kubelets=self._kubelets.silent), self._clock())

    async def _version(self, path: str) -> str:
        """'' if it is not known."""
        try:
            return msgspec.json.decode(await self._client.get(path), type=Named).metadata.resource_version
        except EdgeError as error:
            if not (isinstance(error, ApiRefused) and error.no_such_object):
                self._told.failed(path, error)
        except UNFIT as error:
            self._told.failed(path, EdgeError(f"cannot be read as a Lease: {error}"))
        return ""

    async def _mark(self, node: str, voices: tuple[str, ...]) -> None:
        """Repeated at each look until none of its pods is ready, as some may have been written meanwhile."""
        try:
            pods = await listed(self._client, PODS, PodObject, {"fieldSelector": f"spec.nodeName={node}"})
        except EdgeError as error:
            self._told.failed(PODS, error)
            return
        said = f"{', '.join(voices[:SHOWN])} do not hear {node}, and its kubelet has renewed no Lease for {STALE:g} s"
        orders = {write.path: write for write in _marks(pods, said, time_of_day())}
        if not orders:
            self._done.add(node)
        elif node not in self._wanted:
            log.warning("pods marked not ready", node=node, pods=len(orders), heard_by=voices[:SHOWN])
        gone = self._wanted.get(node, frozenset()) - orders.keys()
        self._wanted[node] = frozenset(orders)
        await self._writes.want({**dict.fromkeys(gone), **orders})


def _misses(found: LeaseObject) -> frozenset[str]:
    return misses_read(found.metadata.annotations.get(MISSES, ""))


def _marks(pods: list[PodObject], message: str, at: str) -> Iterator[Write]:
    """``at``: RFC 3339."""
    for pod in pods:
        conditions = pod.status.conditions or ()
        ready = [each for each in conditions if each.get("type") == READY and each.get("status") == "True"]
        others = [each for each in conditions if each.get("type") != READY]
        path = f"/api/v1/namespaces/{pod.key.namespace}/pods/{pod.key.name}/status"
        marked = [{**each, "status": "False", "reason": REASON, "message": message} for each in ready]
        if marked:
            yield Write(path, pod.metadata.resource_version, others=others, conditions=marked, since={READY: at})
