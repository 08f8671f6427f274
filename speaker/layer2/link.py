"""Everything that layer 2 does on one link (answers, announcements, probes, multicast groups), and on all of them.

Each request is decided by ``answer.py``, whose ``Claims`` say which EIPs this link answers for, and until when.
``responder.py`` reads the requests and sends the replies.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self, TypeAlias
from typing import Protocol as Interface

from speaker.errors import EdgeError
from speaker.layer2.answer import Claims, Rival, answer_arp, answer_ndp, arp_rival, ndp_rival
from speaker.layer2.filter import NOTHING, FilterTracker, arp_program, ndp_program
from speaker.layer2.groups import Groups
from speaker.layer2.holdings import AS_USUAL, Holdings, Pace
from speaker.layer2.responder import Clock, Observer, Proof, Protocol, Responder, Unproven
from speaker.layer2.sender import Sender
from speaker.model import Family, Gratuitous, IPAddress, Link, Mac, Placement
from speaker.model.events import Answers, Conflict, JoinFailed, KernelAnswers, SocketsAnswer
from speaker.packets import arp, ndp
from speaker.packets.packet_socket import PacketSocket
from speaker.system.garbage import let_go, letting_go
from speaker.system.retry import retrying
from speaker.system.supervise import BUGS, Supervisor, contained, lasting, report, single, supervised
from speaker.system.waiting import Wakeup

if TYPE_CHECKING:
    from speaker.layer2.kernel import KernelResponder

_ARP = Protocol(Family.IPV4, answer_arp, arp_rival)
_NDP = Protocol(Family.IPV6, answer_ndp, ndp_rival)
_ARP_ROOM = 64
_NDP_ROOM = 512
"""Bytes of a received frame that are looked at: solicitations have 86; a longer one counts as malformed."""
EIPS_A_SLICE = 256
"""EIPs taken or let go before other tasks get their turn: a millisecond or two."""
RETRY_MAX = 5.0
"""The longest time between two tries to open a link, in seconds."""
STILL_SECONDS = 0.1
"""A task that does nothing for so long although it has work makes no progress."""
JOINS_A_SLICE = 20
"""This takes at most a millisecond."""


class Owner(Interface):
    """The owner of the EIPs that are answered for. EIPs are bytes as in packets; links are named by their index.

    Requests that waited longer than ``request_age`` seconds are not answered. When a peer claims an EIP of ours by ARP
    or NDP, ``excuses`` is asked again after ``trial`` seconds: its hello may be lost and come later. ``clock`` returns
    seconds of CLOCK_BOOTTIME.
    """

    clock: Clock
    request_age: float
    trial: float

    def before_answering(self) -> None:
        """Requests have come, and none of them is answered yet: news that reached this host earlier another way can
        still change the claims. Must be quick, and may call every method of ``Links``."""

    def excuses(self, link: int, address: bytes, mac: Mac) -> bool:
        """Whether the peer with that MAC may claim the EIP by ARP or NDP: its hellos claim it, or did recently."""

    def is_ours(self, mac: Mac) -> bool:
        """Whether the MAC is one of this host's."""

    def found(self, link: int, address: bytes, mac: Mac) -> None:
        """``mac`` answers a probe for an EIP that is not answered yet."""

    def failed(self, link: int, address: bytes) -> None:
        """A bug keeps the EIP from being answered for."""

    def lost(self, link: Link, error: BaseException) -> None:
        """A link failed: with an EdgeError of its sockets, or with a bug."""


class InKernel(Interface):
    """Makes the responder in the kernel for a link."""

    def __call__(self, link: Link) -> "KernelResponder": ...


class _Port(NamedTuple):
    """One family's socket while it is open, the filter in front of it and the loop behind it."""

    length: int
    """Of an EIP as in packets."""
    ours: Mapping[bytes, object]
    socket: PacketSocket
    filter: FilterTracker
    responder: Responder
    proof: Proof

    def follow(self, came: Iterable[bytes], gone: Iterable[bytes], now: float) -> None:
        """Lets requests for those that ``came`` through, and after a while no longer those for what has ``gone``."""
        if self.of(gone):
            self.filter.loosen(now)
        if (ours := self.of(came)) and (program := self.filter.widen(ours, now)) is not None:
            self.socket.attach(program)

    def tighten(self, now: float) -> None:
        when = self.filter.wake()
        if when is not None and when <= now and (program := self.filter.tighten(self.ours)) is not None:
            self.socket.attach(program)

    def of(self, addresses: Iterable[bytes]) -> list[bytes]:
        return [address for address in addresses if len(address) == self.length]


