"""Edge (rtnetlink), for a worker thread: the speaker's own dummy link, and the EIPs bound to it.

IPVS takes only packets for addresses of this host, and a virtual server is ours if its address is bound on this link
(docs/decisions/0009-eips-on-a-dummy-link.md).
"""

import errno
import os
import socket
import struct
from collections.abc import Collection, Sequence
from ipaddress import ip_address

from speaker.errors import EdgeError, Unsupported, as_edge_error
from speaker.model import EIP_LINK, KUBE_PROXY_LINK, IPAddress, of_speakers
from speaker.netlink import messages as rt
from speaker.netlink.messages import NLM_F_CREATE, NLM_F_EXCL, attribute, attributes, nested, u32
from speaker.netlink.requests import Netlink, Request

LINK_NAME = EIP_LINK

IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE = 8, 1
IFA_CACHEINFO, IFA_FLAGS = 6, 8
IFA_F_NODAD, IFA_F_NOPREFIXROUTE = 0x02, 0x200
RT_SCOPE_UNIVERSE, RT_SCOPE_LINK = 0, 253
INFINITE = 0xFFFFFFFF

_IFA_CACHEINFO = struct.Struct("=IIII")


class DummyLink:
    """The link in the network namespace of the calling thread; every method opens its own socket."""

    def __init__(self, name: str = LINK_NAME) -> None:
        self.name = name

    def eips(self) -> frozenset[IPAddress]:
        """The addresses bound on it; empty if there is no such link. Raises EdgeError."""
        with Netlink(socket.NETLINK_ROUTE) as netlink:
            index = self._find(netlink)
            return frozenset(_addresses(netlink, index)) if index else frozenset()

    def index(self) -> int:
        """The kernel's number of the link, which changes if the link is removed and created again; 0 if there is no
        link."""
        with Netlink(socket.NETLINK_ROUTE) as netlink:
            return self._find(netlink)

    def bind(self, eips: Collection[IPAddress]) -> None:
        """Binds them as /32 and /128, and creates the link if necessary.

        Raises Unsupported if the kernel has no dummy links, EdgeError if it refuses.
        """
        with Netlink(socket.NETLINK_ROUTE) as netlink:
            index = self._find(netlink) or self._create(netlink)
            self._bring_up(netlink, index, ipv6=any(eip.version == 6 for eip in eips))
            answers = netlink.send([_new_address(index, eip) for eip in eips])
            self._each("bind", eips, answers, unless=errno.EEXIST)

    def unbind(self, eips: Collection[IPAddress]) -> None:
        """Addresses that are not bound are ignored. Raises EdgeError."""
        with Netlink(socket.NETLINK_ROUTE) as netlink:
            if index := self._find(netlink):
                answers = netlink.send([_delete_address(index, eip) for eip in eips])
                self._each("unbind", eips, answers, unless=errno.EADDRNOTAVAIL)

    def remove(self) -> bool:
        """Removes the link, and with it every address on it; False if there was none. Raises EdgeError."""
        with Netlink(socket.NETLINK_ROUTE) as netlink:
            index = self._find(netlink)
            if index:
                self._must(netlink.send([Request(rt.RTM_DELLINK, _ifinfo(index))]), "remove")
            return bool(index)

    def _find(self, netlink: Netlink) -> int:
        """Its index; 0 if there is none."""
        try:
            answer = netlink.ask(Request(rt.RTM_GETLINK, _ifinfo(0) + self._name_attribute()))
        except OSError as error:
            if error.errno == errno.ENODEV:
                return 0
            raise EdgeError(f"the kernel does not show the link {self.name}: {error.strerror}") from error
        if len(answer) < rt.IFINFO.size:
            raise EdgeError(f"the kernel's answer about the link {self.name} is cut short")
        info = attributes(attributes(answer, rt.IFINFO.size).get(rt.IFLA_LINKINFO, b""))
        if info.get(rt.IFLA_INFO_KIND) != b"dummy\0":
            raise EdgeError(f"the link {self.name} is not a dummy link, so not ours: rename or remove it")
        return int(rt.IFINFO.unpack_from(answer)[2])

    def _create(self, netlink: Netlink) -> int:
        """It is down at first: an IPv6 link-local address comes with up, unless ``_bring_up`` prevents that before."""
        kind = nested(rt.IFLA_LINKINFO, attribute(rt.IFLA_INFO_KIND, b"dummy\0"))
        payload = _ifinfo(0) + self._name_attribute() + kind
        answers = netlink.send([Request(rt.RTM_NEWLINK, payload, NLM_F_CREATE | NLM_F_EXCL)])
        if answers == [errno.EOPNOTSUPP]:
            raise Unsupported("this kernel has no dummy links: load the module dummy (`modprobe dummy`)")
        self._must(answers, "create")
        return self._find(netlink)

    def _bring_up(self, netlink: Netlink, index: int, *, ipv6: bool) -> None:
        no_link_local = nested(socket.AF_INET6, attribute(IFLA_INET6_ADDR_GEN_MODE, bytes([IN6_ADDR_GEN_MODE_NONE])))
        answers = netlink.send([Request(rt.RTM_SETLINK, _ifinfo(index) + nested(rt.IFLA_AF_SPEC, no_link_local))])
        if ipv6:  # without IPv6 in the kernel there is nothing to set, and no need for it
            self._must(answers, "keep IPv6 link-local addresses off")
        self._must(netlink.send([Request(rt.RTM_SETLINK, _ifinfo(index, rt.IFF_UP, rt.IFF_UP))]), "bring up")

    def _name_attribute(self) -> bytes:
        return attribute(rt.IFLA_IFNAME, self.name.encode() + b"\0")

    def _each(self, verb: str, eips: Collection[IPAddress], answers: Sequence[int], *, unless: int) -> None:
        for eip, answer in zip(eips, answers, strict=True):
            if answer not in (0, unless):
                raise EdgeError(f"cannot {verb} {eip} on {self.name}: {_sentence(answer)}")

    def _must(self, answers: list[int], verb: str) -> None:
        for answer in filter(None, answers):
            raise EdgeError(f"cannot {verb} the link {self.name}: {_sentence(answer)}")


