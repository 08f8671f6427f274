"""What ``speaker lab`` can be asked for, and what it refuses."""

import pytest

from speaker.errors import SettingError
from speaker.lab.failover import SCENARIOS as FAILOVERS
from speaker.lab.request import SCENARIOS, SICK_LINKS, Request, Trouble, parse
from speaker.lab.sickness import COURSES


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
        ((None, None, "fast"), "--hello fast"),
    ],
)
def test_what_cannot_be_played_is_refused_with_the_rule(flags, message):
    with pytest.raises(SettingError, match=message):
        parse("crash", *flags)


def test_every_scenario_that_can_be_asked_for_can_be_played():
    assert set(SCENARIOS) == {"reach", *FAILOVERS, *COURSES}


def test_a_sick_link_lasts_as_long_as_it_is_usual_and_is_watched_for_a_minute_after():
    request = parse("blip", None, None, None)
    assert (request.nodes, request.eips, request.clients) == (3, 12, 1)
    assert request.trouble == Trouble(seconds=SICK_LINKS["blip"], after=60.0)
    assert parse("minority", None, None, None).nodes == 4, "two on each side"
    assert parse("minority", 5, None, None).clients == 2
    assert parse("blip", None, None, None, Trouble(0.3)).trouble.seconds == 0.3


@pytest.mark.parametrize(
    ("scenario", "nodes", "trouble", "message"),
    [
        ("crash", None, Trouble(loss=10), "--loss: crash has no sick links"),
        ("reach", None, Trouble(seconds=1), "--seconds: reach has no sick links"),
        ("drain", None, Trouble(second_link=True), "--second-link: drain has"),
        ("deaf", None, Trouble(carrier=True), "--carrier: deaf leaves every carrier up"),
        ("deaf", None, Trouble(loss=91), "--loss 91: must be percent from 0 to 90"),
        ("deaf", None, Trouble(delay=-1), "--delay -1"),
        ("deaf", None, Trouble(seconds=0), "--seconds 0: must be seconds above 0"),
        ("deaf", None, Trouble(after=61), "--after 61: must be seconds from 0 to 60"),
        ("deaf", None, Trouble(after=float("nan")), "--after nan"),
        ("partial", 2, Trouble(), "--nodes 2: partial needs from 3"),
        ("crash", None, Trouble(hold=350), "--hold: crash has no sick links"),
        ("deaf", None, Trouble(hold=350), "--hold: not with deaf: choose burst"),
        ("mute", None, Trouble(only="nodes"), "--only: not with mute: choose burst"),
        ("burst", None, Trouble(stop=100), "--stop: not with burst: choose stutter"),
        ("storm", None, Trouble(unicast=True), "--unicast: not with storm: choose mute"),
        ("burst", None, Trouble(only="clients"), "--only 'clients': must be nodes"),
        ("burst", None, Trouble(hold=9), "--hold 9: must be milliseconds from 10 to 2000"),
        ("burst", None, Trouble(delay=5), "--delay 5: not with burst"),
        ("stutter", None, Trouble(stop=334), "--stop 334: 3 nodes in turn: must be milliseconds from 10 to 333"),
        ("stutter", 5, Trouble(), "--stop 250: 5 nodes in turn: must be milliseconds from 10 to 200"),
    ],
)
def test_trouble_that_cannot_be_made_is_refused_with_the_rule(scenario, nodes, trouble, message):
    with pytest.raises(SettingError, match=message):
        parse(scenario, nodes, None, None, trouble)


@pytest.mark.parametrize(
    ("scenario", "asked", "found"),
    [
        ("burst", Trouble(), Trouble(10.0, hold=350)),
        ("burst", Trouble(only="nodes"), Trouble(10.0, hold=500, only="nodes")),
        ("burst", Trouble(hold=250), Trouble(10.0, hold=250)),
        ("stutter", Trouble(), Trouble(10.0, stop=250)),
        ("mute", Trouble(unicast=True), Trouble(10.0, unicast=True)),
        ("nobroadcast", Trouble(), Trouble(10.0)),
    ],
)
def test_bursts_and_stops_are_as_long_as_asked_for_or_as_usual(scenario, asked, found):
    assert parse(scenario, None, None, None, asked).trouble == found
