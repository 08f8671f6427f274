"""Links that are sick and not dead, each for a moment, as the lab's users play them. How many milliseconds something
took is not asked for, but that it was over long before the link was well again."""

import json

import pytest

pytestmark = [pytest.mark.netns, pytest.mark.long(part="lab")]

SECONDS = 1.2
SHORT = ("--seconds", str(SECONDS), "--after", "0.3")
FLAPS = ("--seconds", "0.5", "--after", "1")
PLAYED = {
    "deaf": ("deaf", *SHORT),
    "flap with loss of carrier": ("flap", *FLAPS, "--carrier"),
    "stp": ("stp", *SHORT),
    "partial": ("partial", *SHORT),
    "oneway": ("oneway", *SHORT),
    "minority": ("minority", *SHORT),
    "filtered on one of two links": ("filtered", *SHORT, "--second-link"),
}


@pytest.mark.parametrize("scenario", PLAYED)
def test_a_sick_link_moves_nothing_of_healthy_nodes_and_leaves_nothing_dark(lab_command, scenario):
    done = lab_command("--scenario", *PLAYED[scenario], "--eips", "6", "--json")
    assert not done.stderr, done.stderr
    found = json.loads(done.stdout)  # one object and nothing else
    assert done.returncode == (0 if found["ok"] else 1)
    assert found["ok"] is not bool(found["problems"])
    assert all(eip["asked"] > 20 for eip in found["eips"])
    assert found["left_a_healthy_node"] == 0, found["problems"]
    assert found["answered_twice_ms"] < SECONDS * 500, found["problems"]
    assert found["unanswered_ms"] < SECONDS * 500, found["problems"]
    assert not any("claimed" in problem for problem in found["problems"])


LONG = ("--seconds", "5", "--after", "0.5")
PROMISED = {
    "burst": (("burst", "--seconds", "4", "--after", "0.5"), 1500),
    "burst that everybody bears": (("burst", "--hold", "150", *SHORT), 500),
    "burst between nodes": (("burst", "--only", "nodes", "--seconds", "4", "--after", "0.5"), 1500),
    "stutter": (("stutter", "--seconds", "5", "--after", "0.5"), 2500),
    "stutter that everybody bears": (("stutter", "--stop", "60", *SHORT), 600),
    "nobroadcast": (("nobroadcast", *LONG), 3500),
    "mute": (("mute", *LONG), 3500),
    "mute but for broadcasts": (("mute", "--unicast", *LONG), 3500),
    "storm": (("storm", *LONG), 3500),
    "storm where one looks on": (("storm", "--nodes", "2", *LONG), 3500),
    "sick": (("sick", *LONG), 3500),
}
"""What is played, and for how many milliseconds an EIP may be dark: more than is promised, because the machine is busy,
and far less than where nothing is done about it."""


@pytest.mark.parametrize("responder", ["socket", "auto"])
@pytest.mark.parametrize("trouble", PROMISED)
def test_what_comes_and_goes_or_only_says_hello_costs_what_is_promised_and_no_more(lab_command, trouble, responder):
    arguments, dark_ms = PROMISED[trouble]
    done = lab_command("--scenario", *arguments, "--responder", responder, "--eips", "6", "--json")
    assert not done.stderr, done.stderr
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["ok"] else 1)
    assert found["ok"] is not bool(found["problems"])
    assert all(eip["asked"] > 20 for eip in found["eips"])
    assert not any("left a healthy node" in problem for problem in found["problems"])
    twice_ms = SECONDS * (1400 if trouble == "burst between nodes" else 500)  # the first gap, and the one behind it
    assert found["answered_twice_ms"] < twice_ms, found["problems"]
    assert found["dark_ms"] < dark_ms, found["problems"]


def test_the_story_tells_what_the_switch_did_what_it_cost_and_what_was_promised(lab_command):
    story = lab_command("--scenario", "oneway", "--nodes", "2", "--eips", "2", *SHORT, "--loss", "5").stdout
    lines = story.splitlines()
    sick = next(number for number, line in enumerate(lines) if "is no longer heard by anybody" in line)
    well = next(number for number, line in enumerate(lines) if "the switch does its work again" in line)
    table = next(number for number, line in enumerate(lines) if line.startswith("EIP  "))
    assert sick < well < table, story
    assert any(line.startswith("claims while it lasted") for line in lines[table:])
    assert "(promised: 500)" in lines[-3], story


def test_what_cannot_be_played_is_refused_before_anything_starts(lab_command):
    done = lab_command("--scenario", "deaf", "--loss", "91")
    assert done.returncode == 2
    assert "--loss 91" in done.stderr
