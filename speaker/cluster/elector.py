"""Who holds a Lease, as client-go decides it. Pure: what the API said and the time in, the next thing to do out.

Clocks of two machines are never compared. The holder is alive if the record has changed since this process last looked,
by its own clock; the timestamps in the record are for people. A leader counts from when it *sent* the renewal that
succeeded, its rivals from when they saw it, which is later. So the leader stops ``duration - renew_within`` before
anybody may follow it.
"""

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from speaker.errors import SettingError

LAST_TERM = 2**31 - 1
"""That ``leaseTransitions`` may be (int32). It is followed by itself: who edited a Lease ends no election."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. The defaults are client-go's; ``duration`` is what the Lease says, hence whole."""

    duration: int = 15
    renew_within: float = 10.0
    """Who could not renew for so long leads no more."""
    retry: float = 2.0
    """Between two renewals, and between two looks at somebody else's Lease."""
    request: float = 2.0
    """For one request."""

    def __post_init__(self) -> None:
        if not 0 < self.request <= self.renew_within < self.duration or not 0 < self.retry < self.renew_within:
            raise SettingError(
                f"{self}: must be 0 < retry < renew_within < duration, and a request no longer than renew_within"
            )


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A Lease's ``spec``. ``renewed`` is its ``renewTime`` as it is written: only whether it changed matters.
    ``version``: as the API has it, to be named when it is replaced; no part of what is compared."""

    holder: str
    duration: float
    transitions: int
    renewed: str = ""
    version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Leadership:
    """What a leader writes under. ``term`` is the Lease's ``leaseTransitions``, higher for every later leader, and
    decides nothing; ``version`` the Lease's resourceVersion when it began."""

    term: int
    version: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do before ``until``."""

    until: float


@dataclass(frozen=True, slots=True)
class Look:
    """Read the Lease, then ``looked`` or ``failed``."""


@dataclass(frozen=True, slots=True)
class Write:
    """Create the Lease, or replace it at ``over``; then ``written``, ``conflicted`` or ``failed``."""

    record: LeaseRecord
    over: str | None


Order: TypeAlias = Rest | Look | Write


class Elector:
    """One candidate for one Lease. ``now`` is seconds of one clock that never goes back."""

    def __init__(self, identity: str, timing: Timing) -> None:
        self.identity, self.timing = identity, timing
        self._record: LeaseRecord | None = None
        """The last one seen. It binds even when its Lease was deleted since: its holder does not know that yet."""
        self._version: str | None = None
        """None where there is no Lease."""
        self._changed_at = 0.0
        self._current = False
        """What we saw is the latest we can know of; not so after a conflict, a failure, or a rest."""
        self._due = float("-inf")
        self._leads_until = float("-inf")
        self._leadership: Leadership | None = None
        self._highest = -1
        """Of the transitions seen: a Lease that was deleted begins above it, so that no term comes back."""

    @property
    def leads_until(self) -> float:
        """The instant from which this candidate no longer leads unless it renews; -inf if it does not lead."""
        return self._leads_until

    def leadership(self, now: float) -> Leadership | None:
        return self._leadership if now < self._leads_until else None

    def step(self, now: float) -> Order:
        """The next thing to do. Asked again after a Rest and after each answer to the others."""
        if now < self._due:
            return Rest(self._due)
        if not self._current:
            return Look()
        record = self._record
        if record is None or (record.holder != self.identity and (not record.holder or now >= self._expiry(record))):
            return Write(self._own(self._next_term), over=self._version)
        if record.holder == self.identity:
            renewed = record.transitions if self._version is not None else self._next_term
            return Write(self._own(renewed), over=self._version)
        self._current = False
        self._due = min(now + self.timing.retry, self._expiry(record))
        return Rest(self._due)

    def looked(self, seen: LeaseRecord | None, now: float) -> None:
        """The Lease as it is, or None if there is none."""
        self._observe(seen, now)
        self._current = True

    def written(self, seen: LeaseRecord, sent_at: float, now: float) -> None:
        """The write that ``step`` ordered, sent at ``sent_at``, succeeded."""
        if self.leadership(now) is None:
            self._leadership = Leadership(seen.transitions, seen.version)
        self._observe(seen, now)
        self._current = True
        self._leads_until = sent_at + self.timing.renew_within
        self._due = sent_at + self.timing.retry

    def conflicted(self, now: float) -> None:
        """The write that ``step`` ordered was refused: the Lease is not what it was."""
        self._current = False
        self._due = now + self.timing.retry / 20

    def failed(self, now: float) -> None:
        """No answer, or one that says nothing about the Lease. A write may have been done all the same."""
        self._current = False
        self._due = now + self.timing.retry

    def resign(self, now: float) -> Write | None:
        """Stops leading. Returns the write that lets others follow at once, or None if the Lease is not ours to give
        up."""
        self._leads_until = float("-inf")
        if self._version is None or self._record is None or self._record.holder != self.identity:
            return None
        # One second, as client-go writes it: the field must be positive.
        return Write(replace(self._own(self._record.transitions), holder="", duration=1), over=self._version)

    @property
    def _next_term(self) -> int:
        return min(self._highest + 1, LAST_TERM)

    def _own(self, transitions: int) -> LeaseRecord:
        return LeaseRecord(self.identity, self.timing.duration, transitions)

    def _expiry(self, record: LeaseRecord) -> float:
        return self._changed_at + record.duration

    def _observe(self, seen: LeaseRecord | None, now: float) -> None:
        self._version = seen.version if seen is not None else None
        if seen is None or seen.holder != self.identity:
            self._leads_until = float("-inf")
        if seen is not None:
            if seen != self._record:
                self._changed_at = now
            self._record = seen
            self._highest = max(self._highest, seen.transitions)
