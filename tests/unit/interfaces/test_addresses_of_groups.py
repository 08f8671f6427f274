"""Whose an address is that a speaker's dummy link has: ours, or another group's."""

from ipaddress import ip_address, ip_network

from speaker.interfaces.snapshot import LinkAddress, own
from speaker.model import KUBE_PROXY_LINK, NO_GROUP, Group, Link, Mac

OTHER = Group("control-plane")
X, Y = ip_address("192.0.2.10"), ip_address("2001:db8::10")
NAMES = {1: "eth0", 2: NO_GROUP.link, 3: OTHER.link, 4: KUBE_PROXY_LINK}
LINKS = {index: Link(index, name, Mac(bytes(6))) for index, name in NAMES.items()}


def whose(group, *bound):
    addresses = [LinkAddress(link, eip, ip_network(eip)) for link, eip in bound]
    return own(LINKS, addresses, group.link)


def test_what_we_bound_is_an_eip_and_what_another_group_bound_is_that_groups():
    for mine, theirs, ours, others in ((2, 3, NO_GROUP, OTHER), (3, 2, OTHER, NO_GROUP)):
        assert whose(ours, (mine, X), (theirs, Y)) == {Y: others.link}


def test_what_kube_proxy_bound_is_nobodys_own():
    assert whose(NO_GROUP, (4, X)) == {}


def test_of_two_that_bound_it_in_the_same_instant_exactly_one_lets_go():
    both = (2, X), (3, X)
    assert whose(NO_GROUP, *both) == {X: OTHER.link}
    assert whose(OTHER, *both) == {}
