"""Combines what the nodes of a cluster see: each is judged by its own facts, then they are compared. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from speaker.api.fields import some
from speaker.checks import Finding, ranked
from speaker.diagnosis.chain import Chain, State, findings, unseen
from speaker.diagnosis.chain import explain as explained
from speaker.diagnosis.facts import Facts, Unseen
from speaker.errors import shown

SETTLED = 60.0
"""Seconds for which each of two holders must have held an EIP before both are reported. Nodes are not asked at the same
moment, so an EIP may move between two questions."""


class Part(NamedTuple):
    """What one node sees. ``found`` is in the order to report; ``held`` maps an EIP to the seconds it has been held."""

    node: str
    found: tuple[Finding, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    held: Mapping[str, float] | None = None
    version: str = ""
    chain: Chain | None = None
    """None unless the node was asked to explain."""
    eips: tuple[str, ...] = ()
    """All EIPs that it was asked about."""
    in_use: int = 0


class Shared(NamedTuple):
    """A finding, and the nodes that see it."""

    finding: Finding
    nodes: tuple[str, ...]


class Whole(NamedTuple):
    """``silent``: node → why it did not answer."""

    parts: tuple[Part, ...]
    found: tuple[Shared, ...]
    silent: Mapping[str, str]
    eips: int = 1
    """How many are in use, as far as the nodes know."""

    @property
    def code(self) -> int:
        """0: well; 1: something is wrong; 2: unknown, as a node that might know did not answer."""
        if self.found:
            return 1
        first = self.parts[0] if self.parts else Part("")
        if first.chain is not None and first.held:
            return first.chain.code  # the holder knows
        unsure = any(part.chain is not None and part.chain.code for part in self.parts)
        return 2 if unsure or self.silent or not self.parts else 0


def explaining(node: str, facts: Facts) -> Part:
    chain = explained(facts)
    found = (chain.verdict, *chain.others) if chain.verdict is not None else ()
    return _part(node, facts, found, chain)


def examining(node: str, facts: Facts) -> Part:
    return _part(node, facts, tuple(findings(facts)))


def _part(node: str, facts: Facts, found: tuple[Finding, ...], chain: Chain | None = None) -> Part:
    eips = facts.knowledge.eips.first
    held = {eip.address: facts.now - eip.since for eip in eips if eip.mine and eip.since is not None}
    dark = chain.unseen if chain is not None else unseen(facts)
    addresses = tuple(eip.address for eip in eips)
    return Part(node, found, dark, held, facts.version, chain, addresses, len(facts.knowledge.eips))


def explanation(parts: Sequence[Part], silent: Mapping[str, str], beyond: Sequence[Finding] = ()) -> Whole:
    """The holder's findings come first, then the first broken step of any node. ``beyond``: findings that no node makes
    by itself, about any EIP."""
    ordered = sorted(parts, key=lambda part: (not part.held, part.node))
    places = _places(ordered)
    explained = {eip for part in ordered for eip in part.eips}
    of_these = [Shared(finding, ()) for finding in beyond if finding.eip in explained]
    found = [*of_these, *_across(ordered, versions=False), *_shared(ordered)]
    return Whole(tuple(ordered), tuple(sorted(found, key=lambda one: places.get(one.finding, _FIRST))), silent)


_FIRST = False, -1


def _places(parts: Sequence[Part]) -> dict[Finding, tuple[bool, int]]:
    """Finding → whether no holder reports it, and the first step that it breaks."""
    places: dict[Finding, tuple[bool, int]] = {}
    order = {name: at for at, name in enumerate(_steps(parts))}
    for part in parts:
        for step in part.chain.steps if part.chain is not None else ():
            for finding in step.findings:
                place = not part.held, order[step.name]
                places[finding] = min(place, places.get(finding, place))
    return places


def _steps(parts: Sequence[Part]) -> Iterator[str]:
    """In the order of the longest chain: a node whose chain ends early says little about the order."""
    chains = sorted((part.chain for part in parts if part.chain is not None), key=lambda chain: -len(chain.steps))
    yield from dict.fromkeys(step.name for chain in chains for step in chain.steps)


def examination(parts: Sequence[Part], silent: Mapping[str, str], beyond: Sequence[Finding] = ()) -> Whole:
    """The likeliest cause first. ``beyond`` as in ``explanation``."""
    ordered = sorted(parts, key=lambda part: part.node)
    of_all = [Shared(finding, ()) for finding in beyond]
    shared = {one.finding: one for one in [*of_all, *_across(ordered, versions=True), *_shared(ordered)]}
    eips = max((part.in_use for part in parts), default=0) or 1
    return Whole(tuple(ordered), tuple(shared[finding] for finding in ranked(shared, eips)), silent, eips)


def _shared(parts: Sequence[Part]) -> Iterator[Shared]:
    nodes: dict[Finding, dict[str, None]] = {}
    for part in parts:
        for finding in part.found:
            nodes.setdefault(finding, {})[part.node] = None
    yield from (Shared(finding, tuple(seen)) for finding, seen in nodes.items())


def _across(parts: Sequence[Part], *, versions: bool) -> Iterator[Shared]:
    """Findings that no node can see by itself."""
    for eip in dict.fromkeys(chain.from_iterable(part.held or () for part in parts)):
        holders = [part.node for part in parts if (part.held or {}).get(eip, 0.0) > SETTLED]
        if len(holders) > 1:
            what = f"{' and '.join(map(shown, holders))} each hold {eip}: do they hear each other?"
            yield Shared(Finding("two_holders", what, f"speaker explain {eip}   # on either", eip), tuple(holders))
    releases: dict[str, list[str]] = {}
    for part in parts:
        releases.setdefault(part.version, []).append(shown(part.node))
    if versions and len(releases) > 1:
        told = "; ".join(f"{shown(release) or 'unknown'} on {some(nodes)}" for release, nodes in releases.items())
        mend = "kubectl -n eip-speaker-agents rollout status daemonset eip-speaker-agent"
        yield Shared(Finding("versions_apart", f"nodes run different releases: {told}", mend), ())


def broken(part: Part) -> list[str]:
    """The names of the steps that are broken."""
    return [step.name for step in part.chain.steps if step.state is State.BROKEN] if part.chain is not None else []
