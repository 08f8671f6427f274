"""Scripts for nft: what is said of a plan, what is left out, and what only nearly fits."""

import re
from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.forwarding.nftables.ruleset import (
    Expressed,
    approximations,
    change_script,
    expressible,
    forwarder_ruleset,
    guard_ruleset,
    rebuild_script,
    step_script,
)
from speaker.forwarding.nftables.skeletons import FORWARDER, GUARD
from speaker.forwarding.plan import Plan, RealServer, VirtualServer
from speaker.model import Protocol

ONE, TWO = (RealServer(ip_address(f"10.0.0.{last}"), 8080) for last in (3, 4))
SERVER = VirtualServer(ip_address("192.0.2.10"), Protocol.TCP, 80, real_servers=(ONE, TWO))


def plan_of(*servers: VirtualServer) -> Plan:
    return Plan(frozenset(each.address for each in servers), {each.key: each for each in servers})


CHAIN = "tcp/192.0.2.10/80"


def rule(**changes: object) -> str:
    (text,) = forwarder_ruleset(plan_of(replace(SERVER, **changes))).chains.values()
    return text


def slots(**changes: object) -> set[str]:
    maps = forwarder_ruleset(plan_of(replace(SERVER, **changes))).maps
    return {element for slots in maps.values() for element in slots.elements}


BOTH = {"0 : 10.0.0.3 . 8080", "1 : 10.0.0.4 . 8080"}
THREE_TO_ONE = {*(f"{slot} : 10.0.0.3 . 8080" for slot in range(3)), "3 : 10.0.0.4 . 8080"}
RULES = [
    ({}, f'numgen inc mod 2 map @{CHAIN} comment "rr"', BOTH),
    ({"scheduler": "sh"}, f"jhash ip saddr mod 2 seed 0xe190 map @{CHAIN} ", BOTH),
    ({"persistence": 9}, f"jhash ip saddr mod 2 seed 0xe190 map @{CHAIN} ", BOTH),
    ({"real_servers": (replace(ONE, weight=3), TWO)}, f"numgen inc mod 4 map @{CHAIN} ", THREE_TO_ONE),
    (
        {"real_servers": (replace(ONE, weight=0), TWO)},
        f"numgen inc mod 1 map @{CHAIN} ",
        {"1 : 10.0.0.3 . 8080", "0 : 10.0.0.4 . 8080"},
    ),
    ({"real_servers": (replace(ONE, weight=0),)}, f"numgen inc mod 1 map @{CHAIN} ", {"1 : 10.0.0.3 . 8080"}),
    ({"real_servers": ()}, 'return comment "rr"', set()),
    ({"scheduler": "wlc", "persistence": 9, "masquerade": False}, 'comment "wlc persistent 9 transparent"', BOTH),
]


@pytest.mark.parametrize(("changes", "words", "numbers"), RULES)
def test_a_virtual_server_is_one_rule_and_a_map(changes, words, numbers):
    assert words in rule(**changes)
    assert slots(**changes) == numbers


def test_nothing_is_declared_as_older_releases_crash_at():
    """A set that says ``type``, or a map without a name, as nft 1.1.3 writes them, is the end of nft 1.0.6."""
    for plan in (plan_of(), plan_of(SERVER, replace(SERVER, scheduler="mh-port", port=81))):
        for script in (rebuild_script(forwarder_ruleset(plan)), rebuild_script(guard_ruleset(plan))):
            assert not re.search(r"(set|map) \S+ { type |map {", script)


def test_a_scheduler_that_nobody_checked_gets_nowhere_near_nft():
    with pytest.raises(ValueError, match="is no scheduler"):
        rule(scheduler='rr"; flush ruleset; "')


SOURCES = [
    ([], []),
    (["10.0.0.0/8"], ["10.0.0.0/8"]),
    (["10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/25", "192.0.2.128/25"], ["10.0.0.0/8", "192.0.2.0/24"]),
    (["10.0.0.0/8", "2001:db8::/32"], ["10.0.0.0/8"]),
    (["0.0.0.0/0"], []),
    (["0.0.0.0/1", "128.0.0.0/1"], []),
    (["2001:db8::/32"], ["0.0.0.0/32"]),  # nobody
    (["::/0"], ["0.0.0.0/32"]),
]


@pytest.mark.parametrize(("written", "kept"), SOURCES)
def test_source_ranges_are_those_of_the_eips_family_without_overlaps(written, kept):
    server = replace(SERVER, sources=tuple(map(ip_network, written)))
    (made,) = expressible(plan_of(server)).virtual_servers.values()
    assert made.sources == tuple(map(ip_network, kept))


@given(data=st.data())
def test_the_expressible_form_is_its_own(plans, data):
    once = expressible(data.draw(plans))
    assert expressible(once) == once


@given(data=st.data())
def test_nothing_to_change_is_nothing_to_say(plans, data):
    made = expressible(data.draw(plans))
    for ruleset in (forwarder_ruleset(made), guard_ruleset(made)):
        assert change_script(ruleset, ruleset) == ""


