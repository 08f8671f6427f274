"""Who implements Services on this node, judging by the signs it leaves, and what it does wrong or leaves undone. Pure:
time is an argument.

What kube-proxy says about itself counts most, then links, then tables, which may be left over. Problems are reported,
and no EIP is withdrawn because of them: the cause is the same on every node, so falling silent would only take away
what still works.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from ipaddress import ip_network
from typing import Any, NamedTuple

import msgspec

from speaker.checks import Finding
from speaker.model import KUBE_PROXY_LINK, AddressRange, IPAddress, IPNetwork, Pool, rank
from speaker.system.decoding import UNFIT

METRICS, HEALTH = 10249, 10256
"""Where kube-proxy listens unless told otherwise: metricsBindAddress, on localhost only, and healthzBindAddress."""
CILIUM_LINK = "cilium_host"
NFT_TABLE, IPTABLES_CHAIN = "kube-proxy", "KUBE-SERVICES"


class Mode(Enum):
    """How the Services' traffic is carried; the value is a metric label."""

    IPTABLES = "iptables"
    NFTABLES = "nftables"
    IPVS = "ipvs"
    CILIUM = "cilium"
    UNKNOWN = "unknown"
    """Something answers where kube-proxy does; how it forwards is not known."""
    NONE = "none"


_OWN_WORDS = {mode.value: mode for mode in (Mode.IPTABLES, Mode.NFTABLES, Mode.IPVS)}


@dataclass(frozen=True, slots=True)
class Configuration:
    """Of a running kube-proxy, as far as it concerns us."""

    exclude: tuple[IPNetwork, ...] = ()
    """``ipvs.excludeCIDRs``: virtual servers there are left alone."""
    node_port_addresses: tuple[str, ...] = ()
    """CIDRs, or ``primary``; none: NodePorts are on every address of the node."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What was to be seen. ``healthy`` None: nobody answers; ``chains`` None: they could not be looked at."""

    proxy_mode: str | None = None
    """The answer to ``/proxyMode``."""
    healthy: bool | None = None
    configuration: Configuration | None = None
    links: Collection[str] = frozenset()
    chains: Collection[tuple[str, str]] | None = None
    """Table and name of each, whatever the family."""


@dataclass(frozen=True, slots=True)
class KubeProxy:
    """``evidence``: what it was recognised by, in words, the best first."""

    mode: Mode
    evidence: tuple[str, ...] = ()
    healthy: bool | None = None
    """What it says of itself; None: it says nothing."""
    configuration: Configuration | None = None
    """None: it does not show it."""


def recognise(signs: Signs) -> KubeProxy:
    found = [*_recognised(signs)]
    mode = found[0][0] if found else Mode.NONE
    return KubeProxy(mode, tuple(evidence for _, evidence in found), signs.healthy, signs.configuration)


def _recognised(signs: Signs) -> Iterator[tuple[Mode, str]]:
    """The best evidence first. Links: in another mode kube-proxy removes its own at the start. Tables outlive a
    kube-proxy whose place another took; and in ipvs mode it has a few chains in iptables too."""
    chains = signs.chains or ()
    if (mode := _OWN_WORDS.get(signs.proxy_mode or "")) is not None:
        yield mode, f"its port {METRICS} says so"
    for mode, name in ((Mode.IPVS, KUBE_PROXY_LINK), (Mode.CILIUM, CILIUM_LINK)):
        if name in signs.links:
            yield mode, f"link {name}"
    if any(table == NFT_TABLE for table, _ in chains):
        yield Mode.NFTABLES, f"nftables table {NFT_TABLE}"
    if any(chain == IPTABLES_CHAIN for _, chain in chains):
        yield Mode.IPTABLES, f"iptables chain {IPTABLES_CHAIN}"
    if signs.healthy is not None:
        yield Mode.UNKNOWN, f"port {HEALTH} answers"


# ── What it says ──────────────────────────────────────────────────────────────────────────────────────────────


def read_configuration(body: bytes) -> Configuration | None:
    """``/configz``; None for what is no configuration of kube-proxy's.

    Older releases spell the names of fields as in Go (``ExcludeCIDRs``), newer ones as in the file.
    """
    told = _lower(_object(body).get("kubeproxy.config.k8s.io"))
    if not told:
        return None
    return Configuration(
        exclude=tuple(
            network for text in _texts(_lower(told.get("ipvs")).get("excludecidrs")) for network in _cidr(text)
        ),
        node_port_addresses=_texts(told.get("nodeportaddresses")),
    )


def read_health(status: int, body: bytes) -> bool:
    """``/healthz``; of a node that is about to be deleted it is 503, and the body says whether kube-proxy is well."""
    healthy = _object(body).get("healthy")
    return healthy if isinstance(healthy, bool) else status == 200


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except UNFIT:
        return {}
    return found if isinstance(found, dict) else {}