class _Opened(NamedTuple):
    """What exists while the sockets are open."""

    arp: _Port
    ndp: _Port
    groups: Groups
    kernel: "KernelResponder | None"

    @property
    def ports(self) -> tuple[_Port, _Port]:
        return self.arp, self.ndp


class LinkResponder:
    """Answers ARP and NDP on one link for the EIPs it holds, and announces them.

    Once started it opens its sockets (in the network namespace of the loop's thread), and opens them again whenever
    they fail. ``owner.lost`` hears of every failure: an EdgeError, even if the link is gone; Unsupported without
    CAP_NET_RAW; or an unexpected error. Stopped, it answers for nothing and has left the multicast groups. The other
    methods may be called at any time, from its loop: what they say holds for every opening. A link that was created
    again has a new index and needs a new LinkResponder. EIPs are bytes as in packets.
    """

    def __init__(
        self, link: Link, observer: Observer, owner: Owner, pace: Pace = AS_USUAL, in_kernel: InKernel | None = None
    ) -> None:
        self.link, self._in_kernel = link, in_kernel
        self.clock, self._observer, self._owner = owner.clock, observer, owner
        self._claims = Claims(link.mac)
        self._holdings = Holdings(self._claims, pace)
        self._sender = Sender(self._holdings, owner.clock, observer)
        self._wakeup = Wakeup(owner.clock)
        self._suspected: dict[bytes, asyncio.TimerHandle] = {}
        """EIPs of ours that a peer claims by ARP or NDP, but, as far as we have heard, not in its hellos."""
        self._opened: _Opened | None = None
        self._task: asyncio.Task[NoReturn] | None = None

    def start(self, tasks: asyncio.TaskGroup) -> None:
        work = supervised("link", self._serve, self._observer)
        self._task = tasks.create_task(work, name=f"layer 2 on {self.link.name}")

    def stop(self) -> None:
        """Stops for good."""
        if self._task is not None:
            self._task.cancel()
            self._task = None  # which refers back to this object

    def answers(self) -> bool:
        """Requests are answered here: the sockets are open, and a test request of our own gets its reply, up to where
        that would be sent (ownership rule 35). If two in a row get none, that EIP is given up; if no other request gets
        a reply either, the sockets are closed, and opened again after a while."""
        if (opened := self._opened) is None or opened.arp.responder.is_over or opened.ndp.responder.is_over:
            return False
        if self._proves(opened) or self._proves(opened):
            return True
        for address in (blamed := self._blamed(opened)):
            self._owner.failed(self.link.index, address)
        if not blamed:
            opened.arp.responder.end(EdgeError(f"{self.link.name}: requests are not answered"))
        return bool(blamed)

    def _blamed(self, opened: _Opened) -> list[bytes]:
        """EIPs that are not answered for although others are."""
        try:
            found = [port.proof.blamed(port.filter) for port in opened.ports]
            return [address for address in found if address is not None]
        except BUGS as error:
            let_go(error)
            return []

    def _proves(self, opened: _Opened) -> bool:
        try:
            opened.arp.proof.give(opened.arp.filter)
            opened.ndp.proof.give(opened.ndp.filter)
            if (kernel := opened.kernel) is not None:
                self._agree(opened, kernel)
            at_work = ("work off", self._wakeup), ("announce", self._sender.announcing), ("probe", self._sender.probing)
            reading = ("arp", opened.arp.responder), ("ndp", opened.ndp.responder)
            for task, each in (*at_work, *reading):
                if each.stands_still(self.clock(), STILL_SECONDS):
                    raise Unproven(f"{task} makes no progress")
        except BUGS as error:
            report("link", error, self._observer)
            let_go(error)
            return False
        return True

    def _agree(self, opened: _Opened, kernel: "KernelResponder") -> None:
        """Checks that the kernel answers a request as we would. Otherwise it is told to answer nothing any more, and
        the sockets do."""
        if why := kernel.refused():
            self._observer.tell(SocketsAnswer(self.link, why))
        for protocol, port in zip((_ARP, _NDP), opened.ports, strict=True):
            if (address := port.proof.proven) is not None:
                request, ours = port.proof.question(address)
                if (reply := kernel.reply(request, protocol.family)) is not None and reply != ours:
                    kernel.close(why := "a request of our own got another answer in the kernel")
                    raise Unproven(why)
        for family, number in kernel.answered().items():
            if number:
                self._observer.count(Answers(family), number)
                self._observer.count(KernelAnswers(family), number)

    @property
    def holds(self) -> bool:
        """Whether it has anything to answer for."""
        return bool(self._holdings.eips)

    def is_unproven(self, address: bytes) -> bool:
        """Whether it stays unanswered until a probe has found no other user."""
        return address in self._holdings.unproven

    # ── what the owner asks for ──

    def take(self, eips: Mapping[bytes, Gratuitous], probe: Collection[bytes] = ()) -> None:
        """Answer for these as well, and announce them, each as its ``Gratuitous`` says; those in ``probe`` only once a
        probe found nobody else. One slice of them at once, the others soon."""
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
        """Like ``drop``, for an EIP for which that failed: nothing is tidied up."""
        self._holdings.disown(address)

    def announce(self, addresses: Iterable[bytes]) -> None:
        """Announce these again, burst and all; those not answered are ignored."""
        self._holdings.announce(addresses)
        self._wakeup.cut()

    def extend(self, deadline: float) -> None:
        """Answer and announce until this instant of ``clock``; an instant in the past silences at once."""
        now = self.clock()
        silent = self._claims.expired(now)
        self._claims.extend(deadline)
        if silent:
            self._sender.changed()

    @property
    def arrived(self) -> int:
        """See ``Links`` for this and the next."""
        return opened.kernel.arrived if (opened := self._opened) is not None and opened.kernel is not None else 0

    def heard(self, arrived: int) -> None:
        if self._opened is not None and self._opened.kernel is not None:
            self._opened.kernel.heard(arrived)

    def peers(self, macs: frozenset[Mac]) -> None:
        """The MACs of other speakers on this link: what they say about EIPs that they claim is no conflict."""
        self._claims.peers = macs

    def ask_from(self, own: IPv6Address | None) -> None:
        """This host's own address here, if any: probes ask from it as well."""
        self._sender.own = own

    def drop_queued(self) -> None:
        """Discards, unread, the requests that wait to be answered."""
        if self._opened is not None:
            for port in self._opened.ports:
                port.responder.drop_queued()
        self._holdings.probes.interrupt(self.clock())
        self._sender.changed()

    # ── what follows ──

    async def _serve(self) -> None:
        # A link that returns is tried at once: the longest wait is only between two hopeless tries.
        tell = self._tell_lost
        async for attempt in retrying(tell, on=Exception, multiplier=0.05, limit=RETRY_MAX, steady=RETRY_MAX):
            if self._task is None:
                return  # stopped just when it failed: a TaskGroup then raises only the failure
            with attempt:
                await lasting("link", self._serve_once)

    def _tell_lost(self, error: Exception) -> None:
        """Reports a failure. Whatever happens in that, the link is tried again."""
        with contained("link", self._observer):
            self._owner.lost(self.link, single(error)[0])

    async def _serve_once(self) -> None:
        """Ends when any part of it ends: with EdgeError if the link goes down or away, or with a bug."""
        arps = PacketSocket(self.link, arp.ETHERTYPE, NOTHING, room=_ARP_ROOM, frame_length=arp.LENGTH)
        with (
            closing(arps),
            closing(self._ndp_socket()) as ndps,
            closing(Groups(self.link)) as groups,
            self._answering_in_kernel() as kernel,
        ):
            arp_port = self._port(4, _ARP, arps, FilterTracker(arp_program))
            ndp_port = self._port(16, _NDP, ndps, FilterTracker(ndp_program))
            self._opened = opened = _Opened(arp_port, ndp_port, groups, kernel)
            self._sender.sockets = {Family.IPV4: arps, Family.IPV6: ndps}
            try:
                await self._work(opened)
            finally:
                self._opened, self._sender.sockets = None, {}
                self._holdings.start_over()
                self._acquit()

    @contextmanager
    def _answering_in_kernel(self) -> "Iterator[KernelResponder | None]":
        """None if it is not asked for, or refused: the sockets answer."""
        with ExitStack() as stack:
            kernel = None
            if self._in_kernel is not None:
                try:
                    kernel = stack.enter_context(self._in_kernel(link=self.link))
                    kernel.extend(self._claims.deadline)
                except EdgeError as error:
                    self._observer.tell(SocketsAnswer(self.link, str(error)))
            self._claims.mirror = kernel
            stack.callback(setattr, self._claims, "mirror", None)
            yield kernel

    def _ndp_socket(self) -> PacketSocket:
        return PacketSocket(self.link, ndp.ETHERTYPE, NOTHING, room=_NDP_ROOM, frame_length=ndp.ADVERTISEMENT_LENGTH)

    def _port(self, length: int, protocol: Protocol, socket: PacketSocket, passes: FilterTracker) -> _Port:
        responder = Responder(protocol, socket, self._claims, self, self._observer)
        ours = self._claims.arp if protocol is _ARP else self._claims.ndp
        return _Port(length, ours, socket, passes, responder, Proof(protocol, self._claims, self.clock))

    async def _work(self, opened: _Opened) -> None:
        """Works until cancelled, or until the link fails."""
        name = self.link.name
        with contained("work off", self._observer):
            self._work_off_slice(opened)
        try:
            with letting_go():
                async with asyncio.TaskGroup() as tasks:
                    for protocol, port in zip(("arp", "ndp"), opened.ports, strict=True):
                        tasks.create_task(lasting(protocol, port.responder.serve), name=f"{protocol} {name}")
                    for task, work in (
                        ("work off", partial(self._work_off, opened)),
                        ("announce", self._sender.announce),
                        ("probe", self._sender.probe),
                    ):
                        supervision = supervised(task, work, self._observer, _soon, ends=(EdgeError,))
                        tasks.create_task(supervision, name=f"{task} {name}")
        except* EdgeError as errors:
            words = str(errors.exceptions[0])
        raise EdgeError(words)

    async def _work_off(self, opened: _Opened) -> None:
        """Works off, in slices, what was taken and dropped, and the changes of groups and filters that follow."""
        while True:
            unfinished = self._work_off_slice(opened)
            if unfinished:
                await asyncio.sleep(0)
            if self._join_slice(opened.groups) or unfinished:
                self._wakeup.turn()
                await asyncio.sleep(0)
                continue
            for port in opened.ports:
                port.tighten(self.clock())
            wakes = opened.groups.wake(), opened.arp.filter.wake(), opened.ndp.filter.wake()
            await self._wakeup.until(min((when for when in wakes if when is not None), default=None))

    def _work_off_slice(self, opened: _Opened) -> bool:
        """Returns whether there was something to work off."""
        if not self._holdings.unfinished:
            return False
        now = self.clock()
        came, gone, failed = self._holdings.work_off(now, EIPS_A_SLICE)
        try:
            for port in opened.ports:
                port.follow(came, gone, now)
            opened.groups.discard(opened.ndp.of(gone))
            opened.groups.add(opened.ndp.of(came))
            self._sender.changed()
        except BaseException:
            self._holdings.again((*came, *gone))
            raise
        for address, error in failed.items():
            report("work off", error, self._observer)
            self._owner.failed(self.link.index, address)
        return True

    def _join_slice(self, groups: Groups) -> bool:
        try:
            return groups.work(self.clock(), JOINS_A_SLICE)
        except EdgeError as error:  # IPv4, and neighbours that know us already, are served all the same
            self._observer.tell(JoinFailed(str(error)))
            return True

    def prepare(self) -> float:
        """See ``Asked`` for this and the next two."""
        self._owner.before_answering()
        return self._owner.request_age

    def dispute(self, rival: Rival) -> None:
        self._note_used(rival)
        self._tell(rival)

    def _tell(self, rival: Rival) -> None:
        now, held = self.clock(), self._claims.answered(rival.address)
        if self._holdings.disputes.act(rival.address, now):
            self._observer.tell(Conflict(self.link, ip_address(rival.address), rival.mac, held))
            if held:
                self._sender.defend(rival.address)

    def _note_used(self, rival: Rival) -> None:
        """Notes that somebody uses an address that is probed for."""
        self._holdings.probes.taken(rival.address, self.clock())
        if not self._claims.answered(rival.address):
            self._owner.found(self.link.index, rival.address, rival.mac)

    def suspect(self, rival: Rival) -> None:
        """A peer claims an EIP of ours by ARP or NDP: a conflict, unless its hellos claim the EIP by the end of
        ``trial``."""
        if not rival.asks and not self._owner.is_ours(rival.mac):
            self._note_used(rival)
        if rival.address in self._suspected or self._is_excused(rival):
            return
        loop = asyncio.get_running_loop()
        held = self._claims.answered(rival.address)
        self._suspected[rival.address] = loop.call_later(self._owner.trial, self._convict, rival, held)

    def _convict(self, rival: Rival, held: bool) -> None:
        """``held``: we answered for what it claimed. A host that answered our probe and fell silent is no rival any
        more."""
        del self._suspected[rival.address]
        proven = self._claims.answered(rival.address) and not held
        if rival.address in self._claims and not proven and not self._is_excused(rival):
            if rival.asks:  # what it answered was noted at that time
                self._note_used(rival)
            self._tell(rival)

    def _is_excused(self, rival: Rival) -> bool:
        return self._owner.excuses(self.link.index, rival.address, rival.mac)

    def _acquit(self) -> None:
        for handle in self._suspected.values():
            handle.cancel()
        self._suspected.clear()


