"""nft scripts: what leads from one ruleset to another, each script one transaction. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from speaker.forwarding.changes import (
    AddEip,
    AddRealServer,
    AddVirtualServer,
    Change,
    ChangeRealServer,
    ChangeVirtualServer,
    RemoveEip,
    RemoveRealServer,
    RemoveVirtualServer,
    diff,
)
from speaker.forwarding.nftables.ruleset import Elements, Ruleset, local_addresses
from speaker.forwarding.plan import Plan
from speaker.model import IPAddress


def rebuild_script(want: Ruleset) -> str:
    """One transaction that makes the table what it should be, whatever it was."""
    nothing = replace(want, elements={name: frozenset() for name in want.elements}, chains={}, maps={})
    return (
        f"table {want.name}\ndelete table {want.name}\n"
        f"table {want.name} {{{want.skeleton}}}\n{change_script(nothing, want)}"
    )


def change_script(have: Ruleset, want: Ruleset) -> str:
    """One transaction from ``have`` to ``want`` that names only what differs; '' where nothing does."""
    table = want.name
    changed = [name for name, rule in want.chains.items() if have.chains.get(name) != rule]
    gone = sorted(have.chains.keys() - want.chains.keys())
    lines = [f"add chain {table} {name}" for name in changed]
    lines += [f"flush chain {table} {name}" for name in changed if name in have.chains]
    lines += _map_lines(have, want)
    lines += [f"add rule {table} {name} {want.chains[name]}" for name in changed]
    for name, wanted in want.elements.items():
        # A map's element goes by its key alone.
        removed = sorted(element.split(" : ")[0] for element in have.elements[name] - wanted)
        lines += _element_lines("delete", table, name, removed)
        lines += _element_lines("add", table, name, sorted(wanted - have.elements[name]))
    lines += [f"{verb} chain {table} {name}" for name in gone for verb in ("flush", "delete")]
    lines += [f"delete map {table} {name}" for name in sorted(have.maps.keys() - want.maps.keys())]
    return "".join(line + "\n" for line in lines)


def _map_lines(have: Ruleset, want: Ruleset) -> Iterator[str]:
    for name, slots in want.maps.items():
        known = have.maps.get(name)
        if known == slots:
            continue
        if known is None:
            yield f"add map {want.name} {name} {{ typeof {slots.typeof}; }}"
        else:
            yield f"flush map {want.name} {name}"
        yield from _element_lines("add", want.name, name, sorted(slots.elements))


def step_script(have: Plan, want: Plan, ruleset_of: Callable[[Plan], Ruleset]) -> str:
    """The ``change_script`` between the rulesets of two ``expressible`` plans, made from what differs."""
    eips = {_eip_of(change) for change in diff(have, want)}
    here, there = local_addresses(have), local_addresses(want)
    return change_script(
        _with_local(ruleset_of(_narrowed(have, eips)), here - there),
        _with_local(ruleset_of(_narrowed(want, eips)), there - here),
    )


def _narrowed(plan: Plan, eips: set[IPAddress]) -> Plan:
    """An EIP's elements are no other EIP's, but for real servers on this node."""
    servers = {key: server for key, server in plan.virtual_servers.items() if server.address in eips}
    return Plan(plan.eips & eips, servers)


def _with_local(ruleset: Ruleset, addresses: set[IPAddress]) -> Ruleset:
    local = Elements()
    for address in addresses:
        local[f"local{address.version}"].add(str(address))
    return replace(
        ruleset,
        elements={**ruleset.elements, "local4": frozenset(local["local4"]), "local6": frozenset(local["local6"])},
    )


def _eip_of(change: Change) -> IPAddress:
    match change:
        case AddEip(eip) | RemoveEip(eip):
            return eip
        case AddVirtualServer(server) | ChangeVirtualServer(_, server) | RemoveVirtualServer(server):
            return server.address
        case AddRealServer(key, _) | ChangeRealServer(key, _, _) | RemoveRealServer(key, _):
            return key[0]


def _element_lines(verb: str, table: str, name: str, elements: list[str]) -> list[str]:
    return [f"{verb} element {table} {name} {{ {', '.join(elements)} }}"] if elements else []
