"""A node dies: of each EIP log, metric, Kubernetes' Event and the controller's page have one duration."""

import json
import re
import urllib.error
import urllib.request
from contextlib import suppress

import pytest
from agent_cluster import API_HOST, holders_of, until
from agent_objects import NAMESPACE
from prometheus_client.parser import text_string_to_metric_families

from speaker.lab.hosts.failover_manifests import service_of
from speaker.lab.hosts.speakers import holds_most

pytestmark = [pytest.mark.netns, pytest.mark.apiserver]

PAGE = "127.0.0.1:9901"
WORDS = re.compile(r"(\S+): (\S+) answers in place of (\S+), which fell silent, (\d+\.\d{3}) s after its last sign")


def page(cluster):
    """What it shows; nothing before the controller listens."""
    place = cluster.lan.namespace(API_HOST)
    asked = urllib.request.Request(f"http://{PAGE}/status.json")
    with suppress(urllib.error.URLError), place.entered(), urllib.request.urlopen(asked, timeout=5) as answer:  # noqa: S310
        return json.load(answer)
    return {}


def told(cluster, since, victim=None):
    """Of each EIP: who took over from whom, and the seconds; and of which Service that is said. Only of later ones, and
    of the victim's: what an earlier test broke may be told late."""
    found = {}
    for each in cluster.done("GET", f"/api/v1/namespaces/{NAMESPACE}/events")["items"]:
        if each["reason"] == "FailedOver" and each["metadata"]["uid"] not in since:
            eip, node, before, seconds = WORDS.fullmatch(each["message"]).groups()
            if victim in (None, before):
                found[eip] = (node, before, float(seconds)), each["involvedObject"]["name"], each["metadata"]["uid"]
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


async def test_each_eip_of_a_node_that_died_has_one_duration_wherever_it_is_told(cluster):
    await cluster.control("--page", PAGE)
    holders = {str(eip): node for eip, node in holders_of(await cluster.agreed()).items()}
    await until(lambda: page(cluster).get("counts") == {"eips": len(holders), "by_nobody": 0, "conflicts": 0})
    earlier = {uid for _, _, uid in told(cluster, set()).values()}
    victim = holds_most(holders)
    lost = {eip for eip, node in holders.items() if node == victim}
    before = {node: (failovers(cluster.metrics(node)), len(agent.said())) for node, agent in cluster.agents.items()}
    await cluster.dies(victim)
    await cluster.agreed()
    await until(lambda: told(cluster, earlier, victim).keys() == lost, lambda: told(cluster, earlier, victim))
    events = told(cluster, earlier, victim)
    assert {eip: name for eip, (_, name, _) in events.items()} == {
        str(eip): service_of(eip) for eip in cluster.eips if str(eip) in lost
    }
    said = {eip: of_it for eip, (of_it, _, _) in events.items()}

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

    await until(lambda: sum(each["count"] for each in page(cluster)["failovers"]) == len(lost), lambda: page(cluster))
    for each in page(cluster)["failovers"]:
        of_it = [seconds for node, dead, seconds in said.values() if (node, dead) == (each["to"], each["from"])]
        assert each["unanswered"] == [min(of_it), max(of_it)]
