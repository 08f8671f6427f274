"""The writer of the records, where one of them meets a bug, or an API that says nothing of the object."""

import asyncio
from dataclasses import replace
from ipaddress import ip_address

import msgspec
import pytest

from speaker.agent.announcements import WORKERS, AnnouncementWriter
from speaker.agent.record import Facts, creation, path_of
from speaker.api.records import ANNOUNCEMENTS, AnnouncementObject
from speaker.errors import ApiRefused, ApiUnreachable, WireError
from speaker.ownership.events import WriteRecord
from speaker.ownership.hello import Incarnation

EIP = ip_address("192.0.2.1")
OTHERS = [ip_address(f"192.0.2.{number}") for number in range(2, 2 * WORKERS + 2)]
FACTS = Facts("eth0", "02:00:00:00:00:01", ("default/web",))
NOT_SERVED = ApiRefused(404, "", "")
"""'404 page not found'."""
DELETED = ApiRefused(404, "NotFound", "it is not found")


class Api:
    """Has every record at version 7, but refuses changes and reads of that of ``EIP`` as ``refusals`` say."""

    def __init__(self, **refusals):
        self.refusals, self.patched = refusals, []

    async def _answer(self, method, path):
        await asyncio.sleep(0)
        if path == path_of(EIP) and (refusal := self.refusals.get(method)) is not None:
            raise refusal
        name = path.removeprefix(f"{ANNOUNCEMENTS}/")
        return msgspec.json.encode({"metadata": {"name": name, "resourceVersion": "7"}, "status": {"holder": "n1"}})

    async def patch(self, path, body, **_):
        answer = await self._answer("patch", path)
        self.patched.append(path)
        return answer

    async def get(self, path):
        return await self._answer("get", path)

    async def create(self, path, body):
        raise ApiRefused(409, "AlreadyExists", "it is there")


class Site:
    """A writer at work and what comes of it, as a wire process that meets a bug in the reply for ``bad``."""

    def __init__(self, api, facts=lambda *_: FACTS, bad=None):
        self.replies, self.told, self.bugs, self._bad = {}, [], [], bad
        self.writer = AnnouncementWriter(api, 1000.0, facts, self._tell, self)

    def internal_error(self, task, error):
        self.bugs.append((task, error))

    def _tell(self, error):
        if error is not None:
            self.told.append(error)

    async def written(self, order, succeeded, record):
        if order.eip == self._bad:
            raise WireError("a bug over there")
        self.replies[order.eip] = (succeeded, record)

    async def write(self, *orders):
        working = asyncio.create_task(self.writer.run(self))
        for each in orders:
            self.writer.take(each)
        await asyncio.sleep(1.0)
        assert not working.done()
        working.cancel()
        await asyncio.wait([working])


def order(eip, expected=7):
    return WriteRecord(eip, 1, expected, "n1", Incarnation(1), 1)


def no_facts_of(eip, _):
    if eip == EIP:
        raise TypeError("a bug")
    return FACTS


@pytest.mark.parametrize("where", ["facts", "reply"])
def test_a_bug_in_the_record_of_one_eip_keeps_no_other_from_being_written(where, in_virtual_time):
    site = Site(Api(), no_facts_of) if where == "facts" else Site(Api(), bad=EIP)
    in_virtual_time(site.write(*(order(EIP) for _ in range(WORKERS + 1)), *map(order, OTHERS)))
    assert site.replies.keys() == set(OTHERS)
    assert [task for task, _ in site.bugs] == ["records"] * (WORKERS + 1)


def test_nor_from_being_put_right(in_virtual_time):
    api = Api()
    site = Site(api, no_facts_of)
    found = [{"metadata": {"name": str(eip), "resourceVersion": "7"}} for eip in (EIP, *OTHERS)]
    in_virtual_time(site.writer.correct([msgspec.convert(each, AnnouncementObject) for each in found]))
    assert api.patched == [path_of(eip) for eip in OTHERS]
    assert [task for task, _ in site.bugs] == ["correct"]


@pytest.mark.parametrize("expected", [7, 0], ids=["changed", "made"])
@pytest.mark.parametrize(("refusal", "is_gone"), [(DELETED, True), (NOT_SERVED, False)], ids=["deleted", "not served"])
def test_only_the_api_itself_says_that_a_record_is_gone(refusal, is_gone, expected, in_virtual_time):
    """Taken for deleted, the record that is still there would be passed over until somebody else writes it."""
    site = Site(Api(patch=refusal, get=refusal))
    in_virtual_time(site.write(order(EIP, expected)))
    gone = [(succeeded, record.gone) for succeeded, record in site.replies.values()]
    assert (gone, site.told) == ([(False, True)], []) if is_gone else ([], [refusal])


A, B = OTHERS[:2]


@pytest.mark.parametrize(
    ("orders", "told"),
    [
        ([A, A, A], [A, A, A]),
        ([A, B, A, B, A], [A, B, B]),
        ([A, B, EIP, B, A], [A, B, B]),
    ],
    ids=["one that is refused is counted each time", "of two, that which was told last", "whatever becomes of others"],
)
def test_a_record_that_is_refused_again_and_again_is_told_again_and_of_many_one(orders, told, in_virtual_time):
    """``told`` of whom."""
    refusals = {eip: ApiRefused(403, "Forbidden", f"{eip} is forbidden") for eip in (A, B)}
    site = Site(Refusing(refusals))

    async def story():
        for eip in orders:
            await site.write(order(eip))

    in_virtual_time(story())
    assert site.told == [refusals[eip] for eip in told]


class Refusing(Api):
    """Refuses changes as ``refused`` says, by EIP."""

    def __init__(self, refused):
        super().__init__()
        self._refused = {path_of(eip): refusal for eip, refusal in refused.items()}

    async def patch(self, path, body, **_):
        if path in self._refused:
            raise self._refused[path]
        return await super().patch(path, body)


def recorded(eip, term):
    """As the API has it by now."""
    return msgspec.convert(creation(replace(order(eip), term=term), FACTS, "") | {"metadata": META}, AnnouncementObject)


META = {"name": "192.0.2.2", "resourceVersion": "8"}


@pytest.mark.parametrize(
    ("term", "facts", "over"),
    [(5, FACTS, True), (6, FACTS, True), (4, FACTS, False), (5, FACTS._replace(link="eth1"), False)],
    ids=["as ordered", "as ordered later", "as it was before", "of another link, which cannot be put right"],
)
def test_a_write_whose_answer_was_lost_is_over_once_the_record_says_what_was_ordered(
    term, facts, over, in_virtual_time
):
    told = []
    api = Refusing({A: ApiUnreachable("no answer in time")})
    writer = AnnouncementWriter(api, 1000.0, lambda *_: facts, told.append, Site(api))

    async def story():
        working = asyncio.create_task(writer.run(None))
        writer.take(replace(order(A), term=5))
        await asyncio.sleep(1.0)
        working.cancel()
        assert len(told) == 1
        await writer.correct([recorded(A, term)])

    in_virtual_time(story())
    assert (told[-1] is None) is over


def test_where_the_one_that_was_told_last_is_written_another_is_told(in_virtual_time):
    refusals = {eip: ApiRefused(403, "Forbidden", f"{eip} is forbidden") for eip in (A, B)}
    api = Refusing(refusals)
    site = Site(api)

    async def story():
        await site.write(order(A))
        await site.write(order(B))
        del api._refused[path_of(B)]
        await site.write(order(B))
        await site.write(order(A))

    in_virtual_time(story())
    assert site.told == [refusals[A], refusals[B], refusals[A]]
