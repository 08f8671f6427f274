"""The faults: what is done, where to ask about it, and what has to be named first."""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from speaker.lab.practice_ground import FOREIGN, FREE, LOCAL, NAMED, SIX, WEB, Ground, Site, service
from speaker.lab.sickness import Drop
from speaker.lab.switch import cut, hosts_on, mend, plug, pull, spoil
from speaker.lab.topology import LAN
from speaker.system.threads import in_thread

Do = Callable[[Ground, str], Any]
"""With the ground and the node that is asked; what can be awaited is."""

HOLDER, OTHER = "holder", "other"


@dataclass(frozen=True, slots=True)
class Fault:
    """``told`` in a sentence; ``asks``: the command, on the ``HOLDER`` of the EIP, on the
    ``OTHER`` node, or on one by name."""

    name: str
    told: str
    asks: tuple[str, ...]
    kind: str
    inject: Do
    mend: Do
    on: str = HOLDER
    peers: bool = True
    """It takes two nodes."""
    forwarder: str = "nftables"

    @property
    def command(self) -> str:
        return f"speaker {' '.join(self.asks)}"


def _site(change: Callable[[Site], object]) -> tuple[Do, Do]:
    """The site is changed, and then as it should be."""
    return lambda ground, _: ground.write(change), lambda ground, _: ground.write()


def _sh(begin: tuple[str, ...], end: tuple[str, ...], host: str | None = None) -> tuple[Do, Do]:
    """On ``host``, or on the node that is asked."""
    return (
        lambda ground, node: ground.sh(host or node, *begin),
        lambda ground, node: ground.sh(host or node, *end),
    )


def _nft(script: str, table: str) -> tuple[Do, Do]:
    return lambda ground, node: ground.nft(node, script), lambda ground, node: ground.nft(node, f"delete table {table}")


def _spec(name: str, **spec: Any) -> Callable[[Site], object]:
    return lambda site: site[name]["spec"].update(spec)


def _both(*deeds: Do) -> Do:
    """One after the other."""

    def do(ground: Ground, node: str) -> None:
        for deed in deeds:
            deed(ground, node)

    return do


def _together(*pairs: tuple[Do, Do]) -> tuple[Do, Do]:
    return _both(*(begin for begin, _ in pairs)), _both(*(end for _, end in pairs))


def _renamed(before: str, after: str) -> Do:
    return _both(*(_sh((f"ip link set dev {before} name {after}",), (), node)[0] for node in ("node1", "node2")))


def _asked_for(name: str, eip: str) -> tuple[Do, Do]:
    return _site(lambda site: site.update(service(name, eip)))


def _address(host: str | None, address: str, link: str) -> tuple[Do, Do]:
    return _sh((f"ip addr add {address} dev {link}",), (f"ip addr del {address} dev {link}",), host)


def _on_the_lan(fault: Callable[..., None], host: str | None = None) -> Do:
    """In a thread: the lab's netlink sockets have a loop of their own."""
    return lambda ground, node: in_thread(fault, ground.lan, host or node)


def _explain(eip: str) -> tuple[str, ...]:
    return ("explain", eip)


DOCTOR = ("doctor",)


def _interface(pool: str, interface: str) -> tuple[Do, Do]:
    return _site(_spec(pool, interface=interface))


def _endpoints(name: str, **changes: Any) -> tuple[Do, Do]:
    return _site(lambda site: site[f"eps/{name}"].update(changes))


def _not_ready(site: Site) -> None:
    for endpoint in site["eps/local"]["endpoints"]:
        endpoint["conditions"]["ready"] = False


def _checked_in_vain(site: Site) -> None:
    """On a port that nothing listens on."""
    said = {"eip-speaker.io/health-check": "tcp port=8181 interval=1s timeout=1s"}
    site["svc/web"]["metadata"].setdefault("annotations", {}).update(said)


def _only_beside(ground: Ground, node: str) -> None:
    """The one endpoint is a host of the LAN, and of this node: one address is of one node only."""
    beside = [{"addresses": ["192.0.2.50"], "nodeName": node}]
    ground.write(lambda site: site["eps/local"].update(endpoints=beside))


async def _restart_other(ground: Ground, node: str, *flags: str, **how: Any) -> None:
    """The other one than the node that is asked."""
    await ground.restart(_beside(node), *flags, **how)


async def _restart_all(ground: Ground, _: str) -> None:
    """Nobody remembers anybody."""
    for node in ground.nodes:
        await ground.stop(node)
    for node in ground.nodes:
        await ground.start(node)


async def _drain_all(ground: Ground, _: str) -> None:
    for node in ground.nodes:
        await ground.tell(node, "drain")


async def _undrain_all(ground: Ground, _: str) -> None:
    for node in ground.nodes:
        await ground.tell(node, "undrain")


