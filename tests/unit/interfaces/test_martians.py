"""The kernel's counters of martian sources and of its reverse path filter, read from text."""

import pytest

from speaker.errors import EdgeError
from speaker.interfaces.martians import count, count_reverse_path, martian_sources, reverse_path_drops

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
