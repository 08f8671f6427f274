"""The field reports `can_reach` grew from: targets that are bound here, on a real kernel, by a speaker just started.

Each test also shows the trap: the kernel, asked for the same route, says ``lo``.
"""

from errno import EINVAL
from ipaddress import ip_address

import pytest

from speaker.interfaces.resolve import Resolved, Unresolved, UnresolvedReason, resolve
from speaker.interfaces.routing import Found, Refused, lookup
from speaker.model import EIP_LINK, CanReach, OwnSubnet

pytestmark = pytest.mark.netns

LO = 1
LAN = {4: "192.0.2.{}/24", 6: "2001:db8:1::{}/64"}
OTHER = {4: "198.51.100.{}/24", 6: "2001:db8:2::{}/64"}
HOST = {4: 32, 6: 128}


def at(net: dict[int, str], family: int, number: int) -> str:
    return net[family].format(number).partition("/")[0]


def says_lo(kernel, address) -> bool:
    """At once for IPv4; IPv6 fills its local table in a worker of its own (``addrconf_dad_work``)."""
    return any(kernel.route(address).link == LO for _ in range(100_000))


@pytest.fixture
async def node(new_namespace, wire, sh, settled):
    """eth0 in the EIPs' LAN, eth1 in another, where the default route leads."""
    node, lan, other = (new_namespace(label) for label in ("node", "lan", "other"))
    wire(node, "eth1", other, "eth0")
    wire(node, "eth0", lan, "eth0")
    for family in (4, 6):
        nodad = "nodad" if family == 6 else ""
        sh(node, f"ip addr add {LAN[family].format(5)} dev eth0 {nodad}")
        sh(node, f"ip addr add {OTHER[family].format(5)} dev eth1 {nodad}")
        sh(node, f"ip -{family} route add default via {at(OTHER, family, 1)} dev eth1")
    await settled(node, "eth0", "eth1")
    return node


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("where", ["lo", "eth0", "eth1"])
async def test_an_eip_bound_anywhere_still_resolves_to_the_link_of_its_lan(
    node, sh, kernel_of, snapshot_of, family, where
):
    eip = ip_address(at(LAN, family, 100))
    sh(node, f"ip addr add {eip}/{HOST[family]} dev {where} {'nodad' if family == 6 else ''}")
    assert says_lo(kernel_of(node), eip)
    resolved = resolve(CanReach(eip), eip, await snapshot_of(node))
    assert isinstance(resolved, Resolved)
    assert resolved.link.name == "eth0"


@pytest.mark.parametrize("family", [4, 6])
async def test_the_nodes_own_address_resolves_to_the_link_that_has_it(node, kernel_of, snapshot_of, family):
    own = ip_address(at(LAN, family, 5))
    assert says_lo(kernel_of(node), own)
    resolved = resolve(CanReach(own), ip_address(at(LAN, family, 100)), await snapshot_of(node))
    assert isinstance(resolved, Resolved)
    assert resolved.link.name == "eth0"


@pytest.mark.parametrize("family", [4, 6])
async def test_a_foreign_address_resolves_as_the_kernel_says(node, kernel_of, snapshot_of, family):
    snapshot = await snapshot_of(node)
    for number, net, name in ((200, LAN, "eth0"), (200, OTHER, "eth1")):
        foreign = ip_address(at(net, family, number))
        resolved = resolve(CanReach(foreign), ip_address(at(LAN, family, 100)), snapshot)
        assert isinstance(resolved, Resolved)
        assert (resolved.link.name, resolved.link.index) == (name, kernel_of(node).route(foreign).link)


async def test_an_address_of_one_family_can_be_the_target_for_an_eip_of_the_other(node, snapshot_of):
    snapshot = await snapshot_of(node)
    resolved = resolve(CanReach(ip_address(at(LAN, 6, 1))), ip_address(at(LAN, 4, 100)), snapshot)
    assert isinstance(resolved, Resolved)
    assert resolved.link.name == "eth0"


async def test_a_target_that_only_a_bound_address_leads_to_has_no_route(node, sh, snapshot_of):
    sh(node, "ip -6 route del default")
    sh(node, "ip addr add 2001:db8:9::1/128 dev lo")
    eip = ip_address("2001:db8:9::1")
    unresolved = resolve(CanReach(eip), eip, await snapshot_of(node))
    assert isinstance(unresolved, Unresolved)
    assert unresolved.reason is UnresolvedReason.NO_ROUTE


