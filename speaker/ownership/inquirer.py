"""Edge: asks one link, and listens for a second who answers, and whether anybody speaks there at all.

Two packet sockets, so that a flood of broadcasts drowns no answer. Whatever the LAN sends, the kernel drops what says
nothing new, and the rest is read a few frames at a time. Answers alone wake nobody: unless broadcasts are listened to
as well, they wait until they are read (``read``).
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from speaker.errors import EdgeError
from speaker.model import IPAddress, Link, Mac
from speaker.packets.asker import Asker
from speaker.packets.asking import Answer, answers_to, others_talk, read_answer
from speaker.system.supervise import Supervisor, contained
from speaker.system.threads import in_thread

LISTEN, LISTEN_FOR_ANSWERS = 1.0, 2.5
"""Seconds after the last question until the sockets are closed; and until the one for answers is closed, if only that
was open, which is longer than from one sample to the next (``machine/unanswered.py``)."""
PAUSE = 0.02
"""Seconds in which at most FRAMES are read from each socket, and in which broadcasts of others are reported once."""
FRAMES = 64
FRAMES_THAT_WAIT = 5 * FRAMES
"""Frames read at a time from those that wait: nearly all that the kernel keeps. In a flood, not again before 4 PAUSEs
are over."""
MAX_ASKED = 1024
"""Addresses whose answers are reported while the sockets are open; if there are more, those asked for last."""

_TALK_BUFFER, _ANSWER_BUFFER = 1 << 13, 1 << 17
"""Bytes: one broadcast of others is enough, but no answer must be lost."""


class AsksLinks(Protocol):
    """Interface of the asker. Links are named by their index."""

    def is_ours(self, mac: Mac) -> bool:
        """Whether it is one of this host's MACs."""

    def hear_frame(self, link: int, version: int | None, waited: float | None = None) -> None:
        """Another host was heard within LISTEN seconds of asking others: it answers for an address of this IP version,
        or sent a broadcast (None). ``waited``: for at most so many seconds; None: it has just arrived."""

    def hear_answer(self, link: int, answer: Answer, waited: float | None = None) -> None:
        """Somebody says that an address that was asked for is its own: once for each MAC and turn, at most FRAMES times
        per PAUSE. ``waited``: as above."""


