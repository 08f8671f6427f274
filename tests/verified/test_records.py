"""The writer of the records: who may write one, what is told of those that it may not, and what people read there."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec
import pytest
from guarded import gives_up

from speaker.agent.announcements import AnnouncementWriter
from speaker.agent.record import Facts, path_of
from speaker.api.records import ANNOUNCEMENTS, AnnouncementObject
from speaker.cluster.client import Client
from speaker.errors import ApiRefused, ApiUnreachable, EdgeError
from speaker.model import IPAddress
from speaker.ownership.events import Record, WriteRecord, gone
from speaker.ownership.hello import Incarnation

CRDS = Path(__file__).parents[2] / "manifests" / "base" / "crds"
GUARD = 60.0
"""Seconds; against a hang."""
LONG = 30.0
"""A deadline that no order here reaches."""
EIP, EIP6 = ip_address("192.0.2.10"), ip_address("2001:db8::10")
LIFE, LATER = Incarnation(7 << 31), Incarnation(8 << 31)
EMPTY = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Announcement", "metadata": {"name": str(EIP)}}
"""As somebody may make one by hand."""
VACANT = Facts("", "", ("default/web",), reason="drained")
FACTS = Facts("eth0", "02:00:00:00:00:01", ("default/dns", "default/web"))


def order(holder: str | None = "n1", *, term: int = 1, expected: int = 0, eip: IPAddress = EIP) -> WriteRecord:
    return WriteRecord(eip, 1, expected, holder, LIFE, term)


@dataclass
class Writing:
    """A writer at work, and what comes of it: a reply to the wire process (what it says), or a failure."""

    writer: AnnouncementWriter
    facts: dict[IPAddress, Facts]
    outcomes: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    told: list[EdgeError | None] = field(default_factory=list)

    async def written(self, _: WriteRecord, succeeded: bool, record: Record | None) -> None:
        """As ``Wire`` has it."""
        self.outcomes.put_nowait((succeeded, record))

    def tell(self, error: EdgeError | None) -> None:
        self.told.append(error)
        if error is not None:
            self.outcomes.put_nowait(error)

    async def write(self, wanted: WriteRecord) -> Any:
        self.writer.take(wanted)
        return await self.outcomes.get()


class NoBugs:
    """A supervisor of what has none."""

    def internal_error(self, task: str, error: BaseException) -> None:
        pytest.fail(f"{task}: {error!r}")


@pytest.fixture(autouse=True)
async def guard() -> AsyncIterator[None]:
    with gives_up(GUARD):
        yield


@pytest.fixture
async def admin(api: Any) -> AsyncIterator[Client]:
    """With Announcements in the API, and none of them there."""
    client: Client = await api.client()
    if api.fake is None:
        await asyncio.to_thread(api.real.kubectl, "apply", "-k", str(CRDS))
        named = "crd/announcements.eip-speaker.io"
        await asyncio.to_thread(api.real.kubectl, "wait", "--for=condition=established", named)
    while not await _served(client):
        pass
    await _clear(client)
    yield client
    await _clear(client)


async def _served(client: Client) -> bool:
    """An established CRD's storage is still being set up: 429, or 404 from a server that is yet to hear of it."""
    try:
        await client.get(ANNOUNCEMENTS)
    except ApiRefused as error:
        if error.code not in (404, 429):
            raise
        return False
    return True


async def _clear(client: Client) -> None:
    for found in msgspec.json.decode(await client.get(ANNOUNCEMENTS))["items"]:
        await client.delete(f"{ANNOUNCEMENTS}/{found['metadata']['name']}")


