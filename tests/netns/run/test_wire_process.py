"""The wire process by itself: how it starts, what it says, what it outlives, how it ends."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from speaker.errors import EdgeError, NotDone, WireError
from speaker.model import Gratuitous, Link, Mac, Placement
from speaker.model.events import BugMet, EdgeFailed, EdgeRecovered
from speaker.system.files import Lock, locked
from speaker.wire.fork import STACKS, VARIABLE
from speaker.wire.messages import Began, Channel, Commands, PeerSpec, Spec
from speaker.wire.parent import Main, serve
from speaker.wire.progress import Patience
from speaker.wire.remote import Wire

pytestmark = pytest.mark.netns

SPECS = [Spec("a", None), Spec("a", PeerSpec(0.1, 0x88B5, (b"k" * 32,)))]
HERE = Placement(Link(7777, "none0", Mac(b"\x02\0\0\0\0\x01")), Gratuitous())
"""On a link that there is not: what is held there is told, and no socket is ever opened."""
EIPS = [ip_address(f"192.0.2.{number}") for number in (10, 11, 12)]
SPOTS = dict.fromkeys(EIPS, HERE)


class Told:
    """Keeps what it needs of what it hears."""

    def __init__(self):
        self.replaced, self.errors, self.failures, self.recoveries = [], [], [], []

    def hear(self, event):
        match event:
            case EdgeFailed(edge=edge, error=error):
                self.failures.append((edge, error))
            case EdgeRecovered(edge=edge):
                self.recoveries.append(edge)
            case Began(before=before, found=found) if before.end:
                self.replaced.append((before.end, len(found.held)))
            case BugMet(task=task, words=words):
                self.errors.append((task, words))

    def __getattr__(self, name):
        return lambda *_: None


def sleeper():
    return subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])


class Mains:
    """Main processes: each a process that sleeps, whose part is played here."""

    def __init__(self, *parts):
        self.parts, self.heard = list(parts), []
        self.playing = []

    async def begin(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        part, process = self.parts.pop(0), sleeper()  # in this order: where none is left nothing is started
        self.playing.append(asyncio.create_task(self._play(part, process, theirs)))
        return Main(process, ours)

    async def _play(self, part, process, end):
        told = Told()
        self.heard.append(told)
        try:
            async with Wire(end, SPECS[self.peers], told, [told]) as wire:
                watching = asyncio.create_task(wire.watch(lambda: process.send_signal(signal.SIGTERM)))
                try:
                    return await part(wire)
                finally:
                    watching.cancel()
        finally:
            process.kill()

    peers = 0


async def served(mains, outlive=30.0):
    """The exit code, and what each part came to."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "lock"
        code = await serve(mains.begin, Lock(path, locked(path)), outlive)
    return code, [await one for one in mains.playing]


async def offer(wire):
    await wire.offer(SPOTS, [HERE.link], frozenset())
    return wire.held, {eip: wire.offered(eip) for eip in EIPS}


async def look(wire):
    return wire.held, {eip: wire.offered(eip) for eip in EIPS}


async def withdraw(wire):
    held, offered = await settle(wire)
    await wire.withdraw_except({})
    return held, offered


async def settle(wire):
    """The next one finds what was: and says the same."""
    await wire.ready()  # what it was told first has come by then
    found = await look(wire)
    await wire.offer(SPOTS, [HERE.link], frozenset())
    return found


@pytest.mark.parametrize("peers", [0, 1], ids=["alone", "with peers"])
def test_with_nothing_offered_it_is_ready_and_ends_with_its_main_process(peers):
    mains = Mains(Wire.ready)
    mains.peers = peers
    assert asyncio.run(served(mains)) == (137, [True])


def test_the_next_main_process_finds_what_the_one_before_had_offered():
    mains = Mains(offer, settle, withdraw)
    code, found = asyncio.run(served(mains))
    whole = frozenset(EIPS), SPOTS
    assert (code, found) == (137, [whole] * 3)
    assert [told.replaced for told in mains.heard] == [[]] + [[("killed by SIGKILL", 3)]] * 2


