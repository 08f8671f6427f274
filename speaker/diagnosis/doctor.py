"""Everything that is wrong on a node, the likeliest cause first. Finds nothing on a healthy node. Pure.

What the running speaker finds all the time comes from it; the checks here are those that take looking around.
"""

from collections.abc import Iterator

from speaker.checks import Finding, Group, by_files, groups
from speaker.diagnosis import eip_checks, node_checks
from speaker.diagnosis.facts import Facts
from speaker.node.known.knowledge import KnownEip


def findings(facts: Facts) -> list[Finding]:
    return [each for group in examine(facts) for each in group.findings]


def examine(facts: Facts) -> list[Group]:
    found = _all(facts) if facts.by_api else map(by_files, _all(facts))
    return groups(found, len(facts.knowledge.eips) or 1)


def _all(facts: Facts) -> Iterator[Finding]:
    yield from node_checks.told(facts)
    yield from _of_the_node(facts)
    yield from _of_services(facts)
    yield from (each for eip in facts.knowledge.eips.first for each in _of_eip(facts, eip))


def _of_the_node(facts: Facts) -> Iterator[Finding]:
    for check in (
        *(node_checks.speaker, node_checks.peers, node_checks.gateways, node_checks.links, node_checks.drops),
        *(node_checks.free_addresses, node_checks.own_addresses, node_checks.wireless, node_checks.bridges),
        *(node_checks.releases, node_checks.answers_elsewhere),
    ):
        yield from check(facts)


def _of_services(facts: Facts) -> Iterator[Finding]:
    for service in facts.knowledge.services.first:
        yield from eip_checks.refusal(facts, service)


def _of_eip(facts: Facts, eip: KnownEip) -> Iterator[Finding]:
    for check in (
        *(eip_checks.own_address, eip_checks.no_candidate, eip_checks.endpoints_there, eip_checks.nobody_holds),
        *(eip_checks.answered, eip_checks.kernel_answers, eip_checks.target, eip_checks.firewall),
        *(eip_checks.in_kernel, eip_checks.backends),
    ):
        yield from check(facts, eip)
