"""What a host's page makes of the log and of the status file, whatever these say."""

import asyncio
import json
from ipaddress import ip_address

import pytest

from speaker.model import Gratuitous, Link, Mac, Placement
from speaker.model.events import EipClaimed, EipYielded, PeerChanged
from speaker.telemetry.page.host import EXAMINED, HostPage

EIP = ip_address("192.0.2.10")
NOTHING = {"eips": [], "refused": [], "problems": [], "findings": []}


def taken(unanswered=None, before="n2"):
    return EipClaimed(EIP, Placement(Link(2, "eth0", Mac(bytes(6))), Gratuitous()), 4, before, unanswered)


def peer(node, alive=True, link="eth0"):
    return PeerChanged(node, Link(2, link, Mac(bytes(6))), alive)


class Bugs:
    def __init__(self):
        self.met = []

    def internal_error(self, task, error):
        self.met.append((task, type(error)))


@pytest.fixture
def shown():
    """``shown(*events)``: what the page says after them, and the bugs that were met."""

    def play(*events):
        async def story():
            bugs = Bugs()
            page = HostPage("n1", bugs)
            for event in events:
                page.hear(event)
            page.shown(NOTHING, {}, {})
            await asyncio.sleep(0)
            return json.loads(await page.live.now()), bugs.met

        return asyncio.run(story())

    return play


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([taken(unanswered=0.231)], [("n2", "n1", [0.231, 0.231])]),
        ([taken(unanswered=0.231, before=None)], [("", "n1", [0.231, 0.231])]),
        ([taken()], []),
        ([EipYielded(EIP, "deaf", None)], []),
    ],
)
def test_failovers_of_this_host_are_on_its_page_and_nothing_else_is_one(shown, events, expected):
    found, bugs = shown(*events)
    assert [(each["from"], each["to"], each["unanswered"]) for each in found["failovers"]] == expected
    assert bugs == []


@pytest.mark.parametrize(
    ("events", "nodes"),
    [
        ([], ["n1"]),
        ([peer("n2")], ["n1", "n2"]),
        ([peer("n2"), peer("n2", link="eth1"), peer("n2", False)], ["n1", "n2"]),
        ([peer("n2"), peer("n2", False), peer("n2")], ["n1", "n2"]),
    ],
)
def test_nodes_are_on_it_for_as_long_as_they_are_heard_anywhere(shown, events, nodes):
    assert [each["node"] for each in shown(*events)[0]["nodes"]] == nodes


def test_one_that_fell_silent_is_on_it_as_that(shown):
    found, _ = shown(peer("n2"), peer("n2", False))
    assert found["nodes"] == [{"node": "n1", "eips": 0}, {"node": "n2", "eips": 0, "silent": True}]


def test_since_when_another_holds_an_eip_is_known_once_that_was_seen_to_begin():
    def held_by(holder):
        return NOTHING | {"eips": [{"address": "192.0.2.10", "services": [], "pool": "lan", "holder": holder}]}

    async def story():
        page, found = HostPage("n1", Bugs()), []
        for holder in ("n2", "n3", "n3", None):
            page.shown(held_by(holder), {}, {})
            await asyncio.sleep(0)
            found.append(json.loads(await page.live.now())["eips"]["192.0.2.10"].get("since"))
        return found

    before, begun, still, nobody = asyncio.run(story())
    assert (before, nobody) == (None, None)
    assert begun is not None
    assert still == begun


def test_what_the_process_knows_of_an_eip_is_asked_for_when_somebody_looks():
    async def story():
        asked = []
        page = HostPage("n1", Bugs(), lambda eip: asked.append(eip) or {"answering": 1})
        one = {"address": "192.0.2.10", "services": [], "pool": "lan", "holder": "n2"}
        page.shown(NOTHING | {"eips": [one]}, {}, {})
        await asyncio.sleep(0)
        assert asked == []
        return json.loads(await page.live.now())["eips"]["192.0.2.10"]["answering"]

    assert asyncio.run(story()) == 1


def test_an_event_that_nobody_foresaw_is_a_bug_and_no_more(shown):
    found, bugs = shown(PeerChanged("n2", None, True), taken(unanswered=0.231))
    assert bugs == [("page", AttributeError)]
    assert len(found["failovers"]) == 1


FOUND = {
    "kind": "rp_filter",
    "severity": "error",
    "eip": "",
    "what": "rp_filter is 1",
    "why": "w",
    "mend": "sysctl -w …",
    "docs": "docs/x.md",
}


def test_the_doctor_looks_while_somebody_looks_and_once_a_minute_at_most(in_virtual_time):
    async def story():
        loop, looked = asyncio.get_running_loop(), []

        def examine():
            looked.append(loop.time())
            return [FOUND] * 25

        page = HostPage("n1", Bugs())
        page.shown(NOTHING, {}, {})
        doctor = asyncio.create_task(page.examine(examine))
        await asyncio.sleep(3600)
        assert looked == []
        assert json.loads(await page.live.now())["doctor"] is None
        stream = page.live.stream()
        await anext(stream)
        await asyncio.sleep(EXAMINED - 1)
        assert looked == [3600]
        told = json.loads(await page.live.now())["doctor"]
        assert told["findings"] == [{name: value for name, value in FOUND.items() if name != "why"}] * 20
        assert told["left_out"] == 5
        await asyncio.sleep(EXAMINED)
        await stream.aclose()
        await asyncio.sleep(3600)
        assert looked == [3600, 3600 + EXAMINED]
        assert json.loads(await page.live.now())["doctor"] is None  # what it found an hour ago
        stream = page.live.stream()
        await anext(stream)
        await asyncio.sleep(1)
        assert len(looked) == 3
        await stream.aclose()
        doctor.cancel()

    in_virtual_time(story())
