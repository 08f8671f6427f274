"""A Service that a list lacks is kept for a while, but not where another one has its EIP by now."""

import msgspec
import pytest

from speaker.agent.view import assigned_addresses
from speaker.api.kinds import ASSIGNED, AssignedObject
from speaker.cluster.feed import Feed, Resource


def service(name: str, n: int) -> dict[str, object]:
    return {
        "metadata": {"name": name, "namespace": "t", "resourceVersion": "7"},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": "eip-speaker.io/speaker", "ports": [{"port": 80}]},
        "status": {
            "loadBalancer": {"ingress": [{"ip": f"192.0.2.{n}"}]},
            "conditions": [{"type": ASSIGNED, "status": "True"}],
        },
    }


def listed(feed: Feed[AssignedObject], services: list[dict[str, object]], now: float) -> list[str]:
    feed.begin_list()
    for each in services:
        feed.add(msgspec.Raw(msgspec.json.encode(each)))
    for _ in feed.end_list("9", now):
        pass
    return sorted(found.key.name for found in feed.store)


@pytest.fixture
def feed() -> Feed[AssignedObject]:
    feed = Feed(Resource("/things", AssignedObject, settle=30.0, stakes=assigned_addresses))
    listed(feed, [service(f"a{n}", n) for n in range(1, 7)], 0.0)
    return feed


def test_whose_eip_a_list_gives_to_another_goes_at_once(feed: Feed[AssignedObject]) -> None:
    """It would say who reaches the other one, and where that leads."""
    left = [*(service(f"a{n}", n) for n in range(4, 7)), service("z", 1)]
    assert listed(feed, left, 100.0) == ["a2", "a3", "a4", "a5", "a6", "z"]


def test_whose_eip_goes_to_another_while_it_waits_goes_then(feed: Feed[AssignedObject]) -> None:
    assert len(listed(feed, [service("a6", 6)], 100.0)) == 6
    event = {"type": "ADDED", "object": service("z", 2)}
    feed.take(msgspec.json.encode(event))
    assert sorted(found.key.name for found in feed.store) == ["a1", "a3", "a4", "a5", "a6", "z"]
