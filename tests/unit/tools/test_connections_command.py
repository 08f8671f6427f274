"""Exit codes of ``speaker connections``; what it lists is compared with ipvsadm in tests/ipvs/test_ipvs_sight.py."""

import pytest

from speaker.cli import main
from speaker.forwarding.connections import IPVS, survey
from speaker.tools.connections import describe

LINE = "TCP C000020A 8D5E C6336401 0050 0A000102 1F90 ESTABLISHED     899\n"
STICKY = "TCP C000020A 0000 C6336401 0050 0A000102 1F90 ASSURED          60\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["web"], "web: must be an IPv4 or IPv6 address"),
        (["2001:db8::10%eth0"], "2001:db8::10%eth0: must be an IPv4 or IPv6 address without a scope id"),
        (["--limit", "-1"], "--limit -1: must be a whole number"),
    ],
)
def test_what_cannot_be_asked_for_ends_with_2(arguments, named, capsys):
    assert main(["connections", *arguments]) == 2
    assert named in capsys.readouterr().err


def test_where_no_speaker_says_which_addresses_are_eips_it_ends_with_1(tmp_path, capsys):
    assert main(["connections", "--runtime-dir", str(tmp_path)]) == 1
    assert "name one" in capsys.readouterr().err


def test_all_are_counted_and_no_more_shown_than_asked_for():
    lines = list(describe(survey([LINE, LINE, STICKY, "?\n"], IPVS, 2), IPVS, 2))
    assert lines == [
        "connections 2, real servers with any 1",
        "1 lines of the kernel's listing could not be read",
        "",
        "VIRTUAL SERVER       REAL SERVER    ESTABLISHED  OTHERS  STICKING",
        "TCP 198.51.100.1:80  10.0.1.2:8080  2            0       1",
        "",
        "CLIENT            VIRTUAL SERVER       REAL SERVER    STATE        FORGOTTEN IN",
        "192.0.2.10:36190  TCP 198.51.100.1:80  10.0.1.2:8080  established  899 s",
        "192.0.2.10:36190  TCP 198.51.100.1:80  10.0.1.2:8080  established  899 s",
        "… and 1 more: --limit",
    ]


def test_where_there_is_nothing_there_is_no_table():
    assert list(describe(survey([], IPVS, 9), IPVS, 9)) == ["connections 0, real servers with any 0"]
