"""What is printed, for people and for machines."""

import json
from dataclasses import replace

import pytest
from healthy import OWN
from test_findings import EIP, HELD_BY_PEER, KNOWN, PEERS_MAC, STRANGER, WELL, answered

from speaker.checks import KINDS
from speaker.diagnosis.chain import explain
from speaker.diagnosis.doctor import findings
from speaker.diagnosis.facts import Asked, Unseen
from speaker.diagnosis.report import chain_json, chain_lines, finding_lines, findings_json
from speaker.node.known.knowledge import Cut

HOSTILE = "n2\x1b[2J"


def text(facts):
    return "\n".join(chain_lines(explain(facts)))


@pytest.mark.parametrize(
    "words",
    [
        "node n1, forwarder nftables, ready",
        "lan: 192.0.2.200-192.0.2.209",
        "lab/web: 192.0.2.200 from lan",
        "n2: heard on eth0",
        "n1 (this node), term 3, since 2027-01-15 08:00:00 UTC",
        f"eth0 ({OWN}): interface: eth0",
        "nobody else answers",
        "TCP 192.0.2.200:80 rr",
        "TCP 10.244.1.11 port 8080 on n1: ready, accepts",
        "verdict: nothing is broken",
    ],
)
def test_every_step_of_an_eip_that_is_well_says_what_was_seen(words):
    assert words in text(WELL)
    assert "BROKEN" not in text(WELL)


def test_the_verdict_comes_with_why_it_matters_what_mends_it_and_where_to_read_on():
    told = text(answered(PEERS_MAC, STRANGER, held=HELD_BY_PEER))
    verdict = told.split("verdict: ")[1].splitlines()
    assert STRANGER in verdict[0]
    assert verdict[1] == f"  why it matters: {KINDS['stranger'].why}"
    assert verdict[2].startswith("  to mend: arping -c 3 -I eth0 192.0.2.200")
    assert verdict[3] == f"  more: docs/{KINDS['stranger'].docs}"
    assert f"should be {PEERS_MAC}" in told


def test_what_could_not_be_seen_is_said_and_alone_it_is_no_verdict():
    blind = replace(WELL, asked=(), unseen=(Unseen("who answers", "needs CAP_NET_RAW"),))
    told = text(blind)
    assert "not seen: who answers: needs CAP_NET_RAW" in told
    assert "verdict: cannot be told" in told
    assert explain(blind).code == 2


def test_a_machine_gets_the_same():
    facts = answered(STRANGER)
    chain = explain(facts)
    told = json.loads(json.dumps(chain_json(chain)))
    assert (told["code"], told["verdict"]["kind"], told["verdict"]["eip"]) == (1, "stranger", EIP)
    assert [step["name"] for step in told["steps"] if step["state"] == "broken"] == [f"wire of {EIP}"]
    listed = json.loads(json.dumps(findings_json(findings(facts), facts.unseen)))
    assert [each["kind"] for each in listed["findings"]] == ["stranger"]
    assert listed["findings"][0]["docs"].startswith("docs/")


def test_a_doctor_who_did_not_see_everything_does_not_say_that_all_is_well():
    dark = (Unseen("firewalls (nftables)", "needs NET_ADMIN"),)
    assert [*finding_lines((), dark)] == [
        "nothing that was seen is wrong here",
        "not seen: firewalls (nftables): needs NET_ADMIN",
    ]


def test_a_doctor_who_finds_nothing_says_so():
    assert [*finding_lines((), ())] == ["nothing is wrong here, as far as this node sees"]


def test_no_peer_speaks_to_the_terminal():
    peer = replace(KNOWN.peers[0], node=HOSTILE)
    held = replace(HELD_BY_PEER, holder=HOSTILE)
    facts = replace(
        WELL,
        known=replace(KNOWN, peers=(peer,), eips=Cut((held,))),
        asked=(Asked(EIP, "eth0", "eip", (STRANGER,)),),
    )
    for line in (*chain_lines(explain(facts)), *finding_lines(findings(facts), ())):
        assert line.isprintable()
