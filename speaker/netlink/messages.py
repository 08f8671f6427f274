"""Netlink messages and their attributes: bytes ⇄ values. Pure.

Numbers and layouts are those of include/uapi/linux/netlink.h, and those that several rooms need of
include/uapi/linux/{rtnetlink,if_link,if_addr,if}.h.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP_INTR, NLM_F_DUMP = 0x1, 0x4, 0x10, 0x300
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE = 0x100, 0x200, 0x400
NLA_F_NESTED, NLA_TYPE_MASK = 0x8000, 0x3FFF  # the mask leaves out NLA_F_NESTED and NLA_F_NET_BYTEORDER
SOL_NETLINK = 270

HEADER = Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence, port."""
ATTRIBUTE = Struct("=HH")
"""struct nlattr: length, type."""
U16, U32, S32, BE16 = Struct("=H"), Struct("=I"), Struct("=i"), Struct("!H")
u16, u32, be16 = U16.pack, U32.pack, BE16.pack

AF_INET, AF_INET6 = 2, 10

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK = 16, 17, 18, 19
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22

IFINFO = Struct("=BxHiII")
"""struct ifinfomsg: family, hardware, index, flags, change."""
IFF_UP, IFF_LOOPBACK, IFF_NOARP = 0x1, 0x8, 0x80
IFLA_IFNAME, IFLA_LINKINFO, IFLA_AF_SPEC = 3, 18, 26
IFLA_INFO_KIND = 1

IFADDR = Struct("=BBBBI")
"""struct ifaddrmsg: family, prefix length, flags, scope, index of the link."""
IFA_ADDRESS, IFA_LOCAL = 1, 2


class Message(NamedTuple):
    """One message of a datagram: its payload is ``datagram[start:end]``."""

    kind: int
    flags: int
    sequence: int
    start: int
    end: int


def messages(datagram: bytes) -> Iterator[Message]:
    """Raises struct.error or ValueError for bytes that are none."""
    at = 0
    while at < len(datagram):
        length, kind, flags, sequence, _ = HEADER.unpack_from(datagram, at)
        if length < HEADER.size:
            raise ValueError("a message shorter than its header")
        yield Message(kind, flags, sequence, at + HEADER.size, at + length)
        at += (length + 3) & ~3


def request(kind: int, sequence: int, body: bytes, flags: int = 0) -> bytes:
    """One message to the kernel, up to where the next one may begin."""
    header = HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST | flags, sequence, 0)
    return header + body + bytes(-len(body) % 4)


def errno_of(datagram: bytes, message: Message) -> int:
    """Of NLMSG_ERROR and NLMSG_DONE: 0, or what went wrong."""
    error: int = S32.unpack_from(datagram, message.start)[0]
    return -error


def attribute(kind: int, value: bytes) -> bytes:
    length = ATTRIBUTE.size + len(value)
    return ATTRIBUTE.pack(length, kind) + value + bytes(-length % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    return attribute(kind | NLA_F_NESTED, b"".join(attributes))


def attributes(data: bytes, start: int = 0, end: int | None = None) -> dict[int, bytes]:
    """The attributes from ``start`` to ``end``, by type; of a repeated one, the last."""
    if end is None:
        end = len(data)
    found: dict[int, bytes] = {}
    while start + ATTRIBUTE.size <= end:
        length, kind = ATTRIBUTE.unpack_from(data, start)
        found[kind & NLA_TYPE_MASK] = data[start + 4 : start + length]
        start += max((length + 3) & ~3, ATTRIBUTE.size)
    return found
