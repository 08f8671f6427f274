"""Asking for what others hold: whose silence is told, and what shows that it is not our own cable's."""

import asyncio
from ipaddress import ip_address

import pytest

from speaker.allocator.settle import Settlement
from speaker.forwarding.plan import EMPTY
from speaker.model import Link, Mac
from speaker.model.events import Conflict, PeerChanged
from speaker.node.decide import Decision, MayNotHold
from speaker.node.known.knowledge import InForce
from speaker.node.publishing import Witnessing
from speaker.node.report import Report
from speaker.packets.asker import Askers
from speaker.packets.asking import Answer
from speaker.telemetry.metrics import Metrics
from speaker.wire.messages import ClaimStatus, PeerSeen

ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))
EIP, THEIR_OWN = ip_address("192.0.2.10"), ip_address("192.0.2.2")
HOLDER = PeerSeen("n2", "eth0", True, False, addresses=(THEIR_OWN, ip_address("fe80::2")))


class Lan(Askers):
    """On which these addresses are answered for."""

    def __init__(self, *answers):
        super().__init__()
        self.answered, self.asked = answers, []

    def use(self, links, own):
        pass

    def ask(self, eip, link, known=None):
        self.asked.append((eip, link) if known is None else ((eip, known), link))
        return True

    def drop(self):
        self.asked.clear()

    def answers(self):
        asked, self.asked = self.asked, []
        found = [eip for eip, _ in asked if eip in self.answered]
        return [Answer(eip[0] if isinstance(eip, tuple) else eip, Mac(b"\x02\0\0\0\0\x02")) for eip in found]


@pytest.mark.parametrize(
    ("answers", "hosts"),
    [((EIP, THEIR_OWN), 1), ((THEIR_OWN,), 0), ((), None)],
    ids=["it answers", "its host does, and not for the EIP", "nobody: it may be our own cable"],
)
def test_a_holder_is_said_to_be_silent_only_where_somebody_answers_us(tmp_path, in_virtual_time, answers, hosts):
    async def story():
        report, lan = Report(Metrics(), tmp_path, asyncio.get_running_loop().time), Lan(*answers)
        report.hear(PeerChanged("n2", ETH0, alive=True))
        witnessing = Witnessing("n1", report, lan)
        witnessing.use([ETH0], {})
        witnessing.know([HOLDER])
        claim = ClaimStatus(mine=False, holder="n2", term=3, since=None, link=ETH0.index)
        witnessing.follow({EIP: MayNotHold(EIP, "lan", (), "no_carrier", "")}, {EIP: claim})
        asking = asyncio.create_task(witnessing.run())
        await asyncio.sleep(60)
        asking.cancel()
        return report.answering(str(EIP))

    assert in_virtual_time(story()) == hosts


EIP6, MAC = ip_address("2001:db8::10"), Mac(b"\x02\0\0\0\0\x02")


@pytest.mark.parametrize(
    ("eip", "own", "lost"),
    [(EIP6, ip_address("fe80::2"), "multicast is"), (EIP, THEIR_OWN, "broadcasts are")],
    ids=["NDP", "ARP"],
)
@pytest.mark.parametrize(
    ("answers", "kinds"),
    [
        (("everybody", "alone"), []),
        (("alone",), ["multicast_lost"]),
        (("alone", "own"), ["multicast_lost"]),
        (("own",), ["not_answered"]),
        ((), []),
    ],
    ids=["it answers", "by unicast", "by unicast, and for its own address", "not at all", "nobody does"],
)
def test_a_holder_that_answers_only_by_unicast_gets_no_multicast_from_the_switch(
    tmp_path, in_virtual_time, eip, own, lost, answers, kinds
):
    answers = [{"everybody": eip, "alone": (eip, MAC), "own": own}[each] for each in answers]

    async def story():
        report, lan = Report(Metrics(), tmp_path, asyncio.get_running_loop().time), Lan(*answers)
        report.hear(PeerChanged("n2", ETH0, alive=True))
        witnessing = Witnessing("n1", report, lan)
        witnessing.use([ETH0], {})
        witnessing.know([HOLDER._replace(mac=MAC)])
        claim = ClaimStatus(mine=False, holder="n2", term=3, since=None, link=ETH0.index)
        eips = {eip: MayNotHold(eip, "lan", (), "unknown", "")}
        witnessing.follow(eips, {eip: claim})
        report.brought_about(InForce(Settlement({}, {}), Decision(eips, EMPTY), {}))

        async def claims(_):
            return {eip: claim}

        asking = asyncio.create_task(witnessing.run())
        found = []
        for _ in range(2):  # it stays so
            await asyncio.sleep(60)
            await report.publish(claims, True)
            found.append([each.kind for each in report.findings()])
            said = [each.sentence for each in report.findings() if each.kind == "multicast_lost"]
            assert all(f"{lost} not forwarded to n2" in each for each in said)
        lan.answered = (eip,)
        await asyncio.sleep(60)
        await report.publish(claims, True)
        asking.cancel()
        return [*found, [each.kind for each in report.findings()]]

    assert in_virtual_time(story()) == [kinds, kinds, []]


@pytest.mark.parametrize(("answers", "over"), [((), True), ((EIP,), False)])
def test_a_stranger_is_no_problem_once_it_does_not_answer_and_stays_one_while_it_does(
    tmp_path, in_virtual_time, answers, over
):
    async def story():
        report, lan = Report(Metrics(), tmp_path, asyncio.get_running_loop().time), Lan(*answers)
        witnessing = Witnessing("n1", report, lan)
        witnessing.use([ETH0], {})
        asking = asyncio.create_task(witnessing.run())
        await asyncio.sleep(1)
        report.hear(Conflict(ETH0, EIP, Mac(b"\x02\0\0\0\0\x99"), held=True))
        await asyncio.sleep(15)
        asking.cancel()
        return report.problems()

    assert (in_virtual_time(story()) == []) is over