def _lower(found: object) -> dict[str, Any]:
    return {str(name).lower(): value for name, value in found.items()} if isinstance(found, dict) else {}


def _texts(found: object) -> tuple[str, ...]:
    return tuple(text for text in found if isinstance(text, str)) if isinstance(found, list) else ()


def _cidr(text: str) -> tuple[IPNetwork, ...]:
    try:
        return (ip_network(text, strict=False),)
    except ValueError:
        return ()


# ── What is in our way ────────────────────────────────────────────────────────────────────────────────────────

GRACE = 5.0
"""Seconds that something may be missing: kube-proxy hears of a Service when we do, and then takes a second or two."""
REMEMBERED = 600.0
"""Seconds for which one that has fallen silent is still reckoned with: an upgrade, a crash loop."""
NAMED = 10
"""EIPs that get a problem of their own; all others together get one more."""

NO_FORWARDER = "none"


@dataclass(frozen=True, slots=True)
class Here:
    """What this speaker does on this node; ``held`` are the EIPs that it answers for."""

    forwarder: str
    pools: Mapping[str, Pool] = field(default_factory=dict)
    held: frozenset[IPAddress] = frozenset()


@dataclass(frozen=True, slots=True)
class Rules:
    """For which addresses there are rules: of ``eips``. None: it cannot be told, and ``why``."""

    eips: frozenset[IPAddress] | None
    why: str = ""


class Judgement(NamedTuple):
    """The result of one look. ``notes`` are worth knowing, but are not faults. ``without_rules`` counts EIPs held here,
    and is None if that is unknown. ``unsure``: something is missing, but only recently."""

    kube_proxy: KubeProxy
    problems: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    without_rules: int | None = None
    unsure: bool = False


class Judge:
    """Compares each look with the ones before, to tell what is missing for long from what has just changed."""

    def __init__(self) -> None:
        self._missing: dict[IPAddress, float] = {}
        self._last: tuple[KubeProxy, float] | None = None
        """The last that there was, and when."""
        self._answered = False
        """It has said how it is."""
        self._silent: float | None = None
        """Since when it does not any more."""

    def reckons_with(self, now: float, found: KubeProxy) -> Mode:
        """Whose rules to look for: of one that is silent, and whose rules have gone with it, there are none."""
        return self._remembered(now, found).mode

    def look(self, now: float, here: Here, found: KubeProxy, rules: Rules, answering: Collection[str]) -> Judgement:
        """``now``: seconds of a clock that only rises. ``answering``: our links on which the kernel answers ARP for any
        address of this node."""
        proxy = self._remember(now, found)
        problems = [*_would_fight(here, proxy), *_answers_too(proxy, answering)]
        notes = [*_notes(here, proxy)]
        count, unsure = None, self._silent == now
        if here.forwarder != NO_FORWARDER:
            problems += _takes_ours(here, rules)
        else:
            problems += _unwell(proxy, self._silent is not None and now - self._silent >= GRACE)
            if rules.eips is None:
                self._missing = {}
                notes.append(f"cannot tell whether there are rules for the EIPs: {rules.why}")
            else:
                overdue = self._overdue(now, here.held - rules.eips)
                count, unsure = len(overdue), unsure or len(overdue) < len(self._missing)
                problems += _without_rules(proxy.mode, overdue)
        return Judgement(proxy, tuple(problems), tuple(notes), count, unsure)

    def _remember(self, now: float, found: KubeProxy) -> KubeProxy:
        """What it made outlives kube-proxy in the kernel, but not everybody may look there."""
        if found.healthy is not None:
            self._answered, self._silent = True, None
        elif self._answered and self._silent is None:
            self._silent = now
        if found.mode is not Mode.NONE:
            self._last = found, now
        proxy = self._remembered(now, found)
        if proxy.mode is Mode.NONE:
            self._last, self._answered, self._silent = None, False, None
        return proxy

    def _remembered(self, now: float, found: KubeProxy) -> KubeProxy:
        if found.mode is Mode.NONE and self._last is not None and now - self._last[1] < REMEMBERED:
            return replace(self._last[0], evidence=("it ran here before and no longer answers",), healthy=None)
        return found

    def _overdue(self, now: float, missing: Iterable[IPAddress]) -> list[IPAddress]:
        self._missing = {eip: self._missing.get(eip, now) for eip in missing}
        late = [eip for eip, since in self._missing.items() if now - since >= GRACE]
        return sorted(late, key=rank)


# ── With our own forwarder ────────────────────────────────────────────────────────────────────────────────────


