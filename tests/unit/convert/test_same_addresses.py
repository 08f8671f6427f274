"""Converted pools give the addresses that the peer gives: the same ones unasked, and never more by name."""

from itertools import product

import pytest
import yaml
from conversions import NAMES, converted, given, pools_of, text_of
from peer_oracles import ORACLES, Probe

NAMESPACES = {
    "default": {},
    "red": {"kubernetes.io/metadata.name": "red"},
    "red-staging": {},
    "blue": {"tier": "silver"},
    "green": {"tier": "gold"},
    "development": {"example.com/workspace": "lab"},
    "finance": {},
    "ipv6": {},
}
LABELS = [{}, {"app": "shop"}, {"app": "blog"}, {"color": "blue"}, {"color": "cyan", "tier": "frontend"}]


def probes(pools):
    for (namespace, labels), own, pool in product(NAMESPACES.items(), LABELS, pools):
        yield Probe(namespace, labels, own, pool)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "kubevip-services"])  # has no ConfigMap
def test_services_that_name_no_pool_get_exactly_what_the_peer_gives_them(name):
    documents = list(yaml.safe_load_all(text_of(name)))
    peer = ORACLES[name.partition("-")[0]]
    conversion = converted(text_of(name))
    for probe in probes([None]):
        assert given(conversion, probe) == peer(documents, probe), probe


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(("kubevip", "cilium"))])
def test_services_that_name_a_pool_never_get_more_than_the_peer_gives_them(name):
    documents = list(yaml.safe_load_all(text_of(name)))
    peer = ORACLES[name.partition("-")[0]]
    conversion = converted(text_of(name))
    given_some = 0
    for probe in probes(pools_of(conversion)):
        mine = given(conversion, probe)
        given_some += bool(mine)
        assert mine <= peer(documents, probe), probe
    assert given_some or not conversion.pools
