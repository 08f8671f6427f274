"""A chain and findings as people and machines read them. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from speaker.diagnosis.chain import Chain, State
from speaker.diagnosis.facts import Unseen
from speaker.diagnosis.finding import KINDS, Finding
from speaker.diagnosis.words import shown

_MARKS = {State.WELL: "ok", State.BROKEN: "BROKEN", State.UNKNOWN: "?"}


def chain_lines(chain: Chain, unseen: Iterable[Unseen]) -> Iterator[str]:
    """Whoever has the key, or may name a Service, must not be able to speak to the operator's terminal."""
    return map(shown, _of_chain(chain, unseen))


def finding_lines(findings: Sequence[Finding], unseen: Iterable[Unseen]) -> Iterator[str]:
    """As above."""
    return map(shown, _of_findings(findings, unseen))


def _of_chain(chain: Chain, unseen: Iterable[Unseen]) -> Iterator[str]:
    for step in chain.steps:
        first, *more = step.lines or ("",)
        yield f"{_MARKS[step.state]:7}{step.name}{': ' if first else ''}{first}"
        yield from (f"       {line}" for line in more)
        yield from (f"       ! {finding.what}" for finding in step.findings)
    yield ""
    if chain.verdict is None:
        yield "verdict: cannot be told" if chain.code else "verdict: nothing is broken, as far as this node sees"
    else:
        yield from _in_full("verdict", chain.verdict)
    yield from _blind(unseen)


def _of_findings(findings: Sequence[Finding], unseen: Iterable[Unseen]) -> Iterator[str]:
    for number, finding in enumerate(findings, 1):
        yield from _in_full(str(number), finding)
        yield ""
    if not findings:
        yield "nothing is wrong here, as far as this node sees"
    yield from _blind(unseen)


def _in_full(label: str, finding: Finding) -> Iterator[str]:
    kind = KINDS[finding.kind]
    yield f"{label}: {finding.what} ({finding.kind})"
    yield f"  why it matters: {kind.why}"
    yield f"  to mend: {finding.mend}"
    yield f"  more: docs/{kind.docs}"


def _blind(unseen: Iterable[Unseen]) -> Iterator[str]:
    yield from (f"not seen: {each.what}: {each.why}" for each in unseen)


def chain_json(chain: Chain, unseen: Iterable[Unseen]) -> dict[str, Any]:
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
        "unseen": _unseen_json(unseen),
    }


def findings_json(findings: Sequence[Finding], unseen: Iterable[Unseen]) -> dict[str, Any]:
    return {"findings": [finding_json(finding) for finding in findings], "unseen": _unseen_json(unseen)}


def finding_json(finding: Finding) -> dict[str, str]:
    kind = KINDS[finding.kind]
    told = {"kind": finding.kind, "eip": finding.eip, "what": finding.what, "why": kind.why}
    return told | {"mend": finding.mend, "docs": f"docs/{kind.docs}"}


def _unseen_json(unseen: Iterable[Unseen]) -> list[dict[str, str]]:
    return [{"what": each.what, "why": each.why} for each in unseen]
