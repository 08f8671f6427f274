"""Services of peers ask us for the same: class, address, pool, sharing; whose they are; what adopting adds."""

import pytest
from conversions import of_data

from speaker.api.fields import ApiObject, read
from speaker.api.others import WISHES
from speaker.api.service import service
from speaker.model import Balancer

OURS = "eip-speaker.io/speaker"


def a_service(name="web", annotations=None, status=None, namespace="default", port=80, **spec):
    made = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations or {}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": port}], **spec},
    }
    return {**made, "status": {"loadBalancer": {"ingress": [{"ip": ip} for ip in status]}}} if status else made


def metallb(*addresses, name="lan", **spec):
    return [
        {
            "apiVersion": "metallb.io/v1beta1",
            "kind": "IPAddressPool",
            "metadata": {"name": name, "namespace": "metallb-system"},
            "spec": {"addresses": list(addresses), **spec},
        },
        {
            "apiVersion": "metallb.io/v1beta1",
            "kind": "L2Advertisement",
            "metadata": {"name": name, "namespace": "metallb-system"},
            "spec": {"ipAddressPools": [name]},
        },
    ]


def only(conversion):
    (manifest,) = conversion.services
    return manifest, read(ApiObject(manifest), lambda root: service(root, default_class=True))


def to_decide(conversion):
    return [(each.path, each.why) for each in conversion.decisions]


@pytest.mark.parametrize("name", [name for name, means in WISHES.items() if means == "addresses"])
def test_every_peers_annotation_for_addresses_becomes_ours(name):
    opt_in = {"lb.kubesphere.io/v1alpha1": "openelb"}
    found = of_data(*metallb("192.0.2.0/28"), a_service(annotations={name: "192.0.2.7", **opt_in}))
    manifest, _ = only(found)
    assert manifest["metadata"]["annotations"] == {"eip-speaker.io/addresses": "192.0.2.7"}
    assert manifest["spec"]["loadBalancerClass"] == OURS
    assert found.decisions == ()


@pytest.mark.parametrize("name", [name for name, means in WISHES.items() if means == "pool"])
def test_every_peers_annotation_for_a_pool_becomes_ours(name):
    found = of_data(*metallb("192.0.2.0/28"), a_service(annotations={name: "lan"}))
    assert only(found)[0]["metadata"]["annotations"] == {"eip-speaker.io/pool": "lan"}
    assert found.decisions == ()


@pytest.mark.parametrize("name", [name for name, means in WISHES.items() if means == "share"])
def test_every_peers_sharing_key_becomes_ours(name):
    found = of_data(*metallb("192.0.2.0/28"), a_service(annotations={name: "a key, of any text"}))
    assert only(found)[1].share == "a key, of any text"
    assert found.decisions == ()


def test_the_field_for_one_address_becomes_the_annotation():
    manifest, _ = only(of_data(*metallb("192.0.2.0/28"), a_service(loadBalancerIP="192.0.2.9")))
    assert manifest["metadata"]["annotations"] == {"eip-speaker.io/addresses": "192.0.2.9"}
    assert "loadBalancerIP" not in manifest["spec"]


def test_the_annotation_counts_over_the_field_and_the_difference_is_listed():
    asked = a_service(annotations={"kube-vip.io/loadbalancerIPs": "192.0.2.7"}, loadBalancerIP="192.0.2.9")
    found = of_data(*metallb("192.0.2.0/28"), asked)
    assert only(found)[1].addresses[0].exploded == "192.0.2.7"
    assert [path for path, _ in to_decide(found)] == ["spec.loadBalancerIP"]


@pytest.mark.parametrize(
    ("cls", "settings", "whose"),
    [
        (None, {}, "nothing tells which balancer serves it"),
        (None, {"peer": Balancer.OPENELB}, "OpenELB does not serve it"),
        (None, {"peer": Balancer.METALLB}, None),
        ("io.cilium/l2-announcer", {}, None),
        ("kube-vip.io/kube-vip-class", {}, None),
        ("purelb.io/purelbv2", {}, None),
        ("example.com/balancer", {}, "belongs to no known peer"),
        ("example.com/balancer", {"classes": frozenset({"example.com/balancer"})}, None),
        ("io.cilium/bgp-control-plane", {}, "BGP announces it"),
    ],
)
def test_whose_a_service_is_follows_from_its_class_and_from_what_else_there_is(cls, settings, whose):
    asked = a_service(**({"loadBalancerClass": cls} if cls else {}))
    found = of_data(asked, **settings)
    if whose is None:
        assert only(found)[0]["spec"]["loadBalancerClass"] == OURS
    else:
        assert found.services == ()
        assert whose in found.listed[0].why


