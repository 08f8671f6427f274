"""Links that come and go, EIPs that move between them, and owners that change a few things at a time."""

import time
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest

from speaker.errors import EdgeError
from speaker.layer2.answer import Ignored
from speaker.model import Family, Gratuitous, Placement
from speaker.packets import BROADCAST, UNKNOWN, arp

pytestmark = pytest.mark.netns
OF_SOCKETS = pytest.mark.parametrize("in_kernel", [None], ids=["sockets"])
"""What is told of does not reach them where the kernel answers."""

EIP, OTHER, SIX = IPv4Address("192.0.2.10"), IPv4Address("192.0.2.11"), IPv6Address("2001:db8::10")
ARP = 0x0806
ONCE = Gratuitous(burst=1)
OLDEST = 0.05
TURNS = 100
"""Of a loop, at most, until what it cancelled is over."""
SOCKETS = "cat /proc/net/packet"


def ask(mac, address):
    return arp.ArpPacket(BROADCAST, mac, 1, mac, IPv4Address("192.0.2.2"), UNKNOWN, address).pack()


def boottime():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.fixture
def at_work(layer2):
    """``at_work()`` starts one that may answer for an hour; ``at_work.do`` … its methods run in its own loop."""

    def start(**how):
        running = layer2(**how)
        running.do(running.layer2.extend, boottime() + 3600)
        return running

    return start


def mac_of_answer(client, address):
    client.send(ask(client.mac, address))
    return arp.parse(client.until(client.to_us)).sender_mac


def test_a_kept_link_answers_one_claim_after_the_other(lan, at_work, ear, link):
    client, running, eth0 = ear(lan.client, ARP), at_work(), link(lan.node, "eth0")
    running.do(running.layer2.keep, [eth0])
    running.do(running.layer2.take, {EIP: Placement(eth0, ONCE)})
    assert mac_of_answer(client, EIP) == eth0.mac
    running.do(running.layer2.drop, [EIP])
    running.do(running.layer2.take, {OTHER: Placement(eth0, ONCE)})
    assert mac_of_answer(client, OTHER) == eth0.mac
    client.send(ask(client.mac, EIP))
    assert client.never(client.to_us, 0.1)


def test_a_kept_link_is_open_although_it_holds_nothing_and_closed_when_it_is_kept_no_longer(lan, at_work, link, sh):
    running, eth0 = at_work(), link(lan.node, "eth0")

    def closed():
        running.do(lambda: None)  # a turn of its loop
        return len(sh(lan.node, SOCKETS).splitlines()) == 1

    running.do(running.layer2.keep, [eth0])
    running.do(running.layer2.take, {EIP: Placement(eth0, ONCE)})
    running.counts.wait_for(lambda counts: counts.announcements[Family.IPV4] == 2)
    assert len(sh(lan.node, SOCKETS).splitlines()) == 3
    running.do(running.layer2.drop, [EIP])
    assert len(sh(lan.node, SOCKETS).splitlines()) == 3
    running.do(running.layer2.keep, [])
    assert any(closed() for _ in range(TURNS))


def test_what_is_taken_is_announced_and_announced_anew_when_asked(lan, at_work, link):
    running, eth0 = at_work(), link(lan.node, "eth0")
    running.do(running.layer2.take, {EIP: Placement(eth0, ONCE), SIX: Placement(eth0, ONCE)})
    running.counts.wait_for(lambda counts: counts.announcements == {Family.IPV4: 2, Family.IPV6: 1})
    running.do(running.layer2.announce, [EIP, OTHER])
    running.counts.wait_for(lambda counts: counts.announcements == {Family.IPV4: 4, Family.IPV6: 1})


def test_another_way_to_announce_one_announces_it_and_no_other(lan, at_work, link):
    running, eth0 = at_work(), link(lan.node, "eth0")
    running.do(running.layer2.take, {EIP: Placement(eth0, ONCE), SIX: Placement(eth0, ONCE)})
    running.counts.wait_for(lambda counts: counts.announcements == {Family.IPV4: 2, Family.IPV6: 1})
    running.do(running.layer2.take, {SIX: Placement(eth0, Gratuitous(burst=2, interval=0.01))})
    running.counts.wait_for(lambda counts: counts.announcements == {Family.IPV4: 2, Family.IPV6: 3})


