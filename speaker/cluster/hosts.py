"""The addresses of the cluster's own nodes: no EIP, whatever a pool says. Pure."""

from collections.abc import Mapping
from ipaddress import ip_address

import msgspec

from speaker.cluster.objects import Key, Object
from speaker.model import IPAddress


class NodeAddress(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    address: str = ""


class HostStatus(msgspec.Struct, frozen=True, gc=False):
    addresses: tuple[NodeAddress, ...] | None = None


class NodeCondition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class NodeStatus(HostStatus, frozen=True, gc=False):
    """For who asks for more than addresses."""

    conditions: tuple[NodeCondition, ...] | None = None

    @property
    def ready(self) -> bool:
        # Unknown is what the node controller writes when it hears nothing: that is not to be ready either.
        return next((each.status == "True" for each in self.conditions or () if each.type == "Ready"), True)


class HostObject(Object, frozen=True, gc=False):
    """A Node, as far as its addresses go."""

    status: HostStatus = HostStatus()


class Hosts:
    """Nodes come and go, and say much that is no news here."""

    def __init__(self) -> None:
        self._addresses: dict[str, frozenset[IPAddress]] = {}

    def hear(self, told: Mapping[Key, HostObject | None]) -> bool:
        """None: that Node is gone. Whether anybody has other addresses than before."""
        before = dict(self._addresses)
        for key, found in told.items():
            self._addresses.pop(key.name, None)
            if found is not None and (addresses := addresses_of(found.status)):
                self._addresses[key.name] = addresses
        return self._addresses != before

    def reserved(self) -> Mapping[IPAddress, str]:
        """As in ``World``."""
        return {
            address: f"node {name}"
            for name in sorted(self._addresses, reverse=True)
            for address in self._addresses[name]
        }


def addresses_of(status: HostStatus) -> frozenset[IPAddress]:
    found = set()
    for each in status.addresses or ():
        try:
            found.add(ip_address(each.address))
        except ValueError:  # a host name
            continue
    return frozenset(found)