def test_openelb_serves_only_services_that_opted_in():
    pool = {
        "apiVersion": "network.kubesphere.io/v1alpha2",
        "kind": "Eip",
        "metadata": {"name": "hall"},
        "spec": {"address": "192.0.2.0/28", "protocol": "layer2", "interface": "eth0"},
    }
    asked = {"eip.openelb.kubesphere.io/v1alpha2": "hall"}
    found = of_data(
        pool,
        a_service("in", annotations={"lb.kubesphere.io/v1alpha1": "openelb", **asked}),
        a_service("other", annotations={"lb.kubesphere.io/v1alpha1": "porter"}),
        a_service("out"),
    )
    assert [each["metadata"]["name"] for each in found.services] == ["in"]


def test_a_service_without_a_class_stays_so_where_the_speaker_takes_those_too():
    manifest, _ = only(of_data(*metallb("192.0.2.0/28"), a_service(), default_class=True))
    assert "loadBalancerClass" not in manifest["spec"]


def test_source_ranges_and_all_other_fields_of_the_service_stay_as_they_are():
    spec = {
        "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 30100,
        "loadBalancerSourceRanges": ["198.51.100.0/24"],
        "clusterIP": "10.96.0.7",
        "sessionAffinity": "ClientIP",
    }
    manifest, found = only(of_data(*metallb("192.0.2.0/28"), a_service(**spec)))
    assert spec.items() <= manifest["spec"].items()
    assert [str(each) for each in found.source_ranges] == ["198.51.100.0/24"]


def test_external_ips_stay_and_are_said_to_be_kube_proxys():
    found = of_data(*metallb("192.0.2.0/28"), a_service(externalIPs=["203.0.113.7"]))
    assert only(found)[0]["spec"]["externalIPs"] == ["203.0.113.7"]
    assert ["kube-proxy's" in each.why for each in found.listed if each.path == "spec.externalIPs"] == [True]


def test_a_misspelt_field_that_would_open_the_service_leaves_it_out():
    found = of_data(*metallb("192.0.2.0/28"), a_service(loadBalancerSourceRange=["198.51.100.0/24"]))
    assert found.services == ()
    assert any("loadBalancerSourceRange" in why for _, why in to_decide(found))


# ── Adopting ──────────────────────────────────────────────────────────────────────────────────────────────────


def addresses(conversion):
    return {
        each["metadata"]["name"]: each["metadata"].get("annotations", {}).get("eip-speaker.io/addresses")
        for each in conversion.services
    }


def test_adopting_keeps_the_address_in_the_status_over_the_one_that_is_asked_for():
    asked = a_service(status=["192.0.2.5"], loadBalancerIP="192.0.2.9")
    found = of_data(*metallb("192.0.2.0/28"), asked, adopt=True)
    assert addresses(found) == {"web": "192.0.2.5"}
    assert to_decide(found)[0][1] == "it asks for 192.0.2.9 but has 192.0.2.5, which it keeps"


def test_without_adopting_the_status_is_left_out():
    found = of_data(*metallb("192.0.2.0/28"), a_service(status=["192.0.2.5"]))
    assert addresses(found) == {"web": None}


def test_adopting_keeps_both_addresses_of_a_service_of_both_families():
    both = a_service(status=["192.0.2.5", "2001:db8::5"], ipFamilyPolicy="RequireDualStack")
    found = of_data(*metallb("192.0.2.0/28", "2001:db8::/124"), both, adopt=True)
    assert addresses(found) == {"web": "192.0.2.5,2001:db8::5"}
    assert found.decisions == ()


def test_services_at_one_address_get_one_key_and_name_each_others_namespaces():
    found = of_data(
        *metallb("192.0.2.0/28"),
        a_service("web", status=["192.0.2.5"], namespace="red", port=80),
        a_service("mail", status=["192.0.2.5"], namespace="blue", port=25),
        adopt=True,
    )
    wishes = [each["metadata"]["annotations"] for each in found.services]
    assert [each["eip-speaker.io/share"] for each in wishes] == ["adopted-192-0-2-5"] * 2
    assert [each["eip-speaker.io/share-namespaces"] for each in wishes] == ["blue", "red"]
    assert found.decisions == ()


def test_services_at_one_address_with_one_port_are_listed():
    found = of_data(
        *metallb("192.0.2.0/28"),
        a_service("web", status=["192.0.2.5"]),
        a_service("other", status=["192.0.2.5"]),
        adopt=True,
    )
    assert ["shared_port_clash" in why for _, why in to_decide(found)] == [True]