def _soon(seconds: float) -> Awaitable[None]:
    """A tenth of the usual pause before a task is started again, because clients wait for what it does."""
    return asyncio.sleep(seconds / 10)


_Identity: TypeAlias = tuple[int, Mac]
"""What distinguishes a link: created again, it has a new index; with another MAC, it needs other answers."""


class Links:
    """Which EIPs are answered on which links; the rest follows, even when a link fails and returns.

    Nothing is answered or announced before ``extend``, or past the deadline that it sets.

    ``pace``: of the probes. ``in_kernel``: what answers plain requests before our sockets see them. Entering starts
    nothing; leaving withdraws everything.
    """

    def __init__(
        self, observer: Observer, owner: Owner, pace: Pace = AS_USUAL, in_kernel: InKernel | None = None
    ) -> None:
        self._observer, self._owner, self._pace, self._in_kernel = observer, owner, pace, in_kernel
        self._responders: dict[_Identity, LinkResponder] = {}
        self._kept: frozenset[_Identity] = frozenset()
        self._deadline = float("-inf")
        self._deadlines: dict[int, float] = {}
        self._peers: dict[int, frozenset[Mac]] = {}
        self._own: dict[int, IPv6Address | None] = {}
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        while self._responders:
            self._responders.popitem()[1].stop()
        await self._group.__aexit__(*error)

    # ── what the owner asks for ──

    def keep(self, links: Iterable[Link]) -> None:
        """Links that are up and whose sockets stay open although they hold nothing, so that a claim is answered at
        once. Others are closed when they hold nothing."""
        links = list(links)
        self._kept = frozenset((link.index, link.mac) for link in links)
        for link in links:
            self._responder(link)
        self._let_go()

    def take(self, placements: Mapping[IPAddress, Placement], probe: Collection[IPAddress] = ()) -> None:
        """Answers for these too from now on, and announces them; one held on another link moves.

        Those in ``probe``, unless answered already, only once a probe (60 ms) found that nobody else uses them. If
        somebody does, the observer hears of it, and they are probed again every second until nobody does (``pace``). If
        it is another speaker, the observer hears of it only if that speaker claims the EIP in no hello. Of thousands a
        part is answered at once and the rest within milliseconds, so that nothing else is late because of them.
        """
        found: dict[int, LinkResponder] = {}  # by identity of the link: thousands of EIPs share a handful of them
        coming: defaultdict[LinkResponder, dict[bytes, Gratuitous]] = defaultdict(dict)
        for eip, (link, gratuitous, _) in placements.items():  # looking up an ``ipaddress`` takes ten times as long
            responder = found.get(id(link)) or found.setdefault(id(link), self._responder(link))
            coming[responder][eip.packed] = gratuitous
        unproven = {address.packed for address in probe}
        for responder, eips in coming.items():
            for other in self._responders.values():
                if other is not responder:
                    unproven.update(filter(other.is_unproven, eips))
                    other.drop(eips)
            responder.take(eips, unproven)
        self._let_go()

    def drop(self, addresses: Iterable[IPAddress]) -> None:
        """Stops answering for these, from this call on; those not held are ignored."""
        gone = [address.packed for address in addresses]
        for responder in self._responders.values():
            responder.drop(gone)
        self._let_go()

    def disown(self, address: IPAddress) -> None:
        """Answers for it no longer, if ``drop`` met a bug of ours: its next holder must be the only one."""
        for responder in self._responders.values():
            responder.disown(address.packed)

    def announce(self, addresses: Iterable[IPAddress]) -> None:
        """Announces these again, burst and all; those not answered are ignored."""
        eips = [address.packed for address in addresses]
        for responder in self._responders.values():
            responder.announce(eips)

    def extend(self, deadline: float, link: int | None = None) -> None:
        """Answers until this instant on the link with this index, or on every link; also when its sockets open
        later."""
        if link is None:
            self._deadline = deadline
            self._deadlines.clear()
        else:
            self._deadlines[link] = deadline
        for responder in self._responders.values():
            if link in (None, responder.link.index):
                responder.extend(deadline)

    def peers(self, link: int, macs: frozenset[Mac]) -> None:
        """The MACs of the other speakers on the link with this index: what they say about EIPs that they claim is no
        conflict."""
        self._peers[link] = macs
        for responder in self._on(link):
            responder.peers(macs)

    def ask_from(self, link: int, own: Iterable[IPAddress]) -> None:
        """This host's own addresses on the link with this index: some hosts answer no question without a sender's
        address."""
        found = next((address for address in own if isinstance(address, IPv6Address)), None)
        self._own[link] = found
        for responder in self._on(link):
            responder.ask_from(found)

    def drop_queued(self) -> None:
        """Discards unread every request that waits to be answered, on every link (ownership rule 27)."""
        for responder in self._responders.values():
            responder.drop_queued()

    def arrived(self, link: int) -> int:
        """How many urgent hellos have come to the link with this index, as the kernel counts them. Until it is told
        that they are ``heard``, it leaves requests to our sockets (ownership rule 28)."""
        if self._in_kernel is None:
            return 0
        return max((responder.arrived for responder in self._on(link)), default=0)

    def heard(self, link: int, arrived: int) -> None:
        """The consequences of so many of them are done."""
        if self._in_kernel is not None:
            for responder in self._on(link):
                responder.heard(arrived)

    def is_unproven(self, address: IPAddress) -> bool:
        """It is held, but not answered for until a probe finds nobody else."""
        return any(responder.is_unproven(address.packed) for responder in self._responders.values())

    def answers_on(self, link: int) -> bool:
        """Requests on the link with this index are answered, as a test request of our own just was (ownership
        rule 35)."""
        return any(responder.answers() for responder in self._on(link))

    # ── what follows ──

    def _on(self, link: int) -> Iterator[LinkResponder]:
        return (responder for responder in self._responders.values() if responder.link.index == link)

    def _responder(self, link: Link) -> LinkResponder:
        identity = link.index, link.mac
        if (responder := self._responders.get(identity)) is None:
            responder = LinkResponder(link, self._observer, self._owner, self._pace, self._in_kernel)
            responder.extend(self._deadlines.get(link.index, self._deadline))
            responder.peers(self._peers.get(link.index, frozenset()))
            responder.ask_from(self._own.get(link.index))
            self._responders[identity] = responder
            responder.start(self._group)
        return responder

    def _let_go(self) -> None:
        """Closes links that hold nothing and need not be kept open."""
        for identity, responder in list(self._responders.items()):
            if not responder.holds and identity not in self._kept:
                self._responders.pop(identity).stop()


def take_each(
    layer2: Links, placements: Mapping[IPAddress, Placement], probe: Collection[IPAddress], supervisor: Supervisor
) -> tuple[list[IPAddress], list[IPAddress]]:
    """If an EIP meets a bug of ours, only that one is given up. Returns those taken, and those that failed: nothing is
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
