"""The owner of a node that is the only speaker on its LAN: what it is offered, it holds."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from ipaddress import ip_address
from types import TracebackType
from typing import NamedTuple, NoReturn, Self

from speaker.errors import EdgeError
from speaker.layer2.links import Links, Placement, take_each
from speaker.layer2.responder import AnswerPolicy
from speaker.model import IPAddress, Link, Mac
from speaker.ownership import sole
from speaker.system.supervise import supervised
from speaker.wire.events import NOBODYS, ClaimStatus, PeerSeen, Resumed, Taken, WireEvents

AGAIN_SECONDS = 1.0
"""After a bug of ours that keeps an EIP from being answered for, it is tried again."""


class _Held(NamedTuple):
    placement: Placement
    since: float


class SoloOwner:
    """``clock`` gives seconds of CLOCK_BOOTTIME, ``layer2`` answers on the links."""

    ready = True
    has_peers = False

    def __init__(
        self, node: str, clock: Callable[[], float], events: WireEvents, layer2: Callable[..., Links] = Links
    ) -> None:
        self._node, self._clock, self._events = node, clock, events
        # Nobody else could have answered meanwhile: a request is never too old.
        ours = lambda mac: mac in self._macs  # noqa: E731
        self._layer2 = layer2(clock, events, self._lost, AnswerPolicy(ours=ours, failed=self._failed))
        self._held: dict[IPAddress, _Held] = {}
        """What this node may hold, it holds. The main process decides it; this is the copy that goes on without it."""
        self._known: set[IPAddress] = set()
        """Held before: nobody else was found to use them then, or the first probe is not over."""
        self._macs: frozenset[Mac] = frozenset()
        self._beating: asyncio.Task[NoReturn]

    async def __aenter__(self) -> Self:
        await self._layer2.__aenter__()
        self._beating = asyncio.create_task(supervised("beat", self._beat, self._events), name="beat")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._beating.cancel()
        await self._layer2.__aexit__(kind, error, tb)

    def _lost(self, link: Link, error: BaseException) -> None:
        if not isinstance(error, EdgeError):
            self._events.internal_error("link", error)
        self._events.lost_link(link, str(error))

    def _failed(self, link: int, address: bytes) -> None:
        """There is nobody to leave it to."""
        asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._try_again, ip_address(address))

    def _try_again(self, address: IPAddress) -> None:
        if (held := self._held.get(address)) is not None:
            take_each(self._layer2, {address: held.placement}, (), self._events)

    def links(self, links: Collection[Link], macs: frozenset[Mac]) -> None:
        self._macs = macs
        for link in links:
            self._layer2.peers(link.index, macs)

    def withdraw(self, addresses: Iterable[IPAddress]) -> None:
        gone = list(addresses)
        self._known.difference_update([address for address in gone if self._layer2.is_unproven(address)])
        self._layer2.drop(gone)
        for address in gone:
            if self._held.pop(address, None) is not None:
                self._events.yielded(address, "not_offered", None)

    def offer(self, placements: Mapping[IPAddress, Placement]) -> list[IPAddress]:
        """Those that could not be taken, through a bug of ours."""
        taken, failed = take_each(self._layer2, placements, placements.keys() - self._known, self._events)
        self._known.update(taken)
        for address in taken:
            placement, before = placements[address], self._held.get(address)
            self._held[address] = _Held(placement, before.since if before is not None else time.time())
            if before is None:
                self._events.claimed(address, placement, 0, None)
        return failed

    def retell(self) -> None:
        """Nothing that was told before and goes on."""

    @property
    def offered(self) -> Collection[IPAddress]:
        """What this node may hold."""
        return self._held.keys()

    def resumed(self) -> Resumed:
        placements = {address: held.placement for address, held in self._held.items()}
        return Resumed(placements, {address: Taken(placement, None) for address, placement in placements.items()})

    def claim_status(self, address: IPAddress) -> ClaimStatus:
        if (held := self._held.get(address)) is None:
            return NOBODYS
        return ClaimStatus(True, self._node, 0, held.since)

    def peers(self) -> list[PeerSeen]:
        return []

    async def _beat(self) -> None:
        while True:
            self._layer2.extend(sole.deadline(self._clock()))
            await asyncio.sleep(sole.BEAT)
