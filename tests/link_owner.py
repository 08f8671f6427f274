"""Whose EIPs a link answers for, in tests: each thing it is asked is an argument."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from speaker.model import Link, Mac
from speaker.system.waiting import boottime


@dataclass
class LinkOwner:
    """``layer2.link.Owner``."""

    before: Callable[[], None] = lambda: None
    request_age: float = math.inf
    excused: Callable[[int, bytes, Mac], bool] = lambda link, address, mac: True
    trial: float = 0.0
    ours: Callable[[Mac], bool] = lambda mac: False
    failed: Callable[[int, bytes], None] = lambda link, address: None
    lost: Callable[[Link, BaseException], None] = lambda link, error: None
    clock: Callable[[], float] = boottime

    def before_answering(self) -> None:
        self.before()

    def excuses(self, link: int, address: bytes, mac: Mac) -> bool:
        return self.excused(link, address, mac)

    def is_ours(self, mac: Mac) -> bool:
        return self.ours(mac)

    def found(self, link: int, address: bytes, mac: Mac) -> None: ...
