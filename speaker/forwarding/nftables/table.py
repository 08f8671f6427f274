"""One table of ours in nftables: brought to a plan, and remembered, so that it seldom has to be listed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from speaker.errors import EdgeError
from speaker.forwarding.changes import Change, diff
from speaker.forwarding.nftables import nft
from speaker.forwarding.nftables.listing import Listing
from speaker.forwarding.nftables.ruleset import Expressed, Ruleset, expressible
from speaker.forwarding.nftables.script import rebuild_script, step_script
from speaker.forwarding.nftables.stamp import Stamp, stamp
from speaker.forwarding.plan import Plan
from speaker.system.threads import in_thread

LOOK_SECONDS = 50.0
"""How long it is believed that a table is as we made it, while others change theirs. IPVS looks around every minute:
then its guard does too."""

UNSURE = -1
"""In place of a generation: others may have changed the table since we looked."""

Step: TypeAlias = tuple[tuple[Change, ...], str]
"""What changes, and the script that does it; '' where the kernel needs none."""


@dataclass(frozen=True, slots=True)
class Made:
    """What we last made of a table, and the kernel's stamp of that."""

    plan: Expressed
    stamp: Stamp


class Table:
    """The table ``inet`` ``name``.

    As long as nobody has changed anything in nftables, it holds what we made. After somebody has, it is believed to
    until LOOK_SECONDS after the last look, if it is the same table at least: whoever reloads a firewall often flushes
    everybody's, and kube-proxy changes its own all the time.
    """

    def __init__(
        self,
        name: str,
        ruleset_of: Callable[[Plan], Ruleset],
        step_from: Callable[[Listing | None, Plan], Step],
        clock: Callable[[], float],
    ) -> None:
        """``step_from`` a listing to a plan, which is ``expressible``."""
        self._name, self._ruleset_of, self._step_from, self._clock = name, ruleset_of, step_from, clock
        self._made: Made | None = None
        self._look_again = 0.0

    async def bring_to(self, plan: Plan) -> Step:
        """Make the table what ``plan`` asks for; what that took. Raises EdgeError."""
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
            after = replace(after, generation=UNSURE)
        self._made = Made(Expressed(plan, want), after)
        return step

    async def pending(self, plan: Plan) -> tuple[Change, ...]:
        """What ``bring_to`` would change, had it no memory; changes nothing. Raises EdgeError."""
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

    async def _recall(self, known: Expressed, plan: Plan) -> tuple[Plan, Step]:
        if plan is known.plan:
            return known.form, ((), "")
        return await in_thread(self._step, known, plan)

    # A thousand virtual servers of ten take a good part of a second to compare: the loop must go on answering ARP.

    async def _compared(self, plan: Plan) -> tuple[Plan, Step]:
        listing = await nft.list_table(self._name)
        return await in_thread(lambda: (want := expressible(plan), self._step_from(listing, want)))

    def _step(self, known: Expressed, plan: Plan) -> tuple[Plan, Step]:
        want = expressible(plan, known)
        return want, (diff(known.form, want), step_script(known.form, want, self._ruleset_of))

    async def _run(self, script: str, want: Plan) -> None:
        try:
            await nft.run(script)
        except EdgeError:
            # Somebody may have changed the table since we looked. From scratch it works, or says what is wrong.
            await nft.run(await in_thread(lambda: rebuild_script(self._ruleset_of(want))))
