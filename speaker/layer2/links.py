"""All links at once: a LinkResponder for each that holds EIPs or is to be kept ready (``link.py``)."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from ipaddress import IPv6Address
from types import TracebackType
from typing import Self, TypeAlias

from speaker.layer2.link import LinkResponder
from speaker.layer2.observer import Observer
from speaker.layer2.probe import AS_USUAL, Pace
from speaker.layer2.responder import AnswerPolicy
from speaker.model import Gratuitous, IPAddress, Link, Mac, Placement
from speaker.system.supervise import Supervisor, contained

_Identity: TypeAlias = tuple[int, Mac]
"""What makes a link another one: recreated, it has a new index; with another MAC, it needs other answers."""


class Links:
    """Which EIPs are answered on which links; the rest follows, also when a link fails and returns.

    Nothing is answered or announced before ``extend``, or past the deadline it sets.

    ``clock`` gives seconds of CLOCK_BOOTTIME. ``lost`` hears of every failure of a link: an EdgeError of its sockets,
    or what nobody foresaw. ``policy.before`` must be quick, must not raise, and may call every method here.
    ``pace``: of the probes. Entering starts nothing; leaving withdraws everything.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        observer: Observer,
        lost: Callable[[Link, BaseException], None],
        policy: AnswerPolicy,
        pace: Pace = AS_USUAL,
    ) -> None:
        self._clock, self._observer, self._lost = clock, observer, lost
        self._policy = replace(policy, pace=pace)
        self._responders: dict[_Identity, LinkResponder] = {}
        self._where: dict[bytes, LinkResponder] = {}
        self._kept: frozenset[_Identity] = frozenset()
        self._deadline = float("-inf")
        self._deadlines: dict[int, float] = {}
        self._peers: dict[int, frozenset[Mac]] = {}
        self._own: dict[int, IPv6Address | None] = {}
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        while self._responders:
            self._responders.popitem()[1].stop()
        await self._group.__aexit__(kind, error, tb)

    # ── what the owner asks for ──

    def keep(self, links: Iterable[Link]) -> None:
        """Links that are up and whose sockets stay open although they hold nothing, so that a claim answers at once;
        others are closed when they hold nothing."""
        links = list(links)
        self._kept = frozenset((link.index, link.mac) for link in links)
        for link in links:
            self._responder(link)
        self._let_go()

    def take(self, placements: Mapping[IPAddress, Placement], probe: Collection[IPAddress] = ()) -> None:
        """Answer for these too from now on, and announce them; one held on another link moves.

        Those in ``probe``, unless answered already, only once a probe (60 ms) found that nobody else uses them; if
        somebody does, the observer hears of it, and they are probed again every second until nobody does (``pace``).
        Of another speaker it hears only where that one claims it in no hello.
        Of thousands a part is answered at once and the rest within milliseconds, so that nothing else is late for them.
        """
        found: dict[int, LinkResponder] = {}  # by identity of the link: thousands of EIPs share a handful of them
        coming: defaultdict[LinkResponder, dict[bytes, Gratuitous]] = defaultdict(dict)
        moving: list[bytes] = []
        unproven = {address.packed for address in probe}
        for eip, (link, gratuitous) in placements.items():
            address = eip.packed  # looking up an ``ipaddress`` object takes ten times as long
            responder = found.get(id(link)) or found.setdefault(id(link), self._responder(link))
            coming[responder][address] = gratuitous
            before = self._where.get(address, responder)
            if before is not responder:
                moving.append(address)
                if before.is_unproven(address):
                    unproven.add(address)
        self._drop(moving)
        for responder, eips in coming.items():
            self._where.update(dict.fromkeys(eips, responder))
            responder.take(eips, unproven)
        self._let_go()

    def drop(self, addresses: Iterable[IPAddress]) -> None:
        """Stop answering for these, from this call on; those not held are passed over."""
        self._drop([address.packed for address in addresses])
        self._let_go()

    def disown(self, address: IPAddress) -> None:
        """Answer for it no longer, where ``drop`` met a bug of ours: its next holder is to be the only one."""
        for responder in self._responders.values():
            responder.disown(address.packed)

    def announce(self, addresses: Iterable[IPAddress]) -> None:
        """Announce these anew, burst and all; those not answered are passed over."""
        for responder, eips in self._by_responder(address.packed for address in addresses).items():
            responder.announce(eips)

    def extend(self, deadline: float, link: int | None = None) -> None:
        """Answer until this instant on the link of this index, or on every link; also when its sockets open later."""
        if link is None:
            self._deadline = deadline
            self._deadlines.clear()
        else:
            self._deadlines[link] = deadline
        for responder in self._responders.values():
            if link in (None, responder.link.index):
                responder.extend(deadline)

    def peers(self, link: int, macs: frozenset[Mac]) -> None:
        """The MACs of the other speakers on the link of this index: what they say of EIPs that they claim is no
        conflict."""
        self._peers[link] = macs
        for responder in self._responders.values():
            if responder.link.index == link:
                responder.peers(macs)

    def ask_from(self, link: int, own: Iterable[IPAddress]) -> None:
        """This host's own addresses on the link of this index: some answer no question that comes from nobody."""
        found = next((address for address in own if isinstance(address, IPv6Address)), None)
        self._own[link] = found
        for responder in self._responders.values():
            if responder.link.index == link:
                responder.ask_from(found)

    def drop_queued(self) -> None:
        """Drop unread every request that waits to be answered, on every link (ownership rule 27)."""
        for responder in self._responders.values():
            responder.drop_queued()

    def is_unproven(self, address: IPAddress) -> bool:
        """It is held, and not answered for until a probe finds nobody else."""
        responder = self._where.get(address.packed)
        return responder is not None and responder.is_unproven(address.packed)

    def answers_on(self, link: int) -> bool:
        """Requests on the link of this index are answered, as one of our own just was (ownership rule 35)."""
        return any(responder.answers() for responder in self._responders.values() if responder.link.index == link)

    # ── what follows ──

    def _drop(self, addresses: Iterable[bytes]) -> None:
        for responder, eips in self._by_responder(addresses).items():
            responder.drop(eips)
            for address in eips:
                self._where.pop(address, None)  # named twice where it was let go twice in one step

    def _by_responder(self, addresses: Iterable[bytes]) -> Mapping[LinkResponder, list[bytes]]:
        found: defaultdict[LinkResponder, list[bytes]] = defaultdict(list)
        for address in addresses:
            if (responder := self._where.get(address)) is not None:
                found[responder].append(address)
        return found

    def _responder(self, link: Link) -> LinkResponder:
        identity = link.index, link.mac
        if (responder := self._responders.get(identity)) is None:
            responder = LinkResponder(link, self._clock, self._observer, self._policy, self._lost)
            responder.extend(self._deadlines.get(link.index, self._deadline))
            responder.peers(self._peers.get(link.index, frozenset()))
            responder.ask_from(self._own.get(link.index))
            self._responders[identity] = responder
            responder.start(self._group)
        return responder

    def _let_go(self) -> None:
        """Closes the links that hold nothing and are not kept."""
        for identity, responder in list(self._responders.items()):
            if not responder.holds and identity not in self._kept:
                self._responders.pop(identity).stop()


def take_each(
    layer2: Links, placements: Mapping[IPAddress, Placement], probe: Collection[IPAddress], supervisor: Supervisor
) -> tuple[list[IPAddress], list[IPAddress]]:
    """An EIP that meets a bug of ours is given up, and no other. Returns those taken, and those that failed: nothing is
    answered for them."""
    with contained("take", supervisor):
        layer2.take(placements, probe)
        return list(placements), []
    taken: list[IPAddress] = []
    failed: list[IPAddress] = []
    for address, placement in placements.items():
        with contained("take", supervisor):
            layer2.take({address: placement}, {address}.intersection(probe))
            taken.append(address)
            continue
        failed.append(address)
    drop_each(layer2, failed, supervisor)
    return taken, failed


def drop_each(layer2: Links, addresses: Collection[IPAddress], supervisor: Supervisor) -> None:
    """Nothing is answered for these any more."""
    with contained("drop", supervisor):
        layer2.drop(addresses)
        return
    for address in addresses:
        with contained("drop", supervisor):
            layer2.drop([address])
            continue
        with contained("drop", supervisor):
            layer2.disown(address)
