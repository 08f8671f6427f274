"""What one link answers for, and until when. Pure: the owner says what time it is.

Plain mutable state, read once per packet. The owner (``LinkSpeaker``) adds, removes and moves the deadline;
``answer`` only reads.
"""

from speaker.layer2 import arp, ndp
from speaker.layer2.ndp import AdvertisementPart
from speaker.model import Mac


class Claims:
    """The EIPs this link's ``mac`` answers for.

    ``deadline``, seconds of the clock that ``now`` is read from (CLOCK_BOOTTIME), is one for the whole speaker: from
    that instant on nothing is answered or announced until the owner moves it. It starts in the past.
    Addresses are as they stand in packets, 4 or 16 bytes; ``arp`` and ``ndp`` map them to the ready part of a reply.
    """

    __slots__ = ("arp", "deadline", "mac", "ndp")

    def __init__(self, mac: Mac) -> None:
        self.mac = mac
        self.deadline = float("-inf")
        self.arp: dict[bytes, bytes] = {}
        self.ndp: dict[bytes, AdvertisementPart] = {}

    def add(self, address: bytes) -> None:
        if len(address) == 4:
            self.arp[address] = arp.reply_part(self.mac, address)
        else:
            self.ndp[address] = ndp.advertisement_part(self.mac, address)

    def discard(self, address: bytes) -> None:
        (self.arp if len(address) == 4 else self.ndp).pop(address, None)

    def clear(self) -> None:
        self.arp.clear()
        self.ndp.clear()

    def expired(self, now: float) -> bool:
        return now >= self.deadline

    def __len__(self) -> int:
        return len(self.arp) + len(self.ndp)
