"""Works out what a running speaker would do with manifests, without doing it, up to the form that the kernel would get.

``validate`` and ``run --dry-run`` use it, so nothing is accepted that a speaker would fail on.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from traceback import extract_tb
from typing import NamedTuple, TextIO

from speaker.allocator.assign import Allocator
from speaker.allocator.pools import offers
from speaker.allocator.refusals import Refusal
from speaker.allocator.settle import Settlement, settle, with_own_addresses
from speaker.api.eip import parse_interface
from speaker.api.reading import Notice, Reading
from speaker.errors import EdgeError, InvalidField, InvalidManifests, Place, SpeakerError
from speaker.forwarding.changes import diff
from speaker.forwarding.nftables import ruleset
from speaker.forwarding.nftables.ruleset import approximations, expressible, forwarder_ruleset, guard_ruleset
from speaker.forwarding.plan import EMPTY
from speaker.interfaces.resolve import Unresolved, resolve
from speaker.interfaces.snapshot import Snapshot
from speaker.interfaces.watcher import look
from speaker.model import Assignment, Balancer, Family, IPAddress, OwnSubnet, Pool, ServiceKey, World
from speaker.node.decide import decide
from speaker.settings import Node, parse_balancers
from speaker.standalone.manifests import load
from speaker.system.files import shown
from speaker.tools.terminal import following, write


def settled(allocator: Allocator, world: World, now: float) -> Settlement:
    """Like ``settle``, but raises the errors for which a running speaker would set a Service aside."""
    settlement = settle(allocator, world, now)
    for error in settlement.failed.values():
        raise error
    return settlement


class Fate(NamedTuple):
    """What a Service has and what it lacks. ``nodes``: with ``externalTrafficPolicy: Local``, the nodes that may
    answer."""

    assignment: Assignment | None
    refusal: Refusal | None
    nodes: tuple[str, ...] | None = None
    preferred: str = ""
    """The preferred ones of these nodes, in words."""

    @classmethod
    def of(
        cls, key: ServiceKey, settlement: Settlement, nodes: tuple[str, ...] | None = None, preferred: str = ""
    ) -> "Fate":
        return cls(settlement.assignments.get(key), settlement.refusals.get(key), nodes, preferred)

    def given(self) -> Iterator[str]:
        """Each address, in words."""
        if (has := self.assignment) is not None:
            for address, pool in zip(has.addresses, has.pools, strict=True):
                yield f"{address} from {pool}{' (which no longer offers it)' if address in has.flagged else ''}"

    @property
    def refused(self) -> str:
        return f"refused ({self.refusal.reason.value}): {self.refusal.message}" if self.refusal else ""

    def as_json(self) -> dict[str, object]:
        has, refusal = self.assignment, self.refusal
        return {
            "addresses": [str(address) for address in has.addresses] if has else [],
            "pools": list(has.pools) if has else [],
            "refused": refusal.reason.value if refusal else None,
            "message": refusal.message if refusal else None,
        }


def rehearse(world: World, settlement: Settlement) -> None:
    """Decides for a host without any link, as links are not in the manifests."""
    decision = decide(world, settlement.assignments, Snapshot({}), Node("rehearsal"))
    plan = expressible(decision.forwarding)
    for made in (forwarder_ruleset(plan), guard_ruleset(plan)):
        ruleset.rebuild_script(made)
    diff(EMPTY, plan)
    approximations(plan)


@contextmanager
def foreseen(directory: Path) -> Iterator[None]:
    """Turns an unexpected error, which a running speaker would meet as well, into a mistake of these manifests.

    Raises InvalidManifests, which says what it was and where.
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
    """This host's own addresses, and the link that each is bound on; none if the kernel does not say."""
    try:
        return asyncio.run(look()).own
    except EdgeError:
        return {}


def cannot_hold(address: IPAddress, interface: str) -> str:
    """Why this host has no link for ``address``; '' if it has one, or the kernel does not say."""
    with suppress(EdgeError):
        found = resolve(parse_interface(interface) if interface else OwnSubnet(), address, asyncio.run(look()))
        return found.message if isinstance(found, Unresolved) else ""
    return ""


