"""The loop that answers: one per link and family."""

import asyncio
from collections import Counter
from collections.abc import Callable

from speaker.layer2.answer import Ignored
from speaker.layer2.claims import Claims
from speaker.layer2.observer import Observer
from speaker.layer2.wire import PacketSocket
from speaker.model import Family

BATCHES_A_TURN = 4
"""Of up to 64 packets: a millisecond at most. Going through the event loop once costs as much as ten answers."""


class Responder:
    """Answers what arrives on ``socket`` by ``answer``; ``clock`` is the one ``claims.deadline`` is measured by."""

    def __init__(
        self,
        family: Family,
        socket: PacketSocket,
        answer: Callable[[bytes, int, Claims, float], bytes | Ignored],
        claims: Claims,
        clock: Callable[[], float],
        observer: Observer,
    ) -> None:
        self._family, self._socket, self._answer, self._claims = family, socket, answer, claims
        self._clock, self._observer = clock, observer

    async def serve(self) -> None:
        """Until cancelled; raises EdgeError when the link goes away.

        The work happens in the event loop's own callback, a few batches a turn: other tasks get theirs in between
        however fast requests come, and no task switch is paid per batch.
        """
        loop = asyncio.get_running_loop()
        failed: asyncio.Future[None] = loop.create_future()

        def on_readable() -> None:
            try:
                self._answer_turn()
            except BaseException as error:  # whatever it is belongs to the task, not to the loop's exception handler
                loop.remove_reader(self._socket)
                failed.set_exception(error)

        loop.add_reader(self._socket, on_readable)
        try:
            await failed
        finally:
            loop.remove_reader(self._socket)

    def _answer_turn(self) -> None:
        for _ in range(BATCHES_A_TURN):
            packets = self._socket.receive()
            if not packets:
                return
            self._answer_batch(packets)

    def _answer_batch(self, packets: list[tuple[bytes, int]]) -> None:
        now = self._clock()
        answer, claims = self._answer, self._claims
        outcomes = [answer(frame, pkttype, claims, now) for frame, pkttype in packets]
        replies = [outcome for outcome in outcomes if isinstance(outcome, bytes)]
        if replies:
            self._send(replies)
        if len(replies) < len(outcomes):
            for reason, count in Counter(outcome for outcome in outcomes if isinstance(outcome, Ignored)).items():
                self._observer.ignored(self._family, reason, count)

    def _send(self, replies: list[bytes]) -> None:
        if self._claims.expired(self._clock()):  # frozen since the batch was read: another may answer by now
            self._observer.ignored(self._family, Ignored.CLAIM_EXPIRED, len(replies))
            return
        taken = self._socket.send(replies)
        self._observer.answered(self._family, taken)
        if taken < len(replies):  # not worth waiting for: the askers ask again
            self._observer.send_failed(self._family, len(replies) - taken)
