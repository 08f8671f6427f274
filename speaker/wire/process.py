"""The wire process at work: it does what the main process of the moment asks for, and goes on when that one has ended.

::

    main process ── commands ──► Conversation ──► Life ──► SharedOwner (``shared.py``)

The owner claims EIPs and has ARP and NDP answered for them. All else here brings it commands, and takes its events out.
``parent.py`` starts the main processes.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from enum import Enum
from functools import partial
from secrets import randbits
from types import TracebackType
from typing import NoReturn, Self

from speaker.errors import EdgeError, WireError
from speaker.interfaces.carrier import watch_carrier
from speaker.layer2.holdings import AS_USUAL, TAKE_OVER
from speaker.layer2.link import Links
from speaker.model import IPAddress, Link, Mac, Placement
from speaker.model.events import EdgeFailed, EdgeRecovered
from speaker.ownership.balance import Rebalancing
from speaker.ownership.events import ApiDown
from speaker.ownership.hello import Incarnation, above, incarnation
from speaker.ownership.hellos.hellos import Hellos
from speaker.ownership.hellos.keys import Key, Keys
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.parameters import Parameters
from speaker.system.clock import boottime
from speaker.system.garbage import freeze_new
from speaker.system.retry import retrying
from speaker.system.supervise import BUGS, contained, supervised, unfailing
from speaker.telemetry.lateness import watch_loop
from speaker.wire.channel import Channel
from speaker.wire.commands import NAMES, ApiEvent, Commands, Request, Spec, UseAddresses
from speaker.wire.events import ClaimStatus, PeerSeen
from speaker.wire.messages import Before, Began, FromMain, FromWire, Reply, Stop
from speaker.wire.progress import MainProgress
from speaker.wire.sender import EventSender
from speaker.wire.shared import SharedOwner

MAX_WAITING = 64 * 2**20
"""Bytes that a main process may leave unread: one that does not read them is started anew."""

OUTLIVED = (
    "no main process worked for longer than --outlive, and no peer that has one could take over: EIPs are answered for "
    "as they were last asked for"
)


class Keyring:
    """The keys of the moment."""

    def __init__(self, secrets: tuple[bytes, ...]) -> None:
        self.current: Keys
        self.replace(secrets)

    def replace(self, secrets: tuple[bytes, ...]) -> None:
        signing, *others = (Key(secret) for secret in secrets)
        self.current = Keys(signing, *others)


class Life:
    """What outlives a main process: the owner and its tasks. Entered with the first ``Spec``; left, nothing is answered
    any more."""

    def __init__(self, spec: Spec, events: EventSender, hold_lock: Callable[[], None]) -> None:
        self.spec, self._events, self._hold_lock = spec, events, hold_lock
        self._keyring = Keyring(spec.peers.secrets) if spec.peers else None
        self.owner = _owner(spec, self._keyring, events)
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[NoReturn]] = []

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.owner)
        self._start("counts", self._events.run)
        self._start("wire loop", partial(watch_loop, self._events.loop_delay))
        if self._keyring is not None:
            self._start("carrier", partial(follow_carrier, self.owner, self._events))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.__aexit__(kind, error, tb)

    def _start(self, task: str, work: Callable[[], Awaitable[None]]) -> None:
        self._tasks.append(asyncio.create_task(supervised(task, work, self._events), name=task))

    def resume(self, spec: Spec) -> None:
        """A new main process begins."""
        if self._keyring is not None and spec.peers is not None:
            self._keyring.replace(spec.peers.secrets)

    def api_away(self) -> None:
        """The main process, which talks to the API server, has ended."""
        if self.spec.peers is not None and self.spec.peers.api:
            self.owner.api_says([ApiDown()])

    # ── ``Commands`` ──

    def use_links(self, links: tuple[Link, ...], macs: frozenset[Mac]) -> None:
        self.owner.links(links, macs)

    def withdraw(self, eips: Sequence[IPAddress]) -> None:
        self.owner.withdraw(eips)

    def offer(self, placements: Mapping[IPAddress, Placement]) -> Sequence[IPAddress]:
        refused = self.owner.offer(placements)
        freeze_new()
        return refused

    def offered_all(self) -> None:
        freeze_new()  # and ``Conversation`` has heard it

    def claims_of(self, eips: Sequence[IPAddress]) -> list[ClaimStatus]:
        return [self.owner.claim_status(eip) for eip in eips]

    def ready(self) -> bool:
        return self.owner.ready

    def has_peers(self) -> bool:
        return self.owner.has_peers

    def peers(self) -> list[PeerSeen]:
        return self.owner.peers()

    def hold_lock(self) -> None:
        self._hold_lock()

    def progress(self, loops: Mapping[str, float], where: str) -> None:
        """``Conversation`` has heard it."""

    @property
    def _shared(self) -> SharedOwner:
        if self._keyring is None:
            raise WireError("this node is alone")
        return self.owner

    def keys(self, secrets: tuple[bytes, ...]) -> None:
        self._shared.look()  # what waits was signed with the keys until now
        if self._keyring is not None:
            self._keyring.replace(secrets)

    def use_addresses(self, ours: UseAddresses) -> None:
        self._shared.addresses(ours)

    def gateway(self, link: int, answers: bool) -> None:
        self._shared.offers.gateway(link, answers)

    def drain(self, on: bool) -> None:
        self._shared.drain(on)

    def rebalance(self) -> Rebalancing | None:
        return self._shared.rebalance()

    def rebalancing(self) -> Rebalancing | None:
        return self._shared.machine.rebalancing

    def demote(self, on: bool) -> None:
        self._shared.offers.demote(on)

    def recalled(self, on: bool) -> None:
        self._shared.offers.recall(on)

    def api_says(self, events: Sequence[ApiEvent]) -> None:
        self._shared.api_says(events)

    def recorded(self) -> tuple[IPAddress, ...]:
        return self._shared.machine.recorded()

    def informed(self) -> bool:
        return self._shared.informed()


class Conversation:
    """With one main process after the other. ``life`` is None before the first has said what it is. ``hold_lock`` locks
    the runtime directory."""

    def __init__(self, hold_lock: Callable[[], None] = lambda: None) -> None:
        self._hold_lock = hold_lock
        self._channel: Channel[FromWire, FromMain] | None = None
        sender = EventSender(self._send, self._read, lambda: self.listened)
        self.events = unfailing(sender, sender)
        self.life: Life | None = None
        self.offered_all = False
        """The main process of the moment has said all that may be held here."""
        self.progress = MainProgress()
        """Of the main process of the moment."""
        self._outlived = False
        """EIPs are answered for though no main process has said so for too long."""

    def _send(self, message: FromWire) -> None:
        """Without a main process the message is dropped: the next one is sent the whole state, and the claims and bugs
        that nobody heard of. One that does not read for too long is cut off."""
        if self._channel is not None:
            self._channel.send(message)
            if self._channel.waiting > MAX_WAITING:
                self._channel.abort()

    def _read(self) -> bool:
        """There is a main process, and it has read nearly all that it was sent."""
        return self._channel is not None and self._channel.waiting < MAX_WAITING // 64

    @property
    def listened(self) -> bool:
        """There is a main process that hears what it is sent."""
        return self._channel is not None

    @property
    def offered(self) -> bool:
        """There is something that this node may hold."""
        return self.life is not None and bool(self.life.owner.offered)

    def stop(self) -> None:
        """Asks the main process to hand over and to end."""
        self.events.end()
        self._send(Stop())

    def forsake(self) -> bool:
        """For too long no main process has said what this node may hold: what a peer can take over that has one is
        given up. Of the rest nobody would gain by silence. Whether it is news that there is a rest."""
        if self.life is None:
            return False
        owner = self.life.owner
        manned = owner.hello_links.manned(owner.machine.peers(boottime()))
        owner.withdraw([eip for eip, place in owner.offers.placements.items() if place.link.index in manned])
        before, self._outlived = self._outlived, bool(owner.offered)
        return self._outlived and not before

    async def hold(self, end: socket.socket, stack: AsyncExitStack, before: Callable[[], Before]) -> None:
        """Serves one main process until it closes its end. The life that begins with it is entered on ``stack``.
        ``before`` is asked for when it has come. Raises WireError, or what pickle does, where the other end does not
        speak as this process does."""
        self.offered_all = False  # also for one that never comes to say what it is
        channel: Channel[FromWire, FromMain] = await Channel.over(end)
        messages = channel.messages()
        try:
            async for spec in messages:
                if not isinstance(spec, Spec):
                    raise WireError(f"expected a Spec: {spec!r}")
                self._channel = channel
                self.events.start_over()
                life = await self._begin(spec, stack)
                self._headless(True)
                channel.send(Began(before(), life.owner.resumed()))
                with contained("retell", self.events):
                    life.owner.retell()
                self.events.retell()
                if self._outlived:
                    self.events.tell(EdgeFailed("outlive", OUTLIVED))
                await self._obey(life, channel, messages)
        finally:
            self._channel = None
            channel.close()
            self._headless(True)
            if self.life is not None:
                self.life.api_away()

    async def _begin(self, spec: Spec, stack: AsyncExitStack) -> Life:
        if self.life is None:
            self.life = await stack.enter_async_context(Life(spec, self.events, self._hold_lock))
        self.life.resume(spec)
        return self.life

    async def _obey(self, life: Life, channel: Channel[FromWire, FromMain], messages: AsyncIterator[FromMain]) -> None:
        async for request in messages:
            if not isinstance(request, Request):
                raise WireError(f"expected a Request: {request!r}")
            number, command, arguments, named = request
            try:
                if command not in NAMES:
                    raise WireError("no such command")
                if command == Commands.progress.__name__:
                    self.progress.heard(*arguments, **named)
                channel.send(Reply(number, getattr(life, command)(*arguments, **named)))
            except BUGS as error:
                self.events.internal_error("wire command", error)
                channel.send(Reply(number, None, f"{command}: {type(error).__name__}: {error}"))
            if command == Commands.offered_all.__name__:
                self.offered_all = True
                self._headless(False)

    def _headless(self, on: bool) -> None:
        """Whether no main process works: said to peers, and at the end of a time without one to the next."""
        if self.life is not None:
            self.life.owner.offers.headless = on
        if self._outlived and not on:
            self._outlived = False
            self.events.tell(EdgeRecovered("outlive"))


def _owner(spec: Spec, keyring: Keyring | None, events: EventSender) -> SharedOwner:
    peers = spec.peers
    machine = Ownership(
        spec.node,
        incarnate,
        boottime(),
        times=Parameters.for_one() if peers is None else Parameters.for_hello(peers.hello),
        api=peers is not None and peers.api,
        revision=0 if peers is None else peers.revision,
        take_over=spec.take_over,
    )

    def open_hellos(link: Link, count: Callable[[Enum | None, int], None]) -> Hellos:
        assert peers is not None
        assert keyring is not None  # or there is nobody to hear them
        return Hellos(link, lambda: keyring.current, peers.ethertype, boottime, count)

    layer2 = partial(Links, pace=TAKE_OVER if spec.take_over else AS_USUAL)
    return SharedOwner(machine, open_hellos, boottime, events, layer2)


def incarnate(known: Incarnation) -> Incarnation:
    """A life above ``known``."""
    fresh = incarnation(int(time.time()), randbits(31))
    return fresh if fresh > known else above(known, randbits(31))


async def follow_carrier(
    owner: SharedOwner, events: EventSender, watch: Callable[..., Awaitable[None]] = watch_carrier
) -> None:
    """Endless. ``watch``: as ``watch_carrier``."""
    failing = False

    def failed(error: EdgeError) -> None:
        nonlocal failing
        failing = True
        events.tell(EdgeFailed("carrier", str(error)))

    def looked() -> None:
        nonlocal failing
        if failing:
            failing = False
            events.tell(EdgeRecovered("carrier"))

    links = owner.hello_links
    async for attempt in retrying(failed, on=EdgeError, limit=5):
        with attempt:
            await watch(lambda: links.indexes, owner.carrier, links.doubted, looked=looked)
