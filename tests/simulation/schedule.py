"""A schedule: how a simulated cluster is built, what goes wrong in it and when, and what it may cost. Values only."""

from dataclasses import dataclass, field, replace
from enum import Enum

from speaker.model import Preference
from speaker.ownership.machine.claims import A_SLICE
from speaker.ownership.parameters import Parameters

FOR_GOOD = 1e6
"""Seconds; a fault that is not mended."""

TIMES = Parameters(lease=2.0, renew=0.6, record_timeout=0.3, record_stale=2.0)
"""The defaults but for those of the API, shortened so that what waits for them shows within a short schedule."""


class Kind(Enum):
    PARTITION = "partition"
    """``nodes`` and the others do not hear each other on ``link`` (on any, if None). The clients beside them are on
    their side, the gateway is on that of the larger group, or of the others."""
    ONE_WAY = "one_way"
    """``nodes[0]``'s frames do not reach ``nodes[1]``; all other stations hear both."""
    PAIR = "pair"
    """``nodes[0]`` and ``nodes[1]`` do not hear each other; the rest hears both."""
    DEAF = "deaf"
    """Nothing reaches ``nodes`` on ``link`` (on any, if None); what they send arrives."""
    MUTE_ALL = "mute_all"
    """Nothing of ``nodes`` reaches anybody on ``link``, ARP included; they hear."""
    BLACKOUT = "blackout"
    """Nothing passes the ports of ``nodes`` on ``link``, and their carrier stays: a spanning tree, a bad cable."""
    UNFLOODED = "unflooded"
    """No broadcast reaches ``nodes`` on ``link`` (on any, if None): a port that is not in the list to flood."""
    UNANSWERING = "unanswering"
    """Hellos of ``nodes`` arrive on ``link`` (on any, if None), their answers do not: a filter eats them."""
    THROTTLED = "throttled"
    """Hellos of ``nodes`` arrive there, and few of their other frames: a port that is limited one way."""
    UNASKED = "unasked"
    """Of broadcasts only hellos reach ``nodes`` on ``link`` (on any, if None): a switch drops ARP, or multicast."""
    LOSSY = "lossy"
    """``share`` of all frames is lost at the ports of ``nodes`` on ``link`` (on any, if None), both ways."""
    HELLOS_EATEN = "hellos_eaten"
    """On ``link`` hellos are lost and all other frames arrive: between all, from the one, or between the two of
    ``nodes``."""
    GATEWAY_SILENT = "gateway_silent"
    """The gateway of ``link`` does not answer ``nodes``, which are told to stand behind the others."""
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
    BURST = "burst"
    """Frames arrive together every ``hold`` seconds: all of them, or those between ``nodes``."""
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
    hold: float = 0.0
    share: float = 0.0

    def __str__(self) -> str:
        who = ",".join(f"n{n}" for n in self.nodes)
        until = "for good" if self.lasts >= FOR_GOOD else f"for {self.lasts:.3f} s"
        what = f" e{self.eip}" if self.kind in _OF_ONE_EIP else ""
        where = f" on link {self.link}" if self.link is not None else ""
        hold = f" each {self.hold:.3f} s" if self.hold else ""
        return f"{self.at:.3f} {self.kind.value} {who}{what}{where}{hold} {until}"


