"""`benchmarks/scale.py`: which growth fits."""

import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "growth.py"
SIZES = (10, 30, 100, 300, 1000)


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("growth", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["growth"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fits = loaded()


@pytest.mark.parametrize(
    ("kind", "cost"),
    [
        ("flat", lambda n: 7.0),
        ("flat", lambda n: 0.0),
        ("flat", lambda n: 7.0 + math.sin(n) / 4),
        ("N", lambda n: 60 + 0.5 * n),
        ("N", lambda n: 10 * (n - 1)),
        ("N", lambda n: 3 * n * (1 + 0.05 * math.sin(n))),
        ("N log N", lambda n: 2 * n * math.log2(n)),
        ("N²", lambda n: 0.001 * n * n),
        ("N²", lambda n: 280 * n + 10 * n * n),
        ("N²", lambda n: 10 * n * (n - 1)),
        ("N²", lambda n: 50 + 0.02 * n * n),
    ],
)
def test_a_growth_is_found_also_where_points_scatter(kind: str, cost: Callable[[float], float]) -> None:
    assert fits.growth(SIZES, [cost(n) for n in SIZES]).kind == kind


@given(
    st.sampled_from(("N", "N²")), st.floats(0, 100), st.floats(0.01, 100), st.lists(st.floats(0.97, 1.03), min_size=5)
)
def test_what_grows_is_never_called_slower_than_it_is(kind, base, each, scatter) -> None:
    sizes = [10 * 4**at for at in range(5)]
    if each * sizes[-1] < base:
        return  # it cannot be told from the base
    costs = [(base + each * fits.KINDS[kind](n)) * scatter[at] for at, n in enumerate(sizes)]
    kinds = list(fits.KINDS)
    assert kinds.index(fits.growth(sizes, costs).kind) >= kinds.index(kind)


@example([0.0, 0.0, 0.0, 0.0, 2.225073858507203e-309])
@given(st.lists(st.floats(0, 1e9), min_size=5, max_size=5))
def test_whatever_the_costs_there_is_an_answer(costs: list[float]) -> None:
    found = fits.growth(SIZES, costs)
    assert found.kind in fits.KINDS
    assert math.isfinite(found.miss)


def test_what_is_counted_and_does_not_scatter_is_told_from_what_grows_a_little_less() -> None:
    sizes, costs = (3, 10, 30), [10 * n * (280 + 10 * n) for n in (3, 10, 30)]
    assert fits.growth(sizes, costs).kind == "N log N"
    assert fits.growth(sizes, costs, scatter=0.02).kind == "N²"


def test_two_sizes_say_nothing() -> None:
    assert fits.growth((1, 2), (1, 2)).kind == "?"
    assert fits.growth((1, 1, 1), (1, 2, 3)).kind == "?"


@pytest.mark.parametrize("costs", [(1, 2), (1, 2, -1), (1, 2, math.nan), (1, 2, math.inf)])
def test_what_is_no_cost_is_refused(costs: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="finite and not negative"):
        fits.growth((1, 2, 3), costs)
