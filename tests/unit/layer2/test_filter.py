"""The programs that the kernel runs, run here by a small interpreter (the kernel itself judges them in netns/)."""

import itertools
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest
import replies
from hypothesis import given
from hypothesis import strategies as st

from speaker.layer2 import filter as bpf
from speaker.packets import BROADCAST, UNKNOWN, arp, ndp


def arp_filter(addresses):
    return bpf.arp_program(bpf.around(addresses))


def ndp_filter(addresses):
    return bpf.ndp_program(bpf.around(addresses))


numbers = st.integers(0, 2**32 - 1)
near = st.integers(0, 300)


def covers(runs, number):
    return any(first <= number <= last and bits >> (number & 31) & 1 for first, last, bits in runs)


@given(st.sets(numbers | near, max_size=200), st.integers(1, 70))
def test_runs_cover_everything_in_order_within_their_number(wanted, most):
    found = bpf.runs(wanted, most)
    assert len(found) <= most
    assert all(covers(found, number) for number in wanted)
    assert all(before.last >> 5 < after.first >> 5 for before, after in itertools.pairwise(found))
    assert {end for run in found for end in run[:2]} <= wanted


@given(st.sets(numbers | near, max_size=60), near)
def test_few_blocks_let_through_what_is_ours_and_nothing_else(ours, asked):
    assert covers(bpf.runs(ours, bpf.RUNS), asked) is (asked in ours)


ALL = 2**32 - 1


@pytest.mark.parametrize(
    ("numbers", "most", "found"),
    [
        ([], 3, ()),
        ([7], 3, ((7, 7, 1 << 7),)),
        ([3, 1, 2], 3, ((1, 3, 0b1110),)),
        ([31, 32], 3, ((31, 31, 1 << 31), (32, 32, 1))),
        ([2, 40, 170, 640], 3, ((2, 40, ALL), (170, 170, 1 << 10), (640, 640, 1))),
        ([2, 40, 170, 640], 1, ((2, 640, ALL),)),
    ],
)
def test_the_smallest_gaps_are_closed_first(numbers, most, found):
    assert bpf.runs(numbers, most) == found


@given(st.sets(numbers | near, max_size=150), st.sets(numbers | near, max_size=150), st.integers(1, 70))
def test_widened_runs_cover_both_in_order_within_their_number(some, others, most):
    found = bpf.widened(bpf.runs(some, most), bpf.runs(others, most), most)
    assert len(found) <= most
    assert all(covers(found, number) for number in some | others)
    assert all(before.last >> 5 < after.first >> 5 for before, after in itertools.pairwise(found))
    assert {end for run in found for end in run[:2]} <= some | others
    if most >= len(some | others):
        assert found == bpf.runs(some | others, most)


@given(st.sets(numbers | near, min_size=1, max_size=200), numbers | near)
def test_arp_goes_through_exactly_within_the_runs(accepts, ours, asked):
    program = arp_filter(number.to_bytes(4, "big") for number in ours)
    assert len(program) < 4096  # BPF_MAXINSNS
    inside, other = (covers(bpf.runs(ours, bpf.RUNS), number) for number in (asked, 0xDEADBEEF))
    for sender, target in ((0xDEADBEEF, asked), (asked, 0xDEADBEEF)):
        packet = arp.ArpPacket(BROADCAST, UNKNOWN, 1, UNKNOWN, IPv4Address(sender), UNKNOWN, IPv4Address(target))
        assert accepts(program, packet.pack()) == (inside or other)
        assert accepts(program, packet.pack().ljust(60, b"\x00")) == (inside or other)


@pytest.mark.parametrize("peers", [2, 3])
def test_what_peers_hold_of_a_pool_of_two_thousand_does_not_go_through(accepts, peers):
    pool = [number.to_bytes(4, "big") for number in range(0xC0000200, 0xC0000200 + 2000)]
    program = arp_filter(pool[::peers])
    for at, asked in enumerate(pool):
        packet = arp.request(UNKNOWN, IPv4Address(0xDEADBEEF), IPv4Address(asked))
        assert accepts(program, packet.pack()) is (at % peers == 0)


def test_every_jump_of_the_largest_program_fits(lan):
    scattered = [(number * 1000).to_bytes(4, "big") for number in range(5000)]
    for program in (arp_filter(scattered), ndp_filter(bytes(12) + one for one in scattered)):
        assert all(0 <= one.jt < 256 and 0 <= one.jf < 256 for one in program)
        assert kernel_bytes(program) < 20480 / 2, "the smallest net.core.optmem_max, with the one that it replaces"


def kernel_bytes(program):
    """As ``bpf_convert_filter`` (net/core/filter.c) makes it: two for a jump both ways, or by a number above 2³¹."""
    compared = [one for one in program if one.code & 0x07 == 0x05 and one.code != 0x05]
    more = sum((one.jt > 0 and one.jf > 0) + (one.k >= 2**31) for one in compared)
    return 8 * (len(program) + more + 64)


def test_other_arp_is_dropped(accepts, lan):
    program = arp_filter([lan.eip4.packed])
    ask = arp.ArpPacket(BROADCAST, lan.stranger, 1, lan.stranger, lan.asker4, UNKNOWN, lan.eip4)
    assert accepts(program, ask.pack())
    assert accepts(program, replace(ask, operation=2).pack())
    assert not accepts(program, replace(ask, operation=3).pack())
    assert not accepts(program, replace(ask, target_ip=lan.foreign4).pack())
    assert not accepts(program, ask.pack()[:41])
    for at in range(14, 20):
        spoilt = bytearray(ask.pack())
        spoilt[at] ^= 1
        assert not accepts(program, bytes(spoilt))


def test_other_ipv6_is_dropped(accepts, lan):
    program = ndp_filter([lan.eip6.packed])
    ask = ndp.solicitation(lan.stranger, lan.asker6, lan.eip6)
    assert accepts(program, ask.pack())
    assert accepts(program, replies.unsolicited(lan.stranger, lan.eip6).pack())
    assert accepts(program, replace(ask, target=lan.foreign6, source=lan.eip6).pack())
    assert not accepts(program, replace(ask, target=lan.foreign6).pack())
    for at, other in ((20, 6), (54, 128), (54, 134), (21, 64)):  # TCP, echo request, router advertisement, routed
        spoilt = bytearray(ask.pack())
        spoilt[at] = other
        assert not accepts(program, bytes(spoilt))


@given(st.sets(st.ip_addresses(v=6), min_size=1, max_size=100))
def test_whatever_is_ours_goes_through(accepts, ours):
    program = ndp_filter(address.packed for address in ours)
    for address in ours:
        assert accepts(program, ndp.solicitation(UNKNOWN, IPv6Address(0), address).pack())


def test_without_eips_nothing_goes_through(accepts):
    assert arp_filter([]) == ndp_filter([]) == bpf.NOTHING
    assert not accepts(bpf.NOTHING, bytes(100))
