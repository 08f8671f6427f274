"""What is printed, for people and for machines."""

import json
from dataclasses import replace

import pytest
from healthy import OWN
from test_findings import EIP, HELD, HELD_BY_PEER, KNOWN, PEERS_MAC, STRANGER, WELL, answered

from speaker.checks import KINDS
from speaker.diagnosis.chain import examine, explain, findings
from speaker.diagnosis.facts import Asked, Unseen
from speaker.diagnosis.report import EXPLAINED, LINES, chain_json, chain_lines, finding_lines, findings_json
from speaker.errors import COLUMNS
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
    assert words in " ".join(text(WELL).split())
    assert "BROKEN" not in text(WELL)


def test_the_verdict_comes_with_why_it_matters_what_mends_it_and_where_to_read_on():
    told = text(answered(PEERS_MAC, STRANGER, held=HELD_BY_PEER))
    first, *verdict = told.split("verdict: ")[1].splitlines()
    assert STRANGER in first
    assert verdict[0].endswith("(stranger)")
    assert verdict[1] == f"  why it matters: {KINDS['stranger'].why}"
    assert verdict[2].startswith("  to mend: arping -c 3 -I eth0 192.0.2.200")
    assert f"  more: docs/{KINDS['stranger'].docs}" in verdict
    assert f"should be {PEERS_MAC}" in told


def test_what_could_not_be_seen_is_said_and_alone_it_is_no_verdict():
    blind = replace(WELL, asked=(), unseen=(Unseen("who answers", "needs CAP_NET_RAW"),))
    told = text(blind)
    assert "not seen: who answers: needs CAP_NET_RAW" in told
    assert "verdict: unknown" in told
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
    for line in (*chain_lines(explain(facts)), *finding_lines(examine(facts), ())):
        assert line.isprintable()


def many(broken=0):
    eips = tuple(
        replace(HELD, address=f"192.0.2.{n + 100}", mine=n > broken, holder="n1" if n > broken else None)
        for n in range(1, 101)
    )
    asked = tuple(Asked(each.address, "eth0", "eip") for each in eips)
    return replace(WELL, about="lan", known=replace(KNOWN, eips=Cut(eips)), asked=asked)


def test_of_a_pool_that_is_well_hardly_more_is_said_than_that():
    lines = [*chain_lines(explain(many()))]
    assert "ok     100 EIPs with every step well: 192.0.2.101, 192.0.2.102," in "\n".join(lines)
    assert len(lines) <= 12, lines
    assert lines[-1] == "verdict: nothing is broken, as far as this node sees"


def test_of_a_pool_with_broken_eips_those_are_told_step_by_step_and_the_others_counted():
    told = " ".join(" ".join(chain_lines(explain(many(broken=8)))).split())
    assert told.count("BROKEN holder of") == EXPLAINED
    assert "and 3 more EIPs that are not well: 192.0.2.106, 192.0.2.107, 192.0.2.108" in told
    assert "ok 92 EIPs with every step well" in told


@pytest.mark.parametrize("facts", [WELL, answered(STRANGER), many(), many(broken=8)])
def test_no_line_is_wider_than_a_terminal_and_no_word_is_broken(facts):
    for line in (*chain_lines(explain(facts)), *finding_lines(examine(facts), (), everything=True)):
        assert len(line) <= COLUMNS or " " not in line.strip() or line.startswith("  to mend: "), line


def test_everything_is_told_where_it_is_asked_for_and_one_screen_where_it_is_not():
    facts = many(broken=90)
    assert len([*finding_lines(examine(facts), ())]) <= LINES
    everything = "\n".join(finding_lines(examine(facts), (), everything=True))
    assert everything.count("why it matters") == 90
