"""Everything layer 2 does on one link: answers, announces, and is solicited."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from speaker.errors import EdgeError
from speaker.layer2 import arp, ndp
from speaker.layer2.announcer import Announcer
from speaker.layer2.answer import answer_arp, answer_ndp
from speaker.layer2.burst import Burst
from speaker.layer2.claims import Claims
from speaker.layer2.filter import NOTHING, arp_filter, ndp_filter
from speaker.layer2.groups import Groups
from speaker.layer2.observer import Observer
from speaker.layer2.responder import Responder
from speaker.layer2.wire import PacketSocket
from speaker.model import Family, Gratuitous, IPAddress, Link

_ARP_ROOM = 64
_NDP_ROOM = 512
"""Bytes of a received frame that are looked at: solicitations have 86; a longer one counts as malformed."""


class LinkSpeaker:
    """Answers ARP and NDP on one link for the EIPs it holds, and announces them.

    ``clock`` gives seconds of CLOCK_BOOTTIME. Entering opens the sockets (in the caller's network namespace) and
    raises EdgeError where the link is gone, Unsupported without CAP_NET_RAW; leaving stops answering and leaves the
    multicast groups. ``run`` does the work; ``hold``, ``extend`` and ``announce`` may be called before and while it
    runs, from its loop. A link that was recreated has a new index and takes a new LinkSpeaker.
    """

    def __init__(self, link: Link, clock: Callable[[], float], observer: Observer) -> None:
        self.link = link
        self._clock, self._observer = clock, observer
        self._claims = Claims(link.mac)
        self._burst = Burst()
        self._held: dict[bytes, Gratuitous] = {}  # by packed address
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._arp = stack.enter_context(
                PacketSocket(self.link, arp.ETHERTYPE, NOTHING, room=_ARP_ROOM, frame_length=arp.LENGTH)
            )
            self._ndp = stack.enter_context(
                PacketSocket(self.link, ndp.ETHERTYPE, NOTHING, room=_NDP_ROOM, frame_length=ndp.ADVERTISEMENT_LENGTH)
            )
            self._groups = stack.enter_context(Groups(self.link))
            stack.callback(self._claims.clear)
            self._stack = stack.pop_all()
        sockets = {Family.IPV4: self._arp, Family.IPV6: self._ndp}
        self._announcer = Announcer(sockets, self._burst, self._groups, self._claims, self._clock, self._observer)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()

    def hold(self, eips: Mapping[IPAddress, Gratuitous]) -> None:
        """The EIPs claimed on this link from now on, each with how it is announced.

        Missing ones are withdrawn first, new ones answered and announced at once; one whose ``Gratuitous`` changed
        is announced anew. Kept ones are not disturbed.
        """
        now = self._clock()
        wanted = {address.packed: gratuitous for address, gratuitous in eips.items()}
        gone = self._held.keys() - wanted.keys()
        for address in gone:
            self._claims.discard(address)
            self._burst.withdraw(address)
        new = wanted.keys() - self._held.keys()
        for address in new:
            self._claims.add(address)
        if gone or new:
            self._arp.attach(arp_filter(self._claims.arp))
            self._ndp.attach(ndp_filter(self._claims.ndp))
            self._groups.want(self._claims.ndp)
        for address, gratuitous in wanted.items():
            if self._held.get(address) != gratuitous:
                self._burst.announce(address, gratuitous, now)
        self._held = wanted
        self._announcer.changed()

    def extend(self, deadline: float) -> None:
        """Answer and announce until this instant of ``clock``; one in the past silences at once."""
        silent = self._claims.expired(self._clock())
        self._claims.deadline = deadline
        if silent:
            self._announcer.changed()

    def announce(self, addresses: Iterable[IPAddress]) -> None:
        """Announce these anew, burst and all; those not held are passed over."""
        now = self._clock()
        for address in (one.packed for one in addresses):
            if (gratuitous := self._held.get(address)) is not None:
                self._burst.announce(address, gratuitous, now)
        self._announcer.changed()

    async def run(self) -> None:
        """Until cancelled; raises EdgeError when the link goes down or away."""
        name = self.link.name
        arps = Responder(Family.IPV4, self._arp, answer_arp, self._claims, self._clock, self._observer)
        ndps = Responder(Family.IPV6, self._ndp, answer_ndp, self._claims, self._clock, self._observer)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(arps.serve(), name=f"arp {name}")
                tasks.create_task(ndps.serve(), name=f"ndp {name}")
                tasks.create_task(self._announcer.serve(), name=f"announce {name}")
        except* EdgeError as errors:
            lost = errors.exceptions[0]
        else:
            return
        raise lost
