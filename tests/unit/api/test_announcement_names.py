"""The name of an Announcement is its EIP."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.api.records import announced_eip, announcement_name


@pytest.mark.parametrize(
    ("eip", "name"),
    [
        ("192.0.2.10", "192.0.2.10"),
        ("2001:db8::", "2001-0db8-0000-0000-0000-0000-0000-0000"),
        ("2001:db8::a:10", "2001-0db8-0000-0000-0000-0000-000a-0010"),
    ],
)
def test_a_name_is_the_address_without_colons(eip, name):
    assert announcement_name(ip_address(eip)) == name


@given(st.ip_addresses())
def test_a_name_says_which_address_it_is(eip):
    assert announced_eip(announcement_name(eip)) == eip


@pytest.mark.parametrize(
    "name",
    [
        "",
        "web",
        "192.0.2",
        "192.0.2.010",
        "192.0.2.10.",
        "2001:0db8:0000:0000:0000:0000:0000:0010",
        "2001-db8--10",
        "2001-0DB8-0000-0000-0000-0000-0000-0010",
        "2001-0db8-0000-0000-0000-0000-192.0.2.10",
        "0000-0000-0000-0000-0000-0000-0000-0010%eth0",
        "2001-0db8-0000-0000-0000-0000-0000",
        "192-0-2-10",
    ],
)
def test_any_other_name_is_nobodys(name):
    assert announced_eip(name) is None
