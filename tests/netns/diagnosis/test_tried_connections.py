"""A new connection, tried as a client on the link begins it, through real rules: what drops it or its answer is named,
and nothing is left of the trial."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from trials import EIP, EIP6, rules, tried

from speaker.diagnosis import trying
from speaker.diagnosis.chain import State, explain
from speaker.diagnosis.eip_checks import firewall
from speaker.errors import EdgeError

pytestmark = pytest.mark.netns


def left(node, sh) -> str:
    return (
        sh(node, "ip -o link show type tun")
        + sh(node, "nft list tables")
        .replace("table ip own", "")
        .replace("table ip6 own", "")
        .replace("table inet fw", "")
        .strip()
    )


@pytest.mark.parametrize("eip", [EIP, EIP6])
def test_one_that_every_rule_lets_pass_is_answered_by_the_link_that_it_came_in_on(node, sh, eip):
    rules(node, "table inet fw { chain f { type filter hook forward priority 0; accept; }; }\n")
    facts = tried(node, eip)
    (walk,) = facts.walks
    assert (walk.answered, walk.dropped, walk.answer_dropped, walk.left) == (True, "", "", "eth0")
    assert list(firewall(facts, facts.knowledge.eips.first[0])) == []
    (way_in,) = [step for step in explain(facts).steps if step.name.startswith("way in")]
    assert way_in.state is State.WELL
    assert "every rule lets it and its answer pass" in way_in.lines[-1]
    assert left(node, sh) == ""


FORWARD = "type filter hook forward priority 0;"


@pytest.mark.parametrize(
    "option", ["maxseg missing", "sack-perm missing", "timestamp missing", "window missing", "maxseg size 1-500"]
)
def test_it_has_the_options_that_clients_send(node, option):
    rules(node, f"table inet fw {{ chain f {{ {FORWARD} tcp flags syn / syn,ack tcp option {option} drop; }}; }}\n")
    (walk,) = tried(node).walks
    assert (walk.answered, walk.dropped) == (True, "")


DROPPING = {
    "a REJECT": (f"chain f {{ {FORWARD} tcp dport 8080 reject; }}", "chain inet fw f, by tcp dport 8080 reject"),
    "a policy": (f"chain f {{ {FORWARD} policy drop; }}", "chain inet fw f, by its policy"),
    "a jump": (
        f"chain x {{ ip daddr 10.244.0.0/16 drop; }}; chain f {{ {FORWARD} jump x; }}",
        "chain inet fw x, by ip daddr 10.244.0.0/16 drop",
    ),
    "established alone": (
        f"chain f {{ {FORWARD} ct state established,related accept; drop; }}",
        "chain inet fw f, by drop",
    ),
    "a verdict map": (
        f'chain f {{ {FORWARD} iifname vmap {{ "lo" : accept, "eth0" : drop }}; }}',
        "chain inet fw f, by ",
    ),
    "a set": (
        "set s { type ipv4_addr; flags interval; elements = { 192.0.2.128/25 }; }; "
        "chain p { type filter hook prerouting priority -300; ip daddr @s drop; }",
        "chain inet fw p, by ip daddr @s drop",
    ),
    "a hash that nobody can read": (
        f"chain f {{ {FORWARD} jhash ip daddr mod 1 == 0 drop; }}",
        "chain inet fw f, by ",
    ),
}


@pytest.mark.parametrize("what", DROPPING)
def test_the_rule_that_drops_who_connects_is_named(node, sh, what):
    text, named = DROPPING[what]
    rules(node, f"table inet fw {{ {text}; }}\n")
    facts = tried(node)
    (walk,) = facts.walks
    assert walk.dropped.startswith(named)
    assert explain(facts).verdict.kind == "firewall_drops"
    assert named in explain(facts).verdict.what
    assert left(node, sh) == ""


def test_the_rule_that_drops_the_answer_is_named(node, sh):
    rules(node, f"table inet fw {{ chain f {{ {FORWARD} ct direction reply drop; }}; }}\n")
    facts = tried(node)
    (walk,) = facts.walks
    assert (walk.dropped, walk.answer_dropped) == ("", "chain inet fw f, by ct direction reply drop")
    assert explain(facts).verdict.kind == "firewall_drops"
    assert left(node, sh) == ""


def test_a_rule_of_the_link_itself_that_drops_it_is_named(node):
    rules(
        node,
        'table netdev fw { chain i { type filter hook ingress device "eth0" priority 0; tcp dport 80 drop; }; }\n',
    )
    (walk,) = tried(node).walks
    assert walk.dropped == "chain netdev fw i, by tcp dport 80 drop"


def test_what_no_rule_drops_and_nobody_answers_is_no_finding(node, sh):
    sh(node, "ip link set cni0 down")
    facts = tried(node)
    (walk,) = facts.walks
    assert (walk.answered, walk.dropped) == (False, "")
    assert list(firewall(facts, facts.knowledge.eips.first[0])) == []


def test_a_client_whom_source_ranges_shut_out_is_not_taken_for_one(node):
    (walk,) = tried(node, sources=("192.0.2.240/28",)).walks
    assert walk.source.startswith("192.0.2.2")
    with pytest.raises(EdgeError, match="none can be tried"):
        tried(node, sources=("198.51.100.0/24",))


CRASHES = """#!/bin/sh
if [ "$1" = monitor ] && [ "$(ls {there} | wc -l)" -lt {times} ]; then touch {there}/$$; kill -SEGV $$; fi
exec {nft} "$@"
"""


@pytest.mark.parametrize("times", [1, 2, 9])
def test_nft_may_crash_and_is_started_again(node, sh, tmp_path, monkeypatch, times):
    (there := tmp_path / "there").mkdir()
    program = tmp_path / "nft"
    program.write_text(CRASHES.format(there=there, times=times, nft=shutil.which("nft")))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    if times > trying.MONITORS:
        with pytest.raises(EdgeError, match="ended each time before"):
            tried(node)
    else:
        assert tried(node).walks[0].answered
    assert left(node, sh) == ""


def test_an_address_that_somebody_has_is_not_used(node, sh, new_namespace, wire):
    host = new_namespace("host")
    sh(node, "ip link del eth0")
    wire(node, "eth0", host, "eth0")
    sh(node, "ip addr add 192.0.2.11/24 dev eth0")
    for number in (252, 253, 254):
        sh(host, f"ip addr add 192.0.2.{number}/24 dev eth0")
    (walk,) = tried(node).walks
    assert walk.source == "192.0.2.251"


def test_nothing_is_left_of_one_that_is_killed_in_the_middle(node, sh):
    program = (
        "import asyncio, sys; sys.path.insert(0, sys.argv[1]);"
        "from trials import facts_of, EIP; from speaker.diagnosis import trying;"
        "from speaker.interfaces.watcher import look\n"
        "async def act():\n"
        "    async def never(*_): print('there', flush=True); await asyncio.sleep(60)\n"
        "    trying._more = never\n"
        "    await trying.try_all(facts_of(EIP), await look())\n"
        "asyncio.run(act())"
    )
    with node.entered():
        running = subprocess.Popen(
            [sys.executable, "-c", program, str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True
        )
    assert running.stdout.readline() == "there\n"
    assert left(node, sh) != ""
    running.send_signal(signal.SIGKILL)
    running.wait()
    running.stdout.close()
    for _ in range(1000):
        if not left(node, sh):
            break
    assert left(node, sh) == ""
