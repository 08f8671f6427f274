"""Forwarding with nftables: address translation, masquerade, source ranges and the guard in one table of our own.

Also the guard alone, for IPVS on a kernel with nftables.

A real server of weight 0 gets nothing new while the kernel's connection table keeps what it has. Persistence hashes
the client's address and so has no timeout. Source ranges hold for this node's own clients too.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import IPv4Address, IPv4Network
from typing import TypeAlias

from speaker.checks import Finding, said
from speaker.errors import EdgeError, Unsupported
from speaker.forwarding.changes import Change, ChangeRealServer, diff
from speaker.forwarding.conntrack.flows import Flow, affected, goes_on
from speaker.forwarding.nftables import nft
from speaker.forwarding.nftables.listing import Listing, read_guard, read_plan
from speaker.forwarding.nftables.ruleset import Ruleset, approximations, forwarder_ruleset, guard_ruleset
from speaker.forwarding.nftables.script import change_script, rebuild_script
from speaker.forwarding.nftables.skeletons import GUARD_TABLE, TABLE
from speaker.forwarding.nftables.table import Step, Table
from speaker.forwarding.plan import EMPTY, Plan, RealServer, VirtualServer, VirtualServerKey, crowded
from speaker.forwarding.traffic import UNKNOWN, Traffic
from speaker.model import Protocol
from speaker.system.process import may_administer_network

Forget: TypeAlias = Callable[[Iterable[VirtualServerKey], Callable[[Flow], bool]], Awaitable[int]]

_REAL = RealServer(IPv4Address("192.0.2.2"), 80)
#: A plan that needs every expression our rules ever use (documentation addresses; it is checked, never applied).
_EVERYTHING = Plan(
    frozenset(),
    {
        server.key: server
        for server in (
            VirtualServer(IPv4Address("192.0.2.1"), Protocol.TCP, 80, "rr", real_servers=(_REAL,)),
            VirtualServer(IPv4Address("192.0.2.1"), Protocol.UDP, 80, "sh", real_servers=(_REAL,)),
            VirtualServer(IPv4Address("192.0.2.1"), Protocol.UDP, 81, sources=(IPv4Network("192.0.2.0/24"),)),
        )
    },
)


class NftablesForwarder:
    """The table ``inet eip-speaker``. Satisfies ``forwarder.Forwarder``. ``forgets``: another ``forget``."""

    name = "nftables"

    def __init__(self, clock: Callable[[], float] = time.monotonic, forgets: Forget | None = None) -> None:
        self._table = Table(TABLE, forwarder_ruleset, _forwarder_step, clock)
        self._forgets = forgets
        self._turn = asyncio.Lock()
        """What is read, decided and written is one step: who tends must not bring back what was just replaced."""
        self._asked: Plan | None = None
        # Survives an error: the retry finds the table as it should be, and no changes.
        self._to_check: frozenset[VirtualServerKey] = frozenset()
        self._unforgotten: tuple[Finding, ...] = ()
        """That connections could not be forgotten the last time."""

    async def tend(self) -> tuple[Change, ...]:
        async with self._turn:
            return () if self._asked is None else await self._apply(self._asked)

    async def apply(self, plan: Plan) -> tuple[Change, ...]:
        async with self._turn:
            return await self._apply(plan)

    async def _apply(self, plan: Plan) -> tuple[Change, ...]:
        self._asked = plan
        changes, _ = await self._table.bring_to(plan)
        self._to_check = self._to_check.union(affected(changes))
        await self._forget_gone(plan)
        return changes

    async def _forget_gone(self, plan: Plan) -> None:
        """Tried again with each ``apply`` and ``tend``. The table is as it should be: to refuse the plan for this would
        take its new real servers away from everybody."""
        try:
            await (self._forgets or forget)(self._to_check, lambda flow: goes_on(flow, plan))
        except EdgeError as error:
            words = f"connections of before the last change may go on where they went: {error}"
            self._unforgotten = said("edge_fails", [words], "conntrack -L")
        else:
            self._to_check, self._unforgotten = frozenset(), ()

    async def pending(self, plan: Plan) -> tuple[Change, ...]:
        return await self._table.pending(plan)

    def approximations(self, plan: Plan) -> tuple[str, ...]:
        return approximations(plan) + crowded(plan)

    async def problems(self) -> tuple[Finding, ...]:
        return self._unforgotten + await _dropping_chains()

    def traffic(self, *, real_servers: bool) -> Traffic:
        """Nothing: its rules see the first packet of a connection only, and do not count those."""
        return UNKNOWN

    async def cleanup(self) -> tuple[str, ...]:
        async with self._turn:
            self._asked = None
            return await self._table.remove()


class NftablesGuard:
    """The table ``inet eip-speaker-guard``: what IPVS needs around it, for EIPs that are bound on this node.

    Rejects every port of an EIP that no virtual server names before a socket of this host sees it, and of the others
    what IPVS does not take; enforces source ranges (not for this node's own clients: IPVS takes those before the
    guard), and masquerades what IPVS sends on, for which ``net.ipv4.vs.conntrack`` must be 1.
    """

    name = "nftables"

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = Table(GUARD_TABLE, guard_ruleset, _guard_step, clock)

    def concerned(self, changes: Iterable[Change]) -> bool:
        """Not by weights."""
        return any(
            not isinstance(change, ChangeRealServer) or change.before.local != change.after.local for change in changes
        )

    async def apply(self, plan: Plan) -> bool:
        """Bring the guard to ``plan``; whether there was anything to do. Raises EdgeError."""
        _, script = await self._table.bring_to(plan)
        return bool(script)

    async def cleanup(self) -> tuple[str, ...]:
        return await self._table.remove()


async def open_nftables() -> NftablesForwarder:
    """Raises Unsupported with the kernel's reason."""
    await _supported(forwarder_ruleset(_EVERYTHING))
    return NftablesForwarder()


