"""The loop that answers, one per link and family; and the proof that it does.

A test request of our own goes the same way as all others (ownership rule 35), up to where a reply would be sent. It
passes everything that answers clients: the same ``Responder``, the same decision, the same claims.
"""

import asyncio
import select
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from typing import Protocol as Interface
from typing import TypeAlias

from speaker.errors import EdgeError
from speaker.layer2.answer import Claims, Ignored, Rival, in_time
from speaker.layer2.filter import FilterTracker
from speaker.model import Family, Mac
from speaker.model.events import (
    Announcements,
    Answers,
    Conflict,
    Event,
    Ignorings,
    JoinFailed,
    KernelAnswers,
    SendFailures,
    SocketsAnswer,
)
from speaker.packets import PACKET_BROADCAST, arp, ndp
from speaker.packets.packet_socket import NOTHING, PacketSocket, Received
from speaker.system.supervise import BUGS, Supervisor, contained
from speaker.system.waiting import Wakeup

BATCHES_A_TURN = 4
"""Of up to 64 packets: at most a millisecond. One round of the event loop costs as much as ten answers."""


Clock: TypeAlias = Callable[[], float]
"""Returns seconds of CLOCK_BOOTTIME."""


class Observer(Supervisor, Interface):
    """Hears what layer 2 reports (``wire/process.py`` passes it to the main process). Called at most a few times per
    batch of packets, from the event loop: must be quick and must not raise."""

    def tell(self, event: Conflict | JoinFailed | SocketsAnswer) -> None: ...

    def count(self, what: Answers | KernelAnswers | Ignorings | Announcements | SendFailures, number: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Protocol:
    """The differences between ARP and NDP: the decision, and which EIP a packet claims that is called a conflict."""

    family: Family
    answer: Callable[[bytes, int, Claims, float], bytes | Ignored]
    rival: Callable[[bytes, Claims], Rival | None]


class Requests(Interface):
    """Where requests come from and replies go: a ``PacketSocket``, or a test request of our own."""

    def fileno(self) -> int: ...

    def receive(self) -> Received: ...

    def discard(self) -> None: ...

    def send(self, frames: Sequence[bytes]) -> int: ...


class Asked(Interface):
    """On whose behalf requests are answered: a ``LinkResponder``, or a request of our own. ``clock`` is the one that
    the claims' deadline is measured by."""

    clock: Clock

    def prepare(self) -> float:
        """Called when some were received, before any of them is answered: news that reached this host earlier another
        way can still change the claims. Requests that waited longer than the seconds it returns get no answer."""

    def dispute(self, rival: Rival) -> None: ...

    def suspect(self, rival: Rival) -> None:
        """A peer answers for, or announces, one of our EIPs."""


class Responder:
    """Answers what arrives on ``socket``."""

    def __init__(self, protocol: Protocol, socket: Requests, claims: Claims, asked: Asked, observer: Observer) -> None:
        self._protocol, self._socket, self._claims, self._asked = protocol, socket, claims, asked
        self._observer = observer
        self._over = asyncio.Event()
        self._error: BaseException | None = None
        self._unprepared = 0
        """Batches in a row before which ``Asked.prepare`` met a bug of ours."""
        self._waiting, self._progress = select.poll(), Wakeup(asked.clock)

    async def serve(self) -> None:
        """Runs until cancelled. Raises EdgeError when the link goes away.

        The work happens in the event loop's own callback, a few batches a turn: other tasks get their turn in between
        however fast requests come, and no task switch is paid per batch.
        """
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket, self._do, self.answer_turn)
        self._waiting.register(self._socket, select.POLLIN)
        try:
            await self._over.wait()
            if self._error is not None:
                raise self._error
        finally:
            loop.remove_reader(self._socket)
            self._over.set()
            self._error = None  # its traceback refers to us

    @property
    def is_over(self) -> bool:
        """Whether it has stopped answering."""
        return self._over.is_set()

    def drop_queued(self) -> None:
        """Discards, unread, the requests that wait to be answered."""
        self._do(self._socket.discard)

    def _do(self, work: Callable[[], None]) -> None:
        if self._over.is_set():
            return
        try:
            work()
        except BaseException as error:  # whatever it is belongs to the task, not to the loop's exception handler
            self.end(error)

    def end(self, error: BaseException) -> None:
        """Stops answering; ``serve`` then raises this error."""
        self._error = error
        self._over.set()

    def stands_still(self, now: float, seconds: float) -> bool:
        """Something has been waiting to be read for so long, and nothing was."""
        if not self._waiting.poll(0):
            self._progress.turn()
        return self._progress.stands_still(now, seconds)

    def answer_turn(self) -> None:
        """Answers what waits, at most a few batches of it."""
        self._progress.turn()
        for _ in range(BATCHES_A_TURN):
            received = self._socket.receive()
            if not received.frames:
                return
            self._unprepared += 1
            with contained("answer", self._observer):
                oldest = self._asked.prepare()
                self._unprepared = 0
                self._answer_batch(received, oldest)
            if self._unprepared > 1:  # a hello promises answers
                raise EdgeError("requests are not answered")
            if len(received.frames) < PacketSocket.RECEIVE:
                return  # nothing else waits

    def _answer_batch(self, received: Received, oldest: float) -> None:
        outcomes = self._outcomes(received, self._asked.clock())
        wall = time.time()
        if received.oldest(wall) > oldest:
            outcomes = in_time(outcomes, received.ages(wall), oldest)
        replies = [outcome for outcome in outcomes if isinstance(outcome, bytes)]
        if replies:
            self._send(replies)
        if len(replies) < len(outcomes):
            self._tell(received.frames, outcomes)

    def _outcomes(self, received: Received, now: float) -> list[bytes | Ignored]:
        answer, claims = self._protocol.answer, self._claims
        packets = list(zip(received.frames, received.pkttypes, strict=True))
        try:
            return [answer(frame, pkttype, claims, now) for frame, pkttype in packets]
        except BUGS as error:  # a packet that meets a bug of ours must not keep others from their answers
            outcomes = [self._outcome(frame, pkttype, now) for frame, pkttype in packets]
            if Ignored.INTERNAL_ERROR not in outcomes:  # it came once
                self._observer.internal_error("answer", error)
            return outcomes

    def _outcome(self, frame: bytes, pkttype: int, now: float) -> bytes | Ignored:
        try:
            return self._protocol.answer(frame, pkttype, self._claims, now)
        except BUGS as error:
            self._observer.internal_error("answer", error)
            return Ignored.INTERNAL_ERROR

    def _send(self, replies: list[bytes]) -> None:
        family = self._protocol.family
        if self._claims.expired(self._asked.clock()):  # frozen since the batch was read: another node may answer by now
            self._observer.count(Ignorings(family, Ignored.CLAIM_EXPIRED), len(replies))
            return
        try:
            taken = self._socket.send(replies)
        except EdgeError as error:  # not a bug: the link went down since the batch was read
            self.end(error)
            return
        self._observer.count(Answers(family), taken)
        if taken < len(replies):  # not worth waiting for, as the askers ask again
            self._observer.count(SendFailures(family), len(replies) - taken)

    def _tell(self, frames: list[bytes], outcomes: list[bytes | Ignored]) -> None:
        reasons = Counter(outcome for outcome in outcomes if isinstance(outcome, Ignored))
        for reason, count in reasons.items():
            self._observer.count(Ignorings(self._protocol.family, reason), count)
        hears = {Ignored.CONFLICT: self._asked.dispute, Ignored.PEER: self._asked.suspect}
        if reasons.keys().isdisjoint(hears):
            return
        for frame, outcome in zip(frames, outcomes, strict=True):
            hear = hears.get(outcome) if isinstance(outcome, Ignored) else None
            if hear is not None and (rival := self._protocol.rival(frame, self._claims)) is not None:
                hear(rival)


