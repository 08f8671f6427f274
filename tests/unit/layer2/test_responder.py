"""The loop that answers, on a socket that fails between what it reads and what it sends."""

import asyncio
import socket
import time

import pytest

from speaker.errors import EdgeError
from speaker.layer2.answer import answer_arp, arp_rival
from speaker.layer2.responder import Protocol, Responder
from speaker.model import Family
from speaker.packets import arp
from speaker.packets.packet_socket import Received

ARP = Protocol(Family.IPV4, answer_arp, arp_rival)


class GoneBeforeTheAnswer:
    """A link that goes down when a request was read and not answered."""

    def __init__(self, frame):
        self._readable, self._writer = socket.socketpair()
        self._writer.send(b"a request")
        self._frames = [frame]

    def fileno(self):
        return self._readable.fileno()

    def receive(self):
        frames, self._frames = self._frames, []
        now = time.time()
        return Received(frames, bytearray(len(frames)), [int(now)] * len(frames), [0] * len(frames))

    def send(self, replies):
        raise EdgeError("eth0: send: the link is down or was removed: Network is down")

    def close(self):
        self._readable.close()
        self._writer.close()


class Asked:
    """Whose requests are answered: of any age, and ``before`` is called first."""

    def __init__(self, before=lambda: None):
        self._before, self.clock = before, lambda: 0.0

    def prepare(self):
        self._before()
        return float("inf")

    def dispute(self, rival): ...

    def suspect(self, rival): ...


class Told:
    """The names of what was told and counted."""

    def __init__(self):
        self.all = []

    def internal_error(self, task, error):
        self.all.append("internal_error")

    def count(self, what, number):
        self.all.append(type(what).__name__)


def test_a_link_that_goes_down_before_the_answer_is_lost_and_no_bug(claims, lan):
    asked = arp.request(lan.stranger, lan.asker4, lan.eip4).pack()
    gone, told = GoneBeforeTheAnswer(asked), Told()

    async def story():
        responder = Responder(ARP, gone, claims, Asked(), told)
        async with asyncio.timeout(60):
            await responder.serve()

    with pytest.raises(EdgeError, match="Network is down"):
        asyncio.run(story())
    gone.close()
    assert told.all == []


class Unread(GoneBeforeTheAnswer):
    """A link on which a request always waits."""

    def receive(self):
        return Received([], bytearray(), [], [])


class NeverReads(Responder):
    def _do(self, work):
        """A bug in the loop's own callback."""


@pytest.mark.parametrize(("kind", "stands"), [(Responder, False), (NeverReads, True)])
async def test_a_responder_that_reads_nothing_of_what_waits_is_noticed(claims, kind, stands):
    responder = kind(ARP, waits := Unread(b""), claims, Asked(), Told())
    serving = asyncio.create_task(responder.serve())
    looks = []
    for look in range(4):
        await asyncio.sleep(0.001)
        looks.append(responder.stands_still(look / 10, 0.1))
    serving.cancel()
    await asyncio.wait([serving])
    waits.close()
    assert looks == [False, False, stands, stands]


class OneRead:
    """A socket from which these frames are read at once."""

    def __init__(self, frames):
        self._frames, self.sent = frames, []

    def receive(self):
        frames, self._frames = self._frames, []
        return Received(frames, bytearray(len(frames)), [int(time.time())] * len(frames), [0] * len(frames))

    def send(self, replies):
        self.sent += replies
        return len(replies)


@pytest.mark.parametrize("error", [KeyError, asyncio.CancelledError])
async def test_one_packet_that_meets_a_bug_keeps_no_other_from_its_answer(claims, lan, error):
    def answer(frame, pkttype, claims, now):
        if frame.endswith(lan.other4.packed):
            raise error("a bug")
        return answer_arp(frame, pkttype, claims, now)

    asked = [arp.request(lan.stranger, lan.asker4, eip).pack() for eip in (lan.other4, lan.eip4)]
    read, told = OneRead(asked), Told()
    protocol = Protocol(Family.IPV4, answer, arp_rival)
    Responder(protocol, read, claims, Asked(), told).answer_turn()
    assert len(read.sent) == 1
    assert told.all == ["internal_error", "Answers", "Ignorings"]


class AskedAgain(OneRead):
    """A link on which the same is asked again and again."""

    def receive(self):
        frames = self._frames[:1]
        now = int(time.time())
        return Received(frames, bytearray(len(frames)), [now] * len(frames), [0] * len(frames))


def test_a_bug_before_the_answer_costs_one_request_and_one_that_lasts_the_link(claims, lan):
    """A hello promises answers: where what comes before them fails, whatever that is, no hello may go on saying so."""
    asked = AskedAgain([arp.request(lan.stranger, lan.asker4, lan.eip4).pack()])
    errors = [KeyError("a bug"), None, KeyError("a bug"), None]

    def before():
        if (error := errors.pop(0) if errors else KeyError("a bug")) is not None:
            raise error

    told = Told()
    responder = Responder(ARP, asked, claims, Asked(before), told)
    for _ in range(len(errors)):
        responder.answer_turn()
    assert len(asked.sent) == 2
    responder.answer_turn()
    with pytest.raises(EdgeError, match="requests are not answered"):
        responder.answer_turn()
    assert told.all.count("internal_error") == 4
