"""The overlays `nftables` and `ipvs`, where the kernel has that, and the component `mqtt` on a real cluster: the
speaker forwards, beside a kube-proxy that leaves its EIPs alone, and tells a broker on the LAN what happens.
"""

import os
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import mqtt_broker
import pytest
from cluster_rights import BPF, NET_ADMIN, NET_RAW, agents_have
from cluster_story import drain, holders, update, url
from mqtt_broker import Broker
from real_cluster import SPEAKER_NAMESPACE, missing
from serving import SOON, Serving, booted_again, ended, let_in_by_ranges, moved, one_pod_for_one_client, unharmed

from speaker.lab.namespaces import Namespace

pytestmark = [pytest.mark.cluster, pytest.mark.long(part="forwarder")]
AT, LOGIN = "192.0.2.100", ("speaker", "hunter2")
"""The broker, on the client's host, and as whom it is told."""
EC = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"


class Client(Namespace):
    """The network namespace of the client, which the cluster made."""

    def __init__(self, cluster: Serving) -> None:
        self.label = "client"
        self._fd = os.open(cluster.world.network("client"), os.O_RDONLY)


class Telling(Serving):
    """``broker`` is told what happens, from the start."""

    broker: Broker

    def install(self) -> None:
        place = self.directory / "broker"
        place.mkdir()
        for line in (
            f"openssl req -x509 {EC} -days 2 -subj /CN=ca -keyout ca.key -out ca.crt",
            f"openssl req {EC} -subj /CN=broker -addext subjectAltName=IP:{AT} -keyout key.pem -out broker.csr",
            "openssl x509 -req -in broker.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy "
            "-out cert.pem",
            f"mosquitto_passwd -b -c passwords {' '.join(LOGIN)}",
        ):
            subprocess.run(line.split(), cwd=place, check=True, capture_output=True)
        (place / "login").write_text("\n".join(LOGIN) + "\n")
        self._tell_the_pods(place)
        self.broker = Broker(self._stack.enter_context(Client(self)), place, *self._listens(place))
        self._stack.callback(self.broker.close)
        self.broker.start()
        super().install()

    def _tell_the_pods(self, place: Path) -> None:
        """As docs/mqtt.md has it."""
        url = f"mqtts://{AT}/eip-speaker"
        files = (f"--from-file={place}/login", f"--from-file={place}/ca.crt", f"--from-literal=url={url}")
        for namespace in ("eip-speaker", SPEAKER_NAMESPACE):
            self.kubectl("create", "namespace", namespace)
            self.kubectl("-n", namespace, "create", "secret", "generic", "eip-speaker-mqtt", *files)

    @staticmethod
    def _listens(place: Path) -> tuple[str, ...]:
        """To the speaker, as a broker in production, and to the test."""
        tls = (f"cafile {place}/ca.crt", f"certfile {place}/cert.pem", f"keyfile {place}/key.pem")
        known = ("allow_anonymous false", f"password_file {place}/passwords")
        return ("per_listener_settings true", f"listener 8883 {AT}", *tls, *known, *mqtt_broker.PLAIN)


@pytest.fixture(scope="module", params=["nftables", "ipvs"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Telling]:
    if why := missing(request.param) or mqtt_broker.missing():
        pytest.skip(why)
    with Telling("iptables", request.param, ["mqtt"]) as cluster:
        yield cluster


def test_an_agent_may_change_the_network_too_and_has_no_other_right(cluster):
    agents_have(cluster, NET_RAW | NET_ADMIN | BPF)


def test_requests_are_answered_in_the_kernel(cluster, eips):
    """With the rights that the overlay gives, and whatever containerd's seccomp profile takes away."""
    eip = eips["web"][0]
    assert cluster.ask(url(eip))
    answers = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9900/metrics').read().decode())"
    said = cluster.in_agent(cluster.holder(eip), "python", "-c", answers)
    (answered,) = (line.split()[-1] for line in said.splitlines() if 'kernel_answers_total{protocol="arp"}' in line)
    assert float(answered) > 0


def test_kube_proxy_is_told_to_leave_the_eips_alone(cluster):
    for service in ("web", "local", "first", "second"):
        entries = cluster.get("service", service)["status"]["loadBalancer"]["ingress"]
        assert {entry["ipMode"] for entry in entries} == {"Proxy"}


def test_status_tells_in_the_agents_pod_what_it_holds(cluster, eips):
    eip = eips["web"][0]
    assert eip in cluster.in_agent(cluster.holder(eip), "speaker", "status")


@pytest.mark.parametrize("family", [4, 6])
def test_all_pods_serve_under_the_policy_cluster(cluster, eips, family):
    eip = eips["web"][family == 6]
    assert {cluster.ask(url(eip)).split()[0] for _ in range(60)} == set(cluster.nodes)


@pytest.mark.parametrize("family", [4, 6])
def test_the_policy_local_keeps_the_clients_address_and_the_pod_is_on_the_holder(cluster, eips, family):
    eip = eips["local"][family == 6]
    node, client = cluster.ask(url(eip)).split()
    assert client in ("192.0.2.100", "2001:db8:1::100")
    assert node == cluster.holder(eip)


def test_source_ranges_let_in_whom_they_name_and_nobody_else(cluster, stranger):
    let_in_by_ranges(cluster, stranger)


def test_a_client_stays_with_its_pod_where_the_service_asks_for_that(cluster):
    one_pod_for_one_client(cluster)


def test_the_broker_knows_who_holds_what_as_the_records_do(cluster):
    def told():
        retained = cluster.broker.retained("eip-speaker/v1/eips/+")
        return {ip_address(state["address"]): state["holder"] for state in retained.values()}

    def recorded():
        return {ip_address(name.replace("-", ":")): holder for name, holder in holders(cluster).items()}

    cluster.until("the broker knows every holder", lambda: told() == recorded())


def test_a_drain_fails_no_new_connection(cluster, eips, during):
    node = cluster.holder(eips["web"][0])
    with ended(cluster, node):
        met = during(cluster, lambda: drain(cluster, node), avoid=node)
    unharmed(met)


def test_a_rolling_update_fails_no_new_connection(cluster, during):
    unharmed(during(cluster, lambda: update(cluster)))


def test_after_a_crash_nobody_is_sent_to_the_pods_of_the_dead_node_whatever_the_policy(cluster, eips, during):
    """Kubernetes takes them for ready until the node is NotReady; the agents know better."""
    eip = eips["local"][0]
    node = cluster.holder(eip)
    with booted_again(cluster, node):
        hearing = cluster.broker.watch("eip-speaker/v1/#")
        met = during(cluster, lambda: cluster.crash(node), avoid=node, places=("LAN",))
        taken = hearing.event("taken", why="silent", eip=eip)
        assert taken["from"] == node
        assert 0 < taken["unanswered"] < SOON
        moved(cluster, eips, node)
        for policy in ("Cluster", "Local"):
            assert met.longest("LAN", policy) <= SOON, str(met)
        assert node not in holders(cluster).values()
