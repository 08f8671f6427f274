"""Edge, for a worker thread: the kernel's IPVS tables, over generic netlink.

Numbers and layouts: include/uapi/linux/ip_vs.h. What the kernel does with them: net/netfilter/ipvs/ip_vs_ctl.c.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from speaker.errors import EdgeError, Unsupported
from speaker.forwarding.changes import Change, EipChange, RealChange, ServerChange
from speaker.forwarding.plan import NUMBERS, PROTOCOLS, RealServer, VirtualServer, VirtualServerKey
from speaker.model import IPAddress
from speaker.netlink.messages import ATTRIBUTE, BE16, S32, U16, U32, attribute, attributes, be16, nested, u16, u32
from speaker.netlink.requests import Netlink, Request
from speaker.settings import Timeouts

NETLINK_GENERIC = 16
GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 16, 3, 1, 2

NEW_SERVICE, SET_SERVICE, DEL_SERVICE, GET_SERVICE, NEW_DEST, SET_DEST, DEL_DEST, GET_DEST = range(1, 9)
SET_CONFIG, GET_CONFIG = 12, 13
CMD_ATTR_SERVICE, CMD_ATTR_DEST = 1, 2
TIMEOUTS = 4, 5, 6
"""IPVS_CMD_ATTR_TIMEOUT_TCP, _TCP_FIN and _UDP, in the order of ``Timeouts``."""
SVC_AF, SVC_PROTOCOL, SVC_ADDR, SVC_PORT, SVC_FWMARK, SVC_SCHED, SVC_FLAGS, SVC_TIMEOUT, SVC_NETMASK = range(1, 10)
DEST_ADDR, DEST_PORT, DEST_FWD_METHOD, DEST_WEIGHT, DEST_U_THRESH, DEST_L_THRESH = range(1, 7)
DEST_ACTIVE_CONNS, DEST_INACT_CONNS, DEST_ADDR_FAMILY = 7, 8, 11

PERSISTENT, HASHED, BY_PORT = 0x1, 0x2, 0x10
"""Flags of a virtual server: IP_VS_SVC_F_*; BY_PORT is SCHED2, ``sh-port`` and ``mh-port``. HASHED is the kernel's."""
ALL_FLAGS = 0xFFFFFFFF
"""The mask that goes with flags: without it the kernel ignores them."""
MASQUERADING, METHODS = 0, 0x7
"""The forwarding method: the destination is rewritten (ipvsadm's ``-m``); and the bits that say which it is."""
NEVER_WANTED = -1
"""The weight with which a real server is read that has our address but not our settings, so that it is set again."""

_GENERIC = struct.Struct("=BBH")
"""struct genlmsghdr: command, version, reserved."""


class Refusal(NamedTuple):
    """A change that the kernel refused, and why."""

    change: Change
    errno: int

    @property
    def final(self) -> bool:
        """Whether trying again is useless until somebody changes the manifest or loads a module."""
        if self.errno == errno.ENOENT:
            return isinstance(self.change, ServerChange) and self.change.after is not None
        return self.errno in (errno.EINVAL, errno.ERANGE, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)

    def __str__(self) -> str:
        return f"{str(self.change).strip()}: {_reason(self.change, self.errno)}"


