"""A chain and findings as people and machines read them. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from textwrap import shorten, wrap
from typing import Any

from speaker.api.fields import some
from speaker.checks import FEW, KINDS, Finding, Group, groups
from speaker.diagnosis.chain import CONNECTED, Chain, State, Step
from speaker.diagnosis.facts import Unseen
from speaker.diagnosis.together import Whole, broken
from speaker.errors import COLUMNS, folded, shown

LINES = 23
"""Lines of a terminal, without the prompt."""
BRIEF = 8
"""How many kinds of findings get one line, of those not shown in full."""
EXPLAINED = 5
"""How many EIPs are explained in full if many are not well."""
_MEND = "  to mend: "
_MARKS = {State.WELL: "ok", State.BROKEN: "BROKEN", State.UNKNOWN: "?"}


def chain_lines(chain: Chain) -> Iterator[str]:
    """Escapes what is shown: a peer with the key, or a Service's name, must not be able to control the operator's
    terminal."""
    return _in_columns(_of_chain(chain))


def finding_lines(found: Sequence[Group], unseen: Collection[Unseen], *, everything: bool = False) -> Iterator[str]:
    """As above. What fits one screen, or ``everything``."""
    well = () if found else (_nothing("wrong here", unseen),)
    return _listed(found, {}, [*well, *_blind(unseen)], everything=everything)


def _in_columns(lines: Iterable[str]) -> Iterator[str]:
    """No wider than COLUMNS, except for a long word or a command to paste."""
    for line in map(shown, lines):
        yield from _pasted(line) if line.startswith(_MEND) else folded(line)


def _pasted(line: str) -> list[str]:
    """If a command and its comment do not fit on one line, the comment goes below."""
    command, comment, words = line.partition("   # ")
    if not comment or len(line) <= COLUMNS:
        return [line]
    margin = f"{' ' * len(_MEND)}# "
    return [command, *wrap(words, COLUMNS, initial_indent=margin, subsequent_indent=margin, break_long_words=False)]


def _of_chain(chain: Chain) -> Iterator[str]:
    yield from _steps(chain)
    yield ""
    if chain.verdict is None:
        yield f"verdict: {_nothing('broken', chain.unseen, told=not chain.code)}"
    else:
        yield from _in_full("verdict", chain.verdict)
    yield from _blind(chain.unseen)


def _steps(chain: Chain) -> Iterator[str]:
    """With more than FEW EIPs, those that are well are only counted."""
    eips: dict[str, list[Step]] = {}
    for step in chain.steps:
        eips.setdefault(step.name.partition(" of ")[2], []).append(step)
    general = eips.pop("", [])
    well = [eip for eip, steps in eips.items() if all(step.state is State.WELL for step in steps)]
    told = [eip for eip in eips if len(eips) <= FEW or eip not in well]
    yield from _in_lines([*general, *(step for eip in told[:EXPLAINED] for step in eips[eip])], short=len(eips) > FEW)
    if len(told) > EXPLAINED:
        yield f"       and {len(told) - EXPLAINED} more EIPs that are not well: {some(told[EXPLAINED:])}"
    if len(eips) > FEW and well:
        yield f"ok     {len(well)} EIPs with every step well: {some(well)}"


def _in_lines(steps: Iterable[Step], *, short: bool) -> Iterator[str]:
    for step in steps:
        first, *more = step.lines or ("",)
        if short and len(more) > FEW:
            more = [*more[: FEW - 1], f"and {len(more) - FEW + 1} more"]
        yield f"{_MARKS[step.state]:7}{step.name}{': ' if first else ''}{first}"
        yield from (f"       {line}" for line in more)
        yield from (f"       ! {finding.what}" for finding in step.findings)


def _listed(
    found: Sequence[Group], nodes: Mapping[str, Sequence[str]], rest: Sequence[str], *, everything: bool
) -> Iterator[str]:
    """``nodes``: kind → nodes that see it. As many kinds in full as fit one screen, then one line for each of the
    others."""
    if everything:
        yield from _in_columns([*_in_turn([each for group in found for each in group.findings], nodes), *rest])
        return
    told = [each for group in found for each in group.told()]
    rest = rest if len(rest) < FEW else [rest[0], f"and {len(rest) - 1} more that were not seen: --all lists them"]
    lines: list[str] = []
    for full in range(len(told), -1, -1):
        lines = [*_in_columns([*_in_turn(told[:full], nodes), *_in_short(found[full:], full + 1), *rest])]
        if sum(1 + len(line) // COLUMNS for line in lines) <= LINES:
            break
    yield from lines


def _in_turn(findings: Iterable[Finding], nodes: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for number, finding in enumerate(findings, 1):
        yield from _in_full(str(number), finding, nodes.get(finding.kind, ()))
        yield ""


def _in_short(found: Sequence[Group], number: int) -> Iterator[str]:
    """A line each."""
    for at, group in enumerate(found[:BRIEF], number):
        for told in group.told():
            yield shorten(f"{at}: {told.kind}, {group.eips} EIPs: {told.sentence}", COLUMNS, placeholder=" …")
    if len(found) > BRIEF:
        yield f"and {len(found) - BRIEF} more kinds of findings"
    if found:
        yield "All of them in full: speaker doctor --all"


def _in_full(label: str, finding: Finding, nodes: Sequence[str] = ()) -> Iterator[str]:
    """A sentence may say "this node"; ``nodes`` are the nodes that say so."""
    kind = KINDS[finding.kind]
    yield f"{label}: {some(nodes)}{': ' if nodes else ''}{finding.sentence} ({finding.kind})"
    yield f"  why it matters: {kind.why}"
    yield f"{_MEND}{finding.mend}"
    yield f"  more: docs/{kind.docs}"


def _nothing(wrong: str, unseen: Collection[Unseen], *, told: bool = True, seen: str = "this node sees") -> str:
    """Claims that all is well only if everything was seen."""
    if not told:
        return "unknown"
    return f"nothing that was seen is {wrong}" if unseen else f"nothing is {wrong}, as far as {seen}"


def _blind(unseen: Iterable[Unseen]) -> Iterator[str]:
    yield from (f"not seen: {each.what}: {each.why}" for each in unseen)


def chain_json(chain: Chain) -> dict[str, Any]:
    return {
        "about": chain.about,
        "code": chain.code,
        "verdict": finding_json(chain.verdict) if chain.verdict is not None else None,
        "others": [finding_json(finding) for finding in chain.others],
        "steps": [
            {
                "name": step.name,
                "state": step.state.value,
                "lines": list(step.lines),
                "findings": [finding.kind for finding in step.findings],
            }
            for step in chain.steps
        ],
        "unseen": _unseen_json(chain.unseen),
    }


def findings_json(findings: Sequence[Finding], unseen: Iterable[Unseen]) -> dict[str, Any]:
    return {"findings": [finding_json(finding) for finding in findings], "unseen": _unseen_json(unseen)}


def finding_json(finding: Finding) -> dict[str, str]:
    kind = KINDS[finding.kind]
    told = {"kind": finding.kind, "severity": kind.severity, "eip": finding.eip, "what": finding.sentence}
    return told | {"why": kind.why, "mend": finding.mend, "docs": f"docs/{kind.docs}"}


def _unseen_json(unseen: Iterable[Unseen]) -> list[dict[str, str]]:
    return [{"what": each.what, "why": each.why} for each in unseen]


# ── of several nodes ──


def explanation_lines(whole: Whole) -> Iterator[str]:
    """The first node's steps in full, what is broken on the others, and the verdict."""
    return _in_columns(_of_explanation(whole))


