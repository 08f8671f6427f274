"""What is told of EIPs that come, move, are nobody's or have a rival: once each, to those whose EIPs they are."""

import re
from dataclasses import replace
from itertools import count

import pytest

from speaker.api.fields import dns_subdomain
from speaker.api.kinds import FullMetadata
from speaker.api.objects import Key, Metadata
from speaker.api.records import RecordedClaim, RecordedObject
from speaker.controller.announced import MOST, NOBODY_SECONDS, Announced, Users
from speaker.controller.wanted import JUDGED, LOGGED, Event

EIP, AT = "192.0.2.10", "2026-11-23T03:00:00Z"
WEB = FullMetadata(name="web", namespace="shop", uid="u", resource_version="7")
HELD, BY_N2 = RecordedClaim("n1", link="eth0"), RecordedClaim("n2", link="eth1")
NOBODYS = RecordedClaim(reason="no_local_endpoint")
RIVAL = RecordedClaim("n1", link="eth0", conflict="02:00:00:00:00:99 on eth0")
VERSIONS = count(1)


def found(status, name=EIP):
    return RecordedObject(Metadata(name=name, resource_version=str(next(VERSIONS))), status)


class Told:
    """The Events of one EIP, step by step."""

    def __init__(self, users=None):
        self._announced, self._now = Announced(), 1000.0
        self._users = {EIP: Users([WEB])} if users is None else users

    def step(self, status=None, after=1.0, gone=None, **names):
        """``status`` of the EIP, ``names`` of others; None: nothing new. ``gone``: holders, None: that is not known."""
        self._now += after
        changes = {EIP: status, **names} if status is not None else names
        objects = {Key("", name): each and found(each, name) for name, each in changes.items()}
        return self._announced.step(objects, lambda _: self._users, self._now, AT, gone)

    def words(self, *statuses, after=1.0):
        """Reason and message of all Events of these, one after the other; at first there is nothing."""
        self.step()
        events = [event for status in statuses for event in self.step(status, after)]
        return [(event.reason, event.message) for event in events]


ANNOUNCED = ("Announced", f"{EIP} is announced by n1 on eth0")
CONFLICT = ("ConflictBegun", f"{EIP}: 02:00:00:00:00:99 on eth0 uses it too")


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        ([HELD], [ANNOUNCED]),
        ([HELD, HELD], [ANNOUNCED]),
        ([HELD, BY_N2], [ANNOUNCED, ("Moved", f"{EIP} moved from n1 to n2 on eth1")]),
        ([HELD, NOBODYS, BY_N2], [ANNOUNCED, ("Moved", f"{EIP} moved from n1 to n2 on eth1")]),
        ([HELD, NOBODYS, HELD], [ANNOUNCED]),
        ([NOBODYS], []),
        ([HELD, RIVAL, RIVAL], [ANNOUNCED, CONFLICT]),
        ([HELD, RIVAL, HELD], [ANNOUNCED, CONFLICT, ("ConflictEnded", f"nobody else uses {EIP} any more")]),
    ],
)
def test_each_change_is_told_once(statuses, words):
    assert Told().words(*statuses) == words


def test_that_nobody_holds_it_is_told_when_it_lasts_and_why():
    told = Told()
    told.words(HELD, NOBODYS)
    assert told.step(after=NOBODY_SECONDS - 0.1) == []
    (event,) = told.step(after=0.2)
    assert (event.level, event.reason) == ("Warning", "HeldByNobody")
    assert event.message == f"nobody announces {EIP}: n1 let it go (no_local_endpoint)"
    assert told.step(after=NOBODY_SECONDS) == []
    assert [event.reason for event in told.step(HELD)] == ["Announced"]


LOST = ("HeldByNobody", f"no node is known to announce {EIP}: its holder n1 is gone, or cut off from the API")
GONE = {"n1": "7"}


@pytest.mark.parametrize(
    ("story", "steps", "words"),
    [
        ("its holder lives", [(None, {})], []),
        ("another one is gone", [(None, {"n2": "3"})], []),
        ("it is gone, once", [(None, GONE), (None, GONE)], [LOST]),
        ("whether it is gone is not known", [(None, None)], []),
        ("it is not known any more", [(None, GONE), (None, None), (None, GONE)], [LOST]),
        ("it is back", [(None, GONE), (None, {})], [LOST, ANNOUNCED]),
        ("it is gone again", [(None, GONE), (None, {}), (None, {"n1": "9"})], [LOST, ANNOUNCED, LOST]),
        ("it claims before its Lease is looked at", [(None, GONE), (HELD, GONE), (None, {})], [LOST, ANNOUNCED]),
        (
            "another takes it over after all",
            [(None, GONE), (BY_N2, GONE), (None, {})],
            [LOST, ("Announced", f"{EIP} is announced by n2 on eth1")],
        ),
        ("another took it before", [(BY_N2, GONE)], [("Moved", f"{EIP} moved from n1 to n2 on eth1")]),
        (
            "another took it that counted as gone",
            [(None, {"n2": "3"}), (BY_N2, {"n2": "3"}), (BY_N2, {"n2": "3"}), (None, {})],
            [("Moved", f"{EIP} moved from n1 to n2 on eth1")],
        ),
    ],
)
def test_that_its_holder_is_gone_is_told_while_the_record_still_names_it(story, steps, words):
    told = Told()
    told.words(HELD)
    found = [event for status, gone in steps for event in told.step(status, gone=gone)]
    assert [(event.reason, event.message) for event in found] == words
    marks = [event.body()["metadata"]["name"] for event in found]
    assert len(set(marks)) == len(marks)


