"""What the controller's page says while it leads, and while it stands by."""

import asyncio
import json
from ipaddress import ip_address

import pytest

from speaker.allocator.assign import Outcome, Usage
from speaker.allocator.refusals import Refusal, RefusalReason
from speaker.api.objects import Metadata
from speaker.api.records import RecordedClaim, RecordedObject
from speaker.controller.announced import Failover
from speaker.controller.decider import Decided
from speaker.controller.published import AGAIN, LEADS, STANDS_BY, ControllerPage, of_controller
from speaker.model import Assignment, Family, ServiceKey

WEB, DNS = ServiceKey("default", "web"), ServiceKey("default", "dns")
ONE, TWO = ip_address("192.0.2.10"), ip_address("192.0.2.11")
FULL = Refusal(DNS, RefusalReason.POOL_FULL, "no free address: lan")
DECIDED = Decided(
    {WEB: Outcome(Assignment(WEB, (ONE, TWO), ("lan", "dmz"))), DNS: Outcome(None, FULL)},
    {"lan": {Family.IPV4: Usage(254, 1, 0)}},
)


def record(name, **status):
    return RecordedObject(Metadata(name=name), RecordedClaim(**status))


def test_every_eip_in_use_has_the_holder_that_its_record_names():
    records = [
        record(
            "192.0.2.10", holder="n2", link="eth0", since="2026-01-02T00:00:00Z", conflict="02:00:00:00:00:99 on eth0"
        ),
        record("192.0.2.11", link="eth0"),
        record("192.0.2.99", holder="n9"),
        record("what is this", holder="n9"),
    ]
    found = of_controller("c1", DECIDED, records, [], ["a problem"])
    assert found["eips"] == {
        "192.0.2.10": {
            "pool": "lan",
            "services": ["default/web"],
            "holder": "n2",
            "since": "2026-01-02T00:00:00Z",
            "conflict": "02:00:00:00:00:99 on eth0",
            "link": "eth0",
        },
        "192.0.2.11": {"pool": "dmz", "services": ["default/web"], "holder": ""},
    }
    assert found["nodes"] == [{"node": "n2", "eips": 1}]
    assert found["problems"] == ["a problem"]
    refused = {"service": "default/dns", "reason": "pool_full", "message": "no free address: lan"}
    assert found["refused"] == [refused]


@pytest.fixture
def shown(in_virtual_time):
    """``shown(happens)``: what the page says after that, to one that has run for a while."""

    def play(*happens):
        async def story():
            page = ControllerPage("c1", lambda: ["a problem"])
            running = asyncio.create_task(page.run([record("192.0.2.10", holder="n2")]))
            for one in happens:
                one(page)
                await asyncio.sleep(1)
            running.cancel()
            return json.loads(await page.live.now())

        return in_virtual_time(story())

    return play


def test_who_stands_by_says_so_and_knows_its_own_problems_alone(shown):
    found = shown(lambda page: None)
    assert (found["by"], found["role"], found["eips"], found["problems"]) == ("c1", STANDS_BY, {}, ["a problem"])


def test_who_stands_by_has_a_problem_for_as_long_as_it_lasts(in_virtual_time):
    async def story():
        problems = ["a bug"]
        page = ControllerPage("c1", lambda: problems)
        standing_by = asyncio.create_task(page.go_on_standing_by())
        assert json.loads(await page.live.now())["problems"] == ["a bug"]
        problems.clear()
        await asyncio.sleep(AGAIN + 1)
        assert json.loads(await page.live.now())["problems"] == []
        page.follow(DECIDED)
        problems.append("another")
        await asyncio.sleep(AGAIN + 1)
        assert json.loads(await page.live.now())["problems"] == [], "what it leads with is told by its other loop"
        standing_by.cancel()

    in_virtual_time(story())


def test_who_leads_shows_what_it_decided_and_who_leads_no_more_forgets_it(shown):
    failover = Failover(ONE, "192.0.2.10", "n1", "n2", 0.231, 4, "2026-01-01T00:00:00Z")
    leads = (lambda page: page.failed_over(failover), lambda page: page.follow(DECIDED))
    found = shown(*leads)
    assert (found["role"], found["counts"]["eips"]) == (LEADS, 2)
    assert [(each["from"], each["to"], each["unanswered"]) for each in found["failovers"]] == [
        ("n1", "n2", [0.231] * 2)
    ]
    assert shown(*leads, lambda page: page.stand_by())["role"] == STANDS_BY