@pytest.mark.parametrize("family", [4, 6])
async def test_without_an_interface_the_link_of_the_eips_own_subnet_is_taken(node, snapshot_of, family):
    resolved = resolve(OwnSubnet(), ip_address(at(LAN, family, 100)), await snapshot_of(node))
    assert isinstance(resolved, Resolved)
    assert resolved.link.name == "eth0"


@pytest.mark.parametrize("compatible", [0, 1])
async def test_ipv6_nexthop_objects_lead_where_the_kernel_says(node, sh, kernel_of, snapshot_of, compatible):
    node.sysctl("net.ipv4.nexthop_compat_mode", compatible)
    for line in ("1 via 2001:db8:1::1 dev eth0", "2 via 2001:db8:2::1 dev eth1", "3 group 1/2"):
        sh(node, f"ip nexthop add id {line}")
    sh(node, "ip -6 nexthop add id 4 blackhole")
    for number in (1, 2, 3, 4):
        sh(node, f"ip -6 route add 2001:db8:{number}0::/48 nhid {number}")
    snapshot = await snapshot_of(node)
    for number in (1, 2, 3):
        found = lookup(ip_address(f"2001:db8:{number}0::7"), snapshot)
        picked = kernel_of(node).route(ip_address(f"2001:db8:{number}0::7")).link
        assert isinstance(found, Found)
        assert picked in {hop.link for hop in found.hops}
        assert len(found.hops) == (2 if number == 3 else 1)
    assert isinstance(lookup(ip_address("2001:db8:40::7"), snapshot), Refused)
    assert kernel_of(node).route(ip_address("2001:db8:40::7")).error == EINVAL


async def test_the_speaker_sees_its_links_as_they_are(node, sh, snapshot_of):
    sh(node, "ip link add br0 type bridge")
    sh(node, "ip link add mac0 link eth0 type macvlan")
    sh(node, "ip link set eth1 master br0")
    sh(node, "ip link set mac0 up")
    sh(node, "ip link set eth0 arp off mtu 1400")
    links = {link.name: link for link in (await snapshot_of(node)).links.values()}
    assert links["lo"].loopback
    assert not links["lo"].ethernet
    assert (links["eth0"].kind, links["eth0"].arp, links["eth0"].mtu, links["eth0"].master) == (
        "veth",
        False,
        1400,
        None,
    )
    assert links["eth0"].mac.hex(":") in sh(node, "ip link show eth0")
    assert (links["eth1"].master, links["eth1"].master_kind) == (links["br0"].index, "bridge")
    assert (links["br0"].kind, links["br0"].up) == ("bridge", False)
    assert (links["mac0"].kind, links["mac0"].up, links["mac0"].ethernet) == ("macvlan", True, True)


def test_an_eip_bound_as_32_is_not_secondary_where_24_would_be(node, sh):
    sh(node, "ip addr add 192.0.2.100/32 dev eth0")
    sh(node, "ip addr add 192.0.2.101/24 dev eth0")
    shown = {line.split()[3]: line for line in sh(node, "ip -4 -oneline addr show dev eth0").splitlines()}
    assert "secondary" not in shown["192.0.2.100/32"]
    assert "secondary" in shown["192.0.2.101/24"]
    # What kube-proxy asks for NodePorts: local routes by their preferred source.
    assert "src 192.0.2.100" in sh(node, "ip route show table local 192.0.2.100")
    assert "src 192.0.2.5" in sh(node, "ip route show table local 192.0.2.101")


async def test_what_is_bound_anywhere_is_this_hosts_own_but_for_what_is_bound_for_services(node, sh, snapshot_of):
    for link, eip in (("kube-ipvs0", "192.0.2.110"), (EIP_LINK, "192.0.2.111")):
        sh(node, f"ip link add {link} type veth peer name of-{link[:8]}")
        sh(node, f"ip link set {link} up")
        sh(node, f"ip addr add {eip}/32 dev {link}")
    sh(node, "ip addr add 192.0.2.112/32 dev lo")
    sh(node, "ip addr add 192.0.2.113/32 dev eth1")
    own = {str(address): link for address, link in (await snapshot_of(node)).own.items() if not address.is_link_local}
    assert own == {
        "127.0.0.1": "lo",
        "::1": "lo",
        "192.0.2.112": "lo",
        "192.0.2.113": "eth1",
        **{at(LAN, family, 5): "eth0" for family in (4, 6)},
        **{at(OTHER, family, 5): "eth1" for family in (4, 6)},
    }
