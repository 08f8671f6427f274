"""Forwarding with nftables: address translation, masquerade, source ranges and the guard in one table of our own.

Also the guard alone, for IPVS on a kernel with nftables, and ``assist``: a table of its own, only as long as it is
needed. What is to be in that, ``Assisted`` says (``forwarding/changes.py``).

A real server of weight 0 gets nothing new, while the kernel's connection table keeps its connections. Persistence
hashes the client's address and so has no timeout. Source ranges also apply to this node's own clients.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from typing import NamedTuple, TypeAlias

from speaker.checks import Finding, said
from speaker.errors import EdgeError, Unsupported
from speaker.forwarding.changes import Change, Flow, RealChange, affected, diff, goes_on, part_of, stays
from speaker.forwarding.nftables import nft, ruleset
from speaker.forwarding.nftables.listing import Listing, read_guard, read_plan
from speaker.forwarding.nftables.nft import Stamp, stamp
from speaker.forwarding.nftables.skeletons import ASSIST_TABLE, GUARD_TABLE, TABLE
from speaker.forwarding.plan import EMPTY, UNKNOWN, Plan, RealServer, VirtualServer, VirtualServerKey, crowded
from speaker.model import NO_GROUP, Group, Protocol, Traffic
from speaker.system.process import may_administer_network
from speaker.system.threads import in_thread

LOOK_SECONDS = 50.0
"""How long a table is believed to be as we made it while others change theirs. IPVS is looked at every minute: then its
guard is too."""

UNSURE = -1
"""Instead of a generation: others may have changed the table since we looked."""

Step: TypeAlias = tuple[tuple[Change, ...], str]
"""What changes, and the script that does it; '' if the kernel needs none."""

_RULESETS = {TABLE: ruleset.forwarder_ruleset, GUARD_TABLE: ruleset.guard_ruleset}

_REAL = RealServer(IPv4Address("192.0.2.2"), 80)
_UDP = VirtualServer(IPv4Address("192.0.2.1"), Protocol.UDP, 80, "sh", real_servers=(_REAL,))
#: A plan that needs every expression our rules ever use (documentation addresses; it is checked, never applied).
EVERYTHING = Plan(
    frozenset(),
    {
        server.key: server
        for server in (
            _UDP,
            replace(_UDP, protocol=Protocol.TCP, scheduler="rr"),
            replace(_UDP, port=81, sources=(IPv4Network("192.0.2.0/24"),)),
        )
    },
)


class NftablesForwarder:
    """The table ``inet eip-speaker``, or that of ``group``. Satisfies ``forwarder.Forwarder``."""

    name = "nftables"

    def __init__(self, clock: Callable[[], float] = time.monotonic, group: Group = NO_GROUP) -> None:
        self._table = Table(TABLE, clock, group)
        self._turn = asyncio.Lock()
        """Reading, deciding and writing are one step: ``tend`` must not bring back what was just replaced."""
        self._asked: Plan | None = None
        # Survives an error: the retry finds the table as it should be, and no changes.
        self._to_check: frozenset[VirtualServerKey] = frozenset()
        self._unforgotten: tuple[Finding, ...] = ()
        """A finding if connections could not be forgotten the last time."""

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
        """Repeated with each ``apply`` and ``tend``. The table itself is right: refusing the plan for this would deny
        everybody its new real servers."""
        words = "old connections may keep their endpoints in spite of the last change"
        self._unforgotten = await forget(self._to_check, plan, words)
        if not self._unforgotten:
            self._to_check = frozenset()

    async def pending(self, plan: Plan) -> tuple[Change, ...]:
        return await self._table.pending(plan)

    def approximations(self, plan: Plan) -> tuple[str, ...]:
        return ruleset.approximations(plan) + crowded(plan)

    async def problems(self) -> tuple[Finding, ...]:
        return self._unforgotten + await _dropping_chains()

    def traffic(self, *, real_servers: bool) -> Traffic:
        """Nothing: its rules see only the first packet of a connection, and do not count."""
        return UNKNOWN

    async def cleanup(self) -> tuple[str, ...]:
        async with self._turn:
            self._asked = None
            return await self._table.remove()


class NftablesGuard:
    """The table ``inet eip-speaker-guard``, or that of ``group``: what IPVS needs around it, for EIPs that are bound on
    this node.

    Before a socket of this host sees them, rejects packets to every port of an EIP that no virtual server names, and on
    other ports what IPVS does not take. Enforces source ranges (not for this node's own clients: IPVS takes those
    before the guard). Masquerades what IPVS sends on, for which ``net.ipv4.vs.conntrack`` must be 1.
    """

    name = "nftables"

    def __init__(self, clock: Callable[[], float] = time.monotonic, group: Group = NO_GROUP) -> None:
        self._table = Table(GUARD_TABLE, clock, group)

    def concerned(self, changes: Iterable[Change]) -> bool:
        """Changes of weights do not concern it."""
        return any(not _only_weight(change) for change in changes)

    async def apply(self, plan: Plan) -> bool:
        """Brings the guard to ``plan``. Returns whether there was anything to do. Raises EdgeError."""
        _, script = await self._table.bring_to(plan)
        return bool(script)

    async def cleanup(self) -> tuple[str, ...]:
        return await self._table.remove()


def _only_weight(change: Change) -> bool:
    match change:
        case RealChange(_, RealServer() as before, RealServer() as after):
            return before.local == after.local
    return False


async def open_nftables(group: Group = NO_GROUP) -> NftablesForwarder:
    """Raises Unsupported with the kernel's reason."""
    await must_support(ruleset.forwarder_ruleset(EVERYTHING))
    return NftablesForwarder(group=group)


