"""What the records tell of failovers: which agent answers for an EIP in place of a dead one, and after how long.

The agent that took over measured that, and wrote it into the Announcement with its name. Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from speaker.api.objects import Key
from speaker.api.records import RecordedObject, announced_eip
from speaker.controller.announced import FindUsers, Users
from speaker.controller.writes import Event
from speaker.errors import shown
from speaker.model import IPAddress
from speaker.telemetry.lines import SHOWN, Bound


class Failover(NamedTuple):
    """``before`` fell silent, ``node`` answers; ``unanswered``: seconds from the one's last sign to the other's claim.
    ``name``: the Announcement's; ``since``: of its holder, as the record has it."""

    eip: IPAddress
    name: str
    before: str
    node: str
    unanswered: float
    term: int
    since: str

    def __str__(self) -> str:
        silent = f"{shown(self.before)}, which fell silent" if self.before else "a node that fell silent"
        after = f"{self.unanswered:.3f} s after its last sign"
        return f"{self.eip}: {shown(self.node)} answers in place of {silent}, {after}"


class Failovers:
    """Which of the changes are any: what was never heard of before is none. Of the node that fell silent there is only
    the holder's word: it is named where ``is_node`` knows it."""

    def __init__(self, is_node: Callable[[str], bool] = lambda _: True) -> None:
        self._holders: dict[Key, str] = {}
        self._is_node = is_node

    def news(self, changes: Mapping[Key, RecordedObject | None]) -> Iterator[Failover]:
        """``changes``: None for what is gone."""
        for key, found in changes.items():
            if found is None:
                self._holders.pop(key, None)
                continue
            known, holder = self._holders.get(key), found.status.holder
            self._holders[key] = holder
            if known is not None and holder not in ("", known) and (told := _read(found)) is not None:
                yield told if self._is_node(told.before) else told._replace(before="")


def _read(found: RecordedObject) -> Failover | None:
    """None where it is no failover, or where nobody of us wrote it."""
    status, name = found.status, found.metadata.name
    eip = announced_eip(name)
    if eip is None or status.unanswered is None:
        return None
    return Failover(eip, name, status.taken_from, status.holder, status.unanswered / 1000, status.term, status.since)


def told(found: Iterable[Failover], users: FindUsers, at: str, room: Bound, now: float) -> Iterator[Event]:
    """Events of those that there is ``room`` for, one for each Service that has the EIP: what a record says of Services
    is for people. ``at``: RFC 3339. Terms begin anew where a record is deleted, so a term alone marks none of them."""
    if not (kept := [one for one in found if room.admits(now, "failovers")]):
        return
    using = users({one.name for one in kept})
    for one in kept:
        for about in using.get(one.name, Users()).services[:SHOWN]:
            yield Event("Service", about, "Warning", "FailedOver", str(one), at, f"{one.name} {one.term} {one.since}")


def left_out(room: Bound, now: float) -> int:
    """Failovers that had no Event for want of ``room``, once nothing was left out for a moment, or it lasts."""
    return sum(left.lines for left in room.left_out(now))
