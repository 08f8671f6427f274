"""From the overlay `default` beside kube-proxy in ipvs mode to `ipvs`, and back, in the order of
docs/beside-kube-proxy.md. Then on nodes that boot without a kube-proxy, to the end. The same in nftables mode with the
overlay `nftables`.
"""

import json
from collections.abc import Iterator

import pytest
from cluster_lan import API, dummies
from cluster_parts import DEV, PROGRAMS
from cluster_story import drain, holders, update
from real_cluster import SPEAKER_NAMESPACE, missing
from render import CLEANUP, rendered
from serving import (
    SOON,
    Serving,
    booted_again,
    ended,
    healthy_where_endpoints_are,
    is_gone,
    let_in_by_ranges,
    moved,
    one_pod_for_one_client,
    remove_services,
    unharmed,
)

pytestmark = pytest.mark.cluster
BESIDE, ALONE = pytest.mark.long(part="change"), pytest.mark.long(part="alone")
"""kube-proxy."""
POOL = ["192.0.2.64/27", "2001:db8:1::a00/120"]
"""That of web.yaml, as kube-proxy takes it."""


class Changing(Serving):
    been_changed = False
    """Some agents have forwarded on these nodes."""

    def overlay(self, forwarder: str) -> None:
        """That of this forwarder, as an operator applies it; of IPVS, kube-proxies are told before."""
        if forwarder == "ipvs":
            for node in self.nodes:
                self.set_proxy(node, {"excludeCIDRs": POOL}, nodePortAddresses=["primary"])
        self.been_changed |= forwarder != "none"
        self.forwarder = forwarder
        self.install()
        wanted = {"VIP"} if forwarder == "none" else {"Proxy"}
        self.until(f"all EIPs have the ipMode {wanted}", lambda: self.modes() == wanted)
        self.forwards_by = f"{self.proxy}, forwarder {forwarder}"

    def clean(self) -> None:
        """What agents that forwarded have left, as docs/kubernetes.md has it."""
        file = self.directory / "cleanup.yaml"
        file.write_text(rendered(str(PROGRAMS / "kubectl"), CLEANUP, (), DEV))
        self.kubectl("apply", "--filename", file)
        self.rolled_out("daemonset/eip-speaker-cleanup", "kube-system")
        self.kubectl("delete", "--filename", file)

    def go_back(self) -> None:
        """As docs/beside-kube-proxy.md has it, but for the reboots after `ipvs`."""
        before = self.forwarder
        self.overlay("none")
        if before == "nftables":
            self.clean()
            self.until("no agent has a problem", lambda: not self.problems())

    def modes(self) -> set[str]:
        found = (service["status"]["loadBalancer"].get("ingress", []) for service in self.get("services")["items"])
        return {entry["ipMode"] for entries in found for entry in entries}

    def problems(self) -> list[str]:
        told = (json.loads(self.in_agent(node, "speaker", "status", "--json")) for node in self.nodes)
        return [problem for each in told for problem in each["problems"]]

    def need_no_proxy(self, forwarder: str) -> None:
        """That of this forwarder, for nodes on which nobody leads to ClusterIPs."""
        self.overlay(forwarder)
        there = f"KUBERNETES_SERVICE_HOST={API[0]}", "KUBERNETES_SERVICE_PORT=6443"
        self.kubectl("-n", SPEAKER_NAMESPACE, "set", "env", "daemonset/eip-speaker-agent", *there)
        self.kubectl("-n", "eip-speaker", "set", "env", "deployment/eip-speaker-controller", *there)
        self.await_speaker()

    def lose_proxy(self) -> None:
        """On one node after the other."""
        self.proxy = ""
        self.reboot()
        self.forwards_by = f"no kube-proxy, forwarder {self.forwarder}"

    def reboot(self) -> None:
        """One node after the other, with neither EIPs nor pods."""
        for node in self.nodes:
            with ended(self, node):
                self.empty(node)
                self.crash(node)
                self.boot(node)
                self.kubectl("uncordon", node)
                self.await_speaker()


@pytest.fixture(scope="module", params=["nftables", "ipvs"])
def forwarder(request: pytest.FixtureRequest) -> str:
    """An overlay, and kube-proxy's mode."""
    if why := missing(request.param):
        pytest.skip(why)
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(forwarder: str) -> Iterator[Changing]:
    with Changing(forwarder) as cluster:
        yield cluster


@pytest.fixture
def overlaid(cluster: Changing, forwarder) -> Changing:
    """Its agents forward."""
    if cluster.forwarder != forwarder:
        cluster.overlay(forwarder)
    return cluster


