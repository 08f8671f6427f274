"""Five clusters at the moment of the change: what people asked of each peer, and what the peer has written since.

The pools, and the Services that stand beside them, are the peers' documented ones, as ``tests/unit/convert/fixtures``
has them. In each cluster a Service has the first address of a pool that is open to all, which a new one would be given.
"""

from dataclasses import dataclass, field
from typing import Any

import yaml
from conversions import text_of

NAMESPACES: dict[str, dict[str, str]] = {
    **{name: {} for name in ("red", "blue", "green", "example", "other")},
    "vault": {"tier": "gold"},
}


@dataclass(frozen=True)
class Has:
    """A Service's addresses, and what else the peer wrote on it."""

    addresses: tuple[str, ...]
    annotations: dict[str, str] = field(default_factory=dict)
    """Of people, for a Service that is not in a fixture."""
    labels: dict[str, str] = field(default_factory=dict)
    port: int = 80
    peers: dict[str, Any] = field(default_factory=dict)
    """Of ``metadata``, written by the peer."""


@dataclass(frozen=True)
class Cluster:
    fixtures: tuple[str, ...]
    services: dict[str, Has]
    """namespace/name → what it has."""
    cls: str = ""
    """The peer's own ``loadBalancerClass``; '' is none."""
    stay: tuple[str, ...] = ()
    """Documented Services that the peer gave no address."""
    lease: dict[str, Any] = field(default_factory=dict)
    """By which its programs agree who answers; {} is none."""

    def documents(self) -> list[dict[str, Any]]:
        """Of two with one name the first counts."""
        found: dict[tuple[str, str, str], dict[str, Any]] = {}
        for name in self.fixtures:
            for each in yaml.safe_load_all(text_of(name)):
                key = (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
                found.setdefault(key, each)
        return list(found.values())

    def pools(self) -> list[dict[str, Any]]:
        return [each for each in self.documents() if each["kind"] not in ("Service", "Deployment")]

    def asked(self, cls: str) -> list[dict[str, Any]]:
        """The Services as people wrote them: those of the fixtures, then the others."""
        found = {}
        for each in self.documents():
            key = f"{each['metadata'].get('namespace', 'default')}/{each['metadata']['name']}"
            if each["kind"] == "Service" and (key in self.services or key in self.stay):
                found[key] = each
        for key, has in self.services.items():
            found.setdefault(key, _service(key, has))
        for key, each in found.items():
            each["spec"].pop("loadBalancerClass", None)
            if cls and key not in self.stay:
                each["spec"]["loadBalancerClass"] = cls
        return list(found.values())


def _service(key: str, has: Has) -> dict[str, Any]:
    namespace, name = key.split("/")
    both = {"ipFamilyPolicy": "RequireDualStack"} if len(has.addresses) > 1 else {}
    meta = {"name": name, "namespace": namespace, "annotations": has.annotations, "labels": has.labels}
    spec = {"type": "LoadBalancer", "ports": [{"port": has.port}], **both}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}


OPENELB = {"lb.kubesphere.io/v1alpha1": "openelb"}
BY_OPENELB = {"finalizers": ["finalizer.lb.kubesphere.io/v1alpha1"]}
BY_METALLB = {"annotations": {"metallb.io/ip-allocated-from-pool": "first"}}
BY_KUBE_VIP = {
    "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
    "labels": {"implementation": "kube-vip", "ipam-address": "192.0.2.1"},
    "annotations": {"kube-vip.io/vipHost": "node-a"},
}
BY_PURELB = {
    "annotations": {
        "purelb.io/allocated-by": "PureLB",
        "purelb.io/allocated-from": "default",
        "purelb.io/pool-type": "local",
        "purelb.io/announcing-IPv4": "node-a,eth0",
    }
}

CLUSTERS = {
    "openelb": Cluster(
        ("openelb-layer2", "openelb-namespaces"),
        {
            "default/shop": Has(("192.0.2.200",), peers=BY_OPENELB),
            "default/blog": Has(("192.0.2.0",), OPENELB, port=81, peers=BY_OPENELB),
            "red/web": Has(
                ("192.0.2.11",), OPENELB | {"eip.openelb.kubesphere.io/v1alpha1": "192.0.2.11"}, peers=BY_OPENELB
            ),
            "blue/mail": Has(("192.0.2.11",), OPENELB | {"eip.openelb.kubesphere.io/v1alpha1": "192.0.2.11"}, port=25),
            "vault/safe": Has(("192.0.2.17",), OPENELB, peers=BY_OPENELB),
            "green/of-a-disabled-pool": Has(("192.0.2.24",), OPENELB, peers=BY_OPENELB),
        },
    ),
    "metallb": Cluster(
        ("metallb-services", "metallb-pool-and-l2"),
        {
            "default/by-address": Has(("192.0.2.100",)),
            "default/by-pool": Has(("192.0.2.96",)),
            "default/dns-tcp": Has(("192.0.2.104",), peers=BY_METALLB),
            "default/dns-udp": Has(("192.0.2.104",), peers=BY_METALLB),
            "default/shop": Has(("192.0.2.0",), peers=BY_METALLB),
            "red/both": Has(("192.0.2.15", "2001:db8:ccd:e799::f"), peers=BY_METALLB),
            "red/of-a-former-pool": Has(("203.0.113.9",), peers=BY_METALLB),
        },
        cls="example.com/metallb",
    ),
    "kube-vip": Cluster(
        ("kubevip-namespaces", "kubevip-services"),
        {
            "default/shop": Has(("2001:db8::10", "192.0.2.10"), peers=BY_KUBE_VIP),
            "default/on-another-link": Has(("192.0.2.200",), peers=BY_KUBE_VIP),
            "default/leaving": Has(("192.0.2.201",), peers=BY_KUBE_VIP),
            "default/by-dhcp": Has(("192.0.2.77",), peers=BY_KUBE_VIP),
        },
        cls="kube-vip.io/kube-vip-class",
        stay=("default/ignored",),
        lease={
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "plndr-svcs-lock", "namespace": "kube-system"},
            "spec": {"holderIdentity": "node-a", "leaseDurationSeconds": 5},
        },
    ),
    "purelb": Cluster(
        ("purelb-sample", "purelb-tenants"),
        {
            "default/shop": Has(("192.0.2.230", "2001:db8:8683::3"), peers=BY_PURELB),
            "default/by-name": Has(("192.0.2.131",), {"purelb.io/service-group": "by-name"}, peers=BY_PURELB),
            "red/web": Has(("192.0.2.103", "2001:db8:b8f3:250::103"), peers=BY_PURELB),
            "blue/inside": Has(("192.0.2.121",), peers=BY_PURELB),
        },
        cls="purelb.io/purelbv2",
    ),
    "cilium": Cluster(
        ("cilium-pools", "cilium-services"),
        {
            "example/sharing-one": Has(("198.51.100.105",)),
            "other/sharing-two": Has(("198.51.100.105",)),
            "default/web": Has(("192.0.2.0",)),
            "default/both": Has(("203.0.113.4", "2001:db8::f"), port=81),
            "default/coloured": Has(("192.0.2.22",), labels={"color": "blue"}),
            "red/of-a-tenant": Has(("192.0.2.43",)),
            "green/of-a-disabled-pool": Has(("192.0.2.51",)),
        },
        cls="io.cilium/l2-announcer",
    ),
}
