"""``speaker plan NOW THEN``: what would change for each Service if the files in THEN replaced those in NOW; and
``speaker run --dry-run``: what this node would do with these manifests.

It uses the decisions of a running speaker, and the memory of one. Nothing is written, and ``plan`` asks no kernel.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from time import CLOCK_BOOTTIME, clock_gettime
from typing import NamedTuple, TextIO

from speaker.allocator.assign import Allocator
from speaker.allocator.settle import Settlement, with_former_pools, with_own_addresses
from speaker.errors import DoubtfulManifests, EdgeError, InvalidManifests, SettingError
from speaker.forwarding.changes import Change, diff
from speaker.forwarding.forwarder import open_forwarder
from speaker.forwarding.plan import Plan
from speaker.interfaces.snapshot import Snapshot
from speaker.interfaces.watcher import look
from speaker.model import ServiceKey, TrafficPolicy, World
from speaker.node.decide import Decision, MayHold, MayNotHold, decide
from speaker.ownership.hellos.keyfile import read_keys
from speaker.ownership.preference import described
from speaker.settings import DEFAULT_REST, Node, RunSettings, parse_balancers
from speaker.standalone.manifests import Patience, load, mount
from speaker.standalone.state import recall
from speaker.system.files import shown
from speaker.tools.terminal import write
from speaker.tools.validate import Fate, addresses_here, foreseen, settled


class Changed(NamedTuple):
    """What one Service has before and after; None if it does not exist."""

    service: ServiceKey
    before: Fate | None
    after: Fate | None


class Planned(NamedTuple):
    """``forwarding``: what a speaker that forwards would do for all EIPs, whichever host holds them."""

    services: tuple[Changed, ...]
    forwarding: tuple[Change, ...]

    @property
    def empty(self) -> bool:
        return not self.services and not self.forwarding


def foresee(allocator: Allocator, before: World, after: World, now: float) -> Planned:
    """``allocator``: with the speaker's memory. It is settled for both worlds, one after the other."""
    fates, plan = _came_to(allocator, before, now)
    later, later_plan = _came_to(allocator, after, now)
    keys = sorted(fates.keys() | later.keys())
    changed = (Changed(key, fates.get(key), later.get(key)) for key in keys)
    return Planned(tuple(each for each in changed if each.before != each.after), diff(plan, later_plan))


def drained(world: World, nodes: frozenset[str]) -> World:
    """Without the pods of these nodes, before other pods have replaced them."""
    left = {key: tuple(each for each in found if each.node not in nodes) for key, found in world.endpoints.items()}
    return replace(world, endpoints=left)


def _came_to(allocator: Allocator, world: World, now: float) -> tuple[Mapping[ServiceKey, Fate], Plan]:
    settlement = settled(allocator, world, now)
    fates = {key: _fate(world, key, settlement) for key in world.services}
    decision = decide(with_former_pools(world, allocator), settlement.assignments, Snapshot({}), Node("plan"))
    return fates, decision.forwarding


def _fate(world: World, key: ServiceKey, settlement: Settlement) -> Fate:
    nodes = None
    if world.services[key].traffic_policy is TrafficPolicy.LOCAL:
        nodes = tuple(sorted({each.node for each in world.endpoints.get(key, ()) if each.ready and each.node}))
    has = settlement.assignments.get(key)
    pools = [world.pools.get(pool) for pool in dict.fromkeys(has.pools)] if has is not None else []
    preferred = (described(pool, [world.services[key]]) for pool in pools)
    return Fate.of(key, settlement, nodes, " and ".join(dict.fromkeys(filter(None, preferred))))


# ── The command ───────────────────────────────────────────────────────────────────────────────────────────────


def command(args: argparse.Namespace) -> int:
    return tell(partial(_of_files, args), sys.stdout, sys.stderr, as_json=args.json)


def _of_files(args: argparse.Namespace) -> Planned:
    if args.now is None or args.then is None:
        raise SettingError("plan: needs two directories, NOW and THEN, or --cluster")
    for flag in ("kubeconfig", "context", "default_class"):
        if getattr(args, flag):
            raise SettingError(f"--{flag.replace('_', '-')}: goes with --cluster")
    honoured, clock = parse_balancers(args.honour_annotations), clock_gettime(CLOCK_BOOTTIME)
    allocator = recall(args.state, DEFAULT_REST, clock)
    own = addresses_here()
    readings = (load(directory, honoured=honoured) for directory in (args.now, args.then))
    before, after = (with_own_addresses(reading.world, own) for reading in readings)
    with foreseen(args.then):
        return foresee(allocator, before, drained(after, frozenset(args.drain)), clock)


def tell(find: Callable[[], Planned], out: TextIO, err: TextIO, *, as_json: bool) -> int:
    """Returns 0 if nothing changes, 1 if something does, 2 if manifests, state or cluster cannot be read."""
    try:
        found = find()
    except (InvalidManifests, EdgeError) as error:
        err.write(f"{error}\n")
        return 2
    write(out, [json.dumps(_json(found))] if as_json else _lines(found))
    return 0 if found.empty else 1


def _lines(found: Planned) -> Iterator[str]:
    for each in found.services:
        yield f"Service/{each.service}: {_words(each.before)} -> {_words(each.after)}"
    if found.forwarding:
        yield f"forwarding, where the speaker does it: {len(found.forwarding)} changes"
        yield from (f"  {change}" for change in found.forwarding)
    if found.empty:
        yield "nothing changes"


def _words(fate: Fate | None) -> str:
    if fate is None:
        return "no such Service"
    parts = [*fate.given(), *([fate.refused] if fate.refusal else ())]
    if fate.nodes is not None:
        parts.append(f"answered for by {', '.join(fate.nodes) or 'no node, as none has a ready endpoint'}")
    if fate.preferred:
        parts.append(f"prefers nodes by {fate.preferred}")
    return "; ".join(parts) or "nothing"


def _json(found: Planned) -> dict[str, object]:
    return {
        "changes": not found.empty,
        "services": {
            str(each.service): {"before": _json_fate(each.before), "after": _json_fate(each.after)}
            for each in found.services
        },
        "forwarding": [str(change) for change in found.forwarding],
    }


def _json_fate(fate: Fate | None) -> dict[str, object] | None:
    if fate is None:
        return None
    flagged = sorted(map(str, fate.assignment.flagged)) if fate.assignment else []
    nodes = {} if fate.nodes is None else {"nodes": list(fate.nodes)}
    preferred = {"preferred": fate.preferred} if fate.preferred else {}
    return {**fate.as_json(), "flagged": flagged, **nodes, **preferred}


# ── speaker run --dry-run ──────────────────────────────────────────────────────────────────────────────────────


async def preview(settings: RunSettings, out: TextIO) -> int:
    """Prints the plan. Returns 0, or 1 if the manifests are wrong, would be doubted, or a Service is refused.

    Raises like ``run`` if that could not start: SettingError, EdgeError, Unsupported.
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
    out.writelines(f"{line}\n" for line in _would(settlement, decision, forwarder.name, changes))
    return 1 if settlement.refusals else 0


def _must_count(settings: RunSettings, world: World, allocator: Allocator, now: float) -> None:
    """Raises DoubtfulManifests if ``run``, started now, would first wait for better ones."""
    directory = settings.directory
    patience = Patience(shown(directory), settings.settle_seconds, bool(allocator.holders))
    if (doubt := patience.doubt(world, mount(directory), now)) is not None:
        raise DoubtfulManifests(doubt.sentence)


def _would(settlement: Settlement, decision: Decision, forwarder: str, changes: tuple[Change, ...]) -> Iterator[str]:
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
