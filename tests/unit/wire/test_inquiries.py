"""What the owner asks of a LAN that cannot be asked."""

import asyncio
from ipaddress import ip_address

from speaker.model import Link, Mac
from speaker.model.events import EdgeFailed, EdgeRecovered
from speaker.ownership.events import Ask
from speaker.wire.inquiries import EDGE, OVER_SECONDS, Inquiries

GONE = Link(7777, "eth0", Mac(b"\x02\0\0\0\0\x01"))
EIP = ip_address("192.0.2.10")


def test_a_link_that_could_not_be_asked_is_no_problem_any_more_once_nobody_asks_it(virtually, parts):
    async def story():
        inquiries, asked = Inquiries(parts.events, parts.events), Ask(GONE.index, (EIP,), (), anybody=False)
        for _ in range(3):
            inquiries.ask(GONE, (), asked, {})
            await asyncio.sleep(OVER_SECONDS / 2)
        (failed,) = parts.events.take()
        assert isinstance(failed, EdgeFailed)
        assert failed.edge == EDGE
        await asyncio.sleep(OVER_SECONDS)
        assert parts.events.take() == [EdgeRecovered(EDGE)]
        inquiries.ask(GONE, (), asked, {})
        assert parts.events.of(EdgeFailed)

    virtually(story)
