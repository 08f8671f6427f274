"""The controller's work while it leads: mirrors of the API, one decision at a time, and the desk that writes it down.

Everything begins anew with every leadership, the mirrors too: what another leader wrote last must have been read before
an address is given to anybody, and only a list that was asked for now is sure to hold it.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from speaker.cluster.client import Client
from speaker.cluster.elector import Leadership
from speaker.cluster.kinds import EipObject, ServiceObject
from speaker.cluster.lease import Election, boottime
from speaker.cluster.objects import Object
from speaker.cluster.reflector import Patience, Reflector, Resource
from speaker.controller.decider import ControllerSettings, Decider
from speaker.controller.desk import Desk
from speaker.controller.wanted import EIPS
from speaker.errors import EdgeError


class Leader:
    """``await election.lead(Leader(client, election, settings, told).work)``; ``told`` hears of failures, by what
    failed."""

    def __init__(
        self,
        client: Client,
        election: Election,
        settings: ControllerSettings,
        told: Callable[[str, EdgeError], None],
        patience: Patience,
    ) -> None:
        self._client, self._election, self._settings = client, election, settings
        self._told, self._patience = told, patience

    async def work(self, _: Leadership) -> None:
        """Endless."""
        changed = asyncio.Event()
        desk = Desk(self._client, self._election.fence, self._told)
        services = self._mirror("/api/v1/services", ServiceObject, changed)
        eips = self._mirror(EIPS, EipObject, changed)
        namespaces = self._mirror("/api/v1/namespaces", Object, changed)
        mirrors: tuple[Reflector[Any], ...] = (services, eips, namespaces)
        decider = Decider(self._settings)
        async with asyncio.TaskGroup() as tasks:
            for mirror in mirrors:
                tasks.create_task(mirror.run(), name=f"mirror {mirror.resource.path}")
            tasks.create_task(desk.run(), name="desk")
            while True:
                await changed.wait()
                changed.clear()
                if all(mirror.synced for mirror in mirrors):
                    # Copied here, as the mirrors go on; decided in a thread, as 10,000 Services take their time.
                    seen = tuple(services.store), tuple(eips.store), tuple(namespaces.store)
                    begun = boottime()
                    desk.want(await asyncio.to_thread(decider.decide, *seen, begun, _wall_clock()))
                    # Half the time for the others: each write comes back as a change, many at once.
                    await asyncio.sleep(boottime() - begun)

    def _mirror(self, path: str, kind: type[Any], changed: asyncio.Event) -> Reflector[Any]:
        return Reflector(
            self._client,
            Resource(path),
            kind,
            lambda _: changed.set(),
            patience=self._patience,
            told=lambda error: self._told(path, error),
        )


def _wall_clock() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
