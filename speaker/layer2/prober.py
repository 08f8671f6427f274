"""The loop that looks for somebody else before an EIP's first answer."""

import asyncio
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address

from speaker.layer2.holdings import Holdings
from speaker.layer2.observer import Observer
from speaker.layer2.sockets.frame_sender import Frame, FrameSender
from speaker.layer2.wakeup import Wakeup
from speaker.model import Family, IPAddress
from speaker.model.events import SendFailures
from speaker.packets import ndp
from speaker.packets.asking import question

EIPS_A_SLICE = 128
"""A millisecond of building and sending."""
_NOBODY = IPv4Address(0), IPv6Address(0)
"""From whom nobody's cache learns (RFC 5227 §2.1.1, RFC 4862 §5.4.2)."""


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
        """Of this host on this link: asked from as well, as MetalLB answers nobody (internal/layer2/ndp.go)."""

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
        for source in (*_NOBODY, self.own):
            if source is not None:
                asked = [one for one in addresses if len(one) == len(source.packed)]
                await self._hand_over(Family.of(source), [(one, self._question(source, one)) for one in asked])

    def _question(self, source: IPAddress, address: bytes) -> bytes:
        frame = question(self._claims.mac, source, ip_address(address))
        # Without a link-layer option (duplicate address detection has none) a frame is 78 bytes, but we send only 86.
        return frame if source.version == 4 else frame.ljust(ndp.ADVERTISEMENT_LENGTH, b"\0")

    async def _hand_over(self, family: Family, frames: list[Frame]) -> None:
        probes = self._holdings.probes
        _, left = await self._sender.send(family, frames, probes.__contains__, self.wakeup.turn)
        if left:  # silence proves nothing where nobody was asked
            self._observer.count(SendFailures(family), len(left))
            for address, _ in left:
                probes.begin(address, self._clock())
