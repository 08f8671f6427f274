"""What a command says leaves it, or it says that it could not and ends with 1: a real process, and its real streams."""

import os
import subprocess
import sys

import pytest

POOL = """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan}
spec: {addresses: [192.0.2.0/24]}
"""
SERVICE = (
    "---\n{apiVersion: v1, kind: Service, metadata: {name: s%d}, spec: {type: LoadBalancer, ports: [{port: 80}]}}\n"
)

COMMANDS = {
    "validate": ("validate", "site"),
    "validate --json": ("validate", "--json", "site"),
    "keygen": ("keygen", "key"),
    "help": ("--help",),
    "version": ("--version",),
    "help of a command": ("run", "--help"),
}
every_command = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
buffered_or_not = pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])


@pytest.fixture
def speaker(tmp_path):
    """``speaker(*words, then=…)``: started by a shell, which redirects its streams as ``then`` says."""
    (tmp_path / "site").mkdir()
    services = "".join(SERVICE % number for number in range(200))
    (tmp_path / "site" / "site.yaml").write_text(POOL + services)

    def run(*words, then, **environment):
        line = f'"$0" -m speaker "$@" {then}'
        return subprocess.run(
            ["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}", sys.executable, *words],
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@buffered_or_not
@every_command
def test_a_full_disk_is_told_and_ends_with_1(speaker, command, unbuffered):
    done = speaker(*command, then=">/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (1, "speaker: cannot write to stdout: No space left on device\n")


@buffered_or_not
@every_command
def test_a_closed_stdout_is_told_and_ends_with_1(speaker, command, unbuffered):
    done = speaker(*command, then=">&-", PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (1, "speaker: cannot write to stdout: Bad file descriptor\n")


@buffered_or_not
@every_command
def test_a_reader_that_goes_is_no_trouble(speaker, command, unbuffered):
    """The pipe is closed before the first word: `head` takes longer to go away than some commands take."""
    done = speaker(*command, then="> >(exec <&-; echo gone >&2)", PYTHONUNBUFFERED=unbuffered)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_more_than_a_pipe_holds_and_nobody_to_read_it(speaker):
    done = speaker("validate", "site", then="| true")
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(("words", "code"), [(("validate", "nowhere"), 1), (("status",), 1), (("drain",), 1)])
@pytest.mark.parametrize("then", ["2>&-", "2>/dev/full", ">&- 2>&- <&-"])
def test_a_stderr_that_takes_nothing_changes_no_exit_code(speaker, words, code, then):
    done = speaker(*words, then=then)
    assert done.returncode == code
    assert "Traceback" not in done.stdout + done.stderr


def test_a_locale_without_the_letters_gets_them_in_others(speaker, tmp_path):
    (tmp_path / "site" / "grün.yaml").write_text("not: [yaml")
    done = speaker("validate", "site", then="", LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 1
    assert done.stdout.startswith(r"site/gr\xfcn.yaml")


def test_a_file_name_that_is_not_utf8_is_told_on_any_stdout(speaker, tmp_path):
    (tmp_path / "site" / os.fsdecode(b"caf\xe9.yaml")).write_text("not: [yaml")
    for words in (("validate", "site"), ("validate", "--json", "site"), ("run", "site", "--dry-run")):
        done = speaker(*words, then="")
        assert (done.returncode, done.stderr) == (1, "")
        assert r"site/caf\xe9.yaml" in done.stdout.replace(r"\\", "\\")


@pytest.mark.parametrize("then", ["<&-", "0>/dev/null"], ids=["closed", "for writing alone"])
def test_a_stdin_that_cannot_be_read_is_told_and_ends_with_2(speaker, then):
    done = speaker("convert", then=then)
    assert (done.returncode, done.stderr[:14]) == (2, "stdin: must be")
