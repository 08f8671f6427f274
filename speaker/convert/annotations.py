"""What other load balancers write on Services: each annotation by name, and its meaning here."""

from speaker.model import Balancer

OPENELB_OPT_IN = "lb.kubesphere.io/v1alpha1"
IGNORE = "kube-vip.io/ignore"

_REPORT = ("the peer's report of what it did, which is not needed without it",)
_UNREAD = ("the peer does not read it either",)
_BY_POOL = ("here the pool and the agents decide it",)
DHCP = ("addresses come from pools, not by DHCP", "take addresses from the LAN that its DHCP server leaves alone")
_EGRESS = ("the speaker does not handle egress", "keep kube-vip for egress, or use the network plugin")
_UPNP = ("the speaker talks to no router", "set up the forwarding on the router")
_SAME_PODS = (
    "Services that share an address under Local need the same pod selector",
    "use Cluster, or give each Service its own address",
)


def _each(prefix: str, names: str, told: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {f"{prefix}{name}": told for name in names.split()}


LISTED: dict[str, tuple[str, ...]] = {
    **_each("metallb.io/", "ip-allocated-from-pool", _REPORT),
    **_each("metallb.universe.tf/", "ip-allocated-from-pool", _REPORT),
    **_each("kube-vip.io/", "vipHost active-endpoint active-endpoint-ipv6 egress-nftables-table", _REPORT),
    **_each("purelb.io/", "allocated-by allocated-from pool-type skip-ipv6-dad", _REPORT),
    **_each("purelb.io/", "announcing announcing-IPv4 announcing-IPv6", _REPORT),
    **_each("", "layer2.openelb.kubesphere.io/v1alpha1 protocol.openelb.kubesphere.io/v1alpha1", _UNREAD),
    **_each("", "layer2.porter.kubesphere.io/v1alpha1 protocol.porter.kubesphere.io/v1alpha1", _BY_POOL),
    "kube-vip.io/leaseName": ("each EIP has one holder, however many Services share it",),
    "kube-vip.io/forcePerServiceElection": ("each EIP has its own holder anyway",),
    "kube-vip.io/flush-conntrack": ("connections are taken care of when an EIP moves: docs/forwarding.md",),
    "purelb.io/re-evaluate": ("a trigger that PureLB removes again",),
    "purelb.io/allow-local": ("externalTrafficPolicy Local is kept: only nodes with an endpoint answer",),
    **_each("kube-vip.io/", "hwaddr requestedIP loadbalancerHostname macvlanName dhcp-broadcast", DHCP),
    **_each("kube-vip.io/", "egress egress-internal egress-ipv6 egress-destination-ports", _EGRESS),
    **_each("kube-vip.io/", "egress-source-ports egress-allowed-networks egress-denied-networks", _EGRESS),
    **_each("kube-vip.io/", "egress-no-internal-traffic egress-detect-api-server", _EGRESS),
    **_each("kube-vip.io/", "forwardUPNP upnp-lease-duration", _UPNP),
    "kube-vip.io/ddns": ("the speaker writes no DNS records", "use external-dns with the Service's status"),
    "kube-vip.io/serviceInterface": (
        "here the link is chosen by the pool, not by the Service",
        "make a pool with this interface for the Service",
    ),
    "kube-vip.io/serviceVLAN": ("the speaker makes no VLAN links", "make the link on the nodes, and a pool for it"),
    "kube-vip.io/ignore-service-security": ("source ranges are always enforced", "check loadBalancerSourceRanges"),
    "kube-vip.io/rp_filter": ("the speaker sets no rp_filter", "set it on the nodes"),
    "kube-vip.io/allow-reconcile-without-endpoints": (
        "under Local a node without a ready endpoint does not answer; under Cluster any node does",
        "nothing, unless the Service is Local",
    ),
    "purelb.io/multi-pool": ("it does not say which pools", "list them in eip-speaker.io/pool"),
    "purelb.io/node-affinity": (
        "under Cluster any node may answer",
        "use externalTrafficPolicy Local if only nodes with an endpoint should",
    ),
    "lbipam.cilium.io/sharing-permit-different-pods": _SAME_PODS,
    "io.cilium/lb-ipam-sharing-permit-different-pods": _SAME_PODS,
}
"""Annotations that are not converted: why, and what somebody has to decide if something is lost by that."""
PROXY = ("node-proxy.openelb.kubesphere.io/", "node-proxy.porter.kubesphere.io/")

LABELS = {
    "implementation": ("kube-vip", "kube-vip marks the Services that it serves"),
    "ipam-address": (None, "kube-vip's former record of the address"),
    "eip.openelb.kubesphere.io/v1alpha2": (None, "OpenELB's record of the pool"),
    "eip.porter.kubesphere.io/v1alpha2": (None, "OpenELB's record of the pool"),
}
"""Labels that peers write: the value that they then have (None: any), and what they mean."""

FINALIZERS = (
    "finalizer.lb.kubesphere.io/v1alpha1",
    "node-proxy.openelb.kubesphere.io/finalizer",
    "service.kubernetes.io/load-balancer-cleanup",
)
"""Finalizers of Services. The last one is used by any cloud provider, including kube-vip's."""

CLASSES = {
    "io.cilium/l2-announcer": Balancer.CILIUM,
    "kube-vip.io/kube-vip-class": Balancer.KUBE_VIP,
    "purelb.io/purelb": Balancer.PURELB,
    "purelb.io/purelbv2": Balancer.PURELB,
}
"""``loadBalancerClass`` of peers that have one of their own. MetalLB's is whatever its flag says."""

BGP_CLASS = "io.cilium/bgp-control-plane"
