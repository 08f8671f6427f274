"""Which way the kernel would send a packet of this host if there were no local table.

The kernel cannot be asked (docs/decisions/0015-own-route-lookup.md). So the rules and routes are walked here as in
``fib_rules_lookup`` (net/core/fib_rules.c), ``fib_table_lookup`` (net/ipv4/fib_trie.c) and ``fib6_table_lookup``
(net/ipv6/route.c), for a packet with no source yet, no mark, no port, no type of service, of user 0, sent by this host
("iif lo").

Known and left out: neighbours found unreachable, which IPv6 hosts avoid among equal routers, and the shortcut of a
kernel that never had a policy rule, which tries the table "default" even after main said "unreachable".
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from speaker.interfaces.snapshot import LOCAL_TABLE, NextHop, Route, RouteKind, Rule, RuleAction, Snapshot
from speaker.model import IPAddress

Leads = Callable[[Route, NextHop], bool]

_REFUSING_KINDS = {
    RouteKind.BLACKHOLE: RuleAction.BLACKHOLE,
    RouteKind.UNREACHABLE: RuleAction.UNREACHABLE,
    RouteKind.PROHIBIT: RuleAction.PROHIBIT,
}


@dataclass(frozen=True, slots=True)
class Found:
    """A route leads there. ``hops`` are those the kernel may use, at least one, in the order of the route."""

    route: Route
    hops: tuple[NextHop, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A route or a rule says no: ``how`` is BLACKHOLE, UNREACHABLE or PROHIBIT."""

    how: RuleAction
    by: Route | Rule


def lookup(
    destination: IPAddress, snapshot: Snapshot, leads: Leads = lambda route, hop: True
) -> Found | Refused | None:
    """The kernel's decision without the local table; None where nothing leads there.

    A next hop for which ``leads`` says no is passed over like a dead one: what is left of the route counts, else the
    next best route.
    """
    for rule in _applying(destination, snapshot.rules):
        if rule.action is not RuleAction.LOOKUP:
            return Refused(rule.action, rule)
        decision = _in_table(rule.table, destination, snapshot, leads)
        if decision is not None and not _suppressed(decision, rule, snapshot):
            return decision
    return None


def _applying(destination: IPAddress, rules: tuple[Rule, ...]) -> Iterator[Rule]:
    """The rules that decide something, in the order they are come to; "goto" only ever leads forward."""
    at = 0
    while at < len(rules):
        rule, at = rules[at], at + 1
        if not _matches(rule, destination) or rule.action is RuleAction.NOP:
            continue
        if rule.action is RuleAction.GOTO:
            at = _goto(rule, rules, at)
        elif rule.action is not RuleAction.LOOKUP or rule.table != LOCAL_TABLE:
            yield rule


def _goto(rule: Rule, rules: tuple[Rule, ...], at: int) -> int:
    """A target that is not there is no jump: the kernel goes on with the next rule."""
    for index in range(at, len(rules)):
        if rules[index].version == rule.version and rules[index].priority == rule.target:
            return index
    return at


def _matches(rule: Rule, destination: IPAddress) -> bool:
    return rule.version == destination.version and _selects(rule, destination) != rule.invert


def _selects(rule: Rule, destination: IPAddress) -> bool:
    return (
        not rule.special
        and rule.mark & rule.mask == 0
        and (rule.uids is None or rule.uids[0] == 0)
        and (rule.destination is None or destination in rule.destination)
        and (rule.source is None or _holds_no_source(rule))
    )


def _holds_no_source(rule: Rule) -> bool:
    """IPv4 compares the source 0.0.0.0; IPv6 has no match before there is a source (``fib6_rule_match``)."""
    assert rule.source is not None
    return rule.version == 4 and int(rule.source.network_address) == 0


def _in_table(table: int, destination: IPAddress, snapshot: Snapshot, leads: Leads) -> Found | Refused | None:
    for route in snapshot.routes.holding(table, destination):
        if route.tos:
            continue
        if route.kind is RouteKind.THROW:
            return None
        if route.kind in _REFUSING_KINDS:
            return Refused(_REFUSING_KINDS[route.kind], route)
        if hops := tuple(hop for hop in route.hops if not hop.dead and leads(route, hop)):
            return Found(route, hops)
    return None


def _suppressed(decision: Found | Refused, rule: Rule, snapshot: Snapshot) -> bool:
    """Only what leads somewhere can be suppressed, never a refusal (``!err && ops->suppress`` in fib_rules_lookup)."""
    if isinstance(decision, Refused):
        return False
    # IPv4 looks at the route's first next hop (fib4_rule_suppress); IPv6 at the one it has picked, which nobody knows.
    group = snapshot.groups.get(decision.route.hops[0].link, 0)
    return decision.route.length <= rule.suppress_length or group == rule.suppress_group
