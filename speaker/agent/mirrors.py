"""Edge: what an agent hears from the API, besides what its reflectors keep.

``Delivery`` passes on what a mirror has heard. What runs into a bug of ours is passed on again later, and delays
nothing else. ``LateSlices`` fetches the EndpointSlices of a Service that becomes ours, because slices of other Services
are not kept; usually there are none yet. ``HostsAsked`` lists node addresses now and then instead of watching them: a
watch of what every node writes costs the square of their number.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from speaker.agent.session import ApiState
from speaker.api.endpoints import SERVICE_NAME
from speaker.api.kinds import NODES, AssignedObject, HostObject, SliceObject, slices_in
from speaker.api.objects import Key
from speaker.cluster.client import Client, listed
from speaker.cluster.feed import Change
from speaker.cluster.reflector import Deliver, Polled, Reflector
from speaker.errors import EdgeError
from speaker.model import ServiceKey
from speaker.system.supervise import Supervisor, contained
from speaker.system.waiting import Timer

AGAIN_SECONDS = 2.0
"""Seconds after which a failed delivery is repeated, as a mirror hears of each change only once."""

_T = TypeVar("_T", bound=Any)


class Delivery(Generic[_T]):
    """A ``Reflector``'s ``deliver``."""

    def __init__(self, deliver: Deliver[_T], supervisor: Supervisor) -> None:
        self._deliver, self._supervisor, self._again = deliver, supervisor, Timer(self._hand_on_again)
        self._undone: dict[Key, Change[_T]] = {}
        """The last change of each object that could not be handed on."""

    def __call__(self, changes: tuple[Change[_T], ...]) -> None:
        """First those that wait. For an object that has changed again, its latest state."""
        newer = {change.key for change in changes}
        whole = (*(change for key, change in self._undone.items() if key not in newer), *changes)
        self._undone = {}
        if self._handed_on(whole):
            return
        for change in whole:
            if not self._handed_on((change,)):
                self._undone[change.key] = change
        if self._undone and not self._again.pending:
            self._again.set(AGAIN_SECONDS)

    def _hand_on_again(self) -> None:
        if self._undone:
            self(())

    def _handed_on(self, changes: tuple[Change[_T], ...]) -> bool:
        with contained("mirror", self._supervisor):
            self._deliver(changes)
            return True
        return False


# ── EndpointSlices that matter only later ───────────────────────────────────────────────────────────────────

MAX_NOTED = 100_000
"""Up to so many Services, it is noted which had slices passed over; beyond that, all count as noted."""
MANY = 50
"""From so many Services on, everything is listed again instead of asking for each."""
PAUSE = 5.0
"""Seconds between two rounds, so that somebody who makes a Service ours and not ours in turn does not cause constant
requests."""


class LateSlices:
    """``is_ours``: whether slices of a Service are kept."""

    def __init__(self, is_ours: Callable[[ServiceKey], bool]) -> None:
        self._is_ours = is_ours
        self._noted: set[int] = set()
        """Hashes. If two Services have the same one, slices are requested in vain."""
        self._all_noted = False
        self._wanted: set[ServiceKey] = set()
        self._news = asyncio.Event()

    def keeps(self, found: SliceObject) -> bool:
        if self._is_ours(found.service_key):
            return True
        self._note(found.service_key)
        return False

    def follow(self, changes: Iterable[Change[AssignedObject]], slices: Reflector[SliceObject]) -> None:
        """Follows the Services that are ours."""
        for change in changes:
            service = ServiceKey(change.key.namespace, change.key.name)
            if change.after is None:
                self._wanted.discard(service)
                if left := [found.key for found in slices.store.by("service", service)]:
                    self._note(service)
                    slices.drop(left)
            elif change.before is None and (self._all_noted or hash(service) in self._noted):
                self._wanted.add(service)
                self._news.set()

    async def run(self, slices: Reflector[SliceObject], told: Callable[[EdgeError | None], None]) -> None:
        """Endless."""
        while True:
            await self._news.wait()
            self._news.clear()
            if len(self._wanted) > MANY:
                self._list_all(slices)
            for service in tuple(self._wanted):
                await self._ask(service, slices, told)
            await asyncio.sleep(PAUSE)
            if self._wanted:
                self._news.set()

    async def _ask(
        self, service: ServiceKey, slices: Reflector[SliceObject], told: Callable[[EdgeError | None], None]
    ) -> None:
        try:
            if await slices.fetch(slices_in(service.namespace), f"{SERVICE_NAME}={service.name}"):
                self._wanted.discard(service)
            told(None)
        except EdgeError as error:
            told(error)

    def _list_all(self, slices: Reflector[SliceObject]) -> None:
        """Slices passed over in this list are noted again."""
        self._wanted.clear()
        self._noted.clear()
        self._all_noted = False
        slices.list_again()

    def _note(self, service: ServiceKey) -> None:
        if len(self._noted) < MAX_NOTED:
            self._noted.add(hash(service))
        else:
            self._all_noted = True


# ── Node addresses ──────────────────────────────────────────────────────────────────────────────────────────

HOSTS_SECONDS = 300.0
"""How often the addresses of the cluster's nodes are requested. They change when a machine joins, and an EIP cannot
conflict with it before its hellos arrive."""
ASK_AGAIN = 5.0
"""Seconds after a request without an answer."""


class HostsAsked:
    """The addresses of the cluster's nodes. ``deliver`` hears what has changed since the last time, None for what is
    gone. ``api`` hears of failures, and of removals that wait for another list ``settle`` seconds later."""

    def __init__(
        self,
        client: Client,
        deliver: Callable[[Mapping[Key, HostObject | None]], None],
        api: ApiState,
        settle: float = 0.0,
    ) -> None:
        self._client, self._deliver, self._told = client, deliver, api.tells("nodes")
        self._polled: Polled[Key, HostObject] = Polled("node addresses", settle, api)
        self.known: Mapping[Key, HostObject] | None = None
        """None: nothing yet."""

    async def run(self) -> None:
        """Endless."""
        while True:
            answered = await self._ask()
            again = min(HOSTS_SECONDS, max(0.0, self._polled.due - _now()))
            await asyncio.sleep(again if answered else ASK_AGAIN)

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
