"""``speaker keygen``: a key nobody else can read, and a rotation in which every host understands every other."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from speaker.errors import EdgeError, SettingError
from speaker.ownership.hellos.keyfile import read_keys
from speaker.tools.keygen import Step, keygen

ROTATION = (Step.ADD, Step.PROMOTE, Step.RETIRE)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "etc" / "key"


def test_a_new_key_is_for_its_owner_alone_and_no_two_are_the_same(file, tmp_path):
    keygen(file, Step.MAKE)
    keygen(tmp_path / "other", Step.MAKE)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_keys(file).signing != read_keys(tmp_path / "other").signing


def test_what_is_said_names_the_file_and_the_key_and_never_shows_it(file):
    said = "\n".join(line for step in (Step.MAKE, *ROTATION) for line in keygen(file, step))
    assert f"{file}: key {read_keys(file).signing.id.hex()} signs" in said
    assert file.read_text().strip() not in said
    assert said.count("copy it to every host, readable by its owner alone") == 4  # who need not be root


@pytest.mark.parametrize("content", ["", "anything"])
def test_an_existing_file_is_never_overwritten_and_the_way_to_replace_the_key_is_said(tmp_path, content):
    file = tmp_path / "key"
    file.write_text(content)
    with pytest.raises(SettingError) as refused:
        keygen(file, Step.MAKE)
    assert str(refused.value).startswith(f"{file}: exists: ")
    assert f"`speaker keygen --add {file}`" in str(refused.value)
    assert file.read_text() == content


@pytest.mark.parametrize("name", ["x" * 300, "loop"])
def test_where_it_cannot_be_seen_whether_there_is_a_key_none_is_written(tmp_path, name):
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(EdgeError, match=f"{name}: (File name too long|Too many levels of symbolic links)"):
        keygen(tmp_path / name, Step.MAKE)
    assert [*tmp_path.iterdir()] == [loop]


def test_of_several_that_make_a_key_at_once_one_does_and_the_others_say_that_they_did_not(file):
    def make(_):
        try:
            return keygen(file, Step.MAKE)[0]
        except (SettingError, EdgeError):
            return None

    with ThreadPoolExecutor(16) as pool:
        said = [line for line in pool.map(make, range(16)) if line is not None]
    assert said == [f"{file}: key {read_keys(file).signing.id.hex()} signs"]


def test_during_a_rotation_hosts_one_step_apart_accept_each_other(file):
    keygen(file, Step.MAKE)
    stages = [read_keys(file)]
    for step in ROTATION:
        keygen(file, step)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        stages.append(read_keys(file))
    for earlier, later in pairwise(stages):
        assert earlier.signing.id in later.accepted
        assert later.signing.id in earlier.accepted
    assert stages[0].signing.id not in stages[-1].accepted
    assert stages[-1].other is None


def test_a_rotation_can_be_called_off_before_the_new_key_signs(file):
    keygen(file, Step.MAKE)
    before = file.read_bytes()
    keygen(file, Step.ADD)
    keygen(file, Step.RETIRE)
    assert file.read_bytes() == before


def test_what_an_operator_noted_in_the_file_stays(file):
    keygen(file, Step.MAKE)
    file.write_text(f"# rack 7\n\n  {file.read_text()}# end")
    for step in ROTATION:
        keygen(file, step)
    assert [line for line in file.read_text().splitlines() if line.startswith("#")] == ["# rack 7", "# end"]


@pytest.mark.parametrize(
    ("before", "step", "said"),
    [
        ((Step.MAKE, Step.ADD), Step.ADD, "--add {}: holds two keys: first --retire the second"),
        ((Step.MAKE,), Step.PROMOTE, "--promote {}: holds one key: first --add a second"),
        ((Step.MAKE,), Step.RETIRE, "--retire {}: holds one key: first --add a second"),
        ((), Step.ADD, "{}: cannot be read: No such file or directory"),
    ],
)
def test_a_step_out_of_turn_says_which_one_comes_first(file, before, step, said):
    for earlier in before:
        keygen(file, earlier)
    with pytest.raises(SettingError) as refused:
        keygen(file, step)
    assert str(refused.value).startswith(said.format(file))


def test_a_file_that_others_can_read_is_not_added_to(file):
    keygen(file, Step.MAKE)
    file.chmod(0o644)
    with pytest.raises(SettingError, match="has mode 0644"):
        keygen(file, Step.ADD)


def test_whose_the_key_is_it_stays_whoever_replaces_it(file):
    keygen(file, Step.MAKE)
    try:
        os.chown(file, 65534, 65534)
    except OSError:
        pytest.skip("root alone, and one that there are others beside, may give a file away")
    for step in ROTATION:
        keygen(file, step)
        assert (file.stat().st_uid, file.stat().st_gid, stat.S_IMODE(file.stat().st_mode)) == (65534, 65534, 0o600)


def test_a_link_to_the_key_stays_a_link(file, tmp_path):
    keygen(file, Step.MAKE)
    link = tmp_path / "link"
    link.symlink_to(file)
    keygen(link, Step.ADD)
    assert link.is_symlink()
    assert read_keys(file).other is not None


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "etc").write_text("a file")
    with pytest.raises(EdgeError, match=r"cannot write .*/etc/key"):
        keygen(tmp_path / "etc" / "key", Step.MAKE)
