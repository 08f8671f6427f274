"""Few mixtures of settings, which show what goes wrong between any two of them."""

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

Mixture = tuple[Any, ...]


def pairs(*settings: Sequence[Any]) -> list[Mixture]:
    """Mixtures with one value of each of the ``settings``: any two values of two settings are together in one of them.

    The same every time: the mixture that brings most new pairs comes next, the first such of all.
    """
    mixtures = list(product(*settings))
    missing = {pair for mixture in mixtures for pair in _pairs_of(mixture)}
    chosen = []
    while missing:
        chosen.append(max(mixtures, key=lambda mixture: len(missing.intersection(_pairs_of(mixture)))))
        missing.difference_update(_pairs_of(chosen[-1]))
    return chosen


def _pairs_of(mixture: Mixture) -> Iterator[Mixture]:
    return combinations(enumerate(mixture), 2)
