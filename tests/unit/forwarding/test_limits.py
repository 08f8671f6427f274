"""When the kernel's tables of connections are too full, and when no longer."""

import pytest

from speaker.errors import EdgeError
from speaker.forwarding.limits import Tables, Use, Watch, look, raise_conntrack_max

LISTING = """\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  C6336401:0050 rr
  -> 0A000102:1F90      Masq    1      5          2
"""


@pytest.mark.parametrize(
    ("size", "used", "told"),
    [
        (1000, [900, 901, 801, 800, 900, 901], [False, True, True, False, False, True]),
        (262144, [0, 262144, 0], [False, True, False]),
        (0, [0], [False]),
    ],
)
def test_conntrack_is_nearly_full_above_nine_tenths_until_it_is_below_eight(size, used, told):
    watch = Watch()
    found = [watch.problems(Tables(conntrack=Use(connections, size))) for connections in used]
    assert [bool(problems) for problems in found] == told
    assert len({problem for problems in found for problem in problems}) <= 1, "the same words for as long as it lasts"


@pytest.mark.parametrize(
    ("used", "told"), [([32768, 32769, 16385, 16384, 32768], [False, True, True, False, False]), ([10**6], [True])]
)
def test_ipvs_is_crowded_above_eight_connections_a_bucket_until_there_are_no_more_than_four(used, told):
    watch = Watch()
    found = [watch.problems(Tables(ipvs=Use(connections, 4096))) for connections in used]
    assert [bool(problems) for problems in found] == told
    assert all("conn_tab_bits=16" in problem.what for problems in found for problem in problems)


def test_a_kernel_without_the_tables_has_no_problem_with_them():
    watch = Watch()
    assert watch.problems(Tables(Use(95, 100), Use(10**6, 1)))
    assert watch.problems(Tables()) == ()


@pytest.fixture
def proc(tmp_path):
    """A /proc with what is read and written of it."""
    (tmp_path / "sys/net/netfilter").mkdir(parents=True)
    (tmp_path / "thread-self/net").mkdir(parents=True)
    return tmp_path


def put(proc, count, most):
    (proc / "sys/net/netfilter/nf_conntrack_count").write_text(f"{count}\n")
    (proc / "sys/net/netfilter/nf_conntrack_max").write_text(f"{most}\n")


def test_what_the_kernel_has_is_seen(proc):
    assert look(ipvs=True, proc=proc) == Tables()
    put(proc, 12, 8192)
    (proc / "thread-self/net/ip_vs").write_text(LISTING)
    assert look(ipvs=True, proc=proc) == Tables(Use(12, 8192), Use(7, 4096))
    assert look(ipvs=False, proc=proc) == Tables(Use(12, 8192))


def test_what_the_kernel_never_says_is_an_error_of_the_edge(proc):
    put(proc, "many", 8192)
    with pytest.raises(EdgeError, match="how full"):
        look(ipvs=False, proc=proc)


@pytest.mark.parametrize(("most", "least", "after"), [(8192, 10000, 10000), (8192, 8192, 8192), (20000, 10000, 20000)])
def test_conntracks_maximum_is_raised_and_never_lowered(proc, most, least, after):
    put(proc, 0, most)
    assert raise_conntrack_max(least, proc) == ()
    assert int((proc / "sys/net/netfilter/nf_conntrack_max").read_text()) == after


def test_without_conntrack_there_is_nothing_to_raise_yet(proc):
    assert raise_conntrack_max(10000, proc) == ()


def test_a_maximum_that_cannot_be_raised_from_here_is_named_with_its_remedy(proc):
    (proc / "sys/net/netfilter/nf_conntrack_max").mkdir()
    (problem,) = raise_conntrack_max(10000, proc)
    assert "sysctl -w net.netfilter.nf_conntrack_max=10000" in problem.what
