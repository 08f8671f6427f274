"""Who implements Services on a node, by its signs."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.kubeproxy.judge import Configuration, Mode, Signs, read_configuration, read_health, recognise

IPTABLES = frozenset({("nat", "KUBE-SERVICES"), ("nat", "KUBE-NODEPORTS"), ("filter", "KUBE-SERVICES")})
NFTABLES = frozenset({("kube-proxy", "services"), ("kube-proxy", "nat-prerouting")})
OTHERS = frozenset({("filter", "DOCKER"), ("nat", "KUBE-KUBELET-CANARY"), ("eip-speaker", "guard")})


@pytest.mark.parametrize(
    ("signs", "mode"),
    [
        (Signs(), Mode.NONE),
        (Signs(chains=OTHERS, links={"lo", "eth0"}), Mode.NONE),
        (Signs(proxy_mode="iptables"), Mode.IPTABLES),
        (Signs(proxy_mode="nftables", chains=IPTABLES), Mode.NFTABLES),
        (Signs(proxy_mode="ipvs", links={"kube-ipvs0"}), Mode.IPVS),
        (Signs(proxy_mode="<html>", chains=IPTABLES), Mode.IPTABLES),
        (Signs(proxy_mode=""), Mode.NONE),
        (Signs(chains=IPTABLES | OTHERS), Mode.IPTABLES),
        (Signs(chains=NFTABLES | OTHERS), Mode.NFTABLES),
        (Signs(chains=IPTABLES, links={"kube-ipvs0"}), Mode.IPVS),
        (Signs(links={"cilium_host", "cilium_net"}), Mode.CILIUM),
        (Signs(links={"cilium_host"}, healthy=True), Mode.CILIUM),
        (Signs(links={"cilium_host"}, chains=IPTABLES), Mode.CILIUM),  # left from before Cilium
        (Signs(links={"cilium_host", "kube-ipvs0"}), Mode.IPVS),
        (Signs(links={"cilium_host"}, proxy_mode="nftables"), Mode.NFTABLES),
        (Signs(healthy=True), Mode.UNKNOWN),
        (Signs(healthy=False), Mode.UNKNOWN),
    ],
)
def test_the_most_reliable_sign_decides(signs, mode):
    assert recognise(signs).mode is mode


def test_all_that_speaks_for_somebody_is_evidence_the_best_first():
    found = recognise(Signs("ipvs", True, Configuration(), {"kube-ipvs0", "cilium_host"}, IPTABLES))
    assert found.evidence == (
        "its port 10249 says so",
        "link kube-ipvs0",
        "link cilium_host",
        "iptables chain KUBE-SERVICES",
        "port 10256 answers",
    )
    assert (found.healthy, found.configuration) == (True, Configuration())


# /configz of Kubernetes 1.36 (kubeproxy.config.k8s.io/v1alpha1), and of an older release, which shows its own structs.
NEWER = {
    "kind": "KubeProxyConfiguration",
    "mode": "ipvs",
    "ipvs": {"syncPeriod": "30s", "excludeCIDRs": ["192.0.2.64/27", "2001:db8::/64"], "strictARP": True},
    "nodePortAddresses": ["primary"],
}
OLDER = {
    "Mode": "ipvs",
    "IPVS": {"SyncPeriod": 30, "ExcludeCIDRs": ["192.0.2.64/27", "2001:db8::/64"], "StrictARP": True},
    "NodePortAddresses": ["primary"],
}


@pytest.mark.parametrize("told", [NEWER, OLDER])
def test_a_configuration_is_read_as_old_and_new_releases_show_it(told):
    found = read_configuration(json.dumps({"kubeproxy.config.k8s.io": told}).encode())
    assert found is not None
    assert [str(network) for network in found.exclude] == ["192.0.2.64/27", "2001:db8::/64"]
    assert found.node_port_addresses == ("primary",)


def test_what_is_not_set_is_null_or_missing():
    told = {"kubeproxy.config.k8s.io": {"ipvs": {"excludeCIDRs": None}, "nodePortAddresses": None}}
    assert read_configuration(json.dumps(told).encode()) == Configuration()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["ipvs", "excludeCIDRs"]), inner),
)


@given(st.binary() | json_values.map(lambda told: json.dumps({"kubeproxy.config.k8s.io": told}).encode()))
def test_whatever_listens_there_no_answer_is_an_error(body):
    read_configuration(body)
    assert read_health(503, body) in (True, False)


@pytest.mark.parametrize(
    ("status", "body", "healthy"),
    [
        (200, b'{"lastUpdated": "2026-11-21", "healthy": true}', True),
        (503, b'{"healthy": false}', False),
        (503, b'{"nodeEligible": false, "healthy": true}', True),  # about to be deleted by the cluster autoscaler
        (200, b"ok", True),
        (500, b"", False),
    ],
)
def test_its_health_is_its_own_not_its_nodes(status, body, healthy):
    assert read_health(status, body) is healthy
