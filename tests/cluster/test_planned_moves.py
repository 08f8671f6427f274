"""What an operator does on purpose costs no new connection."""

import pytest
from cluster_story import clients_during, drain, end_drain, update
from real_cluster import SPEAKER_NAMESPACE

pytestmark = pytest.mark.cluster
ENOUGH = 1000


def unharmed(knocked):
    assert knocked.all("asked") >= ENOUGH
    assert knocked.all("failed") == 0, str(knocked)
    assert knocked.all("cut") <= ENOUGH / 100, str(knocked)


def test_a_drain_fails_no_new_connection(cluster, eips, count):
    node = cluster.holder(eips["web"][0])
    knocked = count(clients_during(cluster, lambda: drain(cluster, node)))
    end_drain(cluster, node)
    unharmed(knocked)


def test_an_agent_that_is_deleted_fails_no_new_connection(cluster, eips, count):
    node = cluster.holder(eips["web"][0])

    def delete():
        cluster.kubectl("-n", SPEAKER_NAMESPACE, "delete", "pod", cluster.agent_on(node))
        cluster.await_speaker()

    unharmed(count(clients_during(cluster, delete)))


def test_a_rolling_update_fails_no_new_connection(cluster, count):
    unharmed(count(clients_during(cluster, lambda: update(cluster))))
    versions = {node: cluster.in_agent(node, "speaker", "--version").strip() for node in cluster.nodes}
    assert all(version.endswith("+next") for version in versions.values()), versions


def test_a_controller_that_is_replaced_fails_no_new_connection(cluster, count):
    def replace():
        cluster.kubectl("-n", "eip-speaker", "rollout", "restart", "deployment/eip-speaker-controller")
        cluster.rolled_out("deployment/eip-speaker-controller", "eip-speaker")

    unharmed(count(clients_during(cluster, replace)))
