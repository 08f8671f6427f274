"""Scripts for the tables of unknown flows: what is said of each EIP, and that a step says only what differs."""

from ipaddress import ip_address

import pytest

from speaker.forwarding.handing_over import NOTHING, NextHop, Wanted, script, versions
from speaker.model import Mac

ONE = NextHop("eth0", ip_address("192.0.2.1"))
TWO = NextHop("eth0", ip_address("192.0.2.2"))
THREE = NextHop("wan", ip_address("192.0.2.3"))
SIX = NextHop("eth0", ip_address("fe80::1"))
LINKS = {"eth0": 2, "wan": 3}
MAC = Mac(bytes([2, 0, 0, 0, 0, 1]))
EIPS = [ip_address(f"198.51.100.{last}") for last in range(1, 5)]
EIPS6 = [ip_address(f"2001:db8::{last}") for last in range(1, 4)]


def wanted(next_hops, speakers=frozenset({MAC}), links=LINKS, loose=True):
    return Wanted(next_hops, speakers, links, loose)


def lines(text: str, words: str) -> list[str]:
    return [line for line in text.splitlines() if words in line]


def steps(text: str) -> list[str]:
    """Those after the skeleton."""
    return text.rpartition("\n}\n")[2].splitlines()


# ── A table as it is made ─────────────────────────────────────────────────────────────────────────────────────


def test_nothing_to_hand_over_needs_no_table():
    assert script(None, NOTHING, ()) == ""
    assert script(None, wanted({}), {4, 6}) == (
        "delete table ip eip-speaker-strays\ndelete table ip6 eip-speaker-strays\n"
    )


def test_each_eip_goes_its_way_and_each_next_hop_is_one_chain():
    text = script(None, wanted({EIPS[0]: ONE, EIPS[1]: ONE, EIPS[2]: None}), ())
    assert steps(text) == [
        "add chain ip eip-speaker-strays via/192.0.2.1/2",
        "add rule ip eip-speaker-strays via/192.0.2.1/2 dup to 192.0.2.1 device 2 drop",
        "add element ip eip-speaker-strays speakers { 02:00:00:00:00:01 }",
        "add element ip eip-speaker-strays strays { 198.51.100.1 : goto via/192.0.2.1/2,"
        " 198.51.100.2 : goto via/192.0.2.1/2, 198.51.100.3 : drop }",
    ]
    assert "ip6" not in text


def test_ipv6_has_a_table_of_its_own():
    text = script(None, wanted({EIPS6[0]: SIX}), ())
    chain = "via/fe80-0000-0000-0000-0000-0000-0000-0001/2"
    assert steps(text)[1:2] == [f"add rule ip6 eip-speaker-strays {chain} dup to fe80::1 device 2 drop"]
    assert text.startswith("table ip6 eip-speaker-strays\ndelete table ip6 eip-speaker-strays\ntable ip6 ")
    assert "table ip " not in text
    assert lines(text, "hoplimit")
    assert not lines(text, "ttl")


def test_what_goes_by_a_link_that_is_not_there_is_left_out():
    text = script(None, wanted({EIPS[0]: ONE, EIPS[1]: None}, links={"eth0": 0}), ())
    assert steps(text)[1:] == ["add element ip eip-speaker-strays strays { 198.51.100.2 : drop }"]


@pytest.mark.parametrize(("loose", "flags"), [(True, "(fin | rst) != 0 tcp flags & syn == 0"), (False, "syn == 0")])
def test_what_is_invalid_is_a_stray_where_conntrack_would_not_call_it_new(loose, flags):
    (line,) = lines(script(None, wanted({EIPS[0]: None}, loose=loose), ()), "invalid")
    assert f"tcp flags & {flags} goto stray" in line


# ── From one to another ───────────────────────────────────────────────────────────────────────────────────────

STEPS = {
    "nothing": ({EIPS[0]: ONE}, {EIPS[0]: ONE}, []),
    "an EIP that is not ours any more": (
        {EIPS[0]: ONE, EIPS[1]: ONE},
        {EIPS[0]: ONE, EIPS[1]: None},
        ["delete element T strays { 198.51.100.2 }", "add element T strays { 198.51.100.2 : drop }"],
    ),
    "another next hop": (
        {EIPS[0]: ONE},
        {EIPS[0]: TWO},
        [
            "add chain T via/192.0.2.2/2",
            "add rule T via/192.0.2.2/2 dup to 192.0.2.2 device 2 drop",
            "delete element T strays { 198.51.100.1 }",
            "add element T strays { 198.51.100.1 : goto via/192.0.2.2/2 }",
            "flush chain T via/192.0.2.1/2",
            "delete chain T via/192.0.2.1/2",
        ],
    ),
    "one EIP less": ({EIPS[0]: ONE, EIPS[1]: ONE}, {EIPS[0]: ONE}, ["delete element T strays { 198.51.100.2 }"]),
    "the last EIP": ({EIPS[0]: None}, {}, ["delete table T"]),
}


@pytest.mark.parametrize(("have", "want", "step"), STEPS.values(), ids=STEPS.keys())
def test_a_step_says_only_what_differs(have, want, step):
    said = script(wanted(have), wanted(want), versions(have))
    assert said.replace("ip eip-speaker-strays", "T").splitlines() == step


@pytest.mark.parametrize(
    "changed", [{"links": {**LINKS, "eth0": 7}}, {"links": {**LINKS, "eth0": 0}}, {"loose": False}], ids=str
)
def test_what_is_written_otherwise_now_is_made_anew(changed):
    have = wanted({EIPS[0]: ONE, EIPS[1]: None})
    want = wanted(have.next_hops, **changed)
    assert script(have, want, {4}) == script(None, want, {4})


def test_another_link_is_no_reason_to_make_anything_anew():
    have = wanted({EIPS[0]: ONE}, links={"eth0": 2})
    said = script(have, wanted({EIPS[0]: ONE, EIPS[1]: THREE}), {4})
    assert not lines(said, "delete")
    assert lines(said, "device 3")


def test_a_table_that_is_gone_is_made_anew():
    have = wanted({EIPS[0]: ONE, EIPS6[0]: SIX})
    assert script(have, have, {6}) == script(None, wanted({EIPS[0]: ONE}), ())
