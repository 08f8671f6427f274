"""Solicited-node groups: joined where switches can see it, shared, left, and joined again on a new link."""

from ipaddress import IPv6Address

import pytest

from speaker.errors import EdgeError
from speaker.layer2 import groups as mld
from speaker.layer2.groups import KERNEL_GROUPS
from speaker.model import Family
from speaker.packets import ndp

pytestmark = pytest.mark.netns

EIP6 = "2001:db8::10"
GROUP = "ff02::1:ff00:10"
MLD_REPORT = 143  # RFC 3810 §5.2


@pytest.fixture
def groups(lan, sh):
    """The multicast groups of the node's eth0."""
    return lambda: {line.split()[1] for line in sh(lan.node, "ip -6 maddr show dev eth0").splitlines()[1:]}


def test_joining_sends_the_report_that_snooping_switches_need(lan, speaking, ear):
    switch = ear(lan.client, 0x86DD)
    speaking(EIP6)
    report = switch.until(lambda frame: IPv6Address(GROUP).packed in frame[62:] and frame[62] == MLD_REPORT)
    assert IPv6Address(report[38:54]) == IPv6Address("ff02::16")


def test_a_group_that_two_eips_share_is_left_with_the_second(speaking, groups, eventually):
    station = speaking(EIP6, "2001:db8:1::10", "2001:db8::11")
    eventually(lambda: {GROUP, "ff02::1:ff00:11"} <= groups())
    station.hold("2001:db8:1::10")
    eventually(lambda: "ff02::1:ff00:11" not in groups())
    assert GROUP in groups()
    station.hold()
    eventually(lambda: GROUP not in groups())


def test_a_recreated_link_gets_its_groups_again(lan, speaking, sh, wire, groups, eventually):
    first = speaking(EIP6)
    sh(lan.node, "ip link delete eth0")
    assert isinstance(first.failure(), EdgeError)
    wire(lan.node, "eth0", lan.client, "eth0")
    second = speaking(EIP6)
    assert second.link.index != first.link.index
    eventually(lambda: GROUP in groups())


def test_a_snooping_switch_learns_every_group_also_those_the_kernel_is_spared(lan, speaking, groups, eventually, sh):
    sh(lan.client, "ip link add switch type bridge mcast_snooping 1")
    sh(lan.client, "ip link set switch up")
    sh(lan.client, "ip link set eth0 master switch")
    eips = [f"2001:db8::1:{number:x}" for number in range(700)]
    wanted = [str(IPv6Address(ndp.solicited_node(IPv6Address(eip).packed))) for eip in eips]

    def snooped():
        return set(wanted) & set(sh(lan.client, "bridge mdb show dev switch").split())

    station = speaking(*eips)
    eventually(lambda: snooped() == set(wanted))
    assert len(groups() & set(wanted)) == KERNEL_GROUPS
    assert "allmulti 1" in sh(lan.node, "ip -d link show dev eth0")
    assert not station.counts.refused


def test_a_withdrawn_group_that_only_we_reported_is_reported_as_left(speaking, ear, lan):
    switch = ear(lan.client, 0x86DD)
    eips = [f"2001:db8::1:{number:x}" for number in range(KERNEL_GROUPS + 1)]
    station = speaking(*eips)
    station.counts.wait_for(lambda counts: counts.announcements[Family.IPV6] == len(eips))
    station.hold()

    def says_left(frame):
        return frame[62] == MLD_REPORT and frame[70] == mld.RecordType.LEFT

    assert switch.until(says_left)[54:62] == b"\x3a" + mld.ROUTER_ALERT[1:]


def test_a_link_that_is_too_narrow_for_ndp_answers_arp(lan, speaking, sh):
    sh(lan.node, "ip link set eth0 mtu 68")
    station, failed = speaking("192.0.2.10"), []
    station.counts.send_failed = lambda family, _: failed.append(family)
    station.hold("192.0.2.10", EIP6)
    station.counts.wait_for(lambda counts: counts.refused)
    assert "timeout" not in sh(lan.client, "timeout 60 arping -r -C 5 -c 5 -i eth0 192.0.2.10")
    assert failed == [Family.IPV6]


def test_leaving_leaves_the_groups(lan, speaking, groups, eventually):
    station = speaking(EIP6)
    eventually(lambda: GROUP in groups())
    station.stop()
    eventually(lambda: GROUP not in groups())


def test_a_link_without_ipv6_is_told_and_arp_goes_on(lan, speaking, sh):
    sh(lan.node, "ip link set eth0 mtu 1000")  # below IPv6's minimum the kernel takes the link's IPv6 away
    station = speaking(EIP6, "192.0.2.10")
    station.counts.wait_for(lambda counts: counts.refused)
    assert "cannot join ff02::" in station.counts.refused[0]
    assert "timeout" not in sh(lan.client, "timeout 60 arping -r -C 1 -c 30 -i eth0 192.0.2.10")


def test_a_group_that_was_refused_is_joined_with_the_next_one(lan, speaking, sh, groups, eventually):
    sh(lan.node, "ip link set eth0 mtu 1000")
    station = speaking(EIP6)
    station.counts.wait_for(lambda counts: counts.refused)
    sh(lan.node, "ip link set eth0 mtu 1500")
    station.hold(EIP6, "2001:db8::11")
    eventually(lambda: {GROUP, "ff02::1:ff00:11"} <= groups())


def test_a_group_that_the_kernel_joined_is_reported_again_before_a_switch_forgets_it(lan, link, ear):
    """Where nobody asks (no querier), snooping switches age out what is not repeated."""
    switch, address = ear(lan.client, 0x86DD), IPv6Address(EIP6).packed

    def reported(frame):
        return IPv6Address(GROUP).packed in frame[62:] and frame[62] == MLD_REPORT

    with lan.node.entered():
        joined = mld.Groups(link(lan.node, "eth0"))
        joined.add([address])
        for now in range(4):
            joined.work(float(now), 10)
        again = joined.wake()
        assert again is not None
        assert 30 < again < 130, "half of what a switch remembers at most"
        for _ in range(4):  # the kernel's two, and ours
            switch.until(reported)
        joined.work(again, 10)
        switch.until(reported)
        joined.discard([address])
        joined.work(again + 1, 10)
        assert joined.wake() is None
        joined.close()
