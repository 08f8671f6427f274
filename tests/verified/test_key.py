"""The key that agents share: made where there is none, by one of all who try, and nobody reads it."""

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from fake_api import Refused
from guarded import gives_up

from speaker.cluster.client import Client
from speaker.controller.leader import ENTRY, SECRET, make_key
from speaker.errors import ApiRefused, EdgeError
from speaker.ownership.hellos.keys import MIN_SECRET, Keys, parse

GUARD = 60.0
"""Seconds; against a hang."""


class Failures:
    """What ``make_key`` told, and when there was something."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.some = asyncio.Event()

    def failed(self, what: str, error: EdgeError) -> None:
        self.told.append((what, str(error)))
        self.some.set()


@pytest.fixture(autouse=True)
async def guard():
    with gives_up(GUARD):
        yield


@pytest.fixture
async def client(api: Any) -> Client:
    found: Client = await api.client()
    return found


@pytest.fixture
def read(api: Any, client: Client) -> Callable[[], Awaitable[Any]]:
    async def secret() -> Any:
        return msgspec.json.decode(await client.get(api.path("secrets", SECRET)))

    return secret


@pytest.fixture
def quota(api: Any, client: Client) -> Callable[[int], Awaitable[None]]:
    """``await quota(0)`` and no Secret can be made in the namespace; ``await quota(9)`` and some can."""
    secrets, quotas = api.path("secrets"), api.path("resourcequotas")

    async def fake(allowed: int) -> None:
        if allowed:
            del api.fake.broken[secrets]
        else:
            api.fake.broken[secrets] = Refused(403, "Forbidden", "exceeded quota: few")

    async def real(allowed: int) -> None:
        if not allowed:
            await client.create(quotas, {"metadata": {"name": "few"}, "spec": {"hard": {"secrets": "9"}}})
        # What a controller does that the tests' server does not have.
        status = {"hard": {"secrets": str(allowed)}, "used": {"secrets": "0"}}
        await client.patch(f"{quotas}/few/status", {"status": status})
        await heeded(allowed)

    async def heeded(allowed: int) -> None:
        """The server sees it a moment later than we."""
        probe = {"metadata": {"name": "probe"}}
        while True:
            try:
                await client.create(secrets, probe)
            except ApiRefused:
                if not allowed:
                    return
            else:
                await client.delete(f"{secrets}/probe")
                if allowed:
                    return
            await asyncio.sleep(0.05)

    return real if api.fake is None else fake


def keys_in(secret: Any) -> Keys:
    return parse(b64decode(secret["data"][ENTRY]), SECRET)


async def test_where_there_is_no_key_one_is_made_as_keygen_makes_them(api, client, read):
    failures = Failures()
    await make_key(client, api.namespace, failures)
    secret = await read()
    assert len(keys_in(secret).signing.secret) == MIN_SECRET
    assert keys_in(secret).other is None
    assert (secret["type"], list(secret["data"])) == ("Opaque", [ENTRY])
    assert failures.told == []


async def test_a_key_that_is_there_stays_as_it_is_and_is_not_asked_for(api, client, read):
    theirs = {"metadata": {"name": SECRET}, "stringData": {ENTRY: "whatever they made"}}
    await client.create(api.path("secrets"), theirs)
    before, failures = await read(), Failures()
    await make_key(client, api.namespace, failures)
    assert await read() == before
    assert failures.told == []
    if api.fake is not None:
        ours = [(method, path) for method, path, _ in api.fake.requests if "secrets" in path][2:-1]
        assert ours == [("POST", api.path("secrets"))]


async def test_of_many_who_try_at_once_one_makes_it(api, client, read):
    failures = Failures()
    others = [await api.client() for _ in range(4)]
    await asyncio.gather(*(make_key(each, api.namespace, failures) for each in (client, *others)))
    secret = await read()
    assert keys_in(secret)
    await make_key(client, api.namespace, failures)
    assert await read() == secret
    assert failures.told == []


async def test_one_that_may_not_be_made_is_told_and_tried_again(api, client, read, quota):
    await quota(0)
    failures = Failures()
    making = asyncio.create_task(make_key(client, api.namespace, failures))
    await failures.some.wait()
    assert not making.done()
    await quota(9)
    await making
    content = (await read())["data"][ENTRY]
    for what, words in failures.told:
        assert what == api.path("secrets", SECRET)
        assert "403 Forbidden" in words
        assert "quota" in words
        assert content not in words
        assert b64decode(content).decode().strip() not in words


async def test_an_api_that_is_away_is_waited_for(api, client, read):
    await api.stop()
    failures = Failures()
    making = asyncio.create_task(make_key(client, api.namespace, failures))
    await failures.some.wait()
    await api.start()
    await making
    assert keys_in(await read())
