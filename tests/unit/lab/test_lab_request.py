"""What ``speaker lab`` can be asked for, and what it refuses."""

import pytest

from speaker.errors import SettingError
from speaker.lab.request import SCENARIOS, Request, parse
from speaker.lab.scenario_failover import SCENARIOS as FAILOVERS


def test_reach_has_one_node_and_its_own_eips():
    assert parse("reach", None, None, None) == Request("reach", nodes=1)


@pytest.mark.parametrize("flags", [(1, None, None), (None, 8, None), (None, None, "100")])
def test_reach_takes_none_of_the_others_flags(flags):
    with pytest.raises(SettingError, match="reach has one node"):
        parse("reach", *flags)


def test_the_others_have_three_nodes_and_eight_eips_unless_told_otherwise():
    assert parse("crash", None, None, None) == Request("crash", nodes=3, eips=8, hello_ms=100)
    assert parse("drain", 5, 20, "25") == Request("drain", nodes=5, eips=20, hello_ms=25)
    assert parse("partition", None, None, None).clients == 2, "one on each side"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((1, None, None), "--nodes 1: crash needs from 2 to 30"),
        ((31, None, None), "--nodes 31"),
        ((None, 0, None), "--eips 0"),
        ((None, 51, None), "--eips 51: must be from 1 to 50"),
        ((None, None, "fast"), "--hello 'fast'"),
    ],
)
def test_what_cannot_be_played_is_refused_with_the_rule(flags, message):
    with pytest.raises(SettingError, match=message):
        parse("crash", *flags)


def test_every_scenario_that_can_be_asked_for_can_be_played():
    assert set(SCENARIOS) == {"reach", *FAILOVERS}