@pytest.fixture
def alone(cluster: Changing, forwarder) -> Changing:
    """No node has a kube-proxy."""
    if any(cluster.processes(node, "kube-proxy") for node in cluster.nodes):
        cluster.need_no_proxy(forwarder)
        cluster.lose_proxy()
        cluster.settle()
    return cluster


@BESIDE
def test_a_kube_proxy_that_answers_arp_for_every_eip_is_a_problem(cluster: Changing, forwarder):
    """With ``strictARP`` off, which is its default."""
    if forwarder != "ipvs":
        pytest.skip("kube-proxy binds EIPs in ipvs mode only")
    strict = "net.ipv4.conf.all.arp_ignore"
    cluster.in_node("node1", "sysctl", "--write", f"{strict}=0")
    try:
        told = lambda: any("strictARP: true" in problem for problem in cluster.problems())  # noqa: E731
        cluster.until("an agent names the setting", told)
    finally:
        cluster.in_node("node1", "sysctl", "--write", f"{strict}=1")
    cluster.until("no agent has a problem", lambda: not cluster.problems())


@BESIDE
def test_a_change_to_agents_that_forward_fails_no_new_connection(cluster: Changing, forwarder, during):
    unharmed(during(cluster, lambda: cluster.overlay(forwarder)))
    cluster.until("no agent has a problem", lambda: not cluster.problems())


@BESIDE
def test_a_kube_proxy_that_is_restarted_beside_them_fails_no_new_connection(overlaid: Changing, during):
    unharmed(during(overlaid, lambda: overlaid.restart_everywhere("kube-proxy")))


@BESIDE
def test_a_change_back_fails_no_new_connection(overlaid: Changing, during):
    unharmed(during(overlaid, overlaid.go_back))


@BESIDE
def test_nodes_that_boot_again_are_kube_proxys_again_and_fail_no_new_connection(cluster: Changing, forwarder, during):
    """It is what docs/beside-kube-proxy.md says to do after a change back."""
    if not cluster.been_changed:
        cluster.overlay(forwarder)
    if cluster.forwarder != "none":
        cluster.go_back()
    unharmed(during(cluster, cluster.reboot, places=("LAN",)))
    assert {link for node in cluster.nodes for link in dummies(cluster.world, node)} <= {"kube-ipvs0"}
    cluster.settle()


@ALONE
def test_nodes_that_boot_without_kube_proxy_fail_no_new_connection(cluster: Changing, forwarder, during):
    cluster.need_no_proxy(forwarder)
    unharmed(during(cluster, cluster.lose_proxy, places=("LAN",)))
    assert not any(cluster.processes(node, "kube-proxy") for node in cluster.nodes)
    cluster.settle()
    cluster.until("no agent has a problem", lambda: not cluster.problems())


@ALONE
def test_without_kube_proxy_clients_everywhere_are_served(alone: Changing, during):
    unharmed(during(alone, lambda: None))


@ALONE
def test_without_kube_proxy_a_service_admits_and_keeps_whom_it_says_and_health_checks_are_answered(
    alone: Changing, eips, stranger
):
    let_in_by_ranges(alone, stranger)
    one_pod_for_one_client(alone)
    healthy_where_endpoints_are(alone, eips["local"][0])


@ALONE
def test_without_kube_proxy_a_drain_fails_no_new_connection(alone: Changing, eips, during):
    node = alone.holder(eips["web"][0])
    with ended(alone, node):
        unharmed(during(alone, lambda: drain(alone, node), avoid=node))


@ALONE
def test_without_kube_proxy_a_rolling_update_fails_no_new_connection(alone: Changing, during):
    unharmed(during(alone, lambda: update(alone)))


@ALONE
def test_without_kube_proxy_a_crash_is_soon_over_whatever_the_policy(alone: Changing, eips, during):
    node = alone.holder(eips["local"][0])
    with booted_again(alone, node):
        met = during(alone, lambda: alone.crash(node), avoid=node, places=("LAN",))
        moved(alone, eips, node)
        for policy in ("Cluster", "Local"):
            assert met.longest("LAN", policy) <= SOON, str(met)
        assert node not in holders(alone).values()


@ALONE
def test_it_goes_and_is_cleaned_up_as_the_documentation_says_and_leaves_nothing(alone: Changing, forwarder, eips):
    cluster = alone
    remove_services(cluster)
    cluster.kubectl("delete", "--filename", cluster.manifest, "--timeout=120s")
    cluster.clean()
    cluster.until("nothing is left", lambda: is_gone(cluster, eips["web"] + eips["local"]))
    for node in cluster.nodes:
        assert not dummies(cluster.world, node)
        assert forwarder != "ipvs" or not cluster.in_node(node, "ipvsadm", "--save", "--numeric").strip()
