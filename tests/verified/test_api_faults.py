"""What a server says when it is unwell: the reflector asks again, later each time, and never in a circle."""

import pytest
from fake_api import FakeApi, Refused

from speaker.cluster.reflector import Mirrors, Patience
from speaker.errors import ApiRefused

# A healthy API server cannot be told to fail like this.
pytestmark = pytest.mark.parametrize("api", ["fake"], indirect=True)


@pytest.fixture
def fake(api) -> FakeApi:
    return api.fake


def watches(fake: FakeApi) -> int:
    return sum(query.get("watch") == "true" for _, _, query in fake.requests)


@pytest.mark.parametrize(
    "refusal",
    [
        Refused(500, "InternalError"),
        Refused(503, "ServiceUnavailable"),
        Refused(429, "TooManyRequests"),
        Refused(401, "Unauthorized"),
        Refused(403, "Forbidden"),
        Refused(410, "Expired"),
    ],
    ids=lambda refusal: refusal.reason,
)
async def test_a_refused_list_is_asked_for_again(api, fake, mirror, maps, refusal):
    await maps.create("a")
    fake.refuse(*[refusal] * 5)
    seen = await mirror(await api.client())
    assert seen.names() == {"a"}
    assert [error.code for error in seen.errors] == [refusal.code] * 5
    assert watches(fake) == 6


async def test_it_waits_as_long_as_it_is_told_to(api, fake, mirror, maps):
    fake.refuse(Refused(429, "TooManyRequests", retry_after=1))
    seen = await mirror(await api.client())
    assert [error.retry_after for error in seen.errors] == [1.0]


@pytest.mark.parametrize(
    ("line", "lists"),
    [
        (b'{"type":"ERROR","object":{"kind":"Status","code":500,"reason":"InternalError"}}', 1),
        (b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}', 2),
        (b'{"type":"ERROR","object":{"code":504,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}}', 2),
        (b'{"type":"ERROR","object":{}}', 1),
        (b'{"type":"ADDED","object":{"metadata":', 1),
        (b'{"type":"ADDED","object":{"metadata":null}}', 1),
        (b"<html>502 Bad Gateway</html>", 1),
        (b"", 1),
        (b"\xff\xfe", 1),
    ],
)
async def test_whatever_a_watch_says_the_mirror_is_right_afterwards(api, fake, mirror, maps, line, lists):
    await maps.create("a")
    seen = await mirror(await api.client())
    await maps.create("b")
    await seen.until_names({"a", "b"})
    fake.say(line)
    await maps.delete("a")
    await maps.create("c")
    await seen.until_names({"b", "c"})
    assert seen.reflector.lists == lists
    assert seen.errors or seen.reflector.set_aside


async def test_what_a_watch_says_before_it_fails_is_told_at_once(api, fake, mirror, maps):
    fake.bookmark_every = 1000.0
    seen = await mirror(await api.client())
    event = b'{"type":"ADDED","object":{"metadata":{"name":"a","uid":"1","resourceVersion":"2000"}}}'
    fake.say(event + b"\nno event")
    await seen.until(lambda: seen.changes)
    assert seen.changes[0].key.name == "a"


async def test_an_event_of_a_kind_to_come_is_passed_over(api, fake, mirror, maps):
    seen = await mirror(await api.client())
    fake.say(b'{"type":"HEARTBEAT","object":{"at":1}}')
    await maps.create("a")
    await seen.until_names({"a"})
    assert not seen.errors


async def test_a_watch_cut_in_the_middle_of_an_object_goes_on_where_it_was(api, fake, mirror, maps):
    seen = await mirror(await api.client())
    for name in "abcd":
        await maps.create(name)
        await seen.until(lambda name=name: name in seen.names())
        fake.cut_watches()
    await maps.create("e")
    await seen.until_names("abcde")
    assert seen.reflector.lists == 1
    assert not any(isinstance(error, ApiRefused) for error in seen.errors)


async def test_a_history_that_is_always_too_short_is_outlasted(api, fake, mirror, maps):
    fake.streams_lists = False
    await maps.create("a")
    fake.refuse(None, *[None, Refused(410, "Expired")] * 4)  # a streamed list; then a page and a watch each time
    seen = await mirror(await api.client())
    await seen.until(lambda: len(seen.errors) == 5)
    await maps.create("b")
    await seen.until_names("ab")
    assert [error.code for error in seen.errors] == [422, *[410] * 4]
    assert seen.reflector.lists == 5


async def test_an_api_restored_from_an_older_backup_is_believed(api, fake, mirror, maps):
    await maps.create("old")
    backup = fake.revision
    for name in "abcdefgh":
        await maps.create(name)
    seen = await mirror(await api.client(), patience=Patience(silence=1.0, backoff=0.02, backoff_limit=0.2))
    begun = len(fake.requests)
    fake.restore(backup)
    await maps.create("new")  # at a version that was another's: a watch from before says nothing of it
    await seen.until_names({"old", "new"})
    resumed = [query for _, _, query in fake.requests[begun:] if "watch" in query and query.get("resourceVersion")]
    assert resumed == [], "a watch that would stay silent is not even tried"
    assert (seen.mirrors.noticed, seen.restored) == (1, [False, True])


async def test_a_watch_that_a_restored_api_overtook_is_begun_anew_when_the_lease_went_back(api, fake, mirror, maps):
    await maps.create("old")
    backup = fake.revision
    await maps.create("lost")
    seen = await mirror(await api.client())
    mirrors = Mirrors()
    mirrors.add(seen.reflector)
    mirrors.saw_lease(fake.revision)
    fake.restore(backup)
    fake.revision += 100  # others wrote that much before this one looked
    await maps.create("new")
    await seen.until(lambda: "new" in seen.names())
    assert "lost" in seen.names(), "nothing told of it"
    mirrors.saw_lease(backup)
    await seen.until_names({"old", "new"})
    assert (seen.mirrors.noticed, seen.restored) == (0, [False, True])
