"""A list that lacks much of what was known takes nothing away before another, over a new connection, lacks it too."""

import asyncio

import pytest

ONLY_FAKE = pytest.mark.parametrize("api", ["fake"], indirect=True)
NAMES = {f"a{number}" for number in range(8)}
LONG, SHORT = 1000.0, 1.0
"""Seconds to settle: until a test is over, and until it goes on."""
SOON = 30 * SHORT
"""By when it has gone on, on a busy machine as well."""


@pytest.fixture
async def eight(maps):
    for name in sorted(NAMES):
        await maps.create(name)


def hide(api, *names):
    """From now on lists lack them, and every mirror has to list anew."""
    api.fake.hides = lambda resource, found: resource == "configmaps" and found["metadata"]["name"] in names
    api.fake.revision += 1  # something else was written
    api.fake.compact()
    api.fake.cut_watches()


async def until_lists(seen, count):
    async with asyncio.timeout(30):
        while seen.reflector.lists < count:  # noqa: ASYNC110 -- a list that changes nothing is told to nobody
            await asyncio.sleep(0.01)


@ONLY_FAKE
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "in pages"])
async def test_an_empty_list_takes_nothing_away_and_is_told(api, eight, mirror, maps, streamed):
    api.fake.streams_lists = streamed
    seen = await mirror(await api.client(), settle=LONG)
    await maps.create("b")
    await seen.until_names(NAMES | {"b"})
    hide(api, *NAMES, "b")
    await until_lists(seen, 2)
    assert seen.names() == NAMES | {"b"}
    assert len(seen.doubts) == 1
    assert seen.doubts[0].startswith("configmaps: 9 of 9 are missing from a list: they stay until 2")
    await maps.create("c")
    await maps.delete("a0")
    await seen.until_names({"c", "b"} | NAMES - {"a0"})
    assert seen.reflector.following, "what happens meanwhile is followed, single deletions at once"


@ONLY_FAKE
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "in pages"])
async def test_a_second_list_that_says_so_too_counts_and_comes_over_a_new_connection(api, eight, mirror, streamed):
    api.fake.streams_lists = streamed
    relay = await api.relay()
    seen = await mirror(await api.client(relay), settle=SHORT)
    began = asyncio.get_running_loop().time()
    hide(api, *NAMES)
    await until_lists(seen, 2)
    assert seen.names() == NAMES
    connections = relay.connections
    await seen.until_names(())
    assert SHORT <= asyncio.get_running_loop().time() - began < SOON
    assert relay.connections > connections
    assert seen.reflector.lists == 3
    assert [bool(doubt) for doubt in seen.doubts] == [True, False]


@ONLY_FAKE
async def test_a_list_that_is_asked_for_again_comes_over_a_new_connection(api, eight, mirror):
    relay = await api.relay()
    client = await api.client(relay)
    seen = await mirror(client)
    await client.get(api.path("configmaps"))  # leaves a connection that could be used again
    connections = relay.connections
    seen.reflector.list_again()
    await until_lists(seen, 2)
    assert relay.connections == connections + 1


@ONLY_FAKE
async def test_a_second_list_that_has_it_all_again_takes_nothing_away(api, eight, mirror):
    seen = await mirror(await api.client(), settle=SHORT)
    told = len(seen.changes)
    hide(api, *NAMES)
    await until_lists(seen, 2)
    api.fake.hides = lambda *_: False
    await until_lists(seen, 3)
    await seen.until(lambda: seen.doubts[-1:] == [""])
    assert (seen.names(), len(seen.changes)) == (NAMES, told)


@ONLY_FAKE
async def test_lists_that_come_sooner_decide_nothing_and_put_nothing_off(api, eight, mirror):
    seen = await mirror(await api.client(), settle=LONG)
    for count in (2, 3, 4):
        hide(api, *NAMES)
        await until_lists(seen, count)
    assert seen.names() == NAMES
    assert len(seen.doubts) == 1


@ONLY_FAKE
async def test_data_that_went_back_to_nothing_takes_nothing_away_at_once(api, eight, mirror, maps):
    """With an older version, as a server has that is not the one that it was."""
    seen = await mirror(await api.client(), settle=LONG)
    api.fake.restore(1000)
    await until_lists(seen, 2)
    assert seen.names() == NAMES


@ONLY_FAKE
async def test_what_is_missed_little_counts_at_once_and_so_does_what_no_eip_depends_on(api, eight, mirror, maps):
    await maps.create("plain")
    seen = await mirror(await api.client(), settle=LONG, stakes=lambda found: [found.key] * (found.key.name != "plain"))
    hide(api, "a0", "a1", "plain")
    await seen.until_names(NAMES - {"a0", "a1"})
    assert seen.doubts == []


@ONLY_FAKE
async def test_without_patience_everything_counts_at_once(api, eight, mirror):
    seen = await mirror(await api.client(), settle=0.0)
    hide(api, *NAMES)
    await seen.until_names(())


async def test_what_is_deleted_one_by_one_is_gone_at_once_be_it_everything(api, eight, mirror, maps):
    seen = await mirror(await api.client(), settle=LONG)
    for name in NAMES:
        await maps.delete(name)
    await seen.until_names(())
    assert seen.doubts == []


async def test_what_was_deleted_while_nobody_watched_is_gone_after_the_time_and_no_later(api, eight, mirror, maps):
    relay = await api.relay()
    seen = await mirror(await api.client(relay), settle=SHORT)
    await relay.refuse()
    for name in NAMES:
        await maps.delete(name)
    await maps.create("b")
    await api.forget_history()
    await relay.accept()
    await seen.until_names(NAMES | {"b"})
    began = asyncio.get_running_loop().time()
    await seen.until_names({"b"})
    assert asyncio.get_running_loop().time() - began < SOON


@ONLY_FAKE
async def test_the_first_list_is_doubted_by_what_an_earlier_process_knew(api, eight, mirror):
    known = tuple((await mirror(await api.client())).store)
    hide(api, *NAMES)
    seen = await mirror(await api.client(), settle=LONG, recalled=known)
    assert seen.names() == NAMES
    assert {change.before for change in seen.batches[0]} == {None}
    assert len(seen.doubts) == 1


async def test_who_asks_afresh_has_a_connection_for_each_request(api):
    relay = await api.relay()
    client = await api.client(relay)
    for _ in range(2):
        await client.get(api.path("configmaps"))
    assert relay.connections == 1
    for _ in range(2):
        await client.afresh.get(api.path("configmaps"))
    assert relay.connections == 3
    await client.get(api.path("configmaps"))
    assert relay.connections == 3
