"""Forwarding with IPVS: EIPs bound on our dummy link, virtual servers for them, and a guard around both.

Kernel entries carry no owner: a virtual server is ours if its EIP is bound on our link. So an EIP is bound before its
first virtual server comes, and unbound after its last has gone; whatever kills the process in between, the next one
sees what is ours. A bound EIP publishes every listener of this host: the guard rejects all its ports first, opens one
only when its virtual server stands, and closes it before that goes. ARP is strict from before the first EIP is bound
until after the last is unbound.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from speaker.errors import EdgeError, Unsupported
from speaker.forwarding.dummy import DummyLink
from speaker.forwarding.iptables import open_iptables_guard
from speaker.forwarding.ipvs_settings import IpvsSettings
from speaker.forwarding.ipvs_tables import IpvsTables, Refusal
from speaker.forwarding.nftables import open_guard
from speaker.forwarding.plan import (
    EMPTY,
    AddEip,
    AddRealServer,
    AddVirtualServer,
    Change,
    Plan,
    RemoveEip,
    RemoveVirtualServer,
    VirtualServer,
    diff,
)
from speaker.forwarding.remembered import Remembered
from speaker.forwarding.strict_arp import StrictArp, conf_all, lax_everywhere
from speaker.forwarding.sysctl import forwarding_off
from speaker.model import Family, IPAddress

T = TypeVar("T")


class Guard(Protocol):
    """What stands around IPVS: rejects, source ranges, masquerade."""

    name: str

    async def apply(self, plan: Plan) -> bool:
        """Bring it to ``plan``; whether there was anything to do. Raises EdgeError."""

    async def cleanup(self) -> tuple[str, ...]:
        """Remove everything; names of what was removed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the kernel has: ours as a plan, and the addresses that others have virtual servers for."""

    ours: Plan
    foreign: frozenset[IPAddress]


class IpvsForwarder:
    """Satisfies ``forwarder.Forwarder``. Belongs to the network namespace of the thread that first calls it."""

    name = "ipvs"

    def __init__(self, runtime_dir: Path, guard: Guard) -> None:
        self._link = DummyLink()
        self._arp = StrictArp(Remembered(runtime_dir / "strict-arp.json"), except_for=[self._link.name])
        self._settings = IpvsSettings(Remembered(runtime_dir / "ipvs-settings.json"))
        self._guard = guard
        # One thread: what a cancelled call has begun ends before the next begins.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ipvs")
        self._turn = asyncio.Lock()
        self._plan = EMPTY
        self._refusals: tuple[str, ...] = ()

    async def apply(self, plan: Plan) -> tuple[Change, ...]:
        """As the protocol says. What can never work (an unknown scheduler) is left out, closed, and a problem."""
        async with self._turn:
            seen = await self._do(self._look)
            want = without(plan, seen.foreign)
            have = completed(seen.ours, self._plan, want)
            changes = diff(have, want)
            closed = in_between(have, want)
            await self._guard.apply(closed)
            refused = await self._do(self._bring_to, want, changes)
            if (final := standing(want, refused)) != closed:
                await self._guard.apply(final)
            if not want.eips:
                await self._do(self._arp.restore)
            self._plan = want
            causes = root_causes(refused)
            self._refusals = (*map(str, causes), *map(_taken, sorted(map(str, plan.eips - want.eips))))
            if worth_retrying := [str(refusal) for refusal in causes if not refusal.final]:
                raise EdgeError("; ".join(worth_retrying))
            not_made = {refusal.change for refusal in refused}
            return tuple(change for change in changes if change not in not_made)

    async def pending(self, plan: Plan) -> tuple[Change, ...]:
        seen = await self._do(self._look)
        want = without(plan, seen.foreign)
        return diff(completed(seen.ours, self._plan, want), want)

    def approximations(self, plan: Plan) -> tuple[str, ...]:
        return ()

    async def problems(self) -> tuple[str, ...]:
        return (*self._refusals, *(await self._do(self._problems) if self._plan.eips else ()))

    async def cleanup(self) -> tuple[str, ...]:
        async with self._turn:
            have = (await self._do(self._look)).ours
            if have.eips:
                await self._guard.apply(Plan(have.eips, {}))
            removed = await self._do(self._remove, have)
            removed += await self._guard.cleanup()
            removed += tuple(map(str, await self._do(self._arp.restore)))
            removed += await self._do(self._settings.restore)
            self._plan, self._refusals = EMPTY, ()
            return removed

    async def _do(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    # ── in the worker thread ──

    def _look(self) -> Seen:
        """If our link was taken from us, what we bound before still is ours."""
        bound = self._link.eips()
        ours = bound | self._plan.eips
        with IpvsTables() as tables:
            servers = tables.virtual_servers()
            mine = [
                replace(server, real_servers=tables.real_servers(server.key))
                for server in servers
                if server.address in ours
            ]
        foreign = frozenset(server.address for server in servers) - ours
        return Seen(Plan(bound, {server.key: server for server in mine}), foreign)

    def _bring_to(self, want: Plan, changes: Sequence[Change]) -> tuple[Refusal, ...]:
        if want.eips:
            self._arp.tighten()
            self._settings.adjust()
        if coming := [change.eip for change in changes if isinstance(change, AddEip)]:
            self._link.bind(coming)
        with IpvsTables() as tables:
            refused = tables.change(changes)
        staying = held_back(refused)
        self._link.unbind(
            [change.eip for change in changes if isinstance(change, RemoveEip) and change.eip not in staying]
        )
        return refused

    def _problems(self) -> tuple[str, ...]:
        off = forwarding_off({Family.of(eip) for eip in self._plan.eips})
        return (*off, *self._settings.problems(), *lax_everywhere(conf_all()))

    def _remove(self, have: Plan) -> tuple[str, ...]:
        """Virtual servers before their mark."""
        changes = tuple(RemoveVirtualServer(server) for server in have.virtual_servers.values())
        with IpvsTables() as tables:
            if refused := tables.change(changes):
                raise EdgeError("; ".join(map(str, refused)))
        removed = [f"virtual server {server}" for server in have.virtual_servers.values()]
        removed += [f"EIP {eip} on {self._link.name}" for eip in sorted(have.eips, key=str)]
        if self._link.remove():
            removed.append(f"link {self._link.name}")
        return tuple(removed)


async def open_ipvs(runtime_dir: Path) -> IpvsForwarder:
    """A forwarder whose guard is nftables where the kernel has it, else iptables. Makes nothing yet.

    Raises Unsupported where the kernel has no IPVS, or nothing to guard it with.
    """
    await asyncio.to_thread(_must_have_ipvs)
    return IpvsForwarder(runtime_dir, await _open_guard())


def _must_have_ipvs() -> None:
    IpvsTables().close()


async def _open_guard() -> Guard:
    try:
        return await open_guard()
    except Unsupported as no_nft:
        try:
            return await open_iptables_guard()
        except Unsupported as no_iptables:
            raise Unsupported(f"nothing here can guard IPVS: {no_nft}; {no_iptables}") from no_iptables


# ── Decisions ─────────────────────────────────────────────────────────────────────────────────────────────────


def without(plan: Plan, foreign: Collection[IPAddress]) -> Plan:
    """``plan`` without the EIPs that others have virtual servers for: binding one would make those ours."""
    servers = {key: server for key, server in plan.virtual_servers.items() if server.address not in foreign}
    return Plan(plan.eips.difference(foreign), servers)


def completed(have: Plan, remembered: Plan, want: Plan) -> Plan:
    """``have`` with what IPVS does not know of a virtual server, but the guard does: as we last set it, or, after a
    restart, as it should be; the guard compares for itself."""
    known = {**want.virtual_servers, **remembered.virtual_servers}
    servers = {key: _completed(server, known.get(key, server)) for key, server in have.virtual_servers.items()}
    return Plan(have.eips, servers)


def _completed(server: VirtualServer, known: VirtualServer) -> VirtualServer:
    local = {(real.address, real.port) for real in known.real_servers if real.local}
    reals = tuple(replace(real, local=(real.address, real.port) in local) for real in server.real_servers)
    return replace(server, sources=known.sources, masquerade=known.masquerade, real_servers=reals)


def in_between(have: Plan, want: Plan) -> Plan:
    """What the guard holds while the kernel goes from one to the other: open are only ports that stand in both."""
    both = want.virtual_servers.keys() & have.virtual_servers.keys()
    return Plan(have.eips | want.eips, {key: want.virtual_servers[key] for key in both})


def standing(want: Plan, refused: Collection[Refusal]) -> Plan:
    """What the guard holds in the end: ``want``, but ports of virtual servers that the kernel did not take stay closed,
    and so do all of an EIP that is not leaving yet."""
    missing = {refusal.change.server.key for refusal in refused if isinstance(refusal.change, AddVirtualServer)}
    servers = {key: server for key, server in want.virtual_servers.items() if key not in missing}
    return Plan(want.eips | held_back(refused), servers)


def held_back(refused: Iterable[Refusal]) -> frozenset[IPAddress]:
    """EIPs with a virtual server that would not go: unbound, it would not be known as ours again."""
    return frozenset(
        refusal.change.server.address for refusal in refused if isinstance(refusal.change, RemoveVirtualServer)
    )


def root_causes(refused: Iterable[Refusal]) -> tuple[Refusal, ...]:
    """Without real servers whose virtual server was refused already."""
    refusals = tuple(refused)
    missing = {refusal.change.server.key for refusal in refusals if isinstance(refusal.change, AddVirtualServer)}
    return tuple(
        refusal
        for refusal in refusals
        if not (isinstance(refusal.change, AddRealServer) and refusal.change.key in missing)
    )


def _taken(eip: str) -> str:
    return (
        f"EIP {eip} is not served: another program has a virtual server for it (`ipvsadm -Ln`);"
        " remove that, or take the address out of the pool"
    )
