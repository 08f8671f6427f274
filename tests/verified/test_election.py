"""At most one leads, somebody always will, and a Lease is what kubectl expects: with the fake and the real API."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from guarded import gives_up

from speaker.cluster.lease import Deposed, Election, Leadership, LeaseName, Timing
from speaker.errors import EdgeError

LEASES = "/apis/coordination.k8s.io/v1"
QUICK = Timing(duration=1, renew_within=0.7, retry=0.1, request=0.6)
"""Where a leader is to lose what it has: so does one whose machine stands still for a second."""
LONG = Timing(duration=60, renew_within=50, retry=0.1, request=40)
GUARD = 60.0


class Candidate:
    """One that leads in earnest: it says when it works, and when it has stopped."""

    def __init__(self, client: Any, lease: LeaseName, identity: str, events: list[str], timing: Timing) -> None:
        self.errors: list[EdgeError] = []
        self.election = Election(client, lease, identity, timing, told=self.errors.append)
        self.terms: list[int] = []
        self._identity, self._events = identity, events
        self.working = asyncio.Event()
        self.stopped = asyncio.Event()
        self.task: asyncio.Task[None]

    async def work(self, leadership: Leadership) -> None:
        self._events.append(f"{self._identity} begins")
        self.terms.append(leadership.term)
        self.stopped.clear()
        self.working.set()
        try:
            await asyncio.Event().wait()
        finally:
            self._events.append(f"{self._identity} ends")
            self.working.clear()
            self.stopped.set()

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@pytest.fixture
def lease(api) -> LeaseName:
    return LeaseName(api.namespace, "controller")


@pytest.fixture
async def read(api) -> Callable[[], Awaitable[Any]]:
    client = await api.client()

    async def now() -> Any:
        return msgspec.json.decode(await client.get(api.path("leases", "controller", LEASES)))

    return now


@pytest.fixture
async def stand(api, lease):
    """``await stand("a")`` is a candidate that runs; ``stand.events`` what all of them did."""
    made: list[Candidate] = []

    async def candidate(identity: str, client: Any = None, timing: Timing = LONG) -> Candidate:
        made.append(found := Candidate(client or await api.client(), lease, identity, candidate.events, timing))
        found.task = asyncio.create_task(found.election.lead(found.work), name=identity)
        return found

    candidate.events = []
    yield candidate
    await api.thaw()
    for found in made:
        await found.stop()


@pytest.fixture(autouse=True)
async def guard():
    with gives_up(GUARD):
        yield


async def test_the_first_makes_the_lease_and_leads(stand, read):
    first = await stand("a")
    await first.working.wait()
    assert first.terms == [0]
    assert first.election.fence() <= LONG.renew_within
    spec = (await read())["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", LONG.duration, 0)
    assert spec["acquireTime"] <= spec["renewTime"]


async def test_who_stops_lets_the_next_one_follow(stand, read):
    first = await stand("a")
    await first.working.wait()
    second = await stand("b")
    await first.stop()
    await second.working.wait()
    assert stand.events == ["a begins", "a ends", "b begins"]
    assert second.terms == [1]
    with pytest.raises(Deposed):
        first.election.fence()
    assert (await read())["spec"]["holderIdentity"] == "b"


async def test_who_gives_back_leaves_a_lease_without_a_holder(stand, read):
    first = await stand("a")
    await first.working.wait()
    await first.stop()
    spec = (await read())["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("", 1)


async def test_who_gives_back_first_finds_out_what_changed(api, stand, read):
    first = await stand("a")
    await first.working.wait()
    await (await api.client()).patch(api.path("leases", "controller", LEASES), {"metadata": {"labels": {"a": "b"}}})
    await first.stop()
    assert (await read())["spec"]["holderIdentity"] == ""


async def test_who_is_cut_off_stops_before_another_begins(api, stand):
    relay = await api.relay()
    first = await stand("a", await api.client(relay), QUICK)
    await first.working.wait()
    second = await stand("b", timing=QUICK)
    relay.hold()
    await second.working.wait()
    assert stand.events == ["a begins", "a ends", "b begins"]
    assert second.terms == [1]
    relay.resume()


async def test_a_frozen_api_ends_the_work_and_a_thawed_one_resumes_it(api, stand):
    first = await stand("a", timing=QUICK)
    await first.working.wait()
    await api.freeze()
    await first.stopped.wait()
    assert first.election.leadership is None
    await api.thaw()
    await first.working.wait()


async def test_an_api_that_is_killed_and_comes_back_finds_the_leader_it_had(api, stand):
    first = await stand("a", timing=QUICK)
    await first.working.wait()
    await api.stop()
    await first.stopped.wait()
    await api.start()
    await first.working.wait()
    assert first.terms == [0, 0]  # nobody led in between


async def test_terms_go_on_when_the_lease_is_deleted(api, stand, read):
    first = await stand("a")
    await first.working.wait()
    await (await api.client()).delete(api.path("leases", "controller", LEASES))
    await first.stopped.wait()
    await first.working.wait()
    assert first.terms == [0, 1]
    assert (await read())["spec"]["leaseTransitions"] == 1


async def test_what_others_write_into_the_lease_is_kept_and_ends_nothing(api, stand, read):
    first = await stand("a")
    await first.working.wait()
    client, path = await api.client(), api.path("leases", "controller", LEASES)
    renewed = (await read())["spec"]["renewTime"]
    for number in range(20):  # each makes the version stale that a renewal names
        await client.patch(path, {"metadata": {"annotations": {"note": str(number)}}})
    async with asyncio.timeout(GUARD):
        while (now := await read())["spec"]["renewTime"] == renewed:
            pass
    assert now["metadata"]["annotations"] == {"note": "19"}
    assert stand.events == ["a begins"]


async def test_of_many_that_start_at_once_one_leads(stand):
    candidates = [await stand(name) for name in "abcde"]
    waiting = [asyncio.create_task(one.working.wait()) for one in candidates]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    assert len(stand.events) == 1


async def test_work_that_ends_or_fails_is_not_taken_for_leading(api, lease, read):
    async def fails(_: Leadership) -> None:
        raise RuntimeError("a bug")

    election = Election(await api.client(), lease, "a", LONG)
    with pytest.raises(ExceptionGroup) as raised:
        await election.lead(fails)
    assert isinstance(raised.value.exceptions[0], RuntimeError)
    assert (await read())["spec"]["holderIdentity"] == ""  # others need not wait for it to run out
