"""What layer 2 reports. ``wire/sender.py`` hands it on to the main process; this package knows no metrics library."""

from typing import Protocol

from speaker.layer2.answer import Ignored
from speaker.model import Family, IPAddress, Link, Mac
from speaker.system.supervise import Supervisor


class Observer(Supervisor, Protocol):
    """Called at most a few times per batch of packets, from the event loop: must be quick and must not raise."""

    def answered(self, family: Family, count: int) -> None:
        """Replies handed to the link."""

    def ignored(self, family: Family, reason: Ignored, count: int) -> None:
        """Packets that got no answer."""

    def announced(self, family: Family, count: int) -> None:
        """Gratuitous ARP packets or unsolicited advertisements handed to the link; an IPv4 EIP takes two a time."""

    def send_failed(self, family: Family, count: int) -> None:
        """Replies or announcements the link had no room for."""

    def join_failed(self, error: Exception) -> None:
        """The link refused a solicited-node group: EIPs in it are solicited in vain."""

    def conflict(self, link: Link, address: IPAddress, mac: Mac, held: bool) -> None:
        """A stranger says that an EIP of ours is its own: one that we answer for and go on to (``held``), or one that
        we probe for and do not answer as long as the stranger does. At most once in ten seconds for each EIP, however
        much it sends; ``ignored`` counts every packet."""
