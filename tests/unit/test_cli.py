"""Exit codes are an interface: 0 done, 1 it did not work out, 2 the command line cannot work."""

import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from speaker import __version__
from speaker.cli import main


@pytest.fixture(autouse=True)
def _logging_as_it_was():
    """A command sets it up for its process."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_the_version_is_the_packages_own(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"speaker {__version__}\n"


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--metrics", "localhost:9900"], "localhost:9900"),
        (["--node", "Not_A_Name"], "Not_A_Name"),
        (["--node-labels", "=x"], "--node-labels"),
        (["--settle", "-1"], "--settle -1"),
        (["--settle", "nan"], "--settle nan"),
        (["--with-peers", "--hello", "10"], "--hello 10"),
        (["--with-peers", "--ethertype", "ARP"], "--ethertype ARP"),
        (["--key", "/k"], "--key /k: needs --with-peers"),
        (["--hand-over"], "--hand-over: needs --with-peers"),
        (["--metrics-real-servers"], "--metrics-real-servers: needs --forwarder ipvs"),
        (["--metrics-real-servers", "--forwarder", "nftables"], "--metrics-real-servers: needs --forwarder ipvs"),
        (["--with-peers", "--key", "/nowhere/key"], "speaker keygen /nowhere/key"),
    ],
)
def test_a_setting_that_cannot_work_is_named_and_ends_with_2(flags, names, tmp_path, capsys):
    assert main(["run", str(tmp_path), *flags]) == 2
    assert names in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--nodes", "5"], "--nodes 5: not together with --fault"),
        (["--scenario", "crash"], "--scenario crash: not together with --fault"),
        (["--loss", "3"], "--loss: a fault has no sick links"),
    ],
)
def test_a_fault_to_practise_takes_no_flag_that_would_change_nothing(flags, names, capsys):
    assert main(["lab", "--fault", "pool_full", *flags]) == 2
    assert names in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--metrics", "localhost:9900"], "localhost:9900"),
        (["--kubeconfig", "/nowhere/config"], "kubeconfig /nowhere/config: cannot be read: No such file"),
        ([], "name a kubeconfig"),
    ],
)
def test_a_controller_that_cannot_work_says_why_and_ends_with_2(flags, names, capsys, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["controller", *flags]) == 2
    assert names in capsys.readouterr().err


def test_a_forwarder_that_does_not_exist_ends_with_2(tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        main(["run", str(tmp_path), "--forwarder", "iptables"])
    assert left.value.code == 2
    assert "nftables" in capsys.readouterr().err


def test_validate_ends_with_1_where_something_is_wrong_and_0_where_nothing_is(tmp_path, capsys):
    (tmp_path / "a.yaml").write_text("apiVersion: eip-speaker.io/v1alpha1\nkind: Eip\nmetadata: {name: a}\nspec: {}\n")
    assert main(["validate", str(tmp_path)]) == 1
    assert "a.yaml:4: Eip/a: spec.addresses" in capsys.readouterr().out
    (tmp_path / "a.yaml").unlink()
    assert main(["validate", str(tmp_path)]) == 0


def test_validate_insists_on_names_only_where_there_are_peers(tmp_path, capsys):
    (tmp_path / "a.yaml").write_text(
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: LoadBalancer, ports: [{port: 80}]}\n---\n"
        "apiVersion: eip-speaker.io/v1alpha1\nkind: Eip\nmetadata: {name: lan}\nspec: {addresses: [192.0.2.1]}\n"
    )
    assert main(["validate", str(tmp_path)]) == 0
    assert main(["validate", str(tmp_path), "--with-peers"]) == 1
    assert "a.yaml:3: Service/web: metadata.annotations[eip-speaker.io/addresses]" in capsys.readouterr().out


def test_a_key_is_made_once_and_rotated_step_by_step(tmp_path, capsys):
    file = str(tmp_path / "key")
    assert main(["keygen", file]) == 0
    assert main(["keygen", file]) == 2
    assert "exists" in capsys.readouterr().err
    assert [main(["keygen", step, file]) for step in ("--add", "--promote", "--retire")] == [0, 0, 0]
    assert "copy it to every host" in capsys.readouterr().out


def test_no_command_but_capture_brings_scapy_along():
    code = "import sys; from speaker.cli import main; main(['validate', '.']); sys.exit('scapy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2] / "manifests" / "examples")


LATER = {
    "speaker.cli": "aiohttp yaml structlog prometheus_client kubernetes pyroute2 speaker.node",
    "speaker.wire.parent": "aiohttp yaml structlog prometheus_client speaker.node speaker.api.reading",
    "speaker.standalone.run": "aiohttp kubernetes pyroute2 aiomqtt speaker.layer2 speaker.cluster",
    "speaker.agent.source": "kubernetes yaml pyroute2 aiomqtt speaker.layer2 speaker.standalone",
}
"""What is imported before the first answer, on the way of both processes, and without what: it comes later, or only in
the other one."""


@pytest.mark.parametrize("module", LATER)
def test_a_first_answer_waits_for_no_import_that_it_does_not_need(module):
    code = f"import sys, speaker.wire.fork, {module}; print(*{{*sys.modules}} & {{*{LATER[module].split()}}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


@pytest.mark.parametrize("words", [["keygen", "key"], ["run", "/", "--runtime-dir", "run"]])
def test_in_a_directory_that_was_removed_a_command_says_so(words, tmp_path, monkeypatch, capsys):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(words) == 1
    assert "the current directory was removed" in capsys.readouterr().err


NASTY = "\x1b[31m\x9bred\udce9"
"""Colours, and a byte that is no character."""


@pytest.mark.parametrize(
    "words",
    [
        ["status", "--runtime-dir", NASTY],
        ["keygen", NASTY],
        ["keygen", "--retire", NASTY],
        ["keygen", f"{NASTY}/key"],
        ["capture", NASTY],
        ["convert", "--from", NASTY],
        ["run", ".", "--key", NASTY],
        ["run", ".", "--forwarder", "nftables", "--ipvs-timeouts", NASTY],
    ],
)
def test_no_word_of_a_command_line_speaks_to_the_terminal(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / NASTY).write_bytes(b"")
    assert main(words) in (1, 2)
    told = capsys.readouterr()
    assert told.err
    assert all(line.isprintable() for line in (told.out + told.err).splitlines())


def test_what_is_said_of_a_new_key_does_not_speak_to_the_terminal_either(tmp_path, capsys):
    assert main(["keygen", str(tmp_path / NASTY)]) == 0
    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())
