"""What records say reaches the wire process whole, in order, and in pieces; what is gone is told, too."""

import asyncio
from ipaddress import ip_address

import msgspec
import pytest

from speaker.agent.announcements import AnnouncementReader
from speaker.agent.mirrors import AGAIN_SECONDS
from speaker.api.records import AnnouncementObject, AnnouncementStatus
from speaker.cluster.feed import Store
from speaker.model import MAX_TERM
from speaker.ownership.events import Record, gone
from speaker.ownership.hello import Incarnation
from speaker.wire.remote import A_SLICE

A, B = ip_address("192.0.2.10"), ip_address("192.0.2.11")


def announced(name, version=7, term=3, holder="n2"):
    data = {
        "metadata": {"name": name, "uid": name, "resourceVersion": str(version)},
        "status": {"holder": holder, "incarnation": 5, "term": term},
    }
    return msgspec.convert(data, AnnouncementObject)


def said(version=7, term=3, holder="n2"):
    return Record(holder, Incarnation(5), term, version)


class Site:
    """A mirror, the reader behind it, and a wire process; ``hears`` is what it is told, one message each."""

    def __init__(self):
        self.store = Store()
        self._outgoing = asyncio.Queue()
        self.reader = AnnouncementReader(lambda: self.store, self._outgoing, self._changed, self)
        self.heard, self.changed, self.errors, self.recorded_there, self.poison = [], [], [], [], set()

    def internal_error(self, task, error):
        self.errors.append((task, str(error)))

    def _changed(self, made_up):
        self.changed.append(made_up)

    def put(self, *found):
        self.reader.saw(tuple(change for each in found for change in self.store.put(each)))

    def remove(self, *found):
        self.reader.saw(tuple(change for each in found for change in self.store.remove(each.key)))

    async def hears(self):
        """Since the call before."""
        while not self._outgoing.empty():
            await self._outgoing.get_nowait()(self)
        heard, self.heard = self.heard, []
        return heard

    # The wire process:

    async def records(self, records):
        self.heard.append(records)

    async def restored(self):
        self.heard.append("restored")

    async def recorded(self):
        return self.recorded_there


@pytest.fixture
def site():
    return Site()


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (announced("192.0.2.10"), [(A, said())]),
        (announced("192.0.2.10", holder=""), [(A, said(holder=None))]),
        (announced("2001-0db8-0000-0000-0000-0000-0000-0010"), [(ip_address("2001:db8::10"), said())]),
        (announced("somebody-s-own"), []),
        (announced("192.0.2.10", term=MAX_TERM + 1), [(A, Record(None, Incarnation(0), 0, 7))]),
    ],
)
async def test_a_record_is_told_as_it_stands(site, found, told):
    site.put(found)
    assert await site.hears() == [told]


async def test_one_that_is_deleted_is_told_as_gone_at_its_last_version(site):
    site.put(announced("192.0.2.10", version=7))
    await site.hears()
    site.remove(announced("192.0.2.10"))
    assert await site.hears() == [[(A, gone(7))]]


async def test_a_long_list_is_told_in_pieces(site):
    names = [f"192.0.2.{number}" for number in range(A_SLICE + 1)]
    site.put(*map(announced, names))
    heard = await site.hears()
    assert [len(each) for each in heard] == [A_SLICE, 1]
    assert [str(eip) for each in heard for eip, _ in each] == names


async def test_what_came_first_is_told_first(site):
    site.put(announced("192.0.2.10", version=7, term=3))
    site.put(announced("192.0.2.10", version=8, term=4))
    assert await site.hears() == [[(A, said(7, 3))], [(A, said(8, 4))]]


# ── Terms that somebody made up ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("term", [-1, MAX_TERM + 1])
async def test_a_term_that_no_agent_comes_to_is_a_problem_until_it_is_written_anew(site, term):
    site.put(announced("192.0.2.11", term=term), announced("192.0.2.10", version=7, term=term))
    assert [sentence.split(":")[0] for sentence in site.reader.problems()] == [
        "Announcement/192.0.2.10",
        "Announcement/192.0.2.11",
    ]
    site.put(announced("192.0.2.10", version=8))
    assert len([*site.reader.problems()]) == 1
    site.remove(announced("192.0.2.11"))
    site.put(announced("192.0.2.10", version=9))
    assert [*site.reader.problems()] == []
    assert site.changed == [True, True, True, False], "also when the last of them was mended"


# ── Lists ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_the_wire_process_knows_and_a_list_lacks_is_gone_by_then(site):
    site.put(announced("192.0.2.10", version=7))
    site.recorded_there = [A, B]
    await site.hears()
    site.reader.saw_all("9", restored=False)
    assert await site.hears() == [[(B, gone(9))]]


@pytest.mark.parametrize("version", ["19", "21"])
async def test_of_restored_data_everything_is_told_anew_whether_or_not_it_has_come_as_far(site, version):
    site.put(announced("192.0.2.10", version=7))
    site.reader.saw_all("20", restored=False)
    await site.hears()
    site.reader.saw_all(version, restored=True)
    assert await site.hears() == ["restored", [(A, said())], []]
    site.reader.saw_all(version, restored=False)
    assert await site.hears() == [[]]


# ── Bugs of ours ──────────────────────────────────────────────────────────────────────────────────────────────


def broken(name, version=7):
    """No server comes to this, and nothing here expects it."""
    return AnnouncementObject(announced(name, version).metadata, AnnouncementStatus("n2", incarnation=None, term=3))


@pytest.mark.parametrize("mended", [False, True])
def test_one_that_meets_a_bug_keeps_no_other_from_being_told_and_is_told_again_as_it_is_then(
    in_virtual_time, site, mended
):
    async def story():
        site.put(broken("192.0.2.10"), announced("192.0.2.11"))
        assert await site.hears() == [[(B, said())]]
        assert [task for task, _ in site.errors] == ["hand on"]
        await asyncio.sleep(AGAIN_SECONDS - 0.1)
        assert await site.hears() == []
        if mended:
            site.store.put(announced("192.0.2.10", version=8, term=4))
        await asyncio.sleep(0.2)
        assert await site.hears() == [[(A, said(8, 4))] if mended else []]
        assert len(site.errors) == (1 if mended else 2)

    in_virtual_time(story())


def test_one_that_is_gone_by_the_time_it_is_told_again_is_told_as_it_came(in_virtual_time, site):
    async def story():
        site.put(broken("192.0.2.10"))
        await site.hears()
        site.store.remove(announced("192.0.2.10").key)
        await asyncio.sleep(AGAIN_SECONDS + 0.1)
        assert await site.hears() == [[]]
        assert len(site.errors) == 2

    in_virtual_time(story())
