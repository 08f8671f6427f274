"""``{}``, ``[]`` and null say nothing, wherever a template leaves them: no pool is lost by them, and none is wider."""

import json
from copy import deepcopy

import pytest
import yaml
from conversions import NAMES, converted, given, of_data, pools_of, text_of
from examples import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from peer_oracles import ORACLES, Probe
from test_every_value_is_accounted import at, outcome

EMPTY = ({}, [], None)
KNOWN = sorted(
    {
        *("annotations", "labels", "finalizers", "namespace", "status", "interfaces", "nodeSelector", "nodeSelectors"),
        *("serviceSelector", "serviceSelectors", "matchLabels", "matchExpressions", "values", "v4pools", "v6pools"),
        *("namespaces", "namespaceSelectors", "ipAddressPools", "ipAddressPoolSelectors", "preferredNodeSelectors"),
        *("cidrs", "garpConfig", "localInterface", "loadBalancerSourceRanges", "externalIPs", "usingKnownIPs", "x"),
    }
)
SAID = {
    ("IPAddressPool", "spec", "serviceAllocation"),
    ("Eip", "spec", "namespaceSelector"),
    *(("ServiceGroup", "spec", kind) for kind in ("local", "remote", "external", "netbox")),
}
"""To the peer an empty mapping here is not the same as none."""
TEXTS = {("ConfigMap", "data"), ("Service", "spec", "selector")}


def collections(value, path=()):
    if isinstance(value, dict | list) and value:
        yield path
        steps = value if isinstance(value, dict) else range(len(value))
        for step in steps:
            yield from collections(value[step], (*path, step))


@settings(max_examples=examples(300), deadline=None)
@for_all(name=st.sampled_from(NAMES), data=st.data())
def test_an_empty_value_put_anywhere_changes_nothing_of_what_comes_out(name, data):
    documents = json.loads(json.dumps(list(yaml.safe_load_all(text_of(name)))))
    changed = deepcopy(documents)
    for _ in range(data.draw(st.integers(1, 4))):
        i = data.draw(st.integers(0, len(documents) - 1))
        path = data.draw(st.sampled_from(list(collections(changed[i]))))
        inner, empty = at(changed[i], path), deepcopy(data.draw(st.sampled_from(EMPTY)))
        kind = documents[i]["kind"]
        if isinstance(inner, list):
            if empty != {}:  # an entry {} of a list of selectors says "all"
                inner.insert(data.draw(st.integers(0, len(inner))), empty)
        elif not ((kind, *path) in TEXTS and empty is None):
            key = data.draw(st.sampled_from(KNOWN))
            if (kind, *path, key) not in SAID:
                inner.setdefault(key, empty)
    assert outcome(*changed) == outcome(*documents)


