"""Beside kube-proxy, in each of its modes: what a newcomer tries first."""

import json

import pytest
from cluster_story import url
from real_cluster import RealCluster

pytestmark = pytest.mark.cluster
CLIENT = {"192.0.2.100", "2001:db8:1::100"}


@pytest.mark.parametrize("service", ["web", "local"])
@pytest.mark.parametrize("family", [4, 6])
def test_a_service_answers_on_its_eip(cluster, eips, service, family):
    eip = eips[service][family == 6]
    assert (":" in eip) == (family == 6)
    assert cluster.ask(url(eip)).split()[0] in cluster.nodes


def test_datagrams_are_answered(cluster: RealCluster, eips):
    ask = (
        "import socket, sys; s = socket.create_connection; s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(5)\n"
    )
    ask += f"s.sendto(b'x', ({eips['web'][0]!r}, 53)); print(s.recv(500).decode())"
    answer = cluster.world.run("python3", "-c", ask, place="client")
    assert answer.split()[0] in cluster.nodes


def test_all_pods_serve_under_the_policy_cluster(cluster: RealCluster, eips):
    answered = {cluster.ask(url(eips["web"][0])).split()[0] for _ in range(60)}
    assert answered == set(cluster.nodes)


@pytest.mark.parametrize("family", [4, 6])
def test_the_policy_local_keeps_the_clients_address(cluster: RealCluster, eips, family):
    eip = eips["local"][family == 6]
    node, client = cluster.ask(url(eip)).split()
    assert client in CLIENT
    assert node == cluster.holder(eip)


@pytest.mark.parametrize("service", ["web", "local"])
def test_exactly_one_node_answers_arp(cluster: RealCluster, eips, service):
    said = cluster.world.run("arping", "-c3", "-w4", "-i", "eth0", eips[service][0], place="client", check=False)
    assert len({mac for mac in cluster.macs().values() if mac in said}) == 1, said


def test_the_record_names_who_answers(cluster: RealCluster, eips):
    eip = eips["web"][0]
    assert cluster.get("announcement", eip)["status"]["holder"] == cluster.holder(eip)


def test_pods_and_nodes_reach_the_eips(cluster: RealCluster, eips):
    for service in eips:
        for node in cluster.nodes:
            answer = cluster.in_node(node, "curl", "--silent", "--show-error", "--max-time", "5", url(eips[service][0]))
            assert answer.split()[0] in cluster.nodes


def test_status_tells_in_the_agents_pod_what_it_holds(cluster: RealCluster, eips):
    eip = eips["web"][0]
    said = cluster.in_agent(cluster.holder(eip), "speaker", "status")
    assert eip in said


def test_events_and_conditions_tell_of_the_assignment(cluster: RealCluster):
    conditions = cluster.get("service", "web")["status"]["conditions"]
    assert {"type": "eip-speaker.io/Assigned", "status": "True"}.items() <= next(
        each for each in conditions if each["type"] == "eip-speaker.io/Assigned"
    ).items(), json.dumps(conditions)