@pytest.mark.parametrize(
    ("pool", "why"),
    [
        ({}, "outside of every pool"),
        ({"serviceAllocation": {"namespaces": ["elsewhere"]}}, "in a pool of other namespaces"),
        ({"avoidBuggyIPs": True}, "avoided"),
    ],
)
def test_adopting_writes_a_pool_for_an_address_that_no_other_pool_gives_to_the_service(pool, why):
    address = {"outside of every pool": "198.51.100.7", "avoided": "192.0.2.0"}.get(why, "192.0.2.5")
    found = of_data(*metallb("192.0.2.0-192.0.2.15", **pool), a_service(status=[address], namespace="red"), adopt=True)
    adopted = found.pools[-1]
    assert adopted["metadata"]["name"] == "adopted-red"
    assert adopted["spec"] == {
        "addresses": [address],
        "namespaces": ["red"],
        "autoAssign": False,
        "avoidNetworkAndBroadcast": False,
    }
    assert found.decisions == ()


def test_a_pool_that_gives_an_address_up_keeps_the_others_and_its_link_goes_with_it():
    pool, advertisement = metallb("192.0.2.4-192.0.2.6", serviceAllocation={"namespaces": ["elsewhere"]})
    advertisement["spec"]["interfaces"] = ["eth7"]
    found = of_data(pool, advertisement, a_service(status=["192.0.2.5"]), adopt=True)
    former, adopted = found.pools
    assert former["spec"]["addresses"] == ["192.0.2.4", "192.0.2.6"]
    assert adopted["spec"]["interface"] == "eth7"


def test_an_address_that_bgp_announces_is_not_adopted():
    pool, _ = metallb("192.0.2.0/28")
    found = of_data(pool, a_service(status=["192.0.2.5"]), adopt=True)
    assert found.pools == ()
    assert any("address_not_in_pool" in why for _, why in to_decide(found))


def test_a_service_that_is_being_deleted_is_left_alone():
    leaving = a_service(status=["192.0.2.5"])
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert of_data(*metallb("192.0.2.0/28"), leaving, adopt=True).services == ()


# ── Between objects ───────────────────────────────────────────────────────────────────────────────────────────


def test_an_address_in_two_pools_stays_in_the_first():
    found = of_data(*metallb("192.0.2.0/29", name="a"), *metallb("192.0.2.4-192.0.2.11", name="b"))
    assert [each["spec"]["addresses"] for each in found.pools] == [["192.0.2.0/29"], ["192.0.2.8/30"]]
    assert "192.0.2.4/30 goes to pool a" in to_decide(found)[0][1]


def test_of_two_pools_with_one_name_the_second_is_left_out():
    found = of_data(*metallb("192.0.2.0/29"), *metallb("198.51.100.0/29"))
    assert len(found.pools) == 1
    assert "another pool is also named lan" in to_decide(found)[0][1]


def test_the_objects_of_a_list_are_converted_each():
    listed = {"apiVersion": "v1", "kind": "List", "items": [*metallb("192.0.2.0/29"), a_service()]}
    found = of_data(listed)
    assert (len(found.pools), len(found.services)) == (1, 1)


def test_the_objects_of_lists_of_one_kind_are_converted_each():
    pool, advertisement = metallb("192.0.2.0/29")
    lists = [
        {"apiVersion": each["apiVersion"], "kind": f"{each['kind']}List", "items": [each]}
        for each in (pool, advertisement)
    ]
    found = of_data({"apiVersion": "v1", "kind": "List", "items": lists})
    assert len(found.pools) == 1


def cilium_by_name(operator, values):
    rule = {"key": "io.kubernetes.service.name", "operator": operator, **({"values": values} if values else {})}
    pool = {
        "apiVersion": "cilium.io/v2",
        "kind": "CiliumLoadBalancerIPPool",
        "metadata": {"name": "blue"},
        "spec": {"blocks": [{"cidr": "192.0.2.0/28"}], "serviceSelector": {"matchExpressions": [rule]}},
    }
    policy = {
        "apiVersion": "cilium.io/v2alpha1",
        "kind": "CiliumL2AnnouncementPolicy",
        "metadata": {"name": "all"},
        "spec": {"loadBalancerIPs": True},
    }
    return of_data(pool, policy)


@pytest.mark.parametrize(("operator", "values"), [("NotIn", ["web"]), ("DoesNotExist", [])])
def test_a_pool_that_excludes_services_by_name_is_left_out(operator, values):
    """No Service has its name for a label, so that each of them would match."""
    found = cilium_by_name(operator, values)
    assert found.pools == ()
    assert "excludes Services by name" in to_decide(found)[0][1]


def test_a_pool_that_selects_services_by_name_serves_those_with_the_label_alone():
    found = cilium_by_name("In", ["web"])
    assert found.pools[0]["spec"]["serviceSelector"] == {"matchLabels": {"io.kubernetes.service.name": "web"}}
    assert len(found.decisions) == 1
