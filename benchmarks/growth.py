"""How a cost grows with a size N, by the least squares of a + b f(N): flat, N, N log N or N², which may have a part
that grows with N instead of the constant."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Shape = Callable[[float], float]
KINDS: Mapping[str, Shape] = {
    "flat": lambda n: 0.0,
    "N": lambda n: n,
    "N log N": lambda n: n * math.log2(n) if n > 0 else 0.0,
    "N²": lambda n: n * n,
}
"""From the slowest to the fastest."""
SCATTER, NEARLY = 0.1, 1.5
"""A slower growth is believed if it misses the points by no more than what they scatter, as a share of each, or by no
more than this times what the best of all misses them by."""
LEAST = 3
"""Sizes: two points lie on every line."""
NOTHING = 1e-9
"""A cost below that is none."""


@dataclass(frozen=True, slots=True)
class Growth:
    """``kind``: of ``KINDS``, '?' where there are too few sizes. ``miss``: the root mean square of the misses, as a
    share of the points."""

    kind: str
    words: str = ""
    miss: float = 0.0

    def __str__(self) -> str:
        return self.words or self.kind


def growth(sizes: Sequence[float], costs: Sequence[float], scatter: float = SCATTER) -> Growth:
    """Costs are not negative. A cost of nothing at all sizes is flat."""
    if len(sizes) != len(costs) or any(cost < 0 or not math.isfinite(cost) for cost in costs):
        raise ValueError(f"{len(sizes)} sizes, costs {list(costs)}: as many, finite and not negative")
    costs = [cost if cost >= NOTHING else 0.0 for cost in costs]
    if len(set(sizes)) < LEAST:
        return Growth("?")
    fits = [_fitted(kind, sizes, costs) for kind in KINDS]
    fits.append(_with_a_linear_part(sizes, costs))
    enough = max(scatter, NEARLY * min(fit.miss for fit in fits))
    return next(fit for fit in fits if fit.miss <= enough)


def _fitted(kind: str, sizes: Sequence[float], costs: Sequence[float]) -> Growth:
    a, b, miss = _least_squares(lambda n: 1.0, KINDS[kind], sizes, costs)
    return Growth(kind, "flat" if kind == "flat" else f"{a:.3g} + {b:.3g} {kind}", miss)


def _with_a_linear_part(sizes: Sequence[float], costs: Sequence[float]) -> Growth:
    a, b, miss = _least_squares(KINDS["N"], KINDS["N²"], sizes, costs)
    return Growth("N²" if b > 0 else "N", f"{a:.3g} N + {b:.3g} N²", miss)


def _least_squares(
    slow: Shape, fast: Shape, sizes: Sequence[float], costs: Sequence[float]
) -> tuple[float, float, float]:
    """The factors of both and the miss, by shares of the points: small sizes count as much as large ones. What grows
    faster is never taken off, and what it is added to takes it at most to nothing at the smallest size (N - 1)."""
    floor = max(costs) / 1000 or 1.0
    weights = [1 / max(cost, floor) for cost in costs]
    one = [weight * slow(n) for weight, n in zip(weights, sizes, strict=True)]
    other = [weight * fast(n) for weight, n in zip(weights, sizes, strict=True)]
    wanted = [weight * cost for weight, cost in zip(weights, costs, strict=True)]

    def miss(factors: tuple[float, float]) -> float:
        a, b = factors
        misses = (a * x + b * y - z for x, y, z in zip(one, other, wanted, strict=True))
        return math.sqrt(sum(each * each for each in misses) / len(wanted))

    smallest = min(sizes)
    found = [(_dot(one, wanted) / _dot(one, one), 0.0)]
    if (squares := _dot(other, other)) > 0:
        found.append((0.0, _dot(other, wanted) / squares))
        both = _both(one, other, wanted)
        if both is not None and both[1] >= 0 and both[0] * slow(smallest) + both[1] * fast(smallest) >= 0:
            found.append(both)
    a, b = min(found, key=miss)
    return a, b, miss((a, b))


def _both(one: Sequence[float], other: Sequence[float], wanted: Sequence[float]) -> tuple[float, float] | None:
    xx, yy, xy, xz, yz = (
        _dot(*pair) for pair in ((one, one), (other, other), (one, other), (one, wanted), (other, wanted))
    )
    determinant = xx * yy - xy * xy
    if determinant <= 1e-12 * xx * yy:
        return None
    return (xz * yy - yz * xy) / determinant, (yz * xx - xz * xy) / determinant


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
