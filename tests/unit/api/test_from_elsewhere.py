"""What other people's files hold besides: said by name, and read as an API server would."""

import pytest
import yaml

from speaker.api.fields import ApiObject
from speaker.api.reading import read_world

SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  ports: [{port: 80}]
"""


def said(text):
    objects = [ApiObject(each) for each in yaml.safe_load_all(text)]
    reading = read_world(objects, default_class=True)
    return reading.world, [notice.sentence for notice in reading.notices]


@pytest.mark.parametrize(
    ("text", "whose"),
    [
        ("{apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {name: p}}", "MetalLB"),
        ("{apiVersion: metallb.io/v1beta2, kind: BGPPeer, metadata: {name: p}}", "MetalLB"),
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {config: 'address-pools: []'}}", "MetalLB"),
        ("{apiVersion: cilium.io/v2, kind: CiliumLoadBalancerIPPool, metadata: {name: p}}", "Cilium"),
        ("{apiVersion: purelb.io/v1, kind: ServiceGroup, metadata: {name: p}}", "PureLB"),
        ("{apiVersion: network.kubesphere.io/v1alpha2, kind: Eip, metadata: {name: p}}", "OpenELB"),
        (
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: kubevip}, data: {range-a: 192.0.2.1-192.0.2.2}}",
            "kube-vip",
        ),
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: vips}, data: {cidr-global: 192.0.2.0/28}}", "kube-vip"),
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: config}, data: {config: 'a: b'}}", None),
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: empty}, data: null}", None),
        ("{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p}}", None),
    ],
)
def test_another_balancers_pool_is_named_with_the_way_to_a_pool_of_ours(text, whose):
    _, sentences = said(text)
    expected = f"it belongs to {whose}: `speaker convert` translates it" if whose else "does not read this kind"
    assert [expected in each for each in sentences] == [True]


@pytest.mark.parametrize(
    ("cls", "near"),
    [
        ("eip-speaker.io/speakr", True),
        ("eip-speaker.io/Speaker", True),
        ("eip-speakers.io/speaker", True),
        ("example.com/speaker", False),
    ],
)
def test_a_class_that_is_nearly_ours_is_asked_about(cls, near):
    _, (sentence,) = said(f"{SERVICE}  loadBalancerClass: {cls}\n")
    assert ("did you mean that?" in sentence) is near


def test_external_ips_of_a_service_of_ours_are_said_to_be_kube_proxys():
    world, (sentence,) = said(f"{SERVICE}  externalIPs: [192.0.2.7]\n")
    assert "spec.externalIPs are left to kube-proxy" in sentence
    assert len(world.services) == 1


def test_what_go_clients_write_for_nothing_is_what_an_api_server_makes_of_it():
    empty = (
        '  externalTrafficPolicy: ""\n  sessionAffinity: ""\n  loadBalancerIP: ""\n  clusterIP: ""\n  externalIPs: []\n'
    )
    ports = "[{port: 80, protocol: '', targetPort: '', name: ''}]"
    world, _ = said(SERVICE.replace("[{port: 80}]", ports) + empty)
    plain, _ = said(SERVICE)
    assert world == plain


@pytest.mark.parametrize("target", ["8080", "http", "web-1", "0", "1x"])
def test_targets_that_an_api_server_takes_are_taken(target):
    world, _ = said(SERVICE.replace("port: 80", f"port: 80, targetPort: {target}"))
    assert len(world.services) == 1
