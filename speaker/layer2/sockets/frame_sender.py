"""Sending more than a link may have room for just now."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from speaker.layer2.claims import Claims
from speaker.layer2.sockets.packet_socket import PacketSocket
from speaker.model import Family

_ATTEMPTS, _PAUSE = 50, 0.001
"""How often, and how many seconds apart, a link without room is tried before frames are given up."""

Frame: TypeAlias = tuple[bytes, bytes]
"""An EIP as it stands in packets, and a frame about it."""


class FrameSender:
    """For frames that nobody asked for. ``sockets`` are those of one link while they are open."""

    def __init__(self, claims: Claims, clock: Callable[[], float]) -> None:
        self.sockets: Mapping[Family, PacketSocket] = {}
        self._claims, self._clock = claims, clock

    async def send(
        self, family: Family, frames: Sequence[Frame], still: Callable[[bytes], bool], turn: Callable[[], None]
    ) -> tuple[int, list[Frame]]:
        """How many frames the link took, and those it had no room for. The rest is not said any more: its EIP is not
        ``still`` what it was, or the deadline has passed. ``turn`` hears of each attempt. Raises EdgeError when the
        link goes away."""
        sent, frames = 0, list(frames)
        for _ in range(_ATTEMPTS):
            frames = [(address, frame) for address, frame in frames if still(address)]
            if not frames or self._claims.expired(self._clock()):
                return sent, []
            taken = self.sockets[family].send([frame for _, frame in frames])
            turn()
            sent += taken
            frames = frames[taken:]
            if not frames:
                return sent, []
            await asyncio.sleep(_PAUSE)
        return sent, frames
