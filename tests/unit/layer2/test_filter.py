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


@given(st.sets(numbers | near, max_size=200), st.integers(1, 70))
def test_intervals_cover_everything_in_order_within_their_number(wanted, most):
    found = bpf.intervals(wanted, most)
    assert len(found) <= most
    assert all(any(first <= number <= last for first, last in found) for number in wanted)
    assert all(before[1] + 1 < after[0] for before, after in itertools.pairwise(found))
    assert {end for interval in found for end in interval} <= wanted


@pytest.mark.parametrize(
    ("numbers", "most", "found"),
    [
        ([], 3, ()),
        ([7], 3, ((7, 7),)),
        ([3, 1, 2], 3, ((1, 3),)),
        ([1, 2, 5, 9, 20], 3, ((1, 5), (9, 9), (20, 20))),
        ([1, 2, 5, 9, 20], 1, ((1, 20),)),
    ],
)
def test_the_smallest_gaps_are_closed_first(numbers, most, found):
    assert bpf.intervals(numbers, most) == found


@given(st.sets(numbers | near, max_size=150), st.sets(numbers | near, max_size=150), st.integers(1, 70))
def test_widened_intervals_cover_both_in_order_within_their_number(some, others, most):
    found = bpf.widened(bpf.intervals(some, most), bpf.intervals(others, most), most)
    assert len(found) <= most
    assert all(any(first <= number <= last for first, last in found) for number in some | others)
    assert all(before[1] + 1 < after[0] for before, after in itertools.pairwise(found))
    assert {end for interval in found for end in interval} <= some | others
    if most >= len(some | others):
        assert found == bpf.intervals(some | others, most)


@given(st.sets(numbers | near, min_size=1, max_size=200), numbers | near)
def test_arp_goes_through_exactly_within_the_intervals(accepts, ours, asked):
    program = arp_filter(number.to_bytes(4, "big") for number in ours)
    assert len(program) < 4096  # BPF_MAXINSNS
    inside = any(first <= asked <= last for first, last in bpf.intervals(ours, bpf.INTERVALS))
    for sender, target in ((0xDEADBEEF, asked), (asked, 0xDEADBEEF)):
        packet = arp.ArpPacket(BROADCAST, UNKNOWN, 1, UNKNOWN, IPv4Address(sender), UNKNOWN, IPv4Address(target))
        other = any(first <= 0xDEADBEEF <= last for first, last in bpf.intervals(ours, bpf.INTERVALS))
        assert accepts(program, packet.pack()) == (inside or other)
        assert accepts(program, packet.pack().ljust(60, b"\x00")) == (inside or other)


def test_every_jump_of_the_largest_program_fits(lan):
    scattered = [(number * 1000).to_bytes(4, "big") for number in range(5000)]
    for program in (arp_filter(scattered), ndp_filter(bytes(12) + one for one in scattered)):
        assert all(0 <= one.jt < 256 and 0 <= one.jf < 256 for one in program)
        assert len(program) < 4096


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
