"""The kernel's IPVS tables, over generic netlink. An edge, for a worker thread.

Numbers and layouts: include/uapi/linux/ip_vs.h; what the kernel does with them: net/netfilter/ipvs/ip_vs_ctl.c.
"""

import errno
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from types import TracebackType
from typing import Self

from speaker.errors import EdgeError, Unsupported
from speaker.forwarding.netlink import (
    Netlink,
    Request,
    attribute,
    attributes,
    be16,
    nested,
    u16,
    u32,
)
from speaker.forwarding.plan import (
    AddEip,
    AddRealServer,
    AddVirtualServer,
    Change,
    ChangeRealServer,
    ChangeVirtualServer,
    RealServer,
    RemoveEip,
    RemoveRealServer,
    RemoveVirtualServer,
    VirtualServer,
    VirtualServerKey,
)
from speaker.model import IPAddress, Protocol

NETLINK_GENERIC = 16
GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 16, 3, 1, 2

NEW_SERVICE, SET_SERVICE, DEL_SERVICE, GET_SERVICE, NEW_DEST, SET_DEST, DEL_DEST, GET_DEST = range(1, 9)
CMD_ATTR_SERVICE, CMD_ATTR_DEST = 1, 2
SVC_AF, SVC_PROTOCOL, SVC_ADDR, SVC_PORT, SVC_FWMARK, SVC_SCHED, SVC_FLAGS, SVC_TIMEOUT, SVC_NETMASK = range(1, 10)
DEST_ADDR, DEST_PORT, DEST_FWD_METHOD, DEST_WEIGHT, DEST_U_THRESH, DEST_L_THRESH = range(1, 7)
DEST_ADDR_FAMILY = 11

PERSISTENT = 0x1
ALL_FLAGS = 0xFFFFFFFF
"""The mask that goes with flags: without it the kernel takes none of them."""
MASQUERADING = 0
"""The forwarding method: the destination is rewritten (ipvsadm's ``-m``)."""

