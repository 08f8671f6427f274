"""How many Events the queue writes about one object."""

import asyncio

import pytest

from speaker.cluster.kinds import FullMetadata
from speaker.controller.write_queue import EVENTS, WriteQueue
from speaker.controller.writes import Event, Write


class Api:
    """Takes everything; ``news`` is set by each write."""

    def __init__(self):
        self.events, self.patched, self.news = [], 0, asyncio.Event()

    async def create(self, path, body, *, within):
        self.events.append(body["involvedObject"]["name"])
        self.news.set()

    async def patch(self, path, body, *, within):
        self.patched += 1
        self.news.set()


def write(name, version):
    about = about_it(name, version)
    path = f"/api/v1/namespaces/shop/services/{name}/status"
    return {path: Write(path, str(version), event=Event("Service", about, "Warning", "Refused", "full", "2026-01-01"))}


def about_it(name, version):
    return FullMetadata(name=name, namespace="shop", uid=name, resource_version=str(version))


async def flapping(times, *names):
    """So many changes of each of these objects, an Event each; the Events that came of it."""
    api = Api()
    queue = WriteQueue(api, lambda: 10.0, lambda what, error: pytest.fail(f"{what}: {error}"))
    working = asyncio.create_task(queue.run())
    for version in range(times):
        for name in names:
            await queue.want(write(name, version))
        while api.patched < (version + 1) * len(names):
            api.news.clear()
            await api.news.wait()
    for _ in range(50):  # Events wait behind the writes
        await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait([working])
    return api.events


def test_an_object_that_changes_again_and_again_gets_no_more_events_than_it_may():
    assert len(asyncio.run(flapping(3 * EVENTS, "web"))) == EVENTS


def test_and_takes_none_from_others():
    found = asyncio.run(flapping(2 * EVENTS, "web", "api"))
    assert {name: found.count(name) for name in found} == {"web": EVENTS, "api": EVENTS}
