"""The wire process at work: it does what the main process of the moment asks for, and goes on when that one has ended.

::

    main process ── ``messages.Commands`` ──► Conversation ──► SharedOwner (``shared.py``)

The owner claims EIPs and has ARP and NDP answered for them. All else here brings it commands, and takes its events out.
``parent.py`` starts the main processes.
"""

import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from enum import Enum
from functools import partial
from secrets import randbits

from speaker.errors import EdgeError, WireError
from speaker.interfaces.carrier import watch_carrier
from speaker.layer2.holdings import AS_USUAL, TAKE_OVER
from speaker.layer2.link import InKernel, Links
from speaker.model import Group, Link
from speaker.model.events import EdgeFailed, EdgeRecovered
from speaker.ownership.events import ApiDown
from speaker.ownership.hello import Incarnation, above, incarnation
from speaker.ownership.hellos.frames import FLAGS_AT, ROUTINE, magic
from speaker.ownership.hellos.hellos import Hellos
from speaker.ownership.hellos.keys import Key, Keys
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.parameters import Parameters
from speaker.system.files import Lock
from speaker.system.garbage import freeze_new
from speaker.system.retry import retrying
from speaker.system.supervise import BUGS, at_work, contained, unfailing
from speaker.system.waiting import boottime
from speaker.telemetry.lateness import watch_loop
from speaker.wire.messages import (
    NAMES,
    WITH_PEERS,
    Before,
    Began,
    Commands,
    PeerSpec,
    Reply,
    Request,
    Spec,
    Stop,
    ToMain,
)
from speaker.wire.progress import MainProgress
from speaker.wire.sender import EventSender
from speaker.wire.shared import SharedOwner

OUTLIVED = (
    "no main process has worked for --outlive seconds, and no peer with one could take over: EIPs are still answered "
    "as they were last asked for"
)


