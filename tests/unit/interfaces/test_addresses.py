"""Which addresses a node says are its own on a link, and from which it asks others there."""

from ipaddress import ip_address, ip_interface

import pytest

from speaker.interfaces.addresses import MOST, MOST_GATEWAYS, bound_addresses, gateways, own_addresses, question
from speaker.interfaces.snapshot import Gateway, LinkAddress, Snapshot
from speaker.model import Link, Mac
from speaker.packets.asking import Question

ETH0, ETH1 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01")), Link(3, "eth1", Mac(b"\x02\0\0\0\0\x02"))


def bound(text, link=ETH0, tentative=False):
    interface = ip_interface(text)
    return LinkAddress(link.index, interface.ip, interface.network, tentative)


def seen(*addresses):
    return Snapshot({link.index: link for link in (ETH0, ETH1)}, addresses)


@pytest.mark.parametrize(
    ("addresses", "own"),
    [
        ([], []),
        ([bound("192.0.2.1/24")], ["192.0.2.1"]),
        ([bound("192.0.2.1/24"), bound("192.0.2.2/24")], ["192.0.2.1"]),
        ([bound("192.0.2.9/32"), bound("192.0.2.1/24")], ["192.0.2.1"]),
        ([bound("192.0.2.9/32")], ["192.0.2.9"]),
        ([bound("2001:db8::1/64")], []),
        ([bound("fe80::1/64"), bound("192.0.2.1/24")], ["192.0.2.1", "fe80::1"]),
        ([bound("fe80::1/64", tentative=True), bound("fe80::2/64")], ["fe80::2"]),
        ([bound("192.0.2.1/24", ETH1), bound("fe80::1/64", ETH1)], []),
    ],
)
def test_one_of_each_family_is_told(addresses, own):
    assert own_addresses(seen(*addresses), [ETH0]) == {ETH0.index: tuple(map(ip_address, own))}


def test_all_that_are_bound_are_told_for_nobodys_eips():
    addresses = [bound("192.0.2.9/32"), bound("192.0.2.1/24"), bound("fe80::1/64"), bound("2001:db8::1/64")]
    other = [bound("198.51.100.1/24", ETH1), bound("2001:db8::2/64", tentative=True)]
    told = bound_addresses(seen(*addresses, *other), [ETH0])
    assert told == {ETH0.index: frozenset(map(ip_address, ["192.0.2.9", "192.0.2.1", "2001:db8::1"]))}


def test_of_very_many_those_with_a_subnet_are_told():
    many = [bound(f"10.0.{n // 256}.{n % 256}/32") for n in range(300)]
    (told,) = bound_addresses(seen(*many, bound("192.0.2.1/24")), [ETH0]).values()
    assert len(told) == MOST
    assert ip_address("192.0.2.1") in told


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.2", "192.0.2.1"),
        ("198.51.100.2", "198.51.100.1"),
        ("fe80::2", "fe80::1"),
        ("192.0.2.1", None),
        ("203.0.113.1", None),
        ("10.0.0.1", None),
        ("fe81::1", None),
    ],
)
def test_only_what_is_in_a_subnet_of_the_link_is_asked_and_from_there(address, source):
    addresses = [bound("192.0.2.1/24"), bound("198.51.100.1/24"), bound("fe80::1/64"), bound("10.0.0.2/24", ETH1)]
    wanted = Question(2, ETH0.mac, ip_address(source), ip_address(address)) if source else None
    assert question(seen(*addresses), ETH0, ip_address(address)) == wanted


def test_the_gateways_of_a_link_are_asked_and_of_many_a_few():
    many = [ip_address("192.0.2.9"), *(ip_address("fe80::1") + n for n in range(9))]
    known = frozenset({Gateway(ETH0.index, one) for one in many} | {Gateway(9, ip_address("192.0.2.1"))})
    told = gateways(Snapshot(seen().links, gateways=known), [ETH0, ETH1])
    assert told == {ETH0.index: tuple(many[:MOST_GATEWAYS]), ETH1.index: ()}
