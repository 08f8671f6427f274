"""A schedule: how a simulated cluster is built, what goes wrong in it and when, and what it may cost. Values only."""

from dataclasses import dataclass, field, replace
from enum import Enum

from speaker.ownership.parameters import Parameters

FOR_GOOD = 1e6
"""Seconds; a fault that is not mended."""

TIMES = Parameters(lease=2.0, renew=0.6)
"""The defaults but for the session Lease, shortened so that what waits for it shows within a short schedule."""


class Kind(Enum):
    PARTITION = "partition"
    """``nodes`` and the others do not hear each other on ``link`` (on any, if None)."""
    ONE_WAY = "one_way"
    """``nodes[0]``'s frames do not reach ``nodes[1]``."""
    PAIR = "pair"
    """``nodes[0]`` and ``nodes[1]`` do not hear each other; the rest hears both."""
    CRASH = "crash"
    """``nodes``; they boot again after ``lasts``."""
    CRASH_HOLDER = "crash_holder"
    """Whoever answers for EIP number ``eip`` then."""
    FREEZE = "freeze"
    """SIGSTOP: everything that arrives waits; the clock runs on."""
    API_OUTAGE = "api_outage"
    API_OUTAGE_OTHERS = "api_outage_others"
    """For all but whoever answers for EIP number ``eip`` then."""
    STALE_WATCH = "stale_watch"
    """Writes work, watches deliver late."""
    RECORD_TOUCHED = "record_touched"
    """Somebody writes to the record of EIP number ``eip`` all the time, and changes nothing that counts."""
    RECORD_DELETED = "record_deleted"
    """That of EIP number ``eip``."""
    DRAIN = "drain"
    """Drained; restarted after ``lasts``."""
    UPGRADE = "upgrade"
    """Drained; restarted after ``lasts``, with a higher revision."""
    BRIEF_DRAIN = "brief_drain"
    """Drained; no longer after ``lasts``."""
    REBALANCE = "rebalance"
    """``nodes`` are told to."""
    INELIGIBLE = "ineligible"
    """``nodes`` may not hold EIP number ``eip``."""
    CABLE = "cable"
    """No carrier on ``link`` (on any, if None)."""
    WRONG_KEY = "wrong_key"
    """Frames of ``nodes`` fail authentication everywhere, and theirs refuse all others."""
    REPLAY = "replay"
    """Frames that ``nodes[0]`` sent earlier are played to ``nodes[1]``, over ``lasts``."""
    SEND_FAILS = "send_fails"
    """Hellos of ``nodes`` do not leave on ``link`` (on any, if None); everything else works."""
    KEY_ROTATION = "key_rotation"
    """Every node gets a second key, then signs with it, then drops the first, each step spread over ``lasts``."""
    STRANGER = "stranger"
    """Somebody without the key floods every link with recorded, damaged and forged frames."""


_OF_ONE_EIP = frozenset(
    {Kind.CRASH_HOLDER, Kind.API_OUTAGE_OTHERS, Kind.INELIGIBLE, Kind.RECORD_TOUCHED, Kind.RECORD_DELETED}
)


@dataclass(frozen=True, slots=True)
class Fault:
    at: float
    kind: Kind
    nodes: tuple[int, ...] = ()
    lasts: float = FOR_GOOD
    eip: int = 0
    link: int | None = None

    def __str__(self) -> str:
        who = ",".join(f"n{n}" for n in self.nodes)
        until = "for good" if self.lasts >= FOR_GOOD else f"for {self.lasts:.3f} s"
        what = f" e{self.eip}" if self.kind in _OF_ONE_EIP else ""
        where = f" on link {self.link}" if self.link is not None else ""
        return f"{self.at:.3f} {self.kind.value} {who}{what}{where} {until}"


@dataclass(frozen=True, slots=True)
class Limits:
    """What is promised for a schedule, in seconds; None: not for this one."""

    one_answer: float | None = None
    """Two that hear each other; None: hello + delays."""
    record_answer: float = 0.56
    """Two that both reach the API. A record write and its watch; and ``dead`` before that, where the hello is cut
    between a new holder's intent and its claim: the old one cannot tell it from a node that died before it claimed
    (rule 12c), keeps the EIP, and writes a higher term, which the new one has to read.

    The last hello's way 0.02, ``dead`` 0.32, the write's way 0.02, the watch 0.1, and the 0.1 for which whoever reads
    of a better record waits for what a write's reply may still bring (rule 23)."""
    unanswered: float = 1.5
    """With an eligible node alive."""
    crash: float | None = None
    claims_per_crash: int | None = None
    """At most so many claims of one EIP in the 1.5 s after the last fault: a second one was a false start."""
    planned: tuple[float, float] | None = None
    """No instant without an answer between these."""
    quiet_after: float | None = None
    """No move after this."""
    moves: int | None = None
    """At most so many moves per EIP in all."""
    unswayed: bool = False
    """A stranger changes nothing: without it the same claims at the same times."""
    fewest: bool = False
    """No more moves than a rebalance planned. Not under loss: who hears the old holder yield and misses the new one's
    claim takes an EIP that looks vacant, as after any yield."""
    level: bool = False
    """At the end no node holds two more than another."""
    settled: bool = True
    """At the end exactly one holder, the neighbours and the record right."""
    causeless: bool = True
    """No gap without a cause."""


@dataclass(frozen=True, slots=True)
class Schedule:
    seed: int
    nodes: int = 3
    eips: int = 2
    links: int = 1
    loss: float = 0.0
    duplication: float = 0.0
    delay: float = 0.002
    """Seconds, the longest a frame travels; frames overtake each other."""
    api: bool = False
    api_delay: tuple[float, float] = (0.004, 0.04)
    watch_delay: float = 0.1
    asks: bool = False
    """Neighbours send requests all the time."""
    per_hello: int = 64
    mtu: int | None = None
    """Hellos travel as frames of at most so many bytes; None: as values."""
    drift: bool = False
    """Every host's clock has an offset of its own and runs up to 200 ppm too fast or too slow."""
    clock_back: bool = False
    """Every boot finds an earlier wall clock than the one before."""
    faults: tuple[Fault, ...] = ()
    end: float = 5.0
    limits: Limits = field(default_factory=Limits)
    times: Parameters = TIMES
    family: str = ""

    def without(self, index: int) -> "Schedule":
        return replace(self, faults=self.faults[:index] + self.faults[index + 1 :])

    def __str__(self) -> str:
        head = (
            f"{self.family or 'schedule'} seed {self.seed}: {self.nodes} nodes, {self.eips} EIPs, {self.links} links, "
            f"loss {self.loss:.0%}, delay up to {self.delay * 1000:.0f} ms, {'API' if self.api else 'no API'}"
        )
        head += "".join(
            [
                f", MTU {self.mtu}" if self.mtu else "",
                ", drift" if self.drift else "",
                ", clock back" if self.clock_back else "",
            ]
        )
        return "\n".join([head, *(f"  {fault}" for fault in self.faults)])
