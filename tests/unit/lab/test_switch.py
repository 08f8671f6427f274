"""The script that has nftables spoil frames."""

from speaker.lab.sickness import Cast, Drop
from speaker.lab.switch import hosts_on, script
from speaker.lab.topology import LAN, lab_topology

TWO = lab_topology(2)


def rules(*drops):
    return [line.strip() for line in script(TWO, drops).splitlines() if line.strip().endswith(" drop")]


def test_everybody_on_the_lan_is_a_port_of_its_switch():
    assert hosts_on(TWO, LAN) == {"gateway", "client", "host1", "node1", "node2"}


def test_a_drop_names_the_ports_that_frames_come_from_and_those_they_go_to():
    drop = Drop(frozenset({"node1"}), frozenset({"node2", "client"}))
    assert rules(drop) == ['iifname { "node1-eth0" } oifname { "client-eth0", "node2-eth0" } drop']


def test_hellos_are_told_by_their_ethertype_and_some_frames_by_chance():
    one = frozenset({"node1"})
    assert rules(Drop(one, one, hellos=True), Drop(one, one, percent=7)) == [
        'iifname { "node1-eth0" } oifname { "node1-eth0" } ether type 0x88b5 drop',
        'iifname { "node1-eth0" } oifname { "node1-eth0" } numgen random mod 100 < 7 drop',
    ]


def test_what_is_said_of_one_address_is_told_by_the_sender_that_arp_names():
    one = frozenset({"node1"})
    expected = 'iifname { "node1-eth0" } oifname { "node1-eth0" } arp saddr ip 192.0.2.200 drop'
    assert rules(Drop(one, one, claiming="192.0.2.200")) == [expected]


def test_of_ipv6_it_is_told_by_the_target_of_an_advertisement():
    one = frozenset({"node1"})
    (rule,) = rules(Drop(one, one, claiming="2001:db8::200"))
    told = "icmpv6 type nd-neighbor-advert @nh,384,128 0x20010db8000000000000000000000200"
    assert rule == f'iifname {{ "node1-eth0" }} oifname {{ "node1-eth0" }} {told} drop'


def test_what_is_sent_to_many_is_told_by_a_bit_of_its_destination():
    one = frozenset({"node1"})
    bit = "ether daddr & 01:00:00:00:00:00"
    assert rules(Drop(one, one, cast=Cast.MANY))[0].endswith(f"{bit} == 01:00:00:00:00:00 drop")
    assert rules(Drop(one, one, cast=Cast.ONE))[0].endswith(f"{bit} != 01:00:00:00:00:00 drop")


def test_frames_are_counted_where_a_broadcast_is_one_of_them():
    text = script(TWO, [Drop(frozenset({"node1"}), frozenset({"client"}), over=12)])
    before, after = text.split("chain forward")
    assert 'iifname { "node1-eth0" } limit rate over 12/second burst 12 packets drop' in before
    assert "node1" not in after


def test_what_was_dropped_before_is_forgotten_in_the_same_transaction():
    text = script(TWO, [])
    assert text.index("delete table bridge") < text.index("chain forward")
    assert rules() == []
    assert "policy drop" in text, "the switch's own frames"
