"""``assist`` in the kernel: the table ``inet eip-speaker-assist``, or a group's, only as long as it is needed. An edge.

What is to be in it, ``forwarding/assisted.py`` says.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

from speaker.checks import Finding, said
from speaker.errors import EdgeError, Unsupported
from speaker.forwarding.assisted import stays
from speaker.forwarding.changes import Change, diff, part_of
from speaker.forwarding.nftables import nft
from speaker.forwarding.nftables.forwarder import refusal
from speaker.forwarding.nftables.ruleset import Ruleset, assist_ruleset, expressible, rebuild_script
from speaker.forwarding.nftables.skeletons import ASSIST_TABLE
from speaker.forwarding.plan import EMPTY, UNKNOWN, Plan, RealServer, Traffic, VirtualServer
from speaker.model import NO_GROUP, Group, Protocol
from speaker.system.process import may_administer_network
from speaker.system.threads import in_thread

RENEW = 10.0
"""Seconds after which the table is made anew: its elements last three times as long (``skeletons.ASSIST``)."""
FORGET = 1.0
"""Seconds that may be spent on connections that still wait for a dead endpoint: a new Service waits meanwhile."""

_REAL = RealServer(IPv4Address("192.0.2.2"), 80)
#: As the forwarder's: every expression that the rules ever use.
_EVERYTHING = Plan(
    frozenset(),
    {
        server.key: server
        for server in (
            VirtualServer(IPv4Address("192.0.2.1"), Protocol.TCP, 80, "sh", real_servers=(_REAL,)),
            VirtualServer(
                IPv4Address("192.0.2.1"), Protocol.UDP, 81, "rr", None, (IPv4Network("192.0.2.0/24"),), True, (_REAL,)
            ),
        )
    },
)


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
                words = f"nobody leads past a dead node's endpoints: {error}"
                self._refused = said("edge_fails", [words], "nft list tables")
                raise
            changes, self._made = diff(self._made or EMPTY, want), want
            self._renew_at, self._refused = now + RENEW, ()
            await self._forget(changes, want)
            return changes

    async def _bring_to(self, want: Plan) -> None:
        if want.virtual_servers:
            await nft.run(await in_thread(lambda: rebuild_script(self._ruleset(want))))
        elif nft.stamp(self._table).table is not None:
            await nft.run(f"delete table inet {self._table}\n")

    def _ruleset(self, plan: Plan) -> Ruleset:
        return replace(assist_ruleset(plan), table=self._table)

    async def _forget(self, changes: Iterable[Change], plan: Plan) -> None:
        """Best effort: what is left ends as it would without us."""
        keys = {key for change in changes if isinstance(key := part_of(change), tuple) and key in plan.virtual_servers}
        try:
            async with asyncio.timeout(FORGET):
                if keys:
                    # pyroute2 takes 12 MB: it is loaded when there is something to forget.
                    from speaker.forwarding import conntrack

                    await conntrack.forget(keys, plan, stays)
        except (EdgeError, ImportError, OSError) as error:  # a TimeoutError among them
            words = f"connections that waited for a dead node's endpoints go on waiting: {error or 'too many'}"
            self._refused = said("edge_fails", [words], "conntrack -L")

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
    try:
        await nft.run(rebuild_script(assist_ruleset(_EVERYTHING)), check=True)
    except nft.Refused as error:
        raise Unsupported(refusal(str(error), privileged=may_administer_network())) from error
    return AssistForwarder(group=group)
