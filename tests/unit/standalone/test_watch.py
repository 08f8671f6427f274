"""Changes are seen however they are made: real files, real inotify. Timeouts only keep a failure from hanging."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from speaker.standalone.watch import changes

A_CHANGE = 60.0
"""Seconds; a look comes every second, so that this is a failure."""


@pytest.fixture
async def watched(tmp_path):
    """The directory ``etc``, watched, and a function that waits for the next change."""
    directory = tmp_path / "etc"
    directory.mkdir()
    (directory / "a.yaml").write_text("a: 1\n")
    async with aclosing(changes(directory)) as found:

        async def changed():
            async with asyncio.timeout(A_CHANGE):
                await anext(found)

        await changed()  # the one at the start
        yield directory, changed


def rename_save(directory):
    """As vim and most editors do."""
    (directory / ".a.yaml.swp").write_text("a: 2\n")
    (directory / ".a.yaml.swp").rename(directory / "a.yaml")


def watched_by_inotify():
    """What this process watches: proc(5), /proc/pid/fdinfo."""
    found = set()
    for info in Path("/proc/self/fdinfo").iterdir():
        with suppress(OSError):
            found.update(re.findall(r"^inotify .*", info.read_text(), re.MULTILINE))
    return found


def swap_the_directory(directory):
    other = directory.with_name("other")
    other.mkdir()
    (other / "a.yaml").write_text("a: 1\n")
    directory.rename(directory.with_name("old"))
    other.rename(directory)


IN_THE_DIRECTORY = {
    "written in place": lambda d: (d / "a.yaml").write_text("a: 2\n"),
    "appended to": lambda d: (d / "a.yaml").open("a").close() or os.truncate(d / "a.yaml", 2),
    "saved by renaming": rename_save,
    "a new file": lambda d: (d / "b.yaml").write_text("b: 1\n"),
    "a file removed": lambda d: (d / "a.yaml").unlink(),
    "a file that becomes a link to nothing": lambda d: (d / "a.yaml").unlink() or (d / "a.yaml").symlink_to("nowhere"),
    "a file that becomes a FIFO": lambda d: (d / "a.yaml").unlink() or os.mkfifo(d / "a.yaml"),
    "a file that becomes a directory": lambda d: (d / "a.yaml").unlink() or (d / "a.yaml").mkdir(),
    "a file renamed": lambda d: (d / "a.yaml").rename(d / "b.yaml"),
}
TO_THE_DIRECTORY = {
    "the directory replaced": swap_the_directory,
    "the directory gone": shutil.rmtree,
}


@pytest.mark.parametrize("change", IN_THE_DIRECTORY.values(), ids=IN_THE_DIRECTORY.keys())
async def test_inotify_alone_sees_what_happens_in_the_directory(tmp_path, monkeypatch, change):
    monkeypatch.setattr("speaker.standalone.watch.LOOK_SECONDS", 1000.0)
    (tmp_path / "a.yaml").write_text("a: 1\n")
    async with aclosing(changes(tmp_path)) as found, asyncio.timeout(A_CHANGE):
        await anext(found)
        change(tmp_path)
        await anext(found)


@pytest.mark.parametrize("change", TO_THE_DIRECTORY.values(), ids=TO_THE_DIRECTORY.keys())
async def test_another_directory_is_seen_and_so_are_its_changes(watched, change):
    directory, changed = watched
    change(directory)
    await changed()
    directory.mkdir(exist_ok=True)
    (directory / "next.yaml").write_text("a: 3\n")
    await changed()


async def test_the_watch_moves_to_the_directory_that_took_the_place(watched, monkeypatch):
    directory, changed = watched
    before = watched_by_inotify()
    swap_the_directory(directory)
    await changed()
    monkeypatch.setattr("speaker.standalone.watch.LOOK_SECONDS", 1000.0)  # from here on inotify alone
    waiting = asyncio.create_task(changed())
    async with asyncio.timeout(A_CHANGE):
        while not watched_by_inotify() - before:  # noqa: ASYNC110 -- the kernel tells nobody
            await asyncio.sleep(0)
    (directory / "next.yaml").write_text("a: 3\n")
    await waiting


async def test_a_look_that_sees_nothing_new_is_no_change(watched, monkeypatch):
    directory, changed = watched
    monkeypatch.setattr("speaker.standalone.watch.LOOK_SECONDS", 0.01)
    (directory / "notes.txt").write_text("1")
    (directory / ".a.yaml.swp").write_text("1")
    with pytest.raises(TimeoutError):  # a slow machine looks less often and passes all the same
        async with asyncio.timeout(0.3):
            await changed()


async def test_what_is_no_file_hides_no_change_of_the_others(tmp_path):
    (tmp_path / "a.yaml").symlink_to("nowhere")
    (tmp_path / "b.yaml").write_text("b: 1\n")
    async with aclosing(changes(tmp_path)) as found, asyncio.timeout(A_CHANGE):
        await anext(found)
        (tmp_path / "b.yaml").write_text("b: 22\n")
        await anext(found)


async def test_what_is_written_to_a_directory_with_a_manifests_name_is_no_change(tmp_path, monkeypatch):
    monkeypatch.setattr("speaker.standalone.watch.LOOK_SECONDS", 0.01)
    (tmp_path / "a.yaml").mkdir()
    async with aclosing(changes(tmp_path)) as found:
        await anext(found)
        (tmp_path / "a.yaml" / "b.yaml").write_text("b: 22\n")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await anext(found)


async def test_where_nothing_changes_a_look_is_taken_when_it_is_due(tmp_path, monkeypatch):
    monkeypatch.setattr("speaker.standalone.watch.LOOK_SECONDS", 0.01)
    due = [False, True, False]
    async with aclosing(changes(tmp_path, lambda: due.pop(0))) as found, asyncio.timeout(A_CHANGE):
        await anext(found)
        await anext(found)
        assert due == [False]


async def test_what_changes_while_the_caller_reads_is_not_lost(watched):
    directory, changed = watched
    (directory / "a.yaml").write_text("a: 2\n")
    await changed()
    (directory / "a.yaml").write_text("a: 33\n")  # before anybody waits again
    await changed()


async def test_a_mounted_configmap_swaps_a_link_and_is_seen(tmp_path):
    """kubelet's AtomicWriter: new files in a new hidden directory, then ``..data`` renamed over."""

    def publish(revision):
        data = tmp_path / f"..{revision}"
        data.mkdir()
        (data / "a.yaml").write_text("a: 1\n")
        (tmp_path / "..data_tmp").symlink_to(data.name)
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")

    publish("first")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    async with aclosing(changes(tmp_path)) as found, asyncio.timeout(A_CHANGE):
        await anext(found)
        publish("second")
        await anext(found)
        publish("third")
        await anext(found)


