"""Mirrors one resource of the Kubernetes API: lists it, watches it, and starts over when it must.

The list is streamed (``sendInitialEvents``, KEP-3157), so that no server has to hold all of it in memory, and paged if
the server cannot do that. Nothing is ever read from ``resourceVersion=0``: it may be older than what another server
said before, and terms would go back.
"""

import asyncio
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import structlog

from speaker.api.objects import Key
from speaker.cluster.client import Client, Stream, one_page, pages
from speaker.cluster.feed import Change, Feed, Lines, Resource, Room, Store, T
from speaker.errors import ApiRefused, ApiUnreachable, EdgeError
from speaker.removals import Doubt, Removals, Waiting
from speaker.system.retry import retrying
from speaker.system.waiting import Timer, time_of_day

SLICE = 0.005
"""Seconds of work before other tasks get a turn: an ARP answer waits for no list."""
ROOM = 60.0
"""Seconds between two looks at whether there is room again for what was set aside."""
FEW = 20
"""Objects of a page of what is asked for beside a watch, all of which may be as large as etcd takes them."""
SILENT_WATCHES = 3
"""After so many in a row that brought nothing everything is listed anew. A server whose etcd was restored says nothing
until it has come as far as the version that is asked for. That is noticed sooner, as a rule (``Mirrors``)."""
_NO_SUCH_OPTION = (400, 422)
"""How servers answer that do not stream lists."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds."""

    answer: float = 15.0
    """For a page, for the beginning of a watch, and between two pieces of a streamed list."""
    whole: float = 120.0
    """For a streamed list. Where much changes something comes all the time, even if the word that ends it does not."""
    silence: float = 150.0
    """On a watch, before another is opened in its place. A bookmark comes every minute (cacher.go), but on a quiet
    resource only once etcd has told the server of its progress: within 5 s where kubeadm set it up, else 10 min."""
    watch: float = 300.0
    """The server ends a watch after one to two times this, as client-go asks: so they spread over all servers."""
    backoff: float = 0.25
    backoff_limit: float = 15.0


Deliver: TypeAlias = Callable[[tuple[Change[T], ...]], None]
Listed: TypeAlias = Callable[[str, bool], None]


class Hears(Protocol):
    """Hears how well the API answers."""

    def failed(self, what: str, error: EdgeError) -> None:
        """``what``: a path, or an edge's name."""

    def doubted(self, what: str, doubt: Doubt | None) -> None:
        """What a list lacked stays for now; None: no longer."""


