"""To answer for many EIPs, of which one may meet a bug of ours: that one is given up, and no other."""

from collections.abc import Collection, Mapping

from speaker.layer2.links import Links, Placement
from speaker.model import IPAddress
from speaker.system.supervise import Supervisor


def take_each(
    layer2: Links, placements: Mapping[IPAddress, Placement], probe: Collection[IPAddress], supervisor: Supervisor
) -> tuple[list[IPAddress], list[IPAddress]]:
    """Those taken, and those that could not be: nothing is answered for them."""
    try:
        layer2.take(placements, probe)
    except Exception as error:
        supervisor.internal_error("take", error)
    else:
        return list(placements), []
    taken: list[IPAddress] = []
    failed: list[IPAddress] = []
    for address, placement in placements.items():
        try:
            layer2.take({address: placement}, {address}.intersection(probe))
            taken.append(address)
        except Exception as error:
            supervisor.internal_error("take", error)
            failed.append(address)
    drop_each(layer2, failed, supervisor)
    return taken, failed


def drop_each(layer2: Links, addresses: Collection[IPAddress], supervisor: Supervisor) -> None:
    """Nothing is answered for these any more."""
    try:
        layer2.drop(addresses)
        return
    except Exception as error:
        supervisor.internal_error("drop", error)
    for address in addresses:
        try:
            layer2.drop([address])
        except Exception as error:
            supervisor.internal_error("drop", error)
