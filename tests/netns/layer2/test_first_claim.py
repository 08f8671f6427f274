"""An EIP that nobody was known to hold is probed for before it is answered: real hosts, and a stranger's packets."""

from ipaddress import IPv4Address, IPv6Address

import pytest
import replies
from scapy.layers.inet6 import ICMPv6ND_NS, IPv6
from scapy.layers.l2 import ARP, Ether

from speaker.layer2.answer import Ignored
from speaker.layer2.holdings import AGAIN, PROBES, TAKE_OVER
from speaker.model import Family, Gratuitous, format_mac
from speaker.packets import arp, ndp

pytestmark = pytest.mark.netns

EIP4, EIP6 = "192.0.2.10", "2001:db8::10"
ETHERTYPES = {EIP4: 0x0806, EIP6: 0x86DD}


def probes_for(address):
    """Whether a frame asks who uses it, as one who does not yet: read by scapy."""

    def probes(frame):
        packet = Ether(frame)
        if ARP in packet:
            return packet[ARP].op == 1 and packet[ARP].psrc == "0.0.0.0" and packet[ARP].pdst == address
        return ICMPv6ND_NS in packet and packet[IPv6].src == "::" and packet[ICMPv6ND_NS].tgt == address

    return probes


def announces(address):
    def says(frame):
        packet = Ether(frame)
        if ARP in packet:
            return packet[ARP].psrc == address == packet[ARP].pdst
        return IPv6 in packet and packet[IPv6].src == address and packet[IPv6].dst == "ff02::1"

    return says


def claim_of(mac, address):
    """What a stranger who has it sends."""
    if ":" in address:
        return replies.unsolicited(mac, IPv6Address(address)).pack()
    return arp.announce_by_reply(mac, IPv4Address(address).packed)


def probe_of(mac, address):
    if ":" in address:
        return ndp.solicitation(mac, IPv6Address(0), IPv6Address(address)).pack()
    return arp.request(mac, IPv4Address(0), IPv4Address(address)).pack()


@pytest.mark.parametrize("address", [EIP4, EIP6])
def test_three_probes_go_out_before_the_first_announcement_and_then_it_is_answered(lan, speaking, ear, sh, address):
    client, station = ear(lan.client, ETHERTYPES[address]), speaking()
    station.claim(address)
    seen = []
    client.until(lambda frame: seen.append(frame) or announces(address)(frame))
    assert len([frame for frame in seen if probes_for(address)(frame)]) == 3
    ask = f"arping -r -C 1 -c 30 -i eth0 {address}" if address == EIP4 else f"ndisc6 -q -1 -r 30 -w 1000 {address} eth0"
    assert format_mac(station.link.mac) in sh(lan.client, f"timeout 60 {ask}").lower()
    assert not station.counts.conflicts


def test_a_probe_is_what_the_rfcs_ask_for(lan, speaking, ear):
    arps, ndps, station = ear(lan.client, 0x0806), ear(lan.client, 0x86DD), speaking()
    station.claim(EIP4, EIP6)
    mac = format_mac(station.link.mac)
    four = Ether(arps.until(probes_for(EIP4)))
    assert (four.dst, four.src, four[ARP].hwsrc, four[ARP].hwdst) == (
        "ff:ff:ff:ff:ff:ff",
        mac,
        mac,
        "00:00:00:00:00:00",
    )
    six = Ether(ndps.until(probes_for(EIP6)))
    assert (six.dst, six.src, six[IPv6].dst, six[IPv6].hlim) == ("33:33:ff:00:00:10", mac, "ff02::1:ff00:10", 255)
    assert six[IPv6].plen == 24  # no link-layer option (RFC 4861 §4.3)


