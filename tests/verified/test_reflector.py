"""A reflector ends with what the API holds, whatever happens to the API, the connection or the history in between."""

import asyncio
from itertools import count
from types import SimpleNamespace

import pytest

from speaker.api.objects import Key, Object
from speaker.cluster.client import MAX_ANSWER, pages
from speaker.cluster.feed import Resource
from speaker.cluster.reflector import SILENT_WATCHES, Patience, Reflector
from speaker.errors import ApiRefused, ApiUnreachable

SERVICE = "kubernetes.io/service-name"
ONLY_FAKE = pytest.mark.parametrize("api", ["fake"], indirect=True)


def by_label(label):
    def terms(found):
        value = found.metadata.labels.get(label)
        return () if value is None else (Key(found.metadata.namespace, value),)

    return terms


async def test_the_first_batch_is_everything_there_is(api, mirror, maps, key):
    await maps.create("a", "1")
    await maps.create("b", "2")
    seen = await mirror(await api.client())
    assert {(change.key, change.before, change.after.data["value"]) for change in seen.batches[0]} == {
        (key("a"), None, "1"),
        (key("b"), None, "2"),
    }
    assert seen.reflector.store.get(key("a")).data == {"value": "1"}


async def test_of_nothing_there_is_an_empty_first_batch(api, mirror):
    seen = await mirror(await api.client())
    assert seen.batches == [()]


async def test_creations_changes_and_deletions_are_told_in_order(api, mirror, maps, key):
    seen = await mirror(await api.client())
    await maps.create("a", "1")
    await maps.change("a", "2")
    await maps.delete("a")
    await seen.until(lambda: len(seen.changes) == 3)
    told = [tuple(found and found.data["value"] for found in (change.before, change.after)) for change in seen.changes]
    assert told == [(None, "1"), ("1", "2"), ("2", None)]
    assert len(seen.reflector.store) == 0


async def test_an_index_follows_its_label(api, mirror, maps, key):
    seen = await mirror(await api.client(), indexes={"service": by_label(SERVICE)})
    await maps.create("slice-1", labels={SERVICE: "web"})
    await maps.create("slice-2", labels={SERVICE: "web"})
    await maps.change("slice-1", labels={SERVICE: "dns"})
    await maps.change("slice-2", labels={SERVICE: None})
    await seen.until(lambda: len(seen.changes) == 4)
    assert [found.key for found in seen.reflector.store.by("service", key("dns"))] == [key("slice-1")]
    assert not seen.reflector.store.by("service", key("web"))


async def test_what_leaves_a_selector_is_gone_and_what_enters_is_new(api, mirror, maps, key):
    await maps.create("a", labels={"mine": "yes"})
    await maps.create("b")
    seen = await mirror(await api.client(), labels="mine=yes")
    assert seen.names() == {"a"}
    await maps.change("a", labels={"mine": None})
    await maps.change("b", labels={"mine": "yes"})
    await seen.until_names({"b"})
    assert [(change.key, change.after is None) for change in seen.changes[1:]] == [(key("a"), True), (key("b"), False)]


async def test_a_cut_connection_loses_nothing(api, mirror, maps):
    relay = await api.relay()
    seen = await mirror(await api.client(relay))
    for number in range(10):
        await maps.create(f"a{number}")
        if number % 3 == 0:
            relay.cut()
        if number % 2:
            await maps.delete(f"a{number}")
    await seen.until_names(f"a{number}" for number in range(0, 10, 2))
    assert seen.reflector.lists == 1  # it went on where it was


@pytest.mark.parametrize("count", [1, 90, 180, 270, 360, 700, 1500])
async def test_a_watch_cut_anywhere_in_an_object_is_taken_up_again(api, mirror, maps, count):
    relay = await api.relay()
    seen = await mirror(await api.client(relay))
    relay.cut_after(count)
    for name in ("a", "b", "c", "d"):
        await maps.create(name, "x" * 200)
    await seen.until_names({"a", "b", "c", "d"})
    assert [change.key.name for change in seen.changes] == ["a", "b", "c", "d"]