async def _with_ipvs(ground: Ground, node: str) -> None:
    """It ends at once."""
    ground.forwarder = "ipvs"
    await ground.restart(node)
    await ground.running[node].process.wait()


async def _with_nftables(ground: Ground, node: str) -> None:
    ground.forwarder = "nftables"
    await ground.restart(node)


def _martians(ground: Ground, node: str) -> None:
    """Its EIP is bound for some other forwarder, and a host sends from it."""
    strict = ("net.ipv4.conf.all.arp_ignore=1", "net.ipv4.conf.all.arp_announce=2")
    for host in (node, "client2"):
        ground.sh(host, *(f"sysctl -qw {setting}" for setting in strict))
    ground.sh(node, "ip link add kube-dummy-if type bridge", "ip link set dev kube-dummy-if up")
    ground.sh(node, f"ip addr add {WEB}/32 dev kube-dummy-if")
    ground.sh("client2", f"ip addr add {WEB}/32 dev lo")
    ground.begin("client2", f"ping -i 0.1 -I {WEB} 192.0.2.{11 if node == 'node1' else 12}")


def _no_martians(ground: Ground, node: str) -> None:
    ground.end_all()
    ground.sh("client2", f"ip addr del {WEB}/32 dev lo")
    ground.sh(node, "ip link del kube-dummy-if")
    for host in (node, "client2"):
        ground.sh(host, "sysctl -qw net.ipv4.conf.all.arp_ignore=0", "sysctl -qw net.ipv4.conf.all.arp_announce=0")


async def _proxy_without_rules(ground: Ground, node: str) -> None:
    await ground.serve(node, 10249, {"/proxyMode": b"iptables"})
    await ground.serve(node, 10256, {"/healthz": b'{"healthy": true}'})


async def _no_proxy(ground: Ground, node: str) -> None:
    """The speaker reckons with one that fell silent for ten minutes: a new one knows of none."""
    ground.hush()
    await ground.restart(node)


def _beside(node: str) -> str:
    return "node2" if node == "node1" else "node1"


def _spoofed(ground: Ground, node: str) -> None:
    ground.sh("client2", f"ip link set dev eth0 address {ground.mac(_beside(node))}")
    ground.sh("client2", f"ip addr add {WEB}/32 dev eth0")


def _unspoofed(ground: Ground, _: str) -> None:
    ground.sh("client2", f"ip addr del {WEB}/32 dev eth0", f"ip link set dev eth0 address {ground.mac('client2')}")


def _no_default_route(ground: Ground, _: str) -> None:
    ground.write(_spec("foreign", interface="can_reach:198.18.0.1"))
    for node in ("node1", "node2"):
        ground.sh(node, "ip route del default")


def _default_route(ground: Ground, _: str) -> None:
    ground.write()
    for node in ("node1", "node2"):
        ground.sh(node, "ip route replace default via 192.0.2.1 dev eth0")


_BOUND_BY_PROXY = (
    "ip link add kube-ipvs0 type bridge",  # some kernels have no dummies
    "ip link set dev kube-ipvs0 up",
    f"ip addr add {WEB}/32 dev kube-ipvs0",
)


