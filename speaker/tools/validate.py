"""``speaker validate DIR``: every mistake in the manifests, or what they would come to."""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from speaker.allocator.assign import Allocator
from speaker.allocator.pools import offers
from speaker.allocator.settle import Settlement, with_own_addresses
from speaker.api.reading import Notice, Reading
from speaker.errors import EdgeError, InvalidField, InvalidManifests, Place
from speaker.interfaces.watcher import look
from speaker.model import Family, IPAddress, Pool, ServiceKey
from speaker.standalone.manifests import load
from speaker.tools.following import following
from speaker.tools.rehearsal import foreseen, rehearse, settled


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
) -> int:
    """Writes a line for each problem, or a summary; returns 0 where there is no problem and 1 otherwise.

    ``as_json``: one object ``{"ok", "problems", "notices", "pools", "services"}`` instead. What the Services get is
    what a speaker without a memory would give them; one that runs keeps what it gave. ``with_peers``: every Service
    must name its addresses. ``own``: as ``addresses_here``, which no Service gets; a pool that holds any is told.
    """
    addresses = own()
    try:
        reading = load(directory, named=with_peers)
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
        _write(out, [following("run", str(directory), *["--with-peers"] * with_peers, "--dry-run")])
    return 0


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
    yield f"ok: pools {len(world.pools)}, Services {len(world.services)}, endpoints {endpoints}"
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
        "ok": True,
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
