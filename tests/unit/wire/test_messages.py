"""What is told in one process is heard in the other, and what is asked in the other is done in the one."""

import inspect
import pickle
from ipaddress import ip_address
from typing import get_args

import pytest

from speaker.errors import WireError
from speaker.layer2.answer import Ignored
from speaker.model import Family, Gratuitous, Link, Mac, Placement, Speaker
from speaker.model.events import (
    Announcements,
    Answers,
    ApiAnswers,
    ApiSilent,
    Assigned,
    BugMet,
    BugsMetAgain,
    Conflict,
    ConflictBegun,
    ConflictEnded,
    Countable,
    Counts,
    EdgeFailed,
    EdgeRecovered,
    EipClaimed,
    EipYielded,
    Event,
    Flagged,
    HellosFiltered,
    HellosReceived,
    HellosSent,
    Ignorings,
    JoinFailed,
    LifeBegan,
    LinkLost,
    NotClaimed,
    PeerChanged,
    PeersClaims,
    PeersCounted,
    Refused,
    Released,
    SendFailures,
    SpeakerSeen,
    WasFrozen,
)
from speaker.ownership.events import ApiDown, NameClash, NameFree, PeersAddress, RecordsRestored, WriteRecord
from speaker.ownership.hello import Incarnation
from speaker.ownership.hellos.hellos import Replayed
from speaker.wire.commands import NAMES, Commands, PeerSpec, Spec, UseAddresses
from speaker.wire.messages import WireEvent
from speaker.wire.process import Life
from speaker.wire.sender import EventSender
from speaker.wire.shared import SharedOwner

ETH0 = Link(7777, "eth0", Mac(b"\x02\0\0\0\0\x01"))
MAC = Mac(b"\x02\0\0\0\0\x09")
HERE = Placement(ETH0, Gratuitous())
A, B = ip_address("192.0.2.10"), ip_address("2001:db8::10")
SPEAKER = Speaker(MAC, (ip_address("192.0.2.2"),))
ORDER = WriteRecord(A, 1, 5, "us", Incarnation(7), 3)


def sent(message):
    """As it comes out of a channel."""
    return pickle.loads(pickle.dumps(message))  # noqa: S301 -- our own


class Told:
    """Notes who was asked what, all in one list."""

    def __init__(self):
        self.all = []

    def by(self, who):
        return _Notes(lambda name: lambda *args: self.all.append((who, name, *args)))


class _Notes:
    def __init__(self, note):
        self._note = note

    def __getattr__(self, name):
        return self._note(name)


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def heard():
    """What comes out at the other end."""
    return []


@pytest.fixture
def sender(heard):
    """What it sends is pickled."""
    return EventSender(lambda event: heard.append(sent(event)))


OF_THE_MAIN_PROCESS = {
    *(Assigned, Released, Flagged, Refused, NotClaimed, ConflictBegun, ConflictEnded, ApiSilent, ApiAnswers),
}