@pytest.fixture
async def sit(api: Any, admin: Client) -> AsyncIterator[Callable[..., Awaitable[Writing]]]:
    """``await sit()`` is a writer of its own at work."""
    async with asyncio.TaskGroup() as group:
        working = []

        async def writing(client: Client | None = None, deadline: float = LONG) -> Writing:
            facts = {EIP: FACTS, EIP6: FACTS}
            writer = AnnouncementWriter(
                client or await api.client(),
                deadline,
                lambda eip, held: facts.get(eip) if held else VACANT,
                lambda error: made.tell(error),
                NoBugs(),
            )
            made = Writing(writer, facts)
            working.append(group.create_task(writer.run(made), name="writer"))  # type: ignore[arg-type]
            return made

        yield writing
        for task in working:
            task.cancel()


@pytest.fixture
async def writing(sit: Callable[..., Awaitable[Writing]]) -> Writing:
    return await sit()


@pytest.fixture
def status(admin: Client) -> Callable[..., Awaitable[Any]]:
    async def read(eip: IPAddress = EIP) -> Any:
        return msgspec.json.decode(await admin.get(path_of(eip)))["status"]

    return read


@pytest.fixture
def found(admin: Client) -> Callable[..., Awaitable[AnnouncementObject]]:
    """As the mirror would have it."""

    async def read(eip: IPAddress = EIP) -> AnnouncementObject:
        return msgspec.json.decode(await admin.get(path_of(eip)), type=AnnouncementObject)

    return read


# ── Orders ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("eip", [EIP, EIP6], ids=str)
async def test_the_first_write_of_an_eip_makes_its_announcement_whole(api, writing, status, found, eip):
    begun = len(api.fake.requests) if api.fake is not None else 0
    succeeded, record = await writing.write(order(term=3, eip=eip))
    made = await found(eip)
    assert succeeded
    assert record == Record("n1", LIFE, 3, int(made.metadata.resource_version))
    assert writing.told == [None]
    said = await status(eip)
    assert said.pop("since").endswith("Z")
    assert said == {
        "holder": "n1",
        "incarnation": LIFE,
        "term": 3,
        "link": "eth0",
        "mac": "02:00:00:00:00:01",
        "services": ["default/dns", "default/web"],
        "servicesText": "default/dns,default/web",
    }
    if api.fake is not None:
        ours = [(method, path) for method, path, _ in api.fake.requests[begun:] if method != "GET"]
        assert ours == [("POST", ANNOUNCEMENTS)]


async def test_a_write_at_the_version_that_stands_is_one_request(api, writing, found):
    _, first = await writing.write(order())
    begun = len(api.fake.requests) if api.fake is not None else 0
    succeeded, second = await writing.write(order("n2", term=2, expected=first.version))
    assert succeeded
    assert second == Record("n2", LIFE, 2, int((await found()).metadata.resource_version))
    assert second.version > first.version
    if api.fake is not None:
        assert [method for method, _, _ in api.fake.requests[begun:]] == ["PATCH", "GET"]  # the test's own is the last


async def test_a_write_at_a_stale_version_is_refused_and_told_what_stands_there(writing, found):
    _, first = await writing.write(order())
    _, second = await writing.write(order("n2", term=2, expected=first.version))
    assert await writing.write(order("n3", term=3, expected=first.version)) == (False, second)
    assert (await found()).status.holder == "n2"


async def test_of_two_who_write_an_eip_for_the_first_time_one_succeeds_and_the_other_hears_of_it(sit, found):
    one, other = await sit(), await sit()
    outcomes = await asyncio.gather(one.write(order("n1")), other.write(order("n2")))
    assert sorted(succeeded for succeeded, _ in outcomes) == [False, True]
    winner = next(record for succeeded, record in outcomes if succeeded)
    loser = next(record for succeeded, record in outcomes if not succeeded)
    assert winner.holder == (await found()).status.holder
    # It may have looked between the winner's two requests, when there is an object and no holder yet.
    assert loser.holder in (None, winner.holder)
    assert 0 < loser.version <= winner.version


