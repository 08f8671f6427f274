"""What to play, from the command line; light, because every ``speaker`` command imports it. Pure."""

from dataclasses import dataclass

from speaker.errors import SettingError
from speaker.lab.topology import MAX_EIPS, MAX_NODES
from speaker.settings import PeerSettings

SCENARIOS = ("reach", "crash", "cable", "freeze", "drain", "partition", "rejoin", "stranger")
NODES, EIPS = 3, 8


@dataclass(frozen=True, slots=True)
class Request:
    """``hello_ms``: between two hellos of a node; ``clients`` on the LAN. ``reach`` brings its own EIPs."""

    scenario: str
    nodes: int = 1
    eips: int = 0
    hello_ms: int = 0
    clients: int = 1


def parse(scenario: str, nodes: int | None, eips: int | None, hello: str | None) -> Request:
    """The flags as written, None for one that was not; ``hello`` in milliseconds.

    Raises SettingError with the value and the rule for what cannot be played.
    """
    if scenario == "reach":
        for flag, value in (("--nodes", nodes), ("--eips", eips), ("--hello", hello)):
            if value is not None:
                raise SettingError(f"{flag} {value}: reach has one node and its own EIPs: choose another --scenario")
        return Request(scenario)
    nodes = NODES if nodes is None else nodes
    if not 2 <= nodes <= MAX_NODES:
        raise SettingError(f"--nodes {nodes}: {scenario} needs from 2 to {MAX_NODES}")
    eips = EIPS if eips is None else eips
    if not 1 <= eips <= MAX_EIPS:
        raise SettingError(f"--eips {eips}: must be from 1 to {MAX_EIPS}")
    peers = PeerSettings.parse(with_peers=True, hello=hello)
    assert peers is not None
    return Request(scenario, nodes, eips, round(peers.hello * 1000), clients=2 if scenario == "partition" else 1)
