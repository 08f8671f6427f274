"""Faults of the API, and of what stands in it, are named by `speaker explain` and `doctor` on an agent's node; and on a
cluster that is well nothing is."""

import asyncio
import json
import subprocess

import pytest
from agent_cluster import until
from agent_objects import EXCLUDED, SERVICES
from agent_process import PYTHON
from pods import FakePods

from speaker.settings import AGENTS_NAMESPACE

pytestmark = [pytest.mark.netns, pytest.mark.apiserver, pytest.mark.long(part="agents")]


def said(cluster, node, *command):
    """What it prints on that node."""
    done = asked(cluster, node, *command, "--json")
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def asked(cluster, node, command, *words):
    own = "--runtime-dir", str(cluster.agents[node].runtime_dir)
    with cluster.lan.namespace(node).entered():
        return subprocess.run(
            [PYTHON, "-m", "speaker", command, *own, *words], capture_output=True, check=False, timeout=180
        )


def first(told):
    found = told.get("findings", [told.get("verdict")])
    return found[0]["kind"] if found and found[0] else ""


async def named(cluster, node, kind, *command):
    """Asked again and again: an agent needs a moment to notice."""
    await until(lambda: first(said(cluster, node, *command)) == kind, lambda: said(cluster, node, *command))


async def test_on_a_cluster_that_is_well_nothing_is_named(cluster):
    await cluster.agreed()
    for node in cluster.nodes:
        await named(cluster, node, "", "doctor")
    for eip in cluster.eips[:2]:
        told = said(cluster, cluster.nodes[0], "explain", str(eip))
        assert told["verdict"] is None, told
        assert any(str(eip) in line for step in told["steps"] for line in step["lines"])


@pytest.fixture
async def afar(cluster, tmp_path):
    """``await afar("doctor")``: what `speaker … --cluster --json` says, where only the API is reached. A fake carries
    the question to the real agents, as kubelets would."""

    def container(node):
        async def run(command):
            done = await asyncio.to_thread(asked, cluster, node, *command[1:])
            return done.stdout, done.stderr, done.returncode

        return run

    async with FakePods({node: container(node) for node in cluster.nodes}, AGENTS_NAMESPACE) as fake:
        (tmp_path / "config").write_text(fake.kubeconfig())

        async def ask(*command):
            given = "--cluster", "--json", "--kubeconfig", str(tmp_path / "config")
            words = [PYTHON, "-m", "speaker", *command, *given]
            done = await asyncio.to_thread(subprocess.run, words, capture_output=True, check=False, timeout=180)
            assert done.stdout, done.stderr
            return json.loads(done.stdout)

        yield ask


async def test_from_a_workstation_every_agent_is_asked(cluster, afar):
    await cluster.agreed()
    eip = str(cluster.eips[0])
    told = await afar("explain", eip)
    assert (told["code"], told["findings"], told["silent"]) == (0, [], {}), told
    assert sorted(told["nodes"]) == sorted(cluster.nodes)
    assert (await afar("doctor"))["findings"] == []
    status = await afar("status")
    assert [len(each["holders"]) for each in status["eips"]] == [1] * len(cluster.eips)
    assert status["problems"] == []


async def test_an_api_server_that_is_gone_is_named(cluster):
    await cluster.agreed()
    cluster.api.stop()
    try:
        await named(cluster, cluster.nodes[0], "api_silent", "doctor")
    finally:
        cluster.api.start()
    await named(cluster, cluster.nodes[0], "", "doctor")


async def test_where_every_node_is_excluded_the_label_is_named(cluster):
    await cluster.agreed()
    eip = str(cluster.eips[1])
    for node in cluster.nodes:
        cluster.on_node(node, {"metadata": {"labels": {EXCLUDED: ""}}})
    try:
        await named(cluster, cluster.nodes[0], "node_excluded", "explain", eip)
    finally:
        for node in cluster.nodes:
            cluster.on_node(node, {"metadata": {"labels": {EXCLUDED: None}}})
    await cluster.agreed()
    await named(cluster, cluster.nodes[0], "", "explain", eip)


async def test_a_service_without_our_class_is_none_that_is_asked_for(cluster):
    await cluster.agreed()
    body = {
        "metadata": {"name": "classless"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}]},
    }
    made = cluster.done("POST", SERVICES, body)
    namespace = made["metadata"]["namespace"]
    try:
        await named(cluster, cluster.nodes[0], "not_asked", "explain", f"{namespace}/classless")
    finally:
        cluster.done("DELETE", f"{SERVICES}/classless")


async def test_a_service_whose_endpoints_are_gone_is_named(cluster):
    await cluster.agreed()
    eip = cluster.local[0]
    cluster.ready_endpoints(eip, [])
    try:
        await named(cluster, cluster.nodes[0], "none_ready", "explain", str(eip))
    finally:
        cluster.ready_endpoints(eip, cluster.nodes)
    await named(cluster, cluster.nodes[0], "", "explain", str(eip))