class IpvsTables:
    """Virtual servers and real servers of a network namespace; see ``ipvs_tables``. Methods raise EdgeError if the
    kernel does not show its tables."""

    def __init__(self, netlink: Netlink) -> None:
        self._netlink, self._kind = netlink, _family_id(netlink)

    def virtual_servers(self) -> list[VirtualServer]:
        """All of them, whoever made them, without their real servers; except those that match a firewall mark."""
        return [server for server in map(parse_service, self.service_messages()) if server is not None]

    def service_messages(self) -> list[bytes]:
        """All virtual servers as the kernel lists them."""
        return self._dump(GET_SERVICE)

    def timeouts(self) -> Timeouts:
        """Of this network namespace."""
        try:
            found = attributes(self._netlink.ask(self._message(GET_CONFIG, b"")), _GENERIC.size)
            return Timeouts(*(U32.unpack(found[kind])[0] for kind in TIMEOUTS))
        except OSError as error:
            raise EdgeError(f"IPVS does not report its timeouts: {_permission(error.errno or 0)}") from error
        except (KeyError, struct.error) as error:
            raise EdgeError("IPVS does not report its timeouts: its answer lacks them") from error

    def set_timeouts(self, timeouts: Timeouts) -> None:
        """Sets all three; 0 leaves one as it is. Raises EdgeError if the kernel has others afterwards."""
        wanted = b"".join(attribute(kind, u32(value)) for kind, value in zip(TIMEOUTS, timeouts, strict=True))
        (answer,) = self._netlink.send([self._message(SET_CONFIG, wanted)])
        if answer or any(want not in (0, now) for want, now in zip(timeouts, self.timeouts(), strict=True)):
            raise EdgeError(f"IPVS refuses the timeouts {timeouts}: {_permission(answer)}")

    def real_servers(self, key: VirtualServerKey) -> dict[RealServer, int]:
        """Sorted, each with the number of its connections. IPVS does not know which are local, so none is marked as
        such."""
        return {
            RealServer(_address(key[0].version, dest.address), dest.port, dest.weight): dest.connections
            for dest in sorted(map(parse_dest, self._dump(GET_DEST, _service_key(key))))
        }

    def change(self, changes: Sequence[Change]) -> tuple[Refusal, ...]:
        """Makes the changes one by one, in order. Returns those that the kernel refused. Ignores changes of EIPs."""
        asked = [(change, request) for change in changes if (request := self._request(change))]
        answers = self._netlink.send([request for _, request in asked])
        refusals = [Refusal(change, error) for (change, _), error in zip(asked, answers, strict=True) if error]
        return tuple(refusal for refusal in refusals if not _is_gone_already(refusal))

    def _dump(self, command: int, payload: bytes = b"") -> list[bytes]:
        try:
            return self._netlink.dump(self._message(command, payload))
        except OSError as error:
            raise EdgeError(f"cannot list the kernel's IPVS tables: {_permission(error.errno or 0)}") from error

    def _message(self, command: int, payload: bytes) -> Request:
        return Request(self._kind, _GENERIC.pack(command, 1, 0) + payload)

    def _request(self, change: Change) -> Request | None:
        match change:
            case ServerChange(_, None):
                return self._message(DEL_SERVICE, _service_key(change.key))
            case ServerChange(before, _):
                return self._message(NEW_SERVICE if before is None else SET_SERVICE, _service(change.server))
            case RealChange(key, before, after):
                command = NEW_DEST if before is None else DEL_DEST if after is None else SET_DEST
                return self._message(command, _service_key(key) + _dest(change.real_server))
            case EipChange():
                return None


@contextmanager
def ipvs_tables() -> Iterator[IpvsTables]:
    """For the network namespace of the calling thread. Raises Unsupported if the kernel has no IPVS."""
    with Netlink(NETLINK_GENERIC) as netlink:
        yield IpvsTables(netlink)


def _family_id(netlink: Netlink) -> int:
    name = attribute(CTRL_ATTR_FAMILY_NAME, b"IPVS\0")
    try:
        answer = netlink.ask(Request(GENL_ID_CTRL, _GENERIC.pack(CTRL_CMD_GETFAMILY, 1, 0) + name))
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise EdgeError(f"generic netlink does not answer: {error.strerror}") from error
        raise Unsupported("this kernel has no IPVS: load the module ip_vs (`modprobe ip_vs`)") from error
    return int(U16.unpack(attributes(answer, _GENERIC.size)[CTRL_ATTR_FAMILY_ID])[0])


# ── Messages ──────────────────────────────────────────────────────────────────────────────────────────────────


def _af(address: IPAddress) -> bytes:
    return u16(socket.AF_INET if address.version == 4 else socket.AF_INET6)


def _address(version: int, value: bytes) -> IPAddress:
    return IPv4Address(value[:4]) if version == 4 else IPv6Address(value)


def _service_key(key: VirtualServerKey, *more: bytes) -> bytes:
    address, protocol, port = key
    return nested(
        CMD_ATTR_SERVICE,
        attribute(SVC_AF, _af(address)),
        attribute(SVC_PROTOCOL, u16(NUMBERS[protocol])),
        attribute(SVC_ADDR, address.packed.ljust(16, b"\0")),
        attribute(SVC_PORT, be16(port)),
        *more,
    )


def _service(server: VirtualServer) -> bytes:
    scheduler, by_port, _ = server.scheduler.partition("-port")
    flags = (PERSISTENT if server.persistence is not None else 0) | (BY_PORT if by_port else 0)
    return _service_key(
        server.key,
        attribute(SVC_SCHED, scheduler.encode() + b"\0"),
        attribute(SVC_FLAGS, u32(flags) + u32(ALL_FLAGS)),
        attribute(SVC_TIMEOUT, u32(server.persistence or 0)),
        attribute(SVC_NETMASK, _netmask(server.address)),
    )


def _netmask(address: IPAddress) -> bytes:
    """Which clients share a persistent real server: every address on its own. IPv6 needs a length."""
    return b"\xff\xff\xff\xff" if address.version == 4 else u32(128)


def _dest(real: RealServer) -> bytes:
    return nested(
        CMD_ATTR_DEST,
        attribute(DEST_ADDR_FAMILY, _af(real.address)),
        attribute(DEST_ADDR, real.address.packed.ljust(16, b"\0")),
        attribute(DEST_PORT, be16(real.port)),
        attribute(DEST_FWD_METHOD, u32(MASQUERADING)),
        attribute(DEST_WEIGHT, u32(real.weight)),
        attribute(DEST_U_THRESH, u32(0)),
        attribute(DEST_L_THRESH, u32(0)),
    )


