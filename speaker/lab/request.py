"""What to play, from the command line; light, because every ``speaker`` command imports it. Pure."""

from dataclasses import dataclass, fields, replace

from speaker.errors import SettingError
from speaker.lab.topology import MAX_EIPS, MAX_NODES
from speaker.settings import PeerSettings

FAILOVERS = ("crash", "cable", "freeze", "drain", "partition", "rejoin", "stranger")
#: A switch that spoils frames, and for how many seconds it does unless it is told.
SICK_LINKS = {
    "deaf": 10.0,
    "blip": 1.0,
    "flap": 1.0,
    "stp": 2.0,
    "partial": 10.0,
    "oneway": 10.0,
    "minority": 10.0,
    "filtered": 10.0,
    "burst": 10.0,
    "stutter": 10.0,
    "nobroadcast": 10.0,
    "mute": 10.0,
    "storm": 10.0,
    "sick": 14.0,
}
SCENARIOS = ("reach", *FAILOVERS, *SICK_LINKS)
NODES, EIPS = 3, 8
#: Of the scenarios with sick links: as in the measurements that they repeat.
SICK_EIPS = 12
AFTER = 60.0
MAX_LOSS, MAX_DELAY_MS, MAX_SECONDS = 90, 1000, 60.0
NODES_ONLY = "nodes"
#: Milliseconds between two bursts, of all frames and of those between nodes; for which a node stands still.
HOLD_MS, NODES_HOLD_MS, STOP_MS = 350, 500, 250
LEAST_MS, MAX_HOLD_MS, SECOND_MS = 10, 2000, 1000
#: Both sides of ``partition``, ``stp`` and ``minority`` have a client.
_TWO_CLIENTS = frozenset({"partition", "stp", "minority"})
#: The fewest nodes of whom it can happen to two while one looks on; and two on each side.
_LEAST, _USUAL = {"partial": 3}, {"minority": 4}


