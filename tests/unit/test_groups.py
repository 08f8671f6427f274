"""The names of groups: what each has for itself, and which names are none."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.cli import _parser
from speaker.errors import SettingError
from speaker.forwarding.handing_over import STRAYS_TABLE
from speaker.forwarding.nftables.skeletons import GUARD_TABLE, TABLE
from speaker.model import EIP_LINK, NO_GROUP, Forwarding, Group, of_speakers
from speaker.settings import DEFAULT_METRICS, DEFAULT_RUNTIME_DIR, DEFAULT_STATE, Limits, of_group, parse_group
from speaker.tools.flags import parse

labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
TABLES = TABLE, GUARD_TABLE, STRAYS_TABLE


def test_without_a_group_everything_has_the_name_that_it_always_had():
    assert NO_GROUP.link == EIP_LINK == "eip-speaker0"
    assert [NO_GROUP.table(name) for name in TABLES] == ["eip-speaker", "eip-speaker-guard", "eip-speaker-strays"]
    assert of_group(DEFAULT_RUNTIME_DIR, NO_GROUP) == Path("/run/eip-speaker")


@given(labels)
def test_every_label_names_a_group_whose_things_fit_the_kernel(name):
    group = parse_group(name)
    assert group == Group(name)
    assert len(group.link.encode()) <= 15
    assert of_speakers(group.link)
    for table in map(group.table, TABLES):
        assert re.fullmatch(r"[a-zA-Z][a-zA-Z0-9/_.-]*", table)  # a name that nft reads
        assert len(table) < 256


@given(labels, labels)
def test_no_two_groups_share_a_table_or_a_directory(one, other):
    groups = {Group(one), Group(other), NO_GROUP}
    assert len({group.table(name) for group in groups for name in TABLES}) == len(groups) * len(TABLES)
    assert len({of_group(DEFAULT_RUNTIME_DIR, group) for group in groups}) == len(groups)
    assert len({of_group(DEFAULT_STATE, group) for group in groups}) == len(groups)


@pytest.mark.parametrize("name", ["guard", "strays", "0", "speaker"])
def test_names_that_resemble_ours_are_no_exception(name):
    assert {Group(name).table(table) for table in TABLES}.isdisjoint(TABLES)
    assert Group(name).link != EIP_LINK


@pytest.mark.parametrize(
    "name",
    ["A", "a_b", "-a", "a-", "a.b", "a/b", "..", "a b", "a\n", "ä", "a" * 64, "a\x1b[31m", "${HOME}", "a;b", " "],
)
def test_what_is_no_label_is_refused_and_shown(name):
    with pytest.raises(SettingError, match=r"--group .*must be a DNS label") as refused:
        parse_group(name)
    assert str(refused.value).isprintable()


@given(st.text(max_size=70))
def test_any_other_text_is_refused(text):
    if text and not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", text, re.ASCII):
        with pytest.raises(SettingError):
            parse_group(text)


COMMANDS = [
    ["run", "/etc/eip-speaker"],
    ["agent"],
    ["status"],
    ["drain"],
    ["undrain"],
    ["rebalance"],
    ["connections"],
    ["explain", "192.0.2.1"],
    ["doctor"],
    ["cleanup"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_every_command_about_a_speaker_finds_it_by_its_group(words):
    assert parse(_parser(), words).runtime_dir == DEFAULT_RUNTIME_DIR
    args = parse(_parser(), [*words, "--group", "control-plane"])
    assert (args.group, args.runtime_dir) == (Group("control-plane"), Path("/run/eip-speaker-control-plane"))
    elsewhere = parse(_parser(), [*words, "--group", "x", "--runtime-dir", "/run/eip-speaker"])
    assert elsewhere.runtime_dir == Path("/run/eip-speaker")


def test_a_group_has_its_own_state_and_listens_nowhere_unless_told():
    args = parse(_parser(), ["run", "/etc/eip-speaker", "--group", "x"])
    assert args.state == Path("/var/lib/eip-speaker-x/state.json")
    assert (args.metrics, args.page) == ("off", "off")
    assert parse(_parser(), ["run", "/x", "--group", "x", "--metrics", DEFAULT_METRICS]).metrics == DEFAULT_METRICS
    alone = parse(_parser(), ["run", "/etc/eip-speaker"])
    assert (alone.state, alone.metrics) == (DEFAULT_STATE, DEFAULT_METRICS)


def test_what_the_machine_has_once_is_not_a_groups_to_set():
    with pytest.raises(SettingError, match="--ipvs-timeouts 1,2,3: not with --group"):
        Limits.parse(Forwarding.IPVS, "1,2,3", None, Group("x"))
