"""``speaker run`` and ``speaker agent`` as an operating system sees them: the wire process is the first one, and starts
the main process beside itself, again and again.

::

    cli.py ── fork.py ──► wire process (this file, process.py) ── start() ──► main process: cli.py again, node/host.py
                 │               ▲ SIGTERM
                 └──► the first main process       socket pair: messages.py, remote.py

In a pod the first process must live for the others to live. What must never be late is also the least likely to die:
it goes on with what it was last offered when the main process is killed or fails, and the next one takes it over.
"""

import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple, TypeAlias

from speaker.errors import EdgeError, NotDone
from speaker.model.events import BugMet, LinkLost
from speaker.system.files import Lock
from speaker.system.garbage import OUT_OF_MEMORY
from speaker.system.process import take_priority
from speaker.system.supervise import BUGS, contained, described, heed_callbacks, wait
from speaker.system.threads import Threads, start_threads
from speaker.system.waiting import boottime, set_within
from speaker.telemetry.lateness import run
from speaker.wire.fork import SHOW_STACKS, STACKS, VARIABLE, Copy, First, obey_only
from speaker.wire.process import OUTLIVED, Conversation
from speaker.wire.progress import MainProgress, Patience

STACKS_SECONDS = 0.5
"""How long a main process gets to show its stacks."""
MOST_STACKS = 16384
"""How many bytes of them are reported."""
LOOK_SECONDS = 5.0
"""Time between two looks at the main process's progress, or half its limit if that is shorter."""
ENDING_SECONDS = 10.0
"""A main process that ends gets so long before it is killed."""
COLLECTED = 20_000, 20, 100
"""Thresholds of the garbage collector: there is little garbage, and looking at 10,000 EIPs takes it 30 ms."""


_STARTER = Threads(1, "start", take_priority)
"""Waits until a new process runs, and until the kernel has cleared away one that ended. On a busy host either may take
a second, because whoever holds a kernel lock may be kept from the CPU. The thread stays, as the main process would end
with the thread that started it (prctl(2), PR_SET_PDEATHSIG)."""
POLL_SECONDS = 0.05
"""Time between two checks whether a main process has ended, if the kernel cannot notify us."""
_THREADS = 4
"""For other slow work: asking the kernel for carriers, closing sockets."""


class Main(NamedTuple):
    """One main process, and our end of the connection to it."""

    process: subprocess.Popen[bytes] | Copy
    end: socket.socket
    stacks: int | None = None
    """A file to which it writes its stacks when it is asked or crashes."""

    async def show_stacks(self) -> str:
        """Where its threads are; '' if it cannot say."""
        with suppress(OSError):
            self.process.send_signal(SHOW_STACKS)
        await asyncio.sleep(STACKS_SECONDS)
        return self.shown

    @property
    def shown(self) -> str:
        """What it has written there."""
        try:
            return os.pread(self.stacks, MOST_STACKS, 0).decode(errors="replace") if self.stacks is not None else ""
        except OSError:
            return ""

    def close(self) -> None:
        if self.stacks is not None:
            os.close(self.stacks)

    def discard(self) -> None:
        """It came when nobody waited for it any more."""
        self.process.kill()
        self.end.close()
        self.close()
        self.process.wait()

    async def ended(self) -> str:
        """Waits for its end. Returns how it ended, in words."""
        loop = asyncio.get_running_loop()
        try:
            number = os.pidfd_open(self.process.pid)
        except OSError:  # no descriptor is left
            await self._polled()
        else:
            try:
                over = asyncio.Event()
                loop.add_reader(number, over.set)
                await over.wait()
                loop.remove_reader(number)
            finally:
                os.close(number)
        try:
            code = await _STARTER.run(self.process.wait)
        except EdgeError:  # no thread for it is available in time
            code = await self._polled()
        if code == OUT_OF_MEMORY:
            return "it used more memory than it may"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    async def _polled(self) -> int:
        while (code := self.process.poll()) is None:  # noqa: ASYNC110 -- the kernel cannot wake us
            await asyncio.sleep(POLL_SECONDS)
        return code

    @property
    def exit_code(self) -> int:
        """As a shell reports it."""
        code = self.process.returncode
        return 128 - code if code < 0 else code


