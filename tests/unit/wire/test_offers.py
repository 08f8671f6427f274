"""What this node may hold is told again in a task of its own, beside those that answer: no bug in it may end them."""

import asyncio
from ipaddress import ip_address

from speaker.model import Gratuitous, Link, Mac, Placement
from speaker.ownership.events import EligibilityChanged
from speaker.wire.shared import SharedOwner

ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))
EIPS = [ip_address(f"192.0.2.{number}") for number in (1, 2, 3)]


def test_a_bug_in_one_eip_ends_nothing_else_and_is_told(virtually, parts):
    class Owner(SharedOwner):
        def _offer(self, address):
            if address == EIPS[1] and self._demoted:
                raise TypeError("a bug")
            super()._offer(address)

    async def story():
        async with Owner(parts.machine, parts.sockets, parts.clock, parts.events, parts.links) as owner:
            owner.use_links((ETH0,), frozenset())
            owner.offer({eip: Placement(ETH0, Gratuitous()) for eip in EIPS})
            parts.machine.take()
            owner.demote(True)
            await asyncio.sleep(0.01)
            told = [event for event in parts.machine.take() if isinstance(event, EligibilityChanged)]
            assert [(event.eip, event.demoted) for event in told] == [(EIPS[0], True), (EIPS[2], True)]
            bugs = [(task, str(error)) for _, task, error in parts.events.of("internal_error")]
            assert bugs == [("offer again", "a bug")]
            assert owner.hello_links, "hellos go on"

    virtually(story)
