"""All links at once: one LinkSpeaker for each link that holds EIPs, kept alive while it does."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from speaker.errors import EdgeError
from speaker.layer2.link import LinkSpeaker
from speaker.layer2.observer import Observer
from speaker.model import Gratuitous, IPAddress, Link, Mac

RETRY_MAX = 30.0
"""Seconds at most between two tries to open a link's sockets. A link that returns is a new one, and tried at once."""


class Spot(NamedTuple):
    """Where and how an EIP is answered for."""

    link: Link
    gratuitous: Gratuitous


@dataclass(frozen=True, slots=True)
class _Port:
    """What makes a link another one: recreated, it has a new index; with another MAC, it needs other answers."""

    index: int
    mac: Mac


class Fleet:
    """``hold`` says which EIPs are answered on which links; the rest follows, also when a link fails and returns.

    ``clock`` gives seconds of CLOCK_BOOTTIME. ``lost`` hears of every failure of a link's sockets. Entering starts
    nothing; leaving withdraws everything.
    """

    def __init__(self, clock: Callable[[], float], observer: Observer, lost: Callable[[Link, Exception], None]) -> None:
        self._clock, self._observer, self._lost = clock, observer, lost
        self._spots: dict[IPAddress, Spot] = {}
        self._deadline = float("-inf")
        self._speakers: dict[_Port, LinkSpeaker] = {}
        self._tasks: dict[_Port, asyncio.Task[None]] = {}
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        for task in self._tasks.values():
            task.cancel()
        await self._group.__aexit__(kind, error, tb)

    def withdraw_except(self, spots: Mapping[IPAddress, Spot]) -> None:
        """Stop answering for every EIP that is not in ``spots``, or is there on another link; claim nothing new."""
        self.hold(
            {
                address: spot
                for address, spot in self._spots.items()
                if address in spots and _port(spots[address].link) == _port(spot.link)
            }
        )

    def hold(self, spots: Mapping[IPAddress, Spot]) -> None:
        """Answer for these EIPs from now on and for no others."""
        self._spots = dict(spots)
        links = {_port(spot.link): spot.link for spot in spots.values()}
        by_port = self._by_port()
        for port in self._tasks.keys() - links.keys():
            self._tasks.pop(port).cancel()
        for port, speaker in self._speakers.items():
            speaker.hold(by_port[port])
        for port in links.keys() - self._tasks.keys():
            self._tasks[port] = self._group.create_task(self._serve(links[port]), name=f"layer 2 on {links[port].name}")

    def extend(self, deadline: float) -> None:
        """Answer until this instant, on every link, also on those that come up later."""
        self._deadline = deadline
        for speaker in self._speakers.values():
            speaker.extend(deadline)

    async def _serve(self, link: Link) -> None:
        def tell(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            if isinstance(error, EdgeError):
                self._lost(link, error)

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(EdgeError),
            wait=wait_random_exponential(multiplier=0.05, max=RETRY_MAX),
            before_sleep=tell,
        )
        async for attempt in retrying:
            with attempt:
                await self._serve_once(link)

    async def _serve_once(self, link: Link) -> None:
        port = _port(link)
        with LinkSpeaker(link, self._clock, self._observer) as speaker:
            self._speakers[port] = speaker
            try:
                speaker.extend(self._deadline)
                speaker.hold(self._by_port()[port])
                await speaker.run()
            finally:
                # Unless the same link was let go and taken again before this task noticed.
                if self._speakers.get(port) is speaker:
                    del self._speakers[port]

    def _by_port(self) -> Mapping[_Port, dict[IPAddress, Gratuitous]]:
        found: defaultdict[_Port, dict[IPAddress, Gratuitous]] = defaultdict(dict)
        for address, spot in self._spots.items():
            found[_port(spot.link)][address] = spot.gratuitous
        return found


def _port(link: Link) -> _Port:
    return _Port(link.index, link.mac)
