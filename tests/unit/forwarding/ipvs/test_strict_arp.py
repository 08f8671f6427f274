"""Strict ARP's decisions: what to set on which link, and what to set back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.errors import EdgeError
from speaker.forwarding.ipvs.settings import Remembered
from speaker.forwarding.ipvs.strict_arp import ARP_ANNOUNCE, ARP_IGNORE, ArpLink, lax_everywhere, restore, tighten

OFF = {ARP_ANNOUNCE: 0, ARP_IGNORE: 0}


def silent_for_other_links(ignore):
    """net/ipv4/arp.c, arp_ignore(): 1 and 2 ask for an address of the very link, 8 answers nothing at all; 3 only asks
    for the scope of the address, the rest is as 0."""
    return ignore in (1, 2, 8)


def link(ignore, announce=0, name="eth0"):
    return ArpLink(2, name, {ARP_IGNORE: ignore, ARP_ANNOUNCE: announce})


@pytest.mark.parametrize(
    ("everywhere", "ignore", "announce", "set_to"),
    [
        ((0, 0), 0, 0, ["arp_announce=2 on eth0", "arp_ignore=1 on eth0"]),
        ((0, 0), 0, 1, ["arp_announce=2 on eth0", "arp_ignore=1 on eth0"]),
        ((0, 0), 1, 2, []),
        ((1, 2), 0, 0, []),  # kube-proxy's strictARP: the larger of the two counts
        ((0, 2), 2, 0, []),
        ((0, 2), 8, 0, []),
        ((0, 2), 3, 0, ["arp_ignore=1 on eth0"]),  # larger, but laxer
        ((0, 2), 5, 0, ["arp_ignore=1 on eth0"]),
        ((3, 2), 0, 0, []),  # nothing helps: lax_everywhere says so
    ],
)
def test_a_link_is_made_strict_where_it_is_not(everywhere, ignore, announce, set_to):
    conf_all = {ARP_IGNORE: everywhere[0], ARP_ANNOUNCE: everywhere[1]}
    assert [str(change) for change in tighten([link(ignore, announce)], conf_all)] == set_to


@given(st.integers(0, 9), st.integers(0, 9))
def test_afterwards_the_kernel_is_silent_or_somebody_is_told(everywhere, ignore):
    conf_all = {ARP_IGNORE: everywhere, ARP_ANNOUNCE: 2}
    changes = tighten([link(ignore)], conf_all)
    now = changes[0].value if changes else ignore
    assert silent_for_other_links(max(everywhere, now)) or lax_everywhere(conf_all)
    assert not (changes and silent_for_other_links(max(everywhere, ignore)))


def test_only_what_we_set_is_set_back():
    originals = {"eth0/2/arp_ignore": 0, "eth0/2/arp_announce": 1, "gone/9/arp_ignore": 0}
    assert [str(change) for change in restore([link(1, 2)], originals)] == [
        "arp_announce=1 on eth0",
        "arp_ignore=0 on eth0",
    ]
    assert [str(change) for change in restore([link(2, 2)], originals)] == ["arp_announce=1 on eth0"]
    assert restore([link(1, 2, name="eth1")], originals) == ()
    assert restore([link(1, 2)], {}) == ()


# ── The file of originals ─────────────────────────────────────────────────────────────────────────────────────


def test_an_original_once_known_stands(tmp_path):
    remembered = Remembered(tmp_path / "run" / "x.json")
    remembered.add({"a": 0}, keep=["a"])
    remembered.add({"a": 1, "b": 7}, keep=["a", "b"])  # 1 is what a crashed speaker had set
    assert Remembered(tmp_path / "run" / "x.json").read() == {"a": 0, "b": 7}


def test_what_is_gone_is_forgotten(tmp_path):
    remembered = Remembered(tmp_path / "x.json")
    remembered.add({"a": 0, "b": 0}, keep=[])
    remembered.add({}, keep=["b"])
    assert json.loads((tmp_path / "x.json").read_text()) == {"b": 0}
    remembered.forget()
    remembered.forget()
    assert remembered.read() == {}


def test_a_file_that_makes_no_sense_is_an_error_and_stays(tmp_path):
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(EdgeError, match="original settings"):
        Remembered(tmp_path / "x.json").add({"a": 0}, keep=[])
    assert (tmp_path / "x.json").read_text() == "{"
