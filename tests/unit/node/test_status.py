"""The status file: what is in it, whatever is known, and that it can be read at any time."""

import json
from collections import Counter
from ipaddress import ip_address

import pytest

from speaker.allocator.refusals import Refusal, RefusalReason
from speaker.allocator.settle import Settlement
from speaker.checks import Finding, said
from speaker.errors import EdgeError
from speaker.forwarding.handing_over import NextHop
from speaker.forwarding.limits import Tables, Use
from speaker.forwarding.plan import EMPTY
from speaker.kubeproxy.judge import Judgement, KubeProxy, Mode
from speaker.model import Gratuitous, Link, Mac, ServiceKey
from speaker.node.decide import Decision, MayHold, MayNotHold
from speaker.node.status import NAME, Status, write_status
from speaker.ownership.preference import Preferred
from speaker.system.process import Priority
from speaker.wire.messages import ClaimStatus

ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))
EIP, OTHER = ip_address("192.0.2.10"), ip_address("2001:db8::10")
WEB, DNS = ServiceKey("default", "web"), ServiceKey("default", "dns")
NOTHING = Settlement({}, {}), Decision({}, EMPTY), {}, ()
EMPTY_FILE = {
    "eips": [],
    "refused": [],
    "problems": [],
    "findings": [],
    "wire_priority": None,
    "kube_proxy": None,
    "handed_over": [],
    "assisting": [],
    "tables": {},
}


def read(status, *asked):
    """As whoever reads the file sees it."""
    return json.loads(json.dumps(status.told(*asked)))


def test_before_anybody_has_looked_every_field_is_there_and_empty():
    assert read(Status(), *NOTHING) == EMPTY_FILE


@pytest.mark.parametrize(
    ("seen", "field", "told"),
    [
        ({"priority": Priority.REAL_TIME}, "wire_priority", Priority.REAL_TIME.value),
        (
            {
                "kube_proxy": Judgement(
                    KubeProxy(Mode.IPVS, ("port 10249",)), said("kube_proxy", ["a problem"], ""), ("a note",)
                )
            },
            "kube_proxy",
            {"mode": "ipvs", "evidence": ["port 10249"], "notes": ["a note"]},
        ),
        (
            {"handed_over": Counter({NextHop("eth0", EIP): 3})},
            "handed_over",
            [{"address": "192.0.2.10", "link": "eth0", "eips": 3}],
        ),
        ({"assisting": {"n2": 12.5}}, "assisting", [{"node": "n2", "since": 12.5}]),
        ({"tables": Tables(Use(5, 100))}, "tables", {"conntrack": {"connections": 5, "size": 100}}),
        (
            {"tables": Tables(Use(5, 100), Use(6, 4096))},
            "tables",
            {"conntrack": {"connections": 5, "size": 100}, "ipvs": {"connections": 6, "size": 4096}},
        ),
    ],
)
def test_what_was_seen_of_this_host_has_a_field_of_its_own(seen, field, told):
    assert read(Status(**seen), *NOTHING) == EMPTY_FILE | {field: told}


@pytest.mark.parametrize(
    ("standing", "told"),
    [
        (ClaimStatus(True, "n1", 7, 12.5), {"claimed": True, "holder": "n1", "term": 7, "since": 12.5}),
        (ClaimStatus(False, "n2", 8, None), {"claimed": False, "holder": "n2", "term": 8}),
        (ClaimStatus(False, None, 0, None), {"claimed": False, "holder": None, "term": 0}),
        (
            ClaimStatus(False, "n2", 8, None, preferred=Preferred("n3", 80)),
            {"claimed": False, "holder": "n2", "term": 8, "preferred": "n3", "weights": {"n2": 0, "n3": 80}},
        ),
        (
            ClaimStatus(False, "n2", 8, None, preferred=Preferred("n2", 80, 80)),
            {"claimed": False, "holder": "n2", "term": 8, "weights": {"n2": 80}},
        ),
        (
            ClaimStatus(False, "n2", 8, None, preferred=Preferred(None)),
            {"claimed": False, "holder": "n2", "term": 8},
        ),
    ],
)
@pytest.mark.parametrize(
    ("eip", "fate"),
    [
        (MayHold(EIP, "lan", (DNS, WEB), ETH0, Gratuitous()), {"link": "eth0", "mac": "02:00:00:00:00:01"}),
        (
            MayNotHold(EIP, "lan", (DNS, WEB), "link_down", "a sentence"),
            {"reason": "link_down", "message": "a sentence"},
        ),
    ],
)
def test_each_eip_says_who_has_it_and_where_it_is_or_why_it_is_not_here(eip, fate, standing, told):
    expected = {"address": "192.0.2.10", "services": ["default/dns", "default/web"], "pool": "lan", **told, **fate}
    status = read(Status(), Settlement({}, {}), Decision({EIP: eip}, EMPTY), {EIP: standing}, ())
    assert status == EMPTY_FILE | {"eips": [expected]}


def test_refusals_and_problems_are_listed():
    problems = [Finding("stranger", "a problem", "a mend", "192.0.2.10"), Finding("late_hellos", "another", "a mend")]
    fates = {eip: MayNotHold(eip, "lan", (WEB,), "no_link", "eth9") for eip in (EIP, OTHER)}
    refused = Settlement({}, {WEB: Refusal(WEB, RefusalReason.POOL_FULL, "no free address: lan")})
    told = read(
        Status(), refused, Decision(fates, EMPTY), dict.fromkeys(fates, ClaimStatus(False, None, 0, None)), problems
    )
    assert told["refused"] == [{"service": "default/web", "reason": "pool_full", "message": "no free address: lan"}]
    assert told["problems"] == ["a problem", "another"]
    assert told["findings"] == [
        {"name": "stranger", "severity": "error", "eips": 1},
        {"name": "late_hellos", "severity": "warning", "eips": 2},
    ]


def test_the_file_is_replaced_as_a_whole_and_its_directory_made(tmp_path):
    runtime_dir = tmp_path / "run"
    for problem in ("first", "second"):
        write_status(runtime_dir, Status().told(*NOTHING[:3], said("edge_fails", [problem], "")))
        assert json.loads((runtime_dir / NAME).read_bytes())["problems"] == [problem]
    assert [each.name for each in runtime_dir.iterdir()] == [NAME], "nothing is left of writing"


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "run").write_text("no directory")
    with pytest.raises(EdgeError, match=r"run/status\.json"):
        write_status(tmp_path / "run", Status().told(*NOTHING))