def command(args: argparse.Namespace) -> int:
    honoured = parse_balancers(args.honour_annotations)
    return validate(args.directory, sys.stdout, args.json, args.with_peers, addresses_here, honoured)


def validate(
    directory: Path,
    out: TextIO,
    as_json: bool,
    with_peers: bool = False,
    own: Callable[[], Mapping[IPAddress, str]] = dict,
    honoured: Collection[Balancer] = (),
) -> int:
    """Writes a line for each problem, or a summary. Returns 0 if there is no problem, and 1 if there is one or a
    Service is refused.

    ``as_json``: one object ``{"ok", "problems", "notices", "pools", "services"}`` instead. Services get what a speaker
    without a memory would give them; a running one keeps what it gave. ``with_peers``: every Service must name its
    addresses. ``honoured``: other balancers whose annotations count. ``own``: see ``addresses_here``; no Service gets
    these, and a pool that contains any is named.
    """
    addresses = own()
    try:
        reading = load(directory, named=with_peers, honoured=honoured)
        with foreseen(directory):
            settlement = settled(Allocator(), with_own_addresses(reading.world, addresses), 0.0)
            rehearse(reading.world, settlement)
    except InvalidManifests as error:
        write(out, [json.dumps(json_problems(error.problems), default=repr)] if as_json else map(str, error.problems))
        return 1
    reading = reading._replace(notices=(*reading.notices, *_held_by_this_host(reading.world.pools.values(), addresses)))
    if as_json:
        write(out, [json.dumps(_json_summary(reading, settlement), default=repr)])
    else:
        write(out, _summary(reading, settlement))
        flags = [
            *["--with-peers"] * with_peers,
            *([f"--honour-annotations={','.join(sorted(honoured))}"] if honoured else ()),
        ]
        write(out, [following("run", str(directory), *flags, "--dry-run")])
    return 1 if settlement.refusals else 0


def _held_by_this_host(pools: Iterable[Pool], own: Mapping[IPAddress, str]) -> Iterator[Notice]:
    for pool in pools:
        offered = offers(pool)
        held = [f"{eip} ({link})" for eip, link in own.items() if int(eip) in offered.get(Family.of(eip), ())]
        if held:
            named = ", ".join(sorted(held))
            sentence = f"contains this host's own {named}: exclude it, because no Service gets it here"
            yield Notice(Place(), f"Eip/{pool.name}", sentence)


def _summary(reading: Reading, settlement: Settlement) -> Iterator[str]:
    world = reading.world
    yield from (f"note: {notice}" for notice in reading.notices)
    endpoints = sum(map(len, world.endpoints.values()))
    verdict = f"{len(settlement.refusals)} refused" if settlement.refusals else "ok"
    yield f"{verdict}: pools {len(world.pools)}, Services {len(world.services)}, endpoints {endpoints}"
    for pool in world.pools.values():
        sizes = " and ".join(f"{size} {family}" for family, size in _sizes(pool).items())
        yield f"Eip/{pool.name}: {sizes or 'no'} addresses{', disabled' if pool.disabled else ''}"
    for key in world.services:
        fate = Fate.of(key, settlement)
        yield f"Service/{key}: {'; '.join(part for part in (', '.join(fate.given()), fate.refused) if part)}"


def _sizes(pool: Pool) -> Mapping[str, int]:
    return {family.value: offer.size for family, offer in offers(pool).items()}


def _at(place: Place) -> dict[str, object]:
    return {"file": place.file, "line": place.line}


def json_problems(problems: Iterable[InvalidField]) -> dict[str, object]:
    found = [
        {**_at(each.place), "subject": each.subject, "field": each.path, "value": each.value, "rule": each.rule}
        for each in problems
    ]
    return {"ok": False, "problems": found}


def _json_summary(reading: Reading, settlement: Settlement) -> dict[str, object]:
    notices = [{**_at(each.place), "subject": each.subject, "sentence": each.sentence} for each in reading.notices]
    return {
        "ok": not settlement.refusals,
        "problems": [],
        "notices": notices,
        "pools": {pool.name: _sizes(pool) for pool in reading.world.pools.values()},
        "services": {str(key): Fate.of(key, settlement).as_json() for key in reading.world.services},
    }