async def test_a_list_cut_in_the_middle_is_begun_again(api, mirror, maps):
    for number in range(20):
        await maps.create(f"a{number}", "x" * 500)
    relay = await api.relay()
    client = await api.client(relay)
    await client.get("/version") if api.fake is None else None  # handshake and all are behind us
    relay.cut_after(6000)
    seen = await mirror(client)
    assert len(seen.batches[0]) == len(seen.reflector.store) == 20
    assert seen.errors


async def test_what_happened_while_the_api_was_out_of_reach_is_made_up_for(api, mirror, maps, key):
    await maps.create("stays")
    await maps.create("goes")
    await maps.create("namesake", "old")
    relay = await api.relay()
    seen = await mirror(await api.client(relay))
    await relay.refuse()
    await seen.until(lambda: seen.errors)
    await maps.delete("goes")
    await maps.delete("namesake")
    await maps.create("namesake", "new")
    await maps.create("comes")
    await relay.accept()
    await seen.until_names({"stays", "namesake", "comes"})
    assert not any(change.key == key("stays") for change in seen.changes[3:])


async def test_after_the_history_is_forgotten_everything_is_listed_anew(api, mirror, maps, key):
    await maps.create("stays")
    await maps.create("goes")
    await maps.create("namesake", "old")
    relay = await api.relay()
    seen = await mirror(await api.client(relay))
    stays = seen.reflector.store.get(key("stays"))
    await relay.refuse()
    await maps.delete("goes")
    await maps.delete("namesake")
    await maps.create("namesake", "new")
    await api.forget_history()
    await relay.accept()
    await seen.until_names({"stays", "namesake"})
    assert seen.reflector.lists == 2
    assert any(isinstance(error, ApiRefused) and error.too_old for error in seen.errors)
    assert seen.reflector.store.get(key("stays")) is stays  # the same version is not even copied
    assert len(seen.batches) == 2  # in one piece: nobody ever saw half of the new list
    told = [(change.key.name, change.before is None, change.after is None) for change in seen.batches[1]]
    assert sorted(told) == [("goes", False, True), ("namesake", False, True), ("namesake", True, False)]
    assert [names for _, names in seen.lists] == [{"stays", "goes", "namesake"}, {"stays", "namesake"}]
    assert seen.lists[0][0] < seen.lists[1][0]


async def test_a_frozen_api_is_noticed_and_taken_up_again(api, mirror, maps):
    seen = await mirror(await api.client(), patience=Patience(answer=0.5, silence=1.0, backoff=0.02, backoff_limit=0.2))
    await api.freeze()
    await seen.until(lambda: sum(isinstance(error, ApiUnreachable) for error in seen.errors) >= 2)
    await api.thaw()
    await maps.create("a")
    await seen.until_names({"a"})


@ONLY_FAKE
@pytest.mark.parametrize("watch_seconds", [1800.0, 1.2, 0.0], ids=["goes on", "is ended", "is ended at once"])
async def test_a_streamed_list_that_never_is_whole_is_asked_for_in_pages(api, mirror, maps, watch_seconds):
    """Though something comes all the time, as of a resource where much changes."""
    api.fake.ends_lists, api.fake.watch_seconds = False, watch_seconds
    await maps.create("a")

    async def change_all_the_time():
        for number in count():
            await maps.change("a", str(number))
            await asyncio.sleep(0.1)

    changing = asyncio.create_task(change_all_the_time())
    patience = Patience(answer=0.5, whole=0.8, backoff=0.02, backoff_limit=0.2)
    seen = await mirror(await api.client(), patience=patience)
    assert seen.names() == {"a"}
    assert any("did not finish the list" in str(error) for error in seen.errors)
    changing.cancel()
    await asyncio.wait([changing])


async def test_a_half_open_connection_is_noticed(api, mirror, maps):
    relay = await api.relay()
    client = await api.client(relay)
    seen = await mirror(client, patience=Patience(silence=1.0, backoff=0.02, backoff_limit=0.2))
    relay.forget()
    await maps.create("a")
    await seen.until_names({"a"})


