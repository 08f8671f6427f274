"""What one link answers for, and until when. Pure: the owner says what time it is.

Plain mutable state, read once per packet. The owner (``LinkResponder``) adds, removes and moves the deadline;
``answer`` only reads.
"""

from speaker.model import Mac
from speaker.packets import arp, ndp
from speaker.packets.ndp import AdvertisementPart


class Claims:
    """The EIPs this link's ``mac`` answers for, and those it is about to.

    ``deadline``, seconds of the clock that ``now`` is read from (CLOCK_BOOTTIME), is one for all of them: from that
    instant on nothing is answered or announced until the owner moves it. It starts in the past. ``peers`` are the MACs
    of other speakers, who may hold our EIPs in turn.
    Addresses are as they stand in packets, 4 or 16 bytes; ``arp`` and ``ndp`` map them to the ready part of a reply, or
    to None as long as an address is only watched: not answered, but whoever claims it is reported.
    """

    __slots__ = ("arp", "deadline", "mac", "ndp", "peers")

    def __init__(self, mac: Mac) -> None:
        self.mac = mac
        self.deadline = float("-inf")
        self.peers: frozenset[Mac] = frozenset()
        self.arp: dict[bytes, bytes | None] = {}
        self.ndp: dict[bytes, AdvertisementPart | None] = {}

    def add(self, address: bytes) -> None:
        """Answer for it."""
        if len(address) == 4:
            self.arp[address] = arp.reply_part(self.mac, address)
        else:
            self.ndp[address] = ndp.advertisement_part(self.mac, address)

    def watch(self, address: bytes) -> None:
        """Do not answer for it, but see who else does."""
        if len(address) == 4:
            self.arp[address] = None
        else:
            self.ndp[address] = None

    def discard(self, address: bytes) -> None:
        (self.arp if len(address) == 4 else self.ndp).pop(address, None)

    def clear(self) -> None:
        self.arp.clear()
        self.ndp.clear()

    def answered(self, address: bytes) -> bool:
        part = self.arp.get(address) if len(address) == 4 else self.ndp.get(address)
        return part is not None

    def expired(self, now: float) -> bool:
        return now >= self.deadline

    def __contains__(self, address: bytes) -> bool:
        return address in self.arp or address in self.ndp

    def __len__(self) -> int:
        return len(self.arp) + len(self.ndp)
