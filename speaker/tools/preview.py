"""``speaker run --dry-run``: what this node would do with these manifests, by the same decisions, doing none of it."""

from collections.abc import Iterator
from time import CLOCK_BOOTTIME, clock_gettime
from typing import TextIO

from speaker.allocator.settle import Settlement, settle, with_former_pools, with_own_addresses
from speaker.decide import Decision, Held, NotHeld, decide
from speaker.errors import InvalidManifests
from speaker.forwarding.forwarder import open_forwarder
from speaker.forwarding.plan import Change
from speaker.interfaces.netlink import Watcher
from speaker.interfaces.snapshot import Snapshot
from speaker.memory import recall
from speaker.settings import RunSettings
from speaker.standalone.manifests import load


async def preview(settings: RunSettings, out: TextIO) -> int:
    """Print it; 0, or 1 when the manifests are wrong or a Service is refused. Raises EdgeError, Unsupported."""
    try:
        world = load(settings.directory, named=settings.peers is not None).world
    except InvalidManifests as error:
        print(error, file=out)
        return 1
    now = clock_gettime(CLOCK_BOOTTIME)
    snapshot, allocator = await _snapshot(), recall(settings.state, settings.rest_seconds, now)
    world = with_own_addresses(world, snapshot.own)
    settlement = settle(allocator, world, now)
    decision = decide(with_former_pools(world, allocator), settlement.assignments, snapshot, settings.node)
    forwarder = await open_forwarder(settings.forwarder, settings.runtime_dir)
    changes = await forwarder.pending(decision.forwarding)
    out.writelines(f"{line}\n" for line in _lines(settlement, decision, forwarder.name, changes))
    return 1 if settlement.refusals else 0


async def _snapshot() -> Snapshot:
    async with Watcher() as watcher:
        return await anext(aiter(watcher))


def _lines(settlement: Settlement, decision: Decision, forwarder: str, changes: tuple[Change, ...]) -> Iterator[str]:
    for eip in decision.eips.values():
        services = ", ".join(map(str, eip.services))
        match eip:
            case Held(link=link):
                yield f"{eip.address}  {services}  (pool {eip.pool}): would be claimed on {link.name}"
            case NotHeld(message=message):
                yield f"{eip.address}  {services}  (pool {eip.pool}): would not be claimed: {message}"
    for key, refusal in settlement.refusals.items():
        yield f"{key}: refused ({refusal.reason.value}): {refusal.message}"
    yield f"{forwarder}: {len(changes)} changes" if changes else f"{forwarder}: nothing to change"
    yield from (f"  {change}" for change in changes)
