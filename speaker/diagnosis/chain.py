"""Judges one node's facts: ``explain`` follows an EIP's way from its pool to its endpoints and back; ``examine`` finds
everything that is wrong, the likeliest cause first. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import Enum
from itertools import chain
from typing import NamedTuple

from speaker.api.fields import some
from speaker.checks import NO_RIGHT, Finding, Group, by_files, groups, ranked
from speaker.diagnosis import eip_checks, node_checks
from speaker.diagnosis.facts import Facts, Unseen, Walked
from speaker.errors import shown
from speaker.node.known.knowledge import Knowledge, KnownEip, an_address

_PATH = "forwarding_off", "reverse_path", "conntrack_full", "table_crowded", "not_in_kernel"
_KERNEL = "kube_proxy", "kernel_answers", "ipvs_settings", "left_behind"
"""Findings of the running speaker, by the step that they break."""
_FORWARDING = "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"


class State(Enum):
    WELL = "well"
    BROKEN = "broken"
    UNKNOWN = "unknown"


class Step(NamedTuple):
    """``lines``: what was seen."""

    name: str
    state: State
    lines: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


class Chain(NamedTuple):
    """``verdict``: the first finding of the first broken step; None if no step is broken."""

    about: str
    steps: tuple[Step, ...]
    verdict: Finding | None
    others: tuple[Finding, ...] = ()
    unseen: tuple[Unseen, ...] = ()

    @property
    def code(self) -> int:
        """0: well; 1: a step is broken; 2: unknown."""
        if self.verdict is not None:
            return 2 if self.verdict.kind == NO_RIGHT else 1
        return 2 if any(step.state is State.UNKNOWN for step in self.steps) else 0


def explain(facts: Facts) -> Chain:
    steps = tuple(_steps(facts))
    if not facts.by_api:
        steps = tuple(step._replace(findings=tuple(map(by_files, step.findings))) for step in steps)
    found = list(dict.fromkeys(chain.from_iterable(step.findings for step in steps)))
    return Chain(facts.about, steps, found[0] if found else None, tuple(found[1:]), unseen(facts))


def unseen(facts: Facts) -> tuple[Unseen, ...]:
    """What could not be looked at, and firewall rules that are not understood."""
    rules = (each for eip in facts.knowledge.eips.first for each in eip_checks.unseen_rules(facts, eip))
    return tuple(dict.fromkeys(chain(facts.unseen, rules, node_checks.astray(facts))))


def _step(name: str, lines: Iterable[str], findings: Iterable[Finding], *, unknown: bool = False) -> Step:
    found = tuple(findings)
    broken = any(finding.kind != NO_RIGHT for finding in found)
    state = State.BROKEN if broken else State.UNKNOWN if unknown or found else State.WELL
    return Step(name, state, tuple(lines), found)


def _steps(facts: Facts) -> Iterator[Step]:
    yield _step("speaker", _speaker(facts), [*node_checks.speaker(facts), *facts.told("name_clash")])
    if (known := facts.known) is None:
        return
    nothing = not known.eips and not known.services and not known.pools
    bad = [*facts.told("bad_manifests")] if nothing or not known.eips else []
    if bad:
        yield _step("manifests", (), bad)
    if not known.in_force:
        found = () if bad else node_checks.told(facts)
        yield _step("asked", ("nothing that was asked for is in force yet",), found, unknown=True)
        return
    if nothing:
        yield _step("asked", (), _not_asked(facts) if not bad else ())
        return
    yield _step("pool", _pools(known), ())
    refusals = [each for service in known.services.first for each in eip_checks.refusal(facts, service)]
    if not known.eips and not refusals and an_address(facts.about) is not None:
        refusals = [*eip_checks.bound_here(facts, facts.about)] or [*_not_asked(facts)]
    yield _step("assignment", _assignments(known), refusals)
    for eip in known.eips.first:
        yield from _of_eip(facts, eip)


def _speaker(facts: Facts) -> Iterator[str]:
    if facts.known is not None:
        peers = {peer.node for peer in facts.known.peers if peer.alive}
        ready = "ready" if facts.known.ready else "not ready"
        yield f"node {facts.known.node}, forwarder {facts.known.forwarder}, {ready}"
        if facts.known.hello_ms:
            yield f"peers heard: {some(sorted(peers)) or 'none'}"


def _not_asked(facts: Facts) -> Iterator[Finding]:
    about = shown(facts.about)
    if "/" in about:
        what = f"the speaker is not asked for Service {about}: does it exist, with type LoadBalancer and our class?"
        namespace, _, name = about.partition("/")
        mend = f"kubectl -n {namespace} get service {name} -o jsonpath='{{.spec.type}} {{.spec.loadBalancerClass}}'"
    elif an_address(facts.about) is not None:
        pools = some([pool.name for pool in facts.knowledge.pools.first])
        if not pools:
            yield Finding("address_not_in_pool", f"{about} is outside all pools", "kubectl get eip -o wide")
            return
        what, mend = f"no Service uses {about} of pool {pools}", "kubectl get eip -o wide; kubectl get services -A"
    else:
        what, mend = f"there is no pool or Service named {about}", "kubectl get eip; kubectl get services -A"
    yield Finding("not_asked", what, mend)


def _pools(known: Knowledge) -> Iterator[str]:
    for pool in known.pools.first:
        use = f", {pool.used} of {pool.size} addresses in use" if pool.size else ""
        disabled = ", disabled: it gives out no new addresses" if pool.disabled else ""
        yield f"{pool.name}: {some(pool.addresses.first)}{use}{disabled}; announced on {pool.interface}"


def _assignments(known: Knowledge) -> Iterator[str]:
    for service in known.services.first:
        if service.addresses:
            given = zip(service.addresses, service.pools, strict=False)
            yield f"{service.key}: {', '.join(f'{address} from {pool}' for address, pool in given)}"
    if not known.services:
        yield "no Service uses it"


def _of_eip(facts: Facts, eip: KnownEip) -> Iterator[Step]:
    asked = facts.answers(eip.address)
    firewall, rules = [*eip_checks.firewall(facts, eip)], [*eip_checks.unseen_rules(facts, eip)]

    def step(name: str, lines: Iterable[str], *checks: Iterable[Finding], unknown: bool = False) -> Step:
        return _step(f"{name} of {eip.address}", lines, ranked([*chain.from_iterable(checks)]), unknown=unknown)

    yield step(
        "candidates",
        (f"{shown(each.node)}: {'' if each.may else 'not: '}{shown(each.why)}" for each in eip.candidates),
        eip_checks.own_address(facts, eip),
        eip_checks.no_candidate(facts, eip),
        eip_checks.endpoints_there(facts, eip),
    )
    others = bool(facts.knowledge.peers or facts.hellos)  # they may see another holder
    peers = [*facts.told("hellos_filtered"), *node_checks.peers(facts)] if others or not eip.mine else []
    heard = (each for each in peers if each.kind != "peer_silent")  # this breaks no step of a held EIP
    yield step("holder", _holder(eip), heard, eip_checks.nobody_holds(facts, eip))
    chosen = f"{eip.link} ({eip.mac}): {eip.chosen}" if eip.link else f"none on this node: {shown(eip.message)}"
    yield step("link", (chosen,), facts.told("sick_link"), eip_checks.target(facts, eip))
    yield step(
        "wire",
        _answers(facts, eip),
        eip_checks.kernel_answers(facts, eip),
        (finding for finding in firewall if finding.kind == "frames_dropped"),
        eip_checks.answered(facts, eip),
        unknown=asked is None and eip.link != "",
    )
    yield step(
        "way in",
        (*_way_in(facts, rules), *_tried(facts, eip), *_connected(facts, eip)),
        (each for each in node_checks.told(facts) if each.kind in (*_PATH, "drop_policy") and not each.eip),
        node_checks.drops(facts),
        (finding for finding in firewall if finding.kind == "firewall_drops"),
        unknown=_way_in_unknown(facts, eip, rules),
    )
    yield step("kernel", eip.servers, eip_checks.in_kernel(facts, eip), facts.told(*_KERNEL, eip=eip.address))
    unwell = facts.told("all_unwell", "endpoint_unwell", eip=eip.address)
    yield step("endpoints", _endpoints(facts, eip), eip_checks.backends(facts, eip), unwell)
    lost = [*node_checks.answers_elsewhere(facts, eip.address)]
    yield step("way back", _way_back(facts, eip), lost, node_checks.gateways(facts))


def _holder(eip: KnownEip) -> Iterator[str]:
    if eip.holder is None:
        yield "nobody"
        return
    term = f", term {eip.term}" if eip.term else ""
    since = f", since {datetime.fromtimestamp(eip.since, UTC):%Y-%m-%d %H:%M:%S} UTC" if eip.since is not None else ""
    here = " (this node)" if eip.mine else ""
    yield f"{shown(eip.holder)}{here}{term}{since}"
    if eip.preference:
        yield f"prefers nodes by {shown(eip.preference)}"
    if eip.preferred:
        yield shown(eip.preferred)
    if eip.history:
        yield f"here: {shown(eip.history)}"


def _answers(facts: Facts, eip: KnownEip) -> Iterator[str]:
    asked = facts.answers(eip.address)
    if asked is None:
        yield "not asked: this node has no link for it, or no address there to ask from"
        return
    should = eip_checks.expected(facts, eip)
    what = f"asked on {asked.link}: "
    if eip.mine:
        yield f"{what}{some(asked.macs) or 'nobody else answers'}; this node answers with {eip.mac}"
    else:
        wanted = should or "a MAC that this node does not know"
        yield f"{what}{some(asked.macs) or 'nobody answers'}; should be {wanted}"


def _walks(facts: Facts, eip: KnownEip) -> list[Walked]:
    return [each for each in facts.walks if each.eip == eip.address]


def _tried(facts: Facts, eip: KnownEip) -> Iterator[str]:
    for each in _walks(facts, eip):
        begun = f"tried: TCP port {each.port} from {each.source}, an unused address: "
        if each.answered and not each.answer_dropped:
            yield f"{begun}every rule lets it and its answer pass{f', by {each.left}' if each.left else ''}"
        elif each.dropped or each.answer_dropped:
            yield f"{begun}{each.dropped or each.answer_dropped}"
        else:
            yield f"{begun}no rule drops it, but no endpoint accepted it; it was last seen in {each.last or 'no chain'}"


def _way_in_unknown(facts: Facts, eip: KnownEip, rules: Sequence[Unseen]) -> bool:
    """A connection that was tried as a client decides, and only then what was read. One from this node itself proves
    nothing, unless it may come and fails."""
    tried = [each.answered for each in _walks(facts, eip)]
    limited = any(each.sources for each in eip_checks.services_of(facts, eip))
    refused = any(each.address == eip.address and not each.accepted for each in facts.tried if not limited)
    return refused or (not all(tried) if tried else bool(rules or _firewalls_unseen(facts)))


CONNECTED = "connected from this node itself: "


def _connected(facts: Facts, eip: KnownEip) -> Iterator[str]:
    for each in facts.tried:
        if each.address == eip.address:
            yield f"{CONNECTED}TCP port {each.port}: {'accepted' if each.accepted else each.words}"


def _firewalls_unseen(facts: Facts) -> list[str]:
    return [each.why for each in facts.unseen if each.what.startswith("firewalls")]


def _way_in(facts: Facts, rules: Sequence[Unseen]) -> Iterator[str]:
    settings = [f"{name}={facts.sysctls[name]}" for name in _FORWARDING if name in facts.sysctls]
    if why := _firewalls_unseen(facts):
        yield f"{', '.join(settings)}; chains of other programs were not read: {'; '.join(why)}"
        return
    yield f"{', '.join(settings)}; chains of other programs: {sum(bool(each.hook) for each in facts.chains)}"
    if rules:
        yield f"whether they let packets of the EIP pass is unknown, as they are not understood: {len(rules)} rules"


def _endpoints(facts: Facts, eip: KnownEip) -> Iterator[str]:
    tried = {(each.address, each.port): each for each in facts.tried}
    for service in eip_checks.services_of(facts, eip):
        unread = "; this node does not read its endpoints, as another program forwards" if service.unread else ""
        yield f"{service.key}: externalTrafficPolicy {service.policy}{unread}"
        for each in service.endpoints.first:
            found = tried.get((each.address, each.port))
            ready = "ready" if each.ready else "serving while it terminates" if each.takes_new else "not ready"
            if each.unwell:
                ready = f"unwell: {each.unwell}{'; used all the same, as no other is well' if each.ready else ''}"
            accepts = "" if found is None else ", accepts" if found.accepted else f", {found.words}"
            where = f" on {each.node}" if each.node else ""
            lost = ", but its node seems dead: it gets no new connections" if each.lost else ""
            yield f"  {each.protocol} {each.address} port {each.port}{where}: {ready}{accepts}{lost}"


def _way_back(facts: Facts, eip: KnownEip) -> Iterator[str]:
    for back in (each for each in facts.backs if each.eip == eip.address):
        whom = "behind its gateway" if back.beyond else f"on {eip.link}"
        yield f"answers to clients {whom} leave by {back.link or 'no link'}{f', {back.lost}' if back.lost else ''}"
    for asked in facts.asked:
        if asked.what == "gateway" and asked.link == eip.link:
            yield f"gateway {asked.address} on {asked.link}: {some(asked.macs) or 'silent'}"


# ── Everything that is wrong on a node: nothing on a healthy one ──────────────────────────────────────────────
#
# What the running speaker finds all the time comes from it; the checks here are those that take looking around.

_OF_A_NODE = (
    *(node_checks.told, node_checks.speaker, node_checks.peers, node_checks.gateways, node_checks.links),
    *(node_checks.drops, node_checks.free_addresses, node_checks.own_addresses, node_checks.wireless),
    *(node_checks.bridges, node_checks.releases, node_checks.answers_elsewhere),
)
_OF_AN_EIP = (
    *(eip_checks.own_address, eip_checks.no_candidate, eip_checks.endpoints_there, eip_checks.nobody_holds),
    *(eip_checks.answered, eip_checks.kernel_answers, eip_checks.target, eip_checks.firewall),
    *(eip_checks.in_kernel, eip_checks.backends),
)


def findings(facts: Facts) -> list[Finding]:
    return [each for group in examine(facts) for each in group.findings]


def examine(facts: Facts) -> list[Group]:
    found = _all(facts) if facts.by_api else map(by_files, _all(facts))
    return groups(found, len(facts.knowledge.eips) or 1)


def _all(facts: Facts) -> Iterator[Finding]:
    yield from (each for check in _OF_A_NODE for each in check(facts))
    yield from (each for service in facts.knowledge.services.first for each in eip_checks.refusal(facts, service))
    for eip in facts.knowledge.eips.first:
        yield from (each for check in _OF_AN_EIP for each in check(facts, eip))
