"""Edge: whether the API counts as up for this agent, and our session Lease, which shows that this node is alive.

Only this agent may write the Lease (agent-admission.yaml). There is no election: the Lease is named for the node, and a
new life takes it over without asking, so the first write is a blind patch. Later writes name the version that was seen
last. If the Lease has changed since then, the agent looks at whose it is, and writes all the same. If two agents write
it at the same time, the incarnation in it tells others which one to believe.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from speaker.agent.record import identity, life_of
from speaker.api.records import FORWARDER, MISSES, OTHER_GROUPS, LeaseObject, groups_said, leases_in, misses_said
from speaker.cluster.client import Client, listed
from speaker.cluster.reflector import Reflector
from speaker.errors import ApiRefused, EdgeError, as_edge_error
from speaker.model import Forwarding, IPAddress
from speaker.node.report import Report
from speaker.ownership.hello import Incarnation
from speaker.removals import Doubt
from speaker.system.decoding import UNFIT
from speaker.system.waiting import set_within
from speaker.telemetry.lines import LASTING, Bound

LOOK_SECONDS = 0.02
"""Seconds between two checks whether the mirrors are up to date again."""


class ApiState:
    """The API counts as up when a renewal of our Lease was answered in time, and every mirror follows by a connection
    that was made since the API was away: then the mirrors are up to date. It counts as down as soon as a renewal is
    late. ``hurry`` triggers a renewal at once. It is called when anything else goes unanswered, so renewals can be
    rare.

    ``say`` hears whether the API is up, each time that this was found, changed or not.
    """

    def __init__(
        self, mirrors: Iterable[Reflector[Any]], report: Report, hurry: Callable[[], None], say: Callable[[bool], None]
    ) -> None:
        self._mirrors, self._report, self._hurry, self._say = mirrors, report, hurry, say
        self.up = False
        self._was_up = False
        """At least once in this life."""
        self._answered = asyncio.Event()
        self._doubted = False
        """The API was away since the mirrors connected: what came by these connections, or did not, proves nothing."""

    async def come_up(self) -> None:
        """Endless. After an answered renewal, the API is up as soon as the mirrors are up to date."""
        while True:
            await self._answered.wait()
            if self._following:
                self._answered.clear()
                self.up = self._was_up = True
                self._report.api(True)
                self._say(True)
            else:
                await asyncio.sleep(LOOK_SECONDS)

    def renewed(self, _: int) -> None:
        """Answered in time."""
        for mirror in self._mirrors:
            if mirror.following:
                self._report.recovered(mirror.resource.path)
        if self.up and self._following:
            self._say(True)  # the machine may have found that writes take too long
            return
        self.lost(dead=False)
        for mirror in self._mirrors:
            # A mirror at work is left alone: a list may take longer than the time between two renewals.
            if self._doubted or mirror.resting:
                mirror.reconnect()
        self._doubted = False
        self._answered.set()

    def lost(self, dead: bool) -> None:
        """Called again and again as long as it lasts. ``dead``: nothing was answered at all. A late renewal is a
        failure at once, but not yet that."""
        if self._was_up:
            self._report.api(False)
        if dead:
            self._doubted = True
        self.up = False
        self._answered.clear()
        self._say(False)

    def tells(self, edge: str) -> Callable[[EdgeError | None], None]:
        """A function that hears of the failures of an edge to the API, and of its successes as None."""

        def tell(error: EdgeError | None) -> None:
            if error is None:
                self._report.recovered(edge)
            else:
                self._report.failed(edge, error, patience=self._patience(error))
                if not isinstance(error, ApiRefused):
                    self._doubt()

        return tell

    def failed(self, path: str, error: EdgeError) -> None:
        # While the API does not answer, that has already been said.
        self._report.failed(path, error, known=self._was_up and not self.up, patience=self._patience(error))
        self._doubt()

    def doubted(self, resource: str, doubt: Doubt | None) -> None:
        """What is missing from a list of ``resource`` but kept for now; None if nothing is."""
        edge = f"list of {resource}"
        self._report.removals_waiting(resource, 0 if doubt is None else doubt.waiting.gone)
        if doubt is None:
            self._report.recovered(edge)
        else:
            self._report.failed(edge, EdgeError(str(doubt)))

    @property
    def _following(self) -> bool:
        return all(mirror.following for mirror in self._mirrors)

    def _doubt(self) -> None:
        """Something went unanswered, so perhaps everything does."""
        if self.up:
            self._hurry()

    def _patience(self, error: EdgeError) -> float:
        """How long an error is not reported. Nobody has to act on a missing answer now and then; a refusal has to be
        fixed by somebody."""
        return LASTING if self._was_up and not isinstance(error, ApiRefused) else 0.0


# ── Our Lease ───────────────────────────────────────────────────────────────────────────────────────────────

AGAIN = 1.0
"""The longest time after a failed renewal, in seconds."""
WORDS, WORD_SECONDS = 10, 5.0
"""Extra renewals at once, to say which nodes fell silent, and seconds until one more is allowed."""
LATE = 2.0
"""Seconds for which an answer is awaited although it is already too late: to hang up costs a handshake each time."""


class Pace(NamedTuple):
    """Seconds: how long the Lease is valid, the time between two renewals, and after which a late answer is a
    failure."""

    duration: float
    renew: float
    deadline: float


class SeesLease(Protocol):
    """Hears what our Lease says."""

    def saw_lease(self, version: int) -> None:
        """Called whenever the Lease was read or written, even if that took too long. 0: there was none."""

    def saw_other(self, life: Incarnation) -> None:
        """Another life was written into it by somebody else."""


class Session:
    """``api`` hears of each renewal and each failure. ``forwarder``: what this node forwards with, which the controller
    reads; None: not known yet, and the Lease keeps what it says."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        node: str,
        pace: Pace,
        api: ApiState,
        sees: SeesLease,
        forwarder: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._client, self._node, self._collection = client, node, leases_in(namespace)
        self._pace, self._api, self._sees, self._forwarder = pace, api, sees, forwarder
        self._told = api.tells("session")
        self._misses: Collection[str] = ()
        self._of_groups: Collection[IPAddress] = ()
        self._words = Bound(WORDS, WORD_SECONDS, 1)
        self.owner = ""
        """The uid of our Node: once it is deleted, the garbage collector deletes the Lease."""
        self._life: Incarnation | None = None
        self._version = 0
        """The version last seen; 0 if it is unknown."""
        self._born = asyncio.Event()

    def live(self, life: Incarnation | None) -> None:
        """From now on the Lease is of this life; written at once. None: another host has our name, and renews the Lease
        for itself."""
        self._life = life
        self._born.set()

    def misses(self, nodes: Collection[str]) -> None:
        """These nodes fell silent. Recorded at once, or with the next renewal if nodes come and go: all agents record
        it."""
        self._misses = nodes
        if self._words.admits(asyncio.get_running_loop().time(), self._node):
            self.hurry()

    def other_groups(self, eips: Collection[IPAddress]) -> None:
        """Other groups hold these. Recorded at once."""
        self._of_groups = eips
        self.hurry()

    def hurry(self) -> None:
        """Something did not answer: find out now whether the API does."""
        self._born.set()

    async def run(self) -> None:
        """Endless."""
        while True:
            self._born.clear()
            if self._life is None:
                await self._born.wait()
                continue
            succeeded = await self._beat(self._life)
            # Sooner after a failure; and not all nodes together when the API is back.
            pause = self._pace.renew if succeeded else min(self._pace.renew / 2, AGAIN) * random.uniform(0.5, 1)  # noqa: S311
            await set_within(self._born, pause)

    async def _beat(self, life: Incarnation) -> bool:
        writing = asyncio.create_task(self._write(life), name="renewal")
        try:
            done, _ = await asyncio.wait((writing,), timeout=self._pace.deadline)
            if not done:
                late = f"{self._node}: the session Lease took longer than {self._pace.deadline:g} s"
                self._api.lost(False)
                self._told(EdgeError(late))
                await writing
                return False
            self._api.renewed(writing.result())
        except EdgeError as error:
            self._api.lost(not isinstance(error, ApiRefused))
            self._told(error)
            return False
        finally:
            writing.cancel()
        self._told(None)
        return True

    async def _write(self, life: Incarnation) -> int:
        spec = {
            "holderIdentity": identity(self._node, life),
            "leaseDurationSeconds": round(self._pace.duration),
            "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        misses = misses_said(self._misses)
        labels = {MISSES: "true" if misses else None}
        said = {MISSES: misses, OTHER_GROUPS: groups_said(self._of_groups)}
        metadata: dict[str, Any] = {"name": self._node, "annotations": said, "labels": labels}
        if self.owner:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self.owner}
            metadata["ownerReferences"] = [owner]
        if (forwarder := self._forwarder()) is not None:
            labels[FORWARDER] = forwarder
        answer = await self._written({"metadata": metadata, "spec": spec})
        with as_edge_error(f"{self._collection}/{self._node}: cannot be read as a Lease", (*UNFIT, ValueError)):
            return self._see(int(msgspec.json.decode(answer, type=LeaseObject).metadata.resource_version))

    def _see(self, version: int) -> int:
        self._version = version
        self._sees.saw_lease(version)
        return version

    async def _written(self, body: dict[str, Any]) -> bytes:
        """Writes it whatever is there. If it has changed since we saw it last, it is looked at first."""
        path = f"{self._collection}/{self._node}"
        if self._version:
            ours = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self._version)}}
            try:
                return await self._client.patch(path, ours, within=LATE)
            except ApiRefused as error:
                if not error.outdated:
                    raise
            await self._look()
        try:
            return await self._client.patch(path, body, within=LATE)
        except ApiRefused as error:
            if not error.no_such_object:
                raise
            return await self._client.create(self._collection, _without_none(body), within=LATE)

    async def _look(self) -> None:
        """Looks who wrote it, and its version. Uses a list, as agents may not get a Lease by name."""
        query = {"fieldSelector": f"metadata.name={self._node}"}
        version = "0"
        for found in await listed(self._client, self._collection, LeaseObject, query):
            version = found.metadata.resource_version
            if (life := life_of(found)) is not None:
                self._sees.saw_other(life)
        self._see(int(version) if version.isdecimal() else self._version)


def forwards_with(forwarder: Forwarding, report: Report) -> str | None:
    """None until this node forwards: otherwise the controller would make kube-proxy leave the EIPs alone."""
    if not forwarder.ours:
        return Forwarding.NONE.value
    return forwarder.value if report.health()[0] else None


def _without_none(body: dict[str, Any]) -> dict[str, Any]:
    """A new object has no fields for a patch to remove."""
    return {
        name: _without_none(value) if isinstance(value, dict) else value
        for name, value in body.items()
        if value is not None
    }
