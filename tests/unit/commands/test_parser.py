"""What cannot be on a command line is told with its flag, its value, its rule and what was meant."""

import re

import pytest

from speaker.cli import main


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "speaker: COMMAND is missing"),
        ("stauts", "speaker: stauts: no such command: did you mean 'status'?"),
        ("run DIR --settel 4", "speaker run: --settel: no such flag: did you mean '--settle'?"),
        ("run DIR --settel=4", "speaker run: --settel: no such flag: did you mean '--settle'?"),
        ("run DIR --settle soon", "speaker run: --settle soon: must be a number"),
        ("run DIR --outlive 12345", "speaker run: --outlive 12345: must be whole seconds from 0 to 9999"),
        ("run DIR --node", "speaker run: --node: needs a value"),
        ("run DIR --no", "speaker run: --no: could be any of "),
        (
            "run DIR --forwarder iptables",
            "speaker run: --forwarder iptables: must be one of none, ipvs, nftables, auto: did you mean 'nftables'?",
        ),
        ("run DIR --log-level loud", "speaker run: --log-level loud: must be one of debug, info, warning, error"),
        ("validate", "speaker validate: DIR is missing"),
        ("validate a b", "speaker validate: b: is one word too many"),
        ("validate --json=yes a", "speaker validate: --json=yes: takes no value"),
        ("keygen --add --retire", "speaker keygen: --retire: not together with --add"),
        ("lab --nodes few", "speaker lab: --nodes few: must be a whole number"),
        ("completion csh", "speaker completion: SHELL csh: must be one of bash, zsh, fish"),
    ],
)
def test_a_line_says_what_is_wrong_and_the_next_one_where_the_right_thing_stands(line, says, capsys):
    with pytest.raises(SystemExit) as left:
        main(line.split())
    assert left.value.code == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(says)
    command = line.split()[:1] if ":" in says and says.startswith("speaker ") else []
    assert second == " ".join(["Next: speaker help", *command])


@pytest.mark.parametrize("word", ["\x1b[31mrun", "--\x1b[2J", "--node\x07"])
def test_a_word_that_a_terminal_would_obey_is_shown_harmless(word, capsys):
    with pytest.raises(SystemExit):
        main([word, "x"])
    told = capsys.readouterr().err
    assert all(line.isprintable() for line in told.splitlines())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["validate", ""], 'speaker validate: DIR "": must be a path: this directory is .'),
        (["run", "site", "--state", ""], 'speaker run: --state "": must be a path: this directory is .'),
        (["run", "site", "--log-level", ""], 'speaker run: --log-level "": must be one of debug, '),
        (["run", "site", "a b"], 'speaker run: "a b": is one word too many'),
        ([""], 'speaker: "": no such command: '),
    ],
)
def test_a_word_that_would_not_be_seen_is_shown_and_an_empty_one_is_no_path(words, says, capsys):
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert capsys.readouterr().err.startswith(says)


PYTHONS = re.compile(r"\bNone\b|\bTrue\b|\bFalse\b|\[']|<class|<enum|Traceback|argument |expected")


@pytest.mark.parametrize(
    "line",
    [
        "run DIR --metrics localhost:9900",
        "run DIR --node Not_A_Name",
        "run DIR --node-labels =x",
        "run DIR --with-peers --hello 10",
        "run DIR --with-peers --ethertype 0x0806",
        "run DIR --ipvs-timeouts 1,2 --forwarder ipvs",
        "run DIR --conntrack-max none",
        "agent --revision -",
        "connections nowhere",
        "connections --limit few",
        "drain --timeout 0",
        "capture nowhere",
        "lab --nodes 99 --scenario crash",
        "lab --eips 0 --scenario crash",
        "lab --loss 99 --scenario deaf",
        "lab --carrier --scenario deaf",
        "lab --hold 5 --scenario burst",
        "lab --stop 400 --scenario stutter",
        "help nothing",
    ],
)
def test_a_setting_that_cannot_be_names_its_value_in_nobody_elses_words(line, capsys):
    assert main(line.split()) == 2
    told = capsys.readouterr().err
    assert told.startswith("speaker: ")
    assert not PYTHONS.search(told)
    assert "'" not in told or "did you mean" in told