def others_bind(ours: str) -> bool:
    """Whether a speaker of another group has EIPs bound here, and so needs what all of them set. Raises EdgeError."""
    others = (name for _, name in socket.if_nameindex() if of_speakers(name) and name != ours)
    return any(DummyLink(name).eips() for name in others)


def is_kube_proxy_here() -> bool:
    """Whether the link exists on which kube-proxy in ipvs mode binds addresses; in another mode it is removed."""
    return any(name == KUBE_PROXY_LINK for _, name in socket.if_nameindex())


def bound_on(index: int) -> frozenset[IPAddress]:
    """The addresses of any link, by its number, such as kube-proxy's dummy link. Raises EdgeError."""
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        return frozenset(_addresses(netlink, index))


def _ifinfo(index: int, flags: int = 0, change: int = 0) -> bytes:
    return rt.IFINFO.pack(socket.AF_UNSPEC, 0, index, flags, change)


def _addresses(netlink: Netlink, index: int) -> list[IPAddress]:
    with as_edge_error("the kernel does not list addresses"):
        answers = netlink.dump(Request(rt.RTM_GETADDR, rt.IFADDR.pack(socket.AF_UNSPEC, 0, 0, 0, 0)))
    try:
        mine = (attributes(answer, rt.IFADDR.size) for answer in answers if rt.IFADDR.unpack_from(answer)[4] == index)
        return [ip_address(found.get(rt.IFA_LOCAL) or found[rt.IFA_ADDRESS]) for found in mine]
    except (KeyError, ValueError, struct.error) as error:
        raise EdgeError("the kernel listed an address that cannot be read") from error


def _address(index: int, eip: IPAddress, scope: int = RT_SCOPE_UNIVERSE) -> bytes:
    family = socket.AF_INET if eip.version == 4 else socket.AF_INET6
    header = rt.IFADDR.pack(family, eip.max_prefixlen, 0, scope, index)
    return header + attribute(rt.IFA_LOCAL, eip.packed) + attribute(rt.IFA_ADDRESS, eip.packed)


def _new_address(index: int, eip: IPAddress) -> Request:
    """Bound so that this host never uses it as its own address when it sends, or masquerades, through a link without
    one: IPv4 with link scope (inet_select_addr), IPv6 deprecated (RFC 6724, rule 3). Traffic to the EIP still uses it.

    IPv6 without duplicate detection, which would see our own answers; and without the route that a /128 adds to the
    main table, where a lookup for the link that reaches an address would find it.
    """
    if eip.version == 4:
        payload = _address(index, eip, RT_SCOPE_LINK)
    else:
        deprecated = attribute(IFA_CACHEINFO, _IFA_CACHEINFO.pack(0, INFINITE, 0, 0))
        payload = _address(index, eip) + deprecated + attribute(IFA_FLAGS, u32(IFA_F_NODAD | IFA_F_NOPREFIXROUTE))
    return Request(rt.RTM_NEWADDR, payload, NLM_F_CREATE | NLM_F_EXCL)


def _delete_address(index: int, eip: IPAddress) -> Request:
    return Request(rt.RTM_DELADDR, _address(index, eip))


def _sentence(error: int) -> str:
    return "needs CAP_NET_ADMIN" if error == errno.EPERM else os.strerror(error)