async def test_an_api_that_is_killed_and_comes_back_is_taken_up_again(api, mirror, maps):
    await maps.create("a")
    seen = await mirror(await api.client())
    await api.stop()
    await seen.until(lambda: len(seen.errors) >= 3)
    await api.start()
    await maps.create("b")
    await seen.until_names({"a", "b"})


async def test_a_server_that_cannot_stream_lists_is_asked_for_pages(api, mirror, maps, key):
    await api.stop()
    await api.start(streams_lists=False)
    try:
        for number in range(25):
            await maps.create(f"a{number}")
        seen = await mirror(await api.client())
        assert len(seen.reflector.store) == 25
        await maps.delete("a0")
        await seen.until(lambda: seen.reflector.store.get(key("a0")) is None)
        assert len(seen.errors) == 1
    finally:
        await api.stop()
        await api.start()


async def test_a_page_of_too_many_bytes_comes_in_smaller_ones(api, maps):
    """An API server gives as many objects as it is asked for, of 1.5 MB each."""
    count = MAX_ANSWER // 900_000 + 2
    for number in range(count):
        await maps.create(f"a{number}", "x" * 900_000)
    client = await api.client()
    found = [len(page.items) async for page in pages(client, api.path("configmaps"), {}, within=GUARD)]
    assert (sum(found), max(found) < count) == (count, True)


async def test_an_object_that_does_not_fit_stays_as_it_was(api, mirror, maps, key):
    class Number(Object, frozen=True):
        data: dict[str, int] | None = None  # a ConfigMap's values are text: none fits

    await maps.create("a", "text")
    seen = await mirror(await api.client(), kind=Number)
    assert (seen.batches, len(seen.reflector.set_aside)) == ([()], 1)
    client = await api.client()
    await client.patch(api.path("configmaps", "a"), {"data": None})
    await seen.until(lambda: seen.reflector.store.get(key("a")))
    _, changed, *aside = seen.batches
    assert ([change.key for change in changed], aside) == ([key("a")], [()]), "it is set aside no more, whoever it is"
    await maps.change("a", "text")
    await client.create(api.path("configmaps"), {"metadata": {"name": "after-it"}})
    await seen.until(lambda: seen.reflector.store.get(key("after-it")))
    assert len(seen.reflector.set_aside) == 1
    assert seen.reflector.store.get(key("a")).data is None


# ── Connecting anew ───────────────────────────────────────────────────────────────────────────────────────────

UNHEARD = SimpleNamespace(failed=lambda *_: None, doubted=lambda *_: None)
ENDLESS = Patience(backoff=1e6, backoff_limit=1e6)
GUARD = 60.0
"""Seconds; against a hang."""
"""Who waits for another try, waits for longer than a test."""


async def test_it_follows_while_a_watch_runs_and_after_reconnecting_once_the_next_one_does(api, mirror, maps):
    relay = await api.relay()
    seen = await mirror(await api.client(relay))
    await maps.create("a")
    await seen.until_names({"a"})
    assert seen.reflector.following
    connections = relay.connections
    seen.reflector.reconnect()
    assert (seen.reflector.following, seen.reflector.synced) == (False, True)
    await maps.create("b")
    await seen.until_names({"a", "b"})
    assert seen.reflector.following
    assert relay.connections > connections  # nothing is believed of the connection that there was
    assert (seen.reflector.lists, seen.errors) == (1, [])


async def test_before_its_first_list_it_follows_nothing(api):
    reflector = Reflector(await api.client(), Resource(api.path("configmaps"), Object), lambda _: None, UNHEARD)
    reflector.reconnect()
    assert (reflector.following, reflector.synced) == (False, False)


async def test_it_follows_nothing_while_the_api_is_out_of_reach(api, mirror, maps):
    relay = await api.relay()
    seen = await mirror(await api.client(relay))
    await relay.refuse()
    await seen.until(lambda: seen.errors)
    assert not seen.reflector.following
    await relay.accept()
    await maps.create("a")
    await seen.until_names({"a"})
    assert seen.reflector.following