NUMBERS = {Protocol.TCP: socket.IPPROTO_TCP, Protocol.UDP: socket.IPPROTO_UDP, Protocol.SCTP: socket.IPPROTO_SCTP}
PROTOCOLS = {number: protocol for protocol, number in NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A change that the kernel would not make, and why."""

    change: Change
    errno: int

    @property
    def final(self) -> bool:
        """Whether trying again is no use, until somebody changes the manifest or loads a module."""
        if self.errno == errno.ENOENT:
            return isinstance(self.change, AddVirtualServer | ChangeVirtualServer)
        return self.errno in (errno.EINVAL, errno.ERANGE, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)

    def __str__(self) -> str:
        return f"{str(self.change).strip()}: {_reason(self.change, self.errno)}"


class IpvsTables:
    """Virtual servers and real servers of the network namespace it was opened in.

    Raises Unsupported where the kernel has no IPVS; methods raise EdgeError when it will not show its tables.
    """

    def __init__(self) -> None:
        self._netlink = Netlink(NETLINK_GENERIC)
        try:
            self._kind = _family_id(self._netlink)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._netlink.__exit__(None, None, None)

    def virtual_servers(self) -> list[VirtualServer]:
        """Every one, whoever made it, without its real servers; those that match a firewall mark are left out."""
        found = (_parse_service(payload) for payload in self._dump(GET_SERVICE))
        return [server for server in found if server is not None]

    def real_servers(self, key: VirtualServerKey) -> tuple[RealServer, ...]:
        """Sorted. IPVS does not know which are local: none is marked so."""
        payloads = self._dump(GET_DEST, _service_key(key))
        return tuple(sorted(_parse_dest(payload, key[0].version) for payload in payloads))

    def change(self, changes: Sequence[Change]) -> tuple[Refusal, ...]:
        """Make the changes one by one, in order; those the kernel refused come back. EIPs are not its business."""
        asked = [(change, request) for change in changes if (request := self._request(change))]
        answers = self._netlink.send([request for _, request in asked])
        refusals = [Refusal(change, error) for (change, _), error in zip(asked, answers, strict=True) if error]
        return tuple(refusal for refusal in refusals if not _is_gone_already(refusal))

    def _dump(self, command: int, payload: bytes = b"") -> list[bytes]:
        try:
            return self._netlink.dump(self._message(command, payload))
        except OSError as error:
            raise EdgeError(f"the kernel does not list its IPVS tables: {_permission(error.errno or 0)}") from error

    def _message(self, command: int, payload: bytes) -> Request:
        return Request(self._kind, struct.pack("=BBH", command, 1, 0) + payload)

    def _request(self, change: Change) -> Request | None:
        match change:
            case AddVirtualServer(server):
                return self._message(NEW_SERVICE, _service(server))
            case ChangeVirtualServer(_, server):
                return self._message(SET_SERVICE, _service(server))
            case RemoveVirtualServer(server):
                return self._message(DEL_SERVICE, _service_key(server.key))
            case AddRealServer(key, real):
                return self._message(NEW_DEST, _service_key(key) + _dest(real))
            case ChangeRealServer(key, _, real):
                return self._message(SET_DEST, _service_key(key) + _dest(real))
            case RemoveRealServer(key, real):
                return self._message(DEL_DEST, _service_key(key) + _dest(real))
            case AddEip() | RemoveEip():
                return None


def _family_id(netlink: Netlink) -> int:
    name = attribute(CTRL_ATTR_FAMILY_NAME, b"IPVS\0")
    try:
        answer = netlink.ask(Request(GENL_ID_CTRL, struct.pack("=BBH", CTRL_CMD_GETFAMILY, 1, 0) + name))
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise EdgeError(f"generic netlink does not answer: {error.strerror}") from error
        raise Unsupported("this kernel has no IPVS: load the module ip_vs (`modprobe ip_vs`)") from error
    return int(struct.unpack("=H", attributes(answer, 4)[CTRL_ATTR_FAMILY_ID])[0])


# ── Messages ──────────────────────────────────────────────────────────────────────────────────────────────────


def _af(address: IPAddress) -> bytes:
    return u16(socket.AF_INET if address.version == 4 else socket.AF_INET6)


def _address(af: int, value: bytes) -> IPAddress:
    return IPv4Address(value[:4]) if af == socket.AF_INET else IPv6Address(value)


def _key_attributes(key: VirtualServerKey) -> bytes:
    address, protocol, port = key
    return (
        attribute(SVC_AF, _af(address))
        + attribute(SVC_PROTOCOL, u16(NUMBERS[protocol]))
        + attribute(SVC_ADDR, address.packed.ljust(16, b"\0"))
        + attribute(SVC_PORT, be16(port))
    )


def _service_key(key: VirtualServerKey) -> bytes:
    return nested(CMD_ATTR_SERVICE, _key_attributes(key))


def _service(server: VirtualServer) -> bytes:
    """The netmask says which clients share a persistent real server: every address for itself. IPv6 wants a length."""
    return nested(
        CMD_ATTR_SERVICE,
        _key_attributes(server.key),
        attribute(SVC_SCHED, server.scheduler.encode() + b"\0"),
        attribute(SVC_FLAGS, u32(PERSISTENT if server.persistence is not None else 0) + u32(ALL_FLAGS)),
        attribute(SVC_TIMEOUT, u32(server.persistence or 0)),
        attribute(SVC_NETMASK, b"\xff\xff\xff\xff" if server.address.version == 4 else u32(128)),
    )


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


def _parse_service(payload: bytes) -> VirtualServer | None:
    found = attributes(attributes(payload, 4)[CMD_ATTR_SERVICE])
    if SVC_FWMARK in found:
        return None
    (flags,) = struct.unpack_from("=I", found[SVC_FLAGS])
    (timeout,) = struct.unpack("=I", found[SVC_TIMEOUT])
    return VirtualServer(
        address=_address(struct.unpack("=H", found[SVC_AF])[0], found[SVC_ADDR]),
        protocol=PROTOCOLS[struct.unpack("=H", found[SVC_PROTOCOL])[0]],
        port=struct.unpack("!H", found[SVC_PORT])[0],
        scheduler=found[SVC_SCHED].rstrip(b"\0").decode(),
        persistence=timeout if flags & PERSISTENT else None,
    )


def _parse_dest(payload: bytes, version: int) -> RealServer:
    found = attributes(attributes(payload, 4)[CMD_ATTR_DEST])
    return RealServer(
        address=_address(socket.AF_INET if version == 4 else socket.AF_INET6, found[DEST_ADDR]),
        port=struct.unpack("!H", found[DEST_PORT])[0],
        weight=struct.unpack("=i", found[DEST_WEIGHT])[0],
    )


# ── What an errno means ───────────────────────────────────────────────────────────────────────────────────────


def _is_gone_already(refusal: Refusal) -> bool:
    """3 is "no such virtual server", 2 on a real server "no such real server"."""
    match refusal.change:
        case RemoveVirtualServer() | RemoveRealServer():
            return refusal.errno in (errno.ESRCH, errno.ENOENT)
        case _:
            return False


def _reason(change: Change, error: int) -> str:
    match change, error:
        case ((AddVirtualServer(server) | ChangeVirtualServer(_, server)), errno.ENOENT):
            return f"this kernel has no scheduler {server.scheduler!r} (module ip_vs_{server.scheduler})"
        case ((AddRealServer() | ChangeRealServer()), errno.EINVAL):
            return "not an address that a real server can have"
        case _, errno.ESRCH:
            return "its virtual server is gone"
        case _, errno.EEXIST:
            return "somebody else added it meanwhile"
    return _permission(error)


def _permission(error: int) -> str:
    return "needs CAP_NET_ADMIN" if error == errno.EPERM else os.strerror(error)
