"""Everything layer 2 does on one link: answers, announces, probes, and is solicited.

Each request is decided by ``answer.py``. ``Claims`` (``claims.py``) says which EIPs this link answers for, and until
when. ``responder.py`` reads the requests and sends the replies.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple, NoReturn

from speaker.errors import EdgeError
from speaker.layer2.announcer import Announcer
from speaker.layer2.answer import Rival, answer_arp, answer_ndp, arp_rival, ndp_rival
from speaker.layer2.claims import Claims
from speaker.layer2.holdings import Holdings
from speaker.layer2.multicast.groups import Groups
from speaker.layer2.observer import Observer
from speaker.layer2.prober import Prober
from speaker.layer2.proof import Proof, Unproven
from speaker.layer2.responder import AnswerPolicy, Protocol, Responder
from speaker.layer2.sockets.filter import NOTHING, arp_program, ndp_program
from speaker.layer2.sockets.filter_tracker import FilterTracker
from speaker.layer2.sockets.frame_sender import FrameSender
from speaker.layer2.sockets.packet_socket import PacketSocket
from speaker.layer2.wakeup import Wakeup
from speaker.model import Family, Gratuitous, Link, Mac
from speaker.model.events import Conflict, JoinFailed
from speaker.packets import arp, ndp
from speaker.system.garbage import let_go, letting_go
from speaker.system.retry import retrying
from speaker.system.supervise import BUGS, contained, lasting, report, single, supervised

_ARP = Protocol(Family.IPV4, answer_arp, arp_rival)
_NDP = Protocol(Family.IPV6, answer_ndp, ndp_rival)
_ARP_ROOM = 64
_NDP_ROOM = 512
"""Bytes of a received frame that are looked at: solicitations have 86; a longer one counts as malformed."""
_LENGTHS = {Family.IPV4: 4, Family.IPV6: 16}
"""Of an EIP as it stands in packets."""
EIPS_A_SLICE = 256
"""Taken or let go before other tasks get their turn: a millisecond or two."""
RETRY_MAX = 5.0
"""Seconds at most between two tries to open a link."""
STILL_SECONDS = 0.1
"""A task that does nothing for so long, and has something to do, does not get on."""
JOINS_A_SLICE = 20
"""A millisecond at most."""


class _Opened(NamedTuple):
    """What there is while the sockets are open."""

    sockets: Mapping[Family, PacketSocket]
    filters: Mapping[Family, FilterTracker]
    responders: tuple[Responder, ...]
    groups: Groups


class LinkResponder:
    """Answers ARP and NDP on one link for the EIPs it holds, and announces them.

    ``clock`` gives seconds of CLOCK_BOOTTIME. Once started it opens its sockets (in the network namespace of the loop's
    thread), and opens them again whenever they fail; ``lost`` hears of every failure: an EdgeError, also where the link
    is gone, Unsupported without CAP_NET_RAW, or what nobody foresaw. Stopped, it answers for nothing and has left the
    multicast groups. The other methods may be called at any time, from its loop: what they say holds for every opening.
    A link that was recreated has a new index and takes a new LinkResponder. EIPs are the bytes that stand in packets.
    """

    def __init__(
        self,
        link: Link,
        clock: Callable[[], float],
        observer: Observer,
        policy: AnswerPolicy,
        lost: Callable[[Link, BaseException], None],
    ) -> None:
        self.link = link
        self._clock, self._observer, self._policy, self._lost = clock, observer, policy, lost
        self._claims = Claims(link.mac)
        self._holdings = Holdings(self._claims, policy.pace)
        self._sender = FrameSender(self._claims, clock)
        self._announcer = Announcer(self._sender, self._holdings, clock, observer)
        self._prober = Prober(self._sender, self._holdings, self._announcer.changed, clock, observer)
        self._wakeup = Wakeup(clock)
        self._proofs = {protocol.family: Proof(protocol, self._claims, clock) for protocol in (_ARP, _NDP)}
        self._at_work = {"work off": self._wakeup, "announce": self._announcer.wakeup, "probe": self._prober.wakeup}
        self._suspected: dict[bytes, asyncio.TimerHandle] = {}
        """EIPs of ours that a peer speaks for which does not claim them, as far as we have heard."""
        self._opened: _Opened | None = None
        self._task: asyncio.Task[NoReturn] | None = None

    def start(self, tasks: asyncio.TaskGroup) -> None:
        work = supervised("link", self._serve, self._observer)
        self._task = tasks.create_task(work, name=f"layer 2 on {self.link.name}")

    def stop(self) -> None:
        """For good."""
        if self._task is not None:
            self._task.cancel()
            self._task = None  # which holds this object in turn

    def answers(self) -> bool:
        """Requests are answered here: the sockets are open, and one of our own gets its reply up to where that would be
        sent (ownership rule 35). Where two in a row do not, that EIP is given up; if no other request gets a reply
        either, the sockets are closed, and opened anew after a while."""
        if self._opened is None or any(responder.is_over for responder in self._opened.responders):
            return False
        if self._proves(self._opened) or self._proves(self._opened):
            return True
        if blamed := self._blamed(self._opened):
            for address in blamed:
                self._policy.failed(self.link.index, address)
            return True
        self._opened.responders[0].end(EdgeError(f"{self.link.name}: requests are not answered"))
        return False

    def _blamed(self, opened: _Opened) -> list[bytes]:
        """EIPs that are not answered for although others are."""
        try:
            found = [proof.blamed(opened.filters[family]) for family, proof in self._proofs.items()]
            return [address for address in found if address is not None]
        except BUGS as error:
            let_go(error)
            return []

    def _proves(self, opened: _Opened) -> bool:
        try:
            for family, proof in self._proofs.items():
                proof.give(opened.filters[family])
            for task, wakeup in self._at_work.items():
                if wakeup.stands_still(self._clock(), STILL_SECONDS):
                    raise Unproven(f"{task} does not get on")
        except BUGS as error:
            report("link", error, self._observer)
            let_go(error)
            return False
        return True

    @property
    def holds(self) -> bool:
        """There is something that it is to answer for."""
        return bool(self._holdings.wanted.eips)

    def is_unproven(self, address: bytes) -> bool:
        """It is not answered for until a probe finds nobody else."""
        return address in self._holdings.wanted.unproven

    # ── what the owner asks for ──

    def take(self, eips: Mapping[bytes, Gratuitous], probe: Collection[bytes] = ()) -> None:
        """Answer for these as well, and announce them, each as its ``Gratuitous`` says; those in ``probe`` only once a
        probe found nobody else. A slice of them at once, the others soon."""
        idle = not self._holdings.unfinished
        self._holdings.take(eips, probe)
        if idle and self._opened is not None:
            with contained("work off", self._observer):
                self._work_off_slice(self._opened)
        self._wakeup.cut()

    def drop(self, addresses: Iterable[bytes]) -> None:
        """Answer for these no longer, from this call on."""
        self._holdings.drop(addresses)
        self._wakeup.cut()

    def disown(self, address: bytes) -> None:
        """As ``drop``, of what that failed for: nothing is tidied up."""
        self._claims.discard(address)
        self._holdings.wanted.drop([address])

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

    def ask_from(self, own: IPv6Address | None) -> None:
        """This host's own address here, if any: probes ask from it as well."""
        self._prober.own = own

    def drop_queued(self) -> None:
        """Drop unread what is waiting to be answered."""
        if self._opened is not None:
            for responder in self._opened.responders:
                responder.drop_queued()
        self._holdings.probes.interrupt(self._clock())
        self._prober.changed()

    # ── what follows ──

    async def _serve(self) -> None:
        # A link that returns is tried at once: the longest wait is only between two hopeless tries.
        async for attempt in retrying(
            self._tell_lost, on=Exception, multiplier=0.05, limit=RETRY_MAX, steady=RETRY_MAX
        ):
            if self._task is None:
                return  # stopped just when it failed: a TaskGroup then raises the failure alone
            with attempt:
                await lasting("link", self._serve_once)

    def _tell_lost(self, error: Exception) -> None:
        """Whatever becomes of that, the link is tried again."""
        with contained("link", self._observer):
            self._lost(self.link, single(error)[0])

    async def _serve_once(self) -> None:
        """Ends with whatever of it ends: EdgeError when the link goes down or away, or what nobody foresaw."""
        with (
            PacketSocket(self.link, arp.ETHERTYPE, NOTHING, room=_ARP_ROOM, frame_length=arp.LENGTH) as arps,
            PacketSocket(
                self.link, ndp.ETHERTYPE, NOTHING, room=_NDP_ROOM, frame_length=ndp.ADVERTISEMENT_LENGTH
            ) as ndps,
            Groups(self.link) as groups,
        ):
            filters = {Family.IPV4: FilterTracker(arp_program), Family.IPV6: FilterTracker(ndp_program)}
            responders = self._responder(_ARP, arps), self._responder(_NDP, ndps)
            self._opened = opened = _Opened({Family.IPV4: arps, Family.IPV6: ndps}, filters, responders, groups)
            self._sender.sockets = opened.sockets
            try:
                await self._work(opened)
            finally:
                self._opened, self._sender.sockets = None, {}
                self._holdings.start_over()
                self._acquit()

    def _responder(self, protocol: Protocol, socket: PacketSocket) -> Responder:
        return Responder(
            protocol, socket, self._claims, self._policy, self._dispute, self._suspect, self._clock, self._observer
        )

    async def _work(self, opened: _Opened) -> None:
        """Until cancelled, or until the link fails."""
        name = self.link.name
        with contained("work off", self._observer):
            self._work_off_slice(opened)
        try:
            with letting_go():
                async with asyncio.TaskGroup() as tasks:
                    for protocol, responder in zip(("arp", "ndp"), opened.responders, strict=True):
                        tasks.create_task(lasting(protocol, responder.serve), name=f"{protocol} {name}")
                    for task, work in (
                        ("work off", partial(self._work_off, opened)),
                        ("announce", self._announcer.serve),
                        ("probe", self._prober.serve),
                    ):
                        supervision = supervised(task, work, self._observer, _soon, ends=(EdgeError,))
                        tasks.create_task(supervision, name=f"{task} {name}")
        except* EdgeError as errors:
            words = str(errors.exceptions[0])
        raise EdgeError(words)

    async def _work_off(self, opened: _Opened) -> None:
        """What was taken and dropped, and the groups and filters that follow from it, in slices."""
        while True:
            unfinished = self._work_off_slice(opened)
            if unfinished:
                await asyncio.sleep(0)
            if self._join_slice(opened.groups) or unfinished:
                self._wakeup.turn()
                await asyncio.sleep(0)
                continue
            self._tighten(opened)
            wakes = (opened.groups.wake(), *(tracker.wake() for tracker in opened.filters.values()))
            await self._wakeup.until(min((when for when in wakes if when is not None), default=None))

    def _work_off_slice(self, opened: _Opened) -> bool:
        """Whether there was something to work off."""
        if not self._holdings.unfinished:
            return False
        now = self._clock()
        came, gone, failed = self._holdings.work_off(now, EIPS_A_SLICE)
        try:
            self._follow(opened, came, gone, now)
        except BaseException:
            self._holdings.again((*came, *gone))
            raise
        for address, error in failed.items():
            report("work off", error, self._observer)
            self._policy.failed(self.link.index, address)
        return True

    def _follow(self, opened: _Opened, came: list[bytes], gone: list[bytes], now: float) -> None:
        for family, length in _LENGTHS.items():
            self._let_through(opened, family, _of_length(came, length), _of_length(gone, length), now)
        opened.groups.discard(_of_length(gone, 16))
        opened.groups.add(_of_length(came, 16))
        self._announcer.changed()
        self._prober.changed()

    def _let_through(self, opened: _Opened, family: Family, came: list[bytes], gone: list[bytes], now: float) -> None:
        tracker = opened.filters[family]
        if gone:
            tracker.loosen(now)
        if came and (program := tracker.widen(came, now)) is not None:
            opened.sockets[family].attach(program)

    def _tighten(self, opened: _Opened) -> None:
        now = self._clock()
        for family, ours in ((Family.IPV4, self._claims.arp), (Family.IPV6, self._claims.ndp)):
            tracker = opened.filters[family]
            when = tracker.wake()
            if when is not None and when <= now and (program := tracker.tighten(ours)) is not None:
                opened.sockets[family].attach(program)

    def _join_slice(self, groups: Groups) -> bool:
        try:
            return groups.work(self._clock(), JOINS_A_SLICE)
        except EdgeError as error:  # IPv4, and neighbours that know us already, are served all the same
            self._observer.tell(JoinFailed(str(error)))
            return True

    def _dispute(self, rival: Rival) -> None:
        self._note_used(rival)
        self._tell(rival)

    def _tell(self, rival: Rival) -> None:
        now, held = self._clock(), self._claims.answered(rival.address)
        if self._holdings.disputes.act(rival.address, now):
            self._observer.tell(Conflict(self.link, ip_address(rival.address), rival.mac, held))
            if held:
                self._announcer.defend(rival.address)

    def _note_used(self, rival: Rival) -> None:
        """Somebody uses what is probed for."""
        self._holdings.probes.taken(rival.address, self._clock())
        if not self._claims.answered(rival.address):
            self._policy.found(self.link.index, rival.address, rival.mac)

    def _suspect(self, rival: Rival) -> None:
        """A peer speaks for an EIP of ours: a conflict, unless its hellos claim the EIP by the end of ``trial``."""
        if not rival.asks and not self._policy.ours(rival.mac):
            self._note_used(rival)
        if rival.address in self._suspected or self._is_excused(rival):
            return
        loop = asyncio.get_running_loop()
        held = self._claims.answered(rival.address)
        self._suspected[rival.address] = loop.call_later(self._policy.trial, self._convict, rival, held)

    def _convict(self, rival: Rival, held: bool) -> None:
        """``held``: it spoke for what we answered for. Who answered our probe and fell silent is no rival any more."""
        del self._suspected[rival.address]
        proven = self._claims.answered(rival.address) and not held
        if rival.address in self._claims and not proven and not self._is_excused(rival):
            if rival.asks:  # what it answered was noted when it did
                self._note_used(rival)
            self._tell(rival)

    def _is_excused(self, rival: Rival) -> bool:
        return self._policy.excuses(self.link.index, rival.address, rival.mac)

    def _acquit(self) -> None:
        for handle in self._suspected.values():
            handle.cancel()
        self._suspected.clear()


def _soon(seconds: float) -> Awaitable[None]:
    """Clients wait for what it does: a tenth of the usual pause before it is started again."""
    return asyncio.sleep(seconds / 10)


def _of_length(addresses: Iterable[bytes], length: int) -> list[bytes]:
    return [address for address in addresses if len(address) == length]
