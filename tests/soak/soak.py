"""An hour (or three minutes) of everything at once: three speakers with 500 Services, and no quiet.

    python tests/soak/soak.py [--seconds N] [--services N] [--seed N] [--api]

Services are edited, deleted and made, endpoints come and go, files are bad (with ``--api``, where agents ask a real
kube-apiserver: it stands still), links flap, rulesets are flushed, main processes are killed, and one speaker dies with
all it has and returns: several things a second, from a seed. What nobody edits is asked for all the time. Every now and
then everything is left alone: then each EIP that anybody may hold is to be answered by exactly one MAC, that of a node
that may hold it, and no other EIP by anybody.

Memory, descriptors, threads, asyncio tasks of each process, and the log of each speaker, are sampled every second, and
printed as lines by least squares. Exits with 1 when one of them is not flat or a promise was broken. Needs root or a
user namespace.
"""

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "faults")]

from asked import ByFiles  # noqa: E402 -- beside this file, which is a program too
from lab_speaker import Speaker  # noqa: E402
from slopes import HEAD, Series, measured  # noqa: E402
from speaker_processes import family, told_apart  # noqa: E402
from wishes import UNTOUCHED, Wish, edited, first_wishes  # noqa: E402

from speaker.lab.lan import Lan  # noqa: E402
from speaker.lab.namespaces import leave_host_network  # noqa: E402
from speaker.lab.outage import asking, outages  # noqa: E402
from speaker.lab.switch import plug, pull  # noqa: E402
from speaker.lab.topology import lab_topology  # noqa: E402
from speaker.ownership.parameters import Parameters  # noqa: E402

NODES, SERVICES, SECONDS = 3, 500, 3600.0
HELLO_MS, LINK, ASKER = 200, "eth0", "host1"
CHAPTER = 20.0
"""Seconds of unrest between two looks at everything."""
ROUND = 2.0
"""Seconds between two rounds of edits: each is read once, and reading 500 Services takes three speakers a second."""
EDITS = 8
"""Of a round, at most."""
DISTURBED = 0.2
"""Rounds after which nothing can be read for one."""
REST = 1.5
"""Seconds after a fault of the LAN or of a node before the next, so that one failover is over before another begins."""
FLAP = 0.4
"""Seconds for which the link of the lone speaker has no carrier, and then has one."""
ASK, ASK_ALL = 0.05, 0.25
"""Seconds between two questions for one EIP: for those that nobody edits, and for all of them."""
SETTLES = 40.0
"""Seconds within which everything must be as asked, once it is left alone; what it took is printed. Three speakers
read 500 Services at once, which takes three seconds of a machine that does nothing else."""
STARTS = 150.0
"""Seconds within which a speaker must be ready, on a machine that does much else."""
FAILOVER_MS = Parameters.for_hello(HELLO_MS / 1000).worst_failover * 1000
DOUBLE_MS = 2 * FAILOVER_MS
"""The longest that an EIP may be out in a chapter: its successor may be the next that something happens to."""
WARM_UP = 25.0
LAST_LINES = 8


class Asked(Protocol):
    """How the speakers are asked for Services, and what may be wrong with that."""

    speakers: Mapping[str, Speaker]
    """By node; none runs yet."""
    lone: Speaker | None
    """One without peers on a node of its own, and what it is asked for, which nobody edits."""
    lones: Sequence[Wish]

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def ask(self, wishes: Sequence[Wish], changed: Iterable[int]) -> None:
        """These of the wishes are not what they were."""

    def disturb(self, dice: random.Random) -> str:
        """Nothing that is asked comes through; how that is called."""

    def calm(self) -> None:
        """The end of it."""


@dataclass
class Result:
    seed: int
    series: list[Series] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    settled: list[float] = field(default_factory=list)
    """Seconds, of each time that everything was left alone."""
    out_ms: list[float] = field(default_factory=list)
    """The longest that an EIP that nobody edits was out, of each chapter."""
    broken: list[str] = field(default_factory=list)
    last_words: str = ""
    """Of every speaker, where something was broken."""

    def problems(self, seconds: float) -> list[str]:
        long = [one for one in self.series if one.seconds >= 0.6 * (seconds - WARM_UP)]
        return [*self.broken, *(sentence for one in long for sentence in one.steep())]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}", HEAD, *(str(one) for one in self.series if one.seconds > CHAPTER)]
        lines += [", ".join(f"{count} {what}" for what, count in sorted(self.happened.items()))]
        if self.settled:
            lines += [
                f"as asked {max(self.settled):.1f} s after it was left alone at the latest, {len(self.settled)} times"
            ]
        if self.out_ms:
            lines += [f"nobody answered for an EIP for {max(self.out_ms):.0f} ms at most; promised: {FAILOVER_MS:.0f}"]
        return "\n".join([*lines, self.last_words])


