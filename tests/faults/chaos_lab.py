"""A lab in which any function of one speaker may raise, and clients that ask for every EIP by ARP and NDP.

``record`` plays each phase once and looks which functions run. ``strikes`` plays one again while a function raises.
Somebody starts a speaker again that has ended, as a service manager does.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from chaos_plan import FORESEEN, Fault, Phase
from fault_lab import INTERVAL, LINK, FaultLab
from fault_plan import every_function
from places import CONSTANTS
from planted.instrument import ALWAYS, PROCESSES
from speaker_processes import told_apart

from speaker.lab.outage import LATE, asking, outages
from speaker.model import IPAddress
from speaker.ownership.parameters import Parameters

PLAYED = 2.5
"""Seconds for which a phase without an end is played while functions are recorded."""
REACHED = 3.0
"""Seconds within which a function must have raised: it ran in less while functions were recorded."""
AGAIN = 8.0
"""The same where the process starts anew first."""
WATCHED = 1.5
"""Seconds for which clients are watched when all seems well again."""
HEALED = 30.0
"""Seconds after which status must be as before."""
STOPS = 15.0
"""Seconds after which a speaker that was told to end is killed."""
STARTED_AGAIN = 0.5
"""Seconds after which a speaker that ended is started again."""
TURN = 0.3
RESOLUTION_MS = (2 * INTERVAL + LATE) * 1000
"""An outage may be shorter by as much than what clients see of it."""


@dataclass
class Struck:
    """What came of one fault."""

    fault: Fault
    raised: int = 0
    out: Mapping[IPAddress, float] = field(default_factory=dict)
    """Milliseconds for which nobody answered for each EIP."""
    never_back: tuple[IPAddress, ...] = ()
    signs: tuple[str, ...] = ()
    """Where it was reported or counted."""
    left: str = ""
    """What was not as before in the end."""

    def __str__(self) -> str:
        worst = f"{max(self.out.values(), default=0):.0f} ms{' and on' if self.never_back else ''}"
        return f"{self.fault}: raised {self.raised}, out {worst}, {', '.join(self.signs) or 'UNREPORTED'} {self.left}"


class ChaosLab(FaultLab):
    """``with ChaosLab(directory, seconds) as lab``: what lasts raises for so many seconds. From one thread only."""

    def __init__(self, directory: Path, seconds: float, hello_ms: int) -> None:
        super().__init__(directory, every_function(), CONSTANTS, hello_ms)
        self._seconds = seconds
        self.struck: list[Struck] = []
        self.failover_ms = Parameters.for_hello(hello_ms / 1000).worst_failover * 1000

    def broken(self, struck: Struck) -> Iterator[str]:
        """What was promised and not kept, in sentences."""
        # Clients of a peer that dies meanwhile wait for that besides.
        failovers = 2 if struck.fault.phase is Phase.DEATH else 1
        for eip, out in struck.out.items():
            if eip in struck.never_back or out > failovers * self.failover_ms + RESOLUTION_MS:
                yield f"{eip} was out for {out:.0f} ms{', and is' if eip in struck.never_back else ''}"
        if not struck.signs:
            yield "nothing tells of it"
        elif struck.fault.kind == FORESEEN and "counted" not in struck.signs:
            yield "it is not counted"
        if struck.left:
            yield f"not healed: {struck.left}"

    # ── What runs ──

    async def record(self) -> dict[str, dict[str, set[Phase]]]:
        """Process → function → phases."""
        ran: dict[str, dict[str, set[Phase]]] = {process: {} for process in PROCESSES}
        await self.whole()
        self._note(ran, Phase.START, {process: {} for process in PROCESSES})
        async with _while_that(self._manage):
            for phase in Phase:
                before = {process: self.switches.counts(process) for process in PROCESSES}
                async with self._playing(phase, "main"):
                    await asyncio.sleep(PLAYED)
                await self.whole()
                self._note(ran, phase, before)
        return ran

    def _note(
        self, ran: dict[str, dict[str, set[Phase]]], phase: Phase, before: Mapping[str, Mapping[str, int]]
    ) -> None:
        for process in PROCESSES:
            for place, count in self.switches.counts(process).items():
                if count > before[process].get(place, 0):
                    ran[process].setdefault(place, set()).add(phase)

    # ── One fault ──

    async def strikes(self, fault: Fault) -> Struck:
        """It raises there; what came of it. Nothing did where it has not ``raised``."""
        await self.sound()
        victim, struck, at = self.speakers[self.victim], Struck(fault), fault.place
        problems, logged, pids = victim.status().get("problems", []), victim.logged(), told_apart(victim.process.pid)
        foreseen = fault.kind == FORESEEN
        errors = await asyncio.to_thread(victim.errors_counted, foreseen=foreseen)
        async with AsyncExitStack() as stack:
            asks = await stack.enter_async_context(asking(self.lan.namespace("host1"), LINK, self.eips, INTERVAL))
            await stack.enter_async_context(_while_that(self._manage))
            await asyncio.sleep(TURN)
            since, before = time.monotonic(), self.switches.raised(at)
            self.switches.order(at, ALWAYS if fault.lasts else 1, fault.kind, fault.process)
            async with self._playing(fault.phase, fault.process):
                patience = AGAIN if fault.phase in (Phase.START, Phase.STOP) else REACHED
                reached = await self._until(lambda: self.switches.raised(at) > before, patience)
                await asyncio.sleep(self._seconds if reached and fault.lasts else 0)
                told = reached and await self._tells(victim, problems)
            self.switches.order(at, 0)
            struck.raised = self.switches.raised(at) - before
            if struck.raised:
                struck.left = await self._healed(problems)
                await asyncio.to_thread(self._rebalance)  # who only seems well does not take what it is given
                await asyncio.sleep(WATCHED)
        found = outages(asks.samples(since), INTERVAL)
        struck.out = {eip: outage.ms for eip, outage in found.items()}
        struck.never_back = tuple(eip for eip, one in found.items() if not one.over and one.ms > RESOLUTION_MS)
        signs = {
            "logged": f"injected at {at}" in victim.said(logged),
            "counted": await asyncio.to_thread(victim.errors_counted, foreseen=foreseen) > errors,
            "told": told,
            "restarted": fault.phase not in (Phase.START, Phase.STOP) and told_apart(victim.process.pid) != pids,
        }
        struck.signs = tuple(sign for sign, there in signs.items() if there)
        if struck.raised:
            self.struck.append(struck)
            if [*self.broken(struck)]:
                await self._start_over()
        return struck

    async def _healed(self, problems: list[str]) -> str:
        end = time.monotonic() + HEALED
        while left := await self._unlike(problems):
            if time.monotonic() > end:
                return left
            await asyncio.sleep(TURN)
        return ""

    async def sound(self) -> None:
        """Everything is well; where it does not become so, all speakers are started anew."""
        try:
            await self.whole()
        except AssertionError:
            await self._start_over()
            await self.whole()

    def _rebalance(self) -> None:
        for node in self.speakers:  # of whom it was asked in vain when it could not answer
            self._say(node, "undrain")
        super()._rebalance()

    async def _start_over(self) -> None:
        for speaker in self.speakers.values():
            await asyncio.to_thread(speaker.kill)
            speaker.start()

    # ── What goes on meanwhile ──

    @asynccontextmanager
    async def _playing(self, phase: Phase, process: str) -> AsyncIterator[None]:
        play = {
            Phase.STEADY: self._do_nothing,
            Phase.EDIT: lambda: self._stir(self.speakers[self.victim]),
            Phase.CLAIM: self._share_anew,
            Phase.DEATH: self._kill_peer,
            Phase.START: self._kill_main if process == "main" else self._kill_victim,
            Phase.STOP: self._stop,
        }[phase]
        if phase in (Phase.EDIT, Phase.CLAIM):
            async with _while_that(play):
                yield
        else:
            playing = asyncio.ensure_future(play())
            yield
            await playing
        if phase is Phase.CLAIM:
            await asyncio.to_thread(self._rebalance)

    async def _manage(self) -> None:
        while True:
            for speaker in self.speakers.values():
                if speaker.ended:
                    await asyncio.sleep(STARTED_AGAIN)
                    await asyncio.to_thread(speaker.kill)
                    speaker.start()
            await asyncio.sleep(TURN)

    async def _do_nothing(self) -> None:
        return

    async def _share_anew(self) -> None:
        while True:
            for node in (self.victim, "node2"):
                for command in ("drain", "undrain", "rebalance"):
                    await asyncio.to_thread(self._say, node, command)
                    await asyncio.sleep(TURN)

    async def _kill_peer(self) -> None:
        await asyncio.to_thread(self.speakers["node2"].kill)

    async def _kill_victim(self) -> None:
        await asyncio.to_thread(self.speakers[self.victim].kill)

    async def _kill_main(self) -> None:
        if main := told_apart(self.speakers[self.victim].process.pid).get("main"):
            with suppress(ProcessLookupError):
                os.kill(main, signal.SIGKILL)

    async def _stop(self) -> None:
        """As a service manager restarts it."""
        speaker = self.speakers[self.victim]
        with suppress(ProcessLookupError):
            os.kill(speaker.process.pid, signal.SIGTERM)
        if not await self._until(lambda: speaker.ended, STOPS):
            await asyncio.to_thread(speaker.kill)


@asynccontextmanager
async def _while_that(work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    going = asyncio.ensure_future(work())
    try:
        yield
    finally:
        going.cancel()
        with suppress(asyncio.CancelledError):
            await going