def test_who_answers_only_those_that_name_themselves_is_found_too(lan, speaking, ear):
    """MetalLB passes over solicitations without a link-layer option (internal/layer2/ndp.go, dropReasonNoSourceLL)."""
    client, station = ear(lan.client, 0x86DD), speaking()
    own = IPv6Address("2001:db8::1")
    station.do(station.speaker.ask_from, own)
    station.claim(EIP6)

    def asks(frame):
        packet = Ether(frame)
        return ICMPv6ND_NS in packet and packet[ICMPv6ND_NS].tgt == EIP6 and packet[IPv6].src == str(own)

    asked = ndp.parse(client.until(asks))
    client.send(replies.unsolicited(client.mac, IPv6Address(EIP6)).pack())
    station.counts.wait_for(lambda counts: counts.conflicts)
    assert asked.source == own
    assert asked.source_link_layer == station.link.mac
    assert client.never(announces(EIP6), 0.2)


@pytest.mark.parametrize("address", [EIP4, EIP6])
def test_a_host_that_has_the_address_answers_and_keeps_it(lan, speaking, ear, sh, address):
    """Its own kernel answers; the EIP is neither announced nor answered."""
    sh(lan.client, f"ip addr add {address}/{'64 nodad' if address == EIP6 else 24} dev eth0")
    client, station = ear(lan.client, ETHERTYPES[address]), speaking()
    station.claim(address)
    station.counts.wait_for(lambda counts: counts.conflicts)
    assert [(str(eip), mac, held) for eip, mac, held in station.counts.conflicts] == [(address, client.mac, False)]
    station.hold(address, "192.0.2.11", "2001:db8::11")  # and the others are not held up
    station.counts.wait_for(lambda counts: sum(counts.announcements.values()) == 3)
    client.until(announces("192.0.2.11" if address == EIP4 else "2001:db8::11"))
    assert client.never(announces(address), 0.2)


@pytest.mark.parametrize("address", [EIP4, EIP6])
def test_a_stranger_who_probes_for_it_at_the_same_time_is_a_conflict(lan, speaking, ear, address):
    client, station = ear(lan.client, ETHERTYPES[address]), speaking()
    station.claim(address)
    client.until(probes_for(address))
    client.send(probe_of(client.mac, address))
    station.counts.wait_for(lambda counts: counts.conflicts)
    assert not station.counts.announcements


@pytest.mark.parametrize("address", [EIP4, EIP6])
def test_what_a_peer_answers_for_is_not_answered_and_soon_probed_again_and_no_conflict(lan, speaking, ear, address):
    client, station = ear(lan.client, ETHERTYPES[address]), speaking()
    station.do(station.speaker.peers, frozenset({client.mac}))
    station.claim(address)
    client.until(probes_for(address))
    client.send(claim_of(client.mac, address))
    assert client.never(announces(address), 0.2)
    station.later(AGAIN)
    for _ in range(PROBES):
        client.until(probes_for(address))
    client.until(announces(address))
    assert station.counts.reasons == {Ignored.PEER: 1}
    assert not station.counts.conflicts


@pytest.mark.parametrize("address", [EIP4, EIP6])
def test_a_peer_that_asks_as_well_holds_nothing_up(lan, speaking, ear, address):
    """Which of the two has it they agree upon in their hellos."""
    client, station = ear(lan.client, ETHERTYPES[address]), speaking()
    station.do(station.speaker.peers, frozenset({client.mac}))
    station.claim(address)
    assert len(round_in_which(client, address, probe_of(client.mac, address))) == PROBES
    assert station.counts.reasons == {Ignored.PEER: 1}


@pytest.mark.parametrize("address", [EIP4, EIP6])
def test_another_link_of_ours_that_answers_holds_nothing_up(lan, speaking, ear, address):
    """Our own kernel does, where the EIP is bound and two links are in one LAN."""
    client = ear(lan.client, ETHERTYPES[address])
    station = speaking(ours=lambda mac: mac == client.mac)
    station.do(station.speaker.peers, frozenset({client.mac}))
    station.claim(address)
    assert len(round_in_which(client, address, claim_of(client.mac, address))) == PROBES


