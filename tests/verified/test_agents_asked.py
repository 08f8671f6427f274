"""`speaker explain|doctor|status --cluster`, from the command line to pods that answer."""

import asyncio
import json
from dataclasses import replace

import pytest
from pods import FakePods

from speaker.api.kinds import ASSIGNED
from speaker.cli import main
from speaker.diagnosis.facts import Facts, Process, encode
from speaker.node.known.knowledge import Cut, Knowledge, KnownEip
from speaker.tools.agents import LABELS

NAMESPACE, EIP = "eip-speaker-agents", "2001:db8::200"
HELD = KnownEip(EIP, (), "lan", True, "n1", 3, 1.8e9, "claimed", "interface: eth0", link="eth0")
KNOWN = Knowledge("n1", "none", ready=True, in_force=True, eips=Cut((HELD,)), links=("eth0",))
GONE = Facts(EIP, process=Process("no speaker runs here"), now=1.8e9)
STATUS = {"node": "n1", "draining": False, "eips": [], "problems": ["something"], "done": True}


def says(out, err=b"", code=0):
    async def container(_):
        return out, err, code

    return container


async def forever(_):
    await asyncio.Event().wait()


@pytest.fixture
def ask(tmp_path, capsys):
    """``await ask({node: container}, word, …)``: code, output, errors; and what pods were told."""

    async def run(containers, *words, token=None, phases=None, **objects):
        async with FakePods(containers, NAMESPACE, phases, **objects) as fake:
            (tmp_path / "config").write_text(fake.kubeconfig(*filter(None, [token])))
            given = "--cluster", "--kubeconfig", str(tmp_path / "config")
            code = await asyncio.to_thread(main, [*words, *given])
        shown = capsys.readouterr()
        return code, shown.out, shown.err, fake.commands

    return run


async def test_every_agent_is_asked_for_its_facts_and_they_are_judged_here(ask):
    containers = {"n1": says(encode(GONE)), "n2": says(encode(GONE)), "n3": says(b"", b"speaker: no speaker\n", 1)}
    code, out, _, commands = await ask(containers, "explain", "2001:db8:0::200", "--json")
    told = json.loads(out)
    assert (code, told["findings"][0]["kind"], told["findings"][0]["nodes"]) == (1, "speaker_gone", ["n1", "n2"])
    assert told["silent"] == {"n3": "no speaker"}
    assert sorted(commands) == [(node, ("speaker", "explain", "--facts", "--", EIP)) for node in ("n1", "n2", "n3")]


async def test_the_doctor_asks_about_everything(ask):
    code, out, _, commands = await ask({"n1": says(encode(replace(GONE, about="")))}, "doctor")
    assert (code, out.splitlines()[0]) == (1, "1: n1: no speaker runs here (speaker_gone)")
    assert commands == [("n1", ("speaker", "doctor", "--facts"))]


async def test_a_status_ends_with_1_where_an_agent_says_nothing(ask):
    well = says(json.dumps(STATUS).encode())
    code, out, _, _ = await ask({"n1": well}, "status")
    assert (code, out.splitlines()[-1]) == (0, "n1: something")
    code, out, _, _ = await ask({"n1": well, "n2": says(b"nonsense")}, "status")
    assert code == 1
    assert "n2: no answer: this is not a speaker's status" in out


def conditioned(name, kind, status, message):
    condition = {"type": kind, "status": status, "reason": "Whatever", "message": message}
    return {"metadata": {"name": name, "namespace": "shop"}, "status": {"conditions": [condition]}}


async def test_a_status_names_services_without_an_eip_and_pools_out_of_use(ask):
    services = [conditioned("web", ASSIGNED, "False", "no pool has room"), conditioned("well", ASSIGNED, "True", "")]
    services += [conditioned("other", "example.com/Ready", "False", "not ours"), {"metadata": {"name": "bare"}}]
    pools = [conditioned("bad", "Ready", "False", "spec.addresses: is wrong"), conditioned("well", "Ready", "True", "")]
    pools += [{"metadata": {"name": "new"}}]
    containers = {"n1": says(json.dumps(STATUS | {"problems": []}).encode())}
    _, out, _, _ = await ask(containers, "status", services=services, pools=pools)
    *_, first, second, third = out.splitlines()
    assert first == "Service shop/web: no pool has room"
    assert second == "pool bad: spec.addresses: is wrong"
    assert third == "pool new: has no condition Ready"
    _, out, _, _ = await ask(containers, "status", services=[services[0]] * 23, pools=pools)
    assert out.splitlines()[-1] == "5 more Services and pools: --json has them all"
    _, out, _, _ = await ask(containers, "status", "--json", services=[services[0]] * 23)
    assert len(json.loads(out)["unserved"]) == 23


async def test_only_the_nodes_that_are_named_are_asked(ask):
    containers = {node: says(json.dumps(STATUS).encode()) for node in ("n1", "n2")}
    _, out, _, commands = await ask(containers, "status", "--nodes", "n2,n9")
    assert [node for node, _ in commands] == ["n2"]
    assert "n9: no answer: it has no agent" in out


async def test_a_pod_that_does_not_run_is_not_asked(ask):
    code, out, _, commands = await ask({"n1": forever}, "doctor", phases={"n1": "Pending"})
    assert (code, commands) == (2, [])
    assert "n1: no answer: its pod agent-n1 is Pending" in out


@pytest.mark.parametrize("body", [b"", b"{}x", b'{"known": 3}'])
async def test_what_are_no_facts_is_no_answer(body, ask):
    code, out, _, _ = await ask({"n1": says(body)}, "explain", EIP)
    assert (code, "n1: no answer: " in out) == (2, True)


async def test_who_may_not_is_told_so(ask):
    code, out, err, _ = await ask({}, "doctor", token="another")  # noqa: S106
    assert (code, out, err) == (1, "", "speaker: the API answered 403 Forbidden: pods is forbidden\n")


async def test_where_no_agent_runs_the_labels_and_the_namespace_are_named(ask):
    code, _, err, _ = await ask({}, "status")
    assert (code, LABELS in err, NAMESPACE in err) == (1, True, True)


@pytest.mark.parametrize("flag", ["--kubeconfig", "--context", "--namespace", "--nodes"])
@pytest.mark.parametrize("command", [["status"], ["doctor"], ["explain", EIP]])
def test_flags_of_a_cluster_go_with_it(flag, command, capsys):
    assert main([*command, flag, "x"]) == 2
    assert f"{flag}: goes with --cluster" in capsys.readouterr().err


def test_facts_are_those_of_one_node(tmp_path, capsys):
    (tmp_path / "config").write_text("{}")
    assert main(["doctor", "--facts", "--cluster", "--kubeconfig", str(tmp_path / "config")]) == 2
    assert "--facts: " in capsys.readouterr().err


def test_facts_of_this_node_are_what_another_machine_judges(tmp_path, capsys):
    from speaker.diagnosis.facts import decode

    assert main(["doctor", "--facts", "--runtime-dir", str(tmp_path)]) == 0
    found = decode(capsys.readouterr().out.encode())
    assert found.known is None
    assert "no speaker runs here" in found.process.words