class Conversation:
    """Talks with one main process after the other. ``owner`` and its tasks outlive them; it is None before the first
    one has introduced itself. ``lock`` is that of the runtime directory. Carries out those of ``Commands`` that the
    owner does not."""

    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = lock
        self._sender = EventSender()
        self.events = unfailing(self._sender, self._sender)
        self.owner: SharedOwner | None = None
        self._peers: PeerSpec | None = None
        self._keys: Keys
        """The current keys; none if this node is alone."""
        self.ended: tuple[str, float] | None = None
        """How the previous main process ended, and when."""
        self.is_all_offered = False
        """The current main process has offered everything that may be held here."""
        self.main_progress = MainProgress()
        """Of the current main process."""
        self._outlived = False
        """EIPs are still answered for, although no main process has said so for too long."""

    @property
    def listened(self) -> bool:
        """There is a main process that hears what it is sent."""
        return self._sender.channel is not None

    @property
    def offered(self) -> bool:
        """There is something that this node may hold."""
        return self.owner is not None and bool(self.owner.placements)

    def stop(self) -> None:
        """Asks the main process to hand over and end."""
        self.events.end()
        self._sender.send(Stop())

    def forsake(self) -> bool:
        """For too long no main process has said what this node may hold. EIPs that a peer with a main process can take
        over are given up; for the others, silence would help nobody. Returns whether it is news that there are others.
        """
        if (owner := self.owner) is None:
            return False
        manned = owner.hello_links.manned(owner.machine.peers(boottime()))
        owner.withdraw([eip for eip, place in owner.placements.items() if place.link.index in manned])
        before, self._outlived = self._outlived, bool(owner.placements)
        return self._outlived and not before

    async def hold(self, end: socket.socket, stack: AsyncExitStack) -> None:
        """Serves one main process until it closes its end. The owner that begins with it is entered on ``stack``.
        Raises WireError, or what pickle raises, if the other end does not speak as this process does."""
        self.is_all_offered = False  # also for one that never introduces itself
        channel = await ToMain.over(end)
        messages = channel.messages()
        try:
            async for spec in messages:
                if not isinstance(spec, Spec):
                    raise WireError(f"expected a Spec: {spec!r}")
                self._sender.channel = channel
                self.events.start_over()
                owner = await self._begin(spec, stack)
                channel.send(Began(self._before(), owner.resumed()))
                with contained("retell", self.events):
                    owner.retell()
                self.events.retell()
                if self._outlived:
                    self.events.tell(EdgeFailed("outlive", OUTLIVED))
                async for request in messages:
                    if not isinstance(request, Request):
                        raise WireError(f"expected a Request: {request!r}")
                    channel.send(self._reply(owner, request))
        finally:
            self._sender.channel = None
            channel.close()
            self._headless(True)
            if self.owner is not None and self._peers is not None and self._peers.api:
                self.owner.api_says([ApiDown()])  # the main process has ended

    def _before(self) -> Before:
        """It took about a second from the start of this one until it arrived."""
        return Before() if self.ended is None else Before(self.ended[0], boottime() - self.ended[1])

    async def _begin(self, spec: Spec, stack: AsyncExitStack) -> SharedOwner:
        if spec.peers is not None:
            self._keys = _keys(spec.peers.secrets)
        if self.owner is None:
            self._peers = spec.peers
            self.owner = owner = await stack.enter_async_context(self._owner(spec))
            tasks: dict[str, Callable[[], Awaitable[None]]] = {
                "counts": self.events.run,
                "wire loop": partial(watch_loop, self.events.loop_delay),
            }
            if spec.peers is not None:
                tasks["carrier"] = partial(follow_carrier, owner, self.events)
            for task, work in tasks.items():
                await stack.enter_async_context(at_work(task, work, self.events))
        self._headless(True)
        return self.owner

    def _owner(self, spec: Spec) -> SharedOwner:
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
        pace = TAKE_OVER if spec.take_over else AS_USUAL
        layer2 = partial(Links, pace=pace, in_kernel=_in_kernel(peers) if spec.in_kernel else None)
        group = Group(peers.group if peers is not None else "")
        return SharedOwner(machine, self._open_hellos, boottime, self.events, layer2, group)

    def _open_hellos(self, link: Link, count: Callable[[Enum | None, int], None]) -> Hellos:
        assert self._peers is not None  # otherwise there is nobody to hear them
        return Hellos(link, lambda: self._keys, self._peers.ethertype, boottime, count, Group(self._peers.group))

    def _reply(self, owner: SharedOwner, request: Request) -> Reply:
        number, command, arguments, named = request
        try:
            if command not in NAMES:
                raise WireError("no such command")
            if command in WITH_PEERS and self._peers is None:
                raise WireError("this node is alone")
            result = getattr(self if hasattr(Conversation, command) else owner, command)(*arguments, **named)
            if command == Commands.offer.__name__:
                freeze_new()
            return Reply(number, result)
        except BUGS as error:
            self.events.internal_error("wire command", error)
            return Reply(number, None, f"{command}: {type(error).__name__}: {error}")

    def _headless(self, on: bool) -> None:
        """Whether there is no working main process: said to peers, and after a time without one to the next."""
        if self.owner is not None:
            self.owner.machine.headless = on
        if self._outlived and not on:
            self._outlived = False
            self.events.tell(EdgeRecovered("outlive"))

    # ── ``Commands`` ──

    def offered_all(self) -> None:
        freeze_new()
        self.is_all_offered = True
        self._headless(False)

    def hold_lock(self) -> None:
        if self._lock is not None:
            self._lock.hold()

    def progress(self, loops: Mapping[str, float], where: str) -> None:
        self.main_progress.heard(loops, where)

    def keys(self, secrets: tuple[bytes, ...]) -> None:
        if self.owner is not None:
            self.owner.look()  # what waits was signed with the keys used until now
        self._keys = _keys(secrets)


def _in_kernel(peers: PeerSpec | None) -> InKernel:
    from speaker.layer2.kernel import KernelResponder
    from speaker.layer2.kernel_program import HelloFrames

    hellos = None if peers is None else HelloFrames(peers.ethertype, FLAGS_AT, ROUTINE, magic(Group(peers.group)))
    return partial(KernelResponder, hellos=hellos)


def _keys(secrets: tuple[bytes, ...]) -> Keys:
    return Keys(*(Key(secret) for secret in secrets))


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