def round_in_which(client, address, said):
    """The probes until ``address`` is announced, of which the first has the client say something."""
    probes = [client.until(probes_for(address))]
    client.send(said)
    client.until(lambda frame: announces(address)(frame) or (probes_for(address)(frame) and probes.append(frame)))
    return probes


@pytest.mark.parametrize("says", [claim_of, probe_of])
@pytest.mark.parametrize("address", [EIP4, EIP6])
def test_what_a_peer_uses_and_does_not_claim_is_told_and_soon_probed_for_again(lan, speaking, ear, address, says):
    client, station = ear(lan.client, ETHERTYPES[address]), speaking(excuses=lambda link, eip, mac: False)
    station.do(station.speaker.peers, frozenset({client.mac}))
    station.claim(address)
    client.until(probes_for(address))
    client.send(says(client.mac, address))
    station.counts.wait_for(lambda counts: counts.conflicts)
    assert [(str(eip), mac, held) for eip, mac, held in station.counts.conflicts] == [(address, client.mac, False)]
    station.later(AGAIN)
    client.until(probes_for(address))


@pytest.mark.parametrize("address", [EIP4, EIP6])
def test_who_answered_until_it_fell_silent_is_told_of_once_and_no_rival_for_what_is_answered_then(
    lan, speaking, ear, address
):
    """Another load balancer on a node of ours: its last answer is younger than the time to find a peer guilty."""
    client, station = (
        ear(lan.client, ETHERTYPES[address]),
        speaking(excuses=lambda link, eip, mac: False, trial=0.6, pace=TAKE_OVER),
    )
    station.do(station.speaker.peers, frozenset({client.mac}))
    station.claim(address)
    client.until(probes_for(address))
    client.send(claim_of(client.mac, address))
    client.until(announces(address))
    assert client.never(lambda frame: False, 0.8)
    assert [held for _, _, held in station.counts.conflicts] == []


def test_withdrawal_during_the_probe_ends_it(lan, speaking, ear):
    client, station = ear(lan.client, 0x0806), speaking()
    station.claim(EIP4)
    client.until(probes_for(EIP4))
    station.hold()
    assert client.never(announces(EIP4), 0.2)
    assert not station.counts.announcements


def test_a_deadline_that_passes_stops_it_and_an_extension_starts_it_over(lan, speaking, ear):
    client, station = ear(lan.client, 0x0806), speaking()
    station.extend(-0.001)
    station.claim(EIP4)
    assert client.never(probes_for(EIP4), 0.2)
    station.extend(3600)
    for _ in range(3):
        client.until(probes_for(EIP4))
    client.until(announces(EIP4))


def test_a_probe_during_which_the_deadline_passed_goes_on_where_it_was(lan, speaking, ear):
    """A node that is a little late all the time would never be done otherwise; rivals are heard of all the while."""
    client, station = ear(lan.client, 0x0806), speaking()
    station.claim(EIP4)
    client.until(probes_for(EIP4))
    station.extend(-0.001)
    station.extend(3600)
    for _ in range(2):
        client.until(probes_for(EIP4))
    client.until(announces(EIP4))


def test_dropping_what_is_queued_starts_the_probe_over(lan, speaking, ear):
    """The answer may have been among it."""
    client, station = ear(lan.client, 0x0806), speaking()
    station.claim(EIP4)
    client.until(probes_for(EIP4))
    station.do(station.speaker.drop_queued)
    for _ in range(3):
        client.until(probes_for(EIP4))
    client.until(announces(EIP4))


def test_thousands_of_first_claims_are_probed_and_then_all_answered(lan, speaking, ear):
    client, station = ear(lan.client, 0x0806), speaking(gratuitous=Gratuitous(burst=1))
    eips = [f"10.1.{number // 250}.{number % 250}" for number in range(2000)]
    station.claim(*eips)
    station.counts.wait_for(lambda counts: counts.announcements[Family.IPV4] == 2 * len(eips))
    client.drain()
    client.send(arp.request(client.mac, IPv4Address(0), IPv4Address(eips[-1])).pack())
    client.until(client.to_us)
    assert not station.counts.conflicts
