"""What this node may hold is told anew in a task of its own, beside those that answer: no bug in it may end them."""

import asyncio
from ipaddress import ip_address

from speaker.model import Gratuitous, Link, Mac, Placement
from speaker.wire.sharing.offers import Offers

ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))
EIPS = [ip_address(f"192.0.2.{number}") for number in (1, 2, 3)]


class Told(list):
    """A machine that meets a bug in the second EIP, and who hears of it."""

    def __init__(self):
        super().__init__()
        self.bugs = []

    def tell(self, event):
        if event.eip == EIPS[1] and event.demoted:
            raise TypeError("a bug")
        self.append((event.eip, event.demoted))

    def internal_error(self, task, error):
        self.bugs.append((task, str(error)))


def test_a_bug_in_one_eip_ends_nothing_else_and_is_told():
    async def story():
        told = Told()
        async with asyncio.TaskGroup() as tasks:
            answering = tasks.create_task(asyncio.sleep(0.01))
            offers = Offers(told.tell, lambda: False, lambda: {ETH0.index}, tasks, told)
            offers.add({eip: Placement(ETH0, Gratuitous()) for eip in EIPS})
            offers.demote(True)
        assert not answering.cancelled()
        return told

    told = asyncio.run(story())
    assert told[len(EIPS) :] == [(EIPS[0], True), (EIPS[2], True)]
    assert told.bugs == [("offer again", "a bug")]