@pytest.mark.parametrize(
    "event",
    [
        EipClaimed(A, HERE, 3, "before", 0.231),
        EipYielded(A, "drained", "them"),
        WasFrozen(),
        PeerChanged("them", ETH0, True),
        PeersCounted("eth0", 2, 1),
        SpeakerSeen(2, "them", SPEAKER),
        LinkLost(ETH0, "down"),
        JoinFailed("no"),
        Conflict(ETH0, A, MAC, True),
        PeersAddress(A, None),
        NameClash(2, MAC, True, ETH0),
        NameClash(None, None, False),
        NameFree(),
        HellosFiltered(ETH0, "them", MAC, frozenset({A})),
        EdgeFailed("carrier", "no"),
        EdgeRecovered("carrier"),
        LifeBegan(Incarnation(8)),
        ORDER,
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_is_heard_as_it_was_told(sender, heard, event):
    sender.tell(event)
    assert (heard, [type(one) for one in heard]) == ([event], [type(event)])


def test_every_event_is_among_them():
    (parameters,) = (mark.args[1] for mark in test_an_event_is_heard_as_it_was_told.pytestmark)
    told = {type(event) for event in parameters} | {BugMet, Counts}
    assert told == {*Event.__subclasses__(), *get_args(WireEvent)} - {Event, *get_args(Countable), *OF_THE_MAIN_PROCESS}


@pytest.mark.parametrize(
    "what",
    [
        Answers(Family.IPV4),
        Ignorings(Family.IPV6, Ignored.NOT_A_REQUEST),
        Announcements(Family.IPV4),
        SendFailures(Family.IPV6),
        HellosSent("eth0", False),
        HellosReceived("eth0", Replayed.REPLAYED),
        HellosReceived("eth0", None),
        PeersClaims(),
    ],
    ids=lambda what: type(what).__name__,
)
def test_counts_are_heard_as_sums(sender, heard, what):
    for number in (3, 4):
        sender.count(what, number)
    assert heard == []
    sender.flush()
    sender.flush()
    assert heard == [Counts({what: 7}, [])]


def test_delays_and_errors_that_come_again_are_heard_with_the_counts(sender, heard):
    for _ in range(3):
        sender.internal_error("hear", KeyError("a"))
    sender.loop_delay(0.1, 0.2)
    sender.flush()
    bug, counts = heard
    assert (type(bug), bug.task, bug.words) == (BugMet, "hear", "KeyError: 'a'")
    assert counts == Counts({BugsMetAgain("hear"): 2}, [(0.1, 0.2)])


# ── commands ──

PEERS = PeerSpec(0.1, 0x88B5, (b"k" * 32,), api=True)


def life(peers):
    return Life(Spec("us", peers), EventSender(lambda _: None), lambda: None)


class Asked(SharedOwner):
    """Notes what it is asked."""

    def __init__(self, told):
        self.offers, noted = told.by("offers"), told.by("owner")
        self.links, self.withdraw, self.addresses = noted.links, noted.withdraw, noted.addresses
        self.drain, self.api_says = noted.drain, noted.api_says


@pytest.fixture
def asking(told):
    """``asking(peers)``: a life whose owner notes what it is asked."""

    def made(peers):
        made = Life(Spec("us", peers), EventSender(lambda _: None), lambda: told.all.append(("locked",)))
        made.owner = Asked(told)
        return made

    return made


OWN = UseAddresses({2: (A,)}, {2: frozenset({A})}, {2: (B,)})


@pytest.mark.parametrize(
    ("command", "arguments", "asked"),
    [
        ("use_links", ((ETH0,), frozenset({MAC})), ("owner", "links", (ETH0,), frozenset({MAC}))),
        ("withdraw", ([A],), ("owner", "withdraw", [A])),
        ("hold_lock", (), ("locked",)),
        ("use_addresses", (OWN,), ("owner", "addresses", OWN)),
        ("gateway", (2, False), ("offers", "gateway", 2, False)),
        ("drain", (True,), ("owner", "drain", True)),
        ("demote", (True,), ("offers", "demote", True)),
        ("recalled", (False,), ("offers", "recall", False)),
        ("api_says", ([RecordsRestored(), ApiDown()],), ("owner", "api_says", [RecordsRestored(), ApiDown()])),
    ],
)
def test_a_command_is_done_as_it_was_asked(asking, told, command, arguments, asked):
    assert getattr(asking(PEERS), command)(*sent(arguments)) is None
    assert told.all == [asked]


@pytest.mark.parametrize(
    ("command", "arguments", "replied"),
    [
        ("offer", ({},), []),
        ("offered_all", (), None),
        ("claims_of", ([A, B],), [(False, None, 0, None, None)] * 2),
        ("ready", (), True),
        ("has_peers", (), False),
        ("peers", (), []),
        ("progress", ({}, ""), None),
    ],
)
@pytest.mark.parametrize("peers", [None, PEERS], ids=["alone", "with peers"])
def test_a_question_is_answered(peers, command, arguments, replied):
    assert getattr(life(peers), command)(*arguments) == replied


@pytest.mark.parametrize(("command", "replied"), [("rebalancing", None), ("recorded", ()), ("informed", False)])
def test_a_question_about_peers_is_answered_where_there_may_be_some(command, replied):
    assert getattr(life(PEERS), command)() == replied
    with pytest.raises(WireError, match="alone"):
        getattr(life(None), command)()


def test_every_command_has_one_who_does_it_as_it_is_asked():
    for name in NAMES:
        asked, done = (inspect.signature(getattr(kind, name)) for kind in (Commands, Life))
        assert asked == done, name


async def test_a_rebalancing_begins_when_it_is_asked_for():
    one = life(PEERS)
    assert one.rebalance() == one.rebalancing()


async def test_keys_are_used_from_the_moment_that_they_are_told():
    one = life(PEERS)
    before = one._keyring.current.signing
    one.keys((b"n" * 32, b"k" * 32))
    after = one._keyring.current
    assert after.signing != before
    assert before in after.accepted.values()
    one.resume(Spec("us", PEERS))  # another main process, which reads the file anew
    assert one._keyring.current.signing == before


@pytest.mark.parametrize(("api", "told_of"), [(True, [("owner", "api_says", [ApiDown()])]), (False, [])])
def test_without_a_main_process_the_api_server_is_away_where_there_is_one(asking, told, api, told_of):
    asking(PeerSpec(0.1, 0x88B5, (b"k" * 32,), api)).api_away()
    assert told.all == told_of