@pytest.mark.parametrize(
    "error",
    [OSError(12, "Cannot allocate memory"), MemoryError(), RuntimeError("can't start new thread")],
    ids=lambda error: type(error).__name__,
)
def test_one_that_cannot_be_started_is_tried_again_and_what_was_offered_stands(error):
    mains = Mains(offer, settle, withdraw)
    begin, refusals = mains.begin, [None, error, error]

    async def begin_in_vain():
        if refusals and (refusal := refusals.pop(0)) is not None:
            raise refusal
        return await begin()

    mains.begin = begin_in_vain
    code, found = asyncio.run(served(mains))
    assert code == 137
    assert found[1:] == [found[0]] * 2


def test_a_command_that_meets_a_bug_is_told_and_the_next_is_obeyed():
    async def part(wire):
        with pytest.raises(WireError, match="offer"):
            await wire._ask(Commands.offer, "no mapping")
        return await wire.ready()

    mains = Mains(part)
    assert asyncio.run(served(mains)) == (137, [True])
    ((task, words),) = mains.heard[0].errors
    assert task == "wire command"
    assert "AttributeError" in words


class Strange(Mains):
    """Where there is no part, one plays that speaks another language."""

    async def _play(self, part, process, end):
        if part is not None:
            return await super()._play(part, process, end)
        channel = await Channel.over(end)
        channel.send(("who", "are", "you"))
        async for _ in channel.messages():
            pass
        channel.close()
        process.wait()
        return None


def test_a_main_process_of_another_release_is_ended_and_the_next_one_tried():
    code, found = asyncio.run(served(Strange(offer, None, withdraw)))
    assert (code, found[-1]) == (137, (frozenset(EIPS), SPOTS))


def test_its_death_is_told():
    async def ask():
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        theirs.close()
        async with Wire(ours, SPECS[0], Told()) as wire:
            await wire.watch()

    with pytest.raises(EdgeError, match="the wire process ended by itself"):
        asyncio.run(ask())


def test_asked_to_stop_while_there_is_nobody_to_tell_it_ends():
    async def part(wire):
        await offer(wire)
        os.kill(os.getpid(), signal.SIGTERM)

    code, _ = asyncio.run(served(Mains(part)))
    assert code == 137


# ── one that lives and does not work ──

STUCK = 2.0
"""Seconds at one step, instead of a minute and a half."""


async def hang(wire):
    """It has offered all that it had, and says nothing any more."""
    await offer(wire)
    await asyncio.Event().wait()


async def hang_in_a_loop(wire):
    """All its loops get on but one."""
    await offer(wire)
    stood = 0.0
    while True:
        stood += 0.5
        await wire.progress({"reconcile": stood, "publish": 0.5}, "Loop reconcile:\n  in settle")
        await asyncio.sleep(0.5)


async def work(wire):
    await offer(wire)
    for _ in range(int(3 * STUCK / 0.2)):
        await wire.progress({"reconcile": 0.2}, "")
        await asyncio.sleep(0.2)
    await wire.withdraw_except({})


async def served_patiently(mains):
    with TemporaryDirectory() as directory:
        path = Path(directory) / "lock"
        code = await serve(mains.begin, Lock(path, locked(path)), 30.0, Patience(STUCK))
    for each in mains.playing[:-1]:
        each.cancel()
    await asyncio.wait(mains.playing, timeout=10)
    return code


@pytest.mark.parametrize(
    ("part", "why"), [(hang, "nothing was heard of it for 2 s"), (hang_in_a_loop, "reconcile for 2 s")]
)
def test_a_main_process_that_does_not_get_on_is_replaced_and_the_next_one_says_why(part, why):
    mains = Mains(part, withdraw)
    asyncio.run(served_patiently(mains))
    _, told = mains.heard
    ((end, held),) = told.replaced
    assert end.startswith(f"it made no progress ({why}), killed by")
    assert held == 3, "what was offered stands meanwhile"
    assert told.errors == [("main process", f"it made no progress ({why}) and was replaced")]


