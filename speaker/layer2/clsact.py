"""Edge: the program as a filter of a link's clsact ingress, for kernels before 6.6. Blocks for a moment.

The kernel keeps a filter when its process dies. The program is silent from its deadline on, the next process replaces
the filter, and `speaker cleanup` removes it.
"""

import errno
import os
import socket
from struct import Struct

from speaker.netlink.messages import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, attribute, attributes, nested, u32
from speaker.netlink.requests import Netlink, Request

_NEW_QDISC, _DEL_QDISC, _NEW_FILTER, _DEL_FILTER, _GET_FILTER = 36, 37, 44, 45, 46
_TCMSG = Struct("=BxHiIII")
"""struct tcmsg: family, index of the link, handle, parent, priority and EtherType."""
_KIND, _OPTIONS, _FD, _NAME, _FLAGS, _DIRECT = 1, 2, 6, 7, 8, 1
_CLSACT, _CLSACT_ITSELF, _INGRESS, _EGRESS = 0xFFFFFFF1, 0xFFFF0000, 0xFFFFFFF2, 0xFFFFFFF3
_PRIORITY = 0xE1 << 16
"""Behind whatever else is there: Cilium's is 1."""
_EVERYTHING = socket.htons(3)


def attach(link: int, program: int, magic: bytes) -> None:
    """``program``: its descriptor; ``magic``: how the hellos of its group begin, by which those on one link are told
    from each other. Raises EdgeError, OSError."""
    named = attribute(_NAME, _name_of(program))
    options = nested(_OPTIONS, attribute(_FD, u32(program)), named, attribute(_FLAGS, u32(_DIRECT)))
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        made = Request(_NEW_QDISC, _qdisc(link), NLM_F_CREATE | NLM_F_EXCL)
        put = Request(_NEW_FILTER, _filter(link, magic) + options, NLM_F_CREATE | NLM_F_REPLACE)
        for answer in netlink.send([made, put]):
            if answer not in (0, errno.EEXIST):
                raise OSError(answer, os.strerror(answer))


def detach(link: int, magic: bytes, program: int | None = None) -> bool:
    """Whether it was there; with ``program`` only that one, and not what has replaced it. The clsact goes with the last
    filter of anybody's. Raises EdgeError."""
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
    return attributes(found.get(_OPTIONS, b"")).get(_NAME, b"")


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
