"""A Watcher's Snapshots follow the kernel, and ``resolve`` with them. No test waits longer than the kernel takes."""

import asyncio
from ipaddress import ip_address

import pytest

from speaker.interfaces.resolve import Resolved, Unresolved, UnresolvedReason, resolve
from speaker.model import CanReach, LinkNames, OwnSubnet

pytestmark = pytest.mark.netns

EIP = ip_address("192.0.2.100")
FAR = ip_address("203.0.113.7")


@pytest.fixture
def lan(new_namespace):
    return new_namespace("lan")


@pytest.fixture
async def node(new_namespace, wire, sh, lan, settled):
    """eth0 and eth1, each with a subnet of its own; FAR lies behind eth0. Without IPv6, whose own notifications would
    hide what IPv4 does not tell."""
    node = new_namespace("node")
    node.sysctl("net.ipv6.conf.default.disable_ipv6", 1)
    wire(node, "eth0", lan, "port0")
    wire(node, "eth1", lan, "port1")
    sh(node, "ip addr add 192.0.2.5/24 dev eth0")
    sh(node, "ip addr add 198.51.100.5/24 dev eth1")
    sh(node, "ip route add 203.0.113.0/24 via 192.0.2.1")
    await settled(node, "eth0", "eth1")
    return node


def chosen(selector, snapshot) -> str | UnresolvedReason:
    match resolve(selector, EIP, snapshot):
        case Resolved(link):
            return link.name
        case Unresolved(reason):
            return reason


async def test_a_link_removed_and_recreated_is_another_link(node, lan, following, sh, wire):
    selector = LinkNames(("eth0",))
    async with following(node) as follower:
        before = resolve(selector, EIP, await follower.until(lambda now: chosen(selector, now) == "eth0"))
        sh(node, "ip link del eth0")
        await follower.until(lambda now: chosen(selector, now) is UnresolvedReason.NO_SUCH_LINK)
        assert chosen(CanReach(FAR), follower.last) is UnresolvedReason.NO_ROUTE
        wire(node, "eth0", lan, "port0")
        after = resolve(selector, EIP, await follower.until(lambda now: chosen(selector, now) == "eth0"))
    assert before.link.index != after.link.index


async def test_the_second_name_serves_while_the_first_has_no_carrier(node, lan, following, sh):
    selector = LinkNames(("eth0", "eth1"))
    async with following(node) as follower:
        for _ in range(3):
            sh(lan, "ip link set port0 down")
            await follower.until(lambda now: chosen(selector, now) == "eth1")
            assert chosen(CanReach(FAR), follower.last) is UnresolvedReason.NO_CARRIER
            assert chosen(OwnSubnet(), follower.last) is UnresolvedReason.NO_CARRIER
            sh(lan, "ip link set port0 up")
            await follower.until(lambda now: chosen(selector, now) == "eth0")


async def test_a_lost_carrier_does_not_wait_for_the_routes(node, lan, following, sh):
    async with following(node) as follower:
        before = follower.last
        sh(lan, "ip link set port0 down")
        after = await follower.until(lambda now: chosen(LinkNames(("eth0",)), now) is UnresolvedReason.NO_CARRIER)
    assert after.routes is before.routes


async def test_a_lost_carrier_moves_the_route_where_the_kernel_was_told_so(node, lan, following, sh):
    """With ``ignore_routes_with_linkdown`` the kernel's own traffic moves, and the EIP with it."""
    sh(node, "ip route add 203.0.113.0/24 via 198.51.100.1 metric 100")
    async with following(node) as follower:
        sh(lan, "ip link set port0 down")
        await follower.until(lambda now: chosen(CanReach(FAR), now) is UnresolvedReason.NO_CARRIER)
    async with following(node) as follower:
        assert chosen(CanReach(FAR), follower.last) is UnresolvedReason.NO_CARRIER
        node.sysctl("net.ipv4.conf.eth0.ignore_routes_with_linkdown", 1)
        await follower.until(lambda now: chosen(CanReach(FAR), now) == "eth1")


async def test_a_link_taken_down_takes_its_routes_with_it_for_good(node, following, sh):
    """The kernel removes them without a notification; `ip link set up` does not bring static ones back."""
    async with following(node) as follower:
        sh(node, "ip link set eth0 down")
        await follower.until(lambda now: chosen(CanReach(FAR), now) is UnresolvedReason.NO_ROUTE)
        sh(node, "ip link set eth0 up")
        await follower.until(lambda now: chosen(LinkNames(("eth0",)), now) == "eth0")
        await follower.until(lambda now: chosen(CanReach(EIP), now) == "eth0")
        assert chosen(CanReach(FAR), follower.last) is UnresolvedReason.NO_ROUTE


async def test_an_address_takes_the_routes_that_prefer_it_with_it(node, following, sh):
    """Without a notification before Linux 6.6: `fib_sync_down_addr` flushes them."""
    sh(node, "ip addr add 192.0.2.6/32 dev eth0")
    sh(node, "ip route add 203.0.113.0/28 via 198.51.100.1 src 192.0.2.6")
    async with following(node) as follower:
        assert chosen(CanReach(FAR), follower.last) == "eth1"
        sh(node, "ip addr del 192.0.2.6/32 dev eth0")
        await follower.until(lambda now: chosen(CanReach(FAR), now) == "eth0")


async def test_a_next_hop_that_is_down_leaves_the_others(node, following, sh):
    sh(node, "ip route replace 203.0.113.0/24 nexthop via 192.0.2.1 nexthop via 198.51.100.1")
    async with following(node) as follower:
        assert chosen(CanReach(FAR), follower.last) == "eth0"
        sh(node, "ip link set eth0 down")
        await follower.until(lambda now: chosen(CanReach(FAR), now) == "eth1")


