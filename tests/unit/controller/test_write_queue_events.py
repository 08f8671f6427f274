"""How often the queue writes one object, and how many Events about it."""

import asyncio

import pytest

from speaker.api.kinds import FullMetadata
from speaker.controller.wanted import Event, Write
from speaker.controller.write_queue import (
    CROWDED_SECONDS,
    EVENT_TRIES,
    EVENTS,
    JOIN_SECONDS,
    WORKERS,
    WRITE_SECONDS,
    WRITES,
    WriteQueue,
)
from speaker.errors import ApiRefused, EdgeError


class NoBugs:
    """Hears of failures, and of bugs where there are none."""

    def __init__(self, failures=None):
        self.failures = failures

    def failed(self, what, error):
        if self.failures is None:
            pytest.fail(f"{what}: {error}")
        self.failures.append(error)

    def internal_error(self, task, error):
        pytest.fail(f"{task}: {error!r}")


class Api:
    """Takes everything; ``news`` is set by each write."""

    def __init__(self):
        self.events, self.said, self.patched, self.news = [], [], 0, asyncio.Event()

    async def create(self, path, body, *, within):
        self.events.append(body["involvedObject"]["name"])
        self.said.append((body["reason"], body["message"]))
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
    queue = WriteQueue(api, lambda: 10.0, NoBugs())
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


@pytest.mark.parametrize("seconds", [0.01, WRITE_SECONDS])
def test_what_another_writes_anew_each_time_is_put_right_as_often_as_may_be_and_holds_up_nothing(
    seconds, in_virtual_time
):
    lasts = 60.0

    async def rivalry():
        api, loop = Api(), asyncio.get_running_loop()
        queue = WriteQueue(api, lambda: 10.0, NoBugs())
        working = asyncio.create_task(queue.run())
        versions = iter(range(10**6))
        while loop.time() < lasts:
            await queue.want(write("web", next(versions)))  # the rival's word is heard
            await asyncio.sleep(seconds)
            await queue.want(dict.fromkeys(write("web", 0)))  # and then ours, if it was written
        rivals, api.patched = api.patched, 0
        await queue.want(write("api", 0))
        await asyncio.sleep(0.001)
        working.cancel()
        await asyncio.wait([working])
        return rivals, api.patched

    written, others = in_virtual_time(rivalry())
    assert 0.9 * lasts / WRITE_SECONDS <= written <= WRITES + lasts / WRITE_SECONDS + 1
    assert others == 1


ASSIGNED = ("Assigned", "192.0.2.10 from pool lan")
ANNOUNCED = ("Announced", "192.0.2.10 is announced by n1 on eth0")
BOTH = ("Announced", "192.0.2.10 is announced by n1 on eth0 (192.0.2.10 from pool lan)")
RELEASED = ("Released", "192.0.2.10")
SOON, LATE = JOIN_SECONDS / 2, JOIN_SECONDS * 2
TOLD = {
    "who announces it is told with the address": ([(ASSIGNED, 0), (ANNOUNCED, SOON)], [BOTH]),
    "what nobody announces in time is told by itself": ([(ASSIGNED, 0), (ANNOUNCED, LATE)], [ASSIGNED, ANNOUNCED]),
    "what nobody announces at all, too": ([(ASSIGNED, 0)], [ASSIGNED]),
    "nothing overtakes it": ([(ASSIGNED, 0), (RELEASED, SOON), (ANNOUNCED, SOON)], [ASSIGNED, RELEASED, ANNOUNCED]),
    "a second address is told after it": (
        [(ASSIGNED, 0), (ANNOUNCED, SOON), (("Announced", "2001:db8::10"), SOON)],
        [BOTH, ("Announced", "2001:db8::10")],
    ),
    "a new one does not swallow it": ([(ASSIGNED, 0), (ASSIGNED, SOON), (ANNOUNCED, SOON)], [ASSIGNED, BOTH]),
    "who moves is told as ever": ([(("Moved", "to n2"), 0)], [("Moved", "to n2")]),
}


@pytest.mark.parametrize("case", TOLD)
def test_the_first_holder_of_an_address_is_one_event_with_it(case, in_virtual_time):
    happened, wanted = TOLD[case]
    assert in_virtual_time(telling(happened)) == wanted


def test_of_another_service_it_waits_for_nothing(in_virtual_time):
    of_others = ("Announced", "192.0.2.11 is announced by n1")
    assert in_virtual_time(telling([(ASSIGNED, 0), (of_others, SOON)], other=of_others)) == [of_others, ASSIGNED]


async def telling(happened, other=None):
    """What is written of these Events (reason, message) about one Service, ``other`` about another, with the seconds
    at which they came to pass."""
    api, logged, loop = Api(), [], asyncio.get_running_loop()
    queue = WriteQueue(api, lambda: 10.0, NoBugs(), logged.append)
    working = asyncio.create_task(queue.run())
    for version, (each, at) in enumerate(happened):
        await asyncio.sleep(at - loop.time())
        about = about_it("other" if each == other else "web", version)
        queue.tell(Event("Service", about, "Normal", *each, "2026-01-01"))
    await asyncio.sleep(2 * LATE)
    working.cancel()
    await asyncio.wait([working])
    assert [(event.reason, event.message) for event in logged] == [each for each, _ in happened], "logged at once"
    return api.said