FAULTS: tuple[Fault, ...] = (
    Fault("wrong_interface", "the pool names a link that does not exist", _explain(NAMED), "no_such_link",
          *_interface("named", "eth9")),
    Fault("dead_target", "can_reach names a host that does not exist", _explain(FOREIGN), "target_silent",
          *_interface("foreign", "can_reach:192.0.2.77")),
    Fault("no_route", "there is no route to the can_reach address", _explain(FOREIGN), "no_route",
          _no_default_route, _default_route),
    Fault("address_outside", "a Service asks for an address that no pool has", _explain("lab/outside"),
          "address_not_in_pool", *_site(lambda site: site.update(service("outside", "192.0.2.250")))),
    Fault("pools_overlap", "two pools hold one address", DOCTOR, "bad_manifests",
          *_site(_spec("named", addresses=["192.0.2.203-192.0.2.205"]))),
    Fault("not_asked", "nobody asks for the address", _explain(FREE), "not_asked",
          lambda *_: None, lambda *_: None),
    Fault("no_endpoint", "the Service has no endpoint", _explain(WEB), "no_endpoint",
          *_endpoints("web", endpoints=[])),
    Fault("none_ready_local", "no endpoint is ready, and the traffic policy is Local", _explain(LOCAL), "none_ready",
          *_site(_not_ready)),
    Fault("backend_not_listening", "nothing listens on the port of the endpoints", _explain(WEB), "backend_refuses",
          *_endpoints("web", ports=[{"port": 8181}])),
    Fault("endpoints_unwell", "the endpoints' health checks fail", _explain(WEB), "all_unwell",
          *_site(_checked_in_vain)),
    Fault("backend_down", "a pod no longer answers", _explain(WEB), "backend_silent",
          *_sh(("sysctl -qw net.ipv6.conf.eth0.keep_addr_on_down=1", "ip link set dev eth0 down"),
               ("ip link set dev eth0 up", "ip route replace default via 10.244.1.1 dev eth0",
                "ip -6 route replace default via fd00:10:244:1::1 dev eth0"), "pod1")),
    Fault("no_way_back", "a backend answers clients past the node", _explain(LOCAL), "no_way_back",
          _only_beside, lambda ground, _: ground.write()),
    Fault("stranger_first", "a host has the address before a Service asks for it", _explain("192.0.2.202"), "stranger",
          *_together(_address("client2", "192.0.2.202/32", "eth0"), _asked_for("late", "192.0.2.202"))),
    Fault("stranger_later", "a host takes the EIP and says nothing", _explain(WEB), "stranger",
          *_sh((f"ip addr add {WEB}/32 dev eth0",), (f"ip addr del {WEB}/32 dev eth0",), "client2")),
    Fault("stranger_of_ipv6", "the same over IPv6", _explain(SIX), "stranger",
          *_sh((f"ip addr add {SIX}/128 dev eth0 nodad",), (f"ip addr del {SIX}/128 dev eth0",), "client2")),
    Fault("spoofed_peer", "a host answers for the EIP with a peer's MAC", _explain(WEB), "peer_answers",
          _spoofed, _unspoofed),
    Fault("address_of_a_node", "the EIP is a node's own address", _explain("192.0.2.206"), "host_address",
          *_together(_address("node1", "192.0.2.206/32", "eth0"), _asked_for("taken", "192.0.2.206")), on="node2"),
    Fault("bound_secondary", "somebody bound the EIP with the prefix of the link", _explain(WEB), "bound_secondary",
          *_sh((f"ip addr add {WEB}/24 dev eth0",), (f"ip addr del {WEB}/24 dev eth0",))),
    Fault("kernel_answers", "kube-proxy bound the EIP, and ARP is not strict", _explain(WEB), "kernel_answers",
          *_sh(_BOUND_BY_PROXY, ("ip link del kube-ipvs0",)), on=OTHER),
    Fault("peers_kernel_answers", "the same, seen from the holder", _explain(WEB), "peer_answers",
          lambda ground, node: ground.sh(_beside(node), *_BOUND_BY_PROXY),
          lambda ground, node: ground.sh(_beside(node), "ip link del kube-ipvs0")),
    Fault("address_in_use", "a host has a free address of the pool", DOCTOR, "address_in_use",
          *_sh((f"ip addr add {FREE}/32 dev eth0",), (f"ip addr del {FREE}/32 dev eth0",), "client2")),
    Fault("reverse_path", "rp_filter is strict, and the way back uses another link", _explain(WEB), "reverse_path",
          *_sh(("sysctl -qw net.ipv4.conf.eth0.rp_filter=1", "ip route replace default via 198.51.100.100 dev eth1"),
               ("sysctl -qw net.ipv4.conf.eth0.rp_filter=0", "ip route replace default via 192.0.2.1 dev eth0"))),
    Fault("forwarding_off", "the node does not forward", _explain(WEB), "forwarding_off",
          *_sh(("sysctl -qw net.ipv4.ip_forward=0",), ("sysctl -qw net.ipv4.ip_forward=1",))),
    Fault("link_not_forwarding", "the node does not forward packets from that link", DOCTOR, "forwarding_off",
          *_sh(("sysctl -qw net.ipv4.conf.eth0.forwarding=0",), ("sysctl -qw net.ipv4.conf.eth0.forwarding=1",))),
    Fault("firewall_policy", "a firewall drops all forwarded packets", _explain(WEB), "firewall_drops",
          *_nft("add table ip fw; add chain ip fw f { type filter hook forward priority 0; policy drop; }", "ip fw")),
    Fault("firewall_rule", "a rule drops packets to the endpoints", _explain(WEB), "firewall_drops",
          *_nft("add table inet fw; add chain inet fw f { type filter hook forward priority 0; };"
                "add rule inet fw f ip daddr 10.244.0.0/16 tcp dport 8080 drop", "inet fw")),
    Fault("netdev_drop", "a netdev hook drops ARP for the EIP", _explain(WEB), "frames_dropped",
          *_nft("add table netdev fw; add chain netdev fw f { type filter hook ingress device eth0 priority 0; };"
                f"add rule netdev fw f arp daddr ip {WEB} drop", "netdev fw")),
    Fault("carrier_lost", "the cable is pulled", _explain(WEB), "no_carrier",
          _on_the_lan(pull), _on_the_lan(plug)),
    Fault("link_renamed", "the pool's link has been renamed", _explain(NAMED), "no_such_link",
          _renamed("eth0", "lan0"), _renamed("lan0", "eth0")),
    Fault("gateway_gone", "the gateway does not answer", DOCTOR, "gateway_silent",
          _on_the_lan(cut, "gateway"), _on_the_lan(mend, "gateway")),
    Fault("two_links", "two links are in one subnet", DOCTOR, "one_subnet",
          *_sh(("ip addr add 192.0.2.61/24 dev eth1 noprefixroute",), ("ip addr del 192.0.2.61/24 dev eth1",))),
    Fault("other_key", "the other host has another key", DOCTOR, "wrong_key",
          lambda ground, node: _restart_other(ground, node, key="other"), _restart_other),
    Fault("other_ethertype", "the other host sends hellos with another EtherType", DOCTOR, "other_ethertype",
          lambda ground, node: _restart_other(ground, node, "--ethertype", "0x88B6"), _restart_other),
    Fault("other_hello", "the other host sends hellos less often", DOCTOR, "other_hello",
          lambda ground, node: _restart_other(ground, node, "--hello", "300"), _restart_other),
    Fault("hellos_filtered", "the switch drops hellos", DOCTOR, "hellos_filtered",
          lambda ground, _: spoil(ground.lan, [Drop(frozenset({"node1"}), frozenset({"node2"}), hellos=True),
                                               Drop(frozenset({"node2"}), frozenset({"node1"}), hellos=True)]),
          lambda ground, _: spoil(ground.lan, []), on=OTHER),
    Fault("port_security", "the switch drops what a node says about addresses other than its own", _explain(WEB),
          "port_security",
          lambda ground, node: spoil(ground.lan, [Drop(frozenset({_beside(node)}), hosts_on(ground.lan.topology, LAN),
                                                       claiming=WEB)]),
          lambda ground, _: spoil(ground.lan, []), on=OTHER),
    Fault("same_name", "the other host has the same name", DOCTOR, "name_clash",
          lambda ground, node: _restart_other(ground, node, name=node), _restart_other),
    Fault("frozen_holder", "the speaker of this node is frozen", DOCTOR, "speaker_frozen",
          lambda ground, node: ground.running[node].signal(signal.SIGSTOP),
          lambda ground, node: ground.running[node].signal(signal.SIGCONT)),
    Fault("frozen_peer", "the other node's speaker is frozen", DOCTOR, "peer_silent",
          lambda ground, node: ground.running[_beside(node)].signal(signal.SIGSTOP),
          lambda ground, node: ground.running[_beside(node)].signal(signal.SIGCONT)),
    Fault("bridge_unfiltered", "the firewall does not see traffic between pods on one bridge", DOCTOR,
          "bridge_unfiltered", *_sh(("sysctl -qw net.bridge.bridge-nf-call-iptables=0",),
                                    ("sysctl -qw net.bridge.bridge-nf-call-iptables=1",))),
    Fault("no_hairpin", "the bridge does not return a pod's own packets", DOCTOR, "no_hairpin",
          lambda ground, node: ground.hairpin(node, on=False), lambda ground, node: ground.hairpin(node, on=True)),
    Fault("drained", "every node is drained", _explain(WEB), "draining", _drain_all, _undrain_all),
    Fault("martian_source", "a host sends from an EIP that is bound here", _explain(WEB), "martian_source",
          _martians, _no_martians),
    Fault("clock_ahead", "the other host's clock is an hour ahead", DOCTOR, "clock_apart",
          lambda ground, node: _restart_other(ground, node, ahead=3600.0), _restart_all),
    Fault("speaker_gone", "no speaker runs here", _explain(WEB), "speaker_gone",
          lambda ground, node: ground.stop(node), lambda ground, node: ground.start(node)),
    Fault("pool_full", "the pool has no address left", _explain("lab/more"), "pool_full",
          *_site(lambda site: (site["lan"]["spec"].update(addresses=[f"{WEB}-{LOCAL}"]),
                               site.update(service("more", None, loadBalancerClass="eip-speaker.io/speaker")))),
          peers=False),
    Fault("no_ip_vs", "the kernel lacks the requested forwarder", (*DOCTOR, "--forwarder", "ipvs"),
          "ip_vs_missing", _with_ipvs, _with_nftables, peers=False),
    Fault("kube_proxy_without_rules", "kube-proxy forwards, but has no rules for the EIP", _explain(WEB), "kube_proxy",
          _proxy_without_rules, _no_proxy, peers=False, forwarder="none"),
)  # fmt: skip
"""In the order in which they are played."""
