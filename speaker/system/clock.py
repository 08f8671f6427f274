"""The clock for claims, Leases and resting addresses, and the time of day that objects contain."""

import time
from datetime import UTC, datetime, timedelta


def boottime() -> float:
    """Seconds of CLOCK_BOOTTIME, which continues through suspend and most VM pauses, unlike CLOCK_MONOTONIC. A process
    that was away for so long no longer holds a Lease."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def time_of_day(later: float = 0.0) -> str:
    """RFC 3339, to the second, as in Kubernetes' objects, so many seconds from now. For people: nothing is reckoned by
    it."""
    return (datetime.now(UTC) + timedelta(seconds=later)).strftime("%Y-%m-%dT%H:%M:%SZ")