@st.composite
def successions(draw: st.DrawFn, plans: st.SearchStrategy[Plan]) -> tuple[Plan, Plan]:
    """Two plans of which the second mostly has some of the first one's virtual servers."""
    before, drawn = draw(plans), draw(plans)
    servers = {**(before.virtual_servers if draw(st.booleans()) else {}), **drawn.virtual_servers}
    return before, Plan(drawn.eips | {key[0] for key in servers}, servers)


@given(data=st.data())
def test_what_is_known_of_the_plan_before_makes_no_other_form(plans, data):
    before, after = data.draw(successions(plans))
    known = Expressed(before, expressible(before))
    assert expressible(after, known) == expressible(after)
    again = expressible(Plan(before.eips, dict(before.virtual_servers)), known)
    assert all(again.virtual_servers[key] is server for key, server in known.form.virtual_servers.items())


@given(data=st.data())
def test_a_step_says_what_the_whole_rulesets_would_say(plans, data):
    have, want = map(expressible, data.draw(successions(plans)))
    for ruleset_of in (forwarder_ruleset, guard_ruleset):
        assert step_script(have, want, ruleset_of) == change_script(ruleset_of(have), ruleset_of(want))


def test_a_changed_weight_names_one_chain_and_its_map_alone():
    have = forwarder_ruleset(plan_of(SERVER, replace(SERVER, port=81)))
    want = forwarder_ruleset(
        plan_of(replace(SERVER, real_servers=(replace(ONE, weight=0), TWO)), replace(SERVER, port=81))
    )
    assert [line.split(" meta ")[0] for line in change_script(have, want).splitlines()] == [
        "add chain inet eip-speaker tcp/192.0.2.10/80",
        "flush chain inet eip-speaker tcp/192.0.2.10/80",
        "flush map inet eip-speaker tcp/192.0.2.10/80",
        "add element inet eip-speaker tcp/192.0.2.10/80 { 0 : 10.0.0.4 . 8080, 1 : 10.0.0.3 . 8080 }",
        "add rule inet eip-speaker tcp/192.0.2.10/80",
    ]


def test_a_chain_goes_after_what_leads_to_it():
    gone = change_script(forwarder_ruleset(plan_of(SERVER)), forwarder_ruleset(plan_of()))
    assert gone.index("delete element inet eip-speaker services4 ") < gone.index("delete chain")


def test_the_first_script_also_replaces_what_was_there():
    lines = rebuild_script(forwarder_ruleset(plan_of(SERVER))).splitlines()
    assert lines[:2] == ["table inet eip-speaker", "delete table inet eip-speaker"]


@pytest.mark.parametrize("ruleset", [forwarder_ruleset(plan_of()), guard_ruleset(plan_of())])
def test_every_rule_of_the_fixed_part_has_a_comment_to_be_known_by(ruleset):
    body = re.sub(r"^ +(#.*|(set|map|type|chain) .*|})$", "", ruleset.skeleton, flags=re.MULTILINE)
    rules = [line for line in body.splitlines() if line.strip()]
    assert rules
    assert [line for line in rules if not re.search(r'comment "[^"]+"$', line)] == []


APPROXIMATIONS = [
    ({"scheduler": "rr"}, None),
    ({"scheduler": "wrr"}, None),
    ({"scheduler": "sh"}, None),
    ({"scheduler": "mh"}, None),
    ({"scheduler": "lc"}, "takes turns by weight"),
    ({"scheduler": "dh"}, "hashes the client's address"),
    ({"scheduler": "rr", "persistence": 60}, "no timeout"),
]


@pytest.mark.parametrize(("changes", "words"), APPROXIMATIONS)
def test_what_nft_does_otherwise_is_said(changes, words):
    said = approximations(plan_of(replace(SERVER, **changes)))
    assert [words in sentence for sentence in said] == ([] if words is None else [True])


def test_a_backend_is_on_this_node_only_where_all_who_name_it_say_so():
    """Who names another's backend and puts it on this node would keep that one's replies from coming back here."""
    liar = VirtualServer(ip_address("192.0.2.11"), Protocol.TCP, 80, real_servers=(replace(ONE, local=True),))
    made = expressible(plan_of(SERVER, liar))
    assert not any(real.local for server in made.virtual_servers.values() for real in server.real_servers)
    assert forwarder_ruleset(made).elements["local4"] == frozenset()
    alone = expressible(plan_of(liar))
    assert forwarder_ruleset(alone).elements["local4"] == {"10.0.0.3"}


@pytest.mark.parametrize("skeleton", [FORWARDER, GUARD])
def test_no_masqueraded_connection_keeps_its_port(skeleton):
    """Of two that are given one port in the same instant one loses its first packet."""
    kept = [line for line in skeleton.splitlines() if re.search(r"\bmasquerade (?!fully-random)", line)]
    assert "masquerade fully-random" in skeleton
    assert kept == []
