"""Programs that are not there, may not be run, hang, or print what they never print: real ones, in our own PATH."""

import asyncio
import os
import signal

import pytest

from speaker.errors import EdgeError, NotDone, Unsupported
from speaker.forwarding.nftables import forwarder as nftables
from speaker.forwarding.nftables import nft
from speaker.forwarding.nftables.listing import read_guard, read_plan
from speaker.forwarding.nftables.ruleset import guard_ruleset
from speaker.forwarding.plan import EMPTY
from speaker.kubeproxy import sight
from speaker.system import programs

GARBAGE = [
    "",
    "garbage",
    "[]",
    "{}",
    '{"nftables": 1}',
    '{"nftables": [1]}',
    '{"nftables": [{"table"',
    "[" * 100_000,
    "\\377",
]


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def program(path, name, script, mode=0o755):
    file = path / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(mode)


def printing(path, text):
    (path / "said").write_bytes(text.encode().replace(b"\\377", b"\xff"))
    program(path, "nft", f"cat {path}/said")


async def test_what_a_program_says_and_how_it_ends(path):
    program(path, "say", "cat; echo a >&2; echo b >&2; exit 3")
    assert await programs.run("say", text="hello") == programs.Ended(3, b"hello", "a b")


async def test_a_program_that_is_not_there_or_may_not_be_run_is_told_of(path, monkeypatch):
    with pytest.raises(Unsupported, match=r"^the program none is not installed, or not executable: No such file"):
        await programs.run("none")
    monkeypatch.setenv("PATH", str(path))
    program(path, "nft", "true", mode=0o644)
    for run in (nft.run(""), nft.list_table("x"), nft.list_chains(), nftables.open_nftables()):
        with pytest.raises(EdgeError, match="not executable: Permission denied"):
            await run


async def test_what_is_no_program_is_told_of(path, monkeypatch):
    monkeypatch.setenv("PATH", str(path))
    (path / "nft").write_bytes(b"\x00\x01")
    (path / "nft").chmod(0o755)
    with pytest.raises(EdgeError, match=r"cannot run nft: .*Exec format error"):
        await nft.run("")


async def test_a_program_that_hangs_is_ended(path, monkeypatch):
    monkeypatch.setattr(programs, "SECONDS", 0.05)
    program(path, "hang", f"echo $$ >{path}/pid; exec sleep 1000")
    with pytest.raises(EdgeError, match=r"hang did not finish within 0.05 s"):
        await programs.run("hang")


async def test_one_that_is_only_slow_gets_longer_until_it_is_done(path, monkeypatch):
    monkeypatch.setattr(programs, "SECONDS", 0.2)
    program(path, "slow", "exec sleep 0.5")
    refusals = 0
    while True:
        try:
            assert (await programs.run("slow")).status == 0
            break
        except NotDone:
            refusals += 1
    assert refusals


async def test_one_that_is_killed_has_refused_nothing(path):
    """As by a kernel that runs out of memory: taken for a refusal, it would say that this kernel has no nftables."""
    program(path, "nft", "kill -9 $$")
    for opening in (nftables.open_nftables(), nftables.open_guard()):
        with pytest.raises(NotDone, match="was killed: Killed"):
            await opening


async def test_a_look_that_hangs_is_ended_long_before_a_change_would_be(path, monkeypatch):
    monkeypatch.setattr(nft, "LOOK_SECONDS", 0.05)
    program(path, "nft", "exec sleep 1000")
    with pytest.raises(EdgeError, match=r"^nft did not finish within 0.05 s$"):
        await nft.list_chains()


async def test_who_is_cancelled_leaves_no_program_behind(path):
    os.mkfifo(path / "begun")
    program(path, "wait", f"echo $$ >{path}/begun; exec sleep 1000")
    running = asyncio.create_task(programs.run("wait"))
    pid = int(await asyncio.to_thread((path / "begun").read_text))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("text", GARBAGE)
async def test_garbage_from_nft_with_exit_0_is_an_error_of_ours(path, text):
    printing(path, text)
    for listed in (nft.list_chains(), nft.list_table("x")):
        with pytest.raises(EdgeError, match=r"^nft list .* its output cannot be read"):
            await listed


@pytest.mark.parametrize("text", GARBAGE)
def test_garbage_from_nft_tells_nothing_of_kube_proxy(text):
    said = text.encode().replace(b"\\377", b"\xff")
    for read in (sight.in_map, sight.in_chain, sight.chains_named, sight.tables_named):
        with pytest.raises(EdgeError, match="cannot be read"):
            read(said)


@pytest.mark.parametrize(
    "listing",
    [
        [1],
        [{}],
        [{"set": 1}],
        [{"set": {}}],
        [{"set": {"name": "eips4", "elem": 7}}],
        [{"rule": {"chain": []}}],
        [{"chain": None}],
        [{"table": {}, "set": {}}],
        [{"map": {"name": "services4", "elem": [["10.0.0.1", {"goto": {"target": 1}}]]}}],
    ],
)
def test_a_listing_of_another_shape_is_nobodys_table(listing):
    assert read_plan(listing) is None
    assert read_guard(listing, guard_ruleset(EMPTY)) is None


async def test_an_nft_that_does_nothing_and_says_that_all_is_well_is_not_believed(path, new_namespace):
    program(path, "nft", """case "$*" in *list*) echo 'Error: No such file or directory' >&2; exit 1;; esac""")
    with new_namespace("n").entered(), pytest.raises(EdgeError, match="there is no table inet eip-speaker"):
        await nftables.NftablesForwarder().apply(EMPTY)
