"""A version that is yet to come, as a bookmark of another server says it: what a server answers, who gets over it."""

import asyncio

import pytest

from speaker.cluster.reflector import Patience
from speaker.errors import ApiRefused

FAR = 10**12
GUARD = 60.0
"""Seconds; against a hang."""
QUICK = Patience(backoff=0.02, backoff_limit=0.2)
ONLY_FAKE = pytest.mark.parametrize("api", ["fake"], indirect=True)


async def test_a_list_that_must_be_of_a_version_to_come_is_refused(api):
    client = await api.client()
    with pytest.raises(ApiRefused) as refused:
        await client.get(api.path("configmaps"), {"resourceVersion": str(FAR), "resourceVersionMatch": "NotOlderThan"})
    assert (refused.value.code, refused.value.reason, refused.value.too_old) == (504, "Timeout", True)
    assert "Too large resource version" in str(refused.value)


async def test_a_streamed_list_of_a_version_to_come_is_an_error_in_a_stream_that_was_begun(api):
    client = await api.client()
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersion": str(FAR),
        "resourceVersionMatch": "NotOlderThan",
    }
    async with client.stream(api.path("configmaps"), query, within=GUARD) as stream:
        said = await stream.read(GUARD)
    assert b'"type":"ERROR"' in said.replace(b": ", b":")
    assert b"ResourceVersionTooLarge" in said


async def test_a_plain_watch_from_a_version_to_come_is_silent(api, maps):
    client = await api.client()
    query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": str(FAR), "timeoutSeconds": "60"}
    async with client.stream(api.path("configmaps"), query, within=GUARD) as stream:
        await maps.create("a")
        with pytest.raises(TimeoutError):
            await stream.read(1.0)


@ONLY_FAKE
async def test_a_bookmark_of_a_version_to_come_keeps_no_watch_silent(api, mirror, maps):
    """Whether the watch it came by breaks, or ends as every watch does after a while."""
    api.fake.bookmark_every = 1000.0
    seen = await mirror(await api.client(), patience=QUICK)
    await maps.create("a")
    await seen.until_names({"a"})
    api.fake.vouch(FAR)
    api.fake.end_watches()
    await maps.create("b")
    async with asyncio.timeout(GUARD):
        await seen.until_names({"a", "b"})
    assert (seen.reflector.lists, len(seen.reflector.store)) == (2, 2)


@ONLY_FAKE
async def test_a_list_that_ends_at_a_version_to_come_keeps_no_watch_silent(api, mirror, maps):
    await maps.create("a")
    api.fake.stamps_lists, api.fake.bookmark_every = FAR, 1000.0
    seen = await mirror(await api.client(), patience=QUICK)
    api.fake.stamps_lists = 0
    api.fake.end_watches()
    await maps.create("b")
    async with asyncio.timeout(GUARD):
        await seen.until_names({"a", "b"})
