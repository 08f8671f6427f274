"""What a running speaker would do with manifests, short of doing it: decide, and write it down for the kernel.

``validate`` and ``run --dry-run`` go through it, so that nothing is called right over which a speaker would stumble.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from traceback import extract_tb
from typing import TextIO

from speaker.allocator.assign import Allocator
from speaker.allocator.pools import offers
from speaker.allocator.settle import Settlement, settle, with_own_addresses
from speaker.api.reading import Notice, Reading
from speaker.errors import EdgeError, InvalidField, InvalidManifests, Place, SpeakerError
from speaker.forwarding import iptables
from speaker.forwarding.changes import diff
from speaker.forwarding.nftables.ruleset import approximations, expressible, forwarder_ruleset, guard_ruleset
from speaker.forwarding.nftables.script import rebuild_script
from speaker.forwarding.plan import EMPTY
from speaker.interfaces.snapshot import Snapshot
from speaker.interfaces.watcher import look
from speaker.model import Balancer, Family, IPAddress, Pool, ServiceKey, World
from speaker.node.decide import decide
from speaker.settings import Node
from speaker.standalone.manifests import load
from speaker.system.files import shown
from speaker.tools.terminal import following


def settled(allocator: Allocator, world: World, now: float) -> Settlement:
    """As ``settle``; raises what a running speaker would set a Service aside for."""
    settlement = settle(allocator, world, now)
    for error in settlement.failed.values():
        raise error
    return settlement


def rehearse(world: World, settlement: Settlement) -> None:
    """On a host without any link: what is decided of those is not in the manifests."""
    decision = decide(world, settlement.assignments, Snapshot({}), Node("rehearsal"))
    plan = expressible(decision.forwarding)
    for ruleset in (forwarder_ruleset(plan), guard_ruleset(plan)):
        rebuild_script(ruleset)
    for version in (4, 6):
        iptables.script("", plan, version)
    diff(EMPTY, plan)
    approximations(plan)


@contextmanager
def foreseen(directory: Path) -> Iterator[None]:
    """What nobody foresaw, which a running speaker would come upon as well, is a mistake of these manifests.

    Raises InvalidManifests with what it was and where.
    """
    try:
        yield
    except SpeakerError:
        raise
    except Exception as error:
        at = extract_tb(error.__traceback__)[-1]
        where = f"{Path(at.filename).name}:{at.lineno}"
        rule = f"a running speaker would fail on these manifests: {error} ({where}), which is a bug in the speaker"
        raise InvalidManifests(
            (InvalidField("", type(error).__name__, rule, place=Place(shown(directory))),)
        ) from error


# ── The command ─────────────────────────────────────────────────────────────────────────────────────────────


def addresses_here() -> Mapping[IPAddress, str]:
    """This host's own, and the link that each is bound on; none where the kernel does not say."""
    try:
        return asyncio.run(look()).own
    except EdgeError:
        return {}


def validate(
    directory: Path,
    out: TextIO,
    as_json: bool,
    with_peers: bool = False,
    own: Callable[[], Mapping[IPAddress, str]] = dict,
    honoured: Collection[Balancer] = (),
) -> int:
    """Writes a line for each problem, or a summary; returns 0 where there is no problem, and 1 where there is, or where
    a Service is refused.

    ``as_json``: one object ``{"ok", "problems", "notices", "pools", "services"}`` instead. What the Services get is
    what a speaker without a memory would give them; one that runs keeps what it gave. ``with_peers``: every Service
    must name its addresses. ``honoured``: other balancers whose annotations count.
    ``own``: as ``addresses_here``, which no Service gets; a pool that holds any is told.
    """
    addresses = own()
    try:
        reading = load(directory, named=with_peers, honoured=honoured)
        with foreseen(directory):
            settlement = settled(Allocator(), with_own_addresses(reading.world, addresses), 0.0)
            rehearse(reading.world, settlement)
    except InvalidManifests as error:
        _write(out, _json_problems(error.problems) if as_json else map(str, error.problems))
        return 1
    reading = replace(reading, notices=(*reading.notices, *_held_by_this_host(reading.world.pools.values(), addresses)))
    if as_json:
        _write(out, _json_summary(reading, settlement))
    else:
        _write(out, _summary(reading, settlement))
        flags = [*["--with-peers"] * with_peers, *([f"--honour-annotations={','.join(honoured)}"] if honoured else ())]
        _write(out, [following("run", str(directory), *flags, "--dry-run")])
    return 1 if settlement.refusals else 0


