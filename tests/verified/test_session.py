"""The session Lease: this life of the node lives for as long as somebody answers in time, and a new life takes it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from guarded import gives_up

from speaker.agent.record import life_of
from speaker.agent.session import Pace, Session
from speaker.api.records import FORWARDER, MISSES, LeaseObject
from speaker.cluster.client import Client
from speaker.errors import ApiUnreachable, EdgeError
from speaker.ownership.hello import Incarnation

LEASES = "/apis/coordination.k8s.io/v1"
GUARD = 60.0
"""Seconds; against a hang."""
FIRST, SECOND, THIRD = Incarnation(7 << 31), Incarnation(8 << 31), Incarnation(9 << 31)
SOON, NEVER = 0.02, 1000.0
"""Seconds to the next renewal: in no time; not in this test."""
PATIENT = 30.0
"""Seconds for an answer that nothing here needs."""


class Running:
    """A session and all it says, in order: a version, or of a failure whether there was no answer at all."""

    def __init__(self, client: Client, namespace: str, renew: float, deadline: float) -> None:
        self.forwarder: str | None = None
        self.said: asyncio.Queue[int | bool] = asyncio.Queue()
        self.told: list[EdgeError | None] = []
        self.others: list[Incarnation] = []
        self.saw: list[int] = []
        self.renewed_at: list[float] = []
        self.session = Session(
            client,
            namespace,
            "n1",
            Pace(6.0, renew, deadline),
            SimpleNamespace(renewed=self._renewed, lost=self.said.put_nowait, tells=lambda _: self.told.append),
            SimpleNamespace(saw_lease=self.saw.append, saw_other=self.others.append),
            lambda: self.forwarder,
        )
        self.task = asyncio.create_task(self.session.run(), name="session")

    def _renewed(self, version: int) -> None:
        self.renewed_at.append(asyncio.get_running_loop().time())
        self.said.put_nowait(version)

    async def renewed(self) -> int:
        """The version of the next renewal; nothing may have failed before it."""
        version = await self.said.get()
        assert not isinstance(version, bool), self.told
        return version

    async def failed(self) -> bool:
        """Whether there was no answer; nothing may have been renewed before it."""
        dead = await self.said.get()
        assert isinstance(dead, bool)
        return dead

    async def recovered(self) -> int:
        while isinstance(version := await self.said.get(), bool):
            pass
        return version

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait((self.task,))
        assert self.task.cancelled()


@pytest.fixture(autouse=True)
async def guard() -> AsyncIterator[None]:
    with gives_up(GUARD):
        yield


@pytest.fixture
async def begin(api: Any) -> AsyncIterator[Callable[..., Awaitable[Running]]]:
    """``await begin()`` is a session that runs, for a life that is yet to be told; ``relay``: by way of it."""
    made: list[Running] = []

    async def session(relay: Any = None, *, renew: float = NEVER, deadline: float = PATIENT) -> Running:
        made.append(running := Running(await api.client(relay), api.namespace, renew, deadline))
        return running

    yield session
    await api.thaw()
    for running in made:
        await running.end()


@pytest.fixture
async def admin(api: Any) -> Client:
    client: Client = await api.client()
    return client


@pytest.fixture
def read(api: Any, admin: Client) -> Callable[[], Awaitable[Any]]:
    async def lease() -> Any:
        return msgspec.json.decode(await admin.get(api.path("leases", "n1", LEASES)))

    return lease


async def test_a_life_makes_the_nodes_lease_and_others_can_read_whose_it_is(begin, read):
    running = await begin()
    running.session.live(FIRST)
    version = await running.renewed()
    lease = await read()
    assert int(lease["metadata"]["resourceVersion"]) == version
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseDurationSeconds"]) == (f"n1_{FIRST}", 6)
    assert life_of(msgspec.convert(lease, LeaseObject)) == FIRST
    assert "ownerReferences" not in lease["metadata"]
    assert running.told == [None]


async def test_without_a_life_nothing_is_written(api, begin, admin):
    running = await begin(renew=SOON)
    found = msgspec.json.decode(await admin.get(api.path("leases", api=LEASES)))["items"]
    assert (found, running.said.empty()) == ([], True)


async def test_it_is_renewed_over_and_over_and_each_renewal_is_another_version(begin, read):
    running = await begin(renew=SOON)
    running.session.live(FIRST)
    first = await running.renewed()
    before = (await read())["spec"]["renewTime"]
    versions = [await running.renewed() for _ in range(5)]
    assert versions == sorted({first, *versions} - {first})
    lease = await read()
    assert lease["spec"]["renewTime"] > before
    assert lease["spec"]["holderIdentity"] == f"n1_{FIRST}"


async def test_who_lost_its_name_to_another_host_leaves_the_lease_to_that_one_until_it_lives_again(begin, read):
    loser, winner = await begin(renew=SOON), await begin(renew=SOON)
    loser.session.live(FIRST)
    await loser.renewed()
    loser.session.live(None)
    winner.session.live(SECOND)
    for _ in range(5):  # one of the loser's may have been on its way
        await winner.renewed()
    while not loser.said.empty():
        loser.said.get_nowait()
    for _ in range(5):
        await winner.renewed()
    assert loser.said.empty()
    assert (await read())["spec"]["holderIdentity"] == f"n1_{SECOND}"
    loser.session.live(THIRD)
    await loser.renewed()


async def test_a_new_life_is_written_at_once(begin, read):
    running = await begin(renew=NEVER)
    running.session.live(FIRST)
    first = await running.renewed()
    running.session.live(SECOND)
    assert await running.renewed() > first
    assert (await read())["spec"]["holderIdentity"] == f"n1_{SECOND}"


async def test_a_process_that_starts_takes_the_lease_from_the_one_before_without_asking(begin, read):
    former = await begin()
    former.session.live(FIRST)
    await former.renewed()
    new = await begin()
    new.session.live(SECOND)
    await new.renewed()
    assert (await read())["spec"]["holderIdentity"] == f"n1_{SECOND}"


async def test_whoever_else_writes_the_lease_is_told_of_at_the_next_renewal_and_written_over(begin, read):
    running, other = await begin(renew=NEVER), await begin(renew=NEVER)
    running.session.live(FIRST)
    await running.renewed()
    running.session.live(FIRST)
    await running.renewed()
    assert running.others == []
    other.session.live(SECOND)
    await other.renewed()
    running.session.live(FIRST)
    await running.renewed()
    assert (running.others, other.others) == ([SECOND], [])
    assert (await read())["spec"]["holderIdentity"] == f"n1_{FIRST}"


async def test_it_is_renewed_at_once_when_there_is_a_doubt(begin):
    running = await begin(renew=NEVER)
    running.session.live(FIRST)
    first = await running.renewed()
    running.session.hurry()
    assert await running.renewed() > first


async def test_a_node_of_several_lives_renews_no_more_often_than_one_of_one(begin):
    renew = 1.0
    running = await begin(renew=renew)
    running.session.live(FIRST)
    await running.renewed()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(running.renewed(), renew / 2)
    running.session.live(SECOND)
    for _ in range(2):
        await running.renewed()
    first, second = running.renewed_at[-2:]
    assert second - first >= renew * 0.9  # however busy the machine: a pause begins when a renewal has ended


async def test_a_lease_that_somebody_deleted_is_made_again(api, begin, read, admin):
    running = await begin(renew=NEVER)
    running.session.live(FIRST)
    await running.renewed()
    former = (await read())["metadata"]["uid"]
    await admin.delete(api.path("leases", "n1", LEASES))
    running.session.live(SECOND)
    await running.renewed()
    lease = await read()
    assert lease["metadata"]["uid"] != former
    assert lease["spec"]["holderIdentity"] == f"n1_{SECOND}"


async def test_once_the_node_object_is_known_the_lease_goes_with_it(begin, read):
    running = await begin(renew=NEVER)
    running.session.live(FIRST)
    await running.renewed()
    running.session.owner = "5f1cd1d2-0000-4000-8000-000000000001"
    running.session.live(FIRST)
    await running.renewed()
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "5f1cd1d2-0000-4000-8000-000000000001"}
    assert (await read())["metadata"]["ownerReferences"] == [owner]


async def test_a_lease_that_is_made_when_the_node_object_is_known_goes_with_it_as_well(begin, read):
    running = await begin()
    running.session.owner = "5f1cd1d2-0000-4000-8000-000000000001"
    running.session.live(FIRST)
    await running.renewed()
    assert [each["uid"] for each in (await read())["metadata"]["ownerReferences"]] == [running.session.owner]


async def test_whom_a_node_misses_is_on_record_at_once_and_goes_with_the_next_renewal_that_misses_nobody(begin, read):
    running = await begin(renew=NEVER)
    running.session.live(FIRST)
    await running.renewed()
    metadata = (await read())["metadata"]
    assert MISSES not in {**metadata.get("labels", {}), **metadata.get("annotations", {})}
    running.session.misses({"n3", "n2"})
    await running.renewed()
    metadata = (await read())["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({MISSES: "true"}, {MISSES: "n2,n3"})
    successor = await begin(renew=NEVER)
    successor.session.live(SECOND)
    await successor.renewed()
    metadata = (await read())["metadata"]
    assert MISSES not in {**metadata.get("labels", {}), **metadata.get("annotations", {})}


# ── Failures ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_answer_that_is_late_is_a_failure_before_it_comes_and_no_proof_of_death(api, begin):
    relay = await api.relay()
    running = await begin(relay, renew=SOON, deadline=0.3)
    running.session.live(FIRST)
    first = await running.recovered()
    relay.hold()
    # What was answered before stands in the queue.
    while (said := await running.said.get()) is not False:
        assert not isinstance(said, bool)
    assert isinstance(running.told[-1], EdgeError)
    assert not isinstance(running.told[-1], ApiUnreachable)
    assert "took longer than 0.3 s" in str(running.told[-1])
    assert running.said.empty()  # told once, while it is waited for
    relay.resume()
    assert await running.recovered() > first
    assert running.told[-1] is None


async def test_an_answer_that_is_late_is_not_counted_as_a_renewal_when_it_comes(api, begin, read):
    relay = await api.relay()
    running = await begin(relay, renew=NEVER, deadline=1.0)
    relay.hold()
    running.session.live(FIRST)
    assert await running.failed() is False
    relay.resume()
    running.session.live(SECOND)
    version = await running.renewed()
    lease = await read()
    # Were the late one counted, its version would have come first.
    assert (lease["spec"]["holderIdentity"], int(lease["metadata"]["resourceVersion"])) == (f"n1_{SECOND}", version)
    assert running.said.empty()


async def test_no_answer_at_all_is_a_failure_of_another_kind(api, begin):
    relay = await api.relay()
    running = await begin(relay, renew=SOON)
    await relay.refuse()
    running.session.live(FIRST)
    assert [await running.failed() for _ in range(3)] == [True] * 3
    assert all(isinstance(error, ApiUnreachable) for error in running.told)
    await relay.accept()
    await running.recovered()
    assert running.told[-1] is None


async def test_of_a_frozen_api_the_delay_is_told_first_and_its_death_when_nothing_comes(api, begin):
    running = await begin(renew=SOON, deadline=0.3)
    running.session.live(FIRST)
    await running.recovered()
    await api.freeze()
    told = []
    while True not in told:
        told.append(await running.said.get())
    assert [each for each in told if isinstance(each, bool)][-2:] == [False, True]
    assert isinstance(running.told[-1], ApiUnreachable)
    await api.thaw()
    await running.recovered()


async def test_a_connection_that_breaks_in_the_middle_is_taken_up_again(api, begin, read):
    relay = await api.relay()
    running = await begin(relay, renew=SOON)
    running.session.live(FIRST)
    await running.renewed()
    relay.cut_after(20)
    while not isinstance(said := await running.said.get(), bool):
        pass
    assert said is True
    version = await running.recovered()
    assert int((await read())["metadata"]["resourceVersion"]) >= version


async def test_a_session_that_is_ended_in_the_middle_of_a_renewal_ends(api, begin):
    relay = await api.relay()
    running = await begin(relay)
    relay.hold()
    running.session.live(FIRST)
    while not relay.connections:  # noqa: ASYNC110 -- the relay tells nobody
        await asyncio.sleep(0)
    await running.end()
    assert running.said.empty()


async def test_a_lease_says_what_its_node_forwards_with_once_that_is_known(api, begin, read):
    running = await begin(renew=SOON)
    running.forwarder = "none"
    running.session.live(FIRST)
    await running.renewed()
    assert (await read())["metadata"]["labels"] == {FORWARDER: "none"}
    running.forwarder = None  # another life, which is not ready yet
    running.session.live(SECOND)
    for _ in range(2):
        await running.renewed()
    assert (await read())["metadata"]["labels"] == {FORWARDER: "none"}
    running.forwarder = "ipvs"
    for _ in range(2):
        await running.renewed()
    assert (await read())["metadata"]["labels"] == {FORWARDER: "ipvs"}


# ── Other data in the place of the server's ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("api", ["fake"], indirect=True)  # a real one would lose what other tests made
@pytest.mark.parametrize("written_since", [0, 100])
@pytest.mark.parametrize("had_lease", [True, False])
async def test_after_a_restore_the_lease_is_seen_to_have_gone_back(api, begin, written_since, had_lease):
    fake, relay = api.fake, await api.relay()
    running = await begin(relay, renew=SOON)
    backup = fake.revision
    running.session.live(FIRST)
    await running.renewed()
    if had_lease:
        backup = fake.revision
        await running.renewed()
    await relay.refuse()  # as of a server that is restored: no renewal's outcome is known
    while await running.said.get() is not True:
        pass
    newest = fake.revision
    fake.restore(backup)
    fake.revision += written_since
    seen = len(running.saw)
    await relay.accept()
    await running.recovered()
    assert running.saw[seen] == (backup if had_lease else 0)
    assert running.saw[seen - 1] <= newest
    assert running.saw[seen - 1] > running.saw[seen]
    assert [after > before for before, after in zip(running.saw[seen:], running.saw[seen + 1 :], strict=False)]


async def test_a_renewal_whose_answer_was_lost_is_no_sign_of_other_data(api, begin):
    relay = await api.relay()
    running = await begin(relay, renew=SOON)
    running.session.live(FIRST)
    for _ in range(3):
        await running.recovered()
        relay.cut_after(20)  # in the answer: the write was carried out
        while await running.said.get() is not True:
            pass
    await running.recovered()
    assert running.saw == sorted(running.saw)
    assert 0 not in running.saw
