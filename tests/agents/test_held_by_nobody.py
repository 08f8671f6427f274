"""The holder dies, and nobody may take over: the record still names it, and an Event says that it is gone."""

import pytest
from agent_cluster import REMEMBERS, holders_of, until
from agent_objects import EXCLUDED, NAMESPACE
from fault_plan import Switches

from speaker.lab.speakers import holds_most, service_of

pytestmark = [pytest.mark.netns, pytest.mark.apiserver, pytest.mark.long(part="agents")]

SOONER = {
    "speaker.agent.last_known:REMEMBER_SECONDS": REMEMBERS,
    "speaker.controller.sessions:DEAD": 20.0,
    "speaker.controller.leader:LOOK": 1.0,
}
"""Seconds: a Lease is renewed every 15."""


def told(cluster, reason):
    """What Events of that reason say: message and Service of each."""
    events = cluster.done("GET", f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
    return {
        each["metadata"]["uid"]: (each["message"], each["involvedObject"]["name"])
        for each in events
        if each["reason"] == reason
    }


@pytest.fixture
async def sooner(cluster, tmp_path, monkeypatch):
    """The controller takes a holder for gone after less than a minute."""
    planted = Switches(tmp_path / "planted", (), SOONER)
    with monkeypatch.context() as patch:
        for name, value in planted.environment.items():
            patch.setenv(name, value)
        await cluster.control()
    yield cluster
    await cluster.control()


async def test_of_a_dead_holder_that_nobody_may_follow_an_event_says_so_until_somebody_does(sooner):
    cluster = sooner
    victim = holds_most(holders_of(await cluster.agreed()))
    for node in cluster.nodes:
        if node != victim:
            cluster.on_node(node, {"metadata": {"labels": {EXCLUDED: ""}}})
    await cluster.agreed(lambda whose: set(whose.values()) == {victim})
    earlier = told(cluster, "HeldByNobody").keys()
    await cluster.dies(victim)
    lost = {
        (f"no node is known to announce {eip}: its holder {victim} is gone, or cut off from the API", service_of(eip))
        for eip in cluster.eips
    }
    await until(lambda: len(told(cluster, "HeldByNobody").keys() - earlier) >= len(lost))
    found = told(cluster, "HeldByNobody")
    assert {found[uid] for uid in found.keys() - earlier} == lost
    assert set(holders_of(cluster.records()).values()) == {victim}
    announced = told(cluster, "Announced").keys()
    await cluster.whole()
    await until(lambda: len(told(cluster, "Announced").keys() - announced) >= len(lost))
    assert told(cluster, "HeldByNobody").keys() == found.keys()
