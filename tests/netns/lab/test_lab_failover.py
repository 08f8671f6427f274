"""Every failover scenario once, as its users run it. What moved, and that nobody answered twice, is the same on every
machine; how many milliseconds it took is not, so ``ok``, which knows the promise in milliseconds, is not asked for."""

import json
from collections import defaultdict

import pytest

pytestmark = pytest.mark.netns


@pytest.fixture(params=["socket", pytest.param("auto", marks=pytest.mark.long(part="lab"))])
def play(lab_command, request):
    """``play("crash")``: what its ``--json`` says."""

    def run(scenario):
        done = lab_command("--scenario", scenario, "--nodes", "3", "--responder", request.param, "--json")
        assert not done.stderr, done.stderr
        found = json.loads(done.stdout)  # one object and nothing else
        assert done.returncode == (0 if found["ok"] else 1)
        assert found["ok"] is not bool(found["problems"])
        assert len(found["outage_ms"]) == 8
        assert all(eip["sent"] > 100 for eip in found["eips"])
        return found

    return run


def assert_only_the_victims_eips_moved_once(found):
    held = [eip for eip in found["eips"] if eip["before"] == found["victim"]]
    others = [eip for eip in found["eips"] if eip["before"] != found["victim"]]
    assert held, "the victim holds most"
    assert all(eip["moves"] == 1 and eip["after"] not in (found["victim"], "a stranger") for eip in held), held
    assert all(eip["moves"] == 0 and eip["after"] == eip["before"] for eip in others), others
    assert found["moves"] == found["moved"] == len(held)
    assert found["duplicate_answers"] == 0


@pytest.mark.parametrize("scenario", ["crash", "cable", "stranger"])
def test_what_a_lost_node_held_moves_once_and_nothing_else_does(play, scenario):
    found = play(scenario)
    assert_only_the_victims_eips_moved_once(found)
    assert all(eip["lost"] for eip in found["eips"] if eip["before"] == found["victim"]), "nobody was there to answer"


def test_a_frozen_speaker_loses_its_eips_and_does_not_answer_for_them_when_it_goes_on(play):
    found = play("freeze")
    assert_only_the_victims_eips_moved_once(found)
    assert sum(eip["stale_answers"] for eip in found["eips"]) <= 1, "what was inside its last send call"


def test_a_drained_speaker_hands_over_and_no_probe_is_lost(play):
    found = play("drain")
    # Make before break: until the successor's first hello is heard both answer, and may be seen in any order.
    moved = {eip["address"] for eip in found["eips"] if eip["moves"]}
    assert moved == {eip["address"] for eip in found["eips"] if eip["before"] == found["victim"]}
    assert not any(eip["after"] in (found["victim"], "a stranger") for eip in found["eips"])
    assert not any(eip["lost"] for eip in found["eips"])
    assert not any("exit code" in problem for problem in found["problems"])


def test_a_node_that_comes_back_takes_nothing(play):
    found = play("rejoin")
    assert found["moves"] == found["duplicate_answers"] == 0
    assert all(eip["after"] == eip["before"] != found["victim"] for eip in found["eips"])


def test_both_halves_of_a_split_lan_are_served_and_one_holder_is_left_when_it_is_healed(play):
    found = play("partition")
    assert found["victim"] is None
    seen_by = defaultdict(list)
    for eip in found["eips"]:
        seen_by[eip["address"]].append(eip)
    for one, other in seen_by.values():
        assert {one["neighbour"], other["neighbour"]} == {"client", "client2"}
        assert one["after"] == other["after"] != "a stranger", "the winner, on both sides"
        assert (one["taken_over_ms"] is None) is not (other["taken_over_ms"] is None), "one side lost its holder"
    assert not any("was not told" in problem for problem in found["problems"])


def test_the_story_tells_who_claims_when_the_client_is_served_again_and_what_it_cost(lab_command):
    story = lab_command("--scenario", "crash", "--nodes", "2", "--eips", "4", "--hello", "50").stdout
    lines = story.splitlines()
    (died,) = (number for number, line in enumerate(lines) if " dies " in line)
    (table,) = (number for number, line in enumerate(lines) if line.startswith("EIP  "))
    between = lines[died:table]
    for happened in (" claims 192.0.2.", " hears gratuitous ARP: 192.0.2.", " is answered by 192.0.2."):
        assert any(happened in line for line in between), story
    assert lines[-1].startswith("Next: ")


@pytest.mark.parametrize("flags", [("--nodes", "1"), ("--nodes", "31"), ("--eips", "0"), ("--hello", "7")])
def test_what_cannot_be_played_is_refused_before_anything_starts(lab_command, flags):
    done = lab_command("--scenario", "crash", *flags)
    assert done.returncode == 2
    assert flags[0] in done.stderr
