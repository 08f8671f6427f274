"""Two links in one subnet, on a kernel that goes on routing by the one whose cable is out; and a link's other name."""

from ipaddress import ip_address

import pytest

from speaker.interfaces.resolve import Resolved, Unresolved, resolve
from speaker.model import LinkNames, OwnSubnet

pytestmark = pytest.mark.netns

EIP = ip_address("192.0.2.100")
EITHER = LinkNames(("eth0", "eth1"))


@pytest.fixture
def lan(new_namespace):
    return new_namespace("lan")


@pytest.fixture
async def node(new_namespace, wire, sh, lan, settled):
    node = new_namespace("node")
    for at in (0, 1):
        wire(node, f"eth{at}", lan, f"port{at}")
        sh(node, f"ip addr add 192.0.2.{5 + at}/24 dev eth{at}")
    await settled(node, "eth0", "eth1")
    return node


def chosen(snapshot, selector=EITHER) -> str:
    match resolve(selector, EIP, snapshot):
        case Resolved(link):
            return link.name
        case Unresolved(reason):
            return reason.value


async def test_an_eip_does_not_go_to_the_link_by_which_nobody_is_answered(node, lan, following, sh):
    async with following(node) as follower:
        assert chosen(follower.last) == "eth0"
        sh(lan, "ip link set port0 down")
        await follower.until(lambda now: chosen(now) != "eth0" and "linkdown" in sh(node, "ip route show"))
        assert "dev eth0" in sh(node, "ip route get 192.0.2.77"), "the kernel sends answers into the dead link"
        assert chosen(follower.last, OwnSubnet()) == "no_carrier"
        assert "answers to clients there leave by eth0" in resolve(OwnSubnet(), EIP, follower.last).message
        node.sysctl("net.ipv4.conf.eth0.ignore_routes_with_linkdown", 1)
        await follower.until(lambda now: chosen(now) == "eth1")
        assert "dev eth1" in sh(node, "ip route get 192.0.2.77")


async def test_a_lower_metric_of_the_dead_link_still_wins(node, lan, following, sh):
    sh(node, "ip route del 192.0.2.0/24 dev eth0")
    sh(node, "ip route add 192.0.2.0/24 dev eth0 metric 600")
    sh(node, "ip route del 192.0.2.0/24 dev eth1")
    sh(node, "ip route add 192.0.2.0/24 dev eth1 metric 100")
    async with following(node) as follower:
        sh(lan, "ip link set port0 down")
        await follower.until(lambda now: chosen(now) == "eth1")
        assert "dev eth1" in sh(node, "ip route get 192.0.2.77")
        sh(lan, "ip link set port0 up")
        sh(lan, "ip link set port1 down")
        await follower.until(lambda now: chosen(now) not in ("eth0", "eth1"))
        assert "dev eth1" in sh(node, "ip route get 192.0.2.77")


async def test_a_rule_that_routes_the_subnet_by_the_living_link_is_followed(node, lan, following, sh):
    sh(node, "ip route add 192.0.2.0/24 dev eth1 table 7")
    sh(node, "ip rule add to 192.0.2.0/24 lookup 7 priority 100")
    async with following(node) as follower:
        sh(lan, "ip link set port0 down")
        await follower.until(lambda now: chosen(now) == "eth1")
        assert "dev eth1" in sh(node, "ip route get 192.0.2.77")


async def test_a_link_is_found_by_an_altname_for_as_long_as_it_has_it(node, following, sh):
    named = LinkNames(("enp1s0-the-second-port",))
    async with following(node) as follower:
        assert chosen(follower.last, named) == "no_such_link"
        sh(node, "ip link property add dev eth1 altname enp1s0-the-second-port altname eno2")
        await follower.until(lambda now: chosen(now, named) == "eth1")
        assert chosen(follower.last, LinkNames(("eno2",))) == "eth1"
        sh(node, "ip link property del dev eth1 altname enp1s0-the-second-port")
        await follower.until(lambda now: chosen(now, named) == "no_such_link")
