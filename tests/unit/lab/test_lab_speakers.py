"""Who holds what, from what the speakers of a lab say of themselves."""

from ipaddress import ip_address

from speaker.lab.speakers import claimed, holders, holds_most, lab_eips

ONE, OTHER = ip_address("192.0.2.200"), ip_address("192.0.2.201")


def test_each_eip_has_the_holders_that_say_so():
    claims = {"node1": {ONE: True, OTHER: False}, "node2": {ONE: True, OTHER: False}}
    assert holders((ONE, OTHER), claims) == {ONE: ["node1", "node2"], OTHER: []}


def test_nobody_holds_anything_until_every_node_has_spoken_of_all_of_them():
    assert holders((ONE,), {"node1": {ONE: True}, "node2": {}}) == {ONE: []}


def test_the_victim_holds_most_and_comes_first_among_equals():
    eips = lab_eips(5)
    assert holds_most(dict(zip(eips, ["node10", "node2", "node2", "node10", "node3"], strict=True))) == "node2"
    assert holds_most(dict(zip(eips, ["node1", "node3", "node3", "node2", "node1"], strict=True))) == "node1"
    assert holds_most(dict(zip(eips, ["node1", "node3", "node3", "node3", "node1"], strict=True))) == "node3"


def test_what_a_node_holds_is_in_its_status_file():
    status = {"eips": [{"address": "192.0.2.200", "claimed": True}, {"address": "2001:db8::1", "claimed": False}]}
    assert claimed(status) == {ip_address("192.0.2.200"): True, ip_address("2001:db8::1"): False}
    assert claimed({}) == {}
