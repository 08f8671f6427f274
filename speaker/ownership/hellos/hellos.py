"""Edge: the hellos of one link, on their own AF_PACKET sockets.

What arrives is hostile until its tag proves otherwise: a frame that proves nothing costs a few microseconds, is counted
by reason, and goes no further. Routine hellos (rule 1) wake nobody: they have their own socket, which is read when
there is another reason to read, and the kernel says when each of them arrived.
"""

import select
import socket
import time
from bisect import insort
from collections.abc import Callable
from contextlib import ExitStack
from enum import Enum
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

from speaker.errors import EdgeError
from speaker.model import NO_GROUP, Group, Link, Mac
from speaker.ownership.hello import Hello
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.frames import Sender, Stamp
from speaker.ownership.hellos.keys import Keys
from speaker.ownership.machine.peers import MAX_NODES
from speaker.packets import BROADCAST, HEADER_LENGTH, PACKET_OTHERHOST, sockets
from speaker.packets.bpf import (
    ACCEPT,
    LOAD_LENGTH,
    LOAD_PKTTYPE,
    REJECT,
    SENT_HERE,
    Program,
    if_above,
    if_any_of,
    if_equal,
    load_byte,
    load_half,
    load_word,
    only_if,
)
from speaker.packets.packet_socket import Inbox

MOST_MTU = 1500
"""Bytes, even if the link takes more: others on the LAN, and the switches between, may carry less than it is set to."""

FRAMES_A_TURN, _AT_ONCE = 200, 40
"""Frames read from each socket before others get their turn: 2 ms if all of them are forgeries; and in one call."""

OLD_SECONDS = 0.1
"""Of frames that name an earlier life of a node, one is read in so many seconds, as proving them costs the most."""

OVERTAKEN = 4
"""Frames of a sender that are told from repetitions, the newest: one that another overtook counts as arrived."""

MAX_SENDERS = 2 * MAX_NODES
"""Senders remembered on a link: nodes, each with as many of its links as reach this one."""

OTHERS_A_LOOK = 64
"""Hellos of other groups read at a time: 0.6 ms if all of them are authentic, once a second."""
_OTHERS_BUFFER = 64 << 10
"""Bytes: what does not fit is repeated by the others."""
OWN_NODE_SECONDS, OWN_NODE_AGAIN = 3.0, 60.0
"""How long, and how often, frames that leave this node are looked at. A packet socket does not hear what another one on
its own node sends, except one that gets a copy of every packet, which would cost too much permanently."""
_ETH_P_ALL, _ETHERTYPE_AT = 3, 12
_RECEIVE_BUFFER = 4 << 20
"""Bytes: a quarter of a second of a stranger's 10,000 frames a second."""
_TC_PRIO_INTERACTIVE = 6  # <linux/pkt_sched.h>: ahead of bulk traffic; above it takes CAP_NET_ADMIN


def _only(group: Group, *, routine: bool) -> Program:
    """Routine hellos, or all other frames; none from another VLAN, and no hellos of another group."""
    ours = (LOAD_PKTTYPE, if_equal(PACKET_OTHERHOST, 0, 1), REJECT)
    flagged = (
        LOAD_LENGTH,
        if_above(frames.FLAGS_AT, 0, 2),
        load_byte(frames.FLAGS_AT),
        if_any_of(frames.ROUTINE, 1, 0),
    )
    return (*ours, *_parted(group), *flagged, *((REJECT, ACCEPT) if routine else (ACCEPT, REJECT)))


def _parted(group: Group) -> Program:
    """Rejects hellos of other groups. Everything else is looked at, and counted."""
    groups = load_half(frames.MAGIC_AT), if_equal(int.from_bytes(frames.OF_GROUPS, "big"), 0, 1), REJECT
    if not group.name:
        return LOAD_LENGTH, if_above(frames.MAJOR_AT - 1, 0, 3), *groups
    own, none = (int.from_bytes(frames.magic(each), "big") for each in (group, NO_GROUP))
    known = load_word(frames.MAGIC_AT), if_equal(own, 4, 0), if_equal(none, 2, 0)
    return LOAD_LENGTH, if_above(frames.MAJOR_AT - 1, 0, 6), *known, *groups


def _of_others(group: Group) -> Program:
    """Hellos of other groups, and nothing else."""
    own, none = (int.from_bytes(frames.magic(each), "big") for each in (group, NO_GROUP))
    program = LOAD_PKTTYPE, if_equal(PACKET_OTHERHOST, 0, 1), REJECT, load_word(frames.MAGIC_AT)
    groups = load_half(frames.MAGIC_AT), if_equal(int.from_bytes(frames.OF_GROUPS, "big"), 1, 0), REJECT, ACCEPT
    return (*program, if_equal(own, 3, 0), if_equal(none, 3, 0), *groups)


def _leaving(group: Group, ethertype: int) -> Program:
    """Hellos of other groups that this node itself sends."""
    return (
        *SENT_HERE,
        *only_if(load_half(_ETHERTYPE_AT), ethertype),
        *_of_others(group),
    )


