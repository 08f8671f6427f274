"""What peers write on Services, by name, and what each of it is here."""

from speaker.model import Balancer

OPENELB_OPT_IN = "lb.kubesphere.io/v1alpha1"
IGNORE = "kube-vip.io/ignore"

_REPORT = "the peer's report of what it did, which ends with it"
_UNREAD = "the peer does not read it either"

LEFT: dict[str, str] = {
    "metallb.io/ip-allocated-from-pool": _REPORT,
    "metallb.universe.tf/ip-allocated-from-pool": _REPORT,
    "kube-vip.io/vipHost": _REPORT,
    "kube-vip.io/active-endpoint": _REPORT,
    "kube-vip.io/active-endpoint-ipv6": _REPORT,
    "kube-vip.io/egress-nftables-table": _REPORT,
    "kube-vip.io/leaseName": "each EIP has one holder, however many Services share it",
    "kube-vip.io/forcePerServiceElection": "each EIP has a holder of its own anyway",
    "kube-vip.io/flush-conntrack": "a move deals with connections by itself: docs/forwarding.md",
    "purelb.io/allocated-by": _REPORT,
    "purelb.io/allocated-from": _REPORT,
    "purelb.io/pool-type": _REPORT,
    "purelb.io/announcing": _REPORT,
    "purelb.io/announcing-IPv4": _REPORT,
    "purelb.io/announcing-IPv6": _REPORT,
    "purelb.io/skip-ipv6-dad": _REPORT,
    "purelb.io/re-evaluate": "a trigger that PureLB takes away again",
    "purelb.io/allow-local": "externalTrafficPolicy Local is kept: only nodes with an endpoint answer",
    "layer2.openelb.kubesphere.io/v1alpha1": _UNREAD,
    "protocol.openelb.kubesphere.io/v1alpha1": _UNREAD,
}

_DHCP = ("addresses come from pools, not by DHCP", "take addresses from the LAN that its DHCP server leaves alone")
_EGRESS = ("outgoing traffic is not the speaker's", "keep kube-vip for egress, or use the network plugin's")
_UPNP = ("the speaker talks to no router", "set the forwarding up on the router")
_LINK = ("a pool of ours has the link, not a Service", "make a pool with this interface for it")

NO_EQUAL: dict[str, tuple[str, str]] = {
    "kube-vip.io/hwaddr": _DHCP,
    "kube-vip.io/requestedIP": _DHCP,
    "kube-vip.io/loadbalancerHostname": _DHCP,
    "kube-vip.io/macvlanName": _DHCP,
    "kube-vip.io/dhcp-broadcast": _DHCP,
    "kube-vip.io/ddns": ("the speaker writes no DNS", "use external-dns with the Service's status"),
    "kube-vip.io/egress": _EGRESS,
    "kube-vip.io/egress-internal": _EGRESS,
    "kube-vip.io/egress-ipv6": _EGRESS,
    "kube-vip.io/egress-destination-ports": _EGRESS,
    "kube-vip.io/egress-source-ports": _EGRESS,
    "kube-vip.io/egress-allowed-networks": _EGRESS,
    "kube-vip.io/egress-denied-networks": _EGRESS,
    "kube-vip.io/egress-no-internal-traffic": _EGRESS,
    "kube-vip.io/egress-detect-api-server": _EGRESS,
    "kube-vip.io/serviceInterface": _LINK,
    "kube-vip.io/serviceVLAN": ("the speaker makes no VLAN links", "make the link on the nodes, and a pool with it"),
    "kube-vip.io/ignore-service-security": ("source ranges are always enforced", "look at loadBalancerSourceRanges"),
    "kube-vip.io/forwardUPNP": _UPNP,
    "kube-vip.io/upnp-lease-duration": _UPNP,
    "kube-vip.io/rp_filter": ("the speaker sets no rp_filter", "set it on the nodes"),
    "kube-vip.io/allow-reconcile-without-endpoints": (
        "under Local a node without a ready endpoint does not answer; under Cluster any node does",
        "nothing, unless the Service is Local",
    ),
    "purelb.io/multi-pool": ("a Service has at most one address of each family", "make a Service for each subnet"),
    "purelb.io/node-affinity": (
        "under Cluster any node may answer",
        "use externalTrafficPolicy Local if only nodes with an endpoint should",
    ),
    "lbipam.cilium.io/sharing-permit-different-pods": (
        "Services that share an address under Local need the same pod selector",
        "use Cluster, or give each an address of its own",
    ),
    "io.cilium/lb-ipam-sharing-permit-different-pods": (
        "Services that share an address under Local need the same pod selector",
        "use Cluster, or give each an address of its own",
    ),
}
PROXY = "node-proxy.openelb.kubesphere.io/"

LABELS = {
    "implementation": ("kube-vip", "kube-vip marks the Services that it serves"),
    "ipam-address": (None, "kube-vip's former record of the address"),
    "eip.openelb.kubesphere.io/v1alpha2": (None, "OpenELB's record of the pool"),
}
"""Labels that peers write: the value that they have then (None: any), and what they are."""

FINALIZERS = (
    "finalizer.lb.kubesphere.io/v1alpha1",
    "node-proxy.openelb.kubesphere.io/finalizer",
    "service.kubernetes.io/load-balancer-cleanup",
)
"""Of Services. The last one is of any cloud provider, as kube-vip's."""

CLASSES = {
    "io.cilium/l2-announcer": Balancer.CILIUM,
    "kube-vip.io/kube-vip-class": Balancer.KUBE_VIP,
    "purelb.io/purelbv2": Balancer.PURELB,
}
"""``loadBalancerClass`` of peers that have one of their own. MetalLB's is whatever its flag says."""

BGP_CLASS = "io.cilium/bgp-control-plane"
