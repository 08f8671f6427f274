"""The loop that announces: gratuitous ARP and unsolicited advertisements, and the groups to be solicited on."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Container, Mapping
from typing import TypeAlias

from speaker.errors import EdgeError
from speaker.layer2 import arp, ndp
from speaker.layer2.burst import Burst
from speaker.layer2.claims import Claims
from speaker.layer2.groups import Groups
from speaker.layer2.observer import Observer
from speaker.layer2.wire import PacketSocket
from speaker.model import Family

EIPS_A_SLICE = 256
"""About a millisecond of building and sending before other tasks get their turn."""
JOINS_A_SLICE = 20
"""A millisecond at most."""
_ATTEMPTS, _PAUSE = 50, 0.001
"""How often, and how many seconds apart, a link without room is tried before announcements are given up."""

_Frame: TypeAlias = tuple[bytes, bytes]
"""An EIP as it stands in packets, and one of its announcements."""


class Announcer:
    """Sends what ``burst`` says is due, as long as the claims' deadline lies ahead."""

    def __init__(
        self,
        sockets: Mapping[Family, PacketSocket],
        burst: Burst,
        groups: Groups,
        claims: Claims,
        clock: Callable[[], float],
        observer: Observer,
    ) -> None:
        self._sockets, self._burst, self._groups, self._claims = sockets, burst, groups, claims
        self._clock, self._observer = clock, observer
        self._changed = asyncio.Event()
        self._replies_to_come: deque[bytes] = deque()

    def changed(self) -> None:
        """The burst, the wanted groups or the deadline are not what they were: look again."""
        self._changed.set()

    async def serve(self) -> None:
        """Until cancelled; raises EdgeError when the link goes away.

        Groups are joined ahead of announcing, a slice of each in turn, so that thousands of either delay neither.
        ARP is announced by request and by reply, since some hosts heed only one; most heed both, so every EIP's request
        goes before the first reply.
        """
        while True:
            self._changed.clear()
            joining = self._join()
            announcing = await self._announce_slice()
            if joining or announcing:
                await asyncio.sleep(0)
            else:
                await self._until_something_is_due()

    def _join(self) -> bool:
        try:
            return self._groups.work(self._clock(), JOINS_A_SLICE)
        except EdgeError as error:  # IPv4, and neighbours that know us already, are served all the same
            self._observer.join_failed(error)
            return True

    async def _announce_slice(self) -> bool:
        now = self._clock()
        if self._claims.expired(now):
            return False
        due = self._burst.due(now, EIPS_A_SLICE)
        mac, parts = self._claims.mac, self._claims.ndp
        if due:
            fours = [address for address in due if len(address) == 4]
            self._replies_to_come += fours
            requests = [(address, arp.announce_by_request(mac, address)) for address in fours]
            sixes = [address for address in due if len(address) == 16]
            advertisements = [(address, ndp.unsolicited_advertisement(parts[address])) for address in sixes]
            await self._send(Family.IPV4, requests, self._claims.arp)
            await self._send(Family.IPV6, advertisements, self._claims.ndp)
        else:
            waiting = self._replies_to_come
            fours = [waiting.popleft() for _ in range(min(EIPS_A_SLICE, len(waiting)))]
            replies = [(address, arp.announce_by_reply(mac, address)) for address in fours]
            await self._send(Family.IPV4, replies, self._claims.arp)
        return bool(due or self._replies_to_come)

    async def _send(self, family: Family, frames: list[_Frame], held: Container[bytes]) -> None:
        for _ in range(_ATTEMPTS):
            # What was withdrawn, or ran out, during a pause must not be announced any more.
            frames = [(address, frame) for address, frame in frames if address in held]
            if not frames or self._claims.expired(self._clock()):
                return
            taken = self._sockets[family].send([frame for _, frame in frames])
            self._observer.announced(family, taken)
            frames = frames[taken:]
            if not frames:
                return
            await asyncio.sleep(_PAUSE)
        self._observer.send_failed(family, len(frames))

    async def _until_something_is_due(self) -> None:
        now = self._clock()
        announcing = None if self._claims.expired(now) else self._burst.wake()
        instants = [when for when in (announcing, self._groups.wake()) if when is not None]
        delay = max(0.0, min(instants) - now) if instants else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._changed.wait()
