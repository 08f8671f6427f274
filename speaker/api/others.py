"""Other balancers as they appear in people's files: their objects, and what Services ask of them. Pure."""

import re
from collections.abc import Collection

from speaker.api.fields import ApiObject, some
from speaker.model import Balancer

SPELLED = {
    Balancer.OPENELB: "OpenELB",
    Balancer.METALLB: "MetalLB",
    Balancer.KUBE_VIP: "kube-vip",
    Balancer.PURELB: "PureLB",
    Balancer.CILIUM: "Cilium",
}
"""As people know them."""

_GROUPS = {
    "network.kubesphere.io": Balancer.OPENELB,
    "metallb.io": Balancer.METALLB,
    "purelb.io": Balancer.PURELB,
    "bgp.purelb.io": Balancer.PURELB,
}
CILIUM = ("CiliumLoadBalancerIPPool", "CiliumL2AnnouncementPolicy")
"""Kinds of cilium.io; all others there are of the network plugin."""

METALLB = ("config", "config.yaml")
"""Keys of a ConfigMap that hold MetalLB's configuration; the other one is of Cilium, which had MetalLB's BGP in it."""

PREFIXES = {
    "metallb.io/": Balancer.METALLB,
    "metallb.universe.tf/": Balancer.METALLB,
    "kube-vip.io/": Balancer.KUBE_VIP,
    "purelb.io/": Balancer.PURELB,
    "lbipam.cilium.io/": Balancer.CILIUM,
    "io.cilium/lb-ipam-": Balancer.CILIUM,
    "lb.kubesphere.io/": Balancer.OPENELB,
    **{
        f"{part}.{name}.kubesphere.io/": Balancer.OPENELB
        for name in ("openelb", "porter")
        for part in ("eip", "layer2", "protocol", "node-proxy")
    },
}
"""Annotations of Services that begin so are theirs. OpenELB's name was Porter up to 0.4.3."""

WISHES = {
    "metallb.io/loadBalancerIPs": "addresses",
    "metallb.universe.tf/loadBalancerIPs": "addresses",
    "kube-vip.io/loadbalancerIPs": "addresses",
    "purelb.io/addresses": "addresses",
    "lbipam.cilium.io/ips": "addresses",
    "io.cilium/lb-ipam-ips": "addresses",
    "eip.openelb.kubesphere.io/v1alpha1": "addresses",
    "eip.porter.kubesphere.io/v1alpha1": "addresses",
    "metallb.io/address-pool": "pool",
    "metallb.universe.tf/address-pool": "pool",
    "purelb.io/service-group": "pool",
    "eip.openelb.kubesphere.io/v1alpha2": "pool",
    "eip.porter.kubesphere.io/v1alpha2": "pool",
    "metallb.io/allow-shared-ip": "share",
    "metallb.universe.tf/allow-shared-ip": "share",
    "purelb.io/allow-shared-ip": "share",
    "lbipam.cilium.io/sharing-key": "share",
    "io.cilium/lb-ipam-sharing-key": "share",
    "lbipam.cilium.io/sharing-cross-namespace": "share-namespaces",
    "io.cilium/lb-ipam-sharing-cross-namespace": "share-namespaces",
}
"""Annotation → what it is here, behind our prefix. Of two that mean the same the first one counts, as it does for their
balancer."""

_ADDRESSES = re.compile(r"[0-9a-fA-F]*[.:][0-9a-fA-F.:]*\s*[-/]")
"""How a range or a CIDR begins."""

_NAMED = 3
"""Annotations, of a Service's that are not obeyed."""


def owner(source: ApiObject) -> Balancer | None:
    """Whose pool, or rule for pools, it is."""
    group = source.api_version.rpartition("/")[0]
    if group == "cilium.io":
        return Balancer.CILIUM if source.kind in CILIUM else None
    data = source.at("data")
    if (source.api_version, source.kind) == ("v1", "ConfigMap") and isinstance(data, dict):
        return _of_config_map(source.name, data)
    return _GROUPS.get(group)


def _of_config_map(name: str, data: dict[str, object]) -> Balancer | None:
    """MetalLB's up to 0.12 holds text, or what that was read as; kube-vip's may have any name."""
    if any("address-pools" in config for key in METALLB if isinstance(config := data.get(key), str | dict)):
        return Balancer.METALLB
    tells = name in ("kubevip", "plndr") or data.keys() & {"cidr-global", "range-global"}
    of_namespaces = any(
        str(key).startswith(("cidr-", "range-")) and _ADDRESSES.match(str(value)) for key, value in data.items()
    )
    return Balancer.KUBE_VIP if tells or of_namespaces else None


def balancer_of(annotation: str) -> Balancer | None:
    return next((found for prefix, found in PREFIXES.items() if annotation.startswith(prefix)), None)


def unheeded(annotations: Collection[str]) -> str:
    """The sentence about those of ``WISHES`` that a Service has and nobody here obeys."""
    named = [*annotations]
    ours = ", ".join(dict.fromkeys(f"eip-speaker.io/{WISHES[each]}" for each in named))
    theirs = ",".join(dict.fromkeys(found.value for each in named if (found := balancer_of(each)) is not None))
    return f"another balancer's {some(named, _NAMED)} is not obeyed: write {ours}, or set --honour-annotations {theirs}"