async def test_an_announcement_that_somebody_else_made_first_is_told_as_it_stands(admin, writing, found):
    await admin.create(ANNOUNCEMENTS, EMPTY)
    version = int((await found()).metadata.resource_version)
    assert await writing.write(order()) == (False, Record(None, Incarnation(0), 0, version))
    succeeded, _ = await writing.write(order(expected=version))
    assert succeeded


async def test_a_record_that_was_deleted_meanwhile_is_told_as_gone(admin, writing):
    _, first = await writing.write(order())
    await admin.delete(path_of(EIP))
    assert await writing.write(order(term=2, expected=first.version)) == (False, gone(first.version))
    assert writing.told == [None, None]


class Beaten(Client):
    """Before it can look at a record, somebody deletes it."""

    async def get(self, path: str, *arguments: Any, **options: Any) -> bytes:
        await self.delete(path)
        return await super().get(path, *arguments, **options)


async def test_a_record_that_is_deleted_before_it_can_be_looked_at_is_told_as_gone(api, sit):
    async with Beaten(await api.configuration(api.port)) as client:
        writing = await sit(client)
        _, first = await writing.write(order())
        assert await writing.write(order(term=2, expected=first.version - 1)) == (False, gone(first.version - 1))


async def test_a_record_that_was_deleted_and_made_anew_is_another(admin, writing, found):
    _, first = await writing.write(order())
    await admin.delete(path_of(EIP))
    await admin.create(ANNOUNCEMENTS, EMPTY)
    version = int((await found()).metadata.resource_version)
    outcome = await writing.write(order(term=2, expected=first.version))
    assert outcome == (False, Record(None, Incarnation(0), 0, version))


async def test_a_record_that_is_let_go_keeps_its_term_and_services_says_why_and_nothing_of_a_link(writing, status):
    _, held = await writing.write(order(term=7))
    succeeded, record = await writing.write(order(None, term=7, expected=held.version))
    assert succeeded
    assert (record.holder, record.term) == (None, 7)
    kept = {"services": ["default/web"], "servicesText": "default/web", "reason": "drained"}
    assert await status() == {"holder": "", "incarnation": LIFE, "term": 7} | kept
    await writing.write(order(term=8, expected=record.version))
    assert "reason" not in await status()


async def test_a_term_that_would_go_down_is_a_failure_without_a_reply(writing, status):
    _, held = await writing.write(order(term=7))
    failure = await writing.write(order("n2", term=6, expected=held.version))
    assert isinstance(failure, ApiRefused)
    assert failure.code == 422
    assert "never go down" in str(failure)
    said = await status()
    assert (said["holder"], said["term"]) == ("n1", 7)
    succeeded, _ = await writing.write(order(term=8, expected=held.version))
    assert succeeded
    assert writing.told == [None, failure, None]  # and it is over


async def test_a_record_that_cannot_be_written_is_told_in_the_same_words_whatever_becomes_of_others(writing):
    _, held = await writing.write(order(term=5))
    _, other = await writing.write(order(eip=EIP6))
    failure = await writing.write(order(term=4, expected=held.version))
    for term in (2, 3):
        assert str(await writing.write(order(term=4, expected=held.version))) == str(failure)
        succeeded, other = await writing.write(order(eip=EIP6, term=term, expected=other.version))
        assert succeeded
    assert [str(told) for told in writing.told] == ["None", "None", *[str(failure)] * 3]
    await writing.write(order(term=5, expected=held.version))
    assert writing.told[-1] is None


async def test_an_order_that_has_waited_for_longer_than_its_deadline_is_not_sent(api, sit, status):
    late, punctual = await sit(deadline=0.0), await sit()
    begun = len(api.fake.requests) if api.fake is not None else 0
    late.writer.take(order("n1"))
    succeeded, _ = await punctual.write(order("n2"))
    assert succeeded
    assert (await status())["holder"] == "n2"
    assert (late.told, late.outcomes.empty()) == ([], True)
    if api.fake is not None:
        assert [method for method, _, _ in api.fake.requests[begun:]] == ["POST", "GET"]


