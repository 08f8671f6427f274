"""The loop that answers: one per link and family."""

import asyncio
import math
import time
import typing
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from speaker.errors import EdgeError
from speaker.layer2.answer import Ignored, Rival, in_time
from speaker.layer2.claims import Claims
from speaker.layer2.observer import Observer
from speaker.layer2.probe import AS_USUAL, Pace
from speaker.layer2.sockets.packet_socket import Received
from speaker.model import Family, Mac
from speaker.model.events import Answers, Ignorings, SendFailures
from speaker.system.supervise import BUGS, contained

BATCHES_A_TURN = 4
"""Of up to 64 packets: a millisecond at most. Going through the event loop once costs as much as ten answers."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """What differs between ARP and NDP: the decision, and who a packet it called a conflict speaks for."""

    family: Family
    answer: Callable[[bytes, int, Claims, float], bytes | Ignored]
    rival: Callable[[bytes, Claims], Rival | None]


@dataclass(frozen=True, slots=True)
class AnswerPolicy:
    """How the owner wants requests answered.

    ``before`` is called when some were received, before any of them is answered: news that reached this host earlier by
    another way can still change the claims. Those that waited longer than ``oldest`` seconds are not answered.
    ``excuses`` says of a link's index, an EIP and a peer's MAC whether that peer may speak for the EIP: it claims it,
    or did lately. Its hello may be lost and come later: it is asked again after ``trial`` seconds. ``ours``: whether a
    MAC is one of this host's.
    ``found`` hears of a link's index, an EIP that is not answered yet, and the MAC that answers a probe for it.
    ``failed`` hears of a link's index and an EIP that a bug of ours keeps from being answered for.
    ``pace``: of the probes.
    """

    before: Callable[[], None] = lambda: None
    oldest: float = math.inf
    excuses: Callable[[int, bytes, Mac], bool] = lambda link, address, mac: True
    trial: float = 0.0
    ours: Callable[[Mac], bool] = lambda mac: False
    found: Callable[[int, bytes, Mac], None] = lambda link, address, mac: None
    failed: Callable[[int, bytes], None] = lambda link, address: None
    pace: Pace = AS_USUAL


class Requests(typing.Protocol):
    """Where requests come from and replies go to: a ``PacketSocket``, or what stands in for one (``proof.py``)."""

    def fileno(self) -> int: ...

    def receive(self) -> Received: ...

    def discard(self) -> None: ...

    def send(self, frames: Sequence[bytes]) -> int: ...


class Responder:
    """Answers what arrives on ``socket``; ``clock`` is the one ``claims.deadline`` is measured by. ``dispute`` hears of
    every rival, ``suspect`` of every peer that speaks for an EIP of ours."""

    def __init__(
        self,
        protocol: Protocol,
        socket: Requests,
        claims: Claims,
        policy: AnswerPolicy,
        dispute: Callable[[Rival], None],
        suspect: Callable[[Rival], None],
        clock: Callable[[], float],
        observer: Observer,
    ) -> None:
        self._protocol, self._socket, self._claims, self._policy = protocol, socket, claims, policy
        self._hears = {Ignored.CONFLICT: dispute, Ignored.PEER: suspect}
        self._clock, self._observer = clock, observer
        self._over = asyncio.Event()
        self._error: BaseException | None = None
        self._unprepared = 0
        """Batches in a row before which ``AnswerPolicy.before`` met a bug of ours."""

    async def serve(self) -> None:
        """Until cancelled; raises EdgeError when the link goes away.

        The work happens in the event loop's own callback, a few batches a turn: other tasks get theirs in between
        however fast requests come, and no task switch is paid per batch.
        """
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket, self._do, self.answer_turn)
        try:
            await self._over.wait()
            if self._error is not None:
                raise self._error
        finally:
            loop.remove_reader(self._socket)
            self._over.set()
            self._error = None  # its traceback holds us

    @property
    def is_over(self) -> bool:
        """It answers nothing any more."""
        return self._over.is_set()

    def drop_queued(self) -> None:
        """Drops unread whatever is waiting to be answered."""
        self._do(self._socket.discard)

    def _do(self, work: Callable[[], None]) -> None:
        if self._over.is_set():
            return
        try:
            work()
        except BaseException as error:  # whatever it is belongs to the task, not to the loop's exception handler
            self.end(error)

    def end(self, error: BaseException) -> None:
        """Answer nothing any more: ``serve`` raises this."""
        self._error = error
        self._over.set()

    def answer_turn(self) -> None:
        """What waits, some batches of it."""
        for _ in range(BATCHES_A_TURN):
            received = self._socket.receive()
            if not received.frames:
                return
            self._unprepared += 1
            with contained("answer", self._observer):
                self._policy.before()
                self._unprepared = 0
                self._answer_batch(received)
            if self._unprepared > 1:  # a hello promises answers
                raise EdgeError("requests are not answered")

    def _answer_batch(self, received: Received) -> None:
        outcomes = self._outcomes(received, self._clock())
        wall = time.time()
        if received.oldest(wall) > self._policy.oldest:
            outcomes = in_time(outcomes, received.ages(wall), self._policy.oldest)
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
        except BUGS as error:  # one packet that meets a bug of ours keeps no other from its answer
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
        if self._claims.expired(self._clock()):  # frozen since the batch was read: another may answer by now
            self._observer.count(Ignorings(family, Ignored.CLAIM_EXPIRED), len(replies))
            return
        try:
            taken = self._socket.send(replies)
        except EdgeError as error:  # no bug: the link went down since the batch was read
            self.end(error)
            return
        self._observer.count(Answers(family), taken)
        if taken < len(replies):  # not worth waiting for: the askers ask again
            self._observer.count(SendFailures(family), len(replies) - taken)

    def _tell(self, frames: list[bytes], outcomes: list[bytes | Ignored]) -> None:
        reasons = Counter(outcome for outcome in outcomes if isinstance(outcome, Ignored))
        for reason, count in reasons.items():
            self._observer.count(Ignorings(self._protocol.family, reason), count)
        if reasons.keys().isdisjoint(self._hears):
            return
        for frame, outcome in zip(frames, outcomes, strict=True):
            hears = self._hears.get(outcome) if isinstance(outcome, Ignored) else None
            if hears is not None and (rival := self._protocol.rival(frame, self._claims)) is not None:
                hears(rival)
