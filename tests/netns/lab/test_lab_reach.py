"""What a newcomer sees first: every EIP of the demo, reached with real sockets."""

import json
from ipaddress import ip_address, ip_network

import pytest

pytestmark = pytest.mark.netns

PARTNER_POOL = ip_network("203.0.113.0/28")
NODE_MACS = {"eth0": "02:00:00:01:00:11", "eth1": "02:00:00:02:00:11"}


def test_every_eip_is_reached_on_every_port_and_spread_over_its_backends(lab_command):
    done = lab_command("--scenario", "reach", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)  # one object and nothing else
    assert found["ok"] is True
    eips = found["eips"]

    assert len({eip["service"] for eip in eips}) >= 5
    for eip in eips:
        assert eip["mac"] == NODE_MACS[eip["link"]], eip
        assert eip["answers"].keys() == {"pod1", "pod2", "host1"}, eip
        for port in eip["ports"]:  # 12 answers and more from three backends: nobody is left with a token one
            assert port["answers"].keys() == {"pod1", "pod2", "host1"}, eip

    of = {service: [eip for eip in eips if eip["service"] == service] for service in {eip["service"] for eip in eips}}
    addresses = {service: {eip["address"] for eip in mine} for service, mine in of.items()}
    assert {ip_address(address).version for address in addresses["shop/api"]} == {4, 6}, "dual stack"
    assert {port["protocol"] for eip in of["infra/syslog"] for port in eip["ports"]} == {"UDP"}
    assert addresses["infra/dns-tcp"] == addresses["infra/dns-udp"], "one EIP, shared"
    assert {port["protocol"] for name in ("infra/dns-tcp", "infra/dns-udp") for port in of[name][0]["ports"]} == {
        "TCP",
        "UDP",
    }
    assert addresses["shop/legacy"] == {"192.0.2.217", "2001:db8:0:1::217"}, "the addresses it asked for"
    assert all(ip_address(address) in PARTNER_POOL for address in addresses["shop/partner"]), "the can_reach pool"
    assert {eip["link"] for eip in of["shop/partner"]} == {"eth0"}
    assert {eip["link"] for eip in of["infra/console"]} == {"eth1"}, "the pool that names the other link"


def test_the_story_has_no_colours_in_a_pipe_and_ends_with_what_to_try_next(lab_command):
    done = lab_command()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    assert "8 Services get an address" in done.stdout
    assert "hears gratuitous ARP" in done.stdout
    assert "hears unsolicited NA" in done.stdout
    assert "\nNext: speaker lab --scenario reach --keep\n" in done.stdout