async def test_an_api_out_of_reach_is_a_failure_without_a_reply_and_the_next_order_is_tried(api, sit):
    relay = await api.relay()
    writing = await sit(await api.client(relay))
    await relay.refuse()
    assert isinstance(await writing.write(order()), ApiUnreachable)
    await relay.accept()
    succeeded, _ = await writing.write(order())
    assert succeeded
    assert writing.told[-1] is None


# ── What a record says for people ─────────────────────────────────────────────────────────────────────────────


async def test_only_a_record_that_says_something_else_is_corrected_and_nothing_of_its_holder(
    api, writing, status, found
):
    await writing.write(order(term=4))
    await writing.write(order(term=5, eip=EIP6))
    right, wrong = await found(EIP), await found(EIP6)
    before = await status(EIP6)
    begun = len(api.fake.requests) if api.fake is not None else 0
    writing.facts[EIP6] = Facts("eth1", "02:00:00:00:00:02", ("default/web",), "02:00:00:00:00:99 on eth1")
    await writing.writer.correct([right, wrong])
    assert (await found(EIP)).metadata.resource_version == right.metadata.resource_version
    said = await status(EIP6)
    changed = {"link": "eth1", "mac": "02:00:00:00:00:02", "services": ["default/web"]}
    changed["servicesText"] = "default/web"
    assert said == {**before, **changed, "conflict": "02:00:00:00:00:99 on eth1"}
    if api.fake is not None:
        assert [(method, path) for method, path, _ in api.fake.requests[begun:] if method != "GET"] == [
            ("PATCH", path_of(EIP6))
        ]


async def test_a_conflict_that_is_over_is_taken_out_of_the_record(writing, status, found):
    writing.facts[EIP] = FACTS._replace(conflict="02:00:00:00:00:99 on eth0")
    await writing.write(order())
    writing.facts[EIP] = FACTS
    await writing.writer.correct([await found()])
    assert "conflict" not in await status()


async def test_what_this_node_does_not_offer_any_more_is_left_as_it_is(writing, found):
    await writing.write(order())
    before = await found()
    writing.facts.clear()
    await writing.writer.correct([before])
    assert await found() == before


async def test_a_correction_that_comes_too_late_changes_nothing_and_is_no_failure(admin, writing, found):
    _, first = await writing.write(order())
    await writing.write(order(eip=EIP6))
    ours, gone = await found(EIP), await found(EIP6)
    await writing.write(order("n2", term=2, expected=first.version))
    await admin.delete(path_of(EIP6))
    theirs, told = await found(EIP), list(writing.told)
    writing.facts |= {EIP: FACTS._replace(link="eth1"), EIP6: FACTS._replace(link="eth1")}
    await writing.writer.correct([ours, gone])
    assert await found(EIP) == theirs
    assert writing.told == told


async def test_a_correction_that_cannot_be_sent_is_a_failure_and_the_rest_are_tried(api, sit, found):
    relay = await api.relay()
    writing = await sit(await api.client(relay))
    await writing.write(order())
    await writing.write(order(eip=EIP6))
    writing.facts |= {EIP: FACTS._replace(link="eth1"), EIP6: FACTS._replace(link="eth1")}
    await relay.refuse()
    await writing.writer.correct([await found(EIP), await found(EIP6)])
    assert [type(error) for error in writing.told[2:]] == [ApiUnreachable, ApiUnreachable]
    assert (await found(EIP)).status.link == "eth0"


async def test_a_correction_that_succeeds_ends_the_failure_of_the_one_before(api, sit, found):
    relay = await api.relay()
    writing = await sit(await api.client(relay))
    await writing.write(order())
    writing.facts[EIP] = FACTS._replace(link="eth1")
    await relay.refuse()
    await writing.writer.correct([await found()])
    await relay.accept()
    await writing.writer.correct([await found()])
    assert (await found()).status.link == "eth1"
    assert writing.told[-1] is None
