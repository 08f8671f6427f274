"""A Service whose forwarding is refused does not affect the others: a plan that is refused as a whole is tried in
parts.

This is between ``node/host.py`` and the forwarder, which with IPVS is ``forwarding/ipvs/forwarder.py``.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping

from speaker.errors import EdgeError, NotDone
from speaker.forwarding.changes import Change, Part, address_of, part_of
from speaker.forwarding.forwarder import Forwarder
from speaker.forwarding.plan import Plan, label
from speaker.model import IPAddress
from speaker.system.supervise import Supervisor

BARREN = 64
"""After so many refused tries in a row, the fault is not in the parts but in the kernel. What exists already is tried
first."""
HANGS = 4
"""The same for tries in which a program hung, a minute each: the next request waits meanwhile."""


class Isolating:
    """Sets aside the parts of a plan that ``inner`` refuses, leaving them as they were, and applies the rest. All other
    requests go to ``inner``.

    A part that was set aside is tried again with the next plan, which ``node/host.py`` ensures to come. If nothing of a
    plan is accepted, not even what exists already, ``apply`` raises like ``inner``. ``supervisor`` hears of what
    ``inner`` raises, except EdgeErrors.
    """

    def __init__(self, inner: Forwarder, supervisor: Supervisor) -> None:
        self.inner, self._supervisor = inner, supervisor
        self._good: Plan | None = None
        """What was last accepted."""
        self.refused: Mapping[Part, str] = {}
        """Parts of the last plan that were set aside, and why."""

    async def apply(self, plan: Plan) -> tuple[Change, ...]:
        try:
            changes = await self._apply(plan)
        except EdgeError as error:
            changes = await self._in_parts(plan, error)
        else:
            self._good, self.refused = plan, {}
        return changes

    def unserved(self, plan: Plan) -> frozenset[IPAddress]:
        """EIPs of ``plan``, the last one, for which nothing that was asked for is in place, since it was refused."""
        if not self.refused or self._good is None:
            return frozenset()
        refused = {address_of(part) for part in self.refused}
        standing = {key[0] for key in self._good.virtual_servers}
        return frozenset(eip for eip in refused if eip not in standing or eip not in self._good.eips)

    def set_aside(self, unserved: Collection[IPAddress]) -> Iterator[str]:
        """A sentence for each part that is set aside; ``unserved`` as above."""
        for part, words in self.refused.items():
            unanswered = address_of(part) in unserved
            fate = "the EIP is not answered for here" if unanswered else "it stays as it was"
            yield f"{name_of(part)} is set aside: {words}: {fate}"

    async def _apply(self, plan: Plan) -> tuple[Change, ...]:
        """Raises only EdgeError."""
        try:
            return await self.inner.apply(plan)
        except EdgeError:
            raise
        except Exception as error:
            self._supervisor.internal_error("apply", error)
            raise EdgeError(f"internal error: {type(error).__name__}: {error}") from error

    async def _in_parts(self, plan: Plan, error: EdgeError) -> tuple[Change, ...]:
        good = await self._standing(plan)
        try:
            changes = [*await self._apply(good)]
        except EdgeError:
            raise error from None  # not even what exists already is accepted
        refused: dict[Part, str] = {}
        waiting, barren, failed = deque([differing(good, plan)]), 0, False
        while waiting:
            if barren >= BARREN:
                raise error
            some = waiting.popleft()
            try:
                tried = mixed(good, plan, some)
                changes += await self._apply(tried)
            except EdgeError as why:
                barren, failed = barren + (BARREN // HANGS if isinstance(why, NotDone) else 1), True
                if len(some) == 1:
                    refused[some[0]] = str(why)
                else:
                    half = len(some) // 2
                    waiting.extend((some[:half], some[half:]))
            else:
                good, barren, failed = tried, 0, False
        if failed:  # what was asked for last is maintained
            changes += await self._apply(good)
        self._good, self.refused = good, refused
        return tuple(changes)

    async def _standing(self, plan: Plan) -> Plan:
        """What was last accepted; in a speaker that just started, the part of ``plan`` that the kernel already has."""
        if self._good is not None:
            return self._good
        changed = {part_of(change) for change in await self.inner.pending(plan)}
        missing = changed | {address_of(part) for part in changed}
        return Plan(
            frozenset(eip for eip in plan.eips if eip not in missing),
            {key: server for key, server in plan.virtual_servers.items() if key[0] not in missing},
        )


def differing(good: Plan, want: Plan) -> list[Part]:
    """The parts that differ, including EIPs that go or have no virtual server."""
    keys = good.virtual_servers.keys() | want.virtual_servers.keys()
    parts: list[Part] = [key for key in keys if good.virtual_servers.get(key) != want.virtual_servers.get(key)]
    named = {address_of(part) for part in parts}
    return [*parts, *((good.eips ^ want.eips) - named)]


def mixed(good: Plan, want: Plan, parts: Collection[Part]) -> Plan:
    """``good``, except for ``parts``, which are as in ``want``. An EIP is in it if any of its virtual servers is."""
    servers = dict(good.virtual_servers)
    for part in parts:
        if isinstance(part, tuple):
            if (server := want.virtual_servers.get(part)) is None:
                servers.pop(part, None)
            else:
                servers[part] = server
    touched = {address_of(part) for part in parts}
    served = {key[0] for key in servers}
    kept = good.eips - (touched - want.eips)
    return Plan(frozenset(kept | (touched & want.eips) | (served & (good.eips | want.eips))), servers)


def name_of(part: Part) -> str:
    """The name shown to people."""
    return label(part) if isinstance(part, tuple) else f"EIP {part}"
