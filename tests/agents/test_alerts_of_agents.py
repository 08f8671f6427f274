"""What agents and the controller tell on a cluster, well and ill, and the alerts that follow. ``RECORD=1`` keeps it for
``tests/alerts``."""

import os
import time
import urllib.request
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from ipaddress import IPv4Address

import pytest
from agent_cluster import API_HOST, HELLO_MS, METRICS, POOLS, Cluster, pause, until
from agent_objects import POOL, SERVICES, service
from playing import OF_AGENTS, OF_AGENTS_STEPS, Recorder, firing, save
from prometheus import NOT_IN_A_CLUSTER, missing, prometheus
from prometheus_client.parser import text_string_to_metric_families

from speaker.lab.speakers import holds_most, service_of

pytestmark = [pytest.mark.netns, pytest.mark.apiserver, pytest.mark.long(part="alerts")]

ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/eip-speaker-controller"
MORE = IPv4Address("192.0.2.217")
"""An EIP beside those of the cluster."""


def controller(cluster: Cluster) -> str:
    with cluster.lan.namespace(API_HOST).entered(), urllib.request.urlopen(METRICS, timeout=5) as answer:  # noqa: S310
        return answer.read().decode()


def values(text, name, **labels):
    """Of a sample of which ``labels`` are some of its labels, by the others."""
    return {
        tuple(value for label, value in sorted(sample.labels.items()) if label not in labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"eip_speaker_{name}" and labels.items() <= sample.labels.items()
    }


@pytest.fixture
def stack():
    """Who writes the test leaves what is in it at its end."""
    with ExitStack() as found:
        yield found


@pytest.fixture
async def counted(cluster):
    """A cluster with room in its pool, whose controller tells what it counts."""
    path = f"{POOLS}/{POOL}"
    before = cluster.done("GET", path)["spec"]["addresses"]
    cluster.done("PATCH", path, {"spec": {"addresses": [*before, "192.0.2.216/29", "2001:db8:0:1::300/125"]}})
    await cluster.control("--metrics", "127.0.0.1:9900")
    yield cluster
    cluster.done("PATCH", path, {"spec": {"addresses": before}})


def of_agents(cluster, name, **labels):
    return {node: values(cluster.metrics(node), name, **labels) for node in cluster.agents}


async def told(cluster, wanted, what):
    """Until what all agents tell is as ``wanted`` says."""
    await until(lambda: wanted({node: cluster.metrics(node) for node in cluster.agents}), what)


def told_by(cluster):
    """What each node, and the controller, tells: to Prometheus, which asks in a thread."""
    agents = {("agents", node): partial(cluster.metrics, node) for node in cluster.nodes}
    return agents | {("controller", "controller"): partial(controller, cluster)}


@asynccontextmanager
async def a_right_that_is_missing(cluster):
    """The controller may write no Service's status, and there is one to be written."""
    rules = cluster.done("GET", ROLE)["rules"]
    fewer = [rule for rule in rules if "services/status" not in rule["resources"]]
    assert len(fewer) < len(rules)
    cluster.done("PATCH", ROLE, {"rules": fewer})
    path = f"{SERVICES}/{service_of(MORE)}"
    cluster.done("POST", SERVICES, service(MORE))
    await until(lambda: values(controller(cluster), "controller_api_errors_total")[()] > 1)
    yield
    cluster.done("PATCH", ROLE, {"rules": rules})
    await until(lambda: cluster.done("GET", path)["status"]["loadBalancer"].get("ingress"))
    cluster.done("DELETE", path)
    await until(lambda: values(controller(cluster), "services").get(("assigned",)) == len(cluster.eips))


async def test_on_a_healthy_cluster_and_a_sick_one_every_metric_means_what_it_says(counted, tmp_path, stack):
    """And the dashboard shows it, as Prometheus has it."""
    if reason := missing():
        pytest.skip(reason)
    cluster, eips = counted, {str(eip) for eip in counted.eips}

    def scrape():
        agents = {node: cluster.metrics(node) for node in cluster.agents}
        leads = cluster.controller.process.poll() is None
        return {"agents": agents, **({"controller": {"controller": controller(cluster)}} if leads else {})}

    recorder = Recorder(scrape, time.monotonic)
    watching = stack.enter_context(prometheus(tmp_path, told_by(cluster)))
    holders = await cluster.settled()

    # Healthy.
    def well(texts):
        states = [values(text, "eips") for text in texts.values()]
        answered = {key: value for text in texts.values() for key, value in values(text, "answered").items()}
        return (
            sum(each["held",] for each in states) == len(eips)
            and all(each["held",] + each["held_by_peer",] == len(eips) for each in states)
            and answered == {(eip,): 1 for eip in eips}
        )

    await told(cluster, well, lambda: of_agents(cluster, "eips"))
    for node, text in ((node, cluster.metrics(node)) for node in cluster.agents):
        mine = {str(eip) for eip, holder in holders.items() if holder == node}
        assert {eip for (eip,) in values(text, "held_since_timestamp_seconds")} == mine
        assert values(text, "eips_by_nobody") == {}
        assert values(text, "api_up") == {(): 1}
        assert values(text, "peers_silent") == {("eth0",): 0}
        local = {str(eip) for eip in cluster.local if holders[eip] == node}
        assert {eip: ready for (eip,), ready in values(text, "endpoints_ready").items()}.keys() == local
        assert "manifests" not in text
        assert "pool_addresses" not in text
        assert "services{" not in text
    await until(lambda: values(controller(cluster), "services") == {("assigned",): 8, ("partly",): 0, ("refused",): 0})
    told_by_controller = controller(cluster)
    used = values(told_by_controller, "pool_addresses_in_use", pool=POOL)
    assert sum(used.values()) == len(eips)
    assert all(
        values(told_by_controller, "pool_addresses", pool=POOL)[family] > number for family, number in used.items()
    )
    assert values(told_by_controller, "controller_writes_waiting") == {(): 0}
    assert values(told_by_controller, "controller_api_request_seconds_count")["GET",] > 0
    recorder.begin("healthy")
    await pause(3)
    recorder.end()

    watching.until(f"count(up == 1) == {len(cluster.nodes) + 1}")

    async with a_right_that_is_missing(cluster):
        recorder.begin("refused")
        await pause(3)
        recorder.end()
    await told(cluster, well, lambda: of_agents(cluster, "eips"))
    recorder.begin("allowed")
    await pause(3)
    recorder.end()

    # A node dies, and then the API and its controller.
    victim = holds_most(holders)
    lost = [eip for eip, holder in holders.items() if holder == victim]
    await cluster.dies(victim)
    await told(
        cluster,
        lambda texts: sum(values(text, "failover_seconds_count")[()] for text in texts.values()) == len(lost),
        lambda: of_agents(cluster, "failover_seconds_count"),
    )
    slowest = max(values(cluster.metrics(node), "failover_seconds_sum")[()] for node in cluster.agents)
    assert slowest < len(lost) * 100 * HELLO_MS / 1000, "seconds, not since the start"
    await told(
        cluster,
        lambda texts: all(values(text, "peers_silent") == {("eth0",): 1} for text in texts.values()),
        lambda: of_agents(cluster, "peers_silent"),
    )
    cluster.controller.kill()
    cluster.api.freeze()
    await told(
        cluster,
        lambda texts: all(values(text, "api_up") == {(): 0} for text in texts.values()),
        lambda: of_agents(cluster, "api_up"),
    )
    recorder.begin("sick")
    await pause(5)
    recorder.end()

    # Mended.
    cluster.api.thaw()
    await cluster.control("--metrics", "127.0.0.1:9900")
    await cluster.whole()
    await told(cluster, well, lambda: of_agents(cluster, "answered"))
    await until(lambda: values(controller(cluster), "services").get(("assigned",)) == 8)
    recorder.begin("mended")
    await pause(3)
    recorder.end()
    drained = holds_most(await cluster.settled())
    cluster.agents[drained].ask("drain")
    watching.until("increase(eip_speaker_hand_overs_total[1m])")
    cluster.agents[drained].ask("undrain")
    assert watching.unanswered() <= NOT_IN_A_CLUSTER
    if os.environ.get("RECORD"):
        save("agents", recorder.phases)
    assert not (said := firing(recorder.phases, OF_AGENTS_STEPS, OF_AGENTS, tmp_path)), said
