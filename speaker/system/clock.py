"""The clock that claims, Leases and resting addresses are reckoned by."""

import time


def boottime() -> float:
    """Seconds of CLOCK_BOOTTIME: it runs on through suspend and most VM pauses, where CLOCK_MONOTONIC stands. Whoever
    was away so long holds no Lease any more."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
