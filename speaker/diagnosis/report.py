"""A chain and findings as people and machines read them. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from speaker.checks import KINDS, Finding, summed
from speaker.diagnosis.chain import CONNECTED, Chain, State
from speaker.diagnosis.facts import Unseen
from speaker.diagnosis.together import Whole, broken
from speaker.diagnosis.words import some
from speaker.errors import shown

_MARKS = {State.WELL: "ok", State.BROKEN: "BROKEN", State.UNKNOWN: "?"}


def chain_lines(chain: Chain) -> Iterator[str]:
    """Whoever has the key, or may name a Service, must not be able to speak to the operator's terminal."""
    return map(shown, _of_chain(chain))


def finding_lines(findings: Sequence[Finding], unseen: Collection[Unseen]) -> Iterator[str]:
    """As above."""
    return map(shown, _of_findings(findings, unseen))


def _of_chain(chain: Chain) -> Iterator[str]:
    yield from _steps(chain)
    yield ""
    if chain.verdict is None:
        yield f"verdict: {_nothing('broken', chain.unseen, told=not chain.code)}"
    else:
        yield from _in_full("verdict", chain.verdict)
    yield from _blind(chain.unseen)


def _steps(chain: Chain) -> Iterator[str]:
    for step in chain.steps:
        first, *more = step.lines or ("",)
        yield f"{_MARKS[step.state]:7}{step.name}{': ' if first else ''}{first}"
        yield from (f"       {line}" for line in more)
        yield from (f"       ! {finding.what}" for finding in step.findings)


def _of_findings(findings: Sequence[Finding], unseen: Collection[Unseen]) -> Iterator[str]:
    for number, (finding, more) in enumerate(summed(findings), 1):
        yield from _in_full(str(number), finding)
        yield from _more(more)
        yield ""
    if not findings:
        yield _nothing("wrong here", unseen)
    yield from _blind(unseen)


def _more(alike: Sequence[Finding]) -> Iterator[str]:
    if alike:
        eips = some([each.eip for each in alike if each.eip])
        yield f"  and {len(alike)} more of this kind{f', of {eips}' if eips else ''}: --json has them all"


def _in_full(label: str, finding: Finding, nodes: Sequence[str] = ()) -> Iterator[str]:
    """A sentence may say "this node": ``nodes`` are those that say it."""
    kind = KINDS[finding.kind]
    yield f"{label}: {some(nodes)}{': ' if nodes else ''}{finding.what} ({finding.kind})"
    yield f"  why it matters: {kind.why}"
    yield f"  to mend: {finding.mend}"
    yield f"  more: docs/{kind.docs}"


def _nothing(wrong: str, unseen: Collection[Unseen], *, told: bool = True, seen: str = "this node sees") -> str:
    """That all is well is said only where everything was seen."""
    if not told:
        return "cannot be told"
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
    told = {"kind": finding.kind, "severity": kind.severity, "eip": finding.eip, "what": finding.what, "why": kind.why}
    return told | {"mend": finding.mend, "docs": f"docs/{kind.docs}"}


def _unseen_json(unseen: Iterable[Unseen]) -> list[dict[str, str]]:
    return [{"what": each.what, "why": each.why} for each in unseen]


# ── of several nodes ──


def explanation_lines(whole: Whole) -> Iterator[str]:
    """The first node's whole walk, what is broken on others, and the verdict."""
    return map(shown, _of_explanation(whole))


def examination_lines(whole: Whole) -> Iterator[str]:
    return map(shown, _of_examination(whole))


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


def _of_examination(whole: Whole) -> Iterator[str]:
    nodes = {shared.finding: shared.nodes for shared in whole.found}
    for number, (finding, more) in enumerate(summed([*nodes]), 1):
        yield from _in_full(str(number), finding, nodes[finding])
        yield from _more(more)
        yield ""
    if not whole.found:
        yield _nothing("wrong", [e for part in whole.parts for e in part.unseen], seen=f"{len(whole.parts)} nodes see")
    yield from _silent(whole)
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
