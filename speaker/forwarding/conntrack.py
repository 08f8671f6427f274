"""The kernel's connection table, through pyroute2: lists connections to a virtual server, and forgets some."""

import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from errno import ENOENT
from ipaddress import ip_address
from typing import Any, TypeAlias

from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nfnetlink.nfctsocket import AsyncNFCTSocket, NFCTAttrTuple

from speaker.errors import as_edge_error
from speaker.forwarding.changes import Flow, goes_on
from speaker.forwarding.plan import NUMBERS, Plan, VirtualServerKey
from speaker.model import IPAddress, Protocol

Keeps: TypeAlias = Callable[[Flow, Plan], bool]
_SEEN_REPLY = 1 << 1
"""IPS_SEEN_REPLY of include/uapi/linux/netfilter/nf_conntrack_common.h."""


async def forget(keys: Iterable[VirtualServerKey], plan: Plan, keeps: Keeps = goes_on) -> int:
    """Forgets every connection to these virtual servers that ``plan`` does not let continue. Returns how many. Raises
    EdgeError."""
    together: dict[tuple[int, Protocol], set[VirtualServerKey]] = {}
    for key in keys:
        together.setdefault((key[0].version, key[1]), set()).add(key)
    return sum([await _forget(version, group, plan, keeps) for (version, _), group in together.items()])


async def _forget(version: int, keys: set[VirtualServerKey], plan: Plan, keeps: Keeps) -> int:
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    lacking = struct.error, AttributeError, ValueError  # an entry lacks what each has
    with as_edge_error("conntrack", (NetlinkError, OSError, *lacking)):
        kernel = AsyncNFCTSocket(nfgen_family=family)
        try:
            await kernel.setup_endpoint()
            gone = [flow async for flow in _flows(kernel, family, keys) if not keeps(flow, plan)]
            return sum([await _delete(kernel, family, flow) for flow in gone])
        finally:
            kernel.close()


async def _flows(kernel: Any, family: int, keys: set[VirtualServerKey]) -> AsyncIterator[Flow]:
    """One pass over the table for all keys (of one family and protocol), narrowed to what they have in common."""
    addresses, (protocol, *_), ports = {key[0] for key in keys}, {key[1] for key in keys}, {key[2] for key in keys}
    wanted = NFCTAttrTuple(family=family, proto=NUMBERS[protocol])
    # Filtered by the kernel since 5.8; an older one sends everything, hence the look at each key below. Asked for an
    # IPv6 address it leaves out the very entries that have it (measured on 6.18), so there the port has to do.
    if len(addresses) == 1 and family == socket.AF_INET:
        wanted.daddr = str(next(iter(addresses)))
    if len(ports) == 1:
        wanted.dport = next(iter(ports))
    async for entry in await kernel.dump(tuple_orig=wanted):
        asked, answered = entry.get_attr("CTA_TUPLE_ORIG"), entry.get_attr("CTA_TUPLE_REPLY")
        number, eip, port = _destination(family, asked)
        if number == NUMBERS[protocol] and (eip, protocol, port) in keys:
            replied = bool((entry.get_attr("CTA_STATUS") or 0) & _SEEN_REPLY)
            yield Flow((eip, protocol, port), *_source(family, asked), *_source(family, answered), replied)


def _source(family: int, ends: Any) -> tuple[IPAddress, int]:
    address = ends.get_attr("CTA_TUPLE_IP").get_attr(f"CTA_IP_V{_version(family)}_SRC")
    return ip_address(address), ends.get_attr("CTA_TUPLE_PROTO").get_attr("CTA_PROTO_SRC_PORT")


def _destination(family: int, ends: Any) -> tuple[int, IPAddress, int]:
    address = ends.get_attr("CTA_TUPLE_IP").get_attr(f"CTA_IP_V{_version(family)}_DST")
    protocol = ends.get_attr("CTA_TUPLE_PROTO")
    return protocol.get_attr("CTA_PROTO_NUM"), ip_address(address), protocol.get_attr("CTA_PROTO_DST_PORT")


def _version(family: int) -> int:
    return 4 if family == socket.AF_INET else 6


async def _delete(kernel: Any, family: int, flow: Flow) -> int:
    eip, protocol, port = flow.key
    entry = NFCTAttrTuple(
        family=family,
        saddr=str(flow.client),
        daddr=str(eip),
        proto=NUMBERS[protocol],
        sport=flow.client_port,
        dport=port,
    )
    try:
        await kernel.entry("del", tuple_orig=entry)
    except NetlinkError as error:
        if error.code == ENOENT:  # it ended meanwhile
            return 0
        raise
    return 1
