"""``Next:`` lines can be pasted."""

import re
import shlex
import shutil

import pytest

from speaker.cli import _parser, main
from speaker.tools.flags import parse
from speaker.tools.terminal import following

EXAMPLES = "manifests/examples"


@pytest.mark.parametrize(
    ("started", "name"),
    [
        ("/opt/venv/bin/speaker", "/opt/venv/bin/speaker"),
        ("/x/speaker/__main__.py", "speaker"),
        ("/x/pytest", "speaker"),
    ],
)
def test_the_name_is_one_that_the_shell_finds(started, name):
    assert following("run", "a dir", argv=[started]) == f"Next: {name} run 'a dir'"


def test_what_is_on_the_path_goes_by_its_short_name(tmp_path, monkeypatch):
    installed = tmp_path / "speaker"
    installed.write_text("#!/bin/sh\n")
    installed.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("speaker") == str(installed)
    assert following("status", argv=[str(installed)]) == "Next: speaker status"


@pytest.mark.parametrize(
    "line",
    [
        "validate {site}",
        "keygen {key}",
        "keygen --add {key}",
        "keygen --promote {key}",
        "run {site} --dry-run --forwarder none --state {state} --runtime-dir {runtime}",
    ],
)
def test_what_comes_next_is_a_command_that_the_parser_takes(line, tmp_path, capsys):
    places = {name: str(tmp_path / name) for name in ("site", "key", "state", "runtime")}
    (tmp_path / "site").mkdir()
    if "--" in line and "keygen" in line:
        main(["keygen", places["key"]])
    if "--promote" in line:
        main(["keygen", "--add", places["key"]])
    capsys.readouterr()
    assert main(line.format(**places).split()) == 0
    told = re.findall(r"^Next: speaker (.*)$", capsys.readouterr().out, re.MULTILINE)
    if line == "keygen {key}":
        assert told == []  # to copy it is all that is left
        return
    (words,) = told
    parsed = parse(_parser(), shlex.split(words))
    assert parsed.argv != line.format(**places).split()
