"""The loop that hands unknown flows over. ``forwarding/handing_over.py`` says to whom; the loop feeds it the wire
process's claims, and whether previous holders answer.

Previous holders are asked by ARP and NDP, so it is their kernel that answers. That is what counts: a kernel goes on
forwarding the connections it knows, even if its speaker is gone.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
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
from speaker.system.supervise import passing
from speaker.system.waiting import boottime, set_within
from speaker.wire.messages import Began, WireEvent

ASK_SECONDS = 2.0
"""How often a previous holder is asked whether it is there; it is asked at once when an EIP was taken from it."""
REQUESTS, REQUEST_SECONDS = 3, 0.1
"""Requests each time, until one is answered, and how long to wait for each."""
AGAIN_SECONDS = 0.2
"""The shortest time between two questions to one holder, however many EIPs it held."""
MAX_SPEAKERS = 4000
"""Speakers remembered, on all links together: whoever has the key can invent any number of names."""
LOOK_SECONDS = 5.0
"""The kernel is checked after so long without news, to repeat what it refused and repair what others damaged."""

Asks: TypeAlias = Callable[[Question, int, float], Awaitable[bool]]


class HandOver:
    """Hears of each claim. Whoever decides what may be held here calls ``follow`` first."""

    def __init__(self, unknown_flows: UnknownFlows, report: Report, asks: Asks = answers) -> None:
        """``asks``: whether somebody answers within a number of requests, each with a number of seconds."""
        self._unknown_flows, self._report, self._asks = unknown_flows, report, asks
        self._moves = HandingOver()
        self._eips: frozenset[IPAddress] = frozenset()
        self._snapshot = Snapshot()
        self._early: dict[IPAddress, tuple[Placement, str | None]] = {}
        """Claims from before the links were known."""
        self._speakers: dict[tuple[int, str], Speaker] = {}
        """By index of the link, and node."""
        self._asked: dict[NextHop, asyncio.Event] = {}
        """Holders that are asked regularly; the event is set when an EIP was taken from one."""
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

    def _meet(self, link: int, node: str, speaker: Speaker) -> None:
        self._speakers.pop((link, node), None)
        self._speakers[link, node] = speaker
        if len(self._speakers) > MAX_SPEAKERS:
            del self._speakers[next(iter(self._speakers))]  # the one heard from longest ago
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
        """None if it has named no address of that family on this link."""
        known = self._speakers.get((link.index, node))
        for address in known.addresses if known is not None else ():
            if address.version == eip.version and question(self._snapshot, link, address) is not None:
                return NextHop(link.name, address)
        return None

    async def follow(self, eips: frozenset[IPAddress], snapshot: Snapshot) -> None:
        """From now on this node may hold ``eips``, and no others. Returns once the kernel is set up, or has refused; a
        refusal is reported and tried again."""
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
                    tasks.create_task(passing("previous holder", partial(self._watch, hop)), name=str(hop.address))
                begun = boottime()
                with self._report.trying("hand over"):
                    await self._bring()
                # Half of the time is left for more important work: thousands are claimed within seconds.
                await asyncio.sleep(min(boottime() - begun, 1.0))

    async def _bring(self) -> None:
        async with self._one_at_a_time:
            eips, next_hops = self._eips, self._moves.next_hops(self._eips)
            macs = frozenset(speaker.mac for speaker in self._speakers.values())
            await self._unknown_flows.bring_to(next_hops, macs)
        self._report.unknown_flows(len(eips), next_hops)

    async def _watch(self, hop: NextHop) -> None:
        """Asks the holder, as long as anything is handed to it and it answers."""
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
