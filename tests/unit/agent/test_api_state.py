"""When the API counts as up: a renewal was answered in time, and every mirror says what is now."""

import asyncio

import pytest

from speaker.agent.session import LOOK_SECONDS, ApiState
from speaker.cluster.feed import Resource
from speaker.errors import ApiRefused, ApiUnreachable
from speaker.telemetry.lines import LASTING

LATE = ApiUnreachable("/api/v1/nodes: no answer in time")
FORBIDDEN = ApiRefused(403, "Forbidden", "nodes is forbidden")


class Mirror:
    def __init__(self, path):
        self.resource, self.reconnects = Resource(path, object), 0
        self.following, self.resting = True, False

    def reconnect(self):
        self.reconnects += 1
        self.following = False


class Api:
    """An API state with two mirrors, and all that it says to others."""

    def __init__(self):
        self.services, self.eips = self.mirrors = Mirror("/services"), Mirror("/eips")
        self.said, self.hurried, self.reported = [], 0, []
        self.state = ApiState(self.mirrors, self, self._hurry, self.said.append)

    def _hurry(self):
        self.hurried += 1

    def api(self, up):
        self.reported.append(("api", up))

    def recovered(self, edge):
        self.reported.append(("recovered", edge))

    def failed(self, edge, error, *, known=False, patience=0.0):
        self.reported.append(("failed", edge, known, patience))

    def news(self):
        """What was said and reported since the call before."""
        found = [*self.said], [one for one in self.reported if one[0] != "recovered"]
        self.said.clear()
        self.reported.clear()
        return found


@pytest.fixture
def play(in_virtual_time):
    """``play(story)``: with an API state whose loop runs."""

    def played(story):
        async def whole():
            api = Api()
            task = asyncio.create_task(api.state.come_up())
            await story(api)
            task.cancel()
            await asyncio.wait([task])

        in_virtual_time(whole())

    return played


async def turns():
    for _ in range(5):
        await asyncio.sleep(0)


async def come_up(api):
    api.state.renewed(1)
    await turns()
    assert api.state.up
    api.news()


def test_it_is_down_until_a_renewal_was_answered(play):
    async def story(api):
        await asyncio.sleep(60)
        assert not api.state.up
        assert api.news() == ([], [])
        api.state.renewed(1)
        assert not api.state.up, "not before the loop has looked at the mirrors"
        await turns()
        assert api.state.up
        assert api.news() == ([False, True], [("api", True)])

    play(story)


@pytest.mark.parametrize("behind", [0, 1])
def test_every_mirror_must_follow_by_then_and_one_that_waits_before_it_tries_again_does_so_at_once(play, behind):
    async def story(api):
        api.mirrors[behind].following, api.mirrors[behind].resting = False, True
        api.state.renewed(1)
        assert [mirror.reconnects for mirror in api.mirrors] == [int(number == behind) for number in (0, 1)]
        await asyncio.sleep(10)
        assert not api.state.up
        api.mirrors[behind].following = True
        await asyncio.sleep(1.5 * LOOK_SECONDS)
        assert api.state.up

    play(story)


def test_one_that_lists_is_not_broken_off_by_a_renewal(play):
    async def story(api):
        api.services.following = False
        for number in range(10):
            api.state.renewed(number)
            await asyncio.sleep(15)
        assert (api.services.reconnects, api.state.up) == (0, False)

    play(story)


def test_further_renewals_say_again_that_it_is_up_and_report_nothing(play):
    async def story(api):
        await come_up(api)
        api.state.renewed(2)
        await turns()
        assert api.news() == ([True], [])
        assert [mirror.reconnects for mirror in api.mirrors] == [0, 0]

    play(story)


def test_each_renewal_tells_of_the_mirrors_that_follow_that_they_work(play):
    async def story(api):
        api.eips.following = False
        api.state.renewed(1)
        assert ("recovered", "/services") in api.reported
        assert ("recovered", "/eips") not in api.reported

    play(story)


@pytest.mark.parametrize("dead", [False, True])
def test_a_renewal_that_is_late_takes_it_down_at_once_and_each_further_one_says_so_again(play, dead):
    async def story(api):
        await come_up(api)
        api.state.lost(dead)
        assert not api.state.up
        assert api.news() == ([False], [("api", False)])
        api.state.lost(dead)
        assert api.news() == ([False], [("api", False)])

    play(story)


def test_one_that_never_was_up_is_not_reported_as_down(play):
    async def story(api):
        api.state.lost(dead=True)
        assert api.news() == ([False], [])

    play(story)


@pytest.mark.parametrize(("dead", "reconnects"), [(False, 0), (True, 1)])
def test_after_it_was_dead_nothing_that_came_by_old_connections_proves_anything(play, dead, reconnects):
    async def story(api):
        await come_up(api)
        api.state.lost(dead)
        api.state.renewed(2)
        assert [mirror.reconnects for mirror in api.mirrors] == [reconnects] * 2
        for mirror in api.mirrors:
            mirror.following = True
        await asyncio.sleep(2 * LOOK_SECONDS)
        assert api.state.up
        api.state.lost(dead=False)
        api.state.renewed(3)
        assert [mirror.reconnects for mirror in api.mirrors] == [reconnects] * 2, "once for each time that it was dead"

    play(story)


def test_a_mirror_that_falls_behind_takes_it_down_with_the_next_renewal(play):
    async def story(api):
        await come_up(api)
        api.services.following, api.services.resting = False, True
        assert api.state.up
        api.state.renewed(2)
        assert not api.state.up
        assert (api.services.reconnects, api.eips.reconnects) == (1, 0)

    play(story)


def test_one_that_is_lost_before_the_mirrors_follow_does_not_come_up_by_them(play):
    async def story(api):
        api.services.following = False
        api.state.renewed(1)
        api.state.lost(dead=True)
        api.services.following = True
        await asyncio.sleep(10)
        assert not api.state.up

    play(story)


# ── Failures ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("was_up", "error", "patience"), [(False, LATE, 0.0), (True, LATE, LASTING), (True, FORBIDDEN, 0.0)]
)
def test_what_one_that_was_there_answers_late_needs_nobody_and_a_refusal_does(play, was_up, error, patience):
    async def story(api):
        if was_up:
            await come_up(api)
        api.state.tells("nodes")(error)
        api.state.failed("/eips", error)
        assert api.reported == [("failed", "nodes", False, patience), ("failed", "/eips", False, patience)]

    play(story)


def test_while_it_is_away_that_a_mirror_fails_has_been_said(play):
    async def story(api):
        await come_up(api)
        api.state.lost(dead=True)
        api.news()
        api.state.failed("/eips", LATE)
        assert api.reported == [("failed", "/eips", True, LASTING)]

    play(story)


@pytest.mark.parametrize(
    ("up", "fails", "hurried"),
    [
        (True, lambda state: state.tells("nodes")(LATE), 1),
        (True, lambda state: state.failed("/eips", LATE), 1),
        (True, lambda state: state.failed("/eips", FORBIDDEN), 1),
        (True, lambda state: state.tells("nodes")(FORBIDDEN), 0),
        (True, lambda state: state.tells("nodes")(None), 0),
        (False, lambda state: state.failed("/eips", LATE), 0),
    ],
)
def test_what_goes_unanswered_has_a_renewal_come_at_once_while_it_counts_as_up(play, up, fails, hurried):
    async def story(api):
        if up:
            await come_up(api)
        fails(api.state)
        assert api.hurried == hurried

    play(story)


def test_an_edge_that_works_again_is_told(play):
    async def story(api):
        api.state.tells("nodes")(None)
        assert api.reported == [("recovered", "nodes")]

    play(story)
