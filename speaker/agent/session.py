"""Edge: our session Lease, which says that this life of the node lives. Only we may write it (agent-admission.yaml).

No election: the Lease is named for the node, and a new life takes it from the one before without asking. So renewals
are blind patches; whom to believe, if two write it at once, others know by the incarnation in it.
"""

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from speaker.agent.record import identity
from speaker.cluster.client import Client
from speaker.cluster.objects import UNFIT, Metadata
from speaker.errors import ApiRefused, EdgeError
from speaker.ownership.hello import Incarnation
from speaker.waiting import set_within

LATE = 2.0
"""Seconds for which an answer is waited for that is too late already: to hang up costs a handshake each time."""


class _Answer(msgspec.Struct, frozen=True):
    metadata: Metadata


class Session:
    """``renewed`` hears the Lease's version after each success; ``failed`` of each failure, and whether there was no
    answer at all: one that is later than ``deadline`` seconds is a failure at once, and not yet that. ``told`` hears
    why, or None when it is over."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        node: str,
        *,
        duration: float,
        renew: float,
        deadline: float,
        renewed: Callable[[int], None],
        failed: Callable[[bool], None],
        told: Callable[[EdgeError | None], None],
    ) -> None:
        self._client, self._node = client, node
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._duration, self._renew, self._deadline = duration, renew, deadline
        self._renewed, self._failed, self._told = renewed, failed, told
        self.owner = ""
        """The uid of our Node: once it is deleted, the garbage collector deletes the Lease."""
        self._life: Incarnation | None = None
        self._born = asyncio.Event()

    def live(self, life: Incarnation | None) -> None:
        """From now on it is this one's; written at once. None: another host has our name, and renews it for itself."""
        self._life = life
        self._born.set()

    async def run(self) -> None:
        """Endless."""
        while True:
            self._born.clear()
            if self._life is None:
                await self._born.wait()
                continue
            succeeded = await self._beat(self._life)
            # Half the time after a failure, as the model has it; and not all nodes together when the API is back.
            pause = self._renew if succeeded else self._renew / 2 * random.uniform(0.5, 1)  # noqa: S311
            await set_within(self._born, pause)

    async def _beat(self, life: Incarnation) -> bool:
        writing = asyncio.create_task(self._write(life), name="renewal")
        try:
            done, _ = await asyncio.wait((writing,), timeout=self._deadline)
            if not done:
                self._failed(False)
                self._told(EdgeError(f"{self._node}: the session Lease took longer than {self._deadline:g} s"))
                await writing
                return False
            self._renewed(writing.result())
        except EdgeError as error:
            self._failed(not isinstance(error, ApiRefused))
            self._told(error)
            return False
        finally:
            writing.cancel()
        self._told(None)
        return True

    async def _write(self, life: Incarnation) -> int:
        spec = {
            "holderIdentity": identity(self._node, life),
            "leaseDurationSeconds": round(self._duration),
            "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        metadata: dict[str, Any] = {"name": self._node}
        if self.owner:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self.owner}
            metadata["ownerReferences"] = [owner]
        body = {"metadata": metadata, "spec": spec}
        try:
            answer = await self._client.patch(f"{self._collection}/{self._node}", body, within=LATE)
        except ApiRefused as error:
            if error.code != 404:
                raise
            answer = await self._client.create(self._collection, body, within=LATE)
        try:
            return int(msgspec.json.decode(answer, type=_Answer).metadata.resource_version)
        except (*UNFIT, ValueError) as error:
            raise EdgeError(f"{self._collection}/{self._node}: no Lease: {error}") from error