async def open_guard(group: Group = NO_GROUP) -> NftablesGuard:
    """Raises Unsupported with the kernel's reason."""
    try:
        await must_support(ruleset.guard_ruleset(EVERYTHING))
    except Unsupported as error:
        raise Unsupported(f"IPVS is guarded by nftables: {error}") from error
    return NftablesGuard(group=group)


async def must_support(rules: ruleset.Ruleset) -> None:
    """Raises Unsupported with the kernel's reason."""
    try:
        await nft.run(ruleset.rebuild_script(rules), check=True)
    except nft.Refused as error:
        raise Unsupported(refusal(str(error), privileged=may_administer_network())) from error


async def forget(
    keys: Collection[VirtualServerKey],
    plan: Plan,
    otherwise: str,
    keeps: Callable[[Flow, Plan], bool] = goes_on,
    within: float | None = None,
) -> tuple[Finding, ...]:
    """Forgets the connections to these virtual servers that ``plan`` does not keep, ``within`` so many seconds. Returns
    a finding if that failed, which begins with ``otherwise``."""
    try:
        if keys:
            # pyroute2 takes 12 MB: it is loaded only when there is something to forget.
            from speaker.forwarding import conntrack

            async with asyncio.timeout(within):
                await conntrack.forget(keys, plan, keeps)
    except (EdgeError, ImportError, OSError) as error:  # including a TimeoutError
        return said("edge_fails", [f"{otherwise}: {error or 'too many'}"], "conntrack -L")
    return ()


def refusal(words: str, *, privileged: bool) -> str:
    """What ``nft`` said, and what it needs: a kernel says the same to a process without the right to look."""
    if privileged:
        return f"this kernel refuses our nftables rules (it needs Linux 5.9): {words}"
    return f"nftables needs CAP_NET_ADMIN (root): {words}"


async def _dropping_chains() -> tuple[Finding, ...]:
    """Docker and firewalld drop forwarded traffic by default; one accepting table cannot overrule another's drop."""
    chains = [item["chain"] for item in await nft.list_chains() if "chain" in item]
    return dropping(
        f"{chain.get('family')} {chain.get('table')} {chain.get('name')}"
        for chain in chains
        if chain.get("hook") == "forward" and chain.get("policy") == "drop"
    )


def dropping(chains: Iterable[str]) -> tuple[Finding, ...]:
    """A finding for each chain of forwarded traffic whose policy is to drop."""
    return tuple(
        Finding(
            "drop_policy",
            f"chain {chain} drops forwarded traffic unless one of its rules accepts it: accept traffic to and from the"
            " endpoints there",
            f"nft insert rule {chain} ct status dnat accept",
        )
        for chain in chains
    )


# ── One table of ours ─────────────────────────────────────────────────────────────────────────────────────────


class Made(NamedTuple):
    """What we last made of a table, and the kernel's stamp of it."""

    plan: ruleset.Expressed
    stamp: Stamp


