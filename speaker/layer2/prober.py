"""The loop that looks for somebody else before an EIP's first answer."""

import asyncio
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

from speaker.layer2.holdings import Holdings
from speaker.layer2.observer import Observer
from speaker.layer2.sockets.frame_sender import Frame, FrameSender
from speaker.layer2.wakeup import Wakeup
from speaker.model import Family
from speaker.model.events import SendFailures
from speaker.packets import arp, ndp

EIPS_A_SLICE = 128
"""A millisecond of building and sending."""
_NOBODY = IPv6Address(0)


class Prober:
    """Sends what the ``probes`` of ``holdings`` say is due, as long as the claims' deadline lies ahead. EIPs for which
    nobody answered are ``proven`` to them; ``announce`` is called then."""

    def __init__(
        self,
        sender: FrameSender,
        holdings: Holdings,
        announce: Callable[[], None],
        clock: Callable[[], float],
        observer: Observer,
    ) -> None:
        self._sender, self._holdings, self._claims, self._announce = sender, holdings, holdings.claims, announce
        self._clock, self._observer = clock, observer
        self.wakeup = Wakeup(clock)
        self.own: IPv6Address | None = None
        """Of this host on this link."""

    def changed(self) -> None:
        """The probes or the deadline are not what they were: look again."""
        self.wakeup.cut()

    async def serve(self) -> None:
        """Until cancelled; raises EdgeError when the link goes away."""
        while True:
            now = self._clock()
            if self._claims.expired(now):
                await self.wakeup.until(None)
                continue
            step = self._holdings.probes.due(now, EIPS_A_SLICE)
            if step.free:
                self._holdings.proven(step.free, self._clock())
                self._announce()
            if step.ask:
                await self._ask(step.ask)
            if step.ask or step.free:
                self.wakeup.turn()
                await asyncio.sleep(0)
            else:
                await self.wakeup.until(self._holdings.probes.wake())

    async def _ask(self, addresses: list[bytes]) -> None:
        mac = self._claims.mac
        fours = [(one, arp.probe(mac, IPv4Address(one)).pack()) for one in addresses if len(one) == 4]
        sixes = [(one, ndp.solicitation(mac, _NOBODY, IPv6Address(one)).pack()) for one in addresses if len(one) == 16]
        await self._hand_over(Family.IPV4, fours)
        # Without a link-layer option (duplicate address detection has none) a frame is 78 bytes, but we send only 86.
        await self._hand_over(
            Family.IPV6, [(one, frame.ljust(ndp.ADVERTISEMENT_LENGTH, b"\0")) for one, frame in sixes]
        )
        if (own := self.own) is not None:  # MetalLB answers nobody's question (internal/layer2/ndp.go)
            asked = [(one, ndp.solicitation(mac, own, IPv6Address(one)).pack()) for one, _ in sixes]
            await self._hand_over(Family.IPV6, asked)

    async def _hand_over(self, family: Family, frames: list[Frame]) -> None:
        probes = self._holdings.probes
        _, left = await self._sender.send(family, frames, probes.__contains__, self.wakeup.turn)
        if left:  # silence proves nothing where nobody was asked
            self._observer.count(SendFailures(family), len(left))
            for address, _ in left:
                probes.begin(address, self._clock())