def test_a_main_process_that_gets_on_is_left_alone():
    mains = Mains(work)
    asyncio.run(served_patiently(mains))
    assert mains.heard[0].replaced == []


async def hang_at_the_start(wire):
    """It never says what may be held here."""
    await asyncio.Event().wait()


def test_a_first_start_that_hangs_is_followed_by_another_that_gets_twice_as_long(capfd):
    mains = Mains(hang_at_the_start, work)
    assert asyncio.run(served_patiently(mains)) == 137
    why = "it made no progress (nothing was heard of it for 2 s)"
    ((end, _),) = mains.heard[1].replaced
    assert end.startswith(f"{why}, killed by")
    said = [json.loads(line) for line in capfd.readouterr().err.splitlines() if "made no progress" in line]
    assert said[0]["message"] == f"main process: {why} and was replaced", "at once: nobody may come so far as to tell"


def test_a_first_start_for_which_there_is_no_time_is_tried_again():
    mains = Mains(withdraw)
    begin, refusals = mains.begin, [NotDone("the host is busy")] * 2

    async def begin_late():
        if refusals:
            raise refusals.pop()
        return await begin()

    mains.begin = begin_late
    assert asyncio.run(served(mains))[0] == 137
    assert not refusals


def test_one_that_cannot_be_started_ends_it_with_nothing_offered():
    async def begin():
        raise OSError(12, "Cannot allocate memory")

    mains = Mains()
    mains.begin = begin
    with pytest.raises(OSError, match="Cannot allocate"):
        asyncio.run(served(mains))


def test_what_it_meets_in_its_last_moments_is_in_the_log(capfd):
    async def part(wire):
        await offer(wire)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(WireError, match="offer"):
            await wire._ask(Commands.offer, "no mapping")

    asyncio.run(served(Mains(part)))
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if "internal error" in line]
    assert [line["task"] for line in lines] == ["wire command"]
    assert "AttributeError" in lines[0]["traceback"]


LOOPING = """
import os, threading
from speaker.wire.fork import inherited
end = inherited()
def settle_for_ever():
    end.send(b"1")
    while True:
        pass
threading.Thread(target=settle_for_ever, daemon=True).start()
end.recv(1)
"""


def test_the_stacks_of_all_threads_are_seen_also_of_one_that_never_lets_go():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    stacks = os.memfd_create("stacks")
    environment = {**os.environ, VARIABLE: str(theirs.fileno()), STACKS: str(stacks)}
    descriptors = [theirs.fileno(), stacks]
    process = subprocess.Popen([sys.executable, "-c", LOOPING], pass_fds=descriptors, env=environment)
    main = Main(process, ours, stacks)
    try:
        ours.settimeout(30)
        assert ours.recv(1)
        shown = asyncio.run(main.show_stacks())
    finally:
        process.kill()
        process.wait()
        main.close()
        ours.close()
        theirs.close()
    assert "in settle_for_ever" in shown
    assert "in <module>" in shown


# ── after --outlive ──


async def end_at_once(wire):
    """It comes, and never says what may be held here."""
    await wire.ready()


def test_alone_it_goes_on_answering_after_the_time_to_outlive_a_main_process_and_says_so(capfd):
    mains = Mains(offer, end_at_once, end_at_once, end_at_once, settle, withdraw)
    _, found = asyncio.run(served(mains, outlive=0.0))
    assert [one[0] for one in (found[0], *found[-2:])] == [frozenset(EIPS)] * 3, "it has held them all the time"
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if "outlive" in line]
    assert [line["level"] for line in lines] == ["error"] * 2, "once each time that it comes to that"
    assert [edge for edge, _ in mains.heard[-2].failures] == ["outlive"], "a problem, until everything is said"
    assert mains.heard[-2].recoveries == ["outlive"]


def test_with_peers_of_which_none_lives_it_goes_on_answering():
    mains = Mains(offer, end_at_once, end_at_once, withdraw)
    mains.peers = 1
    _, found = asyncio.run(served(mains, outlive=0.0))
    assert set(found[-1][1].values()) == {HERE}, "it is offered all the time"