async def open_guard() -> NftablesGuard:
    """Raises Unsupported with the kernel's reason: then iptables has to guard."""
    await _supported(guard_ruleset(_EVERYTHING))
    return NftablesGuard()


async def _supported(ruleset: Ruleset) -> None:
    try:
        await nft.run(rebuild_script(ruleset), check=True)
    except nft.Refused as error:
        raise Unsupported(refusal(str(error), privileged=may_administer_network())) from error


def refusal(words: str, *, privileged: bool) -> str:
    """What ``nft`` said, and what it takes: a kernel says the same to whom it shows nothing."""
    if privileged:
        return f"this kernel refuses our nftables rules (it needs Linux 5.9): {words}"
    return f"nftables needs CAP_NET_ADMIN (root): {words}"


def _forwarder_step(listing: Listing | None, want: Plan) -> Step:
    """What the listed table lacks of ``want``."""
    have = None if listing is None else read_plan(listing)
    if have is None:
        return diff(EMPTY, want), rebuild_script(forwarder_ruleset(want))
    changes = diff(have, want)
    return changes, change_script(forwarder_ruleset(have), forwarder_ruleset(want)) if changes else ""


def _guard_step(listing: Listing | None, want: Plan) -> Step:
    ruleset = guard_ruleset(want)
    have = None if listing is None else read_guard(listing, ruleset)
    return (), rebuild_script(ruleset) if have is None else change_script(have, ruleset)


async def _dropping_chains() -> tuple[Finding, ...]:
    """Docker and firewalld drop forwarded traffic by default; one accepting table cannot overrule another's drop."""
    found = [item["chain"] for item in await nft.list_chains() if "chain" in item]
    chains = [chain for chain in found if isinstance(chain, dict)]
    return dropping(
        f"{chain.get('family')} {chain.get('table')} {chain.get('name')}"
        for chain in chains
        if chain.get("hook") == "forward" and chain.get("policy") == "drop"
    )


def dropping(chains: Iterable[str]) -> tuple[Finding, ...]:
    """Each chain of forwarded traffic whose policy is to drop."""
    return tuple(
        Finding(
            "drop_policy",
            f"chain {chain} drops forwarded traffic unless one of its rules accepts it: accept there what goes to and"
            " comes from the endpoints",
            f"nft insert rule {chain} ct status dnat accept",
        )
        for chain in chains
    )


async def forget(keys: Iterable[VirtualServerKey], goes_on: Callable[[Flow], bool]) -> int:
    """Forget every connection to these virtual servers that does not go on; how many. Raises EdgeError.

    pyroute2 takes 12 MB: it is loaded when there is something to forget.
    """
    if not (found := tuple(keys)):
        return 0
    try:
        from speaker.forwarding.conntrack import table as conntrack
    except (ImportError, OSError) as error:  # no descriptor is left
        raise EdgeError(f"conntrack: {error}") from error
    return await conntrack.forget(found, goes_on)