class Reflector(Generic[T]):
    """``run`` mirrors ``resource`` into ``store``, until it is cancelled.

    ``deliver`` gets what has changed after the store has, in order: first everything there is, even if that is nothing,
    then a batch for whatever the network brought in one go, and an empty one where ``set_aside`` changed, as who needs
    none of the objects must hear of that. It is called in the event loop and must be quick. ``hears`` is told of every
    failure, by the path, and of what waits for another list, by the resource's name; ``listed`` of every list that was
    completed, once it was handed over: its version, and whether it is of other data than what was known before
    (``list_anew``). ``among``: the mirrors of the same server, which it becomes one of.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        deliver: Deliver[T],
        hears: Hears,
        *,
        patience: Patience = Patience(),
        listed: Listed = lambda *_: None,
        among: "Mirrors | None" = None,
    ) -> None:
        self.resource, self.patience = resource, patience
        self.lists = 0
        """Lists that were completed: more than a few an hour say that something is wrong."""
        self._client, self._deliver, self._hears = client, deliver, hears
        self._listed, self._among = listed, among or Mirrors()
        self._among.add(self)
        self._anew = False
        """The next list is of other data than what is known."""
        self._afresh = False
        """The next list comes over a new connection."""
        self.feed = Feed(resource)
        self.feed.evicted = self._tell_soon
        self._reading = asyncio.Lock()
        """What the watch brings waits while something is asked for beside it, and the other way round."""
        self.waits: Doubt | None = None
        """What a list lacked, and stays until another decides."""
        self._again = Timer(self.list_again)
        """When that other list is asked for."""
        self._streams_lists = True
        self._trying: asyncio.Task[None] | None = None
        self._watching = False
        self.resting = False
        """Whether it waits before the next try, after one that got nowhere."""
        self._moved = False
        """The watch has got further since this attempt began: another is worth making at once."""
        self._silent_watches = 0
        self._fresh_at: float | None = None
        self._retry_after = 0.0
        """Seconds that the server asked us to wait before the next attempt."""
        self._turn_ends = 0.0
        self._told_aside: tuple[str, ...] = ()
        self._room_look = Timer(self._look_for_room)

    @property
    def store(self) -> Store[T]:
        return self.feed.store

    @property
    def synced(self) -> bool:
        """The store was whole once; it stays so, if older, through every failure."""
        return self._fresh_at is not None

    @property
    def set_aside(self) -> tuple[str, ...]:
        """The objects that do not fit ``kind``, each a sentence."""
        return tuple(
            f"{self.resource.path}: {key.namespace}/{key.name or '(no name)'} {why}"
            for key, why in self.feed.set_aside.items()
        )

    @property
    def following(self) -> bool:
        """A watch has begun since the last ``reconnect`` and continues, so nothing is listed again."""
        return self.synced and self._watching and not self.feed.listing

    def reconnect(self) -> None:
        """At once, however long it would wait: what came by the connection of now, or did not, is no proof of
        anything."""
        self._watching = False
        if self._trying is not None and self._trying is not asyncio.current_task():
            self._trying.cancel()

    def list_anew(self) -> None:
        """The server's data was replaced: what is known here says nothing about the data of now."""
        self.feed.forget()
        self._anew = True
        self.reconnect()

    def list_again(self) -> None:
        """Over a new connection, which may lead to another server."""
        self.feed.forget()
        self._afresh = True
        self.reconnect()

    async def fetch(self, path: str, label_selector: str) -> bool:
        """Asks for what was passed over and is of use now. What is deleted meanwhile does not come back by that, as the
        watch waits. False: to be asked for again, as a list is under way. Raises EdgeError."""
        async with self._reading:
            lists = self.lists
            async for page in pages(self._client, path, {"labelSelector": label_selector}, FEW):
                if not self.synced or self.feed.listing or self.lists != lists:
                    return False
                for raw in page.items or ():
                    self.feed.adopt(raw)
            self._hand_over()
        return True

    def drop(self, keys: Iterable[Key]) -> None:
        """Forget these objects: nobody needs them any more."""
        self.feed.drop(keys)
        self._hand_over()

    def _tell_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._hand_over)

    async def run(self) -> None:
        """Endless."""
        task = asyncio.current_task()
        assert task is not None
        while True:
            self._trying = asyncio.create_task(self._try(), name=f"attempts {self.resource.path}")
            try:
                await self._trying
            except asyncio.CancelledError:
                if task.cancelling():
                    self._again.cancel()
                    raise

    async def _try(self) -> None:
        least, most = self.patience.backoff, self.patience.backoff_limit
        while True:
            async for attempt in retrying(self._failed, multiplier=least, limit=most, sleep=self._rest):
                with attempt:
                    await self._attempt()

    # ── Failures ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _attempt(self) -> None:
        """Returns when it got anywhere, even if a failure ended it: only fruitless attempts are further apart."""
        self._moved = False
        self._hand_over()  # what a bug of ours kept from being handed over: nothing new may come for minutes
        try:
            await self._follow()
        except EdgeError as error:
            self._learn(error)
            self._hand_over()  # what the broken answer said before it broke
            if not self._moved:
                raise
            self._hears.failed(self.resource.path, error)

    def _learn(self, error: EdgeError) -> None:
        if not isinstance(error, ApiRefused):
            return
        if self.feed.listing and error.code in _NO_SUCH_OPTION:
            self._streams_lists = False
        if error.too_old:
            self.feed.forget()

    def _failed(self, error: EdgeError) -> None:
        self._retry_after = error.retry_after if isinstance(error, ApiRefused) else 0.0
        self._hears.failed(self.resource.path, error)

    async def _rest(self, seconds: float) -> None:
        self.resting = True
        try:
            await asyncio.sleep(max(seconds, self._retry_after))
        finally:
            self.resting = False

    # ── Lists and watches ─────────────────────────────────────────────────────────────────────────────────────

    async def _follow(self) -> None:
        if self._silent_watches >= SILENT_WATCHES:
            self.feed.forget()
        if await self._is_restored():
            self._among.restored()
        # A list that decides goes another way than the one that is doubted.
        afresh = self._afresh or self.waits is not None
        client = self._client.afresh if afresh and not self.feed.resume else self._client
        if not self.feed.resume and not self._streams_lists:
            await self._list_pages(client)
        begun = self._now()
        async with client.stream(self.resource.path, self._watch_query(), within=self.patience.answer) as stream:
            self._silent_watches += 1
            self._watching = True
            try:
                await self._read(stream, begun)
            finally:
                self._watching = False
        if not self._moved and self._now() - begun < 1.0:
            raise EdgeError(f"{self.resource.path}: the watch ended as soon as it began")

    async def _is_restored(self) -> bool:
        """The server's data is older than what we know: a watch from there would stay silent. Asked before each watch,
        which is once in 5 to 10 min: a bookmark may have been of another server, or wrong."""
        known = self.feed.resume
        if not known.isdecimal():
            return False
        page = await one_page(self._client, self.resource.path, self.resource.query, 1, within=self.patience.answer)
        now = page.metadata.resource_version
        return now.isdecimal() and int(now) < int(known)

    def _watch_query(self) -> dict[str, str]:
        lasts = self.patience.watch * random.uniform(1, 2)  # noqa: S311 (spreads load, guards nothing)
        query = {
            **self.resource.query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(lasts)),
            "resourceVersion": self.feed.resume,
        }
        if not self.feed.resume:
            self.feed.begin_list()
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        return query

    async def _list_pages(self, client: Client) -> None:
        begun = self._now()
        self.feed.begin_list()
        version, resource = "", self.resource
        async for page in pages(client, resource.path, resource.query, resource.page, within=self.patience.answer):
            version = page.metadata.resource_version
            for raw in page.items or ():
                self.feed.add(raw)
                await self._turn()
        await self._end_list(version, begun)

    async def _read(self, stream: Stream, begun: float) -> None:
        lines = Lines()
        while chunk := await self._chunk(stream):
            self._silent_watches = 0
            listing, heard_at = self.feed.listing, self._now()
            async with self._reading:
                await self._take(lines.feed(chunk), begun)
            if not listing:
                self._fresh_at = heard_at
            elif self.feed.listing and self._now() - begun > self.patience.whole:
                break
        if self.feed.listing:
            raise self._not_whole()
        if lines.cut:
            raise EdgeError(f"{self.resource.path}: the watch was cut in the middle of an event")

    async def _take(self, lines: Iterable[bytes], begun: float) -> None:
        for line in lines:
            known = self.feed.resume
            if version := self.feed.take(line):
                await self._end_list(version, begun)
            elif self.feed.resume != known:
                self._moved = True
            await self._turn()
        self._hand_over()

    async def _chunk(self, stream: Stream) -> bytes:
        """b"" at the end, and for a watch that has been silent for too long."""
        if not self.feed.listing:
            with suppress(TimeoutError):
                return await stream.read(self.patience.silence)
            return b""
        try:
            return await stream.read(self.patience.answer)
        except TimeoutError as error:
            raise self._not_whole() from error

    def _not_whole(self) -> ApiUnreachable:
        """etcd before 3.5 cannot say when a streamed list is whole, and what stands before a server may end it."""
        self._streams_lists = False
        return ApiUnreachable(f"{self.resource.path}: the server did not finish the list")

    async def _end_list(self, version: str, begun: float) -> None:
        for _ in self.feed.end_list(version, begun):
            await self._turn()
        self.lists += 1
        if (waiting := self.feed.removals.waiting) is not None:
            self._again.set_at(waiting.until)  # also where it was the list that decides, and came a moment too soon
        first, self._fresh_at = not self.synced, begun
        self._hand_over(even_nothing=first)
        anew, self._anew, self._afresh = self._anew, False, False
        self._listed(version, anew)

    def _wait(self, waiting: Waiting | None) -> None:
        """For the list that decides, which is asked for when it is due."""
        if waiting == (self.waits and self.waits.waiting):
            return
        self._again.cancel()
        self.waits = None
        if waiting is not None:
            self._again.set_at(waiting.until)
            self.waits = Doubt(self.resource.name, waiting, time_of_day(waiting.until - self._now()))
        self._hears.doubted(self.resource.name, self.waits)

    def _look_for_room(self) -> None:
        if self.feed.without_room and self.resource.room is not None and self.resource.room.again:
            self.list_again()
        else:
            self._hand_over()  # which looks again, where need be

    def _hand_over(self, *, even_nothing: bool = False) -> None:
        self._wait(self.feed.removals.waiting)
        if self.feed.without_room and not self._room_look.pending:
            self._room_look.set(ROOM)
        before, self._told_aside = self._told_aside, self.set_aside
        if (changes := self.feed.collect()) or even_nothing:
            self._deliver(changes)
        if self._told_aside != before and (changes or not even_nothing):
            self._deliver(())

    async def _turn(self) -> None:
        """Others', when ours has lasted long enough."""
        if self._now() >= self._turn_ends:
            self._hand_over()
            await asyncio.sleep(0)
            self._turn_ends = self._now() + SLICE

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


