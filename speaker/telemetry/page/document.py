"""What the page shows: a status in, one JSON document out (docs/page.md). Pure.

A host's comes of what its status file says (``node/status.py``), a controller's of what it decided and of the records
(``controller/published.py``). Where nothing changed it is the same.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from speaker import __version__
from speaker.telemetry.mqtt.states import PROBLEMS, SENTENCE, Pools, rfc3339

NAMED = 5
"""Services of one EIP."""
REFUSED = 50
FINDINGS = 20

Document: TypeAlias = dict[str, Any]
"""Its ``eips`` are by address."""


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
        {name: each[name][:SENTENCE] for name in ("kind", "eip", "what", "mend", "docs")} for each in found[:FINDINGS]
    ]
    return {"at": rfc3339(at), "findings": findings, "left_out": max(0, len(found) - FINDINGS)}


def eip(
    pool: str, services: Collection[str], holder: str | None, since: str = "", conflict: str = "", message: str = ""
) -> dict[str, Any]:
    """``since``: RFC 3339, '' where that is not known; ``message``: why it is not held where the page is from."""
    told: dict[str, Any] = {"pool": pool, "services": sorted(services)[:NAMED], "holder": holder or ""}
    if len(services) > NAMED:
        told["more"] = len(services) - NAMED
    return told | {
        name: value[:SENTENCE]
        for name, value in (("since", since), ("conflict", conflict), ("message", message))
        if value
    }


def of_host(
    node: str,
    told: Mapping[str, Any],
    pools: Pools,
    conflicts: Mapping[str, str],
    failovers: list[dict[str, Any]],
    nodes: Iterable[str],
) -> Document:
    """``told``: what the status file says."""
    eips = {
        one["address"]: eip(
            one["pool"],
            one["services"],
            one["holder"],
            rfc3339(one["since"]) if "since" in one else "",
            conflicts.get(one["address"], ""),
            one.get("message", "") if one["holder"] is None else "",
        )
        for one in told["eips"]
    }
    refused = [(one["service"], one["reason"], one["message"]) for one in told["refused"]]
    return document(node, "host", eips, pools, failovers, told["problems"], refused, [node, *nodes])


def change(before: Document, after: Document) -> Document:
    """All of ``after`` but its EIPs, and those of them that are others; None for one that is gone."""
    was, is_ = before["eips"], after["eips"]
    gone: dict[str, Any] = dict.fromkeys(was.keys() - is_.keys())
    return after | {"eips": gone | {name: one for name, one in is_.items() if was.get(name) != one}}


def _pools(found: Pools) -> Iterator[dict[str, Any]]:
    for name, families in sorted(found.items()):
        for family, use in families.items():
            yield {"pool": name, "family": str(family), "size": use.size, "used": use.used, "resting": use.resting}


def _first(problems: Collection[str]) -> list[str]:
    return [each[:SENTENCE] for each in [*problems][:PROBLEMS]]
