"""Links that are sick and not dead, with the API in everybody's reach: as ``speaker lab`` plays them, with agents."""

import pytest
from agent_cluster import HELLO_MS, holders_of

from speaker.lab.request import Trouble
from speaker.lab.sick import suffer, ward
from speaker.lab.sick_links import judge
from speaker.lab.sickness import COURSES
from speaker.lab.speakers import holds_most

pytestmark = [pytest.mark.netns, pytest.mark.apiserver, pytest.mark.long(part="agents")]

SHORT = Trouble(seconds=3.0, after=1.0)
FLAPS = Trouble(seconds=0.5, after=3.0)
PLAYED = {
    "deaf": SHORT,
    "blip": SHORT,
    "flap": FLAPS,
    "stp": SHORT,
    "partial": SHORT,
    "oneway": SHORT,
    "minority": SHORT,
    "filtered": SHORT,
}


@pytest.mark.parametrize("scenario", PLAYED)
async def test_a_sick_link_moves_nothing_of_healthy_nodes_and_leaves_nothing_dark(cluster, scenario):
    trouble, holders = PLAYED[scenario], holders_of(await cluster.agreed())
    course = COURSES[scenario](ward(cluster.lan.topology, holds_most(holders), trouble))
    found = judge(scenario, HELLO_MS, await suffer(cluster.scene, course, holders))
    assert found.left == set(), found.problems
    assert found.twice_ms < trouble.seconds * 500, found.problems
    assert found.unanswered_ms < 400 + trouble.seconds * 500, found.problems
    assert not any("claimed" in problem for problem in found.problems)
    await cluster.agreed()
