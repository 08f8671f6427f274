"""What other groups hold on a link, as their hellos say (rule 33). Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from speaker.model import Group, IPAddress
from speaker.ownership.hello import Hello
from speaker.ownership.machine.peers import FORGOTTEN

MOST = 10_000
"""How many EIPs of other groups are kept."""
PAUSE = 1.0
"""Seconds between two looks."""
LASTING = 0.9
"""Seconds for which a group must claim an EIP that is answered for here before that counts: a node that probes for an
EIP also claims it for a moment."""
_AGAIN = 3.0


class _Claim(NamedTuple):
    group: str
    since: float
    heard_at: float


class OtherGroups:
    """As seen from ``ours``. ``held``: what others hold, each with its group in words; a new object when it changes.

    It is kept for an hour, through failovers and reboots of that group. If two groups took an EIP without knowing of
    each other, both hear that later. Then the one with the lower name gives way; speakers without a group always do.
    """

    def __init__(self, ours: Group) -> None:
        self._ours = ours
        self._claims: dict[IPAddress, _Claim] = {}
        self.held: Mapping[IPAddress, str] = {}

    def hear(self, hellos: Iterable[Hello], have: Callable[[IPAddress], bool], now: float) -> None:
        """Called at each look. ``have``: whether a node of our group answers for an EIP."""
        for hello in hellos:
            for eip in hello.claims.keys() - hello.weak:
                self._note(eip, hello.group, now)
        for eip in [eip for eip, claim in self._claims.items() if now - claim.heard_at >= FORGOTTEN]:
            del self._claims[eip]
        held = {eip: str(Group(claim.group)) for eip, claim in self._claims.items() if self._counts(eip, claim, have)}
        if held != self.held:
            self.held = held

    def _note(self, eip: IPAddress, group: str, now: float) -> None:
        known = self._claims.get(eip)
        if known is None and len(self._claims) >= MOST:
            return
        again = known is not None and known.group == group and now - known.heard_at < _AGAIN
        self._claims[eip] = _Claim(group, known.since if known is not None and again else now, now)

    def _counts(self, eip: IPAddress, claim: _Claim, have: Callable[[IPAddress], bool]) -> bool:
        if eip in self.held or not have(eip):
            return True
        return claim.group > self._ours.name and claim.heard_at - claim.since >= LASTING