Begin: TypeAlias = Callable[[], Awaitable[Main]]


async def start(arguments: Sequence[str]) -> Main:
    """Run ``speaker ARGUMENTS`` as the main process."""
    return await _STARTER.run(partial(_started, arguments), too_late=Main.discard)


def _started(arguments: Sequence[str]) -> Main:
    with ExitStack() as unless_it_starts:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        unless_it_starts.callback(ours.close)
        with theirs:
            stacks = os.memfd_create("stacks")
            unless_it_starts.callback(os.close, stacks)
            process = subprocess.Popen(
                (sys.executable, *(f"-W{option}" for option in sys.warnoptions), "-P", "-m", "speaker", *arguments),
                pass_fds=[theirs.fileno(), stacks],
                stdin=subprocess.DEVNULL,
                env={**os.environ, VARIABLE: str(theirs.fileno()), STACKS: str(stacks)},
                preexec_fn=partial(obey_only, os.getpid()),
            )
        unless_it_starts.pop_all()
    return Main(process, ours, stacks)


async def serve(begin: Begin, lock: Lock, outlive: float, patience: Patience | None = None) -> int:
    """Runs until SIGTERM or SIGINT, or until a main process ends on its own with nothing offered. Returns the exit
    code. A main process that is only slow is followed by another, with a longer limit.

    While there is none, what was offered last is answered for. ``outlive`` seconds after the end of the last one that
    had offered everything, EIPs that a peer with a working main process can take over are given up.
    """
    talk, stopping = Conversation(lock), asyncio.Event()
    heed_callbacks(talk.events)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopping.set()
        talk.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    failures, alone_since, patience = 0, boottime(), patience or Patience()
    async with AsyncExitStack() as stack:
        stack.callback(_tell_untold, talk)  # when all else is over
        while True:
            begun = boottime()
            words, code, slow = await _one(begin, talk, stopping, stack, patience)
            gone = boottime()
            if stopping.is_set() or not (talk.offered or slow):
                return code
            if talk.is_all_offered or (gone - begun >= outlive and not slow):
                failures, alone_since = 0, gone
            failures += 1
            left = alone_since + outlive - boottime()
            await set_within(stopping, min(wait(failures), left) if left > 0 else wait(failures))
            if boottime() >= alone_since + outlive and talk.forsake():
                _say(OUTLIVED)
            talk.ended = words, gone


def _say(words: str, stacks: str = "") -> None:
    _log("wire process", message=words, stacks=stacks)


def _log(event: str, **fields: object) -> None:
    """Logs what no main process can report. Raises nothing."""
    with suppress(*BUGS):
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"event": event, **fields, "level": "error", "timestamp": now}
        sys.stderr.write(json.dumps({name: value for name, value in line.items() if value}, default=str) + "\n")


class _LastWords:
    """A supervisor that works without anybody listening."""

    def internal_error(self, task: str, error: BaseException) -> None:
        _log_bug(BugMet(task, *described(error)))


def _log_bug(bug: BugMet) -> None:
    _log("internal error", task=bug.task, error=bug.words, place=bug.place, traceback=bug.trace)


def _tell_untold(talk: Conversation) -> None:
    """Logs what nobody has heard, and nobody will."""
    heed_callbacks(_LastWords())
    with contained("last words", _LastWords()):
        untold, again = talk.events.last_words()
        for each in untold:
            match each:
                case BugMet():
                    _log_bug(each)
                case LinkLost():
                    _log("link lost", link=each.link.name, error=each.error)
        for task, count in again.items():
            _log("internal error", task=task, again=count)


