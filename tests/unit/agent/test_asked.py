"""What an agent asks for now and then: told is what changed, and it is asked for only where there is a reason."""

import asyncio
import json
from itertools import pairwise
from types import SimpleNamespace

import pytest

from speaker.agent.mirrors import HostsAsked, listed
from speaker.api.kinds import HostObject
from speaker.errors import ApiUnreachable

PATH = "/api/v1/nodes"


class Api:
    """A ``Client`` that gives the next of ``answers``: items, or an error; and the last one over and over."""

    def __init__(self, *answers):
        self.answers, self.queries = list(answers), []

    async def get(self, path, query, *, within=0.0):
        self.queries.append(dict(query))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        items, following = answer if isinstance(answer, tuple) else (answer, "")
        return json.dumps({"metadata": {"resourceVersion": "1", "continue": following}, "items": items}).encode()


def host(name, *addresses):
    found = [{"type": "InternalIP", "address": each} for each in addresses]
    return {"metadata": {"name": name}, "status": {"addresses": found}}


def lease(node, life, version):
    return {"metadata": {"name": node, "resourceVersion": str(version)}, "spec": {"holderIdentity": f"{node}_{life}"}}


async def until(holds):
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 -- nothing tells
            await asyncio.sleep(0)


async def during(run, holds):
    task = asyncio.create_task(run)
    await until(holds)
    task.cancel()
    await asyncio.wait([task])


async def test_pages_are_put_together_and_what_does_not_fit_is_left_out():
    api = Api(([host("a"), {"metadata": {"name": 7}}], "more"), [host("b")])
    assert [each.metadata.name for each in await listed(api, PATH, HostObject)] == ["a", "b"]
    assert [query.get("continue") for query in api.queries] == [None, "more"]


def told_of(told):
    return SimpleNamespace(tells=lambda _: told.append, doubted=lambda *_: None)


@pytest.fixture
def hosts(monkeypatch):
    """``await hosts(*answers)``: what was delivered, and what was told, after the last of them."""
    monkeypatch.setattr("speaker.agent.mirrors.HOSTS_SECONDS", 0)
    monkeypatch.setattr("speaker.agent.mirrors.ASK_AGAIN", 0)

    async def asked(*answers):
        api, delivered, told = Api(*answers), [], []
        await during(HostsAsked(api, delivered.append, told_of(told)).run(), lambda: len(told) > len(answers))
        names = [{key.name: found and len(found.status.addresses) for key, found in news.items()} for news in delivered]
        return names, told[: len(answers)]

    return asked


async def test_of_nodes_that_is_told_which_is_another_than_before(hosts):
    one, two = host("one", "192.0.2.1"), host("two", "192.0.2.2")
    delivered, _ = await hosts([one], [one, two], [host("one", "192.0.2.1", "2001:db8::1"), two], [two])
    assert delivered == [{"one": 1}, {"two": 1}, {"one": 2}, {"one": None}]


async def test_a_cluster_without_nodes_is_told_of_once(hosts):
    delivered, _ = await hosts([], [], [])
    assert delivered == [{}]


async def test_nodes_stay_as_they_were_while_the_api_does_not_answer(hosts):
    away = ApiUnreachable("away")
    delivered, told = await hosts([host("one", "192.0.2.1")], away, [host("one", "192.0.2.1")])
    assert delivered == [{"one": 1}]
    assert told == [None, away, None]


def asked_without_end(in_virtual_time, seconds, *answers):
    """What was delivered, which doubts were told, and how many seconds passed before each request."""
    api, delivered, doubts, at = Api(*answers), [], [], []

    async def whole():
        api.afresh = api
        loop = asyncio.get_running_loop()
        got = api.get

        async def get(*arguments, **more):
            at.append(loop.time())
            return await got(*arguments, **more)

        api.get = get
        asked = HostsAsked(
            api,
            delivered.append,
            SimpleNamespace(
                tells=lambda _: lambda _: None,
                doubted=lambda _, doubt: doubts.append(doubt and doubt.waiting.gone),
            ),
            30.0,
        )
        running = asyncio.create_task(asked.run())
        await asyncio.sleep(seconds)
        running.cancel()
        await asyncio.wait([running])

    in_virtual_time(whole())
    return delivered, doubts, [round(later - before) for before, later in pairwise(at)]


FOUR = [host(name, f"10.0.0.{number}") for number, name in enumerate("abcd", start=1)]


def test_nodes_that_a_list_suddenly_lacks_are_gone_when_a_second_one_lacks_them_too(in_virtual_time):
    delivered, doubts, pauses = asked_without_end(in_virtual_time, 400, FOUR, [])
    assert [list(news.values()) == 4 * [None] for news in delivered] == [False, True]
    assert (doubts, pauses) == ([4, None], [300, 30])


def test_nodes_that_the_second_list_has_again_were_never_away(in_virtual_time):
    delivered, doubts, pauses = asked_without_end(in_virtual_time, 400, FOUR, [], FOUR)
    assert len(delivered) == 1
    assert (doubts, pauses) == ([4, None], [300, 30])


def test_a_node_that_is_taken_out_is_gone_with_the_next_list(in_virtual_time):
    delivered, doubts, _ = asked_without_end(in_virtual_time, 400, FOUR, FOUR[1:])
    assert len(delivered) == 2
    assert doubts == []