@dataclass(frozen=True, slots=True)
class Trouble:
    """What a switch that spoils frames is asked for: ``seconds`` of it, ``after`` so many more to see it settle.

    ``loss`` in percent and ``delay`` in milliseconds are there all the time. ``second_link``: the nodes share an EIP on
    another link too, and say hello there. ``hold``: milliseconds between two bursts, ``only`` of what nodes send each
    other. ``stop``: milliseconds for which a node stands still. ``unicast``: what is lost is all that is sent to one.
    """

    seconds: float | None = None
    after: float = AFTER
    carrier: bool = False
    second_link: bool = False
    loss: int = 0
    delay: int = 0
    hold: int | None = None
    only: str = ""
    stop: int | None = None
    unicast: bool = False

    def of(self, scenario: str) -> "Trouble":
        """With the ``seconds`` of ``scenario`` where none were asked for. Raises SettingError for what cannot be."""
        for name, value, unit, most in (
            ("loss", self.loss, "percent", MAX_LOSS),
            ("delay", self.delay, "milliseconds", MAX_DELAY_MS),
            ("after", self.after, "seconds", MAX_SECONDS),
        ):
            if not 0 <= value <= most:
                raise SettingError(f"--{name} {value:g}: must be {unit} from 0 to {most:g}")
        if self.seconds is not None and not 0 < self.seconds <= MAX_SECONDS:
            raise SettingError(f"--seconds {self.seconds:g}: must be seconds above 0 and at most {MAX_SECONDS:g}")
        if self.carrier and scenario != "flap":
            raise SettingError(f"--carrier: {scenario} leaves every carrier up: choose flap")
        self._belong(scenario)
        seconds = SICK_LINKS[scenario] if self.seconds is None else self.seconds
        hold, stop = self.hold, self.stop
        if scenario == "burst" and hold is None:
            hold = NODES_HOLD_MS if self.only else HOLD_MS
        if scenario == "stutter" and stop is None:
            stop = STOP_MS
        return replace(self, seconds=seconds, hold=hold, stop=stop)

    def _belong(self, scenario: str) -> None:
        """Raises SettingError where a flag is of another scenario, or says what cannot be."""
        for flag, theirs in (("hold", "burst"), ("only", "burst"), ("stop", "stutter"), ("unicast", "mute")):
            if getattr(self, flag) != getattr(NO_TROUBLE, flag) and scenario != theirs:
                raise SettingError(f"--{flag}: not with {scenario}: choose {theirs}")
        if self.only not in ("", NODES_ONLY):
            raise SettingError(f"--only {self.only[:80]!r}: must be {NODES_ONLY}")
        if self.hold is not None and not LEAST_MS <= self.hold <= MAX_HOLD_MS:
            raise SettingError(f"--hold {self.hold}: must be milliseconds from {LEAST_MS} to {MAX_HOLD_MS}")
        if scenario == "burst" and self.delay:
            raise SettingError(f"--delay {self.delay}: not with burst, which holds frames itself")

    def stops(self, nodes: int) -> None:
        """Raises SettingError where ``nodes`` cannot stand still in turn for so long each, once a second."""
        if self.stop is not None and not LEAST_MS <= self.stop <= (most := SECOND_MS // nodes):
            raise SettingError(
                f"--stop {self.stop}: {nodes} nodes in turn: must be milliseconds from {LEAST_MS} to {most}"
            )


NO_TROUBLE = Trouble()


@dataclass(frozen=True, slots=True)
class Request:
    """``hello_ms``: between two hellos of a node; ``clients`` on the LAN. ``reach`` brings its own EIPs."""

    scenario: str
    nodes: int = 1
    eips: int = 0
    hello_ms: int = 0
    clients: int = 1
    trouble: Trouble = NO_TROUBLE
    fault: str = ""
    """To be practised instead of a scenario."""
    responder: str = "socket"
    """As the flag of the speakers."""


def practice(fault: str, trouble: Trouble = NO_TROUBLE) -> Request:
    """Two nodes, and a second client to be the stranger. Raises SettingError: no switch spoils frames there."""
    _refuse(trouble, "a fault")
    return Request("fault", 2, clients=2, fault=fault)


def parse(
    scenario: str, nodes: int | None, eips: int | None, hello: str | None, trouble: Trouble = NO_TROUBLE
) -> Request:
    """The flags as written, None for one that was not; ``hello`` in milliseconds.

    Raises SettingError with the value and the rule for what cannot be played.
    """
    if scenario == "reach":
        for flag, value in (("--nodes", nodes), ("--eips", eips), ("--hello", hello)):
            if value is not None:
                raise SettingError(f"{flag} {value}: reach has one node and its own EIPs: choose another --scenario")
    if scenario in SICK_LINKS:
        trouble = trouble.of(scenario)
    else:
        _refuse(trouble, scenario)
    if scenario == "reach":
        return Request(scenario)
    nodes = _USUAL.get(scenario, NODES) if nodes is None else nodes
    least = _LEAST.get(scenario, 2)
    if not least <= nodes <= MAX_NODES:
        raise SettingError(f"--nodes {nodes}: {scenario} needs from {least} to {MAX_NODES}")
    trouble.stops(nodes)
    if eips is None:
        eips = SICK_EIPS if scenario in SICK_LINKS else EIPS
    if not 1 <= eips <= MAX_EIPS:
        raise SettingError(f"--eips {eips}: must be from 1 to {MAX_EIPS}")
    peers = PeerSettings.parse(with_peers=True, hello=hello)
    assert peers is not None
    clients = 2 if scenario in _TWO_CLIENTS else 1
    return Request(scenario, nodes, eips, round(peers.hello * 1000), clients, trouble)


def _refuse(trouble: Trouble, scenario: str) -> None:
    for flag in fields(trouble):
        if getattr(trouble, flag.name) != flag.default:
            name = flag.name.replace("_", "-")
            raise SettingError(f"--{name}: {scenario} has no sick links: choose one of {', '.join(SICK_LINKS)}")
