"""Clients nobody here wrote get the EIP's MAC: arping, arp-scan, ndisc6, and the kernel itself."""

import json

import pytest

from speaker.model import format_mac

pytestmark = pytest.mark.netns

EIP4, EIP6 = "192.0.2.10", "2001:db8::10"


@pytest.mark.parametrize("how", ["", "-0 "])
def test_arping_gets_the_mac_with_an_address_of_its_own_and_as_a_probe_without(lan, speaking, sh, how):
    station = speaking(EIP4)
    found = sh(lan.client, f"timeout 60 arping {how}-r -C 1 -c 30 -i eth0 {EIP4}")
    assert found.split() == [format_mac(station.link.mac)]


def test_arp_scan_finds_the_eips_and_nothing_between(lan, speaking, sh, eventually):
    """It waits for no answer longer than half a second."""
    station = speaking("192.0.2.10", "192.0.2.12")
    mac = format_mac(station.link.mac)

    def found():
        said = sh(lan.client, "arp-scan --interface=eth0 --plain --quiet --retry=2 --timeout=200 192.0.2.8/29")
        return [tuple(line.split()) for line in said.splitlines()]

    both = {("192.0.2.10", mac), ("192.0.2.12", mac)}
    eventually(lambda: set(found()) >= both)
    assert set(found()) <= both


def test_ndisc6_gets_the_mac(lan, speaking, sh):
    station = speaking(EIP6)
    found = sh(lan.client, f"timeout 60 ndisc6 -q -1 -r 30 -w 1000 {EIP6} eth0")
    assert found.split()[0].lower() == format_mac(station.link.mac)


def test_the_kernel_resolves_and_reaches_an_eip_for_which_its_own_kernel_stays_silent(
    lan, speaking, sh, neighbour, eventually
):
    lan.node.sysctl("net.ipv4.conf.all.arp_ignore", 1)
    sh(lan.node, f"ip addr add {EIP4}/32 dev lo")
    sh(lan.node, f"ip addr add {EIP6}/128 dev lo")
    assert sh(lan.client, f"timeout 10 arping -r -c 1 -W 0.2 -i eth0 {EIP4}", check=False).strip() == ""
    station = speaking(EIP4, EIP6)
    for address in (EIP4, EIP6):
        eventually(lambda address=address: "1 received" in sh(lan.client, f"ping -c 1 -W 5 {address}", check=False))
        assert neighbour(lan.client, address) == format_mac(station.link.mac)


def test_duplicate_address_detection_of_a_stranger_fails(lan, speaking, sh, eventually):
    """It waits a second for an answer, and is begun anew where a busy machine gave none in time."""
    speaking(EIP6)
    sh(lan.client, f"ip addr add {EIP6}/64 dev eth0")

    def failed():
        shown = json.loads(sh(lan.client, "ip -j -6 addr show dev eth0"))
        address = {one["local"]: one for one in shown[0]["addr_info"]}[EIP6]
        if not address.get("tentative"):
            sh(lan.client, f"ip addr del {EIP6}/64 dev eth0")
            sh(lan.client, f"ip addr add {EIP6}/64 dev eth0")
        return address.get("dadfailed")

    eventually(failed)


@pytest.mark.parametrize("address", [EIP4, EIP6])
def test_an_announcement_replaces_a_neighbours_entry_at_once(lan, speaking, sh, neighbour, eventually, address):
    station = speaking()
    sh(lan.client, f"ip neigh replace {address} lladdr 02:00:00:00:00:99 nud reachable dev eth0")
    assert neighbour(lan.client, address) == "02:00:00:00:00:99"
    station.hold(address)
    eventually(lambda: neighbour(lan.client, address) == format_mac(station.link.mac))
