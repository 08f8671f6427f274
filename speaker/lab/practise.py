"""``speaker lab --fault NAME``: injects a fault, waits until ``explain`` or ``doctor`` names it, repairs it, and
checks.

Each is asked again until the fault is named first, or PATIENCE is over, because a speaker needs a moment to notice.
``all`` plays every fault in one LAN, one after the other; ``NAME,NAME`` plays some.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from inspect import isawaitable
from itertools import groupby
from typing import Any

from speaker.errors import EdgeError
from speaker.kubeproxy.watch import LOOK_SECONDS
from speaker.lab.lan import Stage
from speaker.lab.practice_ground import EIPS, WEB, Ground, Said, ground
from speaker.lab.practice_table import FAULTS, HOLDER, OTHER, Do, Fault
from speaker.lab.timeline import Tone

PATIENCE = 2 * LOOK_SECONDS
"""Seconds until a fault has to be named, and until a repaired one is over: two looks of the slowest that looks."""
ALL = "all"


@dataclass(frozen=True, slots=True)
class Named:
    """``kind``: what was named first; ``seconds`` since it was in force, ``command`` those of the command alone;
    ``after``: what was still named first after it was repaired, '' for nothing."""

    name: str
    asked: str
    node: str
    expected: str
    kind: str
    words: str
    seconds: float
    command: float
    after: str

    @property
    def ok(self) -> bool:
        return self.kind == self.expected and not self.after


@dataclass(frozen=True, slots=True)
class Practised:
    """An ``Outcome``. ``healthy``: what was named before anything was injected."""

    healthy: tuple[str, ...]
    faults: tuple[Named, ...]

    @property
    def ok(self) -> bool:
        return not any(self.healthy) and bool(self.faults) and all(fault.ok for fault in self.faults)

    def as_json(self) -> dict[str, Any]:
        faults = [{**asdict(fault), "ok": fault.ok} for fault in self.faults]
        return {"ok": self.ok, "healthy": list(self.healthy), "faults": faults}


def names() -> tuple[str, ...]:
    return (*(fault.name for fault in FAULTS), ALL)


async def practise(name: str, stage: Stage, linger: Callable[[], Awaitable[None]]) -> Practised:
    """Raises EdgeError where the LAN cannot be made to work, or a fault not be injected."""
    chosen = FAULTS if name == ALL else tuple(fault for fault in FAULTS if fault.name in name.split(","))
    healthy: list[str] = []
    found: list[Named] = []
    for (peers, forwarder), faults in groupby(chosen, key=lambda fault: (fault.peers, fault.forwarder)):
        directory = stage.directory / f"{forwarder}-{'peers' if peers else 'alone'}"
        async with ground(stage.lan, directory, peers=peers, forwarder=forwarder) as place:
            well = await asyncio.gather(*(_until(place, node, ("doctor",), "") for node in place.nodes))
            healthy += [said.first for said in well]
            found += [await _play(fault, place, stage, linger if len(chosen) == 1 else _at_once) for fault in faults]
    return Practised(tuple(healthy), tuple(found))


async def _at_once() -> None:
    pass


async def _play(fault: Fault, place: Ground, stage: Stage, linger: Callable[[], Awaitable[None]]) -> Named:
    eip = next((each for each in fault.asks if each in EIPS), WEB)
    node = {HOLDER: place.holder(eip), OTHER: place.other(eip)}.get(fault.on, fault.on)
    stage.timeline.say("lab", f"{fault.name}: {fault.told}")
    try:
        await _do(fault.inject, place, node)
    except EdgeError as error:  # this kernel lacks what it takes
        stage.timeline.say("lab", f"it cannot be injected here: {error}", Tone.BAD)
        return Named(fault.name, fault.command, node, fault.kind, "", str(error), 0.0, 0.0, "")
    begun = time.monotonic()
    said = await _until(place, node, fault.asks, fault.kind)
    seconds = time.monotonic() - begun
    tone = Tone.GOOD if said.first == fault.kind else Tone.BAD
    stage.timeline.say(node, f"{fault.command}: {said.words or 'nothing is wrong'} ({said.first or '-'})", tone)
    asked = "explain EIP" if fault.asks[0] == "explain" else fault.asks[0]
    stage.timeline.say("lab", f"on {node}: `speaker {asked} --runtime-dir {place.directory}/{node}/run`", Tone.DIM)
    await linger()
    await _do(fault.mend, place, node)
    await place.settled()
    well = await _until(place, node, ("doctor",), "")
    if well.first:
        stage.timeline.say(node, f"still: {well.words} ({well.first})", Tone.BAD)
    told = said.words, seconds, said.seconds, well.first
    return Named(fault.name, fault.command, node, fault.kind, said.first, *told)


async def _do(what: Do, place: Ground, node: str) -> None:
    if isawaitable(doing := what(place, node)):
        await doing


async def _until(place: Ground, node: str, command: Sequence[str], kind: str) -> Said:
    """The first that names ``kind`` first, or the last within PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    while True:
        said = await place.say(node, *command)
        if said.first == kind or time.monotonic() > deadline:
            return said
