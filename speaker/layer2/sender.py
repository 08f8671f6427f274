"""Sends on one link what nobody requested: gratuitous ARP, unsolicited advertisements, and probes for other users."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeAlias

from speaker.layer2.holdings import Holdings
from speaker.layer2.responder import Clock, Observer
from speaker.model import Family, IPAddress
from speaker.model.events import Announcements, SendFailures
from speaker.packets import arp, ndp
from speaker.packets.asking import question
from speaker.packets.packet_socket import PacketSocket
from speaker.system.waiting import Wakeup

ANNOUNCED_A_SLICE, PROBED_A_SLICE = 256, 128
"""EIPs: about a millisecond of building and sending before other tasks get their turn."""
_ATTEMPTS, _PAUSE = 50, 0.001
"""How often, and how many seconds apart, frames are tried on a link without room before they are given up."""
_NOBODY = IPv4Address(0), IPv6Address(0)
"""A sender that no cache learns from (RFC 5227 §2.1.1, RFC 4862 §5.4.2)."""

_Frame: TypeAlias = tuple[bytes, bytes]
"""An EIP as in packets, and a frame about it."""


class Sender:
    """Two loops, ``announce`` and ``probe``, send what is due of ``holdings`` while the claims' deadline is in the
    future. ``sockets`` are those of the link while they are open. ``clock`` is the one that the deadline is measured
    by."""

    def __init__(self, holdings: Holdings, clock: Clock, observer: Observer) -> None:
        self._holdings, self._claims, self._clock, self._observer = holdings, holdings.claims, clock, observer
        self.sockets: Mapping[Family, PacketSocket] = {}
        self.announcing, self.probing = Wakeup(clock), Wakeup(clock)
        self.own: IPv6Address | None = None
        """This host's own address on this link: probes ask from it as well, as MetalLB does not answer probes without a
        sender (internal/layer2/ndp.go)."""
        self._replies_to_come: deque[bytes] = deque()
        self._to_defend: deque[bytes] = deque()

    def changed(self) -> None:
        """What is due or the deadline has changed: look again."""
        self.announcing.cut()
        self.probing.cut()

    def defend(self, address: bytes) -> None:
        """Announces it once, out of turn: somebody else just claimed it."""
        self._to_defend.append(address)
        self.announcing.cut()

    async def announce(self) -> None:
        """Runs until cancelled. Raises EdgeError when the link goes away. What was left to do before is forgotten.

        ARP is announced by request and by reply, since some hosts heed only one; most heed both, so every EIP's request
        is sent before the first reply.
        """
        self._replies_to_come.clear()
        self._to_defend.clear()
        await self._work(self.announcing, self._announce_slice, lambda: self._holdings.burst.wake())

    async def probe(self) -> None:
        """Looks for other users before an EIP's first answer. Runs until cancelled. Raises EdgeError when the link goes
        away. EIPs for which nobody answered are ``proven`` to the holdings."""
        await self._work(self.probing, self._probe_slice, lambda: self._holdings.probes.wake())

    async def _work(
        self, wakeup: Wakeup, do_slice: Callable[[], Awaitable[bool]], wake: Callable[[], float | None]
    ) -> None:
        """``do_slice`` returns whether there was anything to do, ``wake`` when there will be."""
        while True:
            if self._claims.expired(self._clock()):
                await wakeup.until(None)
            elif await do_slice():
                wakeup.turn()
                await asyncio.sleep(0)
            else:
                await wakeup.until(wake())

    async def _announce_slice(self) -> bool:
        if rivalled := self._still_answered(_some(self._to_defend)):
            await self._announce(rivalled)
        elif due := self._still_answered(self._holdings.burst.due(self._clock(), ANNOUNCED_A_SLICE)):
            self._replies_to_come += (address for address in due if len(address) == 4)
            await self._announce(due)
        elif waiting := self._still_answered(_some(self._replies_to_come)):
            await self._hand_over(Family.IPV4, [(one, arp.announce_by_reply(self._claims.mac, one)) for one in waiting])
        else:
            return False
        return True

    def _still_answered(self, addresses: Iterable[bytes]) -> list[bytes]:
        return [address for address in addresses if self._claims.answered(address)]

    async def _announce(self, addresses: list[bytes]) -> None:
        mac, parts = self._claims.mac, self._claims.ndp
        requests = [(one, arp.announce_by_request(mac, one)) for one in addresses if len(one) == 4]
        advertisements = [
            (one, ndp.unsolicited_advertisement(part)) for one in addresses if (part := parts.get(one)) is not None
        ]
        await self._hand_over(Family.IPV4, requests)
        await self._hand_over(Family.IPV6, advertisements)

    async def _hand_over(self, family: Family, frames: list[_Frame]) -> None:
        sent, _ = await self._send(family, frames, self._claims.answered, self.announcing)
        if sent:
            self._observer.count(Announcements(family), sent)

    async def _probe_slice(self) -> bool:
        step = self._holdings.probes.due(self._clock(), PROBED_A_SLICE)
        if step.free:
            self._holdings.proven(step.free, self._clock())
            self.announcing.cut()
        for source in (*_NOBODY, self.own):
            if source is not None:
                await self._ask(source, [one for one in step.ask if len(one) == len(source.packed)])
        return bool(step.ask or step.free)

    async def _ask(self, source: IPAddress, addresses: list[bytes]) -> None:
        probes, frames = self._holdings.probes, [(one, self._question(source, one)) for one in addresses]
        _, left = await self._send(Family.of(source), frames, probes.__contains__, self.probing)
        for address, _ in left:  # silence proves nothing if nobody was asked
            probes.begin(address, self._clock())

    def _question(self, source: IPAddress, address: bytes) -> bytes:
        frame = question(self._claims.mac, source, ip_address(address))
        # Without a link-layer option (duplicate address detection has none) a frame is 78 bytes, but we send only 86.
        return frame if source.version == 4 else frame.ljust(ndp.ADVERTISEMENT_LENGTH, b"\0")

    async def _send(
        self, family: Family, frames: list[_Frame], still: Callable[[bytes], bool], wakeup: Wakeup
    ) -> tuple[int, list[_Frame]]:
        """How many frames the link took, and those it had no room for. Other frames are no longer true: their EIP is
        not ``still`` what it was, or the deadline has passed. Raises EdgeError when the link goes away."""
        sent = 0
        for _ in range(_ATTEMPTS):
            frames = [(address, frame) for address, frame in frames if still(address)]
            if not frames or self._claims.expired(self._clock()):
                return sent, []
            taken = self.sockets[family].send([frame for _, frame in frames])
            wakeup.turn()
            sent += taken
            frames = frames[taken:]
            if not frames:
                return sent, []
            await asyncio.sleep(_PAUSE)
        self._observer.count(SendFailures(family), len(frames))
        return sent, frames


def _some(waiting: deque[bytes]) -> list[bytes]:
    return [waiting.popleft() for _ in range(min(ANNOUNCED_A_SLICE, len(waiting)))]
