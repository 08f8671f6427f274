"""A link that fails is tried again, whatever becomes of telling that."""

import asyncio

from link_owner import LinkOwner

from speaker.layer2.link import LinkResponder
from speaker.model import Link, Mac

NOWHERE = Link(2**31 - 1, "eth9", Mac(b"\x02\0\0\0\0\x01"))
"""There is no such link, and where we may not ask for one it fails as well."""
TRIES = 3


class Bugs(list):
    def internal_error(self, task, error):
        self.append((task, str(error)))


def test_a_bug_in_telling_that_a_link_is_lost_ends_no_other_link():
    async def story():
        bugs, tried, enough = Bugs(), [], asyncio.Event()

        def lost(link, error):
            tried.append(link)
            if len(tried) == TRIES:
                enough.set()
            raise TypeError("a bug")

        responder = LinkResponder(NOWHERE, bugs, LinkOwner(lost=lost, clock=lambda: 0.0))
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            other = tasks.create_task(enough.wait())
            responder.start(tasks)
            await enough.wait()
            responder.stop()
        assert not other.cancelled()
        return bugs

    assert asyncio.run(story())[:TRIES] == [("link", "a bug")] * TRIES
