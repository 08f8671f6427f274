"""How much of what nodes say on a link is lost, and whose own link loses it: a sick link is not a dead link. Pure."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Set
from math import log2
from typing import NamedTuple

from speaker.ownership.hello import Hello
from speaker.ownership.parameters import NEVER, Parameters

WINDOW = 32
"""Hellos of a peer that are looked back on: with 10 % loss everywhere, one window in 40,000 looks bad."""
RUN = 4
"""Of more lost hellos in a row only so many count: suspicion and death are there for longer outages."""
GOOD, POOR, BETTER, BAD = 3, 18, 25, 34
"""Percent. A path is bad from BAD on until it is below BETTER, and poor from POOR on until it is good."""
STEP = 15
"""Percent by which a loss must change before it is said again: what is said at every beat must stay the same
(rule 1)."""
SAID = 16
"""Peers whose loss is said in one hello, the worst ones: a hello stays small on a LAN that loses everything."""
AGAIN = 60.0
"""Seconds for which a link that was sick goes last, and until what it still holds is offered again."""
_ALL = (1 << WINDOW) - 1


class Arrivals:
    """Which of a peer's last hellos on one link arrived. A sequence that never came is lost, one that is late
    is not."""

    __slots__ = ("_lost", "links", "said", "sequence")

    def __init__(self) -> None:
        self._lost = 0
        """One bit for each of the last hellos, the latest one lowest."""
        self.links = 0
        """As in its hello; 0: it does not say, so nothing is known about what it sends."""
        self.sequence: int | None = None
        self.said = 0
        """The percentage that our hellos say; 0: the path is good."""

    def hear(self, sequence: int, links: int) -> None:
        """From one hello of the peer to its next on the same link, its sequence grows by ``links``."""
        if sequence == self.sequence:
            return
        before, self.sequence = self.sequence, sequence
        step, self.links = max(self.links, links), links
        if before is None or not links:
            return
        if sequence - before == step and not self._lost:
            return  # nearly always
        missing = min(max((sequence - before) // step - 1, 0), RUN)
        self._lost = ((self._lost + 1 << missing) - 1 << 1) & _ALL
        self._say(self.percent)

    def hear_late(self, sequence: int) -> None:
        """One that was overtaken: it counted as lost."""
        if not self._lost or not self.links or self.sequence is None:
            return
        back = (self.sequence - sequence) // self.links
        if 0 < back < WINDOW:
            self._lost &= ~(1 << back)
            self._say(self.percent)

    def pause(self) -> None:
        """What comes next may follow hellos that were dropped here."""
        self.sequence = None

    @property
    def percent(self) -> int:
        return 100 * self._lost.bit_count() // WINDOW

    def _say(self, percent: int) -> None:
        if self.said >= BAD and percent >= BETTER:
            percent = max(percent, BAD)
        elif self.said and percent > GOOD:
            percent = max(percent, POOR)
        if percent < POOR:
            self.said = 0
        elif abs(percent - self.said) >= STEP or (self.said >= BAD) is not (percent >= BAD):
            self.said = percent


class Losses(NamedTuple):
    """The percentage of hellos of ``node`` that do not arrive here, and of each other node's that, by its word, do not
    arrive there."""

    node: str
    ours: int
    theirs: Mapping[str, int]


def sick(me: str, losses: Collection[Losses]) -> set[str]:
    """The nodes, ``me`` or its peers, whose own links account for the bad paths: the nodes with most bad paths, then
    those with most of the rest. A single bad path is nobody's fault, and nor is any if all nodes have equally many."""
    found, left = set[str](), {me, *(each.node for each in losses)}
    bad = set(_paths(me, losses, BAD))
    while True:
        count = Counter(node for path in bad if path <= left for node in path)
        most = max(count.values(), default=0)
        worst = {node for node, paths in count.items() if paths == most}
        if most < 2 or 2 * most < len(left) or worst == left:
            return found
        found |= worst
        left -= worst


