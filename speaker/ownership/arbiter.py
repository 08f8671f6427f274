"""What the API server's records and Leases mean to one node (rules 12, 23 and 30). Pure."""

from dataclasses import dataclass

from speaker.ownership.claims import Eip
from speaker.ownership.events import Record
from speaker.ownership.hello import Incarnation
from speaker.ownership.parameters import Parameters
from speaker.ownership.peers import Peer

FOREVER = float("inf")


@dataclass(slots=True)
class Lease:
    incarnation: Incarnation
    seen_at: float
    renewed: bool
    """Seen renewed since the API was last unreadable."""


class Arbiter:
    """The API as last seen. ``configured`` is False where there is none at all."""

    def __init__(self, me: str, times: Parameters, configured: bool) -> None:
        self._me, self._times, self.configured = me, times, configured
        self.up = False
        self.listed = False
        self.leases: dict[str, Lease] = {}

    def came_up(self) -> bool:
        """Whether that is news."""
        news = not self.up
        self.up = self.listed = True
        return news

    def went_down(self) -> None:
        self.up = False
        for lease in self.leases.values():
            lease.renewed = False

    def see_lease(self, node: str, incarnation: Incarnation, renewed: bool, now: float) -> bool:
        """Whether it changes what records of ``node`` mean."""
        old = self.leases.get(node)
        if old is not None and incarnation < old.incarnation:
            return False
        same = old is not None and old.incarnation == incarnation
        was_renewed = same and old is not None and old.renewed
        if was_renewed and not renewed:
            return False  # a list repeats what the watch said before
        # The first list after an outage may repeat what is long dead, or not: give it one Lease's time to show.
        self.leases[node] = Lease(incarnation, now, renewed)
        return not same or renewed is not was_renewed

    def lease_until(self, eip: Eip, record: Record, now: float) -> float:
        if not self.configured:
            return now
        if not self.up:
            return FOREVER
        lease = self.leases.get(record.holder or "")
        if lease is None or lease.incarnation < record.incarnation:
            return eip.record_read_at + self._times.lease
        if lease.incarnation > record.incarnation:
            return now
        return lease.seen_at + self._times.lease

    def seen_renewed(self, record: Record, since: float = float("-inf")) -> bool:
        lease = self.leases.get(record.holder or "")
        return (
            lease is not None and lease.renewed and lease.seen_at >= since and lease.incarnation >= record.incarnation
        )

    def bound_until(self, eip: Eip, peer: Peer | None, now: float) -> float:
        """Until when the record keeps others from claiming (rule 12): ``now`` or earlier if it does not.

        ``peer``: its holder as heard on our link. Beyond the returned time only an event can change the answer.
        """
        record = eip.record
        if record is None or record.holder is None or record.holder == self._me:
            return now
        if peer is not None:
            if peer.incarnation > record.incarnation:
                return now
            if peer.is_alive(now, self._times) and peer.incarnation == record.incarnation:
                return self._bound_by_living(eip, record, peer, now)
            if self.once_held(eip, record, peer):
                return now
        return self.lease_until(eip, record, now)

    def _bound_by_living(self, eip: Eip, record: Record, peer: Peer, now: float) -> float:
        if peer.claims.get(eip.address, 0) >= record.term:
            return now if peer.draining else FOREVER
        if peer.quit.get(eip.address, 0) >= record.term:
            return now
        if not peer.is_heard(now, self._times):
            return self.lease_until(eip, record, now)  # alive by the word of others: its claim cannot reach us
        return eip.record_read_at + self._times.record_grace

    def once_held(self, eip: Eip, record: Record, peer: Peer) -> bool:
        """12c: "once heard" means heard holding this very term."""
        return peer.incarnation == record.incarnation and peer.held.get(eip.address, -1) >= record.term
