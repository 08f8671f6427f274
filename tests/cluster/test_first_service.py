"""Beside kube-proxy, in each of its modes: what a newcomer tries first."""

import json

import pytest
from cluster_story import url
from serving import Serving, healthy_where_endpoints_are, let_in_by_ranges, one_pod_for_one_client

pytestmark = pytest.mark.cluster
CLIENT = {"192.0.2.100", "2001:db8:1::100"}
CURL = "curl", "--silent", "--show-error", "--globoff", "--max-time", "5"


@pytest.mark.parametrize("service", ["web", "local"])
@pytest.mark.parametrize("family", [4, 6])
def test_a_service_answers_on_its_eip(cluster, eips, service, family):
    eip = eips[service][family == 6]
    assert (":" in eip) == (family == 6)
    assert cluster.ask(url(eip)).split()[0] in cluster.nodes


def test_datagrams_are_answered(cluster: Serving, eips):
    ask = "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(5)\n"
    ask += f"s.sendto(b'x', ({eips['web'][0]!r}, 53)); print(s.recv(500).decode())"
    answer = cluster.world.run("python3", "-c", ask, place="client")
    assert answer.split()[0] in cluster.nodes


def test_all_pods_serve_under_the_policy_cluster(cluster: Serving, eips):
    answered = {cluster.ask(url(eips["web"][0])).split()[0] for _ in range(60)}
    assert answered == set(cluster.nodes)


@pytest.mark.parametrize("family", [4, 6])
def test_the_policy_local_keeps_the_clients_address(cluster: Serving, eips, family):
    eip = eips["local"][family == 6]
    node, client = cluster.ask(url(eip)).split()
    assert client in CLIENT
    assert node == cluster.holder(eip)


@pytest.mark.parametrize("service", ["web", "local"])
def test_exactly_one_node_answers_arp(cluster: Serving, eips, service):
    said = cluster.world.run("arping", "-c3", "-w4", "-i", "eth0", eips[service][0], place="client", check=False)
    assert len({mac for mac in cluster.macs().values() if mac in said}) == 1, said


def test_the_record_names_who_answers(cluster: Serving, eips):
    eip = eips["web"][0]
    assert cluster.get("announcement", eip)["status"]["holder"] == cluster.holder(eip)


@pytest.mark.parametrize("family", [4, 6])
def test_nodes_reach_the_eips(cluster: Serving, eips, family):
    for service in eips:
        for node in cluster.nodes:
            assert cluster.in_node(node, *CURL, url(eips[service][family == 6])).split()[0] in cluster.nodes


@pytest.mark.parametrize("family", [4, 6])
def test_a_pod_reaches_the_eips_it_serves_itself_among_others(cluster: Serving, eips, family):
    for node in cluster.nodes:
        for pod in cluster.processes(node, "web"):
            inside = "nsenter", f"--target={pod}", "--net", "--"
            answered = {
                cluster.in_node(node, *inside, *CURL, url(eips["web"][family == 6])).split()[0] for _ in range(30)
            }
            assert answered == set(cluster.nodes), "itself too: the way out and in again (hairpin)"


def test_source_ranges_let_in_whom_they_name_and_nobody_else(cluster: Serving, stranger):
    let_in_by_ranges(cluster, stranger)


def test_a_client_stays_with_its_pod_where_the_service_asks_for_that(cluster: Serving):
    one_pod_for_one_client(cluster)


def test_services_share_an_eip_each_with_its_port(cluster: Serving):
    assert cluster.eips("first") == cluster.eips("second")
    for port in (80, 81):
        assert cluster.ask(url(cluster.eips("first")[0], port)).split()[0] in cluster.nodes


def test_the_health_check_port_says_which_nodes_have_endpoints_and_one_of_them_holds(cluster: Serving, eips):
    healthy_where_endpoints_are(cluster, eips["local"][0])


def test_status_tells_in_the_agents_pod_what_it_holds(cluster: Serving, eips):
    eip = eips["web"][0]
    said = cluster.in_agent(cluster.holder(eip), "speaker", "status")
    assert eip in said


def test_events_and_conditions_tell_of_the_assignment(cluster: Serving):
    conditions = cluster.get("service", "web")["status"]["conditions"]
    assert {"type": "eip-speaker.io/Assigned", "status": "True"}.items() <= next(
        each for each in conditions if each["type"] == "eip-speaker.io/Assigned"
    ).items(), json.dumps(conditions)
