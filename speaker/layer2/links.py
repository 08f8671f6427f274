"""All links at once: a LinkResponder for each that holds EIPs or is to be kept ready, kept alive while it does."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

from speaker.layer2.holdings import Wanted
from speaker.layer2.link import LinkResponder
from speaker.layer2.observer import Observer
from speaker.layer2.responder import AnswerPolicy
from speaker.model import Gratuitous, IPAddress, Link, Mac
from speaker.system.retry import retrying

OLDEST = 0.05
"""Seconds for which a request may have waited; an asker whose request is dropped asks again after one."""


class Placement(NamedTuple):
    """Where and how an EIP is answered for."""

    link: Link
    gratuitous: Gratuitous


_Identity: TypeAlias = tuple[int, Mac]
"""What makes a link another one: recreated, it has a new index; with another MAC, it needs other answers."""


@dataclass(slots=True, eq=False)
class _LinkState:
    """A link in use. ``responder`` is there while its sockets are open."""

    link: Link
    wanted: Wanted = field(default_factory=Wanted)
    responder: LinkResponder | None = None
    task: asyncio.Task[None] | None = None


class Links:
    """Which EIPs are answered on which links; the rest follows, also when a link fails and returns.

    Nothing is answered or announced before ``extend``, or past the deadline it sets.

    ``clock`` gives seconds of CLOCK_BOOTTIME. ``lost`` hears of every failure of a link: an EdgeError of its sockets,
    or what nobody foresaw. ``before_answer`` is called after requests were received and before any of them is answered,
    so that news that came earlier by another way is heeded; it must be quick, must not raise, and may call every method
    here. Requests that the kernel received more than ``oldest`` seconds ago are not answered. Entering starts nothing;
    leaving withdraws everything. ``excuses``, ``trial``, ``ours`` and ``found``: as in ``AnswerPolicy``.
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
        self._policy = AnswerPolicy(before_answer, oldest, excuses, trial, ours, found)
        self._states: dict[_Identity, _LinkState] = {}
        self._where: dict[bytes, _LinkState] = {}
        self._kept: frozenset[_Identity] = frozenset()
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
        while self._states:
            _cancel(self._states.popitem()[1])
        await self._group.__aexit__(kind, error, tb)

    # ── what the owner says ──

    def keep(self, links: Iterable[Link]) -> None:
        """Links that are up and whose sockets stay open although they hold nothing, so that a claim answers at once;
        others are closed when they hold nothing."""
        links = list(links)
        self._kept = frozenset(map(_identity, links))
        for link in links:
            self._state(link)
        self._let_go()

    def take(self, placements: Mapping[IPAddress, Placement], probe: Collection[IPAddress] = ()) -> None:
        """Answer for these too from now on, and announce them; one held on another link moves.

        Those in ``probe``, unless answered already, only once a probe (60 ms) found that nobody else uses them; if
        somebody does, the observer hears of it, and they are probed again every second until nobody does. Of another
        speaker it hears only where that one claims it in no hello.
        Of thousands a part is answered at once and the rest within milliseconds, so that nothing else is late for them.
        """
        states: dict[int, _LinkState] = {}  # by identity of the link: thousands of EIPs share a handful of them
        coming: defaultdict[_LinkState, dict[bytes, Gratuitous]] = defaultdict(dict)
        moving: list[bytes] = []
        unproven = {address.packed for address in probe}
        for eip, (link, gratuitous) in placements.items():
            address = eip.packed  # looking up an ``ipaddress`` object takes ten times as long
            state = states.get(id(link)) or states.setdefault(id(link), self._state(link))
            coming[state][address] = gratuitous
            before = self._where.get(address, state)
            if before is not state:
                moving.append(address)
                unproven.update({address}.intersection(before.wanted.unproven))
        self._drop(moving)
        for state, eips in coming.items():
            self._where.update(dict.fromkeys(eips, state))
            (state.responder or state.wanted).take(eips, unproven)
        self._let_go()

    def drop(self, addresses: Iterable[IPAddress]) -> None:
        """Stop answering for these, from this call on; those not held are passed over."""
        self._drop([address.packed for address in addresses])
        self._let_go()

    def announce(self, addresses: Iterable[IPAddress]) -> None:
        """Announce these anew, burst and all; those not answered are passed over."""
        for state, eips in self._by_state(address.packed for address in addresses).items():
            if state.responder is not None:
                state.responder.announce(eips)

    def extend(self, deadline: float, link: int | None = None) -> None:
        """Answer until this instant on the link of this index, or on every link; also when its sockets open later."""
        if link is None:
            self._deadline = deadline
            self._deadlines.clear()
        else:
            self._deadlines[link] = deadline
        for state in self._states.values():
            if state.responder is not None and link in (None, state.link.index):
                state.responder.extend(deadline)

    def peers(self, link: int, macs: frozenset[Mac]) -> None:
        """The MACs of the other speakers on the link of this index: what they say of EIPs that they claim is no
        conflict."""
        self._peers[link] = macs
        for state in self._states.values():
            if state.responder is not None and state.link.index == link:
                state.responder.peers(macs)

    def drop_queued(self) -> None:
        """Drop unread every request that waits to be answered, on every link (ownership rule 27)."""
        for state in self._states.values():
            if state.responder is not None:
                state.responder.drop_queued()

    def answers_on(self, link: int) -> bool:
        """The sockets of the link of this index are open."""
        return any(state.responder is not None for state in self._states.values() if state.link.index == link)

    # ── what follows ──

    def _drop(self, addresses: Iterable[bytes]) -> None:
        for state, eips in self._by_state(addresses).items():
            (state.responder or state.wanted).drop(eips)
            for address in eips:
                del self._where[address]

    def _by_state(self, addresses: Iterable[bytes]) -> Mapping[_LinkState, list[bytes]]:
        found: defaultdict[_LinkState, list[bytes]] = defaultdict(list)
        for address in addresses:
            if (state := self._where.get(address)) is not None:
                found[state].append(address)
        return found

    def _state(self, link: Link) -> _LinkState:
        identity = _identity(link)
        if (state := self._states.get(identity)) is None:
            state = self._states[identity] = _LinkState(link)
            state.task = self._group.create_task(self._serve(state), name=f"layer 2 on {link.name}")
        return state

    def _let_go(self) -> None:
        """Closes the links that hold nothing and are not kept."""
        for identity, state in list(self._states.items()):
            if not state.wanted.eips and identity not in self._kept:
                _cancel(self._states.pop(identity))

    async def _serve(self, state: _LinkState) -> None:
        # A link that returns is a new one, and tried at once: the longest wait is only between two hopeless tries.
        async for attempt in retrying(partial(self._lost, state.link), on=Exception, multiplier=0.05):
            if self._states.get(_identity(state.link)) is not state:
                return  # cancelled just when it failed: a TaskGroup then raises the failure alone
            with attempt:
                await self._serve_once(state)

    async def _serve_once(self, state: _LinkState) -> None:
        link = state.link
        with LinkResponder(link, self._clock, self._observer, self._policy, state.wanted) as responder:
            state.responder = responder
            try:
                responder.extend(self._deadlines.get(link.index, self._deadline))
                responder.peers(self._peers.get(link.index, frozenset()))
                await responder.run()
            finally:
                state.responder = None


def _identity(link: Link) -> _Identity:
    return link.index, link.mac


def _cancel(state: _LinkState) -> None:
    if state.task is not None:
        state.task.cancel()
        state.task = None  # which holds the state in turn
