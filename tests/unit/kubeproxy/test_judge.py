"""What of kube-proxy's doing is in the way, and what it leaves undone: one look after the other."""

from dataclasses import replace
from ipaddress import ip_address, ip_network, summarize_address_range

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.kubeproxy.judge import (
    GRACE,
    NAMED,
    REMEMBERED,
    Configuration,
    Here,
    Judge,
    KubeProxy,
    Mode,
    Rules,
    covered,
)
from speaker.model import AddressRange, Pool

A, B, C = map(ip_address, ("192.0.2.70", "192.0.2.71", "2001:db8::70"))
LAN = Pool("lan", (AddressRange(ip_address("192.0.2.64"), ip_address("192.0.2.95"), ip_network("192.0.2.64/27")),))
FAR = Pool("far", (AddressRange(ip_address("198.51.100.1"), ip_address("198.51.100.9")),))
NOTHING = Rules(frozenset())
IPTABLES = KubeProxy(Mode.IPTABLES, ("its port 10249 says so",), healthy=True)
GONE = KubeProxy(Mode.NONE)


def looks(here: Here, *each):
    """What each of the looks comes to: (seconds, what was recognised, rules)."""
    judge = Judge()
    return [judge.look(now, here, found, rules, ()) for now, found, rules in each]


def look(here: Here, found: KubeProxy, rules: Rules = NOTHING, answering=()):
    return Judge().look(0.0, here, found, rules, answering)


# ── With the forwarder none ──

NONE = Here("none", {"lan": LAN}, frozenset({A, B, C}))
ALL = Rules(frozenset({A, B, C, ip_address("10.96.0.1")}))


def test_rules_for_every_eip_held_here_are_all_that_is_wanted():
    assert look(NONE, IPTABLES, ALL) == (IPTABLES, (), (), 0, False)


def test_the_rules_of_one_that_died_are_looked_for_as_long_as_it_is_remembered():
    judge = Judge()
    judge.look(0, NONE, IPTABLES, ALL, ())
    assert judge.reckons_with(20, GONE) is Mode.IPTABLES
    judge.look(20, NONE, GONE, NOTHING, ())
    assert judge.look(20 + GRACE, NONE, GONE, NOTHING, ()).without_rules == 3
    assert judge.reckons_with(REMEMBERED + 1, GONE) is Mode.NONE


def test_an_eip_without_rules_is_a_problem_once_it_has_been_so_for_some_seconds():
    first, second = looks(NONE, (0, IPTABLES, Rules(frozenset({A, C}))), (GRACE, IPTABLES, Rules(frozenset({A, C}))))
    assert (first.problems, first.without_rules, first.unsure) == ((), 0, True)
    (problem,) = second.problems
    assert problem.what == "192.0.2.71: kube-proxy (iptables mode) has no rules for it, so its traffic is not forwarded"
    assert (problem.kind, problem.eip) == ("kube_proxy", "192.0.2.71")
    assert (second.without_rules, second.unsure) == (1, False)


def test_rules_that_come_and_go_begin_anew():
    missing = Rules(frozenset({A, C}))
    *_, last = looks(NONE, (0, IPTABLES, missing), (GRACE - 1, IPTABLES, ALL), (GRACE, IPTABLES, missing))
    assert (last.problems, last.unsure) == ((), True)


def test_many_are_named_up_to_a_point():
    eips = frozenset(ip_address("192.0.2.0") + number for number in range(NAMED + 5))
    here = Here("none", {}, eips)
    last = looks(here, (0, IPTABLES, NOTHING), (GRACE, IPTABLES, NOTHING))[-1]
    assert last.without_rules == NAMED + 5
    assert len(last.problems) == NAMED + 1
    assert "5 other EIPs" in last.problems[-1].what
    assert sum(each.concerns(99) for each in last.problems) == NAMED + 5


def test_what_cannot_be_told_is_a_note_and_no_problem():
    last = looks(NONE, (0, IPTABLES, NOTHING), (GRACE, IPTABLES, Rules(None, "needs NET_ADMIN")))[-1]
    assert (last.problems, last.without_rules, last.unsure) == ((), None, False)
    assert last.notes == ("cannot tell whether there are rules for the EIPs: needs NET_ADMIN",)


def test_one_that_is_not_well_is_a_problem():
    assert "unhealthy" in look(NONE, replace(IPTABLES, healthy=False), ALL).problems[0].what


def test_one_that_answered_and_is_silent_for_some_seconds_is_a_problem():
    silent = replace(IPTABLES, healthy=None)
    before, at_once, later, back = looks(
        NONE, (0, IPTABLES, ALL), (30, silent, ALL), (30 + GRACE, silent, ALL), (90, IPTABLES, ALL)
    )
    assert (before.unsure, at_once.unsure, later.unsure) == (False, True, False)
    assert (before.problems, at_once.problems, back.problems) == ((), (), ())
    assert "any more" in later.problems[0].what


