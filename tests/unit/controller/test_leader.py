"""What a leader decides in a thread, and who asks meanwhile."""

import asyncio
import threading

from speaker.controller.decider import News
from speaker.controller.leader import Deciding


class Slow:
    """A decider that is in the middle of it until it may go on."""

    def __init__(self):
        self.begun, self.may_go_on, self.busy, self.found_busy = threading.Event(), threading.Event(), False, []

    def decide(self, news, now, at):
        self.busy = True
        self.begun.set()
        self.may_go_on.wait()
        self.busy = False
        return {at: None}

    def users(self, names):
        self.found_busy.append(self.busy)
        return {}


def test_who_asks_for_the_users_of_an_eip_waits_until_all_is_decided():
    async def story(slow):
        deciding = Deciding(slow)

        async def ask():
            async with deciding.done() as done:
                done.users(("192.0.2.1",))

        decides = asyncio.create_task(deciding.decide(News(), 1.0, "now"))
        await asyncio.to_thread(slow.begun.wait)
        asks = asyncio.create_task(ask())
        await asyncio.sleep(0)
        slow.may_go_on.set()
        await asks
        return await decides

    slow = Slow()
    assert asyncio.run(story(slow)) == {"now": None}
    assert slow.found_busy == [False]
