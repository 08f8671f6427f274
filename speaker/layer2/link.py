"""Everything layer 2 does on one link: answers, announces, probes, and is solicited.

Each request is decided by ``answer.py``, of what ``Claims`` says that this link answers for and until when;
``responder.py`` reads them and sends the replies.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from ipaddress import ip_address
from types import TracebackType
from typing import Self

from speaker.errors import EdgeError
from speaker.layer2.announcer import Announcer
from speaker.layer2.answer import Rival, answer_arp, answer_ndp, arp_rival, ndp_rival
from speaker.layer2.claims import Claims
from speaker.layer2.holdings import Holdings, Wanted
from speaker.layer2.multicast.groups import Groups
from speaker.layer2.observer import Observer
from speaker.layer2.prober import Prober
from speaker.layer2.responder import AnswerPolicy, Protocol, Responder
from speaker.layer2.sockets.filter import NOTHING, arp_program, ndp_program
from speaker.layer2.sockets.filter_tracker import FilterTracker
from speaker.layer2.sockets.frame_sender import FrameSender
from speaker.layer2.sockets.packet_socket import PacketSocket
from speaker.layer2.wakeup import Wakeup
from speaker.model import Family, Gratuitous, Link, Mac
from speaker.packets import arp, ndp
from speaker.system.garbage import letting_go
from speaker.system.supervise import contained, supervised

_ARP = Protocol(Family.IPV4, answer_arp, arp_rival)
_NDP = Protocol(Family.IPV6, answer_ndp, ndp_rival)
_ARP_ROOM = 64
_NDP_ROOM = 512
"""Bytes of a received frame that are looked at: solicitations have 86; a longer one counts as malformed."""
EIPS_A_SLICE = 256
"""Taken or let go before other tasks get their turn: a millisecond or two."""
JOINS_A_SLICE = 20
"""A millisecond at most."""


class LinkResponder:
    """Answers ARP and NDP on one link for the EIPs it holds, and announces them.

    ``clock`` gives seconds of CLOCK_BOOTTIME. Entering opens the sockets (in the caller's network namespace) and
    raises EdgeError where the link is gone, Unsupported without CAP_NET_RAW; leaving stops answering and leaves the
    multicast groups. What is ``wanted`` is held from the start, and kept up to date. ``run`` does the work; the other
    methods may be called before and while it runs, from its loop.
    A link that was recreated has a new index and takes a new LinkResponder. EIPs are the bytes that stand in packets.
    """

    def __init__(
        self,
        link: Link,
        clock: Callable[[], float],
        observer: Observer,
        policy: AnswerPolicy,
        wanted: Wanted,
    ) -> None:
        self.link = link
        self._clock, self._observer, self._policy = clock, observer, policy
        self._claims = Claims(link.mac)
        self._holdings = Holdings(self._claims, wanted)
        self._arp_filter, self._ndp_filter = FilterTracker(arp_program), FilterTracker(ndp_program)
        self._wakeup = Wakeup(clock)
        self._suspected: dict[bytes, asyncio.TimerHandle] = {}
        """EIPs of ours that a peer speaks for which does not claim them, as far as we have heard."""
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
            stack.callback(self._acquit)
            self._stack = stack.pop_all()
        claims, clock, observer = self._claims, self._clock, self._observer
        sender = FrameSender({Family.IPV4: self._arp, Family.IPV6: self._ndp}, claims, clock)
        self._arps = Responder(_ARP, self._arp, claims, self._policy, self._dispute, self._suspect, clock, observer)
        self._ndps = Responder(_NDP, self._ndp, claims, self._policy, self._dispute, self._suspect, clock, observer)
        self._announcer = Announcer(sender, self._holdings.burst, claims, clock, observer)
        self._prober = Prober(sender, self._holdings.probes, claims, self._proven, clock, observer)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()
        del self._arps, self._ndps, self._prober  # they refer back to us by what they call

    # ── what the owner says ──

    def take(self, eips: Mapping[bytes, Gratuitous], probe: Collection[bytes] = ()) -> None:
        """Answer for these as well, and announce them, each as its ``Gratuitous`` says; those in ``probe`` only once a
        probe found nobody else. A slice of them at once, the others soon."""
        idle = not self._holdings.unfinished
        self._holdings.take(eips, probe)
        if idle:
            with contained("work off", self._observer):
                self._work_off_slice()
        self._wakeup.cut()

    def drop(self, addresses: Iterable[bytes]) -> None:
        """Answer for these no longer, from this call on."""
        self._holdings.drop(addresses)
        self._wakeup.cut()

    def announce(self, addresses: Iterable[bytes]) -> None:
        """Announce these anew, burst and all; those not answered are passed over."""
        self._holdings.announce(addresses)
        self._wakeup.cut()

    def extend(self, deadline: float) -> None:
        """Answer and announce until this instant of ``clock``; one in the past silences at once."""
        now = self._clock()
        silent = self._claims.expired(now)
        self._claims.deadline = deadline
        if silent:
            self._announcer.changed()
            self._prober.changed()

    def peers(self, macs: frozenset[Mac]) -> None:
        """Other speakers' MACs on this link: what they say of EIPs that they claim is no conflict."""
        self._claims.peers = macs

    def drop_queued(self) -> None:
        """Drop unread what is waiting to be answered."""
        self._arps.drop_queued()
        self._ndps.drop_queued()
        self._holdings.probes.interrupt(self._clock())
        self._prober.changed()

    # ── what follows ──

    async def run(self) -> None:
        """Until cancelled; raises EdgeError when the link goes down or away."""
        name = self.link.name
        with contained("work off", self._observer):
            self._work_off_slice()
        try:
            with letting_go():
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._arps.serve(), name=f"arp {name}")
                    tasks.create_task(self._ndps.serve(), name=f"ndp {name}")
                    for task, work in (
                        ("work off", self._work_off),
                        ("announce", self._announcer.serve),
                        ("probe", self._prober.serve),
                    ):
                        supervision = supervised(task, work, self._observer, ends=(EdgeError,))
                        tasks.create_task(supervision, name=f"{task} {name}")
        except* EdgeError as errors:
            words = str(errors.exceptions[0])
        else:
            return
        raise EdgeError(words)

    async def _work_off(self) -> None:
        """Works off what was taken and dropped, and the groups and filters that follow from it, in slices."""
        while True:
            unfinished = self._work_off_slice()
            if unfinished:
                await asyncio.sleep(0)
            if self._join_slice() or unfinished:
                await asyncio.sleep(0)
                continue
            self._tighten()
            wakes = (self._groups.wake(), self._arp_filter.wake(), self._ndp_filter.wake())
            await self._wakeup.until(min((when for when in wakes if when is not None), default=None))

    def _work_off_slice(self) -> bool:
        """Whether there was something to work off."""
        if not self._holdings.unfinished:
            return False
        now = self._clock()
        came, gone, failed = self._holdings.work_off(now, EIPS_A_SLICE)
        for error in failed:
            self._observer.internal_error("work off", error)
        self._let_through(came, gone, now)
        self._groups.discard(address for address in gone if len(address) == 16)
        self._groups.add(address for address in came if len(address) == 16)
        self._announcer.changed()
        self._prober.changed()
        return True

    def _let_through(self, came: list[bytes], gone: list[bytes], now: float) -> None:
        for socket, tracker, length in ((self._arp, self._arp_filter, 4), (self._ndp, self._ndp_filter, 16)):
            if any(len(address) == length for address in gone):
                tracker.loosen(now)
            ours = [address for address in came if len(address) == length]
            if ours and (program := tracker.widen(ours, now)) is not None:
                socket.attach(program)

    def _tighten(self) -> None:
        now = self._clock()
        for socket, tracker, ours in (
            (self._arp, self._arp_filter, self._claims.arp),
            (self._ndp, self._ndp_filter, self._claims.ndp),
        ):
            when = tracker.wake()
            if when is not None and when <= now and (program := tracker.tighten(ours)) is not None:
                socket.attach(program)

    def _join_slice(self) -> bool:
        try:
            return self._groups.work(self._clock(), JOINS_A_SLICE)
        except EdgeError as error:  # IPv4, and neighbours that know us already, are served all the same
            self._observer.join_failed(error)
            return True

    def _proven(self, addresses: list[bytes]) -> None:
        self._holdings.proven(addresses, self._clock())
        self._announcer.changed()

    def _dispute(self, rival: Rival) -> None:
        now, held = self._clock(), self._claims.answered(rival.address)
        self._find(rival)
        if self._holdings.disputes.act(rival.address, now):
            self._observer.conflict(self.link, ip_address(rival.address), rival.mac, held)
            if held:
                self._announcer.defend(rival.address)

    def _find(self, rival: Rival) -> None:
        """Somebody uses what is probed for."""
        self._holdings.probes.taken(rival.address, self._clock())
        if not self._claims.answered(rival.address):
            self._policy.found(self.link.index, rival.address, rival.mac)

    def _suspect(self, rival: Rival) -> None:
        if not rival.asks and not self._policy.ours(rival.mac):
            self._find(rival)
        if rival.address in self._suspected or self._is_excused(rival):
            return
        loop = asyncio.get_running_loop()
        self._suspected[rival.address] = loop.call_later(self._policy.trial, self._convict, rival)

    def _convict(self, rival: Rival) -> None:
        del self._suspected[rival.address]
        if rival.address in self._claims and not self._is_excused(rival):
            self._dispute(rival)

    def _is_excused(self, rival: Rival) -> bool:
        return self._policy.excuses(self.link.index, rival.address, rival.mac)

    def _acquit(self) -> None:
        for handle in self._suspected.values():
            handle.cancel()
        self._suspected.clear()