class Replayed(Enum):
    """Why a frame that looks authentic was not read. The value is the metric label."""

    REPLAYED = "replayed"
    """Not above the last frame of that life of that node: repeated, doubled or overtaken."""


_Source: TypeAlias = tuple[Sender, bytes]
"""With the MAC: two hosts with one name make nothing of each other outdated."""


class Received(NamedTuple):
    """An authentic, new hello, the MAC that it came from, and for how many seconds it has been waiting."""

    hello: Hello
    mac: Mac
    age: float


class Hellos:
    """Sends and receives hellos on ``link``; non-blocking.

    ``count`` hears of frames and their number: the reason why they do not count, or None for those that were read.
    ``clock`` returns seconds. ``group`` is that of the sender and of those that are heard. Entering opens the socket
    (in the caller's network namespace). It raises EdgeError if the link is gone or its MTU too small, and Unsupported
    without CAP_NET_RAW.
    """

    def __init__(
        self,
        link: Link,
        keys: Callable[[], Keys],
        ethertype: int,
        clock: Callable[[], float],
        count: Callable[[Enum | None, int], None],
        group: Group = NO_GROUP,
    ) -> None:
        if link.mtu < (least := frames.least_mtu(group.name)):
            raise EdgeError(f"{link.name}: an MTU of {link.mtu}: hellos need at least {least}")
        self.link, self._group = link, group
        self._keys, self._ethertype, self._clock, self._count = keys, ethertype, clock, count
        self.crowded = False
        """The last turn left frames unread."""
        self._waiting = select.poll()
        self._own_node: socket.socket | None = None
        self._own_node_at = clock()
        """When the look at this node's own frames begins or ends."""
        self._emptied_at = clock()
        """When no hello was waiting: those that wait now came later, even if the host's clock was set meanwhile."""
        self._last: dict[_Source, list[Stamp]] = {}
        """The stamps of each source's newest authentic frames, in order."""
        self._old_read_at: dict[_Source, float] = {}
        """Of the sources in ``_last``."""

    def __enter__(self) -> Self:
        programs = _only(self._group, routine=False), _only(self._group, routine=True), _of_others(self._group)
        sizes = _RECEIVE_BUFFER, _RECEIVE_BUFFER, _OTHERS_BUFFER
        with ExitStack() as opened:
            try:
                self._urgent, self._routine, self._others = (
                    opened.enter_context(
                        sockets.open_socket(self.link.index, self._ethertype, program, partial(_prepare, size))
                    )
                    for program, size in zip(programs, sizes, strict=True)
                )
            except OSError as error:
                raise self._refused("hello socket", error) from error
            room = min(self.link.mtu, MOST_MTU) + HEADER_LENGTH + 1
            self._inboxes = [Inbox(each, _AT_ONCE, room) for each in (self._routine, self._urgent)]
            for inbox in self._inboxes:
                self._waiting.register(inbox, select.POLLIN)
            self._opened = opened.pop_all()
        return self

    def _watch_own_node(self) -> None:
        """Raises OSError."""
        now = self._clock()
        if self._own_node is None and now >= self._own_node_at:
            program = _leaving(self._group, self._ethertype)
            self._own_node = sockets.open_socket(
                self.link.index, _ETH_P_ALL, program, partial(_prepare, _OTHERS_BUFFER)
            )
            self._own_node_at = now + OWN_NODE_SECONDS
        elif self._own_node is not None and now >= self._own_node_at:
            self._own_node.close()
            self._own_node, self._own_node_at = None, now + OWN_NODE_AGAIN

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._opened.close()
        if self._own_node is not None:
            self._own_node.close()

    def fileno(self) -> int:
        """Readable when a hello arrived that is not routine."""
        return self._urgent.fileno()

    def send(self, hello: Hello, to: Mac = BROADCAST) -> bool:
        """Returns whether every frame of it was sent; False if the link has no room. EdgeError: it is down or gone."""
        room = min(self.link.mtu, MOST_MTU)
        if self._group.name:
            hello = hello._replace(group=self._group.name)
        for frame in frames.encode(hello, self._keys(), self.link.mac, room, self._ethertype, to):
            try:
                self._urgent.send(frame)
            except OSError as error:
                if error.errno in sockets.FULL:
                    return False
                raise self._refused("hello", error) from error
        return True

    def receive(self) -> list[Received]:
        """The authentic, new ones among at most FRAMES_A_TURN waiting frames of each socket; routine ones first, as
        they are nearly always older. EdgeError: the link is down or gone."""
        hellos: list[Received] = []
        now = self._clock()
        try:
            waiting, oldest = dict(self._waiting.poll(0)), now - self._emptied_at
            drained = [self._drain(inbox, oldest, hellos) for inbox in self._inboxes if inbox.fileno() in waiting]
            self.crowded = not all(drained)
            if not self.crowded:
                self._emptied_at = now
        except OSError as error:
            raise self._refused("hello", error) from error
        finally:
            if hellos:
                self._count(None, len(hellos))
        return hellos

    def others(self) -> list[Hello]:
        """Hellos of other groups that are signed with our keys: nobody else may say what is not an EIP. For each part
        that a node sends, the last is read. EdgeError: the link is down or gone."""
        waiting: dict[tuple[bytes, bytes, int], bytes] = {}
        try:
            for opened in filter(None, (self._others, self._own_node)):
                self._gather(opened, waiting)
            self._watch_own_node()
        except OSError as error:
            raise self._refused("hello of another group", error) from error
        read = [frames.decode(frame, self._keys(), None) for frame in waiting.values()]
        return [hello for hello in read if isinstance(hello, Hello) and hello.group != self._group.name]

    def _gather(self, opened: socket.socket, waiting: dict[tuple[bytes, bytes, int], bytes]) -> None:
        """By MAC, group and part. Raises OSError."""
        for _ in range(OTHERS_A_LOOK):
            try:
                frame = opened.recv(self.link.mtu + HEADER_LENGTH + 1)
            except OSError as error:
                if error.errno in sockets.FULL:
                    return
                raise
            if (claimed := frames.peek(frame, None)) is not None:
                waiting[frame[6:12], frame[frames.MAGIC_AT : frames.MAJOR_AT], claimed[1][2]] = frame

    def _drain(self, inbox: Inbox, oldest: float, hellos: list[Received]) -> bool:
        """Returns whether all were read; none has been waiting for longer than ``oldest``. Raises OSError."""
        for _ in range(FRAMES_A_TURN // _AT_ONCE):
            (frames, _, seconds, nanoseconds), today = inbox.receive(), time.time()
            for frame, whole, part in zip(frames, seconds, nanoseconds, strict=True):
                read = self._read(frame)
                if isinstance(read, Hello):
                    hellos.append(Received(read, Mac(frame[6:12]), age_of(whole + part * 1e-9, today, oldest)))
                else:
                    self._count(read, 1)
            if len(frames) < _AT_ONCE:
                return True
        return False

    def drop_queued(self) -> None:
        """Discards unread whatever waits, but at most as much as a full buffer holds, in case of a flood."""
        for opened in (self._routine, self._urgent):
            for _ in range(_RECEIVE_BUFFER // 512):
                try:
                    opened.recv(1)
                except OSError:
                    break

    def _refused(self, what: str, error: OSError) -> EdgeError:
        return sockets.refused(f"{self.link.name}: {what}", error)

    def _read(self, frame: bytes) -> Hello | Enum:
        # Read before it is proven: what is not newer than what was proven is worthless either way, and cheap to tell.
        if (claimed := frames.peek(frame, self._group)) is None:
            return frames.decode(frame, self._keys(), self._group)
        source, stamp = (claimed[0], frame[6:12]), claimed[1]
        if self._is_stale(source, stamp):
            return Replayed.REPLAYED
        hello = frames.decode(frame, self._keys(), self._group)
        if isinstance(hello, Hello):
            self._note(source, stamp)
        return hello

    def _note(self, source: _Source, stamp: Stamp) -> None:
        """Those heard last are remembered longest."""
        last = self._last.pop(source, None)
        if last is None:
            self._forget_one()
        if last is None or stamp[0] > last[-1][0]:
            last = [stamp]
        elif stamp > last[-1]:
            last.append(stamp)  # nearly always
        elif stamp[0] == last[-1][0]:
            insort(last, stamp)
        del last[:-OVERTAKEN]
        self._last[source] = last

    def _forget_one(self) -> None:
        """If too many are remembered, forgets the one that was silent for longest. A recording of its frames proves
        nothing by itself (rule 5)."""
        if len(self._last) >= MAX_SENDERS:
            source = next(iter(self._last))
            del self._last[source]
            self._old_read_at.pop(source, None)

    def _is_stale(self, source: _Source, stamp: Stamp) -> bool:
        last = self._last.get(source)
        if last is None or stamp > last[-1]:
            return False
        if stamp[0] == last[-1][0]:
            return stamp < last[0] or stamp in last
        # Of an earlier life: a recording, or a node whose clock went back and who has to be told (rule 5).
        now = self._clock()
        if now - self._old_read_at.get(source, float("-inf")) < OLD_SECONDS:
            return True
        self._old_read_at[source] = now
        return False


def age_of(arrived: float, today: float, at_most: float) -> float:
    """Seconds. ``arrived`` and ``today`` are CLOCK_REALTIME: if that clock was set back since, the age is unknown, and
    the maximum is used. Pure."""
    return min(today - arrived, at_most) if arrived <= today else at_most


def _prepare(size: int, opened: socket.socket) -> None:
    """``size``: bytes that may wait in it."""
    sockets.enlarge(opened, size)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, _TC_PRIO_INTERACTIVE)
    sockets.stamp_arrivals(opened)