async def test_an_ipv6_route_whose_time_is_over_counts_no_more_though_the_kernel_still_lists_it(node, following, sh):
    far = ip_address("2001:db8:ffff::1")
    node.sysctl("net.ipv6.conf.eth0.disable_ipv6", 0)
    sh(node, "ip addr add 2001:db8:1::2/64 dev eth0 nodad")
    sh(node, "ip -6 route add 2001:db8:ffff::/64 via 2001:db8:1::1 dev eth0 expires 1000")
    async with following(node) as follower:
        assert chosen(CanReach(far), follower.last) == "eth0"
        sh(node, "ip -6 route replace 2001:db8:ffff::/64 via 2001:db8:1::1 dev eth0 expires 1")
        await follower.until(lambda now: chosen(CanReach(far), now) is UnresolvedReason.NO_ROUTE)
        assert "2001:db8:ffff::/64" in sh(node, "ip -6 route show")


async def test_a_route_that_moves_takes_can_reach_with_it(node, following, sh):
    async with following(node) as follower:
        for gateway, link in (("198.51.100.1", "eth1"), ("192.0.2.1", "eth0")):
            sh(node, f"ip route replace 203.0.113.0/24 via {gateway}")
            await follower.until(lambda now, link=link: chosen(CanReach(FAR), now) == link)


async def test_a_nexthop_object_that_moves_takes_its_routes_with_it(node, following, sh):
    node.sysctl("net.ipv4.nexthop_compat_mode", 0)
    sh(node, "ip nexthop add id 1 via 192.0.2.1 dev eth0")
    sh(node, "ip route replace 203.0.113.0/24 nhid 1")
    async with following(node) as follower:
        assert chosen(CanReach(FAR), follower.last) == "eth0"
        sh(node, "ip nexthop replace id 1 via 198.51.100.1 dev eth1")
        await follower.until(lambda now: chosen(CanReach(FAR), now) == "eth1")


async def test_a_rule_that_comes_and_goes_is_followed(node, following, sh):
    sh(node, "ip route add 203.0.113.0/24 via 198.51.100.1 table 100")
    async with following(node) as follower:
        sh(node, "ip rule add to 203.0.113.0/24 lookup 100")
        await follower.until(lambda now: chosen(CanReach(FAR), now) == "eth1")
        sh(node, "ip rule del to 203.0.113.0/24 lookup 100")
        await follower.until(lambda now: chosen(CanReach(FAR), now) == "eth0")


async def test_an_address_that_moves_takes_its_subnet_with_it(node, following, sh):
    async with following(node) as follower:
        assert chosen(OwnSubnet(), follower.last) == "eth0"
        sh(node, "ip addr del 192.0.2.5/24 dev eth0")
        await follower.until(lambda now: chosen(OwnSubnet(), now) is UnresolvedReason.NO_SUBNET)
        sh(node, "ip addr add 192.0.2.5/24 dev eth1")
        await follower.until(lambda now: chosen(OwnSubnet(), now) == "eth1")


async def test_a_link_put_into_a_bridge_hands_over_to_the_bridge(node, following, sh):
    async with following(node) as follower:
        sh(node, "ip link add br0 type bridge")
        sh(node, "ip link set br0 up")
        sh(node, "ip link set eth0 master br0")
        await follower.until(lambda now: chosen(LinkNames(("eth0",)), now) is UnresolvedReason.PORT)
        assert "use br0" in resolve(LinkNames(("eth0",)), EIP, follower.last).message
        await follower.until(lambda now: chosen(LinkNames(("br0",)), now) == "br0")


async def test_of_a_thousand_changes_most_cost_no_snapshot_of_their_own(node, following, batch):
    async with following(node) as follower, asyncio.TaskGroup() as tasks:
        before = follower.shown
        changes = [f"route add 10.0.{i // 256}.{i % 256} via 192.0.2.1" for i in range(1000)]
        tasks.create_task(asyncio.to_thread(batch, node, changes))
        await follower.until(lambda now: len(now.routes) > 1000)
        assert follower.shown - before < 200


async def test_addresses_bound_on_lo_are_this_hosts_own_and_lead_nowhere(node, following, sh):
    async with following(node) as follower:
        for number in range(20):
            await asyncio.to_thread(sh, node, f"ip addr add 10.0.0.{number}/32 dev lo")
        now = await follower.until(lambda now: ip_address("10.0.0.19") in now.own)
        assert {address: now.own[address] for address in now.own if str(address).startswith("10.")} == {
            ip_address(f"10.0.0.{number}"): "lo" for number in range(20)
        }
        assert not [bound for bound in now.addresses if str(bound.address).startswith("10.")]


async def test_notifications_lost_to_a_full_socket_lose_nothing(node, following, batch, sh):
    async with following(node) as follower:
        # The loop stands still meanwhile, and nobody reads what the kernel tells.
        batch(node, [f"route {verb} 10.9.9.9 via 192.0.2.1" for _ in range(2000) for verb in ("add", "del")])
        sh(node, "ip route replace 203.0.113.0/24 via 198.51.100.1")
        drops = [line.split()[8] for line in sh(node, "cat /proc/thread-self/net/netlink").splitlines()[1:]]
        assert any(map(int, drops))
        await follower.until(lambda now: chosen(CanReach(FAR), now) == "eth1")
        sh(node, "ip route replace 203.0.113.0/24 via 192.0.2.1")
        await follower.until(lambda now: chosen(CanReach(FAR), now) == "eth0")
