"""``speaker run --dry-run``: what this node would do with these manifests, by the same decisions, doing none of it."""

from collections.abc import Iterator
from time import CLOCK_BOOTTIME, clock_gettime
from typing import TextIO

from speaker.allocator.assign import Allocator
from speaker.allocator.settle import Settlement, with_former_pools, with_own_addresses
from speaker.errors import DoubtfulManifests, InvalidManifests
from speaker.forwarding.changes import Change
from speaker.forwarding.forwarder import open_forwarder
from speaker.interfaces.watcher import look
from speaker.model import World
from speaker.node.decide import Decision, MayHold, MayNotHold, decide
from speaker.ownership.hellos.keyfile import read_keys
from speaker.settings import RunSettings
from speaker.standalone.manifests import load, mount
from speaker.standalone.patience import Patience
from speaker.standalone.state import recall
from speaker.system.files import shown
from speaker.tools.validate import foreseen, settled


async def preview(settings: RunSettings, out: TextIO) -> int:
    """Print it; 0, or 1 when the manifests are wrong, or would not count, or a Service is refused.

    Raises as ``run`` does where that could not start: SettingError, EdgeError, Unsupported.
    """
    if settings.peers is not None:
        read_keys(settings.peers.key_file)
    now = clock_gettime(CLOCK_BOOTTIME)
    allocator = recall(settings.state, settings.rest_seconds, now)
    try:
        world = load(settings.directory, named=settings.peers is not None, honoured=settings.honoured).world
        with foreseen(settings.directory):
            _must_count(settings, world, allocator, now)
            snapshot = await look(settings.group.link)
            settlement = settled(allocator, with_own_addresses(world, snapshot.own), now)
            decision = decide(with_former_pools(world, allocator), settlement.assignments, snapshot, settings.node)
            forwarder = await open_forwarder(settings.forwarder, settings.runtime_dir, group=settings.group)
            changes = await forwarder.pending(decision.forwarding)
    except (InvalidManifests, DoubtfulManifests) as error:
        print(error, file=out)
        return 1
    out.writelines(f"{line}\n" for line in _lines(settlement, decision, forwarder.name, changes))
    return 1 if settlement.refusals else 0


def _must_count(settings: RunSettings, world: World, allocator: Allocator, now: float) -> None:
    """Raises DoubtfulManifests where ``run``, started now, would wait for others."""
    directory = settings.directory
    patience = Patience(shown(directory), settings.settle_seconds, bool(allocator.holders))
    if (doubt := patience.doubt(world, mount(directory), now)) is not None:
        raise DoubtfulManifests(doubt.sentence)


def _lines(settlement: Settlement, decision: Decision, forwarder: str, changes: tuple[Change, ...]) -> Iterator[str]:
    for eip in decision.eips.values():
        services = ", ".join(map(str, eip.services))
        match eip:
            case MayHold(link=link):
                yield f"{eip.address}  {services}  (pool {eip.pool}): would be claimed on {link.name}"
            case MayNotHold(message=message):
                yield f"{eip.address}  {services}  (pool {eip.pool}): would not be claimed: {message}"
    for key, refusal in settlement.refusals.items():
        yield f"{key}: refused ({refusal.reason.value}): {refusal.message}"
    yield f"{forwarder}: {len(changes)} changes" if changes else f"{forwarder}: nothing to change"
    yield from (f"  {change}" for change in changes)
