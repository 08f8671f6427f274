"""Edge: the eBPF program of one link, its maps, and what the speaker writes into them.

With tcx (Linux 6.6) it ends with this process: the kernel detaches it when the descriptor of its attachment is closed,
for whatever reason. Before that it is a filter, which the kernel keeps when its process dies. The program is silent
from its deadline on, the next process replaces the filter, and `speaker cleanup` removes it.
"""

import ctypes
import errno
import mmap
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from speaker.errors import EdgeError, Unsupported
from speaker.layer2.kernel_program import (
    ANSWERED,
    ANSWERS,
    DEADLINE,
    HEARD,
    KEY,
    STATE,
    WATCHED,
    HelloFrames,
    key,
    program,
)
from speaker.model import Family, Link, Mac
from speaker.netlink.messages import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, attribute, attributes, nested, u32
from speaker.netlink.requests import Netlink, Request

EIPS = 16384
"""EIPs that the kernel answers for on one link. Requests for more are answered by the sockets."""
_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351, "armv7l": 386, "i686": 357}
"""The number of bpf(2), for which the C library has no function."""
_MAP_CREATE, _UPDATE, _DELETE, _PROG_LOAD, _TEST_RUN, _LINK_CREATE = 0, 2, 3, 5, 10, 28
_HASH, _ARRAY, _SCHED_CLS, _TCX_INGRESS = 1, 2, 3, 46
_NO_PREALLOC, _MMAPABLE, _BEFORE = 1, 1 << 10, 1 << 3
_NAME, _LICENSE = b"eip_speaker", b"Apache-2.0"
_LOG = 1 << 18
"""Bytes of the kernel verifier's messages."""
_TESTED = struct.Struct("=IIIIQQIIIIQQIII4x")
_ROOM = 256
"""Bytes of a reply: the longest has 86."""
_libc = ctypes.CDLL(None, use_errno=True)


