"""Which pools are in use as they are declared: what cannot be read is not, and of two that overlap only the older."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from speaker.api.addresses import Span, Together, span, without
from speaker.cluster.kinds import EipObject
from speaker.cluster.reading import SHOWN, Unreadable, read_pool
from speaker.errors import set_aside
from speaker.model import Pool


class Verdict(Enum):
    """The value is the condition's reason."""

    ACCEPTED = "Accepted"
    DISABLED = "Disabled"
    INVALID = "Invalid"
    OVERLAP = "Overlap"
    TERMINATING = "Terminating"


@dataclass(frozen=True, slots=True)
class Judged:
    """``pool`` is None where it must not be used; ``refused`` is what it would be where that can be read."""

    pool: Pool | None
    verdict: Verdict
    message: str = ""
    refused: Pool | None = None
    failed: Exception | None = None
    """A bug of ours that its reading met."""


def judge(eips: Iterable[EipObject]) -> Mapping[str, Judged]:
    """By name. The older is the one that was created earlier; of two made in one second the first by name.

    What one pool excludes another may offer: that is how an address is moved between pools.
    """
    judged: dict[str, Judged] = {}
    offered = Together(())
    owners: list[str] = []
    for found in sorted(eips, key=lambda each: (each.metadata.creation_timestamp, each.metadata.name)):
        name = found.metadata.name
        try:
            pool = read_pool(found)
            spans = _offered(pool, len(owners)) if isinstance(pool, Pool) else []
        except Exception as error:
            judged[name] = replace(_refused(found, Verdict.INVALID, set_aside(error)), failed=error)
            continue
        if isinstance(pool, Unreadable):
            judged[name] = _refused(found, Verdict.INVALID, pool.message)
            continue
        if rivals := sorted({owners[other.index] for one in spans for other in offered.meeting(one)}):
            rule = "an address belongs to one pool; this pool is the newer one, so nothing is assigned from it"
            more = f" and {len(rivals) - SHOWN} more" if len(rivals) > SHOWN else ""
            overlap = f"overlaps with Eip {', '.join(rivals[:SHOWN])}{more}: {rule}"
            judged[name] = _refused(found, Verdict.OVERLAP, overlap, pool)
            continue
        for each in spans:
            offered.add(each)
        owners.append(name)
        judged[name] = _accepted(found, pool)
    return judged


def _refused(found: EipObject, verdict: Verdict, message: str, pool: Pool | None = None) -> Judged:
    """Of one that is being deleted nobody has to mend anything: what matters is whom it waits for."""
    return Judged(None, Verdict.TERMINATING if _is_deleted(found) else verdict, message, pool)


def _is_deleted(found: EipObject) -> bool:
    return found.metadata.deletion_timestamp is not None


def _accepted(found: EipObject, pool: Pool) -> Judged:
    if _is_deleted(found):
        return Judged(replace(pool, disabled=True), Verdict.TERMINATING)
    return Judged(pool, Verdict.DISABLED if pool.disabled else Verdict.ACCEPTED)


def _offered(pool: Pool, index: int) -> list[Span]:
    return without((span(range_, index) for range_ in pool.addresses), (span(range_, index) for range_ in pool.exclude))