def test_in_a_crowd_the_address_waits_longer_for_who_announces_it_and_not_for_ever(in_virtual_time):
    told_alone = {
        number: in_virtual_time(crowd(number, announced_after=CROWDED_SECONDS / 2)) for number in (WORKERS, WORKERS + 1)
    }
    assert told_alone == {WORKERS: WORKERS, WORKERS + 1: 0}
    assert in_virtual_time(crowd(WORKERS + 1, announced_after=2 * CROWDED_SECONDS)) == WORKERS + 1
    for others in ({"soon": WORKERS - 1}, {"at_once": WORKERS}):
        assert in_virtual_time(crowd(WORKERS + 1, announced_after=CROWDED_SECONDS / 2, **others)) == 0


@pytest.mark.parametrize(("of_the_second", "are_told_alone"), [(0.9, 0), (1.2, WORKERS + 1)])
def test_a_crowd_is_more_than_so_many_in_a_second(of_the_second, are_told_alone, in_virtual_time):
    every = of_the_second * JOIN_SECONDS / WORKERS
    said = in_virtual_time(stream(WORKERS + 1, every, seconds=CROWDED_SECONDS / 2))
    assert len(said) == are_told_alone


def test_in_a_crowd_without_end_none_waits_for_ever(in_virtual_time):
    said = in_virtual_time(stream(1000, every=0.05, seconds=50.0))
    assert min(said) <= CROWDED_SECONDS + JOIN_SECONDS


async def stream(number, every, seconds):
    """So many Services are assigned, one ``every`` so many seconds, and nobody announces them: when each was told of,
    until ``seconds``, all from the first on."""
    api, loop = Api(), asyncio.get_running_loop()
    queue = WriteQueue(api, lambda: 10.0, NoBugs())
    working, begun, said = asyncio.create_task(queue.run()), loop.time(), []

    async def create(path, body, *, within):
        said.append(loop.time() - begun)

    api.create = create
    for at in range(number):
        queue.tell(Event("Service", about_it(f"web-{at}", 1), "Normal", *ASSIGNED, "2026-01-01"))
        await asyncio.sleep(every)
    await asyncio.sleep(begun + seconds - loop.time())
    working.cancel()
    await asyncio.wait([working])
    return said


async def crowd(number, announced_after, soon=0, at_once=0):
    """So many Services are assigned, one right after the other, and announced later, but for those that are ``soon``,
    or ``at_once``, before the next is assigned: of how many that was told apart."""
    api = Api()
    queue = WriteQueue(api, lambda: 10.0, NoBugs())
    working = asyncio.create_task(queue.run())
    services = [about_it(f"web-{at}", 1) for at in range(number)]

    def tell(reason, those):
        for about in those:
            queue.tell(Event("Service", about, "Normal", reason, reason, "2026-01-01"))

    for about in services[:at_once]:
        tell("Assigned", [about])
        tell("Announced", [about])
    rest = services[at_once:]
    tell("Assigned", rest)
    await asyncio.sleep(SOON)
    tell("Announced", rest[:soon])
    await asyncio.sleep(announced_after - SOON)
    tell("Announced", rest[soon:])
    await asyncio.sleep(LATE)
    working.cancel()
    await asyncio.wait([working])
    return [reason for reason, _ in api.said].count("Assigned")


AWAY = EdgeError("nobody listens there")
FINAL = "AlreadyExists", "no such namespace"
"""Answers that are no failure."""
REFUSALS = {
    "the API is away for a moment": ([AWAY] * 5, 6, True),
    "it has too much to do": ([ApiRefused(429, "TooManyRequests", "later", retry_after=3.0)] * 2, 3, True),
    "it has no storage": ([ApiRefused(500, "InternalError", "etcd")], 2, True),
    "it stays away": ([AWAY] * 10**3, EVENT_TRIES, False),
    "it forbids that": ([ApiRefused(403, "Forbidden", "no")], 1, False),
    "it does not serve Events just now": ([ApiRefused(404, "", "")] * 2, 3, True),
    "their namespace is gone": ([ApiRefused(404, "NotFound", "no such namespace")], 1, False),
    "another leader told it": ([ApiRefused(409, "AlreadyExists", "there")], 1, False),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_an_event_that_cannot_be_told_is_told_later_and_holds_up_no_other(case, in_virtual_time):
    errors, tries, is_told = REFUSALS[case]
    tried, others, told, heard_of = in_virtual_time(telling_in_vain(errors))
    assert (tried, others, told) == (tries, WORKERS + 1, is_told)
    assert heard_of == [error for error in errors[:tries] if not any(words in str(error) for words in FINAL)]


async def telling_in_vain(errors):
    """How often an Event was tried whose object draws these errors, one a try; how many of as many others as there are
    workers and one were told within a moment; whether it was told in the end; and the failures that were heard of."""
    errors, failures, api, tried = iter(errors), [], Api(), []

    async def create(path, body, *, within):
        if body["involvedObject"]["name"] == "web":
            tried.append(body["metadata"]["name"])
            if (error := next(errors, None)) is not None:
                raise error
        await Api.create(api, path, body, within=within)

    api.create = create
    queue = WriteQueue(api, lambda: 10.0, NoBugs(failures))
    working = asyncio.create_task(queue.run())
    for name in ("web", *(f"other-{at}" for at in range(WORKERS + 1))):
        queue.tell(Event("Service", about_it(name, 1), "Warning", "FailedOver", "to n2", "2026-01-01"))
    await asyncio.sleep(0.001)
    others = len(api.events) - api.events.count("web")
    await asyncio.sleep(1000)
    working.cancel()
    await asyncio.wait([working])
    assert len(set(tried)) == 1, "by one name"
    return len(tried), others, "web" in api.events, failures
