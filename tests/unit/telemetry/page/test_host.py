"""What a host's page makes of the log and of the status file, whatever these say."""

import asyncio
import json

import pytest

from speaker.telemetry.lines import Line
from speaker.telemetry.page.host import EXAMINED, HostPage

NOTHING = {"eips": [], "refused": [], "problems": []}


def taken(**fields):
    return Line("info", "claimed", {"eip": "192.0.2.10", "before": "n2", "term": 4, **fields})


def peer(node, event="peer heard", link="eth0"):
    return Line("info", event, {"peer": node, "link": link})


class Bugs:
    def __init__(self):
        self.met = []

    def internal_error(self, task, error):
        self.met.append((task, type(error)))


@pytest.fixture
def shown():
    """``shown(*lines)``: what the page says after them, and the bugs that were met."""

    def play(*lines):
        async def story():
            bugs = Bugs()
            page = HostPage("n1", bugs)
            for line in lines:
                page.heard(line)
            page.shown(NOTHING, {}, {})
            await asyncio.sleep(0)
            return json.loads(await page.live.now()), bugs.met

        return asyncio.run(story())

    return play


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([taken(unanswered=0.231)], [("n2", "n1", [0.231, 0.231])]),
        ([taken(unanswered=0.231, before=None)], [("", "n1", [0.231, 0.231])]),
        ([taken()], []),
        ([Line("info", "withdrawn", {"eip": "192.0.2.10", "reason": "deaf", "holder": None})], []),
    ],
)
def test_failovers_of_this_host_are_on_its_page_and_nothing_else_is_one(shown, lines, expected):
    found, bugs = shown(*lines)
    assert [(each["from"], each["to"], each["unanswered"]) for each in found["failovers"]] == expected
    assert bugs == []


@pytest.mark.parametrize(
    ("lines", "nodes"),
    [
        ([], ["n1"]),
        ([peer("n2")], ["n1", "n2"]),
        ([peer("n2"), peer("n2", link="eth1"), peer("n2", "peer silent")], ["n1", "n2"]),
        ([peer("n2"), peer("n2", "peer silent")], ["n1"]),
    ],
)
def test_nodes_are_on_it_for_as_long_as_they_are_heard_anywhere(shown, lines, nodes):
    assert [each["node"] for each in shown(*lines)[0]["nodes"]] == nodes


def test_a_line_that_nobody_foresaw_is_a_bug_and_no_more(shown):
    found, bugs = shown(Line("info", "claimed", {"unanswered": 1.0}), taken(unanswered=0.231))
    assert bugs == [("page", KeyError)]
    assert len(found["failovers"]) == 1


FOUND = {
    "kind": "rp_filter",
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
