"""The LAN of a cluster: a switch, what is plugged into it, and the way to every node's pods."""

import json
import subprocess
from collections.abc import Collection, Iterable
from pathlib import Path

from cluster_nodes import Node
from cluster_world import World

CLIENT, API = ("192.0.2.100", "2001:db8:1::100"), ("192.0.2.5", "2001:db8:1::5")


def lay(world: World, nodes: Collection[Node]) -> None:
    """Places ``client``, ``api`` and one for each node; each has a port of its own name at the switch."""
    _batch(world, "", "link set lo up", "link add br0 type bridge mcast_snooping 0", "link set br0 up")
    _plug(world, "client", CLIENT)
    _plug(world, "api", API)
    for node in nodes:
        _plug(world, node.name, node.addresses)
        ways = [
            f"route add {pods} via {address}"
            for other in nodes
            if other is not node
            for pods, address in zip(other.pods, other.addresses, strict=True)
        ]
        _batch(world, node.name, *ways)
        world.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", place=node.name)
        world.run("nft", "-f", "-", place=node.name, stdin=_MASQUERADE)


def sweep(world: World, node: str) -> None:
    """What a machine forgets when it dies: the links of its pods and of IPVS, kube-proxy's rules and virtual servers,
    connections, neighbours."""
    # The kernel removes some of them just now, with the pods at their other ends.
    while links := _made(world, node):
        world.run("ip", "-force", "-batch", "-", place=node, stdin="\n".join(links), check=False)
    world.run("nft", "-f", "-", place=node, stdin=f"flush ruleset\n{_MASQUERADE}")
    if has_ipvs():
        world.run("ipvsadm", "--clear", place=node)
        world.run("ipset", "destroy", place=node)
    world.run("conntrack", "--flush", place=node)
    _batch(world, node, "neighbour flush all")


def _made(world: World, node: str) -> list[str]:
    """Of these kinds alone: a kernel may put others into every network namespace that nobody can delete (``sit0``)."""
    return [f"link delete {link}" for link in _links(world, node, "veth") | dummies(world, node) if link != "eth0"]


def dummies(world: World, node: str) -> set[str]:
    """The links on which addresses are bound that only this node is to know of."""
    return _links(world, node, "dummy")


def _links(world: World, node: str, kind: str) -> set[str]:
    found = json.loads(world.run("ip", "-json", "link", "show", "type", kind, place=node))
    # Of a kind that the kernel does not know it prints `{}` for all others.
    return {link["ifname"] for link in found if link}


def has_ipvs() -> bool:
    """Of this machine's kernel."""
    subprocess.run(["modprobe", "ip_vs"], capture_output=True, check=False)
    return Path("/proc/net/ip_vs").exists()


def _plug(world: World, label: str, addresses: Iterable[str]) -> None:
    world.add_place(label)
    ports = f"link add {label} type veth peer name eth0 netns {label}", f"link set {label} up master br0"
    _batch(world, "", *ports)
    bound = [f"address add {each}{'/64 dev eth0 nodad' if ':' in each else '/24 dev eth0'}" for each in addresses]
    # Without some route for them the host does not even try to reach Services' addresses.
    _batch(world, label, "link set eth0 up", *bound, "route add 0.0.0.0/0 dev eth0", "route add ::/0 dev eth0")


def _batch(world: World, place: str, *lines: str) -> None:
    world.run("ip", "-batch", "-", place=place, stdin="\n".join(lines))


_MASQUERADE = """
table inet pods {
  chain leaving {
    type nat hook postrouting priority 110;
    ip saddr 10.244.0.0/16 ip daddr != { 10.244.0.0/16, 10.96.0.0/16 } oifname eth0 masquerade
    ip6 saddr fd00:244::/48 ip6 daddr != { fd00:244::/48, fd00:10:96::/112 } oifname eth0 masquerade
  }
}
"""
