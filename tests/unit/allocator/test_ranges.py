"""The arithmetic of what a pool offers, held against counting on fingers."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.allocator.pools import offers
from speaker.api.addresses import parse_range
from speaker.model import AddressRange, Family, Pool


def everything(offer):
    number, found = offer.at_or_after(0), []
    while number is not None:
        found.append(str(offer.address(number)))
        number = offer.at_or_after(number + 1)
    return " ".join(found)


@pytest.mark.parametrize(
    ("addresses", "exclude", "offered"),
    [
        ("192.0.2.0/29", "", "192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.4 192.0.2.5 192.0.2.6"),
        ("192.0.2.0/30", "", "192.0.2.1 192.0.2.2"),
        ("192.0.2.0/31", "", "192.0.2.0 192.0.2.1"),
        ("192.0.2.0/32", "", "192.0.2.0"),
        ("192.0.2.0", "", "192.0.2.0"),
        ("192.0.2.255-192.0.2.255", "", "192.0.2.255"),
        ("192.0.2.254-192.0.3.1", "", "192.0.2.254 192.0.3.1"),
        ("192.0.2.255-192.0.3.0", "", ""),
        ("192.0.2.254/31 192.0.3.0/31", "", "192.0.2.254 192.0.2.255 192.0.3.0 192.0.3.1"),
        ("192.0.2.254-192.0.3.1 192.0.3.0", "", "192.0.2.254 192.0.3.0 192.0.3.1"),
        ("192.0.2.0/29 192.0.2.0/29", "192.0.2.2-192.0.2.5", "192.0.2.1 192.0.2.6"),
        ("192.0.2.0/29", "192.0.2.0/30 192.0.2.5", "192.0.2.4 192.0.2.6"),
        ("192.0.2.3 192.0.2.1 192.0.2.2", "192.0.2.2", "192.0.2.1 192.0.2.3"),
        ("192.0.2.0/30", "192.0.2.0/24", ""),
        ("2001:db8::/126", "", "2001:db8::1 2001:db8::2 2001:db8::3"),
        ("2001:db8::/127", "", "2001:db8:: 2001:db8::1"),
        ("2001:db8::-2001:db8::1", "", "2001:db8:: 2001:db8::1"),
        ("2001:db8::ff-2001:db8::100", "2001:db8::ff", "2001:db8::100"),
    ],
)
def test_ends_of_networks_and_dangerous_endings_are_left_out(addresses, exclude, offered, pool):
    found = offers(pool("lan", addresses, exclude=exclude))
    assert " ".join(everything(offer) for offer in found.values()) == offered
    assert sum(offer.size for offer in found.values()) == len(offered.split())


def test_a_pool_may_offer_all_it_names(pool):
    asis = offers(pool("lan", "192.0.2.0/30 192.0.2.255-192.0.3.0 fd00::/126", avoid_network_and_broadcast=False))
    assert everything(asis[Family.IPV4]) == "192.0.2.0 192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.255 192.0.3.0"
    assert everything(asis[Family.IPV6]) == "fd00:: fd00::1 fd00::2 fd00::3"


@pytest.mark.parametrize(
    ("addresses", "size"),
    [
        ("10.0.0.0/8", 2**24 - 2),
        ("10.0.0.0-10.255.255.255", 2**24 - 2 * 2**16),
        ("1.0.0.0-126.255.255.255", 126 * (2**24 - 2 * 2**16)),
        ("2001:db8::/48", 2**80 - 1),
        ("2001:db8::/65", 2**63 - 1),
        ("2000::/3", 2**125 - 1),
        ("10.0.0.0-10.255.255.255 10.1.0.0/16", 2**24 - 2 * 2**16 + 2 * 256 - 2),
    ],
)
def test_the_size_of_a_pool_is_computed_never_counted(addresses, size, pool):
    (offer,) = offers(pool("lan", addresses)).values()
    assert offer.size == size
    assert len(offer.segments) <= 3


# ── Generated pools, small enough to list ─────────────────────────────────────────────────────────────────────

# Around a /24 boundary, where .255 and .0 meet.
BASE = int(IPv4Address("10.0.0.192"))
WIDTH = 160


@st.composite
def written_ranges(draw):
    first = BASE + draw(st.integers(0, WIDTH - 1))
    if draw(st.booleans()):
        last = min(first + draw(st.integers(0, 90)), BASE + WIDTH - 1)
        return AddressRange(IPv4Address(first), IPv4Address(last))
    network = IPv4Network((first, draw(st.integers(27, 32))), strict=False)
    return AddressRange(network[0], network[-1], network)


def listed(written, avoid):
    addresses = {IPv4Address(n) for n in range(int(written.first), int(written.last) + 1)}
    if avoid and written.network is not None and written.network.prefixlen <= 30:
        addresses -= {written.first, written.last}
    if avoid and written.network is None and written.first != written.last:
        addresses = {address for address in addresses if address.packed[3] not in (0, 255)}
    return addresses


@given(st.lists(written_ranges(), max_size=6), st.lists(written_ranges(), max_size=4), st.booleans())
def test_the_arithmetic_agrees_with_listing_every_address(addresses, exclude, avoid):
    pool = Pool("lan", tuple(addresses), tuple(exclude), avoid_network_and_broadcast=avoid)
    expected = set().union(*(listed(each, avoid) for each in addresses))
    expected = expected.difference(*(listed(each, avoid=False) for each in exclude))
    offer = offers(pool).get(Family.IPV4)
    if offer is None:
        assert not expected
        return
    assert everything(offer) == " ".join(map(str, sorted(expected)))
    assert offer.size == len(expected)
    for number in range(BASE - 2, BASE + WIDTH + 2):
        assert (number in offer) == (IPv4Address(number) in expected)
    for one, next_one in zip(offer.segments, offer.segments[1:], strict=False):
        assert one.last < next_one.first


@given(st.ip_addresses(v=6), st.integers(0, 2**64))
def test_an_ipv6_range_is_exact_at_any_length(first, length):
    last = min(int(first) + length, 2**128 - 1)
    pool = Pool("lan", (AddressRange(first, IPv6Address(last)),))
    offer = offers(pool)[Family.IPV6]
    assert offer.size == last - int(first) + 1
    assert int(first) in offer
    assert last in offer
    assert last + 1 not in offer
    assert int(first) - 1 not in offer


def test_families_do_not_mix():
    pool = Pool("lan", (parse_range("192.0.2.1"), parse_range("2001:db8::1")))
    found = offers(pool)
    assert int(ip_address("2001:db8::1")) not in found[Family.IPV4]
    assert int(ip_address("192.0.2.1")) not in found[Family.IPV6]
