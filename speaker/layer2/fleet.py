"""All links at once: one LinkSpeaker for each link that holds EIPs or is to be kept ready, kept alive while it does."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

from speaker.layer2.holdings import Wanted
from speaker.layer2.link import LinkSpeaker
from speaker.layer2.observer import Observer
from speaker.layer2.responder import Manner
from speaker.model import Gratuitous, IPAddress, Link, Mac
from speaker.retry import retrying

OLDEST = 0.05
"""Seconds for which a request may have waited; an asker whose request is dropped asks again after one."""


class Spot(NamedTuple):
    """Where and how an EIP is answered for."""

    link: Link
    gratuitous: Gratuitous


_Port: TypeAlias = tuple[int, Mac]
"""What makes a link another one: recreated, it has a new index; with another MAC, it needs other answers."""


@dataclass(slots=True, eq=False)
class _Berth:
    """A link in use. ``speaker`` is there while its sockets are open."""

    link: Link
    wanted: Wanted = field(default_factory=Wanted)
    speaker: LinkSpeaker | None = None
    task: asyncio.Task[None] | None = None


class Fleet:
    """Which EIPs are answered on which links; the rest follows, also when a link fails and returns.

    Nothing is answered or announced before ``extend``, or past the deadline it sets.

    ``clock`` gives seconds of CLOCK_BOOTTIME. ``lost`` hears of every failure of a link: an EdgeError of its sockets,
    or what nobody foresaw. ``before_answer`` is called after requests were received and before any of them is answered,
    so that news that came earlier by another way is heeded; it must be quick, must not raise, and may call every method
    here. Requests that the kernel received more than ``oldest`` seconds ago are not answered. Entering starts nothing;
    leaving withdraws everything. ``excuses``, ``trial``, ``ours`` and ``found``: as in ``Manner``.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        observer: Observer,
        lost: Callable[[Link, Exception], None],
        before_answer: Callable[[], None] = lambda: None,
        oldest: float = OLDEST,
        excuses: Callable[[int, bytes, Mac], bool] = lambda link, address, mac: True,
        trial: float = 0.0,
        ours: Callable[[Mac], bool] = lambda mac: False,
        found: Callable[[int, bytes, Mac], None] = lambda link, address, mac: None,
    ) -> None:
        self._clock, self._observer, self._lost = clock, observer, lost
        self._manner = Manner(before_answer, oldest, excuses, trial, ours, found)
        self._berths: dict[_Port, _Berth] = {}
        self._where: dict[bytes, _Berth] = {}
        self._kept: frozenset[_Port] = frozenset()
        self._deadline = float("-inf")
        self._deadlines: dict[int, float] = {}
        self._peers: dict[int, frozenset[Mac]] = {}
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        while self._berths:
            _cancel(self._berths.popitem()[1])
        await self._group.__aexit__(kind, error, tb)

    # ── what the owner says ──

    def keep(self, links: Iterable[Link]) -> None:
        """Links that are up and whose sockets stay open although they hold nothing, so that a claim answers at once;
        others are closed when they hold nothing."""
        links = list(links)
        self._kept = frozenset(map(_port, links))
        for link in links:
            self._berth(link)
        self._let_go()

    def take(self, spots: Mapping[IPAddress, Spot], probe: Collection[IPAddress] = ()) -> None:
        """Answer for these too from now on, and announce them; one held on another link moves.

        Those in ``probe``, unless answered already, only once a probe (60 ms) found that nobody else uses them; if
        somebody does, the observer hears of it, and they are probed again every second until nobody does. Of another
        speaker it hears only where that one claims it in no hello.
        Of thousands a part is answered at once and the rest within milliseconds, so that nothing else is late for them.
        """
        berths: dict[int, _Berth] = {}  # by identity of the link: thousands of EIPs share a handful of them
        coming: defaultdict[_Berth, dict[bytes, Gratuitous]] = defaultdict(dict)
        moving: list[bytes] = []
        unproven = {address.packed for address in probe}
        for eip, (link, gratuitous) in spots.items():
            address = eip.packed  # looking up an ``ipaddress`` object takes ten times as long
            berth = berths.get(id(link)) or berths.setdefault(id(link), self._berth(link))
            coming[berth][address] = gratuitous
            before = self._where.get(address, berth)
            if before is not berth:
                moving.append(address)
                unproven.update({address}.intersection(before.wanted.unproven))
        self._drop(moving)
        for berth, eips in coming.items():
            self._where.update(dict.fromkeys(eips, berth))
            (berth.speaker or berth.wanted).take(eips, unproven)
        self._let_go()

    def drop(self, addresses: Iterable[IPAddress]) -> None:
        """Stop answering for these, from this call on; those not held are passed over."""
        self._drop([address.packed for address in addresses])
        self._let_go()

    def announce(self, addresses: Iterable[IPAddress]) -> None:
        """Announce these anew, burst and all; those not answered are passed over."""
        for berth, eips in self._by_berth(address.packed for address in addresses).items():
            if berth.speaker is not None:
                berth.speaker.announce(eips)

    def extend(self, deadline: float, link: int | None = None) -> None:
        """Answer until this instant on the link of this index, or on every link; also when its sockets open later."""
        if link is None:
            self._deadline = deadline
            self._deadlines.clear()
        else:
            self._deadlines[link] = deadline
        for berth in self._berths.values():
            if berth.speaker is not None and link in (None, berth.link.index):
                berth.speaker.extend(deadline)

    def peers(self, link: int, macs: frozenset[Mac]) -> None:
        """The MACs of the other speakers on the link of this index: what they say of EIPs that they claim is no
        conflict."""
        self._peers[link] = macs
        for berth in self._berths.values():
            if berth.speaker is not None and berth.link.index == link:
                berth.speaker.peers(macs)

    def drop_queued(self) -> None:
        """Drop unread every request that waits to be answered, on every link (ownership rule 27)."""
        for berth in self._berths.values():
            if berth.speaker is not None:
                berth.speaker.drop_queued()

    def answers_on(self, link: int) -> bool:
        """The sockets of the link of this index are open."""
        return any(berth.speaker is not None for berth in self._berths.values() if berth.link.index == link)

    # ── what follows ──

    def _drop(self, addresses: Iterable[bytes]) -> None:
        for berth, eips in self._by_berth(addresses).items():
            (berth.speaker or berth.wanted).drop(eips)
            for address in eips:
                del self._where[address]

    def _by_berth(self, addresses: Iterable[bytes]) -> Mapping[_Berth, list[bytes]]:
        found: defaultdict[_Berth, list[bytes]] = defaultdict(list)
        for address in addresses:
            if (berth := self._where.get(address)) is not None:
                found[berth].append(address)
        return found

    def _berth(self, link: Link) -> _Berth:
        port = _port(link)
        if (berth := self._berths.get(port)) is None:
            berth = self._berths[port] = _Berth(link)
            berth.task = self._group.create_task(self._serve(berth), name=f"layer 2 on {link.name}")
        return berth

    def _let_go(self) -> None:
        """Closes the links that hold nothing and are not kept."""
        for port, berth in list(self._berths.items()):
            if not berth.wanted.eips and port not in self._kept:
                _cancel(self._berths.pop(port))

    async def _serve(self, berth: _Berth) -> None:
        # A link that returns is a new one, and tried at once: the longest wait is only between two hopeless tries.
        async for attempt in retrying(partial(self._lost, berth.link), on=Exception, multiplier=0.05):
            if self._berths.get(_port(berth.link)) is not berth:
                return  # cancelled just when it failed: a TaskGroup then raises the failure alone
            with attempt:
                await self._serve_once(berth)

    async def _serve_once(self, berth: _Berth) -> None:
        link = berth.link
        with LinkSpeaker(link, self._clock, self._observer, self._manner, berth.wanted) as speaker:
            berth.speaker = speaker
            try:
                speaker.extend(self._deadlines.get(link.index, self._deadline))
                speaker.peers(self._peers.get(link.index, frozenset()))
                await speaker.run()
            finally:
                berth.speaker = None


def _port(link: Link) -> _Port:
    return link.index, link.mac


def _cancel(berth: _Berth) -> None:
    if berth.task is not None:
        berth.task.cancel()
        berth.task = None  # which holds the berth in turn
