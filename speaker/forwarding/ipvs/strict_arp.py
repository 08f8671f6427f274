"""Strict ARP: the kernel stays silent for an EIP that is bound on the dummy link; only the speaker answers.

By default Linux answers ARP for any of its addresses on any link. ``arp_ignore=1`` answers only for the addresses of
the link that was asked; ``arp_announce=2`` never names an EIP as the sender of our own requests, which other nodes that
bind it would not answer. Set per link over rtnetlink, which works with a read-only /proc/sys; what was there before is
written down first, so that not even a crash loses it. ``tighten`` and ``restore`` are pure; the class is the edge.
"""

import errno
import os
import socket
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from speaker.checks import Finding
from speaker.errors import EdgeError, as_edge_error
from speaker.forwarding.ipvs.settings import Remembered
from speaker.model import of_speakers
from speaker.netlink import messages as nl
from speaker.netlink.requests import Netlink, Request

IFLA_INET_CONF = 1
ARP_ANNOUNCE, ARP_IGNORE = 18, 19
"""IPV4_DEVCONF_* (include/uapi/linux/ip.h)."""
NAMES = {ARP_ANNOUNCE: "arp_announce", ARP_IGNORE: "arp_ignore"}
WANTED = {ARP_ANNOUNCE: 2, ARP_IGNORE: 1}
STRICT = {ARP_ANNOUNCE: frozenset({2}), ARP_IGNORE: frozenset({1, 2, 8})}
"""Values that are strict enough. For arp_ignore, 3 depends on the scope of the address, and 4 to 7 mean 0
(net/ipv4/arp.c)."""


@dataclass(frozen=True, slots=True)
class ArpLink:
    """A link that uses ARP, and its settings."""

    index: int
    name: str
    values: Mapping[int, int]

    def setting(self, kind: int) -> str:
        """The setting's name in the file of originals; a link that is created again has another index."""
        return f"{self.name}/{self.index}/{NAMES[kind]}"


class Set(NamedTuple):
    """One value to set on one link."""

    link: ArpLink
    kind: int
    value: int

    def __str__(self) -> str:
        return f"{NAMES[self.kind]}={self.value} on {self.link.name}"


def tighten(links: Sequence[ArpLink], everywhere: Mapping[int, int]) -> tuple[Set, ...]:
    """What to set so that each link is strict. ``everywhere`` is conf/all, and the larger of the two values counts."""
    return tuple(
        Set(link, kind, WANTED[kind])
        for link in links
        for kind in sorted(WANTED)
        if max(everywhere[kind], link.values[kind]) not in STRICT[kind]
        and max(everywhere[kind], WANTED[kind]) in STRICT[kind]  # otherwise nothing helps: see lax_everywhere
    )


def restore(links: Sequence[ArpLink], originals: Mapping[str, int]) -> tuple[Set, ...]:
    """What to set back; a value that is no longer the one we set is somebody else's, and stays."""
    return tuple(
        Set(link, kind, originals[link.setting(kind)])
        for link in links
        for kind in sorted(WANTED)
        if link.setting(kind) in originals and link.values[kind] == WANTED[kind]
    )


def lax_everywhere(everywhere: Mapping[int, int]) -> tuple[Finding, ...]:
    """The conf/all values that no value of a link can make strict."""
    return tuple(
        Finding(
            "kernel_answers",
            f"net.ipv4.conf.all.{NAMES[kind]}={value} lets the kernel answer ARP for EIPs on every link: "
            f"`sysctl -w net.ipv4.conf.all.{NAMES[kind]}={WANTED[kind]}`, or 0",
            f"sysctl -w net.ipv4.conf.all.{NAMES[kind]}={WANTED[kind]}",
        )
        for kind, value in everywhere.items()
        if value > WANTED[kind] and value not in STRICT[kind]
    )