class KernelResponder:
    """Answers plain requests on ``link``. ``hellos``: as in ``program``.

    Entering loads and attaches the program. It raises Unsupported without CAP_BPF and CAP_NET_ADMIN or on a kernel
    before 5.8, and EdgeError if the link is gone, or with the last words of the kernel's verifier. Closed, it answers
    for nothing. ``tcx`` False: as before Linux 6.6.
    """

    def __init__(self, link: Link, hellos: HelloFrames | None, *, tcx: bool = True) -> None:
        self._link, self._hellos, self._tcx = link, hellos, tcx
        self._descriptors: list[int] = []
        self._is_open, self._refused, self._program = True, "", -1
        self._told = {Family.IPV4: 0, Family.IPV6: 0}
        """How many of its answers ``answered`` has returned, including those to our own test requests."""

    def __enter__(self) -> Self:
        self._do(self._load, self._attach)
        return self

    def _do(self, *steps: Callable[[], None]) -> None:
        try:
            for step in steps:
                step()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise _refused(self._link, error) from error
            raise

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self, why: str = "") -> None:
        if not self._is_open:
            return
        self._is_open, self._refused = False, why  # first, as a number that is closed may be another file's at once
        if not self._tcx:
            with suppress(EdgeError):
                detach_filter(self._link.index, self._magic, self._program)
        while self._descriptors:
            os.close(self._descriptors.pop())

    def refused(self) -> str:
        """Why it closed itself, if it did; said once."""
        why, self._refused = self._refused, ""
        return why

    def answer(self, address: bytes) -> None:
        """Answer for an EIP of 4 or 16 bytes. If there is no room for it, the sockets answer."""
        with suppress(OSError):
            self._update(address, ANSWERED)

    def watch(self, address: bytes) -> None:
        """Leaves everything about it to the sockets."""
        self._or_close(self._update, address, WATCHED)

    def discard(self, address: bytes) -> None:
        """Answers for it no longer; unknown ones are ignored."""
        self._or_close(self._delete, address)

    def extend(self, deadline: float) -> None:
        """Answers until then, in seconds of CLOCK_BOOTTIME."""
        struct.pack_into("=Q", self._state, DEADLINE, int(max(0.0, min(deadline, 1e9)) * 1e9))

    @property
    def _magic(self) -> bytes:
        return self._hellos.magic if self._hellos is not None else b""

    @property
    def arrived(self) -> int:
        """Urgent hellos so far, modulo 2³²."""
        return int(STATE.unpack_from(self._state)[1])

    def heard(self, arrived: int) -> None:
        """The consequences of so many urgent hellos are done. Until then nothing is answered."""
        struct.pack_into("=I", self._state, HEARD, arrived)

    def answered(self) -> dict[Family, int]:
        """How many requests were answered since this was called last."""
        *_, arps, ndps = STATE.unpack_from(self._state)
        before, self._told = self._told, {Family.IPV4: arps, Family.IPV6: ndps}
        return {family: number - before[family] for family, number in self._told.items()}

    def reply(self, request: bytes, family: Family) -> bytes | None:
        """What the program answers to a test request of our own, which is sent to nobody; None if it leaves that to the
        sockets. Raises OSError."""
        if not self._is_open:
            return None
        given, out = ctypes.create_string_buffer(request, len(request)), ctypes.create_string_buffer(_ROOM)
        places = ctypes.addressof(given), ctypes.addressof(out)
        asked = bytearray(_TESTED.pack(self._program, 0, len(request), _ROOM, *places, 1, *[0] * 8))
        bpf(_TEST_RUN, asked)
        _, verdict, _, length, *_ = _TESTED.unpack(asked)
        if verdict != ANSWERS:
            return None
        self._told[family] += 1
        return out.raw[:length]

    def _attach(self) -> None:
        link, program = self._link.index, self._program
        if self._tcx:
            try:
                self._open(_LINK_CREATE, struct.pack("=7I", program, link, _TCX_INGRESS, _BEFORE, 0, 0, 0))
                return
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
            self._tcx = False
        attach_filter(link, program, self._magic)

    def _open(self, command: int, attributes: bytes) -> int:
        self._descriptors.append(bpf(command, bytearray(attributes)))
        return self._descriptors[-1]

    def _load(self) -> None:
        self._eips = self._open(_MAP_CREATE, _map(_HASH, KEY, len(ANSWERED), EIPS, _NO_PREALLOC))
        state = self._open(_MAP_CREATE, _map(_ARRAY, 4, STATE.size, 1, _MMAPABLE))
        self._state = mmap.mmap(state, mmap.PAGESIZE)
        self._program = self._verified(program(self._eips, state, self._link.index, self._link.mac, self._hellos))

    def _verified(self, code: bytes) -> int:
        given, licence = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(_LICENSE)
        head = struct.pack("=IIQQ", _SCHED_CLS, len(code) // 8, *map(ctypes.addressof, (given, licence)))
        tail = struct.pack("=II16s", 0, 0, _NAME)
        try:
            return self._open(_PROG_LOAD, head + struct.pack("=IIQ", 0, 0, 0) + tail)
        except OSError as error:
            if error.errno == errno.EPERM:
                raise
        log = ctypes.create_string_buffer(_LOG)
        try:
            return self._open(_PROG_LOAD, head + struct.pack("=IIQ", 1, _LOG, ctypes.addressof(log)) + tail)
        except OSError as error:
            words = log.value.decode(errors="replace").split("\n")
            raise OSError(error.errno, f"{error.strerror}: {' / '.join(words[-8:])}") from error

    def _update(self, address: bytes, value: bytes) -> None:
        if not self._is_open:
            return
        at = key(address)
        known, said = ctypes.create_string_buffer(at, KEY), ctypes.create_string_buffer(value, len(value))
        places = ctypes.addressof(known), ctypes.addressof(said)
        bpf(_UPDATE, bytearray(struct.pack("=I4xQQQ", self._eips, *places, 0)))

    def _delete(self, address: bytes) -> None:
        if not self._is_open:
            return
        known = ctypes.create_string_buffer(key(address), KEY)
        try:
            bpf(_DELETE, bytearray(struct.pack("=I4xQ", self._eips, ctypes.addressof(known))))
        except FileNotFoundError:
            return

    def _or_close(self, tell: Callable[..., None], *what: bytes) -> None:
        """If the program cannot be told, it answers nothing any more, and the sockets answer everything."""
        try:
            tell(*what)
        except OSError as error:
            self.close(f"cannot tell the program in the kernel what it has to leave alone: {error.strerror}")


def try_out(why: str) -> None:
    """Checks whether this kernel lets us answer in it. Raises like ``KernelResponder``; ``why``: the reason why it
    must."""
    tried = KernelResponder(Link(1, why, Mac(bytes(6))), None)
    tried._do(tried._load)
    tried.close()


def bpf(command: int, attributes: bytearray) -> int:
    """Raises OSError. The kernel writes its results into ``attributes``."""
    if (number := _BPF.get(os.uname().machine)) is None:
        raise OSError(errno.ENOSYS, f"the number of bpf(2) on {os.uname().machine} is not known")
    given = (ctypes.c_char * len(attributes)).from_buffer(attributes)
    result = int(_libc.syscall(number, command, given, len(attributes)))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _map(kind: int, key_size: int, value_size: int, entries: int, flags: int) -> bytes:
    return struct.pack("=7I16s", kind, key_size, value_size, entries, flags, 0, 0, _NAME)


def _refused(link: Link, error: OSError) -> EdgeError:
    needs = ": needs CAP_BPF and CAP_NET_ADMIN" if error.errno == errno.EPERM else ""
    words = f"{link.name}: answers in the kernel: {error.strerror}{needs}"
    old = error.errno in (errno.EPERM, errno.ENOSYS, errno.EINVAL)
    return Unsupported(words) if old else EdgeError(words)


# ── As the filter of the link's clsact ingress, for kernels before 6.6 ────────────────────────────────────────

_NEW_QDISC, _DEL_QDISC, _NEW_FILTER, _DEL_FILTER, _GET_FILTER = 36, 37, 44, 45, 46
_TCMSG = struct.Struct("=BxHiIII")
"""struct tcmsg: family, index of the link, handle, parent, priority and EtherType."""
_KIND, _OPTIONS, _FD, _LABEL, _FLAGS, _DIRECT = 1, 2, 6, 7, 8, 1
_CLSACT, _CLSACT_ITSELF, _INGRESS, _EGRESS = 0xFFFFFFF1, 0xFFFF0000, 0xFFFFFFF2, 0xFFFFFFF3
_PRIORITY = 0xE1 << 16
"""After everything else there: Cilium's is 1."""
_EVERYTHING = socket.htons(3)


def attach_filter(link: int, program: int, magic: bytes) -> None:
    """``program``: its descriptor. ``magic``: how the hellos of its group begin, which distinguishes several filters on
    one link. Raises EdgeError, OSError."""
    named = attribute(_LABEL, _name_of(program))
    options = nested(_OPTIONS, attribute(_FD, u32(program)), named, attribute(_FLAGS, u32(_DIRECT)))
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        made = Request(_NEW_QDISC, _qdisc(link), NLM_F_CREATE | NLM_F_EXCL)
        put = Request(_NEW_FILTER, _filter(link, magic) + options, NLM_F_CREATE | NLM_F_REPLACE)
        for answer in netlink.send([made, put]):
            if answer not in (0, errno.EEXIST):
                raise OSError(answer, os.strerror(answer))


def detach_filter(link: int, magic: bytes, program: int | None = None) -> bool:
    """Returns whether it was there; with ``program`` only that one, and not one that has replaced it. The clsact goes
    with its last filter, whoever made that. Raises EdgeError."""
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        if program is not None and _name_at(netlink, link, magic) != _name_of(program):
            return False
        (answer,) = netlink.send([Request(_DEL_FILTER, _filter(link, magic))])
        if answer == 0 and not _filters(netlink, link):
            netlink.send([Request(_DEL_QDISC, _qdisc(link))])
    return answer == 0


def _name_of(program: int) -> bytes:
    return f"eip_speaker-{os.getpid()}-{program}\0".encode()


def _name_at(netlink: Netlink, link: int, magic: bytes) -> bytes:
    try:
        found = attributes(netlink.ask(Request(_GET_FILTER, _filter(link, magic))), _TCMSG.size)
    except OSError:
        return b""
    return attributes(found.get(_OPTIONS, b"")).get(_LABEL, b"")


def _filters(netlink: Netlink, link: int) -> bool:
    try:
        asked = (Request(_GET_FILTER, _TCMSG.pack(0, 0, link, 0, parent, 0)) for parent in (_INGRESS, _EGRESS))
        return any(netlink.dump(each) for each in asked)
    except OSError:
        return True


def _qdisc(link: int) -> bytes:
    return _TCMSG.pack(0, 0, link, _CLSACT_ITSELF, _CLSACT, 0) + attribute(_KIND, b"clsact\0")


def _filter(link: int, magic: bytes) -> bytes:
    handle = int.from_bytes(magic) & 0x7FFFFFFF or 1
    return _TCMSG.pack(0, 0, link, handle, _INGRESS, _PRIORITY | _EVERYTHING) + attribute(_KIND, b"bpf\0")
