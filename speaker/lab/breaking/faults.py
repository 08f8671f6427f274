"""What breaks on a LAN: a cable pulled, a cable that only seems to work, a switch that falls in two.

All of it happens in the switch; no host is told anything but, where the fault has it so, that its carrier went. Every
function blocks for a millisecond or two and returns when the fault is there: inside an event loop call it through
``in_thread``.
"""

from collections.abc import Collection, Sequence

from pyroute2 import IPRoute

from speaker.lab.network.lan import Lan, index_of, netlink_in
from speaker.lab.network.topology import Segment, switch_port

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
    _set_state(lan, host, link, "down")


def plug(lan: Lan, host: str, link: str = "eth0") -> None:
    """The opposite of ``pull``."""
    _set_state(lan, host, link, "up")


def distrust(lan: Lan, host: str, link: str = "eth0") -> None:
    """The switch learns no address from ``host``'s port any more (port security): whatever sender it makes up, nobody's
    packets go there instead."""
    segment = lan.topology.host(host).port(link).segment
    with netlink_in(lan.namespace(segment.owner)) as switch:
        switch.brport("set", index=index_of(switch, switch_port(host, link)), learning=0)


def split(lan: Lan, groups: Sequence[Collection[str]], link: str = "eth0") -> None:
    """The switch behind ``link`` falls apart: each group of hosts still hears its own, and nobody else.

    Hosts in no group stay with the first. All carriers stay. The first time the hosts leave one after the other; when
    they fall into the same groups again, it is from one moment to the next.
    """
    segment = _segment(lan, link)
    with netlink_in(lan.namespace(segment.owner)) as switch:
        for trunk in _pieces(switch, segment).values():
            _set_master(switch, trunk, None)
        for number, group in enumerate(groups, 1):
            bridge = segment.name if number == 1 else _piece(switch, segment, number)
            for host in group:
                _set_master(switch, switch_port(host, lan.topology.host(host).port_on(segment).link), bridge)


def heal(lan: Lan, link: str = "eth0") -> None:
    """The opposite of ``split``: everybody hears everybody from one moment to the next.

    The pieces stay switches of their own, cabled to each other. To move the ports back would lose frames: a bridge goes
    on sending to where it last saw a MAC.
    """
    segment = _segment(lan, link)
    with netlink_in(lan.namespace(segment.owner)) as switch:
        for piece, trunk in _pieces(switch, segment).items():
            _set_master(switch, trunk, piece)


def _piece(switch: IPRoute, segment: Segment, number: int) -> str:
    """The name of a bridge beside the segment's own; made if need be, with a cable that is plugged in there only."""
    bridge = f"{segment.name}-{number}"
    if not switch.link_lookup(ifname=bridge):
        here, there = f"{bridge}-down", f"{bridge}-up"
        switch.link("add", ifname=bridge, kind="bridge")
        switch.link("add", ifname=here, kind="veth", peer=there)
        for name in (bridge, here, there):
            switch.link("set", index=index_of(switch, name), state="up")
        _set_master(switch, there, segment.name)
    return bridge


def _pieces(switch: IPRoute, segment: Segment) -> dict[str, str]:
    """The bridges that ``split`` made, each with its own end of the cable."""
    names = [str(entry.get("IFLA_IFNAME")) for entry in switch.get_links()]
    return {
        name.removesuffix("-down"): name
        for name in names
        if name.startswith(f"{segment.name}-") and name.endswith("-down")
    }


def _move(lan: Lan, host: str, link: str, bridge: str | None) -> None:
    with netlink_in(lan.namespace(lan.topology.host(host).port(link).segment.owner)) as switch:
        _set_master(switch, switch_port(host, link), bridge)


def _set_state(lan: Lan, host: str, link: str, state: str) -> None:
    with netlink_in(lan.namespace(lan.topology.host(host).port(link).segment.owner)) as switch:
        switch.link("set", index=index_of(switch, switch_port(host, link)), state=state)


def _set_master(switch: IPRoute, port: str, bridge: str | None) -> None:
    master = _NO_BRIDGE if bridge is None else index_of(switch, bridge)
    switch.link("set", index=index_of(switch, port), master=master)


def _segment(lan: Lan, link: str) -> Segment:
    """The one that the nodes reach by ``link``."""
    return lan.topology.host(lan.topology.nodes[0]).port(link).segment