_STAND_IN = {Family.IPV4: IPv4Address("192.0.2.1").packed, Family.IPV6: IPv6Address("2001:db8::1").packed}
"""Asked for if a link holds nothing, with claims that nobody else sees (RFC 5737, RFC 3849)."""
IDLE = 10
"""A family that holds nothing is tested once in so many proofs."""
_ASKER_4, _ASKER_6 = IPv4Address(0), IPv6Address("fe80::2")


class Unproven(Exception):
    """Raised when a request of our own gets no answer, or a wrong one."""


class Proof:
    """Proves that one family is answered on one link, by test requests. ``clock`` returns seconds."""

    def __init__(self, protocol: Protocol, claims: Claims, clock: Clock) -> None:
        self._protocol, self._claims, self._clock = protocol, claims, clock
        stand_in = Claims(claims.mac)
        stand_in.deadline = float("inf")
        stand_in.add(_STAND_IN[protocol.family])
        self._request = asked = _Request(clock)
        self._responder = Responder(protocol, asked, claims, asked, asked)
        self._stand_in = Responder(protocol, asked, stand_in, asked, asked)
        mac = claims.mac
        self._asker = asker = Mac(mac[:5] + bytes((mac[5] ^ 1,)))
        """A MAC that is not ours, to ask from."""
        self._head = asker + mac
        """The beginning of every answer."""
        self._arp = arp.request(asker, _ASKER_4, _ASKER_4).pack()[: -len(_ASKER_4.packed)]
        self._turn: Iterator[bytes] = iter(())
        self.proven: bytes | None = None
        """The EIP of the last proof, if any is answered for."""
        self._asked: bytes | None = None
        """What got no answer, and is asked for again."""
        self._idle = 0
        """Proofs since it last held anything."""

    def give(self, passes: FilterTracker) -> None:
        """Raises what keeps requests from being answered: a bug of ours, or ``Unproven``. The EIPs take turns. If there
        are none, one test in IDLE is enough."""
        self._asked = address = self._next()
        self.proven = None
        if address is None and self._idle % IDLE:
            self._idle += 1
            return
        if address is None or not self._is_answered(address, passes):
            self._stands_in()
        self._asked, self.proven = None, address
        self._idle = self._idle + 1 if address is None else 0

    def question(self, address: bytes) -> tuple[bytes, bytes | Ignored]:
        """A request of our own for it, and the reply that it must get at this moment."""
        request = self._question(address)
        return request, self._protocol.answer(request, PACKET_BROADCAST, self._claims, self._clock())

    def blamed(self, passes: FilterTracker) -> bytes | None:
        """The EIP that got no answer while another one does; None: there is none. Raises like ``give`` if nothing gets
        an answer."""
        if (address := self._asked) is not None:
            others = (other for other in (self._another(), self._another()) if other not in (None, address))
            if (other := next(others, None)) is not None and self._is_answered(other, passes):
                return address
        self._stands_in()
        return address

    def _is_answered(self, address: bytes, passes: FilterTracker) -> bool:
        """False if the deadline has passed."""
        if not passes.lets_through(address):
            raise Unproven("the kernel's filter keeps requests out")
        return self._answers(self._responder, address)

    def _stands_in(self) -> None:
        if not self._answers(self._stand_in, _STAND_IN[self._protocol.family]):
            raise Unproven("answers end before they begin")

    @property
    def _held(self) -> Mapping[bytes, object]:
        return self._claims.arp if self._protocol.family is Family.IPV4 else self._claims.ndp

    def _next(self) -> bytes | None:
        """The next EIP to prove; None if none is answered for."""
        if self._asked is not None and self._held.get(self._asked) is not None:
            return self._asked
        return self._another()

    def _another(self) -> bytes | None:
        held = self._held
        for _ in range(2):
            for address in self._turn:
                if held.get(address) is not None:
                    return address
            self._turn = iter(list(held))
        return None

    def _question(self, address: bytes) -> bytes:
        """An ARP request is always the same, except for its end."""
        if self._protocol.family is Family.IPV4:
            return self._arp + address
        return ndp.solicitation(self._asker, _ASKER_6, IPv6Address(address)).pack()

    def _answers(self, responder: Responder, address: bytes) -> bool:
        """False if the deadline has passed. Raises like ``give``."""
        asked = self._request
        asked.ask(self._question(address))
        responder.answer_turn()
        error, asked.error = asked.error, None  # its traceback refers to what is asked
        if error is not None:
            raise error
        if asked.ignored_as is Ignored.CLAIM_EXPIRED:
            return False
        if not asked.is_answered(self._head, address):
            raise Unproven(f"a request of our own got {asked.ignored_as.value if asked.ignored_as else 'no answer'}")
        return True


