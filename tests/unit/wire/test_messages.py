"""What is told in one process is heard in the other, and what is asked in the other is done in the one."""

import pickle
from ipaddress import ip_address

import pytest

from speaker.errors import EdgeError, WireError
from speaker.layer2.answer import Ignored
from speaker.model import Family, Gratuitous, Link, Mac, Placement, Speaker
from speaker.ownership.events import ApiDown, RecordsRestored, WriteRecord
from speaker.ownership.hello import Incarnation
from speaker.ownership.hellos.hellos import Replayed
from speaker.wire.commands import (
    ApiSays,
    ClaimsOf,
    FollowRebalancing,
    GatewayAnswers,
    HasPeers,
    HoldLock,
    IsInformed,
    IsReady,
    ListPeers,
    ListRecorded,
    Offer,
    OfferedAll,
    PeerSpec,
    SetDemoted,
    SetDraining,
    SetRecalled,
    Spec,
    StartRebalancing,
    UseAddresses,
    UseKeys,
    UseLinks,
    Withdraw,
)
from speaker.wire.events import Resumed, Taken
from speaker.wire.messages import Before
from speaker.wire.process import Life
from speaker.wire.receiver import EventReceiver
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
    """Notes who was told what, all in one list: a listener, a sink and moves."""

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
def sender(told):
    """What it sends is pickled, and heard at the other end."""
    receiver = EventReceiver(told.by("listener"), told.by("sink"), told.by("moves"))
    return EventSender(lambda event: receiver.hear(sent(event)))


@pytest.mark.parametrize(
    ("name", "arguments", "heard_by"),
    [
        ("claimed", (A, HERE, 3, "before", 0.231), ["moves", "listener"]),
        ("yielded", (A, "drained", "them"), ["moves", "listener"]),
        ("frozen", (), ["listener"]),
        ("peer", ("them", ETH0, True), ["listener"]),
        ("peers", ("eth0", 2, 1), ["listener"]),
        ("speaker", (2, "them", SPEAKER), ["moves"]),
        ("lost_link", (ETH0, "down"), ["listener"]),
        ("conflict", (ETH0, A, MAC, True), ["listener"]),
        ("peers_address", (A, None), ["listener"]),
        ("name_clash", (ETH0, MAC, True), ["listener"]),
        ("name_clash", (None, None, False), ["listener"]),
        ("name_free", (), ["listener"]),
        ("hellos_filtered", (ETH0, "them", MAC, frozenset({A})), ["listener"]),
        ("recovered", ("carrier",), ["listener"]),
        ("incarnation", (Incarnation(8),), ["sink"]),
        ("silence", (), ["sink"]),
        ("write_record", (ORDER,), ["sink"]),
    ],
)
def test_a_transition_is_heard_as_it_was_told(sender, told, name, arguments, heard_by):
    getattr(sender, name)(*arguments)
    moved = {"claimed": (A, HERE, "before"), "yielded": (A,)}
    expected = [(who, name, *(moved.get(name, arguments) if who == "moves" else arguments)) for who in heard_by]
    assert told.all == expected


@pytest.mark.parametrize(("name", "arguments"), [("failed", ("carrier", "no")), ("join_failed", (OSError("no"),))])
def test_a_refusal_is_heard_as_one(sender, told, name, arguments):
    getattr(sender, name)(*arguments)
    ((_, heard, *_, error),) = told.all
    assert (heard, type(error), str(error)) == (name, EdgeError, "no")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("answered", (Family.IPV4,)),
        ("ignored", (Family.IPV6, Ignored.NOT_A_REQUEST)),
        ("announced", (Family.IPV4,)),
        ("send_failed", (Family.IPV6,)),
        ("hellos_sent", ("eth0", False)),
        ("hellos_received", ("eth0", Replayed.REPLAYED)),
        ("hellos_received", ("eth0", None)),
    ],
)
def test_counts_are_heard_as_sums(sender, told, name, what):
    for count in (3, 4):
        getattr(sender, name)(*what, count)
    assert told.all == []
    sender.flush()
    sender.flush()
    assert told.all == [("listener", name, *what, 7)]


def test_changes_of_what_others_claim_are_heard_with_the_counts(sender, told):
    for _ in range(3):
        sender.peers_claims()
    sender.flush()
    assert told.all == [("listener", "peers_claims")]