_EDIT = "kubectl -n kube-system edit configmap kube-proxy; kubectl -n kube-system rollout restart daemonset kube-proxy"
_LOOK = "kubectl -n kube-system get pods -o wide -l k8s-app=kube-proxy; kubectl -n kube-system logs ds/kube-proxy"


def _would_fight(here: Here, proxy: KubeProxy) -> Iterator[Finding]:
    """In ipvs mode kube-proxy removes every virtual server that it does not know, and opens NodePorts on every address
    that it finds bound (pkg/proxy/ipvs/proxier.go: cleanLegacyService, nodeAddressSet)."""
    if not (here.forwarder == "ipvs" and proxy.mode is Mode.IPVS) or proxy.configuration is None:
        return
    for name, pool in sorted(here.pools.items()):
        if lacking := [each for each in pool.addresses if not covered(each, proxy.configuration.exclude)]:
            what = (
                f"kube-proxy in ipvs mode deletes our virtual servers of pool {name}: its ipvs.excludeCIDRs lacks"
                f" {', '.join(map(str, lacking))}; add that and restart it, or use another of its modes"
            )
            yield Finding("kube_proxy", what, _EDIT)
    if not proxy.configuration.node_port_addresses:
        what = (
            "kube-proxy in ipvs mode opens NodePorts on the EIPs bound here, and we remove them again: give it"
            " nodePortAddresses: [primary] and restart it, or use another of its modes"
        )
        yield Finding("kube_proxy", what, _EDIT)


def _takes_ours(here: Here, rules: Rules) -> Iterator[Finding]:
    if rules.eips is not None and (both := here.held & rules.eips):
        first = min(both, key=rank)
        others = " and other EIPs" if len(both) > 1 else ""
        what = (
            f"kube-proxy has rules for {first}{others} too and takes the packets before us: its status must say ipMode"
            f" Proxy, so the controller needs --forwarder={here.forwarder} and the cluster Kubernetes 1.30 or newer; or"
            f" a Service lists it in spec.externalIPs, which `speaker doctor --cluster` names"
        )
        yield Finding("kube_proxy", what, _LOOK, eips=len(both))


def covered(addresses: AddressRange, networks: Collection[IPNetwork]) -> bool:
    """Whether each of the addresses is in one of the networks."""
    at, last = int(addresses.first), int(addresses.last)
    spans = sorted(
        (int(network.network_address), int(network.broadcast_address))
        for network in networks
        if network.version == addresses.first.version
    )
    for begin, end in spans:
        if begin <= at <= end:
            at = end + 1
    return at > last


# ── Without ───────────────────────────────────────────────────────────────────────────────────────────────────


def _answers_too(proxy: KubeProxy, answering: Collection[str]) -> Iterator[Finding]:
    if proxy.mode is Mode.IPVS and answering:
        links = sorted(answering)
        what = (
            f"this node answers ARP for every EIP, whoever holds it: kube-proxy has bound them to kube-ipvs0, and"
            f" arp_ignore is off on {', '.join(links)}; give it ipvs.strictARP: true and restart it"
        )
        strict = (f"net.ipv4.conf.{link}.arp_ignore=1 net.ipv4.conf.{link}.arp_announce=2" for link in links)
        mend = f"sysctl -w {' '.join(strict)}   # and ipvs.strictARP: true for kube-proxy"
        yield Finding("kernel_answers", what, mend)


def _unwell(proxy: KubeProxy, silent: bool) -> Iterator[Finding]:
    if silent:
        what = f"nothing answers on port {HEALTH} any more: is kube-proxy running? Its rules are not being updated"
        yield Finding("kube_proxy", what, _LOOK)
    elif proxy.healthy is False:
        yield Finding(
            "kube_proxy", f"kube-proxy says on port {HEALTH} that it is unhealthy: its rules may be out of date", _LOOK
        )


def _without_rules(mode: Mode, eips: list[IPAddress]) -> Iterator[Finding]:
    for eip in eips[:NAMED]:
        what = f"{eip}: kube-proxy ({mode.value} mode) has no rules for it, so its traffic is not forwarded"
        yield Finding("kube_proxy", what, _LOOK, str(eip))
    if (others := len(eips) - NAMED) > 0:
        what = f"kube-proxy ({mode.value} mode) has no rules for {others} other EIPs of this node either"
        yield Finding("kube_proxy", what, _LOOK, eips=others)


def _notes(here: Here, proxy: KubeProxy) -> Iterator[str]:
    match proxy.mode, here.forwarder:
        case Mode.IPVS, "ipvs" if proxy.configuration is None:
            yield (
                "cannot read kube-proxy's configuration: its ipvs.excludeCIDRs must hold every pool, or it deletes our"
                " virtual servers; its nodePortAddresses must be [primary]"
            )
        case Mode.CILIUM, "none":
            yield "the announcing links must be among Cilium's devices"
