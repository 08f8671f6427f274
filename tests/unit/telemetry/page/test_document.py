"""What the page shows of a host: all of its status file that people look for, bounded."""

import json
from pathlib import Path

import pytest

from speaker.allocator.assign import Usage
from speaker.model import Family
from speaker.telemetry.mqtt.messages import PROBLEMS, SENTENCE
from speaker.telemetry.page.document import MAPS, NAMED, REFUSED, change, eip, of_host

POOLS = {"lan": {Family.IPV4: Usage(254, 2, 1)}}
HELD = {"address": "192.0.2.10", "services": ["default/web"], "pool": "lan", "holder": "n1", "since": 1_700_000_000.0}
PEERS = {"address": "192.0.2.11", "services": ["default/dns"], "pool": "lan", "holder": "n2"}
NOBODYS = {"address": "192.0.2.12", "services": [], "pool": "lan", "holder": None, "message": "eth0: it is down"}
TOLD = {"eips": [], "problems": [], "refused": [], "findings": []}
DOCUMENTED = Path(__file__).parents[4] / "docs" / "page.md"


def of(*eips, problems=(), refused=(), conflicts=None, nodes=(), silent=(), findings=()):
    told = {"eips": eips, "problems": problems, "refused": refused, "findings": findings}
    return of_host("n1", told, POOLS, conflicts or {}, [], nodes, silent)


def test_every_eip_has_its_holder_and_whatever_is_wrong_with_it():
    found = of(HELD, PEERS, NOBODYS, conflicts={"192.0.2.11": "a stranger uses it"})
    assert found["eips"] == {
        "192.0.2.10": {
            "pool": "lan",
            "services": ["default/web"],
            "holder": "n1",
            "since": "2023-11-14T22:13:20.000Z",
        },
        "192.0.2.11": {
            "pool": "lan",
            "services": ["default/dns"],
            "holder": "n2",
            "conflict": "a stranger uses it",
        },
        "192.0.2.12": {"pool": "lan", "services": [], "holder": "", "message": "eth0: it is down"},
    }
    assert found["counts"] == {"eips": 3, "by_nobody": 1, "conflicts": 1}
    assert found["pools"] == [{"pool": "lan", "family": "IPv4", "size": 254, "used": 2, "resting": 1}]


@pytest.mark.parametrize(
    ("eips", "alive", "nodes"),
    [
        ([], [], {"n1": 0}),
        ([HELD, PEERS], ["n3"], {"n1": 1, "n2": 1, "n3": 0}),
        ([NOBODYS], ["n2"], {"n1": 0, "n2": 0}),
    ],
)
def test_every_node_that_lives_or_holds_anything_is_counted(eips, alive, nodes):
    assert {each["node"]: each["eips"] for each in of(*eips, nodes=alive)["nodes"]} == nodes


def test_a_node_that_fell_silent_is_shown_as_that_unless_it_holds_anything_or_is_heard():
    found = of(HELD, PEERS, nodes=["n3"], silent=["n4", "n3", "n2"])
    assert [each for each in found["nodes"] if "silent" in each] == [{"node": "n4", "eips": 0, "silent": True}]


def test_each_problem_has_its_kind_how_many_eips_it_breaks_and_what_to_read():
    found = of(problems=["ip_forward is 0"], findings=[{"name": "forwarding_off", "severity": "error", "eips": 264}])
    docs = "docs/operations.md#what-it-needs"
    assert found["findings"] == [{"kind": "forwarding_off", "severity": "error", "eips": 264, "docs": docs}]


def test_what_others_wrote_is_cut_off_and_what_is_left_out_is_counted():
    text = "x" * 5000
    found = of(
        HELD | {"services": [f"default/s{number}" for number in range(100)]},
        problems=[text] * 100,
        refused=[{"service": f"s{number:03}", "reason": "r", "message": text} for number in range(100)],
        conflicts={"192.0.2.10": text},
    )
    one = found["eips"]["192.0.2.10"]
    assert (len(one["services"]), one["more"], len(one["conflict"])) == (NAMED, 100 - NAMED, SENTENCE)
    assert [len(each) for each in found["problems"]] == [SENTENCE] * PROBLEMS
    assert [len(each["message"]) for each in found["refused"]] == [SENTENCE] * REFUSED
    assert found["left_out"] == {"problems": 100 - PROBLEMS, "refused": 100 - REFUSED}


def test_a_change_has_the_eips_that_are_others_and_all_of_the_rest():
    before, after = of(HELD, PEERS), of(HELD | {"holder": "n2"}, PEERS, NOBODYS)
    assert change(before, after)["eips"].keys() == {"192.0.2.10", "192.0.2.12"}
    assert change(after, before)["eips"]["192.0.2.12"] is None
    assert change(before, before)["eips"] == {}
    assert {**change(before, after), "eips": after["eips"]} == after


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"weights": {"n1": 80}}, {"preferred": "n1", "weights": {"n1": 80}}),
        (
            {"weights": {"n1": 20, "n2": 80}, "preferred": "n2"},
            {"preferred": "n2", "weights": {"n1": 20, "n2": 80}},
        ),
        ({"link": "eth0"}, {"link": "eth0"}),
        ({"message": "eth0: it is down"}, {"link": "eth0: it is down"}),
        ({}, {}),
    ],
)
def test_an_eip_says_which_node_it_prefers_and_its_link_or_why_there_is_none(told, expected):
    known = of(HELD | told)["eips"]["192.0.2.10"]
    assert {name: known[name] for name in ("preferred", "weights", "link", "message") if name in known} == expected


def test_what_the_process_knows_besides_is_told_and_what_it_does_not_know_is_not():
    known = {"answering": 0, "ready_endpoints": None}
    found = of_host(
        "n1", TOLD | {"eips": [HELD]}, POOLS, {}, [], [], seen=lambda eip: known if eip == "192.0.2.10" else {}
    )
    assert found["eips"]["192.0.2.10"].items() >= {"answering": 0}.items()
    assert "ready_endpoints" not in found["eips"]["192.0.2.10"]


class Places:
    """One address is used in each of so many /24s."""

    def __init__(self, number):
        self.number = number

    def blocks(self):
        return [*range(self.number)]

    def map(self, block):
        return f"10.0.{block}.0", [("used", 1), ("free", 255)]


def test_pools_have_maps_up_to_a_bound_of_all_and_what_is_left_out_is_counted():
    pools = {name: {Family.IPV4: Usage(65534, 9, 0, places=Places(number))} for name, number in [("a", 60), ("b", 9)]}
    one, other = of_host("n1", TOLD, pools, {}, [], [])["pools"]
    assert (len(one["maps"]), one["left_out"], len(other["maps"]), other["left_out"]) == (
        60,
        0,
        MAPS - 60,
        9 + 60 - MAPS,
    )
    assert one["maps"]["10.0.7.0"] == [("used", 1), ("free", 255)]


def test_every_field_is_documented():
    found = of(HELD, NOBODYS, refused=[{"service": "s", "reason": "r", "message": "m"}], conflicts={"192.0.2.10": "c"})
    seen = {"link": "l", "preferred": "n1", "weights": {}, "answering": 1, "ready_endpoints": 1}
    rows = eip("lan", ["a"] * 9, "n1", "s", "c", "m", **seen)
    text = DOCUMENTED.read_text()
    assert [name for name in (*found, *rows, "maps", "left_out") if f"`{name}`" not in text] == []
    assert json.loads(json.dumps(found)) == found
