"""A node that may hold nothing any more hands over first what it has: make before break. Pure."""

from dataclasses import replace

from speaker.agent.view import NodeIntent
from speaker.ownership.eligibility import EXCLUDE


class Exclusion:
    """``now`` is seconds of one clock; ``drain`` as in ``Parameters``, the longest that a drain takes."""

    def __init__(self, drain: float) -> None:
        self._step = drain + 1.0
        self._since: float | None = None
        self._begun = False

    def follow(self, intent: NodeIntent, now: float) -> tuple[NodeIntent, float | None]:
        """What is to be asked of the node for now, and in how many seconds that is something else.

        One that is excluded from the start has nothing. Any other is drained, then forbidden to hold anything, and
        then drained no longer: others count those who drain as gone, and this one goes on hearing and vouching.
        """
        first, self._begun = not self._begun, True
        if not intent.node.excluded:
            self._since = None
            return intent, None
        if self._since is None:
            self._since = now - 2 * self._step if first else now
        passed = now - self._since
        if passed >= 2 * self._step:
            return intent, None
        drained = replace(intent, drained=intent.drained or f"label {EXCLUDE}")
        if passed >= self._step:
            return drained, 2 * self._step - passed
        return replace(drained, node=replace(intent.node, excluded=False)), self._step - passed
