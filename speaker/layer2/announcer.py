"""The loop that announces: gratuitous ARP and unsolicited advertisements."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from speaker.layer2.holdings import Holdings
from speaker.layer2.observer import Observer
from speaker.layer2.sockets.frame_sender import Frame, FrameSender
from speaker.layer2.wakeup import Wakeup
from speaker.model import Family
from speaker.model.events import Announcements, SendFailures
from speaker.packets import arp, ndp

EIPS_A_SLICE = 256
"""About a millisecond of building and sending before other tasks get their turn."""


class Announcer:
    """Sends what the ``burst`` of ``holdings`` says is due, as long as the claims' deadline lies ahead."""

    def __init__(self, sender: FrameSender, holdings: Holdings, clock: Callable[[], float], observer: Observer) -> None:
        self._sender, self._holdings, self._claims = sender, holdings, holdings.claims
        self._clock, self._observer = clock, observer
        self.wakeup = Wakeup(clock)
        self._replies_to_come: deque[bytes] = deque()
        self._to_defend: deque[bytes] = deque()

    def changed(self) -> None:
        """The burst or the deadline is not what it was: look again."""
        self.wakeup.cut()

    def defend(self, address: bytes) -> None:
        """Announce it once, out of turn: somebody else just claimed it."""
        self._to_defend.append(address)
        self.wakeup.cut()

    async def serve(self) -> None:
        """Until cancelled; raises EdgeError when the link goes away. What was left to do before is forgotten.

        ARP is announced by request and by reply, since some hosts heed only one; most heed both, so every EIP's request
        goes before the first reply.
        """
        self._replies_to_come.clear()
        self._to_defend.clear()
        while True:
            if self._claims.expired(self._clock()):
                await self.wakeup.until(None)
            elif await self._announce_slice():
                self.wakeup.turn()
                await asyncio.sleep(0)
            else:
                await self.wakeup.until(self._holdings.burst.wake())

    async def _announce_slice(self) -> bool:
        """Whether there was anything to announce."""
        if rivalled := self._still_answered(_some(self._to_defend)):
            await self._send(rivalled)
        elif due := self._still_answered(self._holdings.burst.due(self._clock(), EIPS_A_SLICE)):
            self._replies_to_come += (address for address in due if len(address) == 4)
            await self._send(due)
        elif waiting := self._still_answered(_some(self._replies_to_come)):
            await self._hand_over(Family.IPV4, [(one, arp.announce_by_reply(self._claims.mac, one)) for one in waiting])
        else:
            return False
        return True

    def _still_answered(self, addresses: Iterable[bytes]) -> list[bytes]:
        return [address for address in addresses if self._claims.answered(address)]

    async def _send(self, addresses: list[bytes]) -> None:
        mac, parts = self._claims.mac, self._claims.ndp
        requests = [(one, arp.announce_by_request(mac, one)) for one in addresses if len(one) == 4]
        advertisements = [
            (one, ndp.unsolicited_advertisement(part)) for one in addresses if (part := parts.get(one)) is not None
        ]
        await self._hand_over(Family.IPV4, requests)
        await self._hand_over(Family.IPV6, advertisements)

    async def _hand_over(self, family: Family, frames: list[Frame]) -> None:
        sent, left = await self._sender.send(family, frames, self._claims.answered, self.wakeup.turn)
        if sent:
            self._observer.count(Announcements(family), sent)
        if left:
            self._observer.count(SendFailures(family), len(left))


def _some(waiting: deque[bytes]) -> list[bytes]:
    return [waiting.popleft() for _ in range(min(EIPS_A_SLICE, len(waiting)))]
