"""Clusters whose CA is made otherwise than kubeadm makes it."""

import pytest
from cluster_nodes import store
from real_cluster import RealCluster, missing

pytestmark = [pytest.mark.cluster, pytest.mark.long(part="rest")]


def test_agents_and_controllers_trust_a_ca_that_names_no_usage_of_its_key():
    if why := missing():
        pytest.skip(why)
    with RealCluster(store(), nodes=1, plain_ca=True) as cluster:
        cluster.install()
