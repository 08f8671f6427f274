"""The key file on disk: who may read it, and what is said when it cannot be used."""

import os
from base64 import b64encode

import pytest

from speaker.errors import SettingError
from speaker.ownership.hellos.keyfile import MAX_BYTES, read_keys
from speaker.ownership.hellos.keys import Key, Keys

SECRET = bytes(range(32))
LINE = b64encode(SECRET)


@pytest.fixture
def key_file(tmp_path):
    def make(content=LINE, mode=0o600):
        file = tmp_path / "key"
        file.write_bytes(content)
        file.chmod(mode)
        return file

    return make


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_for_its_owner_alone_is_read(key_file, mode):
    assert read_keys(key_file(mode=mode)) == Keys(Key(SECRET))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o644, 0o777])
def test_a_file_that_others_may_open_is_refused_with_its_mode_and_the_rule(key_file, mode):
    file = key_file(mode=mode)
    with pytest.raises(SettingError) as refused:
        read_keys(file)
    assert str(refused.value).startswith(f"{file}: has mode {mode:04o}: must be for its owner alone, as 0600 is")


def test_the_mode_is_that_of_the_file_a_link_leads_to(key_file, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(key_file(mode=0o644))
    with pytest.raises(SettingError, match="has mode 0644"):
        read_keys(link)


def test_a_file_that_is_not_there_is_named_with_the_command_that_makes_one(tmp_path):
    with pytest.raises(SettingError) as refused:
        read_keys(tmp_path / "key")
    assert str(refused.value) == (
        f"{tmp_path}/key: cannot be read: No such file or directory: "
        f"make one with `speaker keygen {tmp_path}/key` and copy it to every host"
    )


IRREGULAR = {
    "a directory": (lambda path: path.mkdir(), "Is a directory"),
    "a FIFO": (os.mkfifo, "Is a FIFO"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "Is a device"),
    "a link to nothing": (lambda path: path.symlink_to("nowhere"), "Is a link to nowhere, which does not exist"),
}


@pytest.mark.parametrize(("make", "said"), IRREGULAR.values(), ids=IRREGULAR.keys())
def test_what_is_no_file_is_no_key_file_and_is_not_waited_for(tmp_path, make, said):
    make(tmp_path / "key")
    with pytest.raises(SettingError, match=f"key: cannot be read: {said}"):
        read_keys(tmp_path / "key")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"not a key", ":1: is not base64"),
        (b"", ": holds 0 keys"),
        (b"#" * (MAX_BYTES + 1), ": is larger than 65536 bytes"),
    ],
)
def test_what_is_wrong_inside_is_said_with_the_file_and_without_the_content(key_file, content, said):
    file = key_file(content)
    with pytest.raises(SettingError) as refused:
        read_keys(file)
    assert str(refused.value).startswith(f"{file}{said}")
    assert b"not a key".decode() not in str(refused.value)


def test_of_a_file_that_belongs_to_somebody_else_it_is_said_whose_it_must_be_and_not_to_make_another(closed_off):
    with pytest.raises(SettingError, match="cannot be read: Permission denied: must belong to") as refused:
        read_keys(closed_off / "key")
    assert "keygen" not in str(refused.value)
