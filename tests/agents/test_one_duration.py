"""A node dies: of each EIP log, metric, Kubernetes' Event, a broker and the page tell, with one duration.

All of them are real: agents and a controller, a kube-apiserver, a mosquitto, a Chromium."""

import json
import re
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import suppress

import chromium
import mqtt_broker
import pytest
from agent_cluster import API_ADDRESS, API_HOST, GUARD, holders_of, until
from agent_objects import NAMESPACE
from prometheus_client.parser import text_string_to_metric_families

from speaker.lab.speakers import holds_most, service_of

pytestmark = [pytest.mark.netns, pytest.mark.apiserver, pytest.mark.long(part="agents")]

PAGE = "127.0.0.1:9901"
MQTT = f"mqtt://{API_ADDRESS}"
LINES = 5
"""EIPs of one node that have a line of the log each when it dies: more share one."""
WORDS = re.compile(r"(\S+): (\S+) answers in place of (\S+), which fell silent, (\d+\.\d{3}) s after its last sign")


def page(cluster):
    """What it shows; nothing before the controller listens."""
    place = cluster.lan.namespace(API_HOST)
    asked = urllib.request.Request(f"http://{PAGE}/status.json")
    with suppress(urllib.error.URLError), place.entered(), urllib.request.urlopen(asked, timeout=5) as answer:  # noqa: S310
        return json.load(answer)
    return {}


def failover_events(cluster):
    """By uid."""
    found = cluster.done("GET", f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
    return {each["metadata"]["uid"]: each for each in found if each["reason"] == "FailedOver"}


def told(cluster, earlier, victim):
    """Of each EIP of the victim's: who took over from it, and the seconds; and of which Service that is said. What an
    earlier test broke may be told late."""
    found = {}
    new = failover_events(cluster)
    for uid in new.keys() - earlier:
        eip, node, before, seconds = WORDS.fullmatch(new[uid]["message"]).groups()
        if before == victim:
            found[eip] = (node, before, float(seconds)), new[uid]["involvedObject"]["name"]
    return found


def failovers(text):
    """How many, and their seconds in all."""
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if family.name == "eip_speaker_failover_seconds" and sample.name.endswith(("_count", "_sum"))
    }
    return samples["eip_speaker_failover_seconds_count"], samples["eip_speaker_failover_seconds_sum"]


def told_held(states):
    """EIP → holder, by what the controller told the broker."""
    return {topic.rpartition("/")[2]: state["holder"] for topic, state in states.items() if "/v1/eips/" in topic}


def taken(watcher, victim):
    """Of each EIP, by the broker: who took it from the victim that fell silent, and the seconds."""
    events = [json.loads(each["payload"]) for each in watcher.heard if each["topic"].endswith("/events/taken")]
    return {
        each["eip"]: (each["by"], each["from"], each["unanswered"])
        for each in events
        if each.get("why") == "silent" and each["from"] == victim
    }


@pytest.fixture
def broker(cluster, tmp_path):
    """Where the API server is: agents and the controller reach it, and nobody else."""
    place = cluster.lan.namespace(API_HOST)
    lines = f"listener 1883 {API_ADDRESS}", "allow_anonymous true"
    found = mqtt_broker.Broker(place, tmp_path / "broker", *lines, host=API_ADDRESS)
    found.start()
    yield found
    found.close()


@pytest.fixture
def browser(cluster, tmp_path):
    with chromium.chromium(tmp_path / "chromium", cluster.lan.namespace(API_HOST).entered) as found:
        yield found


@pytest.fixture
async def telling(cluster, broker):
    """Agents that tell the broker, and a controller that tells it and has a page. The next test finds none of that."""
    try:
        await cluster.control("--page", PAGE, "--mqtt", MQTT)
        for node in cluster.nodes:
            await cluster.stopped(node)
            cluster.start(node, "--mqtt", MQTT)
            await cluster.until_healthy(node)
        deadline = time.monotonic() + GUARD
        while max(Counter(holders_of(found := await cluster.agreed()).values()).values()) > LINES:
            assert time.monotonic() < deadline, found
            with suppress(AssertionError):  # for two seconds a node takes nothing that it has just let go
                cluster.agents[cluster.nodes[0]].ask("rebalance")
        yield cluster
    finally:
        for node in set(cluster.agents):
            cluster.killed(node)
        await cluster.control()


