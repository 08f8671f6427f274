"""The owner of a node that is the only speaker on its LAN: what it is offered, it holds."""

import asyncio
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import NoReturn, Self

from speaker.errors import EdgeError
from speaker.layer2.links import Links, Placement
from speaker.model import IPAddress, Link, Mac
from speaker.ownership import sole
from speaker.system.supervise import supervised
from speaker.wire.taking import take_each
from speaker.wire.told import OwnerTold, PeerSeen, Resumed, Standing, Taken


class Alone:
    """``clock`` gives seconds of CLOCK_BOOTTIME."""

    ready = True
    has_peers = False

    def __init__(self, node: str, clock: Callable[[], float], told: OwnerTold) -> None:
        self._node, self._clock, self._told = node, clock, told
        # Nobody else could have answered meanwhile: a request is never too old.
        self._fleet = Links(clock, told, self._lost, oldest=math.inf, ours=lambda mac: mac in self._macs)
        self._spots: dict[IPAddress, Placement] = {}
        self._since: dict[IPAddress, float] = {}
        self._known: set[IPAddress] = set()
        """Held before: nobody else was found to use them then."""
        self._macs: frozenset[Mac] = frozenset()
        self._beating: asyncio.Task[NoReturn]

    async def __aenter__(self) -> Self:
        await self._fleet.__aenter__()
        self._beating = asyncio.create_task(supervised("beat", self._beat, self._told), name="beat")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._beating.cancel()
        await self._fleet.__aexit__(kind, error, tb)

    def _lost(self, link: Link, error: Exception) -> None:
        if not isinstance(error, EdgeError):
            self._told.internal_error("link", error)
        self._told.lost_link(link, str(error))

    def links(self, links: Collection[Link], macs: frozenset[Mac]) -> None:
        self._macs = macs
        for link in links:
            self._fleet.peers(link.index, macs)

    def withdraw(self, addresses: Iterable[IPAddress]) -> None:
        gone = list(addresses)
        self._fleet.drop(gone)
        for address in gone:
            if self._spots.pop(address, None) is not None:
                del self._since[address]
                self._told.yielded(address, "not_offered", None)

    def offer(self, spots: Mapping[IPAddress, Placement]) -> list[IPAddress]:
        """Those that could not be taken, through a bug of ours."""
        taken, failed = take_each(self._fleet, spots, spots.keys() - self._known, self._told)
        self._known.update(taken)
        for address in taken:
            self._spots[address] = spots[address]
            if address not in self._since:
                self._since[address] = time.time()
                self._told.claimed(address, spots[address], 0, None)
        return failed

    def retell(self) -> None:
        """Nothing that was told before and goes on."""

    @property
    def offered(self) -> Mapping[IPAddress, Placement]:
        """What this node may hold."""
        return self._spots

    def resumed(self) -> Resumed:
        return Resumed(dict(self._spots), {address: Taken(spot, None) for address, spot in self._spots.items()})

    def standing(self, address: IPAddress) -> Standing:
        mine = address in self._since
        return Standing(mine, self._node if mine else None, 0, self._since.get(address))

    def peers(self) -> list[PeerSeen]:
        return []

    async def _beat(self) -> None:
        while True:
            self._fleet.extend(sole.deadline(self._clock()))
            await asyncio.sleep(sole.BEAT)