def parse_service(payload: bytes) -> VirtualServer | None:
    """One message of a dump; None for something that cannot be expressed here. Raises EdgeError if it is not a virtual
    server.

    A virtual server with settings that we never make gets a scheduler that nobody asks for, so it is set again.
    """
    found = _inner(payload, CMD_ATTR_SERVICE)
    try:
        if SVC_FWMARK in found or (protocol := PROTOCOLS.get(U16.unpack(found[SVC_PROTOCOL])[0])) is None:
            return None
        address = _address(4 if found[SVC_AF] == u16(socket.AF_INET) else 6, found[SVC_ADDR])
        scheduler = found[SVC_SCHED].rstrip(b"\0").decode()
        (flags,) = U32.unpack_from(found[SVC_FLAGS])
        (timeout,) = U32.unpack(found[SVC_TIMEOUT])
        (port,) = BE16.unpack(found[SVC_PORT])
        netmask = found[SVC_NETMASK]
    except (KeyError, ValueError, struct.error) as error:
        raise EdgeError(f"not a virtual server of IPVS: {payload.hex()}") from error
    if flags & BY_PORT:
        scheduler += "-port"
    others = flags & ~(PERSISTENT | HASHED | BY_PORT)
    if others or netmask != _netmask(address):
        scheduler += f" with flags {others:#x}, netmask {netmask.hex()}"
    return VirtualServer(address, protocol, port, scheduler, timeout if flags & PERSISTENT else None)


class Dest(NamedTuple):
    """A real server in numbers, which sort and compare many times faster than addresses."""

    address: bytes
    port: int
    weight: int
    connections: int


# The order in which Linux writes a real server since 5.3, as far as we read it: each header, then the value.
_QUICK = struct.Struct("=8x 4s16s 4s2s2x 4sI 4si 24x 4sI 8x 4sI 4sI")
_QUICK_HEADS = tuple(
    ATTRIBUTE.pack(length, kind)
    for length, kind in (
        (20, DEST_ADDR),
        (6, DEST_PORT),
        (8, DEST_FWD_METHOD),
        (8, DEST_WEIGHT),
        (8, DEST_U_THRESH),
        (8, DEST_ACTIVE_CONNS),
        (8, DEST_INACT_CONNS),
    )
)


def parse_dest(payload: bytes) -> Dest:
    """One message of a dump of real servers. Raises EdgeError if it is not one."""
    if len(payload) >= _QUICK.size:
        fields = _QUICK.unpack_from(payload)
        if fields[::2] == _QUICK_HEADS:
            return _dest_of(*fields[1::2])
    return _parse_dest_in_any_order(payload)


def _parse_dest_in_any_order(payload: bytes) -> Dest:
    """The same for every kernel; three times slower."""
    found = _inner(payload, CMD_ATTR_DEST)
    try:
        return _dest_of(
            found[DEST_ADDR],
            found[DEST_PORT],
            *U32.unpack(found[DEST_FWD_METHOD]),
            *S32.unpack(found[DEST_WEIGHT]),
            *U32.unpack(found[DEST_U_THRESH]),
            *U32.unpack(found[DEST_ACTIVE_CONNS]),
            *U32.unpack(found[DEST_INACT_CONNS]),
        )
    except (KeyError, ValueError, struct.error) as error:
        raise EdgeError(f"not a real server of IPVS: {payload.hex()}") from error


def _dest_of(address: bytes, port: bytes, method: int, weight: int, threshold: int, active: int, inactive: int) -> Dest:
    as_we_make_it = method & METHODS == MASQUERADING and threshold == 0
    (number,) = BE16.unpack(port)
    return Dest(address, number, weight if as_we_make_it else NEVER_WANTED, active + inactive)


def _inner(payload: bytes, kind: int) -> dict[int, bytes]:
    return attributes(attributes(payload, _GENERIC.size).get(kind, b""))


# ── What an errno means ───────────────────────────────────────────────────────────────────────────────────────


def _is_gone_already(refusal: Refusal) -> bool:
    """3 is "no such virtual server", 2 on a real server "no such real server"."""
    change = refusal.change
    goes = not isinstance(change, EipChange) and change.after is None
    return goes and refusal.errno in (errno.ESRCH, errno.ENOENT)


def _reason(change: Change, error: int) -> str:
    match change, error:
        case ServerChange(_, VirtualServer(scheduler=scheduler)), errno.ENOENT:
            return f"this kernel has no scheduler {scheduler!r} (module ip_vs_{scheduler})"
        case RealChange(_, _, RealServer()), errno.EINVAL:
            return "not an address that a real server can have"
        case _, errno.ESRCH:
            return "its virtual server no longer exists"
        case _, errno.EEXIST:
            return "another program added it meanwhile"
    return _permission(error)


def _permission(error: int) -> str:
    return "needs CAP_NET_ADMIN" if error == errno.EPERM else os.strerror(error)
