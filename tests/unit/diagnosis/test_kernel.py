"""What /sys says of links, where it is that of this network."""

import pytest

from speaker.diagnosis.kernel import below, deaf_ports, is_wireless, listed_rules, old_arp
from speaker.model import Link, Mac

MAC = Mac(b"\x02\0\0\0\0\x01")
CNI0, WLAN0 = Link(3, "cni0", MAC, kind="bridge"), Link(4, "wlan0", MAC)


@pytest.fixture
def sys(tmp_path):
    """With a bridge of two ports, of which one has hairpin mode, and a wireless link."""
    files = {
        "cni0/ifindex": "3", "cni0/address": "02:00:00:00:00:01", "cni0/flags": "0x1003",
        "cni0/brif/veth1/x": "", "cni0/brif/veth2/x": "",
        "veth1/brport/hairpin_mode": "0", "veth2/brport/hairpin_mode": "1",
        "wlan0/ifindex": "4", "wlan0/address": "02:00:00:00:00:01", "wlan0/phy80211/x": "",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    return tmp_path


def test_a_wireless_link_is_known_by_its_radio(sys):
    assert [is_wireless(link, sys) for link in (WLAN0, CNI0)] == [True, False]


def test_ports_without_hairpin_mode_are_named(sys):
    assert deaf_ports(CNI0, sys) == ("veth1",)


def test_a_promiscuous_bridge_needs_none(sys):
    (sys / "cni0" / "flags").write_text("0x1103\n")
    assert deaf_ports(CNI0, sys) == ()


@pytest.mark.parametrize("file", ["ifindex", "address"])
def test_a_link_of_another_network_is_passed_over(file, sys):
    for name in ("cni0", "wlan0"):
        (sys / name / file).write_text("99\n")
    assert deaf_ports(CNI0, sys) == ()
    assert not is_wireless(WLAN0, sys)


def test_what_is_gone_is_nothing(sys, tmp_path):
    assert deaf_ports(Link(9, "gone", MAC, kind="bridge"), sys) == ()
    (sys / "veth1" / "brport" / "hairpin_mode").unlink()
    assert deaf_ports(CNI0, sys) == ()


def test_the_link_that_a_vlan_is_on_is_known(sys):
    (sys / "cni0" / "lower_eno1").mkdir()
    assert below(CNI0, sys) == ("eno1",)
    (sys / "cni0" / "ifindex").write_text("99\n")
    assert below(CNI0, sys) == ()


def test_rules_of_old_arptables_are_named_as_not_read(tmp_path):
    (tmp_path / "names").write_text("filter\n")
    assert [(each.hook, each.rules) for each in old_arp(tmp_path / "names")] == [
        ("input", ([{"queue": None}],)),
        ("output", ([{"queue": None}],)),
    ]
    assert [*old_arp(tmp_path / "none")] == []


LIMIT, COUNTER = {"limit": {"rate": 1}}, {"counter": {"packets": 1}}


@pytest.mark.parametrize(
    ("kind", "listed", "known"),
    [
        ("set", {"elem": [{"elem": {"val": "192.0.2.1", **COUNTER}}]}, True),
        ("set", {"elem": ["192.0.2.1"], "stmt": [COUNTER]}, True),
        ("set", {"elem": [{"elem": {"val": "192.0.2.1", **LIMIT}}]}, False),
        ("set", {"stmt": [LIMIT]}, False),
        ("map", {"elem": [[{"elem": {"val": 80, **LIMIT}}, {"drop": None}]]}, False),
        ("map", {"elem": [[80, {"drop": None}]]}, True),
    ],
)
def test_a_set_whose_elements_count_sometimes_only_is_not_known(kind, listed, known):
    _, sets = listed_rules("ip", "fw", [{kind: {"name": "s", **listed}}], "")
    assert bool(sets) is known


def test_a_table_that_sleeps_has_no_chains():
    chain = {"chain": {"family": "ip", "table": "fw", "name": "f", "hook": "forward", "policy": "drop"}}
    awake, asleep = "table ip fw {\n\tflags owner\n", "table ip fw {\n\tflags owner,dormant\n"
    assert [len(listed_rules("ip", "fw", [chain], text)[0]) for text in (awake, asleep)] == [1, 0]