def examination_lines(whole: Whole, *, everything: bool = False) -> Iterator[str]:
    nodes: dict[str, dict[str, None]] = {}
    for shared in whole.found:
        nodes.setdefault(shared.finding.kind, {}).update(dict.fromkeys(shared.nodes))
    unseen = [each for part in whole.parts for each in part.unseen]
    well = () if whole.found else (_nothing("wrong", unseen, seen=f"{len(whole.parts)} nodes see"),)
    found = groups((shared.finding for shared in whole.found), whole.eips)
    told = {kind: [*names] for kind, names in nodes.items()}
    return _listed(found, told, [*well, *_silent(whole), *_blind_on(whole)], everything=everything)


def _of_explanation(whole: Whole) -> Iterator[str]:
    for part in whole.parts[:1]:
        if part.chain is not None:
            yield f"as {part.node} sees it{f', which holds {some([*part.held])}' if part.held else ''}:"
            yield from _steps(part.chain)
            yield ""
    for part in whole.parts[1:]:
        named = broken(part)
        yield f"{part.node}: {f'broken: {some(named)}' if named else 'nothing is broken'}"
        yield from (f"       ! {finding.what}" for finding in part.found)
        steps = part.chain.steps if part.chain is not None else ()
        yield from (f"       {line}" for step in steps for line in step.lines if line.startswith(CONNECTED))
    yield from _silent(whole)
    yield ""
    if whole.found:
        yield from _in_full("verdict", whole.found[0].finding, whole.found[0].nodes)
    else:
        unseen = [each for part in whole.parts for each in part.unseen]
        yield f"verdict: {_nothing('broken', unseen, told=not whole.code, seen=f'{len(whole.parts)} nodes see')}"
    yield from _blind_on(whole)


def _silent(whole: Whole) -> Iterator[str]:
    yield from (f"{node}: no answer: {why}" for node, why in whole.silent.items())


def _blind_on(whole: Whole) -> Iterator[str]:
    nodes: dict[Unseen, list[str]] = {}
    for part in whole.parts:
        for each in part.unseen:
            nodes.setdefault(each, []).append(part.node)
    yield from (f"not seen on {some(seen)}: {each.what}: {each.why}" for each, seen in nodes.items())


def whole_json(whole: Whole) -> dict[str, Any]:
    return {
        "code": whole.code,
        "findings": [finding_json(shared.finding) | {"nodes": list(shared.nodes)} for shared in whole.found],
        "nodes": {
            part.node: findings_json(part.found, part.unseen) if part.chain is None else chain_json(part.chain)
            for part in whole.parts
        },
        "silent": dict(whole.silent),
    }
