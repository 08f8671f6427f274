"""The shapes of real firewalls, as files: what explain says of them by reading alone, and by trying.

The first line of each file says what becomes of a new connection to the EIP: it ``passes``, or what drops it.
"""

import asyncio
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from debian_release import NFT, unpacked
from trials import EIP, POD, facts_of, tried

from speaker.diagnosis import kernel
from speaker.diagnosis.chain import State, explain
from speaker.diagnosis.facts import Way

pytestmark = pytest.mark.netns

SHAPES = sorted((Path(__file__).parent / "firewalls").iterdir())


def load(node, shape):
    program = {".nft": ["nft", "-f"], ".sh": ["sh", "-e"]}.get(shape.suffix, ["iptables-nft-restore"])
    with node.entered():
        done = subprocess.run([*program, str(shape)], capture_output=True, text=True, check=False)
    if done.returncode and shape.suffix == ".iptables" and "extension" in done.stderr.lower():
        pytest.skip(f"this kernel lacks an extension of iptables: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr


def read(node):
    """As explain reads them where it may not try."""
    with node.entered():
        chains, sets = asyncio.run(kernel.rules())
    ways = (Way(POD, "cni0"),)
    return replace(facts_of(EIP), chains=chains, sets=sets, ways=ways, sysctls={"net.ipv4.ip_forward": "1"})


def test_there_are_enough_of_them():
    assert len(SHAPES) >= 70
    assert {shape.read_text().splitlines()[0].split(":")[0] for shape in SHAPES} == {"# passes", "# drops"}


def truth_of(shape):
    truth, _, rule = shape.read_text().splitlines()[0].removeprefix("# ").partition(": ")
    return truth, rule


def check_what_is_read(facts, truth):
    chain = explain(facts)
    (step,) = [step for step in chain.steps if step.name.startswith("way in")]
    (wire,) = [step for step in chain.steps if step.name.startswith("wire")]
    drops = {finding.kind for finding in (*step.findings, *wire.findings)}
    doubts = [each for each in chain.unseen if " in chain " in each.what]
    if truth == "passes":
        assert not drops
        assert step.state is State.WELL or doubts
    else:
        assert drops or (doubts and all(each.why for each in doubts)), "a false ok"
        assert step.state is not State.WELL or wire.state is State.BROKEN


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_what_is_said_of_a_firewall_is_right_or_names_the_rule_that_was_not_understood(node, shape):
    load(node, shape)
    truth, rule = truth_of(shape)
    check_what_is_read(read(node), truth)
    (walk,) = tried(node).walks
    assert (walk.dropped or walk.answer_dropped) == "" or truth == "drops"
    assert rule.lower() in (walk.dropped or walk.answer_dropped).lower()
    if truth == "passes":
        assert walk.answered


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_so_it_is_with_the_nft_of_the_image_which_writes_some_matches_otherwise(node, shape, monkeypatch):
    program = unpacked("trixie", "nft", NFT).program("usr/sbin/nft")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    load(node, shape)
    check_what_is_read(read(node), truth_of(shape)[0])


def test_of_kube_proxys_own_chains_none_is_read_where_it_translates_and_those_around_are(node, tmp_path, monkeypatch):
    """There may be ten thousands, which took 40 s."""
    own = "".join(f":KUBE-SVC-{n} - [0:0]\n" for n in range(300))
    rules = "".join(f"-A KUBE-SERVICES -d 10.96.0.{n % 250}/32 -j KUBE-SVC-{n}\n" for n in range(300))
    with node.entered():
        subprocess.run(
            ["iptables-nft-restore"],
            input=f"*nat\n:KUBE-SERVICES - [0:0]\n:DOCKER - [0:0]\n{own}-A PREROUTING -j KUBE-SERVICES\n"
            "-A PREROUTING -p udp -j DOCKER\n-A DOCKER -p udp -j DNAT --to-destination 172.17.0.2:53\n"
            f"{rules}COMMIT\n",
            text=True,
            check=True,
        )
        chains, _ = asyncio.run(kernel.rules())
    assert {(each.name, each.hook, each.priority) for each in chains if each.table == "nat" and each.rules} == {
        ("PREROUTING", "prerouting", -100),
        ("DOCKER", "", -100),
    }
    assert not any(each.name.startswith("KUBE-") for each in chains)
    facts = replace(facts_of(EIP), chains=chains)
    chain = explain(replace(facts, known=replace(facts.known, forwarder="none")))
    assert chain.unseen == ()
    (tmp_path / "nft").symlink_to(shutil.which("nft"))
    monkeypatch.setenv("PATH", str(tmp_path))  # without iptables
    with node.entered():
        chains, _ = asyncio.run(kernel.rules())
    chain = explain(replace(facts, chains=chains, known=replace(facts.known, forwarder="none")))
    assert [each.why for each in chain.unseen] == ["-A PREROUTING -j rules-that-could-not-be-read"]
