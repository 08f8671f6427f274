"""What breaks on a LAN: a cable pulled, a cable that only seems to work, a switch that falls in two.

All of it happens in the switch; no host is told anything but, where the fault has it so, that its carrier went. Every
function blocks for a millisecond or two and returns when the fault is there: inside an event loop call it through
``in_thread``.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import permutations

from pyroute2 import IPRoute

from speaker.lab.breaking.sickness import Drop
from speaker.lab.breaking.switch import hosts_on, spoil
from speaker.lab.network.lan import Lan, index_of, netlink_in
from speaker.lab.network.topology import LAN, switch_port

#: ``master`` 0 takes a port out of its bridge (rtnl_link(7)): it stays up, and so does the carrier at the other end.
_NO_BRIDGE = 0


def cut(lan: Lan, host: str, link: str = "eth0") -> None:
    """Nothing passes ``host``'s cable any more, in either direction, and its carrier stays."""
    _move(lan, host, link, None)


def mend(lan: Lan, host: str, link: str = "eth0") -> None:
    """The opposite of ``cut``."""
    _move(lan, host, link, lan.topology.host(host).port(link).segment.name)


def pull(lan: Lan, host: str, link: str = "eth0") -> None:
    """Pull ``host``'s cable: it loses the carrier."""
    with _port(lan, host, link) as (switch, index):
        switch.link("set", index=index, state="down")


def plug(lan: Lan, host: str, link: str = "eth0") -> None:
    """The opposite of ``pull``."""
    with _port(lan, host, link) as (switch, index):
        switch.link("set", index=index, state="up")


def distrust(lan: Lan, host: str, link: str = "eth0") -> None:
    """The switch learns no address from ``host``'s port any more (port security): whatever sender it makes up, nobody's
    packets go there instead."""
    with _port(lan, host, link) as (switch, index):
        switch.brport("set", index=index, learning=0)


def split(lan: Lan, groups: Sequence[Collection[str]]) -> None:
    """The switch falls apart, from one moment to the next: each group of hosts still hears its own, and nobody else.

    Hosts in no group stay with the first. All carriers stay.
    """
    others = [frozenset(group) for group in groups[1:]]
    pieces = [hosts_on(lan.topology, LAN).difference(*others), *others]
    spoil(lan, [Drop(one, other) for one, other in permutations(pieces, 2)])


def heal(lan: Lan) -> None:
    """The opposite of ``split``: everybody hears everybody from one moment to the next."""
    spoil(lan, [])


def _move(lan: Lan, host: str, link: str, bridge: str | None) -> None:
    with _port(lan, host, link) as (switch, index):
        switch.link("set", index=index, master=_NO_BRIDGE if bridge is None else index_of(switch, bridge))


@contextmanager
def _port(lan: Lan, host: str, link: str) -> Iterator[tuple[IPRoute, int]]:
    """The switch that the host's link leads to, and its port there."""
    with netlink_in(lan.namespace(lan.topology.host(host).port(link).segment.owner)) as switch:
        yield switch, index_of(switch, switch_port(host, link))