def _held_by_this_host(pools: Iterable[Pool], own: Mapping[IPAddress, str]) -> Iterator[Notice]:
    for pool in pools:
        offered = offers(pool)
        held = sorted(
            (
                f"{address} ({link})"
                for address, link in own.items()
                if int(address) in offered.get(Family.of(address), ())
            )
        )
        if held:
            sentence = f"holds this host's own {', '.join(held)}: exclude what is a host's; no Service gets it here"
            yield Notice(Place(), f"Eip/{pool.name}", sentence)


def _write(out: TextIO, told: dict[str, object] | Iterable[str]) -> None:
    lines = [json.dumps(told, default=repr)] if isinstance(told, dict) else told
    out.writelines(f"{line}\n" for line in lines)


def _summary(reading: Reading, settlement: Settlement) -> Iterator[str]:
    world = reading.world
    yield from (f"note: {notice}" for notice in reading.notices)
    endpoints = sum(map(len, world.endpoints.values()))
    told = f"{len(settlement.refusals)} refused" if settlement.refusals else "ok"
    yield f"{told}: pools {len(world.pools)}, Services {len(world.services)}, endpoints {endpoints}"
    for pool in world.pools.values():
        sizes = " and ".join(f"{size} {family}" for family, size in _sizes(pool).items())
        yield f"Eip/{pool.name}: {sizes or 'no'} addresses{', disabled' if pool.disabled else ''}"
    for key in world.services:
        yield f"Service/{key}: {'; '.join(_fate(key, settlement))}"


def _fate(key: ServiceKey, settlement: Settlement) -> Iterator[str]:
    """What a Service gets and what it is refused: at least one of them."""
    if (assignment := settlement.assignments.get(key)) is not None:
        given = zip(assignment.addresses, assignment.pools, strict=True)
        yield ", ".join(f"{address} from {pool}" for address, pool in given)
    if (refusal := settlement.refusals.get(key)) is not None:
        yield f"refused ({refusal.reason.value}): {refusal.message}"


def _sizes(pool: Pool) -> Mapping[str, int]:
    return {family.value: offer.size for family, offer in offers(pool).items()}


def _json_problems(problems: tuple[InvalidField, ...]) -> dict[str, object]:
    return {
        "ok": False,
        "problems": [
            {
                "file": problem.place.file,
                "line": problem.place.line,
                "subject": problem.subject,
                "field": problem.path,
                "value": problem.value,
                "rule": problem.rule,
            }
            for problem in problems
        ],
    }


def _json_summary(reading: Reading, settlement: Settlement) -> dict[str, object]:
    return {
        "ok": not settlement.refusals,
        "problems": [],
        "notices": [
            {"file": n.place.file, "line": n.place.line, "subject": n.subject, "sentence": n.sentence}
            for n in reading.notices
        ],
        "pools": {pool.name: _sizes(pool) for pool in reading.world.pools.values()},
        "services": {str(key): _json_fate(key, settlement) for key in reading.world.services},
    }


def _json_fate(key: ServiceKey, settlement: Settlement) -> dict[str, object]:
    assignment, refusal = settlement.assignments.get(key), settlement.refusals.get(key)
    return {
        "addresses": [str(address) for address in assignment.addresses] if assignment else [],
        "pools": list(assignment.pools) if assignment else [],
        "refused": refusal.reason.value if refusal else None,
        "message": refusal.message if refusal else None,
    }