def test_one_that_never_answered_is_not_missed():
    silent = replace(IPTABLES, healthy=None)
    assert [seen.problems for seen in looks(NONE, (0, silent, ALL), (60, silent, ALL))] == [(), ()]


def test_one_that_left_no_trace_is_reckoned_with_for_a_while():
    unseen = Rules(None, "nobody")
    _, soon, late = looks(NONE, (0, IPTABLES, ALL), (REMEMBERED - 1, GONE, unseen), (REMEMBERED, GONE, unseen))
    assert soon.kube_proxy.mode is Mode.IPTABLES
    assert late.kube_proxy.mode is Mode.NONE
    assert late.problems == ()


def test_ipvs_mode_without_strict_arp_has_every_node_answer():
    found = KubeProxy(Mode.IPVS, healthy=True)
    (problem,) = look(NONE, found, ALL, ("eth1", "eth0")).problems
    assert "eth0, eth1" in problem.what
    assert "strictARP: true" in problem.what
    assert problem.kind == "kernel_answers"
    assert problem.mend.startswith(
        "sysctl -w net.ipv4.conf.eth0.arp_ignore=1 net.ipv4.conf.eth0.arp_announce=2 net.ipv4.conf.eth1.arp_ignore=1 "
    )
    assert look(NONE, found, ALL, ()).problems == ()
    assert look(NONE, IPTABLES, ALL, ("eth0",)).problems == ()


# ── With a forwarder of our own ──

IPVS = Here("ipvs", {"lan": LAN, "far": FAR}, frozenset({A}))
RIGHT = Configuration((ip_network("192.0.2.64/26"), ip_network("198.51.100.0/24")), ("primary",))


def ipvs_mode(configuration: Configuration | None) -> KubeProxy:
    return KubeProxy(Mode.IPVS, ("link kube-ipvs0",), True, configuration)


def test_ipvs_mode_beside_ours_must_leave_every_pool_alone():
    assert look(IPVS, ipvs_mode(RIGHT)).problems == ()
    (problem,) = look(IPVS, ipvs_mode(replace(RIGHT, exclude=RIGHT.exclude[:1]))).problems
    assert "pool far: its ipvs.excludeCIDRs lacks 198.51.100.1-198.51.100.9" in problem.what
    assert len(look(IPVS, ipvs_mode(replace(RIGHT, exclude=()))).problems) == 2


def test_ipvs_mode_beside_ours_must_not_open_nodeports_on_eips():
    (problem,) = look(IPVS, ipvs_mode(replace(RIGHT, node_port_addresses=()))).problems
    assert "nodePortAddresses: [primary]" in problem.what


def test_a_configuration_that_cannot_be_read_is_a_note():
    seen = look(IPVS, ipvs_mode(None))
    assert seen.problems == ()
    assert "excludeCIDRs" in seen.notes[0]


@pytest.mark.parametrize(
    ("here", "found"),
    [
        (replace(IPVS, forwarder="nftables"), ipvs_mode(Configuration())),
        (IPVS, replace(IPTABLES, configuration=Configuration())),
        (replace(NONE, held=frozenset()), ipvs_mode(Configuration())),
    ],
)
def test_no_other_pair_fights_over_virtual_servers(here, found):
    assert look(here, found).problems == ()


@pytest.mark.parametrize("forwarder", ["ipvs", "nftables"])
def test_rules_for_an_eip_that_we_forward_take_its_packets(forwarder):
    (problem,) = look(replace(IPVS, forwarder=forwarder), IPTABLES, ALL).problems
    assert str(A) in problem.what
    assert f"--forwarder={forwarder}" in problem.what
    assert look(IPVS, IPTABLES, Rules(frozenset({B}))).problems == ()


def test_with_a_forwarder_of_our_own_nobody_misses_rules_or_kube_proxy():
    silent = replace(IPTABLES, healthy=None)
    last = looks(IPVS, (0, IPTABLES, NOTHING), (60, silent, NOTHING), (120, silent, NOTHING))[-1]
    assert (last.problems, last.notes, last.without_rules) == ((), (), None)


# ── Ranges ──


def addresses(first: int, last: int) -> AddressRange:
    return AddressRange(ip_address("192.0.2.0") + first, ip_address("192.0.2.0") + last)


@given(st.integers(0, 255), st.integers(0, 255), st.sets(st.integers(0, 63), max_size=8), st.booleans())
def test_a_range_is_covered_when_each_of_its_addresses_is(one, other, quads, whole):
    first, last = sorted((one, other))
    networks = [ip_network(f"192.0.2.{4 * quad}/30") for quad in quads] + [ip_network("::/0")]
    if whole:
        networks += summarize_address_range(ip_address("192.0.2.0") + first, ip_address("192.0.2.0") + last)
    each = (ip_address("192.0.2.0") + number for number in range(first, last + 1))
    assert covered(addresses(first, last), networks) is all(
        any(address in network for network in networks) for address in each
    )