@dataclass(frozen=True, slots=True)
class Limits:
    """What is promised for a schedule, in seconds; None: not for this one."""

    one_answer: float | None = None
    """Two that hear each other; None: ``Schedule.known_within``."""
    wire_answer: float | None = None
    """Two that one client reaches, whether they hear each other or not; None: not for this one."""
    served: float | None = None
    """The longest that a client goes unanswered which a healthy node would hear, and be heard by."""
    no_cause: bool = False
    """No EIP leaves a node without a cause at that node."""
    heal_moves: bool = False
    """Nothing that was served throughout moves when a fault ends."""
    writes: int | None = None
    """At most so many writes of one record."""
    left: tuple[int, float] | None = None
    """A node, and since when it answers for nothing."""
    takes_nothing: tuple[int, float] | None = None
    """A node whose port comes and goes, and since when it claims nothing: others go first."""
    claims_from: tuple[float, int] | None = None
    """From then on at most so many claims, of all EIPs together."""
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
    preferred: bool = False
    """At the end each EIP is where it is preferred most; it moves there once in ``failback`` seconds at most."""
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
    lossy: tuple[tuple[int, int, float], ...] = ()
    """(from, to, share): of the hellos from the one host to the other so many more are lost."""
    burst: float = 0.0
    """Seconds that a burst of loss lasts on average; 0: each hello is lost or not, whatever came before."""
    delay: float = 0.002
    """Seconds, the longest a frame travels; frames overtake each other."""
    api: bool = False
    api_delay: tuple[float, float] = (0.004, 0.04)
    watch_delay: float = 0.1
    asks: bool = False
    """Clients send requests all the time, broadcasts among them."""
    silent_until: float = 0.0
    """Before that no client wants anything, and neither a client nor the gateway answers."""
    clients: tuple[int, ...] | None = None
    """The hosts that have a client beside them; None: all."""
    per_hello: int = 64
    mtu: int | None = None
    """Hellos travel as frames of at most so many bytes; None: as values."""
    drift: bool = False
    """Every host's clock has an offset of its own and runs up to 200 ppm too fast or too slow."""
    apart: float = 0.0
    """Seconds between the first starts of two hosts, one after the other."""
    hellos: tuple[float, ...] = ()
    """Seconds between two hellos of each host; those behind the last one have ``times``."""
    weights: tuple[int, ...] = ()
    """How much each host is preferred for every EIP (none: all are alike); for every second one in reverse."""
    failback: float | None = None
    """As in ``Pool``."""
    heedless: tuple[int, ...] = ()
    """Hosts with the release before: they heed no preference, and say none."""
    clock_back: bool = False
    """Every boot finds an earlier wall clock than the one before."""
    faults: tuple[Fault, ...] = ()
    end: float = 5.0
    limits: Limits = field(default_factory=Limits)
    times: Parameters = TIMES
    family: str = ""

    def times_of(self, host: int) -> Parameters:
        if host >= len(self.hellos):
            return self.times
        return replace(Parameters.for_hello(self.hellos[host]), lease=self.times.lease, renew=self.times.renew)

    @property
    def link_numbers(self) -> range:
        return range(1, self.links + 1)

    @property
    def slowest(self) -> float:
        """Seconds between two hellos of whoever sends the fewest."""
        return max(self.times_of(host).hello for host in range(self.nodes))

    @property
    def longest_listen(self) -> float:
        """Seconds for which the slowest listens before it claims what nobody ever held."""
        return max(self.times_of(host).listen for host in range(self.nodes))

    @property
    def known_within(self) -> float:
        """Seconds until two that hear each other again know what the other holds, and have acted on it. Who stands for
        what it holds does so once it has heard that it is heard, and says so a pace later."""
        further_slices = (self.eips - 1) // (A_SLICE * self.per_hello)
        return self.slowest + 2 * self.times.pace + further_slices * self.times.slot + 4 * self.delay

    def preference(self, host: int, eip: int) -> Preference | None:
        """Of the EIP of this number, to this host."""
        if not self.weights or host in self.heedless:
            return None
        weights = self.weights[::-1] if eip % 2 else self.weights
        return Preference(1 + eip % 2, weights[host], self.failback)

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
                f", loss in bursts of {self.burst:.2f} s" if self.burst else "",
                "".join(f", {share:.0%} lost from n{a} to n{b}" for a, b, share in self.lossy),
                f", silent until {self.silent_until:.1f}" if self.silent_until else "",
                f", clients beside {self.clients}" if self.clients is not None else "",
                f", hellos {self.hellos}" if self.hellos else "",
                f", weights {self.weights}, failback {self.failback}" if self.weights else "",
                f", {self.heedless} heed none" if self.heedless else "",
                f", starts {self.apart} s apart" if self.apart else "",
                ", drift" if self.drift else "",
                ", clock back" if self.clock_back else "",
            ]
        )
        return "\n".join([head, *(f"  {fault}" for fault in self.faults)])
