"""How much this node is preferred for an EIP (rule 41). Pure."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from speaker.model import LabelRule, LabelSelector, Pool, Preference, PreferredNodes, Service


class Preferred(NamedTuple):
    """The node that an EIP prefers most among those present, for people to read. ``node`` None: a node here heeds no
    preference, so all are equal. ``weight``: of that node; ``holders``: of the EIP's holder. ``back``: seconds since it
    came, or the EIP moved. ``moves_in``: seconds until the EIP moves to it; None: it stays where it is."""

    node: str | None
    weight: int = 0
    holders: int = 0
    back: float = 0.0
    moves_in: float | None = None

    def words(self, holder: str) -> str:
        if self.node is None:
            return "prefers some nodes, but a speaker here runs a release that does not heed preferences"
        if self.node == holder:
            return f"the most preferred of the nodes that are here (weight {self.weight})"
        known = f"{self.node} is preferred (weight {self.weight}, {holder} has {self.holders})"
        if self.moves_in is None:
            return f"{known}, but the EIP stays where it is (failback): `speaker rebalance` moves it"
        if self.moves_in <= 0:
            return f"{known}, and the EIP should move to it now: look there if it does not"
        return f"{known}, but has been there for only {self.back:.0f} s: the EIP moves in {self.moves_in:.0f} s"


_OF_A_SERVICE = 1 << 63
"""If there are too many preferences, hellos carry those with the lowest numbers: the pools', which a tenant cannot
write."""


def preference(pool: Pool | None, services: Iterable[Service], labels: Mapping[str, str]) -> Preference | None:
    """``services``: those on the EIP, in order. Only the first that prefers some nodes counts; then neither other
    Services nor the pool do. ``labels``: this node's. None: all nodes are equal."""
    asked, terms = _terms(pool, services)
    if not terms:
        return None
    weight = sum(term.weight for term in terms if term.selector.matches(labels))
    nodes = pool.node_selector if pool is not None else LabelSelector()
    number = _number(terms, nodes) | (_OF_A_SERVICE if asked else 0)
    return Preference(number, weight, pool.failback if pool is not None else None)


def described(pool: Pool | None, services: Iterable[Service]) -> str:
    """``80 zone=a, disk In hdd or ssd; 20 zone=b; moves back after 300 s``; '' if all nodes are equal."""
    _, terms = _terms(pool, services)
    failback = pool.failback if pool is not None and terms else None
    words = [f"{term.weight} {', '.join(map(_rule, term.selector.rules))}" for term in terms]
    return "; ".join(words if failback is None else [*words, f"moves back after {failback:g} s"])


def _rule(rule: LabelRule) -> str:
    if rule.operator == "In" and len(rule.values) == 1:
        return f"{rule.key}={min(rule.values)}"
    return " ".join([rule.key, rule.operator, *([" or ".join(sorted(rule.values))] if rule.values else [])])


def _terms(
    pool: Pool | None, services: Iterable[Service]
) -> tuple[tuple[PreferredNodes, ...], tuple[PreferredNodes, ...]]:
    """What a Service asks for, and what counts."""
    asked = next((service.node_preference for service in services if service.node_preference), ())
    return asked, asked or (pool.node_preference if pool is not None else ())


def _number(terms: Iterable[PreferredNodes], nodes: LabelSelector) -> int:
    """63 bits of BLAKE2b over what is preferred among which nodes, so that equal preferences have the same number on
    every node."""
    written = [(term.weight, _written(term.selector)) for term in terms], _written(nodes)
    return int.from_bytes(blake2b(repr(written).encode(), digest_size=8).digest(), "big") >> 1


def _written(selector: LabelSelector) -> list[tuple[str, str, list[str]]]:
    return [(rule.key, str(rule.operator), sorted(rule.values)) for rule in selector.rules]