@pytest.mark.skipif(bool(mqtt_broker.missing() or chromium.missing()), reason="needs mosquitto and chromium")
async def test_each_eip_of_a_node_that_died_has_one_duration_wherever_it_is_told(telling, broker, browser):
    cluster, watcher = telling, broker.watch("eip-speaker/#")
    holders = {str(eip): node for eip, node in holders_of(await cluster.agreed()).items()}
    await until(lambda: page(cluster).get("counts") == {"eips": len(holders), "by_nobody": 0, "conflicts": 0})
    watcher.until(lambda states: told_held(states) == holders)
    browser.open(f"http://{PAGE}/")
    browser.until(f"document.getElementById('eips').ariaRowCount === '{len(holders) + 1}'")
    assert browser.text("#failovers").startswith("None since")
    earlier = failover_events(cluster).keys()
    victim = holds_most(holders)
    lost = {eip for eip, node in holders.items() if node == victim}
    before = {node: (failovers(cluster.metrics(node)), len(agent.said())) for node, agent in cluster.agents.items()}
    await cluster.dies(victim)
    await cluster.agreed()
    after = [line for node, agent in cluster.agents.items() for line in agent.said()[before[node][1] :]]
    if any(line.get("why") == "silent" and line.get("unanswered") is None for line in after):
        pytest.skip("an heir stood still meanwhile: nobody knows how long it took")

    def untold():
        said = f"{victim} held {lost}; told of {told(cluster, earlier, victim)}; records {cluster.records()}"
        return f"{said}; {cluster.controller.said()[-20:]}"

    await until(lambda: told(cluster, earlier, victim).keys() == lost, untold)
    events = told(cluster, earlier, victim)
    assert {eip: name for eip, (_, name) in events.items()} == {
        str(eip): service_of(eip) for eip in cluster.eips if str(eip) in lost
    }
    said = {eip: of_it for eip, (of_it, _) in events.items()}

    logged = {}
    for node, agent in cluster.agents.items():
        (count, total), lines = before[node]
        mine = {
            line["eip"]: (node, line["before"], line["unanswered"])
            for line in agent.said()[lines:]
            if line["event"] == "claimed" and line.get("why") == "silent"
        }
        now_count, now_total = failovers(cluster.metrics(node))
        assert now_count - count == len(mine)
        assert now_total - total == pytest.approx(sum(seconds for _, _, seconds in mine.values()), abs=1e-6)
        logged |= mine
    assert logged == said

    watcher.until(lambda _: taken(watcher, victim).keys() == lost)
    assert taken(watcher, victim) == said
    now = holders | {eip: node for eip, (node, _, _) in said.items()}
    watcher.until(lambda states: told_held(states) == now)

    await until(lambda: sum(each["count"] for each in page(cluster)["failovers"]) == len(lost), lambda: page(cluster))
    for each in page(cluster)["failovers"]:
        of_it = [seconds for node, dead, seconds in said.values() if (node, dead) == (each["to"], each["from"])]
        assert each["unanswered"] == [min(of_it), max(of_it)]
    listed = page(cluster)["failovers"]
    browser.until(f"document.querySelectorAll('#failovers .took').length === {len(listed)}")
    longest = {node: max(seconds for heir, _, seconds in said.values() if heir == node) for node, _, _ in said.values()}
    shown = {each["to"]: each["unanswered"][1] for each in listed}
    assert shown == longest
    took = browser.run("return [...document.querySelectorAll('#failovers .took')].map((each) => each.innerText)")
    assert {each.rpartition("\u2013")[2] for each in took} == {f"{seconds:.3f} s" for seconds in longest.values()}
    assert browser.console() == []