class Table:
    """The table ``inet`` ``name`` of a group.

    As long as nobody has changed anything in nftables, it holds what we made. After a change it is believed to until
    LOOK_SECONDS after the last look, provided it is still the same table: reloading a firewall often flushes
    everybody's tables, and kube-proxy changes its own all the time.
    """

    def __init__(self, name: str, clock: Callable[[], float], group: Group = NO_GROUP) -> None:
        """``name``: TABLE or GUARD_TABLE."""
        self._kind, self._name, self._clock = name, group.table(name), clock
        self._made: Made | None = None
        self._look_again = 0.0

    async def bring_to(self, plan: Plan) -> Step:
        """Makes the table what ``plan`` asks for. Returns what that took. Raises EdgeError."""
        made, self._made = self._made, None  # nothing, should this fail on the way
        before = stamp(self._name)
        known = made if made is not None and self._is_believed(made, before) else None
        want, step = await (self._look(plan) if known is None else self._recall(known.plan, plan))
        _, script = step
        if script:
            await self._run(script, want)
        after = stamp(self._name)
        if script and after.table is None:
            raise EdgeError(f"nft reports success, but there is no table inet {self._name}")
        sure = known is None or known.stamp.generation == before.generation
        if not sure or after.generation != before.generation + bool(script):
            after = after._replace(generation=UNSURE)
        self._made = Made(ruleset.Expressed(plan, want), after)
        return step

    async def pending(self, plan: Plan) -> tuple[Change, ...]:
        """What ``bring_to`` would change if it had no memory; changes nothing. Raises EdgeError."""
        _, (changes, _) = await self._compared(plan)
        return changes

    async def remove(self) -> tuple[str, ...]:
        """Names of what was removed. Raises EdgeError."""
        self._made = None
        if await nft.list_table(self._name) is None:
            return ()
        await nft.run(f"delete table inet {self._name}\n")
        return (f"nftables table inet {self._name}",)

    def _is_believed(self, made: Made, now: Stamp) -> bool:
        if now.generation == made.stamp.generation:
            return True
        return now.table is not None and now.table == made.stamp.table and self._clock() < self._look_again

    async def _look(self, plan: Plan) -> tuple[Plan, Step]:
        self._look_again = self._clock() + LOOK_SECONDS
        return await self._compared(plan)

    async def _recall(self, known: ruleset.Expressed, plan: Plan) -> tuple[Plan, Step]:
        if plan is known.plan:
            return known.form, ((), "")
        return await in_thread(self._step_from, known, plan)

    # A thousand virtual servers of ten take a good part of a second to compare: the loop must go on answering ARP.

    async def _compared(self, plan: Plan) -> tuple[Plan, Step]:
        listing = await nft.list_table(self._name)
        return await in_thread(lambda: (want := ruleset.expressible(plan), self._step(listing, want)))

    def _step_from(self, known: ruleset.Expressed, plan: Plan) -> tuple[Plan, Step]:
        want = ruleset.expressible(plan, known)
        return want, (diff(known.form, want), ruleset.step_script(known.form, want, self._ruleset))

    def _ruleset(self, plan: Plan) -> ruleset.Ruleset:
        return replace(_RULESETS[self._kind](plan), table=self._name)

    async def _run(self, script: str, want: Plan) -> None:
        try:
            await nft.run(script)
        except EdgeError:
            # Somebody may have changed the table since we looked. Starting from scratch works, or says what is wrong.
            await nft.run(await in_thread(lambda: ruleset.rebuild_script(self._ruleset(want))))

    def _step(self, listing: Listing | None, want: Plan) -> Step:
        """What the listed table lacks of ``want``. The guard's changes are not asked for."""
        made = self._ruleset(want)
        if self._kind == GUARD_TABLE:
            guard = None if listing is None else read_guard(listing, made)
            return (), ruleset.rebuild_script(made) if guard is None else ruleset.change_script(guard, made)
        have = None if listing is None else read_plan(listing)
        if have is None:
            return diff(EMPTY, want), ruleset.rebuild_script(made)
        changes = diff(have, want)
        return changes, ruleset.change_script(self._ruleset(have), made) if changes else ""


# ── Leading past a dead node's endpoints ──────────────────────────────────────────────────────────────────────


RENEW = 10.0
"""Seconds after which the table is made again; its elements last three times as long (``skeletons.ASSIST``)."""
FORGET = 1.0
"""Seconds that may be spent on connections that still wait for a dead endpoint, as a new Service waits meanwhile."""


class AssistForwarder:
    """Satisfies ``forwarder.Forwarder``. If the kernel refuses it, EIPs are still served, by kube-proxy."""

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
        except EdgeError:  # reported as a problem, and tried again by ``tend``
            return ()

    async def tend(self) -> tuple[Change, ...]:
        async with self._turn:
            want, now = ruleset.expressible(self._asked), self._clock()
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
            rules = replace(ruleset.assist_ruleset(want), table=self._table)
            await nft.run(await in_thread(ruleset.rebuild_script, rules))
        elif nft.stamp(self._table).table is not None:
            await nft.run(f"delete table inet {self._table}\n")

    async def _forget(self, changes: Iterable[Change], plan: Plan) -> None:
        """Best effort: the others end as they would without us."""
        keys = {key for change in changes if isinstance(key := part_of(change), tuple) and key in plan.virtual_servers}
        otherwise = "connections that wait for a dead node's endpoints keep waiting"
        self._refused = await forget(keys, plan, otherwise, keeps=stays, within=FORGET)

    async def pending(self, plan: Plan) -> tuple[Change, ...]:
        return diff(self._made or EMPTY, ruleset.expressible(plan))

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
    await must_support(ruleset.assist_ruleset(EVERYTHING))
    return AssistForwarder(group=group)