CASES = {
    "cilium, both parts of a selector": (
        "CiliumL2AnnouncementPolicy",
        {"loadBalancerIPs": True, "nodeSelector": {"matchLabels": {}, "matchExpressions": []}},
        {},
    ),
    "cilium, links and Services": (
        "CiliumL2AnnouncementPolicy",
        {"loadBalancerIPs": True, "interfaces": [], "serviceSelector": {}, "externalIPs": False},
        {},
    ),
    "metallb, one part of a selector": (
        "L2Advertisement",
        {"nodeSelectors": [{"matchLabels": {"a": "b"}, "matchExpressions": []}]},
        {"nodeSelector": {"matchLabels": {"a": "b"}}},
    ),
    "metallb, an entry that is empty": (
        "L2Advertisement",
        {"nodeSelectors": [{"matchLabels": {"a": "b"}}, {"matchLabels": None}]},
        {},
    ),
    "metallb, all lists": (
        "L2Advertisement",
        {"interfaces": [], "nodeSelectors": None, "ipAddressPools": [], "ipAddressPoolSelectors": []},
        {},
    ),
}
POOLS = {
    "L2Advertisement": ("metallb.io/v1beta1", "IPAddressPool", {"addresses": ["192.0.2.32/28"]}),
    "CiliumL2AnnouncementPolicy": (
        "cilium.io/v2alpha1",
        "CiliumLoadBalancerIPPool",
        {"blocks": [{"cidr": "192.0.2.32/28"}]},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_pool_whose_announcement_has_empties_is_converted(case):
    kind, spec, more = CASES[case]
    version, pool, pool_spec = POOLS[kind]
    found = of_data(
        {
            "apiVersion": version,
            "kind": pool,
            "metadata": {"name": "p", "labels": {}, "annotations": None},
            "spec": pool_spec,
        },
        {"apiVersion": version, "kind": kind, "metadata": {"name": "l"}, "spec": spec},
    )
    plain = {"addresses": ["192.0.2.32/28"], "avoidNetworkAndBroadcast": False}
    assert [each["spec"] for each in found.pools] == [plain | more]
    assert found.decisions == ()


def test_purelbs_lists_without_entries_are_known_fields():
    local = {"v4pools": [{"subnet": "192.0.2.0/24", "pool": "192.0.2.8/30", "aggregation": "default"}], "v6pools": []}
    group = {
        "apiVersion": "purelb.io/v2",
        "kind": "ServiceGroup",
        "metadata": {"name": "default"},
        "spec": {"local": local},
    }
    agent = {
        "apiVersion": "purelb.io/v2",
        "kind": "LBNodeAgent",
        "metadata": {"name": "default"},
        "spec": {"local": {"localInterface": "default", "interfaces": []}, "nodeSelector": {}},
    }
    found = of_data(group, agent)
    assert [each["spec"]["addresses"] for each in found.pools] == [["192.0.2.8/30"]]
    assert found.decisions == ()


def eip(name, **spec):
    made = {"address": "192.0.2.0/29", "protocol": "layer2", "interface": "eth0", **spec}
    default = {"annotations": {"eip.openelb.kubesphere.io/is-default-eip": "true"}} if name == "default" else {}
    kind = {"apiVersion": "network.kubesphere.io/v1alpha2", "kind": "Eip"}
    return {**kind, "metadata": {"name": name, **default}, "spec": made}


def allocation(**to):
    pool = {
        "apiVersion": "metallb.io/v1beta1",
        "kind": "IPAddressPool",
        "metadata": {"name": "p"},
        "spec": {"addresses": ["192.0.2.0/29"], **to},
    }
    return [pool, {"apiVersion": "metallb.io/v1beta1", "kind": "L2Advertisement", "metadata": {"name": "l"}}]


SAYING = {
    "openelb: an empty selector is for all namespaces": [eip("everybody", namespaceSelector={})],
    "openelb: beside it nobody gets the default Eip unasked": [
        eip("everybody", namespaceSelector={}),
        eip("default", address="192.0.2.16/29"),
    ],
    "openelb: a null is no selector": [eip("nobody", namespaceSelector=None), eip("default", address="192.0.2.16/29")],
    "metallb: a pool of a serviceAllocation that selects nothing": allocation(serviceAllocation={}),
    "metallb: of one with a priority alone": allocation(serviceAllocation={"priority": 20}),
    "metallb: a null is none": allocation(serviceAllocation=None),
    "kubevip: a namespace whose list is null has none, and not the global one": [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kubevip"},
            "data": {"cidr-global": "192.0.2.8/29", "cidr-red": None},
        }
    ],
}


@pytest.mark.parametrize("case", SAYING)
def test_an_empty_value_that_says_something_to_its_peer_goes_on_saying_it(case):
    documents = SAYING[case]
    oracle = ORACLES[case.partition(":")[0]]
    found = of_data(*documents)
    for probe in (
        Probe(),
        Probe("red"),
        *(Probe(pool=name) for name in pools_of(found) if not case.startswith("kube")),
    ):
        assert given(found, probe) == oracle(documents, probe), probe


def test_a_pool_of_a_service_allocation_that_selects_nothing_is_there_for_those_that_name_it():
    found = of_data(*allocation(serviceAllocation={}))
    assert [each["spec"]["autoAssign"] for each in found.pools] == [False]
    assert found.decisions == ()


@pytest.mark.parametrize("names", [[None], [None, []], [[]]])
def test_a_list_of_nothing_but_empties_never_becomes_a_list_of_all(names):
    assert of_data(*allocation(serviceAllocation={"namespaces": names})).pools == ()


def test_what_stands_behind_an_empty_entry_is_found_on_its_own_line():
    text = """
kind: L2Advertisement
apiVersion: metallb.io/v1beta1
metadata: {name: l}
spec:
  ipAddressPools:
  -
  - nobodys
"""
    (found,) = [each for each in converted(text).listed if each.value == "nobodys"]
    assert (found.path, found.place.line) == ("spec.ipAddressPools[0]", 8)
