"""How many files this process may have open, and whose share of them is how large. An edge.

A crowd on a listening socket must not take the descriptors that netlink, nft and the files of the speaker itself need.
"""

import resource
from contextlib import suppress

WANTED = 65_536
"""More than this speaker ever needs; the usual 1024 are soon used up by the ports of ``healthCheckNodePort``."""


def raise_limit(wanted: int = WANTED) -> None:
    """As far as it may be raised from here, and not beyond ``wanted``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted if unlimited else min(hard, wanted)), hard))


def share(parts: int, most: int, least: int = 2) -> int:
    """One of so many equal parts of all there are, but no more than ``most`` and no fewer than ``least``."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(least, min(most, soft // parts))
