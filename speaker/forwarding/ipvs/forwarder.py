"""Forwarding with IPVS: EIPs bound on our dummy link, virtual servers for them, and a guard around both.

Kernel entries carry no owner: a virtual server is ours if its EIP is bound on our link. So an EIP is bound before its
first virtual server is added, and unbound after its last is removed. Whenever the process is killed, the next one sees
what is ours. A bound EIP exposes every listener of this host: the guard rejects all its ports first, opens one only
when its virtual server exists, and closes it before that goes. ARP is strict from before the first EIP is bound until
after the last is unbound. ``tables.py`` writes the entries, ``dummy.py`` binds the EIPs.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from speaker.checks import Finding, said
from speaker.errors import EdgeError, as_edge_error
from speaker.forwarding.changes import Change, EipChange, ServerChange, diff
from speaker.forwarding.ipvs import decisions
from speaker.forwarding.ipvs.counters import FILE, traffic
from speaker.forwarding.ipvs.decisions import Draining, Place
from speaker.forwarding.ipvs.dummy import DummyLink, is_kube_proxy_here, others_bind
from speaker.forwarding.ipvs.settings import IpvsSettings, IpvsTimeouts, Remembered
from speaker.forwarding.ipvs.strict_arp import StrictArp, conf_all, lax_everywhere
from speaker.forwarding.ipvs.tables import Refusal, ipvs_tables
from speaker.forwarding.nftables.forwarder import NftablesGuard, open_guard
from speaker.forwarding.plan import EMPTY, Plan, VirtualServer, VirtualServerKey, crowded, taken_here, without
from speaker.model import NO_GROUP, Group, IPAddress, Traffic
from speaker.settings import AS_THEY_ARE, Timeouts
from speaker.system.threads import Threads, in_thread

LOOK_SECONDS = 60.0
"""How long what we made is believed to be still there."""

T = TypeVar("T")


class KernelState(NamedTuple):
    """What the kernel has: ours as a plan, the addresses for which others have virtual servers, how many connections
    our real servers of weight 0 had, and the index of our link. ``fresh``: all of it was just read."""

    ours: Plan
    foreign: frozenset[IPAddress]
    connections: Mapping[Place, int]
    link: int
    fresh: bool


class Step(NamedTuple):
    """What is to be done: from ``have`` to ``goal``, which is ``want`` and what is still draining. ``guarded``: the
    changes that may concern the guard."""

    seen: KernelState
    have: Plan
    want: Plan
    goal: Plan
    draining: Draining
    changes: tuple[Change, ...]
    guarded: tuple[Change, ...]


class IpvsForwarder:
    """Satisfies ``forwarder.Forwarder``. Belongs to the network namespace of the thread that first calls it.

    It looks at the whole kernel at first, after anything that went wrong, and every LOOK_SECONDS. In between it
    believes that what it made is there, so a changed endpoint costs one message.
    """

    name = "ipvs"

    def __init__(
        self,
        runtime_dir: Path,
        guard: NftablesGuard,
        clock: Callable[[], float] = time.monotonic,
        timeouts: Timeouts = AS_THEY_ARE,
        group: Group = NO_GROUP,
    ) -> None:
        self._link = DummyLink(group.link)
        self._arp = StrictArp(Remembered(runtime_dir / "strict-arp.json", shared=True))
        self._settings = IpvsSettings(Remembered(runtime_dir / "ipvs-settings.json", shared=True))
        self._timeouts = IpvsTimeouts(timeouts, Remembered(runtime_dir / "ipvs-timeouts.json"))
        self._guard = guard
        self._clock = clock
        # One thread: what a cancelled call has begun ends before the next begins.
        self._thread = Threads(1, "ipvs", spare=0)
        self._turn = asyncio.Lock()
        self._asked: Plan | None = None
        self._plan = EMPTY
        self._believed: KernelState | None = None
        self._look_again = 0.0
        self._draining = Draining()
        self._refusals: tuple[Finding, ...] = ()

    async def apply(self, plan: Plan) -> tuple[Change, ...]:
        """See ``Forwarder``. What can never work (an unknown scheduler) is left out, closed, and reported as a
        problem."""
        async with self._turn:
            self._asked = taken_here(plan)
            return await self._apply(self._asked)

    async def tend(self) -> tuple[Change, ...]:
        async with self._turn:
            is_fresh = self._believed is not None and self._clock() < self._look_again
            if self._asked is None:
                return ()
            if is_fresh and not self._draining.until:
                if self._plan.eips:
                    await self._do(self._keep_settings)
                return ()
            return await self._apply(self._asked, count=self._draining.keys())

    async def _apply(self, plan: Plan, count: Collection[VirtualServerKey] = ()) -> tuple[Change, ...]:
        """``count``: virtual servers whose connections should be counted."""
        believed, self._believed = self._believed, None  # nothing, should this fail on the way
        now = self._clock()
        step = await self._do(self._step, plan, believed if now < self._look_again else None, count, now)
        want = step.want
        if step.seen.fresh:
            self._look_again = now + LOOK_SECONDS
        self._draining = step.draining
        refused = await self._change(step)
        if not decisions.standing(want, refused).eips:
            await self._do(self._restore, self._arp.restore)
        self._plan = want
        causes = decisions.root_causes(refused)
        words = (*map(str, causes), *map(decisions.taken, sorted(map(str, plan.eips - want.eips))))
        self._refusals = said("not_in_kernel", words, "ipvsadm -Ln; journalctl -u eip-speaker -n 50")
        if worth_retrying := [str(refusal) for refusal in causes if not refusal.final]:
            raise EdgeError("; ".join(worth_retrying))
        if refused:
            self._believed = await self._do(self._look_after_refusal, want)
            not_made = {refusal.change for refusal in refused}
            return tuple(change for change in step.changes if change not in not_made)
        link = step.seen.link if step.have.eips else await self._do(self._link.index)
        self._believed = KernelState(step.goal, step.seen.foreign, {}, link, fresh=False)
        return step.changes

    async def _change(self, step: Step) -> tuple[Refusal, ...]:
        """Makes the changes, with the guard's before and after."""
        have, want, whole = step.have, step.want, step.seen.fresh
        if not (whole or self._guard.concerned(step.guarded)):
            return await self._do(self._bring_to, want, step.changes, whole)
        await self._guard.apply(closed := decisions.in_between(have, want))
        refused = await self._do(self._bring_to, want, step.changes, whole)
        if (final := decisions.standing(want, refused, closed)) != closed:
            await self._guard.apply(final)
        return refused

    async def pending(self, plan: Plan) -> tuple[Change, ...]:
        step = await self._do(self._step, taken_here(plan), None, (), self._clock())
        return step.changes

    def approximations(self, plan: Plan) -> tuple[str, ...]:
        return crowded(plan)

    async def problems(self) -> tuple[Finding, ...]:
        return (*self._refusals, *(await self._do(self._problems) if self._plan.eips else ()))

    def traffic(self, *, real_servers: bool) -> Traffic:
        """See ``Forwarder``. Runs beside the worker thread, which does not wait for it. Raises EdgeError."""
        with ipvs_tables() as tables:
            messages = tables.service_messages()
        if not real_servers:
            return traffic(self._plan.eips, messages, ())
        with as_edge_error(str(FILE), (OSError, UnicodeDecodeError)), FILE.open() as lines:
            return traffic(self._plan.eips, messages, lines)

    async def cleanup(self) -> tuple[str, ...]:
        async with self._turn:
            self._asked = self._believed = None
            have = (await self._do(self._look, frozenset())).ours
            if have.eips:
                await self._guard.apply(Plan(have.eips, {}))
            removed = await self._do(self._remove, have)
            removed += await self._guard.cleanup()
            removed += tuple(map(str, await self._do(self._restore, self._arp.restore)))
            removed += await self._do(self._restore, self._settings.restore)
            removed += await self._do(self._timeouts.restore)
            self._plan, self._draining, self._refusals = EMPTY, Draining(), ()
            return removed

    async def _do(self, work: Callable[..., T], *arguments: object) -> T:
        return await self._thread.run(partial(work, *arguments))

    # ── in the worker thread: a thousand virtual servers take longer to compare than the loop may be held ──

    def _step(self, plan: Plan, believed: KernelState | None, count: Collection[VirtualServerKey], now: float) -> Step:
        seen = self._see(plan.eips, believed, count)
        want = without(plan, seen.foreign)
        have = decisions.completed(seen.ours, self._plan, want) if seen.fresh else seen.ours
        goal, still = decisions.draining(have, want, self._draining, seen.connections, now)
        changes = diff(have, goal)
        # What drains in IPVS has already left the guard: established connections do not need it.
        return Step(seen, have, want, goal, still, changes, (*changes, *diff(self._plan, want)))

    def _look_after_refusal(self, want: Plan) -> KernelState:
        seen = self._look(want.eips)
        return seen._replace(ours=decisions.completed(seen.ours, want, want), fresh=False)

    def _see(
        self, eips: frozenset[IPAddress], believed: KernelState | None, count: Collection[VirtualServerKey]
    ) -> KernelState:
        """What is ``believed``, updated where somebody else's changes would matter."""
        if believed is None or self._link.index() != believed.link:
            return self._look(eips)
        ours, foreign = believed.ours, believed.foreign
        connections: dict[Place, int] = {}
        if not count and eips <= ours.eips:
            return believed
        with ipvs_tables() as tables:
            if not eips <= ours.eips:
                foreign = frozenset(server.address for server in tables.virtual_servers()) - ours.eips
                if foreign & eips and is_kube_proxy_here():
                    return self._look(eips)
            for key in ours.virtual_servers.keys() & set(count):
                counted = tables.real_servers(key)
                if decisions.places(counted) != decisions.places(ours.virtual_servers[key].real_servers):
                    return self._look(eips)
                connections |= decisions.idle(key, counted)
        return believed._replace(foreign=foreign, connections=connections)

    def _look(self, eips: frozenset[IPAddress]) -> KernelState:
        """``eips``: those to be forwarded. If our link was removed by somebody, what we bound before is still ours."""
        link = self._link.index()
        bound = self._link.eips()
        mine: dict[VirtualServerKey, VirtualServer] = {}
        connections: dict[Place, int] = {}
        with ipvs_tables() as tables:
            servers = tables.virtual_servers()
            served = {server.address for server in servers}
            whose = decisions.owned(served, bound | self._plan.eips, eips, beside_kube_proxy=is_kube_proxy_here())
            for server in servers:
                if server.address in whose.ours:
                    counted = tables.real_servers(server.key)
                    mine[server.key] = replace(server, real_servers=tuple(counted))
                    connections |= decisions.idle(server.key, counted)
        return KernelState(Plan(bound, mine), whose.foreign, connections, link, fresh=True)

    def _bring_to(self, want: Plan, changes: Sequence[Change], whole: bool) -> tuple[Refusal, ...]:
        eips = [change for change in changes if isinstance(change, EipChange)]
        coming = [change.eip for change in eips if change.bound]
        going = {change.eip for change in eips if not change.bound}
        if want.eips:
            self._arp.tighten()  # links come and go
            if coming or whole:
                self._settings.adjust()
                self._timeouts.adjust()
        if coming:
            self._link.bind(coming)
        if not changes:
            return ()
        with ipvs_tables() as tables:
            refused = tables.change(changes)
        if going := going - decisions.held_back(refused):
            self._link.unbind(going)
        return refused

    def _restore(self, restore: Callable[[], tuple[T, ...]]) -> tuple[T, ...]:
        """Not while another group needs it: the last one restores it."""
        return () if others_bind(self._link.name) else restore()

    def _keep_settings(self) -> None:
        """Others set them back, and new links come. What is in the tables takes longer to look at."""
        self._arp.tighten()
        self._settings.adjust()

    def _problems(self) -> tuple[Finding, ...]:
        return (*self._settings.problems(), *lax_everywhere(conf_all()))

    def _remove(self, have: Plan) -> tuple[str, ...]:
        """Virtual servers before their mark."""
        changes = tuple(ServerChange(server, None) for server in have.virtual_servers.values())
        with ipvs_tables() as tables:
            if refused := tables.change(changes):
                raise EdgeError("; ".join(map(str, refused)))
        removed = [f"virtual server {server}" for server in have.virtual_servers.values()]
        removed += [f"EIP {eip} on {self._link.name}" for eip in sorted(have.eips, key=str)]
        if self._link.remove():
            removed.append(f"link {self._link.name}")
        return tuple(removed)


async def open_ipvs(runtime_dir: Path, timeouts: Timeouts = AS_THEY_ARE, group: Group = NO_GROUP) -> IpvsForwarder:
    """Makes nothing yet. Raises Unsupported if the kernel has no IPVS, or no nftables to guard it with."""
    await in_thread(_must_have_ipvs)
    return IpvsForwarder(runtime_dir, await open_guard(group), timeouts=timeouts, group=group)


def _must_have_ipvs() -> None:
    with ipvs_tables():
        pass