def test_what_there_was_before_this_leader_is_no_news():
    told = Told()
    assert told.step(RIVAL) == []
    assert [event.reason for event in told.step(BY_N2)] == ["Moved", "ConflictEnded"]


def test_one_that_goes_is_told_of_nothing_and_is_new_when_it_comes_back():
    told = Told()
    told.words(HELD, NOBODYS)
    assert told.step(**{EIP: None}) == []
    assert told.step(after=NOBODY_SECONDS) == []
    assert [event.reason for event in told.step(HELD)] == ["Announced"]


def test_a_record_tells_only_those_who_have_the_eip_and_strange_names_nobody():
    told = Told(users={})
    told.step()
    assert told.step(HELD) == []
    assert told.step(**{"not-an-eip": HELD}) == []


def test_the_owner_of_the_pool_reads_of_conflicts_and_of_what_nobody_holds():
    lan = FullMetadata(name="lan", uid="p", resource_version="3")
    told = Told(users={EIP: Users([WEB], lan)})
    told.step()
    events = [event for status in (HELD, RIVAL, BY_N2, NOBODYS) for event in told.step(status)]
    events += told.step(after=NOBODY_SECONDS)
    assert [event.reason for event in events if event.kind == "Eip"] == [
        "ConflictBegun",
        "ConflictEnded",
        "HeldByNobody",
    ]
    assert {event.about.name for event in events if event.kind == "Eip"} == {"lan"}
    assert [event.reason for event in events if event.kind == "Service"][:2] == ["Announced", "ConflictBegun"]


def test_every_transition_is_an_event_of_its_own_whichever_leader_tells_it():
    told = Told()
    told.step(HELD)
    (moved,) = told.step(BY_N2)
    (back,) = told.step(HELD)
    assert moved.body()["metadata"]["name"] != back.body()["metadata"]["name"]
    assert moved.body()["involvedObject"]["name"] == "web"


@pytest.mark.parametrize(
    "name", ["lan", "a" * 253, ".".join(["a" * 49] * 5), "-".join(["a" * 49] * 5), "a" * 199 + "--b"]
)
def test_an_event_has_a_name_that_an_object_may_have_whatever_it_is_about(name):
    event = Event("Eip", FullMetadata(name=name, uid="u", resource_version="7"), "Warning", "Overlap", "", "")
    named = event.body()["metadata"]["name"]
    assert dns_subdomain(named).startswith(name[:199])
    assert event.body()["involvedObject"]["name"] == name
    assert replace(event, reason="Invalid").body()["metadata"]["name"] != named


def test_of_thousands_that_move_at_once_as_many_are_told_as_may_be():
    names = [f"192.0.{n // 250}.{n % 250 + 1}" for n in range(3 * MOST)]
    told = Told(users={name: Users([WEB]) for name in names})
    told.step(**dict.fromkeys(names, HELD))
    assert len(told.step(**dict.fromkeys(names, BY_N2))) == MOST
    assert told._announced.left_out == 2 * MOST
    told.step()
    assert told._announced.left_out == 0


@pytest.mark.parametrize(
    "free", ["\x1b[2J", "pay to mallory", "n1: pay to mallory", "https://example.com/pay", "x" * 300]
)
def test_nothing_that_an_agent_made_up_is_told(free):
    told = Told()
    words = told.words(
        HELD,
        RecordedClaim("n1", link=free, conflict=free),
        RecordedClaim("n2", link=free),
        RecordedClaim(free),
        RecordedClaim("", link=free, conflict=free, reason=free),
    )
    words += [(event.reason, event.message) for event in told.step(after=NOBODY_SECONDS + 1)]
    assert words == [ANNOUNCED, ("Moved", f"{EIP} moved from n1 to n2"), ("HeldByNobody", f"nobody announces {EIP}")]


def test_every_reason_that_is_judged_is_in_the_log_as_in_the_metrics():
    old = lambda reason: re.sub(r"(?<=[a-z])(?=[A-Z])", " ", reason).lower()  # noqa: E731
    assert {reason: old(reason) for reason in LOGGED} == LOGGED
    assert {reason: old(reason).replace(" ", "_") for reason in JUDGED} == JUDGED


def test_the_log_gets_the_same_words():
    told = Told()
    told.step(HELD)
    (event,) = told.step(BY_N2)
    logged = event.logged()
    assert (logged.level, logged.event, logged.kind, logged.name) == ("info", "moved", "service", "shop/web")
    assert logged.fields == {"message": event.message}