# ── All mirrors of one API server ─────────────────────────────────────────────────────────────────────────────
#
# Where its data was restored from a backup, all of them list anew. Two things show it. A mirror that connects again
# sees that the server is behind what it knows: a watch would stay silent. Once the new data has come as far, lists and
# watches go on as if nothing was lost; then our own Lease shows it. This process writes it again and again, and the
# version of an object only rises, whoever writes it. A Lease that is older than before, or absent, belongs to other
# data. Versions of different resources are never compared: each may have an etcd of its own.
#
# Two cases are not noticed, both where the new data has come as far before this process connects again: a backup that
# is younger than the last renewal, and one of an etcd that does not hold the Leases. A list every few minutes would
# notice them, for a load that grows with the nodes times the Services.

log = structlog.get_logger()


class Mirrors:
    """Those of one process. ``room``: for what they hold."""

    def __init__(self, room: Room | None = None) -> None:
        self.room = room or Room()
        self._all: list[Reflector[Any]] = []
        self._lease = 0

    def __iter__(self) -> Iterator[Reflector[Any]]:
        return iter(self._all)

    @property
    def without_room(self) -> int:
        """How many objects are set aside because there is no room for them."""
        return sum(mirror.feed.without_room for mirror in self)

    def add(self, mirror: Reflector[Any]) -> None:
        self._all.append(mirror)

    def saw_lease(self, version: int) -> None:
        """Notes the version of our Lease as just read or written; 0 if there is no Lease."""
        if version < self._lease:
            self.restored()
        self._lease = version

    def restored(self) -> None:
        """All that is known comes from other data, and so does the Lease's version: all is listed again, once."""
        self._lease = 0
        log.warning("the API server's data went back, as if a backup was restored: listing everything again")
        for mirror in self._all:
            mirror.list_anew()


