"""The only speaker on its LAN: everything it may hold, it holds.

What a rival could take away is missing here on purpose; the deadline is not. Answers are given only while the
owner keeps moving it, so a process that hangs falls silent by itself.
"""

HOLD = 1.0
"""Seconds an answer stays allowed after the last beat."""

BEAT = 0.25
"""Seconds between beats: three may be late before the node falls silent."""


def deadline(now: float) -> float:
    """Until when this node may answer, judged at ``now`` (seconds of CLOCK_BOOTTIME)."""
    return now + HOLD