async def test_a_link_to_the_directory_that_leads_elsewhere_is_seen(tmp_path):
    for name in ("v1", "v2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text("a: 1\n")
    (tmp_path / "etc").symlink_to("v1")
    async with aclosing(changes(tmp_path / "etc")) as found, asyncio.timeout(A_CHANGE):
        await anext(found)
        (tmp_path / "new").symlink_to("v2")
        (tmp_path / "new").rename(tmp_path / "etc")
        await anext(found)
        (tmp_path / "v2" / "b.yaml").write_text("b: 1\n")
        await anext(found)


async def test_a_directory_that_is_not_there_yet_is_waited_for(tmp_path):
    async with aclosing(changes(tmp_path / "etc")) as found, asyncio.timeout(A_CHANGE):
        await anext(found)
        (tmp_path / "etc").mkdir()
        await anext(found)


WITHOUT_INOTIFY = """
import asyncio, pathlib, sys
from speaker.standalone.watch import changes

async def main(directory):
    found = changes(directory)
    await anext(found)
    (directory / "a.yaml").write_text("a: 1")
    async with asyncio.timeout(60):
        await anext(found)
    await found.aclose()
    print("seen")

asyncio.run(main(pathlib.Path(sys.argv[1])))
"""


def test_a_change_is_seen_where_no_inotify_instance_is_left(tmp_path):
    none_left = 'echo 0 > /proc/sys/user/max_inotify_instances || exit 77; exec "$@"'
    command = ["unshare", "-Ur", "sh", "-c", none_left, "sh", sys.executable, "-c", WITHOUT_INOTIFY, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"needs a user namespace with limits of its own: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert "no inotify" in done.stdout
    assert done.stdout.endswith("seen\n")
