"""Listings of two releases of nft, recorded on Linux 6.18, and what becomes of them when they are not ours."""

import json
import re
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.forwarding.nftables.listing import read_guard, read_plan
from speaker.forwarding.nftables.ruleset import expressible, forwarder_ruleset, guard_ruleset
from speaker.forwarding.plan import EMPTY, Plan, RealServer, VirtualServer
from speaker.model import Protocol

RELEASES = ["1.0.6", "1.1.3"]
MARK = re.compile(r"made_of_\w+")  # of the fixed part's text, which changes more often than what nft lists of it


def recorded(release: str) -> list[dict[str, dict[str, object]]]:
    """``nft --json --numeric list table inet eip-speaker`` after ``NftablesForwarder().apply(RECORDED)``."""
    (mark,) = MARK.findall(forwarder_ruleset(EMPTY).skeleton)
    return json.loads(MARK.sub(mark, (Path(__file__).parent / f"nft-{release}.json").read_text()))


LISTINGS = {release: recorded(release) for release in RELEASES}


def real(address: str, port: int, weight: int = 1, local: bool = False) -> RealServer:
    return RealServer(ip_address(address), port, weight, local)


SERVERS = [
    VirtualServer(
        ip_address("192.0.2.10"),
        Protocol.TCP,
        80,
        "wrr",
        sources=(ip_network("10.0.0.0/8"), ip_network("192.0.2.7/32")),
        real_servers=(real("10.0.0.3", 8080, 3), real("10.0.0.4", 8080, 1, local=True), real("10.0.0.5", 8080, 0)),
    ),
    VirtualServer(
        ip_address("192.0.2.10"),
        Protocol.UDP,
        53,
        "sh",
        persistence=60,
        masquerade=False,
        real_servers=(real("10.0.0.3", 53),),
    ),
    VirtualServer(
        ip_address("2001:db8::10"),
        Protocol.SCTP,
        9999,
        sources=(ip_network("2001:db8:5::/48"),),
        real_servers=(real("2001:db8:1::3", 9999), real("2001:db8:1::4", 9999)),
    ),
    VirtualServer(ip_address("2001:db8::11"), Protocol.TCP, 80, "lc"),
]
WITHOUT_SERVER = ip_address("192.0.2.99")
RECORDED = Plan(frozenset({WITHOUT_SERVER, *(each.address for each in SERVERS)}), {each.key: each for each in SERVERS})


@pytest.mark.parametrize("release", RELEASES)
def test_the_plan_that_made_a_table_is_read_from_its_listing(release):
    assert read_plan(LISTINGS[release]) == expressible(RECORDED) == RECORDED


@given(data=st.data(), release=st.sampled_from(RELEASES))
def test_a_listing_without_one_of_our_rules_or_sets_is_not_ours(data, release):
    listing = LISTINGS[release]
    gone = data.draw(st.sampled_from([item for item in listing if item.keys() & {"rule", "set", "map"}]))
    assert read_plan([item for item in listing if item is not gone]) is None


@given(data=st.data(), release=st.sampled_from(RELEASES))
def test_a_listing_with_a_rule_too_many_is_not_ours(data, release):
    listing = LISTINGS[release]
    rules = [item for item in listing if "rule" in item]
    assert read_plan([*listing, data.draw(st.sampled_from(rules))]) is None


@given(data=st.data(), release=st.sampled_from(RELEASES))
def test_an_element_that_is_missing_is_missed(data, release):
    listing = json.loads(json.dumps(LISTINGS[release]))
    full = [thing["elem"] for item in listing for thing in item.values() if thing.get("elem")]
    elements = data.draw(st.sampled_from(full))
    elements.pop(data.draw(st.integers(0, len(elements) - 1)))
    assert read_plan(listing) != RECORDED


def test_another_releases_table_is_not_ours():
    listing = json.loads(MARK.sub("made_of_something_else", json.dumps(LISTINGS["1.0.6"])))
    assert read_plan(listing) is None


def test_the_guards_listing_is_not_the_forwarders():
    assert read_guard(LISTINGS["1.0.6"], guard_ruleset(EMPTY)) is None
