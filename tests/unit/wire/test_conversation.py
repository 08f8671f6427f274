"""What the wire process answers a main process, and what it keeps for one that does not read."""

import asyncio
import socket
from contextlib import AsyncExitStack
from ipaddress import ip_address

import pytest

from speaker.errors import EdgeError, WireError
from speaker.model import Gratuitous, Link, Mac, Placement
from speaker.model.events import (
    BugMet,
    BugsMetAgain,
    Counts,
    EdgeFailed,
    EdgeRecovered,
    EipClaimed,
    EipYielded,
    HellosSent,
    JoinFailed,
    LinkLost,
    WasFrozen,
)
from speaker.system.waiting import boottime
from speaker.wire.messages import Began, Channel, Reply, Request, Spec
from speaker.wire.process import Conversation, follow_carrier
from speaker.wire.sender import MAX_DELAYS, MAX_FAILURES, MAX_WAITING, EventSender
from speaker.wire.shared import SharedOwner


async def said(spec, *commands):
    """What a main process hears that asks for these, and whether it had said all that may be held."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    async with AsyncExitStack() as stack:
        talk, heard = Conversation(), []
        holding = asyncio.create_task(talk.hold(near, stack))
        main = await Channel.over(far)
        main.send(spec)
        for number, command in enumerate(commands, 1):
            main.send(Request(number, *command))
        async for message in main.messages():
            heard.append(message)
            if isinstance(message, Reply) and message.number == len(commands):
                break
        main.close()
        await holding
        return heard, talk.is_all_offered


ALONE, READY = Spec("us", None), ("ready",)
A, B, C = (ip_address(f"192.0.2.{10 + number}") for number in range(3))
HERE = Placement(Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01")), Gratuitous())


async def test_a_main_process_finds_what_there_is_and_every_request_is_answered():
    heard, offered_all = await said(ALONE, READY, ("offered_all",))
    began, *others = heard
    assert isinstance(began, Began)
    assert others == [Reply(1, True), Reply(2, None)]
    assert offered_all


async def test_one_that_is_not_obeyed_is_told_and_the_next_is():
    """A node alone hands nothing over."""
    heard, offered_all = await said(ALONE, ("drain", (True,)), READY)
    _, bug, *replies = heard
    assert isinstance(bug, BugMet)
    assert replies == [Reply(1, None, "drain: WireError: this node is alone"), Reply(2, True)]
    assert not offered_all


@pytest.mark.parametrize("command", ["forsake", "claim_status", "_headless", "no such thing"])
async def test_what_is_no_command_is_not_obeyed(command):
    heard, _ = await said(ALONE, (command,))
    assert heard[-1] == Reply(1, None, f"{command}: WireError: no such command")


async def test_for_how_long_there_was_none_is_told_as_it_is_when_the_next_one_has_come():
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    async with AsyncExitStack() as stack:
        talk = Conversation()
        talk.ended = "killed by SIGKILL", boottime() - 10.0
        holding = asyncio.create_task(talk.hold(near, stack))
        main = await Channel.over(far)
        await asyncio.sleep(0)
        talk.ended = "killed by SIGKILL", boottime() - 15.0  # it had much to import
        main.send(ALONE)
        before = (await anext(aiter(main.messages()))).before
        assert before.end == "killed by SIGKILL"
        assert 15.0 <= before.away < 20.0
        main.close()
        await holding


@pytest.mark.parametrize("messages", [["who are you"], [Request(1, *READY)], [ALONE, "what"], [ALONE, ALONE]])
async def test_whoever_speaks_another_language_is_hung_up_on(messages):
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    main = await Channel.over(far)
    for message in messages:
        main.send(message)
    async with AsyncExitStack() as stack:
        with pytest.raises(WireError, match=r"expected a (Spec|Request)"):
            await Conversation().hold(near, stack)
    assert [type(heard) for heard in [message async for message in main.messages()]] == [Began] * (len(messages) - 1)
    main.close()


class Heard(list):
    """A channel whose other end reads at once what it is sent."""

    waiting = 0
    send = list.append


class Unread:
    """A channel whose other end takes nothing."""

    def __init__(self):
        self.waiting, self.aborted = 0, False

    def send(self, message):
        self.waiting += len(repr(message))

    def abort(self):
        self.aborted = True


def test_a_main_process_that_reads_nothing_is_hung_up_on():
    talk, channel = Conversation(), Unread()
    talk._sender.channel = channel
    talk.stop()
    assert not channel.aborted
    channel.waiting = MAX_WAITING
    talk.stop()
    assert channel.aborted


def test_of_delays_without_end_the_longest_is_kept():
    sender = EventSender(told := Heard())
    for number in range(5 * MAX_DELAYS):
        sender.loop_delay(number % 777, 0.0)
    sender.flush()
    (counts,) = told
    assert len(counts.delays) <= MAX_DELAYS
    assert max(counts.delays) == (776, 0.0)


def test_counts_wait_while_the_main_process_does_not_keep_up():
    sender = EventSender(told := Heard())
    told.waiting = MAX_WAITING // 2
    sender.count(HellosSent("eth0", True), 1)
    sender.flush()
    sender.count(HellosSent("eth0", True), 2)
    assert told == []
    told.waiting = 0
    sender.flush()
    (sent,) = told
    assert sent.counts == {HellosSent("eth0", True): 3}


def test_what_was_claimed_while_nobody_listened_is_told_once_to_the_next_as_it_was_then():
    sender = EventSender(told := Heard())
    sender.tell(EipClaimed(A, HERE, 3, None))
    sender.channel = None
    sender.tell(EipClaimed(A, HERE, 5, "n2", 0.231))
    sender.tell(EipClaimed(B, HERE, 7, "n2", 0.232))
    sender.tell(EipClaimed(C, HERE, 9, "n3", 0.233))
    sender.tell(EipClaimed(C, HERE, 11, "n4", 4.2))
    sender.tell(EipYielded(B, "better_claim", "n2"))
    sender.channel = told
    sender.retell()
    sender.retell()
    assert told == [
        EipClaimed(A, HERE, 3, None, None),
        EipClaimed(A, HERE, 5, "n2", 0.231),
        EipClaimed(C, HERE, 11, "n4", 4.2),
    ]


def test_freezes_while_nobody_listened_are_told_once_to_the_next():
    told, sender = Heard(), EventSender()
    sender.tell(WasFrozen())
    sender.tell(WasFrozen())
    assert told == []
    sender.channel = told
    sender.retell()
    sender.retell()
    sender.tell(WasFrozen())
    assert told == [WasFrozen()] * 3


def test_bugs_met_while_nobody_listened_are_told_once_to_the_next_and_then_counted():
    told, sender = Heard(), EventSender()
    for _ in range(3):
        sender.internal_error("link", met := raised(ValueError("first")))
    sender.internal_error("hear", raised(ValueError("other")))
    assert told == []
    sender.channel = told
    sender.start_over()
    sender.retell()
    sender.retell()
    assert [(bug.task, bug.words) for bug in told] == [("link", "ValueError: first"), ("hear", "ValueError: other")]
    sender.internal_error("link", met)
    sender.flush()
    assert told[2:] == [Counts({BugsMetAgain("link"): 3}, [])]


def test_links_that_failed_while_nobody_listened_are_told_once_to_the_next():
    told, sender = Heard(), EventSender()
    lost = LinkLost(HERE.link, "eth0: hello: the link is down or was removed")
    sender.tell(lost)
    for _ in range(2 * MAX_FAILURES):
        sender.tell(JoinFailed("no room"))
    assert told == []
    sender.channel = told
    sender.retell()
    sender.retell()
    assert told == [lost, *[JoinFailed("no room")] * (MAX_FAILURES - 1)]
    sender.tell(lost)
    assert told[-1] == lost


def test_what_is_met_after_the_main_process_was_asked_to_end_is_among_the_last_words_whoever_hears_of_it():
    sender = EventSender(told := Heard())
    sender.internal_error("hear", raised(ValueError("before")))
    sender.end()
    for _ in range(3):
        sender.internal_error("link", met := raised(ValueError("handing over")))
    sender.channel = None
    sender.internal_error("link", met)
    sender.internal_error("take", raised(ValueError("alone")))
    sender.tell(LinkLost(HERE.link, "gone"))
    assert [bug.words for bug in told] == ["ValueError: before", "ValueError: handing over"]
    last, again = sender.last_words()
    assert [getattr(one, "words", one) for one in last] == [
        "ValueError: handing over",
        "ValueError: alone",
        LinkLost(HERE.link, "gone"),
    ]
    assert again == {"link": 3}


def raised(error):
    """With the line that it was raised at, by which two are told apart."""
    try:
        raise error
    except ValueError as found:
        return found


async def test_a_main_process_hears_of_a_claim_from_before_it_came_after_what_it_finds():
    async with AsyncExitStack() as stack:
        talk, heard = Conversation(), []
        for _ in range(2):
            near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            holding = asyncio.create_task(talk.hold(near, stack))
            main = await Channel.over(far)
            main.send(ALONE)
            main.send(Request(1, *READY))
            async for message in main.messages():
                heard.append(message)
                if isinstance(message, Reply):
                    break
            main.close()
            await holding
            talk.events.tell(EipClaimed(A, HERE, 5, "n2", 0.231))
        began, _, again, claimed, _ = heard
        assert isinstance(began, Began)
        assert isinstance(again, Began)
        assert claimed == EipClaimed(A, HERE, 5, "n2", 0.231)


def test_an_error_that_comes_without_end_is_told_once_and_counted_until_somebody_else_listens():
    sender = EventSender(told := Heard())

    def stumble(times):
        for _ in range(times):
            try:
                raise KeyError("a")
            except KeyError as error:
                sender.internal_error("hear", error)

    stumble(1000)
    assert [(one.task, one.words) for one in told] == [("hear", "KeyError: 'a'")]
    sender.flush()
    assert told[-1].counts == {BugsMetAgain("hear"): 999}
    sender.start_over()
    stumble(2)
    assert isinstance(told[-1], BugMet)


def test_that_carriers_are_seen_again_is_told_once(virtually, parts):
    owner = SharedOwner(parts.machine, parts.sockets, parts.clock, parts.events, parts.links)
    tries = 0

    async def watch(links, tell, doubted, *, looked):
        nonlocal tries
        tries += 1
        if tries <= 2:
            raise EdgeError("rtnetlink: Too many open files")
        looked()
        looked()
        await asyncio.Event().wait()

    async def story():
        following = asyncio.create_task(follow_carrier(owner, parts.events, watch))
        await asyncio.sleep(60)
        following.cancel()

    virtually(story)
    failed = EdgeFailed("carrier", "rtnetlink: Too many open files")
    assert parts.events.all == [failed, failed, EdgeRecovered("carrier")]


def test_nothing_that_is_reported_or_counted_fails_who_reports():
    """One place: what the owner, layer 2 and all tasks of the wire process report to."""
    events = Conversation().events
    told = [name for name, kind in vars(EventSender).items() if not name.startswith("_") and callable(kind)]
    assert len(told) > 8
    for name in told:
        assert getattr(events, name)(*[object()] * 9) is None  # more than any of them takes
