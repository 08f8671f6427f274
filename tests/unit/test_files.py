"""A file is the old one or the new one, whatever happens in between; a lock belongs to one process."""

import pytest

from speaker.errors import EdgeError
from speaker.files import only_one, write_atomically


def test_a_file_is_replaced_and_nothing_else_is_left_behind(tmp_path):
    file = tmp_path / "deep" / "state.json"
    write_atomically(file, b"one")
    write_atomically(file, b"two", mode=0o600)
    assert file.read_bytes() == b"two"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["state.json"]


def test_a_write_that_fails_names_the_path_and_leaves_what_was_there(tmp_path):
    target = tmp_path / "state.json"
    target.mkdir()
    with pytest.raises(EdgeError, match=r"cannot write .*state\.json"):
        write_atomically(target, b"one")
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_lock_is_held_once_and_let_go_at_the_end(tmp_path):
    lock = tmp_path / "run" / "lock"
    with only_one(lock), pytest.raises(EdgeError, match="another speaker runs here already"), only_one(lock):
        pass
    with only_one(lock):
        pass


def test_an_error_inside_the_lock_stays_what_it_is(tmp_path):
    with pytest.raises(OSError, match="mine"), only_one(tmp_path / "lock"):
        raise OSError("mine")