def test_dropping_one_leaves_the_rest(lan, at_work, ear, link):
    client, running, eth0 = ear(lan.client, ARP), at_work(), link(lan.node, "eth0")
    running.do(running.layer2.take, {EIP: Placement(eth0, ONCE), OTHER: Placement(eth0, ONCE)})
    assert mac_of_answer(client, EIP) == eth0.mac
    running.do(running.layer2.drop, [EIP, SIX])
    client.send(ask(client.mac, EIP))
    client.send(ask(client.mac, OTHER))
    assert arp.parse(client.until(client.to_us)).sender_ip == OTHER
    running.counts.wait_for(lambda counts: counts.announcements[Family.IPV4] == 4)
    assert running.counts.announcements[Family.IPV6] == 0


def test_an_eip_taken_on_another_link_moves_there(lan, at_work, ear, link, sh, wire):
    wire(lan.node, "eth1", lan.client, "eth1")
    first, running = ear(lan.client, ARP), at_work()
    second = ear(lan.client, ARP, "eth1")
    eth0, eth1 = link(lan.node, "eth0"), link(lan.node, "eth1")
    running.do(running.layer2.keep, [eth0, eth1])
    running.do(running.layer2.take, {EIP: Placement(eth0, ONCE)})
    assert mac_of_answer(first, EIP) == eth0.mac
    running.do(running.layer2.take, {EIP: Placement(eth1, ONCE)})
    assert mac_of_answer(second, EIP) == eth1.mac
    first.send(ask(first.mac, EIP))
    assert first.never(first.to_us, 0.1)


def test_each_link_has_a_deadline_of_its_own(lan, layer2, ear, link, wire):
    wire(lan.node, "eth1", lan.client, "eth1")
    first, second, running = ear(lan.client, ARP), ear(lan.client, ARP, "eth1"), layer2()
    eth0, eth1 = link(lan.node, "eth0"), link(lan.node, "eth1")
    running.do(running.layer2.extend, boottime() + 3600, eth1.index)  # before its sockets are open
    running.do(running.layer2.take, {EIP: Placement(eth0, ONCE), OTHER: Placement(eth1, ONCE)})
    assert mac_of_answer(second, OTHER) == eth1.mac
    first.send(ask(first.mac, EIP))
    running.counts.wait_for(lambda counts: counts.reasons == {Ignored.CLAIM_EXPIRED: 1})
    running.do(running.layer2.extend, boottime() + 3600)
    assert mac_of_answer(first, EIP) == eth0.mac
    running.do(running.layer2.extend, float("-inf"))
    second.send(ask(second.mac, OTHER))
    running.counts.wait_for(lambda counts: counts.reasons == {Ignored.CLAIM_EXPIRED: 2})


def test_a_link_that_goes_down_and_comes_back_answers_and_announces_again(lan, at_work, ear, link, sh):
    client, running, eth0 = ear(lan.client, ARP), at_work(), link(lan.node, "eth0")
    running.do(running.layer2.take, {EIP: Placement(eth0, ONCE)})
    running.counts.wait_for(lambda counts: counts.announcements[Family.IPV4] == 2)
    sh(lan.node, "ip link set eth0 down")
    running.wait_for_loss()
    running.do(running.layer2.take, {OTHER: Placement(eth0, ONCE)})
    running.do(running.layer2.announce, [EIP])
    running.do(running.layer2.drop_queued)
    sh(lan.node, "ip link set eth0 up")
    running.counts.wait_for(lambda counts: counts.announcements[Family.IPV4] == 6)
    assert {mac_of_answer(client, address) for address in (EIP, OTHER)} == {eth0.mac}
    assert all(isinstance(error, EdgeError) for error in running.lost)


def test_a_first_claim_on_a_link_that_opens_later_is_probed_for_there(lan, at_work, ear, link, sh):
    eth0 = link(lan.node, "eth0")
    sh(lan.node, "ip link set eth0 down")
    running = at_work()
    running.do(running.layer2.take, {EIP: Placement(eth0, ONCE)}, [EIP])
    running.wait_for_loss()
    sh(lan.client, f"ip addr add {EIP}/24 dev eth0")
    sh(lan.node, "ip link set eth0 up")
    running.counts.wait_for(lambda counts: counts.conflicts)
    assert not running.counts.announcements


