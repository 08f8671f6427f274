"""The address of three real API servers: bootstrapped in kubeadm's order, reached from everywhere, and kept while
nodes, API servers and etcd fail."""

from base64 import b64encode

import pytest
from api_trials import CRASHES, FAULTS, HEAD, PLANNED, Ground, Ours
from real_api import missing
from three_servers import Site, until

pytestmark = [pytest.mark.netns, pytest.mark.apiserver, pytest.mark.long(part="control")]


@pytest.fixture(scope="module")
def ground(namespaces, tmp_path_factory):
    """Three nodes after ``kubeadm init`` and two ``join``; skips where the binaries are not."""
    if reason := missing():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("site")
    with Site(directory) as site:
        ours = Ours(site)
        site.bootstrap(ours.start)
        yield Ground(site, ours, directory)


@pytest.fixture
def played(ground, capsys):
    """``played(trial)``: its row, which is printed too."""

    def play(trial):
        row = ground.play(trial)
        with capsys.disabled():
            print(f"\n{HEAD}\n{row}\n{dict(row.words)}")  # noqa: T201
        return row

    return play


def test_from_every_node_and_from_a_pod_behind_it_and_from_a_client_the_address_is_reached(ground):
    site = ground.site
    ground.settled()
    pods = [site.lan.namespace(pod) for node in site.nodes for pod in site.lan.topology.pods_of(node.name)]
    places = [site.client, *(node.place for node in site.nodes), *pods]
    assert [place.label for place in places if not site.nodes[0].answers(place=place)] == []


def test_the_API_server_of_every_node_reaches_itself_by_the_address(ground):  # noqa: N802
    """As webhooks and aggregated APIs do: it calls a webhook there, which is an API server, and lets nobody in."""
    site, name = ground.site, "calls-the-address"
    webhook = {
        "name": "address.example.com",
        "clientConfig": {"url": f"{site.url}/nothing", "caBundle": b64encode(site.authority.ca.read_bytes()).decode()},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "matchConditions": [{"name": "one", "expression": f"object.metadata.name == '{name}'"}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kinds = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    said = {}
    try:
        site.nodes[0].send("POST", kinds, {"metadata": {"name": name}, "webhooks": [webhook]})
        for node in site.nodes:

            def refused(node=node):
                code, answer = node.send("POST", "/api/v1/namespaces/default/configmaps?dryRun=All", config_map(name))
                return answer["message"] if code >= 400 else ""  # it may not have heard of the webhook yet

            said[node.name] = until(refused, "a call of the webhook")
    finally:
        site.nodes[0].send("DELETE", f"{kinds}/{name}")
    answered = 'User "system:anonymous" cannot post path "/nothing"'
    assert [words for words in said.values() if answered not in words] == []


def config_map(name):
    return {"metadata": {"name": name}}


@pytest.mark.parametrize("trial", PLANNED, ids=lambda trial: trial.__name__)
def test_what_is_planned_fails_no_request(played, trial):
    row = played(trial)
    assert (row.new.failed, row.held.failed) == (0, 0), row.words


@pytest.mark.parametrize("trial", CRASHES, ids=lambda trial: trial.__name__)
def test_after_a_crash_or_a_cut_new_connections_are_answered_and_the_address_is_where_it_works(played, ground, trial):
    row = played(trial)
    assert row.new.failed < row.new.asked / 4, row.words


@pytest.mark.parametrize("trial", FAULTS, ids=lambda trial: trial.__name__)
def test_a_fault_of_an_API_server_or_of_etcd_is_over_when_it_is(played, ground, trial):  # noqa: N802
    row = played(trial)
    assert row.new.failed < row.new.asked, row.words


def test_the_same_order_brings_up_a_control_plane_of_ipv6(namespaces, tmp_path):
    if reason := missing():
        pytest.skip(reason)
    with Site(tmp_path, 6) as site:
        site.bootstrap(Ours(site).start)
        until(site.holder, "a holder")
        assert [node.name for node in site.nodes if not node.answers()] == []
        assert site.nodes[0].answers(place=site.client)
