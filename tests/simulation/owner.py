"""What a host makes of its machine's orders: the wire process's own code, on links without sockets.

``SharedOwner`` carries the orders out (``speaker/wire/shared.py``), ``Links`` knows which link has which EIP and until
when each may answer, ``Holdings`` and ``Claims`` what one link answers for. All of these are the real ones. Whether a
host answers follows from them, and so from the orders alone. What is left out are sockets, and the tasks that open and
watch them. A module of its own, since ``.ci/compiled.py`` cannot compile what inherits from code that is not compiled.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol, cast

from speaker.layer2.answer import Claims
from speaker.layer2.holdings import Holdings
from speaker.layer2.link import LinkResponder, Links
from speaker.layer2.responder import Observer
from speaker.model import Gratuitous, IPAddress, Link, Mac, Placement
from speaker.model.events import Countable, EipClaimed, EipYielded
from speaker.ownership.events import Ask, Order, Question, SendHello, WriteRecord, Yielded
from speaker.ownership.machine.machine import Ownership
from speaker.wire.messages import WireEvent
from speaker.wire.shared import SharedOwner

_ALL = 1 << 30
_OFTEN = Gratuitous()


class Deeds(Protocol):
    """What the orders of one host do outside of it."""

    def send(self, order: SendHello) -> bool:
        """Whether it left."""

    def ask(self, order: Ask | Question) -> None: ...

    def write(self, order: WriteRecord) -> None: ...

    def probe(self, eip: IPAddress) -> None:
        """It answers once nobody else is found to."""

    def end_probe(self, eip: IPAddress) -> None:
        """If it is under way."""

    def announce(self, link: int, eips: tuple[IPAddress, ...]) -> None: ...

    def claimed(self, eip: IPAddress, term: int) -> None: ...

    def yielded(self, eip: IPAddress, reason: Yielded) -> None: ...

    def drop_hellos(self) -> None:
        """Those that wait."""

    def drop_requests(self) -> None: ...

    def done(self) -> None:
        """All orders of one step are carried out. What was between two of them lasted no time."""


class Owner:
    """One life. ``clock``: the host's, in seconds."""

    def __init__(self, machine: Ownership, clock: Callable[[], float], links: Iterable[int], deeds: Deeds) -> None:
        self._clock, self._deeds = clock, deeds
        self._links = {link: Link(link, f"eth{link}", Mac(bytes((2, 0, 0, 0, 0, link)))) for link in links}
        self._owner = _Owner(machine, clock, _Events(deeds), deeds)
        self._layer2 = cast(_Links, self._owner._layer2)
        self._layer2.deeds = deeds
        self._owner.hello_links = cast(Any, _HelloLinks(self._owner, deeds))

    def offer(self, eip: IPAddress, link: int | None) -> None:
        """As the main process offers it: ``link`` None takes the offer back."""
        placements = self._owner.placements
        if link is None:
            placements.pop(eip, None)
        else:
            placements[eip] = Placement(self._links[link], _OFTEN)

    def carry_out(self, orders: list[Order]) -> None:
        if orders:
            self._owner._carry_out(orders, self._clock())
            self._deeds.done()

    def answers(self, eip: IPAddress) -> bool:
        """A request that arrives at this moment."""
        return self._layer2.answers(eip.packed, self._clock())

    def proven(self, eip: IPAddress) -> None:
        """Its probe found nobody else."""
        self._layer2.proven(eip.packed, self._clock())


class _Owner(SharedOwner):
    def __init__(self, machine: Ownership, clock: Callable[[], float], events: "_Events", deeds: Deeds) -> None:
        super().__init__(machine, cast(Any, None), clock, events, _Links)
        self._deeds = deeds

    def _ask(self, order: Ask | Question) -> None:
        self._deeds.ask(order)


class _Events:
    """What happened; and what is to be written to the API server."""

    def __init__(self, deeds: Deeds) -> None:
        self._deeds = deeds

    def tell(self, event: WireEvent) -> None:
        match event:
            case EipClaimed(eip=eip, term=term):
                self._deeds.claimed(eip, term)
            case EipYielded(eip=eip, reason=reason):
                self._deeds.yielded(eip, Yielded(reason))
            case WriteRecord():
                self._deeds.write(event)
            case _:
                pass

    def count(self, what: Countable, number: int) -> None: ...

    def internal_error(self, task: str, error: BaseException) -> None:
        """A bug that the machine met is given up by the machine. None is to be met in carrying its orders out."""
        if not task.startswith("ownership"):
            raise error


class _HelloLinks:
    def __init__(self, owner: _Owner, deeds: Deeds) -> None:
        self._owner, self._deeds = owner, deeds

    def get(self, link: int) -> int:
        return link

    def send(self, link: int, order: SendHello, now: float) -> None:
        if self._deeds.send(order):
            self._owner._layer2.extend(now + self._owner.machine.times.self_lease, link)

    def drop_queued(self) -> None:
        self._deeds.drop_hellos()


class _Links(Links):
    deeds: Deeds

    def answers(self, address: bytes, now: float) -> bool:
        responders = cast(Iterable[Responder], self._responders.values())
        return any(one.claims.answered(address) and not one.claims.expired(now) for one in responders)

    def proven(self, address: bytes, now: float) -> None:
        for responder in cast(Iterable[Responder], self._responders.values()):
            responder.holdings.proven([address], now)

    def take(self, placements: Mapping[IPAddress, Placement], probe: Collection[IPAddress] = ()) -> None:
        super().take(placements, probe)
        for eip, (link, *_) in placements.items():
            if not self.is_unproven(eip):
                self.deeds.announce(link.index, (eip,))
            elif eip in probe:
                self.deeds.probe(eip)

    def drop(self, addresses: Iterable[IPAddress]) -> None:
        addresses = list(addresses)
        super().drop(addresses)
        for eip in addresses:
            self.deeds.end_probe(eip)

    def announce(self, addresses: Iterable[IPAddress]) -> None:
        eips = tuple(addresses)
        super().announce(eips)
        for one in cast(Iterable[Responder], self._responders.values()):
            if any(eip.packed in one.holdings.eips for eip in eips):
                self.deeds.announce(one.link.index, eips)

    def drop_queued(self) -> None:
        self.deeds.drop_requests()

    def _responder(self, link: Link) -> LinkResponder:
        identity = link.index, link.mac
        if identity not in self._responders:
            responder = self._responders[identity] = cast(
                LinkResponder, Responder(link, self._owner.clock, self._observer)
            )
            responder.extend(self._deadlines.get(link.index, self._deadline))
        return self._responders[identity]


class Responder:
    """A ``LinkResponder`` whose sockets are open from the beginning, and that works off at once what it is asked."""

    def __init__(self, link: Link, clock: Callable[[], float], observer: Observer) -> None:
        self.link, self._clock, self._observer = link, clock, observer
        self.claims = Claims(link.mac)
        self.holdings = Holdings(self.claims)

    @property
    def holds(self) -> bool:
        return True

    def is_unproven(self, address: bytes) -> bool:
        return address in self.holdings.unproven

    def take(self, eips: Mapping[bytes, Gratuitous], probe: Collection[bytes] = ()) -> None:
        self.holdings.take(eips, probe)
        self._work_off()

    def drop(self, addresses: Iterable[bytes]) -> None:
        self.holdings.drop(addresses)
        self._work_off()

    def announce(self, addresses: Iterable[bytes]) -> None:
        """The burst is the simulation's."""

    def extend(self, deadline: float) -> None:
        self.claims.deadline = deadline

    def _work_off(self) -> None:
        for error in self.holdings.work_off(self._clock(), _ALL).failed.values():
            raise error
