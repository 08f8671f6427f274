"""What MetalLB said before it had kinds of its own, and advertisements that say more than one link."""

import pytest
from conversions import converted, of_data, text_of


def test_a_config_map_of_metallb_becomes_pools_and_its_bgp_is_listed_by_line():
    found = converted(text_of("metallb-configmap"))
    assert {each["metadata"]["name"]: each["spec"] for each in found.pools} == {
        "default": {"addresses": ["192.0.2.10-192.0.2.14", "192.0.2.32/30"], "avoidNetworkAndBroadcast": False},
        "by-name": {"addresses": ["192.0.2.1-192.0.2.7"], "autoAssign": False},
        "between": {"addresses": ["192.0.2.64/30"], "avoidNetworkAndBroadcast": False},
    }
    assert [(each.path, each.place.line) for each in found.decisions] == [
        ("data.config.bgp-communities", 30),
        ("data.config.peers", 9),
        ("data.config.address-pools[2]", 25),
        ("", 45),
    ]


NAMED = """apiVersion: v1
kind: ConfigMap
metadata: {{name: config, namespace: metallb-system}}
data:
  config: |
    address-pools:
    - {{name: My_Pool, protocol: layer2, addresses: [192.0.2.10-192.0.2.20]}}
    - {{name: {other}, protocol: layer2, addresses: [192.0.2.30-192.0.2.40]}}
---
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: default, annotations: {{metallb.universe.tf/address-pool: {wanted}}}}}
spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}
"""


@pytest.mark.parametrize("wanted", ["My_Pool", "other"])
def test_a_pool_whose_name_is_none_here_gets_another_one_and_its_services_ask_for_that(wanted):
    found = converted(NAMED.format(other="other", wanted=wanted))
    ours = {"My_Pool": "my-pool", "other": "other"}
    assert [each["metadata"]["name"] for each in found.pools] == [*ours.values()]
    (service,) = found.services
    assert service["metadata"]["annotations"]["eip-speaker.io/pool"] == ours[wanted]
    (told,) = [each for each in found.listed if each.path.endswith(".name") and "address-pools" in each.path]
    assert (told.value, told.place.line, told.do) == ("My_Pool", 7, "")
    assert told.why == "the pool is called my-pool, as names here have only a-z, 0-9, '-' and '.' (RFC 1123)"


@pytest.mark.parametrize(("wanted", "gets"), [("My_Pool", None), ("my-pool", "my-pool")])
def test_a_name_that_another_pool_has_is_not_taken_from_it(wanted, gets):
    found = converted(NAMED.format(other="my-pool", wanted=wanted))
    assert [(each["metadata"]["name"], each["spec"]["addresses"]) for each in found.pools] == [
        ("my-pool", ["192.0.2.30-192.0.2.40"])
    ]
    assert [each["metadata"]["annotations"]["eip-speaker.io/pool"] for each in found.services] == [gets] * bool(gets)
    assert "another pool is also named my-pool" in {each.why for each in found.decisions}


def test_a_mistake_in_the_text_of_a_config_map_is_found_on_its_line():
    text = text_of("metallb-configmap").replace("auto-assign: false", "auto-assing: false")
    (found,) = [each for each in converted(text).decisions if "auto-assing" in each.path]
    assert found.place.line == 22


def test_a_config_map_of_anybody_else_stays_as_it_is():
    found = of_data(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config"}, "data": {"config": "a: b"}}
    )
    assert (found.pools, [each.why for each in found.listed]) == (
        (),
        ["is not an object of a load balancer: it stays as it is"],
    )