def test_a_first_claim_that_moves_is_still_probed_for(lan, at_work, ear, link, sh, wire):
    wire(lan.node, "eth1", lan.client, "eth1")
    sh(lan.client, f"ip addr add {EIP}/32 dev lo")  # its kernel answers on both links
    running, eth0, eth1 = at_work(), link(lan.node, "eth0"), link(lan.node, "eth1")
    running.do(running.layer2.keep, [eth0, eth1])
    running.do(running.layer2.take, {EIP: Placement(eth0, ONCE)}, [EIP])
    running.counts.wait_for(lambda counts: len(counts.conflicts) == 1)
    running.do(running.layer2.take, {EIP: Placement(eth1, ONCE)})
    running.counts.wait_for(lambda counts: len(counts.conflicts) == 2)
    assert not running.counts.announcements
    assert running.do(running.layer2.is_unproven, EIP)
    running.do(running.layer2.drop, [EIP])
    assert not running.do(running.layer2.is_unproven, EIP)


def test_peers_are_known_on_links_that_open_later(lan, at_work, ear, link):
    client, running, eth0 = ear(lan.client, ARP), at_work(), link(lan.node, "eth0")
    running.do(running.layer2.peers, eth0.index, frozenset({client.mac}))
    running.do(running.layer2.take, {EIP: Placement(eth0, ONCE)})
    running.counts.wait_for(lambda counts: counts.announcements[Family.IPV4] == 2)
    client.send(arp.announce_by_reply(client.mac, EIP.packed))
    running.counts.wait_for(lambda counts: counts.reasons == {Ignored.PEER: 1})


@OF_SOCKETS
def test_news_heard_before_an_answer_may_take_the_eip_away(lan, at_work, ear, link):
    client, eth0 = ear(lan.client, ARP), link(lan.node, "eth0")

    def hear():
        running.layer2.drop([EIP])

    running = at_work(before_answer=hear)
    running.do(running.layer2.take, {EIP: Placement(eth0, ONCE)})
    running.counts.wait_for(lambda counts: counts.announcements[Family.IPV4] == 2)
    client.send(ask(client.mac, EIP))
    running.counts.wait_for(lambda counts: counts.reasons == {Ignored.NOT_OURS: 1})


@OF_SOCKETS
@pytest.mark.usefixtures("stamping")
def test_an_old_request_is_not_answered(lan, at_work, ear, link):
    """The loop is held up inside ``do`` until the request is older than the limit."""
    client, running, eth0 = ear(lan.client, ARP), at_work(oldest=OLDEST), link(lan.node, "eth0")
    running.do(running.layer2.take, {EIP: Placement(eth0, ONCE)})
    running.counts.wait_for(lambda counts: counts.announcements[Family.IPV4] == 2)

    def hold_up():
        client.send(ask(client.mac, EIP))
        return client.never(client.to_us, 2 * OLDEST)

    assert running.do(hold_up)
    running.counts.wait_for(lambda counts: counts.reasons == {Ignored.TOO_OLD: 1})
    assert not running.counts.answers


def test_ten_thousand_are_all_answered_and_all_silent_when_dropped(lan, at_work, ear, link):
    client, running, eth0 = ear(lan.client, ARP), at_work(), link(lan.node, "eth0")
    eips = [ip_address("10.1.0.0") + number for number in range(10_000)]
    running.do(running.layer2.take, dict.fromkeys(eips, Placement(eth0, ONCE)))
    running.counts.wait_for(lambda counts: counts.announcements[Family.IPV4] == 20_000)
    client.drain()
    assert {mac_of_answer(client, eips[number]) for number in (0, 5_000, 9_999)} == {eth0.mac}
    running.do(running.layer2.drop, eips)
    answers = dict(running.counts.answers)
    for number in (0, 5_000, 9_999):
        client.send(ask(client.mac, eips[number]))
    assert client.never(client.to_us, 0.1)
    assert running.counts.answers == answers
