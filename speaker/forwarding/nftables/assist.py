"""``assist`` in the kernel: the table ``inet eip-speaker-assist``, or a group's, which exists only while needed. An
edge.

``Assisted`` (``forwarding/changes.py``) says what has to be in it.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from speaker.checks import Finding, said
from speaker.errors import EdgeError
from speaker.forwarding.changes import Change, diff, part_of, stays
from speaker.forwarding.nftables import nft
from speaker.forwarding.nftables.forwarder import EVERYTHING, forget, must_support
from speaker.forwarding.nftables.ruleset import assist_ruleset, expressible, rebuild_script
from speaker.forwarding.nftables.skeletons import ASSIST_TABLE
from speaker.forwarding.plan import EMPTY, UNKNOWN, Plan, Traffic
from speaker.model import NO_GROUP, Group
from speaker.system.threads import in_thread

RENEW = 10.0
"""Seconds after which the table is made anew: its elements last three times as long (``skeletons.ASSIST``)."""
FORGET = 1.0
"""Seconds that may be spent on connections that still wait for a dead endpoint: a new Service waits meanwhile."""


class AssistForwarder:
    """Satisfies ``forwarder.Forwarder``. A kernel that refuses it keeps no EIP from being served: kube-proxy does."""

    name = "assist"

    def __init__(self, clock: Callable[[], float] = time.monotonic, group: Group = NO_GROUP) -> None:
        self._clock, self._table = clock, group.table(ASSIST_TABLE)
        self._turn = asyncio.Lock()
        self._asked = EMPTY
        self._made: Plan | None = None
        """None: whatever an earlier speaker has left."""
        self._renew_at = 0.0
        self._refused: tuple[Finding, ...] = ()

    async def apply(self, plan: Plan) -> tuple[Change, ...]:
        self._asked = plan
        try:
            return await self.tend()
        except EdgeError:  # told as a problem, and tried again by who tends
            return ()

    async def tend(self) -> tuple[Change, ...]:
        async with self._turn:
            want, now = expressible(self._asked), self._clock()
            if want == self._made and not (want.virtual_servers and now >= self._renew_at):
                return ()
            try:
                await self._bring_to(want)
            except EdgeError as error:
                words = f"cannot keep new connections away from a dead node's endpoints: {error}"
                self._refused = said("edge_fails", [words], "nft list tables")
                raise
            changes, self._made = diff(self._made or EMPTY, want), want
            self._renew_at, self._refused = now + RENEW, ()
            await self._forget(changes, want)
            return changes

    async def _bring_to(self, want: Plan) -> None:
        if want.virtual_servers:
            rules = replace(assist_ruleset(want), table=self._table)
            await nft.run(await in_thread(rebuild_script, rules))
        elif nft.stamp(self._table).table is not None:
            await nft.run(f"delete table inet {self._table}\n")

    async def _forget(self, changes: Iterable[Change], plan: Plan) -> None:
        """Best effort: what is left ends as it would without us."""
        keys = {key for change in changes if isinstance(key := part_of(change), tuple) and key in plan.virtual_servers}
        otherwise = "connections that wait for a dead node's endpoints keep waiting"
        self._refused = await forget(keys, plan, otherwise, keeps=stays, within=FORGET)

    async def pending(self, plan: Plan) -> tuple[Change, ...]:
        return diff(self._made or EMPTY, expressible(plan))

    def approximations(self, plan: Plan) -> tuple[str, ...]:
        return ()

    async def problems(self) -> tuple[Finding, ...]:
        return self._refused

    def traffic(self, *, real_servers: bool) -> Traffic:
        return UNKNOWN

    async def cleanup(self) -> tuple[str, ...]:
        async with self._turn:
            self._asked, self._made = EMPTY, EMPTY
            if nft.stamp(self._table).table is None:
                return ()
            await self._bring_to(EMPTY)
            return (f"nftables table inet {self._table}",)


async def open_assist(group: Group = NO_GROUP) -> AssistForwarder:
    """Raises Unsupported with the kernel's reason."""
    await must_support(assist_ruleset(EVERYTHING))
    return AssistForwarder(group=group)
