"""Troubles that mostly pass by themselves, and when they are worth a word. Pure.

A busy API server answers late now and then, and a watch breaks: nobody has to act on that. What lasts is told.
"""

from dataclasses import dataclass

LASTING = 10.0
"""Seconds for which the API may be away before anybody is told in the log. Metrics and status say so at once."""


@dataclass(slots=True)
class Spell:
    """One trouble, ``since`` when; ``now`` is seconds of the same clock."""

    since: float
    said: str | None = None
    """What was told of it last."""

    def tells(self, words: str, now: float, patience: float = 0.0) -> bool:
        """Whether ``words`` are to be told now: it has lasted for ``patience``, and they are new."""
        if now - self.since < patience or words == self.said:
            return False
        self.said = words
        return True
