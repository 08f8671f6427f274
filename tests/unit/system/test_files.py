"""A file is the old one or the new one, whatever happens in between; a lock belongs to one process."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.errors import EdgeError
from speaker.system.files import Lock, absolute, is_file, is_there, locked, read_regular, shown, write_atomically


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


def test_a_file_that_must_be_new_is_never_written_over(tmp_path):
    file = tmp_path / "key"
    write_atomically(file, b"one", mode=0o600, new=True)
    with pytest.raises(EdgeError, match=r"cannot write .*key: File exists"):
        write_atomically(file, b"two", new=True)
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"one", 0o600)
    assert [*tmp_path.iterdir()] == [file]


IRREGULAR = {
    "a directory": (lambda path: path.mkdir(), "Is a directory"),
    "a FIFO": (os.mkfifo, "Is a FIFO"),
    "a FIFO behind a link": (lambda path: os.mkfifo(f"{path}.fifo") or path.symlink_to(f"{path}.fifo"), "Is a FIFO"),
    "a device": (lambda path: path.symlink_to("/dev/null"), "Is a device"),
    "a link to nothing": (lambda path: path.symlink_to("nowhere"), "Is a link to nowhere, which does not exist"),
}


@pytest.mark.parametrize(("make", "said"), IRREGULAR.values(), ids=IRREGULAR.keys())
def test_what_is_no_regular_file_is_refused_at_once_and_in_words(tmp_path, make, said):
    make(tmp_path / "file")
    with pytest.raises(OSError, match=said) as refused:
        read_regular(tmp_path / "file", 10)
    assert refused.value.strerror == said
    assert not isinstance(refused.value, FileNotFoundError)


def test_a_name_for_nothing_is_told_from_all_of_these(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "file", 10)


UNSEEN = {
    "a name too long": lambda folder: folder / ("x" * 300),
    "a link to itself": lambda folder: folder / "loop",
}


@pytest.mark.parametrize("of", UNSEEN.values(), ids=UNSEEN.keys())
def test_whether_something_is_there_is_told_or_an_error_that_names_it(tmp_path, of):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("missing")
    assert is_there(tmp_path / "file")
    assert not is_there(tmp_path / "missing")
    assert not is_there(tmp_path / "nowhere")
    assert not is_there(tmp_path / "file" / "below")
    path = of(tmp_path)
    with pytest.raises(EdgeError, match=f"cannot look at {path}: "):
        is_there(path)


def test_where_the_current_directory_was_removed_only_whole_paths_lead_anywhere(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    assert absolute(Path("key")) == gone / "key"
    gone.rmdir()
    assert absolute(tmp_path / "key") == tmp_path / "key"
    with pytest.raises(EdgeError, match="key: the current directory was removed"):
        absolute(Path("key"))


def test_a_regular_file_is_read_up_to_a_byte_more_than_wanted(tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")
    assert read_regular(tmp_path / "file", 10)[0] == b"0123456789"
    assert read_regular(tmp_path / "file", 4)[0] == b"01234"


@given(st.binary(min_size=1).filter(lambda name: b"\0" not in name))
def test_every_name_is_shown_in_characters_that_can_be_printed_and_written(name):
    told = shown(Path(os.fsdecode(name)))
    assert told.isprintable()
    told.encode()


FULL = """
import pathlib, subprocess, sys
from speaker.errors import EdgeError
from speaker.system.files import write_atomically

disk = pathlib.Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=True)
file = disk / "state.json"
write_atomically(file, b"former")
for options, content in (("size=64k", b"x" * 100_000), ("ro", b"latter")):
    subprocess.run(["mount", "-o", f"remount,{options}", disk], check=True)
    try:
        write_atomically(file, content)
    except EdgeError as error:
        print(str(error).rpartition(": ")[2])
    assert file.read_bytes() == b"former"
    assert [path.name for path in disk.iterdir()] == ["state.json"]
"""


def test_a_full_disk_and_a_read_only_one_are_told_and_keep_the_old_file(tmp_path):
    command = ["unshare", "-Urm", sys.executable, "-c", FULL, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare failed" in done.stderr or "ermission denied" in done.stderr:
        pytest.skip(f"needs a mount namespace: {done.stderr.strip()}")
    assert done.stdout.splitlines() == ["No space left on device", "Read-only file system"], done.stderr


def test_a_lock_is_held_once(tmp_path):
    path = tmp_path / "run" / "lock"
    fd = locked(path)
    with pytest.raises(EdgeError, match="another speaker is already running here"):
        locked(path)
    os.close(fd)
    os.close(locked(path))


def test_nobody_but_its_owner_may_take_a_lock(tmp_path):
    (tmp_path / "of an earlier release").touch(0o644)
    for name in ("new", "of an earlier release"):
        os.close(locked(tmp_path / name))
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("what", ["mkdir", "mkfifo", "symlink"])
def test_what_is_no_file_is_no_lock_and_nobody_waits_for_it(tmp_path, what):
    path = tmp_path / "lock"
    {"mkdir": path.mkdir, "mkfifo": lambda: os.mkfifo(path), "symlink": lambda: path.symlink_to("/nowhere")}[what]()
    if what == "mkfifo":
        os.close(locked(path))  # as good as any file to whoever only locks it
    else:
        with pytest.raises(EdgeError, match=r"cannot lock .*/lock"):
            locked(path)


def test_a_lock_in_what_is_no_directory_is_refused_with_that_reason(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(EdgeError, match=r"cannot lock .*/run/lock: Not a directory"):
        locked(tmp_path / "run" / "lock")


def test_a_lock_that_somebody_removed_is_taken_anew(tmp_path):
    path = tmp_path / "run" / "lock"
    lock = Lock(path, locked(path))
    shutil.rmtree(path.parent)
    lock.hold()
    with pytest.raises(EdgeError, match="another speaker is already running here"):
        locked(path)
    known = path.stat()
    lock.hold()
    assert is_file(path, known)


def test_a_lock_that_another_took_meanwhile_is_his(tmp_path):
    path = tmp_path / "lock"
    lock = Lock(path, locked(path))
    path.unlink()
    his = locked(path)
    with pytest.raises(EdgeError, match="another speaker is already running here"):
        lock.hold()
    os.close(his)
