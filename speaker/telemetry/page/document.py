"""What the page shows: a status in, one JSON document out (docs/page.md). Pure.

A host's comes of what its status file says (``node/status.py``), a controller's of what it decided and of the records
(``controller/published.py``). Where nothing changed it is the same.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from speaker import __version__
from speaker.checks import KINDS
from speaker.telemetry.mqtt.messages import PROBLEMS, SENTENCE, Pools, rfc3339

NAMED = 5
"""Services of one EIP."""
REFUSED = 50
FINDINGS = 20
MAPS = 64
"""/24s of all pools together."""

_UNKNOWN: Mapping[str, float] = {}

Document: TypeAlias = dict[str, Any]
"""Its ``eips`` are by address."""
Seen: TypeAlias = Callable[[str], Mapping[str, Any]]
"""What is known of an EIP besides its status: fields of ``eip``; None where that is not known."""


def document(
    by: str,
    role: str,
    eips: Mapping[str, Mapping[str, Any]],
    pools: Pools,
    failovers: list[dict[str, Any]],
    problems: Collection[str],
    refused: Collection[tuple[str, str, str]],
    nodes: Iterable[str] = (),
) -> Document:
    """``by``: the host or the replica whose page it is; ``eips``: of ``eip``, by address; ``refused``: Service, reason
    and message; ``nodes``: those that live, as far as is known, whether they hold anything or not."""
    held = Counter(dict.fromkeys(nodes, 0))
    held.update(one["holder"] for one in eips.values() if one["holder"])
    return {
        "by": by,
        "role": role,
        "version": __version__,
        "counts": {
            "eips": len(eips),
            "by_nobody": sum(not one["holder"] for one in eips.values()),
            "conflicts": sum("conflict" in one for one in eips.values()),
        },
        "pools": list(_pools(pools)),
        "nodes": [{"node": node, "eips": number} for node, number in sorted(held.items())],
        "failovers": failovers,
        "problems": _first(problems),
        "refused": [
            {"service": service, "reason": reason, "message": message[:SENTENCE]}
            for service, reason, message in sorted(refused)[:REFUSED]
        ],
        "left_out": {"problems": max(0, len(problems) - PROBLEMS), "refused": max(0, len(refused) - REFUSED)},
        "doctor": None,
        "eips": dict(eips),
    }


def examination(at: float, found: Sequence[Mapping[str, str]]) -> Document:
    """What a doctor found. ``at``: seconds since 1970."""
    findings = [
        {name: each[name][:SENTENCE] for name in ("kind", "severity", "eip", "what", "mend", "docs")}
        for each in found[:FINDINGS]
    ]
    return {"at": rfc3339(at), "findings": findings, "left_out": max(0, len(found) - FINDINGS)}


def eip(
    pool: str,
    services: Collection[str],
    holder: str | None,
    since: str = "",
    conflict: str = "",
    message: str = "",
    **seen: Any,
) -> dict[str, Any]:
    """``since``: RFC 3339, '' where that is not known; ``message``: why it is not held where the page is from;
    ``seen``: what else is known of it: ``link``, ``preferred``, ``weights``, ``answering``, ``ready_endpoints``."""
    shown: dict[str, Any] = {"pool": pool, "services": sorted(services)[:NAMED], "holder": holder or ""}
    if len(services) > NAMED:
        shown["more"] = len(services) - NAMED
    sentences = (("since", since[:SENTENCE]), ("conflict", conflict[:SENTENCE]), ("message", message[:SENTENCE]))
    return shown | {name: value for name, value in (*sentences, *seen.items()) if value not in ("", None)}


def of_host(
    node: str,
    status: Mapping[str, Any],
    pools: Pools,
    conflicts: Mapping[str, str],
    failovers: list[dict[str, Any]],
    nodes: Iterable[str],
    silent: Collection[str] = (),
    since: Mapping[str, float] = _UNKNOWN,
    seen: Seen = lambda _: {},
) -> Document:
    """``status``: what the status file says; ``silent``: nodes that were heard lately, and are not now; ``since`` when
    others hold an EIP, in seconds since 1970, where that was seen; ``seen``: what else is known of an EIP."""
    eips = {
        one["address"]: eip(
            one["pool"],
            one["services"],
            one["holder"],
            rfc3339(at) if (at := one.get("since") or since.get(one["address"])) else "",
            conflicts.get(one["address"], ""),
            one.get("message", "") if one["holder"] is None else "",
            link=one.get("link") or (one["holder"] and one.get("message", "")[:SENTENCE]) or None,
            preferred=one.get("preferred", one["holder"]) if "weights" in one else None,
            weights=one.get("weights"),
            **seen(one["address"]),
        )
        for one in status["eips"]
    }
    refused = [(one["service"], one["reason"], one["message"]) for one in status["refused"]]
    found = document(node, "host", eips, pools, failovers, status["problems"], refused, [node, *nodes])
    findings = [
        {
            "kind": one["name"],
            "severity": one["severity"],
            "eips": one["eips"],
            "docs": f"docs/{KINDS[one['name']].docs}",
        }
        for one in status["findings"][:PROBLEMS]
    ]
    missed = [
        {"node": each, "eips": 0, "silent": True}
        for each in sorted({*silent} - {each["node"] for each in found["nodes"]})
    ]
    return found | {"findings": findings, "nodes": [*found["nodes"], *missed]}


def change(before: Document, after: Document) -> Document:
    """All of ``after`` but its EIPs, and those of them that are others; None for one that is gone."""
    was, is_ = before["eips"], after["eips"]
    gone: dict[str, Any] = dict.fromkeys(was.keys() - is_.keys())
    return after | {"eips": gone | {name: one for name, one in is_.items() if was.get(name) != one}}


def _pools(found: Pools) -> Iterator[dict[str, Any]]:
    room = MAPS
    for name, families in sorted(found.items()):
        for family, use in families.items():
            told = {"pool": name, "family": str(family), "size": use.size, "used": use.used, "resting": use.resting}
            if use.places is not None and (blocks := use.places.blocks()):
                maps = dict(map(use.places.map, blocks[:room]))
                told |= {"maps": maps, "left_out": len(blocks) - len(maps)}
                room -= len(maps)
            yield told


def _first(problems: Collection[str]) -> list[str]:
    return [each[:SENTENCE] for each in [*problems][:PROBLEMS]]


# ── The last failovers, those of many EIPs for one cause as one ─────────────────────────────────────────────

MOST = 50
"""That are remembered."""
NAMED_EIPS = 10
"""EIPs of each."""
TOGETHER = 2.0
"""Seconds in which what goes from one node to one other does so for one cause."""


@dataclass(slots=True)
class _Failover:
    at: float
    before: str
    node: str
    eips: list[str] = field(default_factory=list)
    count: int = 0
    least: float = float("inf")
    most: float = 0.0


class Failovers:
    def __init__(self) -> None:
        self._last: deque[_Failover] = deque(maxlen=MOST)
        """The newest first."""

    def add(self, at: float, eip: str, before: str, node: str, unanswered: float) -> None:
        """``node`` answers in place of ``before``, ``unanswered`` seconds after the last sign of that one. ``at``:
        seconds since 1970."""
        found = self._of_one_cause(at, before, node)
        if found is None:
            found = _Failover(at, before, node)
            self._last.appendleft(found)
        found.count += 1
        found.least, found.most = min(found.least, unanswered), max(found.most, unanswered)
        if len(found.eips) < NAMED_EIPS:
            found.eips.append(eip)

    def _of_one_cause(self, at: float, before: str, node: str) -> _Failover | None:
        same = (one for one in self._last if (one.before, one.node) == (before, node))
        found = next(same, None)
        return found if found is not None and abs(at - found.at) <= TOGETHER else None

    def told(self) -> list[dict[str, Any]]:
        """The newest first."""
        return [
            {
                "at": rfc3339(one.at),
                "from": one.before,
                "to": one.node,
                "eips": [*one.eips],
                "count": one.count,
                "unanswered": [one.least, one.most],
            }
            for one in [*self._last]
        ]
