"""To answer for many EIPs, of which one may meet a bug of ours: that one is given up, and no other."""

from collections.abc import Collection, Mapping

from speaker.layer2.links import Links, Placement
from speaker.model import IPAddress
from speaker.system.supervise import Supervisor


def take_each(
    fleet: Links, spots: Mapping[IPAddress, Placement], probe: Collection[IPAddress], supervisor: Supervisor
) -> tuple[list[IPAddress], list[IPAddress]]:
    """Those taken, and those that could not be: nothing is answered for them."""
    try:
        fleet.take(spots, probe)
    except Exception as error:
        supervisor.internal_error("take", error)
    else:
        return list(spots), []
    taken: list[IPAddress] = []
    failed: list[IPAddress] = []
    for address, spot in spots.items():
        try:
            fleet.take({address: spot}, {address}.intersection(probe))
            taken.append(address)
        except Exception as error:
            supervisor.internal_error("take", error)
            failed.append(address)
    drop_each(fleet, failed, supervisor)
    return taken, failed


def drop_each(fleet: Links, addresses: Collection[IPAddress], supervisor: Supervisor) -> None:
    """Nothing is answered for these any more."""
    try:
        fleet.drop(addresses)
        return
    except Exception as error:
        supervisor.internal_error("drop", error)
    for address in addresses:
        try:
            fleet.drop([address])
        except Exception as error:
            supervisor.internal_error("drop", error)
