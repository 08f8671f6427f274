"""Label selectors: makes one of ours from the several that peers allow."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from speaker.allocator.pools import NAMESPACE_NAME_LABEL
from speaker.api.fields import Field, selector
from speaker.model import LabelRule, LabelSelector

ALL = LabelSelector()


def read(value: Field) -> LabelSelector:
    """An empty selector selects all, as it does for the peer."""
    return selector(value) if value.value else ALL


def of_labels(value: Field) -> LabelSelector:
    """A selector for labels that must all be there."""
    found = {str(label.path[-1]): label.text() or "" for label in value.children()}
    return LabelSelector(tuple(LabelRule(key, "In", frozenset({text})) for key, text in found.items()))


class Either(NamedTuple):
    """``selector`` selects what some of several selectors do; ``over`` has the positions of those it cannot express."""

    selector: LabelSelector
    over: tuple[int, ...] = ()


def either(several: Sequence[LabelSelector]) -> Either:
    """Expresses all of them if one selects everything, or if they only list values of one label; otherwise the
    first."""
    distinct = list(dict.fromkeys(several))
    if not several or ALL in several:
        return Either(ALL)
    if len(distinct) == 1:
        return Either(distinct[0])
    rules = [each.rules[0] for each in distinct if len(each.rules) == 1 and each.rules[0].operator == "In"]
    if len(rules) == len(distinct) and len({rule.key for rule in rules}) == 1:
        return Either(LabelSelector((replace(rules[0], values=frozenset().union(*(rule.values for rule in rules))),)))
    return Either(distinct[0], tuple(i for i, each in enumerate(several) if each != distinct[0]))


def both(one: LabelSelector, other: LabelSelector) -> LabelSelector:
    return LabelSelector(tuple(dict.fromkeys((*one.rules, *other.rules))))


def contradict(one: LabelSelector, other: LabelSelector) -> bool:
    """Whether nothing can match both, because they ask for different values of one label."""
    wanted = {rule.key: rule.values for rule in one.rules if rule.operator == "In"}
    return any(
        rule.operator == "In" and rule.key in wanted and not rule.values & wanted[rule.key] for rule in other.rules
    )


def all_but(namespaces: Sequence[str]) -> LabelSelector:
    return LabelSelector((LabelRule(NAMESPACE_NAME_LABEL, "NotIn", frozenset(namespaces)),)) if namespaces else ALL


def written(found: LabelSelector) -> dict[str, object]:
    """The selector as written in a manifest."""
    equal = {rule.key: rule for rule in found.rules if rule.operator == "In" and len(rule.values) == 1}
    rest = [rule for rule in found.rules if equal.get(rule.key) != rule]
    plain: dict[str, object] = {}
    if equal:
        plain["matchLabels"] = {key: next(iter(rule.values)) for key, rule in equal.items()}
    if rest:
        plain["matchExpressions"] = [_expression(rule) for rule in rest]
    return plain


def _expression(rule: LabelRule) -> dict[str, object]:
    plain: dict[str, object] = {"key": rule.key, "operator": rule.operator}
    return {**plain, "values": sorted(rule.values)} if rule.values else plain
