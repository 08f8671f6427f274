"""What a host's page makes of the log and of the status file, whatever these say."""

import asyncio
import json

import pytest

from speaker.telemetry.lines import Line
from speaker.telemetry.page.host import HostPage

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