def well(me: str, losses: Collection[Losses], sick: Set[str]) -> set[str]:
    """The peers that are not ``sick`` and have no poor path between them; none unless they are a majority."""
    others = {each.node for each in losses} - sick
    poor = {node for path in _paths(me, losses, POOR) if path <= others for node in path}
    return others - poor if len(others) > 1 and 2 * len(poor) < len(others) else set()


def _paths(me: str, losses: Collection[Losses], least: int) -> Iterator[frozenset[str]]:
    """Pairs of nodes between which at least so many percent are lost, in one direction or the other."""
    for node, ours, theirs in losses:
        if ours >= least:
            yield frozenset((me, node))
        yield from (frozenset((node, other)) for other, percent in theirs.items() if percent >= least and other != node)


# ── How long a silence must last before it means anything ─────────────────────────────────────────────────────
#
# A silence that ends without a lost hello was no death: the LAN delivered late, or the sender stood still. Failing over
# each time costs clients more than the silences do. So a node that lives through one waits a quarter longer than it
# lasted, and returns to the usual time within minutes.

HALF_LIFE = 60.0
"""Seconds in which the patience learnt from a silence falls to half."""
MARGIN = 1.25
"""Times the longest silence survived recently: the next one is of the same kind, but not of the same length."""
LONGEST = 6.0
"""Seconds: a LAN that delivers later than that serves no client."""


class Fading:
    """The longest of some silences, which fades as time goes by."""

    __slots__ = ("_at", "_gap")

    def __init__(self) -> None:
        self._gap, self._at = 0.0, 0.0

    def survived(self, gap: float, now: float) -> None:
        """A silence of ``gap`` seconds has ended that meant nothing."""
        if gap <= LONGEST and gap > self._left(now):
            self._gap, self._at = gap, now

    def lasts(self, now: float) -> float:
        """Seconds that the next one may last; 0 if nothing was learnt."""
        return MARGIN * self._left(now)

    def over_at(self, least: float) -> float:
        """From when on that is no longer than ``least`` seconds."""
        return self._at + HALF_LIFE * log2(MARGIN * self._gap / least) if self._gap else NEVER

    def _left(self, now: float) -> float:
        return self._gap * 0.5 ** ((now - self._at) / HALF_LIFE) if self._gap else 0.0


class Patience:
    """Patience with the silences of one peer. Times are seconds of the caller's clock."""

    __slots__ = ("_clock", "_sequence", "late", "over_at", "quiet")

    def __init__(self) -> None:
        self.quiet, self.late = Fading(), Fading()
        """For all silences that meant nothing; and for those in which the LAN was late."""
        self.over_at = NEVER
        """From when on a silence may last no longer than usual; on most LANs it never may."""
        self._clock, self._sequence = 0, 0
        """Of the last hello."""

    def hear(self, hello: Hello, gap: float, now: float, times: Parameters, slower: float) -> None:
        """``hello`` ends a silence of ``gap`` seconds. It meant nothing if none of its sender's hellos was lost: all
        came late, or the sender stood still for no longer than two failovers take. ``slower``: the sender's hello
        interval, divided by ours."""
        slept, step = (hello.clock - self._clock) / 1000, hello.sequence - self._sequence
        self._clock, self._sequence = hello.clock, hello.sequence
        suspect = times.suspect * slower
        if gap <= suspect:
            return
        if 0 < slept <= suspect:
            self.late.survived(gap, now)
            self.quiet.survived(gap, now)
        elif step <= hello.links and gap <= 2 * times.dead * slower:
            self.quiet.survived(gap, now)
        self.over_at = self.quiet.over_at(times.dead)

    def unhear(self) -> None:
        """Its last hello does not count, so the silence goes on: what ends it is no sign that nothing was lost."""
        self._clock = self._sequence = 0

    def lasts(self, now: float) -> float:
        """Seconds that a silence may last; 0 if nothing was learnt."""
        return self.quiet.lasts(now)