class StrictArp:
    """For every link with ARP in the calling thread's network namespace, except those that EIPs are bound on."""

    def __init__(self, remembered: Remembered) -> None:
        self._remembered = remembered

    def tighten(self) -> tuple[Set, ...]:
        """Makes every link strict, including new ones. Returns what was set. Raises EdgeError."""
        with Netlink(socket.NETLINK_ROUTE) as netlink:
            links = self._links(netlink)
            changes = tighten(links, conf_all())
            present = {link.setting(kind) for link in links for kind in WANTED}
            before = {change.link.setting(change.kind): change.link.values[change.kind] for change in changes}
            self._remembered.add(before, keep=present)
            _set(netlink, changes)
        return changes

    def restore(self) -> tuple[Set, ...]:
        """Restores what was there before; only when no EIP is bound any more. Raises EdgeError."""
        originals = self._remembered.read()
        if not originals:
            return ()
        with Netlink(socket.NETLINK_ROUTE) as netlink:
            changes = restore(self._links(netlink), originals)
            _set(netlink, changes)
        self._remembered.forget()
        return changes

    def _links(self, netlink: Netlink) -> list[ArpLink]:
        return [link for link in _list(netlink) if not of_speakers(link.name)]


def answers_for_all(names: Collection[str]) -> tuple[str, ...]:
    """Those of the links ``names`` on which the kernel answers ARP for addresses of other links. Raises EdgeError."""
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        links = [link for link in _list(netlink) if link.name in names]
    everywhere = conf_all()[ARP_IGNORE]
    return tuple(link.name for link in links if max(everywhere, link.values[ARP_IGNORE]) not in STRICT[ARP_IGNORE])


def _list(netlink: Netlink) -> list[ArpLink]:
    with as_edge_error("cannot list links"):
        answers = netlink.dump(Request(nl.RTM_GETLINK, nl.IFINFO.pack(socket.AF_UNSPEC, 0, 0, 0, 0)))
    try:
        return [link for link in map(_parse, answers) if link]
    except (KeyError, UnicodeDecodeError, struct.error) as error:
        raise EdgeError("the kernel listed a link that cannot be read") from error


def conf_all() -> dict[int, int]:
    """net.ipv4.conf.all of the calling thread's network namespace; rtnetlink does not show it. Raises EdgeError."""
    folder = Path("/proc/sys/net/ipv4/conf/all")
    with as_edge_error(str(folder), (OSError, ValueError)):
        return {kind: int((folder / name).read_text()) for kind, name in NAMES.items()}


def _parse(answer: bytes) -> ArpLink | None:
    """None for a link without ARP. The kernel lists IFLA_INET_CONF as one array, whose first entry is number 1."""
    _, _, index, flags, _ = nl.IFINFO.unpack_from(answer)
    if flags & (nl.IFF_LOOPBACK | nl.IFF_NOARP):
        return None
    found = nl.attributes(answer, nl.IFINFO.size)
    conf = nl.attributes(nl.attributes(found.get(nl.IFLA_AF_SPEC, b"")).get(socket.AF_INET, b"")).get(IFLA_INET_CONF)
    if conf is None:  # a link with an MTU under 68 has no IPv4
        return None
    values = {kind: struct.unpack_from("=I", conf, 4 * (kind - 1))[0] for kind in WANTED}
    return ArpLink(index, found[nl.IFLA_IFNAME].rstrip(b"\0").decode(), values)


def _setting(change: Set) -> bytes:
    """The kernel takes IFLA_INET_CONF as nested attributes, one per value: not what it lists."""
    values = nl.nested(IFLA_INET_CONF, nl.attribute(change.kind, nl.u32(change.value)))
    of_link = nl.IFINFO.pack(socket.AF_UNSPEC, 0, change.link.index, 0, 0)
    return of_link + nl.nested(nl.IFLA_AF_SPEC, nl.nested(socket.AF_INET, values))


def _set(netlink: Netlink, changes: Sequence[Set]) -> None:
    answers = netlink.send([Request(nl.RTM_SETLINK, _setting(change)) for change in changes])
    for change, answer in zip(changes, answers, strict=True):
        if answer not in (0, errno.ENODEV):  # a link may disappear meanwhile
            raise EdgeError(f"cannot set {change}: {os.strerror(answer)}")