class Soak:
    """``with Soak(directory, services, seed) as soak: await soak.run(seconds)``. From one thread only.

    ``ask_by``: how the speakers are asked.
    """

    def __init__(self, directory: Path, services: int, seed: int, ask_by: Callable[..., Asked]) -> None:
        self._directory, self._services, self._ask_by = directory, services, ask_by
        self._dice = random.Random(seed)
        self.result = Result(seed)
        self._stack = ExitStack()
        self._series: dict[tuple[str, int], Series] = {}
        self._roles: dict[str, Mapping[str, int]] = {}
        self._begun = time.monotonic()
        self._impaired = asyncio.Lock()

    def __enter__(self) -> "Soak":
        with ExitStack() as stack:
            alone = int(self._ask_by is ByFiles)
            self._lan = stack.enter_context(Lan(lab_topology(NODES + alone)))
            self._nodes = self._lan.topology.nodes[:NODES]
            self._flapping = self._nodes[:2]
            self._names = {self._lan.topology.host(node).mac(LINK): node for node in self._lan.topology.nodes}
            self._wishes = first_wishes(self._services, self._nodes)
            self._tasks = self._directory / "tasks"
            self._tasks.mkdir()
            counted = {"PYTHONPATH": str(Path(__file__).with_name("counted")), "SPEAKER_TASKS": str(self._tasks)}
            self._asked = stack.enter_context(self._ask_by(self._directory, self._lan, counted, HELLO_MS))
            self._asked.ask(self._wishes, range(self._services))
            self._speakers = self._asked.speakers
            self._all = {**self._speakers, **({self._asked.lone.node: self._asked.lone} if self._asked.lone else {})}
            for speaker in self._all.values():
                speaker.start()
                stack.callback(speaker.kill)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # ── The whole ──

    async def run(self, seconds: float) -> Result:
        await self._as_asked(STARTS)
        self.result.settled.clear()
        end = time.monotonic() + seconds
        sampling = asyncio.create_task(self._sample())
        try:
            while time.monotonic() < end and not self.result.broken:
                await self._chapter()
            if sampling.done():
                sampling.result()
        finally:
            sampling.cancel()
        self.result.series = list(self._series.values())
        if self.result.broken:
            self.result.last_words = "\n".join(f"{node}: {_last(one.said())}" for node, one in self._all.items())
        self.result.broken += [f"the speaker of {node} ended" for node, one in self._all.items() if one.ended]
        return self.result

    async def _chapter(self) -> None:
        watched = [wish.eip for wish in self._wishes[:UNTOUCHED]]
        async with asking(self._lan.namespace(ASKER), LINK, watched, ASK) as asks:
            await asyncio.sleep(0.5)
            since, over = time.monotonic(), asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._edit(over))
                tasks.create_task(self._break(over))
                if self._asked.lone is not None:
                    tasks.create_task(self._flap_alone(self._asked.lone.node, over))
                await asyncio.sleep(CHAPTER)
                over.set()
            await asyncio.to_thread(self._asked.calm)
            await asyncio.sleep(REST)
        found = outages(asks.samples(since), ASK)
        self.result.out_ms.append(max(outage.ms for outage in found.values()))
        self.result.broken += [
            f"{eip}, which nobody edits, was out for {outage.ms:.0f} ms, {time.monotonic() - outage.began:.0f} s ago"
            for eip, outage in found.items()
            if outage.began is not None and (outage.ms > DOUBLE_MS or not outage.over)
        ]
        await self._as_asked(SETTLES)

    # ── Unrest: what is asked ──

    async def _edit(self, over: asyncio.Event) -> None:
        while not over.is_set():
            await asyncio.to_thread(self._asked.calm)
            touched = set()
            for _ in range(self._dice.randint(1, EDITS)):
                at = self._dice.randrange(UNTOUCHED, self._services)
                what, self._wishes[at] = edited(self._wishes[at], self._nodes, self._dice)
                self.result.happened[what] += 1
                touched.add(at)
            await asyncio.to_thread(self._asked.ask, self._wishes, touched)
            if self._dice.random() < DISTURBED:
                self.result.happened[self._asked.disturb(self._dice)] += 1
            await asyncio.sleep(ROUND)
        # A speaker that starts over a bad file is not ready before it is mended, and the chapter waits for it.
        await asyncio.to_thread(self._asked.calm)

    # ── Unrest: what breaks ──

    async def _break(self, over: asyncio.Event) -> None:
        while not over.is_set():
            match self._dice.choices(("flap", "flush", "main", "death"), (6, 2, 1, 1))[0]:
                case "flap":
                    await self._flap()
                case "flush":
                    await asyncio.to_thread(self._flush, self._dice.choice(self._nodes))
                case "main":
                    await self._kill_main()
                case _:
                    await self._die()
            await asyncio.sleep(REST)

    async def _flap(self) -> None:
        """Of the one that did not flap the last time: it has what the other lost. The first costs it all of that."""
        self._flapping, node = self._flapping[::-1], self._flapping[0]
        for _ in range(self._dice.randint(1, 3)):
            await asyncio.to_thread(pull, self._lan, node, LINK)
            await asyncio.sleep(self._dice.uniform(0.05, 0.3))
            await asyncio.to_thread(plug, self._lan, node, LINK)
            await asyncio.sleep(self._dice.uniform(0.1, 0.4))
            self.result.happened["link flap"] += 1

    async def _flap_alone(self, node: str, over: asyncio.Event) -> None:
        """Each costs it all that it has, and brings it back."""
        while not over.is_set():
            await asyncio.to_thread(pull, self._lan, node, LINK)
            await asyncio.sleep(FLAP)
            await asyncio.to_thread(plug, self._lan, node, LINK)
            await asyncio.sleep(FLAP)
            self.result.happened["link flap of one that is alone"] += 1

    def _flush(self, node: str) -> None:
        with self._lan.namespace(node).entered():
            subprocess.run(["nft", "flush", "ruleset"], check=True)
        self.result.happened["flushed ruleset"] += 1

    async def _kill_main(self) -> None:
        """On the last node, whose processes' lines nobody looks at."""
        speaker = self._speakers[self._nodes[-1]]
        main = told_apart(speaker.process.pid).get("main")
        if main is not None:
            with suppress(ProcessLookupError):
                os.kill(main, 9)
            self.result.happened["killed main process"] += 1
        await asyncio.sleep(0.5)
        await self._up(speaker)

    async def _die(self) -> None:
        speaker = self._speakers[self._nodes[-1]]
        speaker.kill()
        self.result.happened["death"] += 1
        await asyncio.sleep(self._dice.uniform(0.5, 3.0))
        await self._up(speaker)

    async def _up(self, speaker: Speaker) -> None:
        if speaker.ended:
            speaker.start()
        begun = time.monotonic()
        while " 200 " not in (await asyncio.to_thread(speaker.get, "/healthz")).split("\r\n")[0]:
            if time.monotonic() > begun + STARTS:
                self.result.broken.append(f"the speaker of {speaker.node} is not ready {STARTS:.0f} s after its start")
                return
            await asyncio.sleep(0.2)

    # ── Left alone ──

    async def _as_asked(self, seconds: float) -> None:
        begun = time.monotonic()
        while wrong := await self._unlike():
            if time.monotonic() > begun + seconds:
                self.result.broken.append(f"after {seconds:.0f} s alone: {len(wrong)} EIPs: {'; '.join(wrong[:5])}")
                return
        self.result.settled.append(time.monotonic() - begun)

    async def _unlike(self) -> list[str]:
        """EIPs that are not answered for as they should be, and how."""
        everything = [wish.eip for wish in (*self._wishes, *self._asked.lones)]
        async with asking(self._lan.namespace(ASKER), LINK, everything, ASK_ALL) as asks:
            await asyncio.sleep(2 * ASK_ALL)
        said: defaultdict[object, set[str]] = defaultdict(set)
        for reply in asks.replies():
            said[reply.address].add(self._names.get(reply.mac, "a stranger"))
        return list(self._wrong(said))

    def _wrong(self, said: Mapping[object, set[str]]) -> Iterator[str]:
        wished = [(wish, wish.may_hold(self._nodes)) for wish in self._wishes]
        wished += [(wish, frozenset(wish.nodes)) for wish in self._asked.lones]
        for wish, may in wished:
            by = said.get(wish.eip, set())
            if len(by) != bool(may) or not by <= may:
                yield f"{wish.eip}: answered by {_some(by)}, may be by {'one of ' if len(may) > 1 else ''}{_some(may)}"

    # ── Sampling ──

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            at = time.monotonic() - self._begun
            if at > WARM_UP:
                for node, speaker in self._all.items():
                    self._sample_one(node, speaker, at)

    def _sample_one(self, node: str, speaker: Speaker, at: float) -> None:
        self._of(node, "log", 0).add(at, {"log": speaker.logged() / 1024})
        pids = family(speaker.process.pid)
        roles = self._roles.get(node, {})
        if not {*roles.values()} <= {*pids} or len(roles) < 2:
            roles = self._roles[node] = told_apart(speaker.process.pid)
        for role, pid in roles.items():
            if (found := measured(pid, self._tasks)) is not None:
                self._of(node, role, pid).add(at, found)

    def _of(self, node: str, role: str, pid: int) -> Series:
        name = f"{node} {role}"
        return self._series.setdefault((name, pid), Series(name))


def _last(said: str) -> str:
    return "\n    ".join(line[:300] for line in said.splitlines()[-LAST_LINES:])


def _some(names: Sequence[str] | set[str] | frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "nobody"


def soak(services: int, seconds: float, seed: int, ask_by: Callable[..., Asked] = ByFiles) -> Result:
    with tempfile.TemporaryDirectory(prefix="soak-") as name, Soak(Path(name), services, seed, ask_by) as running:
        return asyncio.run(running.run(seconds))


def by_api() -> Callable[..., Asked]:
    sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("agents", "apiserver")]
    from asked_by_api import ByApi

    return ByApi


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=SECONDS)
    arguments.add_argument("--services", type=int, default=SERVICES)
    arguments.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments.add_argument("--api", action="store_true")
    options = arguments.parse_args()
    leave_host_network()
    print(f"seed {options.seed}", flush=True)  # noqa: T201
    result = soak(options.services, options.seconds, options.seed, by_api() if options.api else ByFiles)
    problems = result.problems(options.seconds)
    print(result, *problems, "nothing grows, nothing is broken" if not problems else "", sep="\n")  # noqa: T201
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
