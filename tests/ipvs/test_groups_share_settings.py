"""Settings that all groups on a host need alike: none undoes them for another, and the last one puts back what the
first one found."""

from ipaddress import ip_address

import pytest

from speaker.forwarding.ipvs.dummy import DummyLink, others_bind
from speaker.forwarding.ipvs.settings import Remembered
from speaker.forwarding.ipvs.strict_arp import StrictArp
from speaker.model import NO_GROUP, Group
from speaker.settings import DEFAULT_RUNTIME_DIR, of_group

pytestmark = pytest.mark.ipvs

OTHER = Group("control-plane")
EIPS = {NO_GROUP: ip_address("198.51.100.10"), OTHER: ip_address("2001:db8::20")}


class OnNode:
    """What the IPVS forwarder of a group does with links, without IPVS."""

    def __init__(self, run, group):
        self.link = DummyLink(group.link)
        file = run / of_group(DEFAULT_RUNTIME_DIR, group).name / "strict-arp.json"
        self._arp, self._eip = StrictArp(Remembered(file, shared=True)), EIPS[group]

    def begin(self):
        self._arp.tighten()
        self.link.bind([self._eip])
        self._arp.tighten()

    def end(self):
        self.link.remove()
        return () if others_bind(self.link.name) else self._arp.restore()


@pytest.fixture
def node(new_namespace, wire):
    node = new_namespace("node")
    wire(node, "eth0", new_namespace("beside"), "eth0")
    with node.entered():
        yield node


@pytest.fixture
def ignored(sh):
    return lambda node: sh(node, "sysctl -n net.ipv4.conf.eth0.arp_ignore net.ipv4.conf.eth0.arp_announce")


@pytest.mark.parametrize("first", [NO_GROUP, OTHER])
@pytest.mark.parametrize("stays", [NO_GROUP, OTHER])
def test_the_last_of_two_groups_puts_back_what_the_first_one_found(node, tmp_path, ignored, first, stays):
    groups = {group: OnNode(tmp_path, group) for group in (NO_GROUP, OTHER)}
    (second,) = groups.keys() - {first}
    (leaves,) = groups.keys() - {stays}
    before = ignored(node)
    groups[first].begin()
    groups[second].begin()
    strict = ignored(node)
    assert strict != before
    assert groups[leaves].end() == ()
    assert ignored(node) == strict, "the other needs it"
    assert groups[stays].link.eips() == {EIPS[stays]}
    groups[stays].end()
    assert ignored(node) == before
    assert [*tmp_path.rglob("*.json")] == []


def test_a_link_of_another_group_without_eips_needs_nothing(node, tmp_path, ignored):
    mine, other = OnNode(tmp_path, NO_GROUP), OnNode(tmp_path, OTHER)
    before = ignored(node)
    mine.begin()
    other.link.bind([EIPS[OTHER]])
    other.link.unbind([EIPS[OTHER]])
    assert mine.end() != ()
    assert ignored(node) == before
