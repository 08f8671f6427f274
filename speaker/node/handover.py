"""The loop that hands unknown flows over: to whom is what ``forwarding/handing_over.py`` says, as the
wire process tells of claims, and as previous holders answer.

They are asked by ARP and NDP, so it is their kernel that answers, and that is what counts: it forwards what it knows,
whatever has become of the speaker that put it up to it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from speaker.forwarding.handing_over import HandingOver, NextHop
from speaker.forwarding.unknown_flows import UnknownFlows
from speaker.interfaces.addresses import question
from speaker.interfaces.snapshot import Snapshot
from speaker.model import IPAddress, Link, Placement, Speaker
from speaker.model.events import EipClaimed, EipYielded, SpeakerSeen
from speaker.node.report import Report
from speaker.packets.asker import answers
from speaker.packets.asking import Question
from speaker.system.waiting import boottime, set_within
from speaker.wire.messages import Began, WireEvent

ASK_SECONDS = 2.0
"""Between two times that a previous holder is asked whether it is there; at once when something was taken from it."""
REQUESTS, REQUEST_SECONDS = 3, 0.1
"""Of each time, until one is answered; and how long each is waited for."""
AGAIN_SECONDS = 0.2
"""It is asked no sooner, of however many EIPs it was the holder."""
MAX_SPEAKERS = 4000
"""Remembered, of all links together: whoever has the key can make up any number of names."""
LOOK_SECONDS = 5.0
"""After so long without news the kernel is checked: what it refused is tried again, what others damaged is repaired."""

Asks: TypeAlias = Callable[[Question, int, float], Awaitable[bool]]


class HandOver:
    """Hears of each claim. Whoever decides what may be held here tells ``follow`` first."""

    def __init__(self, unknown_flows: UnknownFlows, report: Report, asks: Asks = answers) -> None:
        """``asks``: whether somebody answers a question within so many times of so many seconds."""
        self._unknown_flows, self._report, self._asks = unknown_flows, report, asks
        self._moves = HandingOver()
        self._eips: frozenset[IPAddress] = frozenset()
        self._snapshot = Snapshot()
        self._early: dict[IPAddress, tuple[Placement, str | None]] = {}
        """Claims of the time before the links were known."""
        self._speakers: dict[tuple[int, str], Speaker] = {}
        """By index of the link, and node."""
        self._asked: dict[NextHop, asyncio.Event] = {}
        """Those that are asked now and then; set when something was taken from one."""
        self._news = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()

    # ── told ──

    def hear(self, event: Began | WireEvent) -> None:
        match event:
            case Began(found=found):
                for link, node, speaker in found.speakers:
                    self._meet(link, node, speaker)
                for address, taken in found.held.items():
                    self._claimed(address, taken.placement, taken.before)
            case SpeakerSeen():
                self._meet(event.link, event.node, event.speaker)
            case EipClaimed():
                self._claimed(event.eip, event.placement, event.before)
            case EipYielded():
                self._early.pop(event.eip, None)
                self._moves.yielded(event.eip)
                self._news.set()
            case _:
                pass

    def _meet(self, link: int, node: str, speaker: Speaker) -> None:
        self._speakers.pop((link, node), None)
        self._speakers[link, node] = speaker
        if len(self._speakers) > MAX_SPEAKERS:
            del self._speakers[next(iter(self._speakers))]  # whose news is the oldest
        self._news.set()

    def _claimed(self, address: IPAddress, placement: Placement, before: str | None) -> None:
        if not self._snapshot.links:
            self._early[address] = placement, before
            return
        hop = self._hop(address, placement.link, before) if before is not None else None
        self._moves.claimed(address, hop)
        if (asked := self._asked.get(hop) if hop is not None else None) is not None:
            asked.set()
        self._news.set()

    def _hop(self, eip: IPAddress, link: Link, node: str) -> NextHop | None:
        """None where it has told no address of that family that is on this link."""
        known = self._speakers.get((link.index, node))
        for address in known.addresses if known is not None else ():
            if address.version == eip.version and question(self._snapshot, link, address) is not None:
                return NextHop(link.name, address)
        return None

    async def follow(self, eips: frozenset[IPAddress], snapshot: Snapshot) -> None:
        """This node may hold ``eips`` from now on, and holds none that is not among them. Returns once the kernel
        knows, or has refused, which is told and tried again."""
        self._eips, self._snapshot = eips, snapshot
        early, self._early = self._early, {}
        for address, (placement, before) in early.items():
            self._claimed(address, placement, before)
        with self._report.trying("hand over"):
            await self._bring()

    # ── done ──

    async def run(self) -> None:
        """Endless."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await set_within(self._news, LOOK_SECONDS)
                self._news.clear()
                for hop in self._moves.hops() - self._asked.keys():
                    self._asked[hop] = asyncio.Event()
                    tasks.create_task(self._watch(hop), name=f"previous holder {hop.address}")
                begun = boottime()
                with self._report.trying("hand over"):
                    await self._bring()
                # Half of the time for what matters more: thousands are claimed within seconds.
                await asyncio.sleep(min(boottime() - begun, 1.0))

    async def _bring(self) -> None:
        async with self._one_at_a_time:
            eips, next_hops = self._eips, self._moves.next_hops(self._eips)
            macs = frozenset(speaker.mac for speaker in self._speakers.values())
            await self._unknown_flows.bring_to(next_hops, macs)
        self._report.unknown_flows(len(eips), next_hops)

    async def _watch(self, hop: NextHop) -> None:
        """Ask it, as long as anything is handed to it and it answers."""
        try:
            while hop in self._moves.hops():
                self._asked[hop].clear()
                with self._report.trying("previous holder"):
                    if not await self._answers(hop):
                        self._report.holder_silent(hop, self._moves.silent(hop))
                        self._news.set()
                        break
                await asyncio.sleep(AGAIN_SECONDS)
                await set_within(self._asked[hop], ASK_SECONDS - AGAIN_SECONDS)
        finally:
            del self._asked[hop]
            if not self._asked:  # nobody is left who could not be asked
                self._report.recovered("previous holder")

    async def _answers(self, hop: NextHop) -> bool:
        link = self._snapshot.link_named(hop.link)
        asked = question(self._snapshot, link, hop.address) if link is not None else None
        return asked is not None and await self._asks(asked, REQUESTS, REQUEST_SECONDS)