class _Request:
    """One request of our own. Stands in for the socket that it comes from and its reply goes to, for the one on whose
    behalf it is answered, and for the observer: it is counted nowhere."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._frames, self._replies = list[bytes](), list[bytes]()
        self.ignored_as: Enum | None = None
        self.error: BaseException | None = None

    def ask(self, frame: bytes) -> None:
        self._frames, self._replies = [frame], []
        self.ignored_as = self.error = None

    def is_answered(self, head: bytes, address: bytes) -> bool:
        """Whether there was exactly one reply: to the asker, from us, about this EIP."""
        return len(self._replies) == 1 and self._replies[0].startswith(head) and address in self._replies[0]

    def fileno(self) -> int:
        return -1

    def discard(self) -> None:
        self._frames = []

    def receive(self) -> Received:
        frames, self._frames = self._frames, []
        if not frames:
            return NOTHING
        return Received(frames, bytearray([PACKET_BROADCAST] * len(frames)), [0] * len(frames), [0] * len(frames))

    def send(self, frames: Sequence[bytes]) -> int:
        self._replies += frames
        return len(frames)

    def internal_error(self, task: str, error: BaseException) -> None:
        self.error = error

    def count(self, what: Event, number: int) -> None:
        if isinstance(what, Ignorings):
            self.ignored_as = what.reason

    def tell(self, event: Event) -> None: ...

    def prepare(self) -> float:
        return float("inf")

    def dispute(self, rival: Rival) -> None: ...

    def suspect(self, rival: Rival) -> None: ...
