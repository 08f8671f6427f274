"""An agent that starts without an API goes by what it said last, once it is clear that nobody knows better."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from speaker.agent.last_known import (
    NAME,
    RECALL_AGAIN,
    RECALL_SECONDS,
    REMEMBER_SECONDS,
    LastKnown,
    known,
    news_of,
    recall,
    remember,
)
from speaker.api.kinds import ASSIGNED, AssignedObject, EipObject, HostObject, NodeObject, SliceObject
from speaker.api.objects import Key
from speaker.model import ServiceKey
from speaker.node.report import Report
from speaker.telemetry.metrics import Metrics

WEB, DNS = ServiceKey("shop", "web"), ServiceKey("shop", "dns")


def service(name):
    data = {
        "metadata": {"name": name, "namespace": "shop", "resourceVersion": "7"},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}, "conditions": [{"type": ASSIGNED}]},
    }
    return msgspec.convert(data, AssignedObject)


def slice_of(service, name):
    labels = {"kubernetes.io/service-name": service}
    data = {"metadata": {"name": name, "namespace": "shop", "labels": labels}, "addressType": "IPv4"}
    return msgspec.convert(data, SliceObject)


NODE = msgspec.convert({"metadata": {"name": "n1"}}, NodeObject)
HOST = msgspec.convert({"metadata": {"name": "n2"}}, HostObject)
POOL = msgspec.convert({"metadata": {"name": "lan"}, "spec": {"addresses": ["192.0.2.0/24"]}}, EipObject)
SLICES = (slice_of("web", "web-1"), slice_of("dns", "dns-1"), slice_of("web", "web-2"))
SEEN = NODE, (service("web"), service("dns")), SLICES, (POOL,), (HOST,)


class Site:
    """An agent of n1 whose runtime directory is ``home``. ``listed``: the API has said everything; ``informed``: some
    peer reads it."""

    def __init__(self, home):
        self.home, self.report = home, Report(Metrics(), home)
        self.last_known = LastKnown(home, "n1", self.report)
        self.listed = self.informed = False
        self.changed = 0
        self.seen = SEEN

    async def _informed(self):
        return self.informed

    def _changed(self):
        self.changed += 1

    @asynccontextmanager
    async def running(self):
        tasks = [
            asyncio.create_task(self.last_known.recall(lambda: self.listed, self._informed, self._changed)),
            asyncio.create_task(self.last_known.remember(lambda: self.seen)),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


@pytest.fixture
def site(tmp_path):
    remember(tmp_path, known("n1", *SEEN))
    return Site(tmp_path)


def test_without_an_api_it_goes_by_what_was_known_last_after_a_while(in_virtual_time, site):
    async def story():
        async with site.running():
            await asyncio.sleep(RECALL_SECONDS - 0.1)
            assert site.last_known.recalled is None
            await asyncio.sleep(0.2)
            assert site.last_known.recalled == known("n1", *SEEN)
            await asyncio.sleep(1000)
            assert site.changed == 1, "once in a life"

    in_virtual_time(story())


def test_an_api_that_says_everything_by_then_is_gone_by(in_virtual_time, site):
    async def story():
        async with site.running():
            await asyncio.sleep(RECALL_SECONDS - 0.1)
            site.listed = True
            await asyncio.sleep(1000)
            assert (site.last_known.recalled, site.changed) == (None, 0)

    in_virtual_time(story())


def test_as_long_as_a_peer_reads_the_api_what_was_known_last_does_not_count(in_virtual_time, site):
    async def story():
        site.informed = True
        async with site.running():
            await asyncio.sleep(100)
            assert site.last_known.recalled is None
            site.informed = False
            await asyncio.sleep(RECALL_AGAIN + 0.1)
            assert site.last_known.recalled is not None

    in_virtual_time(story())


def test_an_api_that_says_everything_while_a_peer_reads_it_ends_the_wait(in_virtual_time, site):
    async def story():
        site.informed = True
        async with site.running():
            await asyncio.sleep(RECALL_SECONDS + 0.1)
            site.listed, site.informed = True, False
            await asyncio.sleep(100)
            assert site.last_known.recalled is None

    in_virtual_time(story())


@pytest.mark.parametrize(
    ("content", "problems"), [(None, []), (b"", ["damaged"]), (b"no zlib", ["damaged"])], ids=["none", "empty", "other"]
)
def test_a_file_that_cannot_be_used_is_told_and_not_gone_by(in_virtual_time, site, content, problems):
    async def story():
        (site.home / NAME).unlink()
        if content is not None:
            (site.home / NAME).write_bytes(content)
        async with site.running():
            await asyncio.sleep(100)
            assert site.last_known.recalled is None
        told = site.report.problems()
        assert len(told) == len(problems)
        assert all(words in sentence or "truncated" in sentence for words, sentence in zip(problems, told, strict=True))

    in_virtual_time(story())


def test_what_the_api_says_is_kept_when_it_is_learned_and_seldom(in_virtual_time, site):
    async def story():
        (site.home / NAME).unlink()
        async with site.running():
            await asyncio.sleep(100)
            assert not (site.home / NAME).exists(), "nothing was learned"
            site.last_known.learned.set()
            await asyncio.sleep(1)
            assert recall(site.home, "n1") == known("n1", *SEEN)
            site.seen = (None, *SEEN[1:])
            site.last_known.learned.set()
            await asyncio.sleep(REMEMBER_SECONDS - 2)
            assert recall(site.home, "n1").node == NODE
            await asyncio.sleep(2)
            assert recall(site.home, "n1").node is None

    in_virtual_time(story())


def test_a_directory_that_takes_no_file_is_told_and_tried_again(in_virtual_time, site):
    async def story():
        site.last_known, site.listed = LastKnown(site.home / NAME, "n1", site.report), True
        async with site.running():
            await asyncio.sleep(RECALL_SECONDS + 1)
            site.last_known.learned.set()
            await asyncio.sleep(1)
            assert len(site.report.problems()) == 1
            (site.home / NAME).unlink()
            await asyncio.sleep(REMEMBER_SECONDS)
            assert site.report.problems() == [], "though nothing was learned meanwhile"

    in_virtual_time(story())


def test_what_was_known_last_is_read_as_if_the_api_had_said_it_all():
    news, slices_of = news_of(known("n1", *SEEN))
    assert news.services == {Key("shop", each.metadata.name): each for each in SEEN[1]}
    assert (news.eips, news.nodes) == ((POOL,), {Key("", "n2"): HOST})
    assert [each.metadata.name for each in slices_of(WEB)] == ["web-1", "web-2"]
    assert [each.metadata.name for each in slices_of(DNS)] == ["dns-1"]
    assert slices_of(ServiceKey("other", "web")) == []