def test_text_of_a_config_map_that_is_no_yaml_is_left_alone():
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config"}, "data": {"config": "a: [b"}}
    assert of_data(other).pools == ()


@pytest.mark.parametrize(
    "text", ["address-pools: [b", "address-pools:\n- name: a\n  protocol: layer2\n addresses: []\n"]
)
def test_text_of_metallbs_config_map_that_is_no_yaml_is_named_as_that(text):
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config"}, "data": {"config": text}}
    found = of_data(config)
    assert found.pools == ()
    assert [(each.path, each.why) for each in found.decisions] == [
        ("data.config", "must be YAML, of one mapping"),
        ("", "is left out, as parts of it cannot be read"),
    ]


@pytest.mark.parametrize("kind", ["List", "ServiceList"])
def test_a_list_whose_items_are_none_is_never_passed_over(kind):
    found = of_data({"apiVersion": "v1", "kind": kind, "items": {"a": 1}})
    assert [(each.path, each.why) for each in found.decisions] == [("items", "must be a list")]


def announced(specs):
    """A pool, in each of these ways."""
    pool = {
        "apiVersion": "metallb.io/v1beta1",
        "kind": "IPAddressPool",
        "metadata": {"name": "lan"},
        "spec": {"addresses": ["192.0.2.0/29"]},
    }
    ads = [
        {"apiVersion": "metallb.io/v1beta1", "kind": "L2Advertisement", "metadata": {"name": f"l{i}"}, "spec": spec}
        for i, spec in enumerate(specs)
    ]
    return of_data(pool, *ads)


def advertised(*specs):
    found = announced(specs)
    spec = found.pools[0]["spec"]
    return spec.get("interface"), spec.get("nodeSelector"), [each.path for each in found.decisions]


def on(*hosts):
    return {"nodeSelectors": [{"matchLabels": {"kubernetes.io/hostname": host}} for host in hosts]}


@pytest.mark.parametrize(
    ("specs", "interface", "nodes"),
    [
        ([{"interfaces": ["eth0"]}, {"interfaces": ["eno1"]}], "eth0,eno1", None),
        ([{"interfaces": ["eth0"]}, {}], None, None),
        ([{"interfaces": ["eth0"], **on("a")}, {"interfaces": ["eno1"], **on("b", "c")}], "eth0,eno1", ["a", "b", "c"]),
        ([{"interfaces": ["eth0"], **on("a")}, on("b")], "eth0", ["a"]),
        ([{"interfaces": ["eth0"], **on("a")}, {"interfaces": ["eno1"]}], "eth0", ["a"]),
    ],
)
def test_links_of_several_advertisements_become_a_list_where_that_says_the_same(specs, interface, nodes):
    link, selector, decisions = advertised(*specs)
    values = (
        None
        if selector is None
        else list(selector.get("matchLabels", {}).values()) or selector["matchExpressions"][0]["values"]
    )
    assert (link, values) == (interface, nodes)
    assert decisions or link is None


def preferring(*terms, **more):
    said = [{"weight": weight, "preference": {"matchLabels": labels} if labels else {}} for weight, labels in terms]
    return {"preferredNodeSelectors": said, **more}


EDGE, ZONE = {"role": "edge"}, {"zone": "a"}


@pytest.mark.parametrize(
    ("specs", "terms", "decided"),
    [
        ([preferring((100, EDGE))], [(100, EDGE)], []),
        ([preferring((60, EDGE), (50, ZONE))], [(60, EDGE), (50, ZONE)], []),
        ([preferring((100, EDGE), **on("a"))], [(100, EDGE)], []),
        ([preferring((70, EDGE), **on("a")), preferring((30, ZONE), **on("a"))], [(70, EDGE), (30, ZONE)], []),
        # each for its own nodes
        ([preferring((70, EDGE)), on("b")], [(70, EDGE)], []),
        ([preferring((70, EDGE), **on("a")), on("b")], [(70, {"kubernetes.io/hostname": "a", **EDGE})], []),
        ([preferring((70, {}), **on("a")), on("b")], [(70, {"kubernetes.io/hostname": "a"})], []),
        ([preferring((70, {}))], [], []),
        ([preferring(*[(1, {"n": str(n)}) for n in range(17)])], [(1, {"n": str(n)}) for n in range(16)],
         ["spec.preferredNodeSelectors[16]"]),
    ],
)  # fmt: skip
def test_preferred_nodes_are_the_pools_preference_and_get_their_addresses_back(specs, terms, decided):
    found = announced(specs)
    spec = found.pools[0]["spec"]
    assert [(each["weight"], each["matchLabels"]) for each in spec.get("nodePreference", [])] == terms
    assert spec.get("failback") == ("preferred-after 1m" if terms else None)
    assert [each.path for each in found.decisions] == decided


@pytest.mark.parametrize("weight", [0, 101, "many", None])
def test_a_weight_that_metallb_refuses_leaves_the_advertisement_out(weight):
    spec = {"preferredNodeSelectors": [{"weight": weight, "preference": {"matchLabels": EDGE}}]}
    found = of_data(
        {"apiVersion": "metallb.io/v1beta1", "kind": "L2Advertisement", "metadata": {"name": "l"}, "spec": spec}
    )
    assert any("preferredNodeSelectors[0].weight" in each.path for each in found.decisions)


def test_a_config_map_of_metallbs_own_group_is_left_out():
    heading = {"apiVersion": "metallb.io/v1beta1", "kind": "ConfigMap", "metadata": {"name": "config"}}
    assert of_data({**heading, "data": {}}).decisions