# ── Lists instead of watches ────────────────────────────────────────────────────────────────────────────────

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Polled(Generic[_K, _V]):
    """``what`` it is, for people; ``settle``: seconds, as in ``Resource``; ``hears`` is told of what waits."""

    def __init__(self, what: str, settle: float, hears: Hears) -> None:
        self.known: Mapping[_K, _V] = {}
        self._what, self._hears = what, hears
        self._removals: Removals[_K] = Removals(settle)

    @property
    def due(self) -> float:
        """When the list that decides is to be asked for, by the clock of ``hear``."""
        return inf if self._removals.waiting is None else self._removals.waiting.until

    def via(self, client: Client) -> Client:
        """A list that confirms a doubt is asked for over a connection of its own, perhaps from another server."""
        return client if self._removals.waiting is None else client.afresh

    def hear(self, found: Mapping[_K, _V], now: float) -> None:
        """``now``: when it was asked for, in seconds."""
        waited, known = self._removals.waiting, self.known
        kept = self._removals.kept(known.keys() - found.keys(), len(known), len(found), now)
        self.known = {**found, **{key: known[key] for key in kept}}
        if (waiting := self._removals.waiting) != waited:
            until = "" if waiting is None else time_of_day(waiting.until - now)
            self._hears.doubted(self._what, None if waiting is None else Doubt(self._what, waiting, until))
