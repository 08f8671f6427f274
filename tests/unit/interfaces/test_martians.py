"""The kernel's counters of martian sources and of its reverse path filter, read from text."""

import pytest

from speaker.errors import EdgeError
from speaker.interfaces.martians import (
    TRIES,
    count,
    count_reverse_path,
    martian_sources,
    of_one_moment,
    reverse_path_drops,
)

HEADER = "entries  in_hit   in_martian_dst in_martian_src out_hit\n"


def test_every_cpu_counts_and_counts_in_hexadecimal():
    assert count(HEADER + "00000005 00000000 00000001 0000000a 00000000\n00000005 00000000 00000001 00000010 0\n") == 26


@pytest.mark.parametrize("text", ["", "entries in_hit\n0 0\n", HEADER + "0 0\n", HEADER + "0 0 0 what 0\n"])
def test_anything_else_is_an_edge_error(tmp_path, text):
    (tmp_path / "rt_cache").write_text(text)
    with pytest.raises(EdgeError, match="rt_cache"):
        martian_sources(tmp_path / "rt_cache")


def test_a_kernel_without_the_counter_is_an_edge_error(tmp_path):
    with pytest.raises(EdgeError, match="No such file"):
        martian_sources(tmp_path / "rt_cache")


def test_the_reverse_path_filter_counts_in_decimal():
    text = "TcpExt: SyncookiesSent IPReversePathFilter TCPTimeWait\nTcpExt: 7 12 9\nIpExt: InOctets\nIpExt: 3\n"
    assert count_reverse_path(text) == 12


@pytest.mark.parametrize(
    "text", ["", "TcpExt: A\nTcpExt: 1\n", "TcpExt: IPReversePathFilter\n", "IPReversePathFilter\nx\n"]
)
def test_a_kernel_that_does_not_count_for_its_reverse_path_filter_is_an_edge_error(tmp_path, text):
    (tmp_path / "netstat").write_text(text)
    with pytest.raises(EdgeError, match="netstat"):
        reverse_path_drops(tmp_path / "netstat")


@pytest.mark.parametrize(
    ("drops", "seen"),
    [([0], (7, 0)), ([0, 2], (9, 2)), ([0, 2, 1], (10, 3)), ([1] * 99, (6 + TRIES + 1, TRIES + 1))],
    ids=["none", "between two reads", "and again", "all the time"],
)
def test_a_drop_by_the_reverse_path_filter_between_two_reads_makes_no_martian_come_and_go(drops, seen):
    """``drops``: before each read of theirs, of a kernel that had 7 martians before."""
    coming, theirs = iter(drops), 0

    def part():
        nonlocal theirs
        theirs += next(coming, 0)
        return theirs

    assert of_one_moment(lambda: 7 + theirs, part) == seen
