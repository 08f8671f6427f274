"""The resolver on links that only the guest's kernel has: dummies, bonds, VLANs and VRFs."""

import asyncio
from contextlib import asynccontextmanager
from ipaddress import ip_address

import pytest

from speaker.interfaces.resolve import Resolved, Unresolved, UnresolvedReason, resolve
from speaker.interfaces.routing import Found, lookup
from speaker.interfaces.watcher import Watcher
from speaker.model import CanReach, LinkNames, OwnSubnet

pytestmark = pytest.mark.ipvs


@pytest.fixture
async def node(new_namespace, wire, sh):
    """eth0 and eth1 to a LAN; eth0 has addresses in it."""
    node, lan = new_namespace("node"), new_namespace("lan")
    wire(node, "eth0", lan, "port0")
    wire(node, "eth1", lan, "port1")
    sh(node, "ip addr add 192.0.2.5/24 dev eth0")
    sh(node, "ip addr add 2001:db8::5/64 dev eth0 nodad")
    async with snapshots(node) as seen:  # IPv6 puts the subnet into the main table some time after `ip link set up`
        async with asyncio.timeout(60):
            while not isinstance(lookup(ip_address("2001:db8::1"), await anext(seen)), Found):
                pass
    return node


@asynccontextmanager
async def snapshots(node):
    watcher = Watcher()
    with node.entered():
        await watcher.__aenter__()  # opens sockets and never really waits
    try:
        yield aiter(watcher)
    finally:
        await watcher.__aexit__(None, None, None)


async def chosen(node, selector, eip="192.0.2.100") -> str | UnresolvedReason:
    async with snapshots(node) as seen:
        snapshot = await anext(seen)
    match resolve(selector, ip_address(eip), snapshot):
        case Resolved(link):
            return link.name
        case Unresolved(reason):
            return reason


def asked_of_the_kernel(node, sh, target: str) -> str:
    return sh(node, f"ip route get {target}")


@pytest.mark.parametrize(
    ("eip", "bound"),
    [
        ("192.0.2.100", "192.0.2.100/32"),
        ("192.0.2.100", "192.0.2.100/24"),
        ("2001:db8::100", "2001:db8::100/128"),
        ("2001:db8::100", "2001:db8::100/64"),
        ("2001:db8::100", "2001:db8::100/128 noprefixroute"),
    ],
)
async def test_an_eip_on_a_dummy_still_resolves_to_its_lan(node, sh, eip, bound):
    sh(node, "ip link add kube-ipvs0 type dummy")
    sh(node, "ip link set kube-ipvs0 up")
    sh(node, f"ip addr add {bound} dev kube-ipvs0")
    assert "dev lo" in asked_of_the_kernel(node, sh, eip)
    assert await chosen(node, CanReach(ip_address(eip)), eip) == "eth0"
    assert await chosen(node, OwnSubnet(), eip) == "eth0"
    assert await chosen(node, LinkNames(("kube-ipvs0",)), eip) is UnresolvedReason.DUMMY


async def test_a_128_on_a_dummy_puts_a_route_into_main_that_is_passed_over(node, sh):
    sh(node, "ip link add nodelocaldns type dummy")
    sh(node, "ip link set nodelocaldns up")
    sh(node, "ip addr add 2001:db8::100/128 dev nodelocaldns")
    assert "nodelocaldns" in sh(node, "ip -6 route show table main 2001:db8::100")
    assert await chosen(node, CanReach(ip_address("2001:db8::100"))) == "eth0"


async def test_a_bond_serves_and_its_slaves_do_not(node, sh):
    sh(node, "ip link add bond0 type bond mode active-backup")
    for slave in ("eth0", "eth1"):
        sh(node, f"ip link set {slave} down")
        sh(node, f"ip link set {slave} master bond0")
    sh(node, "ip link set bond0 up")
    sh(node, "ip addr flush dev eth0")
    sh(node, "ip addr add 192.0.2.5/24 dev bond0")
    assert await chosen(node, LinkNames(("eth0", "bond0"))) == "bond0"
    assert await chosen(node, LinkNames(("eth0",))) is UnresolvedReason.PORT
    assert await chosen(node, OwnSubnet()) == "bond0"
    assert await chosen(node, CanReach(ip_address("192.0.2.1"))) == "bond0"


async def test_a_vlan_serves(node, sh):
    sh(node, "ip link add link eth1 name eth1.10 type vlan id 10")
    sh(node, "ip link set eth1.10 up")
    sh(node, "ip addr add 198.51.100.5/24 dev eth1.10")
    assert await chosen(node, LinkNames(("eth1.10",))) == "eth1.10"
    assert await chosen(node, OwnSubnet(), "198.51.100.100") == "eth1.10"
    assert await chosen(node, CanReach(ip_address("198.51.100.1"))) == "eth1.10"


async def test_a_member_of_a_vrf_serves_and_its_routes_are_not_ours(node, sh):
    made = sh(node, "ip link add blue type vrf table 10", check=False)
    if "Unknown device type" in made:
        pytest.skip("this kernel has no VRFs")
    sh(node, "ip link set blue up")
    sh(node, "ip link set eth1 master blue")
    sh(node, "ip addr add 198.51.100.5/24 dev eth1")
    assert await chosen(node, LinkNames(("eth1",))) == "eth1"
    assert await chosen(node, OwnSubnet(), "198.51.100.100") == "eth1"
    assert await chosen(node, CanReach(ip_address("198.51.100.1"))) is UnresolvedReason.NO_ROUTE
    assert await chosen(node, LinkNames(("blue",))) is UnresolvedReason.NO_ARP