async def _one(
    begin: Begin, talk: Conversation, stopping: asyncio.Event, stack: AsyncExitStack, patience: Patience
) -> tuple[str, int, bool]:
    """The life of one main process. Returns how it ended, in words and as an exit code, and whether it was too slow."""
    if stopping.is_set():
        return "", 0, False
    try:
        main = await begin()
    except Exception as error:  # without memory nearly any exception may be raised
        if not (talk.offered or isinstance(error, NotDone)):
            raise
        why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        words = f"it could not be started: {why}"
        if not talk.offered:
            _say(f"main process: {words}")
        return words, 1, True
    ending = asyncio.create_task(main.ended())
    interrupting = asyncio.create_task(_interrupt(main, talk, stopping))
    watching = asyncio.create_task(_replace_if_stuck(main, talk, patience.seconds))
    why = ""
    try:
        await talk.hold(main.end, stack)
    except Exception as error:  # it may have another version than this process
        if not talk.offered:
            raise
        why = f"its message was not understood ({type(error).__name__}: {error}), "
        main.process.kill()
    words = await _end(main, ending)
    watching.cancel()
    await asyncio.wait((watching,))
    stuck = not watching.cancelled() and watching.exception() is None
    patience.ended(stuck=stuck, worked=talk.is_all_offered)
    if stuck:
        late, stacks = watching.result()
        why = f"it made no progress ({late}), "
        told = f"it made no progress ({late}) and was replaced"
        talk.events.replaced(told, stacks)
        if not talk.offered:  # perhaps nobody else gets to report it
            _say(f"main process: {told}", stacks)
    elif crash := main.shown:
        talk.events.replaced(words, crash)
    main.close()
    interrupted = interrupting.done()
    interrupting.cancel()
    with contained("main process", talk.events):
        await _STARTER.run(_reap)
    return why + words, 0 if interrupted else main.exit_code, stuck


async def _replace_if_stuck(main: Main, talk: Conversation, limit: float) -> tuple[str, str]:
    """Returns why it was replaced, and where its threads and loops stood. Endless while it makes progress."""
    progress, why, look = MainProgress(limit), None, min(LOOK_SECONDS, limit / 2)
    talk.main_progress = progress
    while why is None:
        await asyncio.sleep(look)
        with contained("progress", talk.events):
            progress.pass_by(look)
            why = progress.stuck
    stacks = "\n".join(filter(None, [progress.where, await main.show_stacks()]))
    main.process.kill()
    with suppress(OSError):
        main.end.shutdown(socket.SHUT_RDWR)  # nothing from it is heard any more
    return why, stacks[:MOST_STACKS]


async def _end(main: Main, ending: asyncio.Task[str]) -> str:
    """Its end of the connection is closed: it ends on its own within ``ENDING_SECONDS``, or it is killed."""
    await asyncio.wait((ending,), timeout=ENDING_SECONDS)
    if not ending.done():
        main.process.kill()
    return await ending


def _reap() -> None:
    """If we are the first process of a container, what a killed main process had started is ours now."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


async def _interrupt(main: Main, talk: Conversation, stopping: asyncio.Event) -> None:
    """A main process that is asked to stop before it can hear has nothing to hand over. Endless for one that
    can hear."""
    await stopping.wait()
    if talk.listened:
        await asyncio.Event().wait()
    main.process.kill()


async def _with_threads(work: Awaitable[int]) -> int:
    """Starts all threads there will be, with our priority: answers wait for a thread that holds the interpreter's lock
    or is just starting, and so for whatever keeps that thread from the CPU."""
    with suppress(EdgeError):  # a host that has no threads left: what needs one says so
        start_threads(_THREADS, take_priority)
    return await work


def become(first: First, arguments: Sequence[str], outlive: float) -> int:
    """Becomes the wire process of ``speaker ARGUMENTS``. Returns the exit code."""
    mains = iter((Main(first.process, first.end, first.stacks),))

    async def begin() -> Main:
        return next(mains, None) or await start(arguments)

    gc.set_threshold(*COLLECTED)
    take_priority()
    return run(_with_threads(serve(begin, first.lock, outlive)))
