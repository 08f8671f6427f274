"""EIPs of simulated clusters. A module of its own, since ``.ci/compiled.py`` cannot compile a class of this kind."""

from ipaddress import IPv4Address, IPv6Address

from simulation.schedule import Schedule
from speaker.model import IPAddress


class Address(IPv4Address):
    """One that works out its hash once: half of what is looked up is looked up by EIP."""

    def __init__(self, address: int | str) -> None:
        super().__init__(address)
        self._hash = super().__hash__()

    def __hash__(self) -> int:
        return self._hash


def addresses(schedule: Schedule) -> list[IPAddress]:
    """Those of ``schedule``. As frames they take all the room they can: both families, far apart."""
    return [_address(number, spread=schedule.mtu is not None) for number in range(schedule.eips)]


def _address(number: int, spread: bool) -> IPAddress:
    if spread and number % 2:
        return IPv6Address("2001:db8::1") + (number << 70)
    return Address("10.0.0.1") + number
