"""Edge: what an agent asks the API for now and then instead of watching it. A watch of what every node writes would
bring the square of their number.
"""

import asyncio
from collections.abc import Callable, Mapping

from speaker.api.kinds import NODES, HostObject
from speaker.api.objects import Key
from speaker.cluster.mirror.polled import Polled
from speaker.cluster.transport.client import Client
from speaker.cluster.transport.pages import listed
from speaker.errors import EdgeError
from speaker.removals import Doubt

HOSTS_SECONDS = 300.0
"""How often the addresses of the cluster's nodes are asked for. They change when a machine joins, and no sooner than
its hellos does an EIP meet it."""
AGAIN_SECONDS = 5.0
"""After an answer that did not come."""


class HostsAsked:
    """The addresses of the cluster's nodes. ``deliver`` hears what is another than the last time, None for what is
    gone; ``told`` of failures, and None when they are over; ``doubted`` what of which resource waits for another list,
    ``settle`` seconds later."""

    def __init__(
        self,
        client: Client,
        deliver: Callable[[Mapping[Key, HostObject | None]], None],
        told: Callable[[EdgeError | None], None],
        settle: float = 0.0,
        doubted: Callable[[str, Doubt | None], None] = lambda *_: None,
    ) -> None:
        self._client, self._deliver, self._told = client, deliver, told
        self._polled: Polled[Key, HostObject] = Polled("node addresses", settle, doubted)
        self.known: Mapping[Key, HostObject] | None = None
        """None: nothing yet."""

    async def run(self) -> None:
        """Endless."""
        while True:
            answered = await self._ask()
            again = min(HOSTS_SECONDS, max(0.0, self._polled.due - _now()))
            await asyncio.sleep(again if answered else AGAIN_SECONDS)

    async def _ask(self) -> bool:
        begun = _now()
        try:
            answer = {each.key: each for each in await listed(self._polled.via(self._client), NODES, HostObject)}
        except EdgeError as error:
            self._told(error)
            return False
        self._told(None)
        before, first = self.known or {}, self.known is None
        self._polled.hear(answer, begun)
        self.known = found = self._polled.known
        news: dict[Key, HostObject | None] = dict.fromkeys(before.keys() - found.keys())
        news |= {key: each for key, each in found.items() if key not in before or before[key].status != each.status}
        if news or first:
            self._deliver(news)
        return True


def _now() -> float:
    return asyncio.get_running_loop().time()
