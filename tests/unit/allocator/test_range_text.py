"""``speaker.api.addresses``: four spellings, two families, and a sentence for everything else."""

import re
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.api.addresses import parse_range
from speaker.model import AddressRange


@pytest.mark.parametrize(
    ("text", "first", "last", "network"),
    [
        ("192.0.2.7", "192.0.2.7", "192.0.2.7", None),
        (" 192.0.2.7 ", "192.0.2.7", "192.0.2.7", None),
        ("192.0.2.7-192.0.2.9", "192.0.2.7", "192.0.2.9", None),
        ("192.0.2.7 - 192.0.2.9", "192.0.2.7", "192.0.2.9", None),
        ("192.0.2.7-192.0.2.7", "192.0.2.7", "192.0.2.7", None),
        ("192.0.2.0/24", "192.0.2.0", "192.0.2.255", "192.0.2.0/24"),
        ("192.0.2.7/32", "192.0.2.7", "192.0.2.7", "192.0.2.7/32"),
        ("192.0.2.0/255.255.255.0", "192.0.2.0", "192.0.2.255", "192.0.2.0/24"),
        ("192.0.2.7/255.255.255.255", "192.0.2.7", "192.0.2.7", "192.0.2.7/32"),
        ("10.0.0.0/8", "10.0.0.0", "10.255.255.255", "10.0.0.0/8"),
        ("169.254.1.1", "169.254.1.1", "169.254.1.1", None),
        ("2001:db8::7", "2001:db8::7", "2001:db8::7", None),
        ("2001:DB8::7-2001:db8::1:0", "2001:db8::7", "2001:db8::1:0", None),
        ("2001:db8::/64", "2001:db8::", "2001:db8::ffff:ffff:ffff:ffff", "2001:db8::/64"),
        ("fd00::1/128", "fd00::1", "fd00::1", "fd00::1/128"),
    ],
)
def test_each_spelling_is_understood(text, first, last, network):
    expected = AddressRange(ip_address(first), ip_address(last), ip_network(network) if network else None)
    assert parse_range(text) == expected


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "must be a single address"),
        ("lan", "must be a single address"),
        ("192.0.2", "must be a single address"),
        ("192.0.2.256", "must be a single address"),
        ("192.0.2.010", "must be a single address"),
        ("192.0.2.1-9", "must be a single address"),
        ("192.0.2.1,192.0.2.2", "must be a single address"),
        ("-", "must be a single address"),
        ("192.0.2.1-", "must be a single address"),
        ("1-2-3", "must be a single address"),
        ("192.0.2.9-192.0.2.1", "did you mean 192.0.2.1-192.0.2.9"),
        ("2001:db8::9-2001:db8::1", "did you mean 2001:db8::1-2001:db8::9"),
        ("192.0.2.1-2001:db8::1", "same IP family"),
        ("192.0.2.0/30-192.0.2.9", "leave out the prefix length"),
        ("192.0.2.7/24", "write 192.0.2.0/24 for the whole network or 192.0.2.7 for the one"),
        ("192.0.2.7/255.255.255.0", "write 192.0.2.0/24 for the whole network"),
        ("2001:db8::7/64", "write 2001:db8::/64"),
        ("192.0.2.0/33", "from 0 to 32 or a netmask"),
        ("192.0.2.0/", "from 0 to 32 or a netmask"),
        ("192.0.2.0/-1", "leave out the prefix length"),
        ("192.0.2.0/+8", "from 0 to 32"),
        ("192.0.2.0/²", "from 0 to 32"),
        ("192.0.2.0/" + "9" * 5000, "from 0 to 32"),
        ("2001:db8::/129", "from 0 to 128"),
        ("2001:db8::/ffff::", "from 0 to 128"),
        ("2001:db8::/255.255.0.0", "from 0 to 128"),
        ("192.0.2.0/0.0.0.255", "ones followed by zeros"),
        ("192.0.2.0/255.0.255.0", "ones followed by zeros"),
        ("192.0.2.0/255.255.0", "neither a prefix length nor a netmask"),
        ("fe80::1%eth0", "no scope id"),
        ("2001:db8::1%1", "no scope id"),
    ],
)
def test_a_mistake_is_answered_with_the_rule_it_breaks(text, rule):
    with pytest.raises(ValueError, match=re.escape(rule)):
        parse_range(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("0.0.0.0/32", "this network"),
        ("0.0.0.0/0", "this network"),
        ("127.0.0.1", "loopback"),
        ("126.255.255.0-128.0.0.9", "loopback"),
        ("224.0.0.18", "multicast"),
        ("255.255.255.255", "limited broadcast"),
        ("240.0.0.0/4", "limited broadcast"),
        ("::", "unspecified"),
        ("::/0", "unspecified"),
        ("::1", "loopback"),
        ("::ffff:192.0.2.1", "IPv4-mapped"),
        ("fe80::/64", "link-local"),
        ("ff02::1", "multicast"),
        ("fd00::-ff00::", "link-local"),
    ],
)
def test_what_can_never_be_an_eip_is_refused_and_named(text, what):
    with pytest.raises(ValueError, match=what):
        parse_range(text)


def test_the_neighbours_of_the_forbidden_blocks_are_fine():
    for text in ("1.0.0.0-126.255.255.255", "128.0.0.0-223.255.255.255", "240.0.0.0-255.255.255.254", "2000::/3"):
        parse_range(text)


@given(st.text() | st.text(alphabet="0123456789abcdef.:-/%, "))
def test_no_text_raises_anything_but_value_error(text):
    with suppress(ValueError):
        parsed = parse_range(text)
        assert int(parsed.first) <= int(parsed.last)


NEVER = [
    *map(ip_network, ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32")),
    *map(ip_network, ("::/127", "::ffff:0:0/96", "fe80::/10", "ff00::/8")),
]


@given(st.ip_addresses(), st.data())
def test_a_network_parses_to_its_own_ends(address, data):
    length = data.draw(st.integers(0, address.max_prefixlen))
    network = ip_network(f"{address}/{length}", strict=False)
    parsed = None
    with suppress(ValueError):
        parsed = parse_range(str(network))
    if parsed is None:
        assert any(network.version == each.version and network.overlaps(each) for each in NEVER)
        return
    assert (parsed.first, parsed.last, parsed.network) == (network[0], network[-1], network)
    assert isinstance(parsed.first, IPv4Address if address.version == 4 else IPv6Address)
    if address.version == 4:
        assert parse_range(network.with_netmask) == parsed
