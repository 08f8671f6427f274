"""What is told in one process is heard in the other, and what is asked in the other is done in the one."""

import inspect
import pickle
import socket
from ipaddress import ip_address
from types import SimpleNamespace
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
    EndpointUnwell,
    EndpointWell,
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
    OtherGroupsHold,
    PeerChanged,
    PeersClaims,
    PeersCounted,
    Refused,
    Released,
    SendFailures,
    SocketsAnswer,
    SpeakerSeen,
    WasFrozen,
)
from speaker.ownership.events import ApiDown, NameClash, NameFree, PeersAddress, RecordsRestored, WriteRecord
from speaker.ownership.hello import Incarnation
from speaker.ownership.hellos.hellos import Replayed
from speaker.wire.messages import NAMES, Commands, PeerSpec, Request, Spec, UseAddresses, WireEvent
from speaker.wire.process import Conversation
from speaker.wire.process import _keys as keys_of
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
    return EventSender(SimpleNamespace(send=lambda event: heard.append(sent(event)), waiting=0))


OF_THE_MAIN_PROCESS = {
    *(Assigned, Released, Flagged, Refused, NotClaimed, ConflictBegun, ConflictEnded, ApiSilent, ApiAnswers),
    *(EndpointUnwell, EndpointWell),
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
        SocketsAnswer(ETH0, "no"),
        Conflict(ETH0, A, MAC, True),
        PeersAddress(A, None),
        NameClash(2, MAC, True, ETH0),
        NameClash(None, None, False),
        NameFree(),
        HellosFiltered(ETH0, "them", MAC, frozenset({A})),
        OtherGroupsHold({A: "group b"}),
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


class Asked:
    """A main process that asks this of one wire process; each request and reply as it comes out of a channel."""

    def __init__(self, peers, lock=None):
        self.talk = Conversation(lock)
        self.talk._peers, self.talk._keys = peers, keys_of(PEERS.secrets)
        self.talk.owner = self.owner = self.talk._owner(Spec("us", peers))

    def __call__(self, command, *arguments):
        reply = sent(self.talk._reply(self.owner, sent(Request(1, command, arguments))))
        if reply.error:
            raise WireError(reply.error)
        return reply.result


OWN = UseAddresses({2: (A,)}, {2: frozenset({A})}, {2: (B,)})


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("use_links", ((ETH0,), frozenset({MAC}))),
        ("withdraw", ([A],)),
        ("use_addresses", (OWN,)),
        ("gateway", (2, False)),
        ("drain", (True,)),
        ("demote", (True,)),
        ("recalled", (False,)),
        ("behind", (frozenset({A}),)),
        ("api_says", ([RecordsRestored(), ApiDown()],)),
    ],
)
def test_a_command_is_done_by_the_owner_as_it_was_asked(told, command, arguments):
    asks = Asked(PEERS)
    asks.owner = told.by("owner")
    assert asks(command, *arguments) is None
    assert told.all == [("owner", command, *arguments)]


def test_the_lock_is_held_by_who_has_it(told):
    assert Asked(None, told.by("lock"))("hold_lock") is None
    assert told.all == [("lock", "hold")]


@pytest.mark.parametrize(
    ("command", "arguments", "replied"),
    [
        ("offer", ({},), []),
        ("offered_all", (), None),
        ("claims_of", ([A, B],), [(False, None, 0, None, None, None)] * 2),
        ("ready", (), True),
        ("has_peers", (), False),
        ("peers", (), []),
        ("progress", ({}, ""), None),
    ],
)
@pytest.mark.parametrize("peers", [None, PEERS], ids=["alone", "with peers"])
def test_a_question_is_answered(peers, command, arguments, replied):
    assert Asked(peers)(command, *arguments) == replied


@pytest.mark.parametrize(("command", "replied"), [("rebalancing", None), ("recorded", ()), ("informed", False)])
def test_a_question_about_peers_is_answered_where_there_may_be_some(command, replied):
    assert Asked(PEERS)(command) == replied
    with pytest.raises(WireError, match="alone"):
        Asked(None)(command)


def test_every_command_has_one_who_does_it_as_it_is_asked():
    for name in NAMES:
        done = [getattr(kind, name) for kind in (Conversation, SharedOwner) if hasattr(kind, name)]
        assert [inspect.signature(one) for one in done] == [inspect.signature(getattr(Commands, name))], name


async def test_a_rebalancing_begins_when_it_is_asked_for():
    asks = Asked(PEERS)
    assert asks("rebalance") == asks("rebalancing")


async def test_keys_are_used_from_the_moment_that_they_are_told():
    asks = Asked(PEERS)
    before = asks.talk._keys.signing
    asks("keys", (b"n" * 32, b"k" * 32))
    after = asks.talk._keys
    assert after.signing != before
    assert before in after.accepted.values()
    await asks.talk._begin(Spec("us", PEERS), None)  # another main process, which reads the file anew
    assert asks.talk._keys.signing == before


@pytest.mark.parametrize(("api", "told_of"), [(True, [("owner", "api_says", [ApiDown()])]), (False, [])])
async def test_without_a_main_process_the_api_server_is_away_where_there_is_one(told, api, told_of):
    talk = Asked(PeerSpec(0.1, 0x88B5, (b"k" * 32,), api)).talk
    talk.owner = told.by("owner")
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    far.close()
    await talk.hold(near, None)
    assert told.all == told_of