def test_delays_and_errors_that_come_again_are_heard_with_the_counts(sender, told):
    for _ in range(3):
        sender.internal_error("hear", KeyError("a"))
    sender.loop_delay(0.1, 0.2)
    sender.flush()
    (_, name, task, words, *_), *counted = told.all
    assert (name, task, words) == ("wire_error", "hear", "KeyError: 'a'")
    assert counted == [("listener", "wire_error_again", "hear", 2), ("listener", "loop_delay", 0.1, 0.2)]


@pytest.mark.parametrize(
    ("before", "heard"),
    [(Before(), []), (Before("killed", 0.5), [("listener", "taken_over", "killed", 0.5, 1)])],
    ids=["the first", "another"],
)
def test_a_main_process_finds_speakers_before_claims_and_whom_it_follows(told, before, heard):
    found = Resumed({A: HERE}, {A: Taken(HERE, "them")}, Incarnation(7), ((2, "them", SPEAKER),))
    EventReceiver(told.by("listener"), told.by("sink"), told.by("moves")).resume(before, found)
    assert told.all == [
        ("moves", "speaker", 2, "them", SPEAKER),
        ("moves", "claimed", A, HERE, "them"),
        ("sink", "incarnation", Incarnation(7)),
        *heard,
    ]


def test_where_nobody_keeps_records_or_follows_moves_the_others_are_told_all_the_same(told):
    receiver = EventReceiver(told.by("listener"), None, None)
    sender = EventSender(receiver.hear)
    sender.silence()
    sender.speaker(2, "them", SPEAKER)
    sender.claimed(A, HERE, 3, None)
    receiver.resume(Before(), Resumed({A: HERE}, {A: Taken(HERE, None)}, Incarnation(7)))
    assert told.all == [("listener", "claimed", A, HERE, 3, None, None)]


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
    ("command", "asked"),
    [
        (UseLinks((ETH0,), frozenset({MAC})), ("owner", "links", (ETH0,), frozenset({MAC}))),
        (Withdraw([A]), ("owner", "withdraw", [A])),
        (HoldLock(), ("locked",)),
        (OWN, ("owner", "addresses", OWN)),
        (GatewayAnswers(2, False), ("offers", "gateway", 2, False)),
        (SetDraining(True), ("owner", "drain", True)),
        (SetDemoted(True), ("offers", "demote", True)),
        (SetRecalled(False), ("offers", "recall", False)),
        (ApiSays([RecordsRestored(), ApiDown()]), ("owner", "api_says", [RecordsRestored(), ApiDown()])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_command_is_done_as_it_was_asked(asking, told, command, asked):
    assert asking(PEERS).obey(sent(command)) is None
    assert told.all == [asked]


@pytest.mark.parametrize(
    ("command", "replied"),
    [
        (Offer({}), []),
        (OfferedAll(), None),
        (ClaimsOf([A, B]), [(False, None, 0, None, None)] * 2),
        (IsReady(), True),
        (HasPeers(), False),
        (ListPeers(), []),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("peers", [None, PEERS], ids=["alone", "with peers"])
def test_a_question_is_answered(peers, command, replied):
    assert life(peers).obey(command) == replied


@pytest.mark.parametrize(
    ("command", "replied"), [(FollowRebalancing(), None), (ListRecorded(), ()), (IsInformed(), False)]
)
def test_a_question_about_peers_is_answered_where_there_may_be_some(command, replied):
    assert life(PEERS).obey(command) == replied
    with pytest.raises(WireError, match="alone"):
        life(None).obey(command)


async def test_a_rebalancing_begins_when_it_is_asked_for():
    one = life(PEERS)
    assert one.obey(StartRebalancing()) == one.obey(FollowRebalancing())


async def test_keys_are_used_from_the_moment_that_they_are_told():
    one = life(PEERS)
    before = one._keyring.current.signing
    one.obey(UseKeys((b"n" * 32, b"k" * 32)))
    after = one._keyring.current
    assert after.signing != before
    assert before in after.accepted.values()
    one.resume(Spec("us", PEERS))  # another main process, which reads the file anew
    assert one._keyring.current.signing == before


@pytest.mark.parametrize(("api", "told_of"), [(True, [("owner", "api_says", [ApiDown()])]), (False, [])])
def test_without_a_main_process_the_api_server_is_away_where_there_is_one(asking, told, api, told_of):
    asking(PeerSpec(0.1, 0x88B5, (b"k" * 32,), api)).api_away()
    assert told.all == told_of
