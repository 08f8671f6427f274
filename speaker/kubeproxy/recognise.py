"""Who implements Services on this node, by the signs it leaves. Pure.

What kube-proxy says of itself counts most, then links, then tables, which may be left over from before.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_network
from typing import Any

import msgspec

from speaker.model import KUBE_PROXY_LINK, IPNetwork
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
    found = [*_by_its_word(signs), *_by_links(signs), *_by_tables(signs), *_by_health(signs)]
    mode = found[0][0] if found else Mode.NONE
    return KubeProxy(mode, tuple(evidence for _, evidence in found), signs.healthy, signs.configuration)


def _by_its_word(signs: Signs) -> list[tuple[Mode, str]]:
    mode = _OWN_WORDS.get(signs.proxy_mode or "")
    return [] if mode is None else [(mode, f"its port {METRICS} says so")]


def _by_links(signs: Signs) -> list[tuple[Mode, str]]:
    """In another mode kube-proxy removes its own at the start."""
    found = [(Mode.IPVS, KUBE_PROXY_LINK), (Mode.CILIUM, CILIUM_LINK)]
    return [(mode, f"link {name}") for mode, name in found if name in signs.links]


def _by_tables(signs: Signs) -> list[tuple[Mode, str]]:
    """They outlive a kube-proxy whose place another took; and in ipvs mode it has a few chains in iptables too."""
    chains = signs.chains or ()
    found = []
    if any(table == NFT_TABLE for table, _ in chains):
        found.append((Mode.NFTABLES, f"nftables table {NFT_TABLE}"))
    if any(chain == IPTABLES_CHAIN for _, chain in chains):
        found.append((Mode.IPTABLES, f"iptables chain {IPTABLES_CHAIN}"))
    return found


def _by_health(signs: Signs) -> list[tuple[Mode, str]]:
    return [] if signs.healthy is None else [(Mode.UNKNOWN, f"port {HEALTH} answers")]


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