async def test_it_follows_nothing_while_everything_is_listed_anew(api, mirror, maps):
    for number in range(20):
        await maps.create(f"a{number}", "x" * 5000)
    seen = await mirror(await api.client())
    async with asyncio.timeout(GUARD):
        for _ in range(SILENT_WATCHES + 1):  # on a resource where nothing happens
            assert seen.reflector.lists == 1
            seen.reflector.reconnect()
            while not seen.reflector.following:  # noqa: ASYNC110 -- of this nobody is told
                await asyncio.sleep(0)
    assert seen.reflector.lists == 2


async def test_reconnecting_in_the_middle_of_a_backoff_tries_at_once_and_loses_nothing(api, mirror, maps):
    await maps.create("stays")
    await maps.create("goes")
    relay = await api.relay()
    seen = await mirror(await api.client(relay), patience=ENDLESS)
    await relay.refuse()
    await seen.until(lambda: seen.errors)
    await maps.create("comes", "1")
    await maps.change("comes", "2")
    await maps.delete("goes")
    await relay.accept()
    told = len(seen.changes)
    assert (seen.names(), seen.reflector.following) == ({"stays", "goes"}, False)
    seen.reflector.reconnect()
    await seen.until_names({"stays", "comes"})
    changes = [(change.key.name, change.after and change.after.data["value"]) for change in seen.changes[told:]]
    assert changes == [("comes", "1"), ("comes", "2"), ("goes", None)]
    assert seen.reflector.lists == 1


async def test_who_reconnects_all_the_time_is_told_of_every_change_once_and_in_order(api, mirror, maps):
    seen = await mirror(await api.client())
    for number in range(10):
        await maps.create("a", str(number))
        seen.reflector.reconnect()
        await maps.delete("a")
        for _ in range(number):  # so that the connection is at another point each time
            await asyncio.sleep(0)
        seen.reflector.reconnect()
        await maps.create(f"b{number}")
        await seen.until(lambda number=number: f"b{number}" in seen.names())
    values = [change.after and change.after.data["value"] for change in seen.changes if change.key.name == "a"]
    assert values == [value for number in range(10) for value in (str(number), None)]


@pytest.mark.parametrize("turns", [0, 1, 10, 30, 100, 300])
async def test_reconnecting_in_the_middle_of_a_first_list_begins_it_again(api, maps, turns):
    for number in range(20):
        await maps.create(f"a{number}", "x" * 5000)
    batches, come = [], asyncio.Event()

    def deliver(changes):
        batches.append(changes)
        come.set()

    reflector = Reflector(await api.client(), Resource(api.path("configmaps"), Object), deliver, UNHEARD)
    running = asyncio.create_task(reflector.run(), name="reflector")
    for _ in range(turns):
        await asyncio.sleep(0)
    reflector.reconnect()
    async with asyncio.timeout(GUARD):
        await come.wait()
    assert len(batches[0]) == len(reflector.store) == 20
    running.cancel()
    await asyncio.wait((running,))
    assert running.cancelled()


@pytest.mark.parametrize("out_of_reach", [False, True], ids=["watching", "between two tries"])
@pytest.mark.parametrize("turns", range(5))
async def test_a_reflector_that_is_cancelled_while_it_reconnects_ends(api, turns, out_of_reach):
    relay = await api.relay()
    failed, come = asyncio.Event(), asyncio.Event()
    reflector = Reflector(
        await api.client(relay),
        Resource(api.path("configmaps"), Object),
        lambda _: come.set(),
        SimpleNamespace(failed=lambda *_: failed.set()),
        patience=ENDLESS,
    )
    running = asyncio.create_task(reflector.run(), name="reflector")
    async with asyncio.timeout(GUARD):
        await come.wait()
        if out_of_reach:
            await relay.refuse()
            await failed.wait()
    reflector.reconnect()
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    done, _ = await asyncio.wait((running,), timeout=GUARD)
    assert done
    assert running.cancelled()
    reflector.reconnect()  # of one that has ended nothing is left to do
    assert not reflector.following
    tasks = {task.get_name() for task in asyncio.all_tasks()}
    assert f"attempts {api.path('configmaps')}" not in tasks
