"""Loop: EndpointSlices of Services that are none of ours are not kept, and are asked for where such a Service becomes
ours.

As a rule nothing is asked for: a Service is there before its slices are.
"""

import asyncio
from collections.abc import Callable, Iterable

from speaker.api.endpoints import SERVICE_NAME
from speaker.api.kinds import AssignedObject, SliceObject, slices_in
from speaker.cluster.mirror.reflector import Reflector
from speaker.cluster.mirror.store import Change
from speaker.errors import EdgeError
from speaker.model import ServiceKey

MAX_NOTED = 100_000
"""Services of which it is noted that slices were passed over. Of more it is noted of all."""
MANY = 50
"""Services from which on everything is listed anew, rather than asked for one by one."""
PAUSE = 5.0
"""Seconds between two rounds: who makes a Service ours and somebody else's in turn has nobody ask all the time."""


class LateSlices:
    """``is_ours``: whether a Service is one that slices are kept of."""

    def __init__(self, is_ours: Callable[[ServiceKey], bool]) -> None:
        self._is_ours = is_ours
        self._noted: set[int] = set()
        """Hashes: of two Services that have the same one, slices are asked for in vain."""
        self._all_noted = False
        self._wanted: set[ServiceKey] = set()
        self._news = asyncio.Event()

    def keeps(self, found: SliceObject) -> bool:
        if self._is_ours(found.service_key):
            return True
        self._note(found.service_key)
        return False

    def follow(self, changes: Iterable[Change[AssignedObject]], slices: Reflector[SliceObject]) -> None:
        """Of the Services that are ours."""
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
        """What is passed over then is noted then."""
        self._wanted.clear()
        self._noted.clear()
        self._all_noted = False
        slices.list_again()

    def _note(self, service: ServiceKey) -> None:
        if len(self._noted) < MAX_NOTED:
            self._noted.add(hash(service))
        else:
            self._all_noted = True
