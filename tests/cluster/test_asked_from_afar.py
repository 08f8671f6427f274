"""`speaker explain|doctor|status --cluster`, from where only the API is reached: the agents' pods answer, and nothing
else is asked."""

import json
import os
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.long(part="rest")]
VERIFIED = Path(__file__).parents[1] / "verified" / "test_executing.py"


def asked(cluster, *words):
    """As an administrator's machine says it."""
    program = (*cluster.words_in_api("x")[:-1], sys.executable, "-m", "speaker")
    return cluster.world.run(*program, *words, place="api", check=False)


def test_the_suite_of_the_fake_holds_for_a_real_pod(cluster):
    node = next(iter(cluster.nodes))
    environment = (
        f"EXEC_POD={cluster.agent_on(node)}",
        "EXEC_NAMESPACE=eip-speaker-agents",
        f"PATH={os.environ['PATH']}",
    )
    words = (
        *cluster.words_in_api("x")[:-1],
        *environment,
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-k",
        "real",
        VERIFIED,
    )
    assert " passed" in cluster.world.run(*words, place="api")


def test_an_eip_is_explained_by_every_node(cluster, eips):
    (first, *_) = eips["web"]

    def explained():
        told = json.loads(asked(cluster, "explain", first, "--cluster", "--json"))
        # On a slow machine an EIP moves meanwhile, and where it is bound its announcements are dropped as martians.
        assert told["code"] == 0 or {each["kind"] for each in told["findings"]} == {"martian_source"}
        assert told["silent"] == {}
        assert told["nodes"].keys() == cluster.nodes.keys()
        return told["findings"] == []

    cluster.until("nothing is found", explained)


def test_the_doctor_is_silent_on_a_cluster_that_is_well(cluster):
    told = json.loads(asked(cluster, "doctor", "--cluster", "--json"))
    assert (told["code"], told["findings"]) == (0, [])


def test_the_status_names_the_holder_of_every_eip(cluster, eips):
    told = json.loads(asked(cluster, "status", "--cluster", "--json"))
    held = {eip["address"]: eip["holders"] for eip in told["eips"]}
    for eip in (each for some in eips.values() for each in some):
        assert held[eip] == [cluster.holder(eip)]
