"""The state file: what was written is read, and what cannot be understood is never taken for nothing."""

import asyncio
import os
import stat
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.allocator.book import HeldAddresses, Ledger, Resting
from speaker.errors import EdgeError
from speaker.model import ServiceKey
from speaker.standalone.state import one_speakers, read_state, write_state

WEB = ServiceKey("default", "web")
LEDGER = Ledger(
    held=(HeldAddresses(WEB, ("192.0.2.1", "2001:db8::1"), ("lan", "lan"), suspended=("192.0.2.1",)),),
    resting=(Resting("192.0.2.2", WEB, 12.5),),
)


def test_no_file_is_no_ledger(tmp_path):
    assert read_state(tmp_path / "state.json", Ledger) is None


def test_what_was_written_is_read_and_only_its_owner_may(tmp_path):
    path = tmp_path / "new" / "state.json"
    write_state(path, Ledger())
    write_state(path, LEDGER)
    assert read_state(path, Ledger) == LEDGER
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_former_state(tmp_path):
    path = tmp_path / "state.json"
    write_state(path, LEDGER)
    with pytest.raises(TypeError):
        write_state(path, {"held": object()})
    assert read_state(path, Ledger) == LEDGER
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EdgeError, match=r"state\.json: (Not a directory|File exists)"):
        write_state(tmp_path / "file" / "state.json", LEDGER)


DAMAGED = [
    b"",
    b"{}",
    b"\x00\x00",
    b'{"version": 1}',
    b'{"version": 1, "ledger": {"held": 5}}',
    b'{"version": 1, "ledger": {"held": [{"service": {"namespace": "a"}, "addresses": [], "pools": []}]}}',
    b'{"version": 1, "ledger": {"hel',
    b'{"version": "1", "ledger": {}}',
    b'{"version": 1, "ledger": {"held": [{"service": {"namespace": "\xff"}}]}}',
    b'{"version": 1, "ledger": {}, "x": ' + b"[" * 100_000,
]


@pytest.mark.parametrize("content", DAMAGED, ids=lambda content: content[:40])
def test_a_damaged_file_is_refused_with_what_to_do(tmp_path, content):
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with pytest.raises(EdgeError, match=r"state\.json is damaged \(.*\): restore it from a backup, or move it away"):
        read_state(path, Ledger)


def test_a_file_of_another_version_is_refused(tmp_path):
    path = tmp_path / "state.json"
    path.write_bytes(b'{"version": 2, "ledger": {"a": 1}}')
    with pytest.raises(EdgeError, match="has version 2 and this speaker reads version 1: run the release"):
        read_state(path, Ledger)


IRREGULAR = {
    "a directory": (lambda path: path.mkdir(), "Is a directory"),
    "a FIFO": (os.mkfifo, "Is a FIFO"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "Is a device"),
    "a link to nothing": (
        lambda path: path.symlink_to("volume/state"),
        "Is a link to volume/state, which does not exist",
    ),
}


@pytest.mark.parametrize(("make", "said"), IRREGULAR.values(), ids=IRREGULAR.keys())
def test_what_is_no_file_is_refused_and_never_taken_for_a_new_beginning(tmp_path, make, said):
    path = tmp_path / "state.json"
    make(path)
    with pytest.raises(EdgeError, match=f"state.json cannot be read: {said}"):
        read_state(path, Ledger)


def test_a_link_stays_one_and_what_it_leads_to_is_written(tmp_path):
    link, volume = tmp_path / "state.json", tmp_path / "volume"
    volume.mkdir()
    write_state(volume / "state", Ledger())
    link.symlink_to("volume/state")
    write_state(link, LEDGER)
    assert link.is_symlink()
    assert read_state(volume / "state", Ledger) == LEDGER


def test_a_link_to_what_is_not_mounted_any_more_is_not_written_through(tmp_path):
    link = tmp_path / "state.json"
    link.symlink_to("volume/state")
    with pytest.raises(EdgeError, match=r"cannot write .*state\.json: Is a link to volume/state, which does not exist"):
        write_state(link, LEDGER)
    assert list(tmp_path.iterdir()) == [link]


@given(st.binary() | st.binary().map(lambda tail: b'{"version": 1, "ledger": ' + tail))
def test_no_bytes_make_it_raise_anything_else(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("state") / "state.json"
    path.write_bytes(content)
    try:
        assert isinstance(read_state(path, Ledger), Ledger)
    except EdgeError as error:
        assert str(path) in str(error)  # noqa: PT017 -- either is right


def test_a_link_that_leads_where_nobody_may_look_is_an_edge_error(tmp_path):
    link = tmp_path / "state.json"
    link.symlink_to("x" * 300)
    with pytest.raises(EdgeError, match=r"cannot look at .*state\.json: File name too long"):
        write_state(link, LEDGER)


async def test_of_two_speakers_one_has_the_state_file_and_the_other_is_told_what_to_do(tmp_path):
    path = tmp_path / "state.json"
    (tmp_path / "link").symlink_to(path)
    async with one_speakers(path):
        write_state(path, LEDGER)
        for name in (path, tmp_path / "link"):
            with pytest.raises(EdgeError, match=r"state file .*: another speaker uses it, .*--state"):
                async with one_speakers(name, patience=0.0):
                    pass
        async with one_speakers(tmp_path / "other.json", patience=0.0):
            pass
    async with one_speakers(path, patience=0.0):
        pass


async def test_who_is_just_ending_is_waited_for(tmp_path):
    path = tmp_path / "state.json"
    async with AsyncExitStack() as first, asyncio.TaskGroup() as tasks:
        await first.enter_async_context(one_speakers(path))

        async def second():
            async with one_speakers(path):
                pass

        waiting = tasks.create_task(second())
        await asyncio.sleep(0)
        assert not waiting.done()
        await first.aclose()


async def test_where_no_lock_can_be_had_a_speaker_starts_all_the_same(closed_off):
    async with one_speakers(closed_off / "state.json", patience=0.0):
        pass


@pytest.mark.parametrize("make", [lambda path: None, os.mkfifo], ids=["a link to nothing", "a FIFO"])
async def test_nothing_is_left_beside_what_is_no_state_file(tmp_path, make):
    volume = tmp_path / "volume"
    volume.mkdir()
    make(volume / "state")
    (tmp_path / "state.json").symlink_to(volume / "state")
    before = sorted(tmp_path.rglob("*"))
    async with one_speakers(tmp_path / "state.json"):
        assert sorted(tmp_path.rglob("*")) == before


def test_a_state_file_in_a_directory_that_was_removed_is_an_edge_error(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(EdgeError, match=r"state\.json: the current directory was removed"):
        write_state(Path("state.json"), LEDGER)
