"""Which addresses of a pool are used, resting, excluded, free or outside it, by /24."""

import pytest

from speaker.model import Family


def maps(lan, pool="lan", family=Family.IPV4):
    """Where each begins, and its runs as 'used 2, free 5'."""
    places = lan.allocator.usage(pool)[family].places
    found = map(places.map, places.blocks())
    return {first: ", ".join(f"{state} {number}" for state, number in runs) for first, runs in found}


def test_a_small_pool_is_mapped_as_a_whole(lan):
    lan.pool("lan", "192.0.2.0/27", exclude="192.0.2.5-192.0.2.6")
    lan.ask("s1")
    lan.ask("s2")
    lan.ask("s3")
    lan.gone("s2")
    assert maps(lan) == {"192.0.2.0": "excluded 1, used 1, resting 1, used 1, free 1, excluded 2, free 24, excluded 1"}


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ("192.0.2.40", {"192.0.2.32": "outside 8, free 1, outside 23"}),
        ("192.0.2.30-192.0.2.33", {"192.0.2.0": "outside 30, free 4, outside 30"}),
        (
            "192.0.2.250-192.0.3.2",
            {"192.0.2.224": "outside 26, free 5, excluded 1", "192.0.3.0": "excluded 1, free 2, outside 29"},
        ),
        ("192.0.2.0/24 198.51.100.9", {"192.0.2.0": "excluded 1, free 254, excluded 1",
                                       "198.51.100.0": "outside 9, free 1, outside 22"}),
        ("192.0.2.0/23", {}),
    ],
)  # fmt: skip
def test_rows_outside_the_pool_are_left_out_and_of_a_large_pool_what_nobody_uses(lan, addresses, expected):
    lan.pool("lan", addresses)
    assert maps(lan) == expected


def test_of_a_large_pool_the_24s_in_use_are_mapped(lan):
    lan.pool("lan", "10.0.0.0/8")
    lan.ask("s1", addresses="10.1.2.3")
    lan.ask("s2", addresses="10.9.9.255")
    lan.gone("s2")
    assert maps(lan) == {"10.1.2.0": "free 3, used 1, free 252", "10.9.9.0": "free 255, resting 1"}


def test_ipv6_is_not_mapped(lan):
    lan.pool("lan", "2001:db8::/120")
    lan.ask("s1", families=(Family.IPV6,))
    assert maps(lan, family=Family.IPV6) == {}


def test_a_map_stays_as_it_was_when_it_was_asked_for(lan):
    lan.pool("lan", "192.0.2.1")
    before = lan.allocator.usage("lan")[Family.IPV4].places
    lan.ask("s1")
    assert before.map(*before.blocks())[1][1] == ("free", 1)
