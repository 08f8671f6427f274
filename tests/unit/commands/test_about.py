"""``speaker help``, ``version`` and ``completion`` say what the parser knows, no more and no less."""

import shutil
import subprocess

import pytest

from speaker import __version__
from speaker.cli import _parser, main
from speaker.commands.tools import SHELLS
from speaker.tools.flags import subparsers

COMMANDS = [*subparsers(_parser())]

SERVING = {"run", "agent", "controller"}
"""They log what they do; a dry run tells by itself what it waits for."""
SHOWING = {"capture", "lab"}
AT_ONCE = {"control-plane", "keygen", "help", "version", "completion"}


def printed(capsys, *words):
    assert main([*words]) == 0
    return capsys.readouterr().out


def test_help_lists_the_commands_and_the_exit_codes(capsys):
    told = printed(capsys, "help")
    assert all(f"\n    {command}" in told for command in COMMANDS)
    assert all(f"\n  {code:<5}" in told for code in (0, 1, 2, 130, 141))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_is_what_it_says_of_itself(command, capsys):
    told = printed(capsys, "help", command)
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert capsys.readouterr().out == told


@pytest.mark.parametrize(("command", "parser"), subparsers(_parser()).items())
def test_every_flag_says_what_it_is_for(command, parser):
    silent = [action.option_strings for action in parser._actions if action.option_strings and not action.help]
    assert silent == []


def test_version_is_what_the_flag_says(capsys):
    assert printed(capsys, "version") == f"speaker {__version__}\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_completion_knows_every_command_and_every_flag(shell, capsys):
    script = printed(capsys, "completion", shell)
    parsers = subparsers(_parser())
    assert all(command in script for command in parsers)
    flags = {flag for parser in parsers.values() for each in parser._actions for flag in each.option_strings}
    assert [flag for flag in flags if flag.removeprefix("--") not in script] == []


@pytest.mark.parametrize("shell", SHELLS)
def test_a_completion_is_a_script_that_its_shell_reads(shell, capsys):
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    script = printed(capsys, "completion", shell)
    done = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["sta"], ["status"]),
        (["val"], ["validate"]),
        (["run", "DIR", "--forwarder", ""], ["none", "ipvs", "nftables", "auto"]),
        (["lab", "--scenario", "cra"], ["crash"]),
        (["lab", "--scenario", "stu"], ["stutter"]),
        (["lab", "--only", ""], ["nodes"]),
        (["run", "--log-l"], ["--log-level"]),
        (["completion", "z"], ["zsh"]),
    ],
)
def test_bash_completes_commands_flags_and_values(words, completed, capsys):
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    script = printed(capsys, "completion", "bash")
    quoted = " ".join(f"'{word}'" for word in words)
    asked = f'COMP_WORDS=(speaker {quoted}); COMP_CWORD={len(words)}; _shtab_speaker; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{asked}"], text=True, capture_output=True, check=False)
    assert done.stdout.split() == completed, done.stderr


@pytest.mark.parametrize("command", sorted({*COMMANDS} - SERVING - SHOWING - AT_ONCE))
def test_whoever_waits_for_a_command_is_told_what_for(command):
    assert subparsers(_parser())[command].get_default("working")