class Inquirer:
    """Asks on ``link``, for ``asker``."""

    def __init__(self, link: Link, asker: AsksLinks, supervisor: Supervisor) -> None:
        self._link, self._asker, self._supervisor = link, asker, supervisor
        self._asked: dict[IPAddress, None] = {}
        self.awaited: set[IPAddress] = set()
        """Of the addresses asked for recently, those without an answer so far. Other answers may wait unread."""
        self._asked_at = float("-inf")
        self._others_until = 0.0
        """Until when answers of others count. At rest, answers to other programs of this host arrive all the time."""
        self._talk: _Listener | None = None
        self._answers: _Listener | None = None
        """Listens as long as the one above is open."""
        self._heard_at: dict[int | None, float] = {}
        self._ends: dict[bool, asyncio.TimerHandle] = {}
        """The end of listening to broadcasts (True), and of all listening."""

    @property
    def listens(self) -> bool:
        """Whether broadcasts are listened to as well."""
        return self._talk is not None

    def open(self, *, talk: bool = True) -> None:
        """Listens for answers from now on, and with ``talk`` also for broadcasts, until LISTEN seconds after the last
        question. Takes a tenth of a millisecond. Raises EdgeError: the link is gone, or there are no descriptors left.
        """
        what, link = f"{self._link.name}: asking", self._link
        try:
            if talk and self._talk is None:
                asker = Asker(what, link.index, others_talk(link.mac), buffer=_TALK_BUFFER)
                self._talk = _Listener(asker, self._take_talk, self._supervisor)
                self._talk.listen()
            if self._answers is None:
                asker = Asker(what, link.index, answers_to(link.mac), buffer=_ANSWER_BUFFER)
                self._answers = _Listener(asker, self._take_answers, self._supervisor)
            if self._talk is not None:
                self._answers.listen()
        except EdgeError:
            self.close()
            raise
        self._stay(talk)

    def read(self, waited: float) -> bool:
        """Reads the answers that wait, for at most so many seconds. Returns whether these are all."""
        if self._answers is None or self._talk is not None:
            return True
        if (frames := self._answers.waiting()) is None:
            return False
        if frames:
            self._take_answers(frames, waited)
        return len(frames) < FRAMES_THAT_WAIT

    def ask(
        self, eips: Iterable[IPAddress], questions: Iterable[bytes], *, talk: bool = True, others: bool = True
    ) -> None:
        """Sends ``questions``, of which some are to ``others``; the asker hears who answers for one of ``eips``. A
        question for which there is no room is asked again, or never. Call ``open`` before, with the same ``talk``.
        Raises EdgeError: the link is down or gone, and everything is closed."""
        now = asyncio.get_running_loop().time()
        if others:
            self._others_until = now + LISTEN
        if now >= self._asked_at + LISTEN:
            self.awaited.clear()
        self._asked_at = now
        if not self.awaited and self._talk is None and self._answers is not None:
            self._answers.asker.drop(FRAMES_THAT_WAIT)  # what came before is not an answer to this
        for eip in eips:
            self._asked.pop(eip, None)
            self._asked[eip] = None
            self.awaited.add(eip)
        while len(self._asked) > MAX_ASKED:
            del self._asked[gone := next(iter(self._asked))]
            self.awaited.discard(gone)
        self._stay(talk)
        try:
            for frame in questions:
                if self._answers is not None:
                    self._answers.asker.send(frame)
        except EdgeError:
            self.close()
            raise

    def _stay(self, talk: bool) -> None:
        later = asyncio.get_running_loop().call_later
        if talk:
            self._end(True, later(LISTEN, self._close_talk))
        if not talk or False not in self._ends:
            self._end(False, later(LISTEN if talk else LISTEN_FOR_ANSWERS, self.close))

    def _end(self, of_talk: bool, end: asyncio.TimerHandle | None) -> None:
        if (before := self._ends.pop(of_talk, None)) is not None:
            before.cancel()
        if end is not None:
            self._ends[of_talk] = end

    def _close_talk(self) -> None:
        self._end(True, None)
        if self._talk is not None:
            self._talk.close()
            self._talk = None
        if self._answers is not None:
            self._answers.rest()

    def close(self) -> None:
        """Closes in another thread: the kernel waits for all its processors before it releases a packet socket,
        15 ms."""
        self._end(False, None)
        self._close_talk()
        if self._answers is not None:
            self._answers.close()
            self._answers = None
        self._asked.clear()
        self.awaited.clear()

    def _take_talk(self, frames: list[bytes]) -> bool:
        if all(self._asker.is_ours(Mac(frame[6:12])) for frame in frames):
            return True
        self._tell_heard(None)
        return False

    def _take_answers(self, frames: list[bytes], waited: float | None = None) -> bool:
        answers = dict.fromkeys(answer for frame in frames if (answer := read_answer(frame)) is not None)
        for answer in answers:
            if self._asker.is_ours(answer.mac):
                continue
            if answer.address in self._asked:
                self.awaited.discard(answer.address)
                self._asker.hear_answer(self._link.index, answer, waited)
            else:
                self._tell_heard(answer.address.version, waited)
        return True

    def _tell_heard(self, version: int | None, waited: float | None = None) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._others_until and now - self._heard_at.get(version, float("-inf")) >= PAUSE:
            self._heard_at[version] = now
            self._asker.hear_frame(self._link.index, version, waited)


class _Listener:
    """Reads one socket. ``take`` gets what was read in a turn, and returns whether there may be more before the next
    PAUSE."""

    def __init__(self, asker: Asker, take: Callable[[list[bytes]], bool], supervisor: Supervisor) -> None:
        self.asker, self._take, self._supervisor = asker, take, supervisor
        self._loop = asyncio.get_running_loop()
        self._left, self._until = 0, 0.0
        self._again: asyncio.TimerHandle | None = None
        self._listens = False

    def listen(self) -> None:
        if not self._listens:
            self._listens = True
            self.asker.listen(self._read)

    def rest(self) -> None:
        """May be called from within ``take``."""
        self._listens = False
        self.asker.rest()
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def waiting(self) -> list[bytes] | None:
        """What waits while it does not listen; None: that was read a moment ago."""
        now = self._loop.time()
        if now < self._until:
            return None
        frames = list(self.asker.frames(FRAMES_THAT_WAIT))
        self._until = now + (PAUSE if len(frames) < FRAMES else 4 * PAUSE)
        return frames

    def _read(self) -> None:
        now = self._loop.time()
        if now >= self._until:
            self._left, self._until = FRAMES, now + PAUSE
        frames = list(self.asker.frames(self._left))
        self._left -= len(frames)
        more = True
        if frames:
            with contained("inquiry", self._supervisor):
                more = self._take(frames)
        if self._listens and (self._left <= 0 or not more):
            self._left = 0
            self.asker.rest()
            self._again = self._loop.call_at(self._until, self.asker.listen, self._read)

    def close(self) -> None:
        """May be called from within ``take``."""
        self.rest()
        closing = self._loop.create_task(in_thread(self.asker.close), name="close")
        closing.add_done_callback(self._let_go)

    def _let_go(self, closing: "asyncio.Task[None]") -> None:
        if not closing.cancelled() and closing.exception() is not None:  # no thread is available
            self.asker.close()
