"""The wire process by itself: how it starts, what it says, how it ends."""

import asyncio
import os
import signal

import pytest

from speaker.errors import EdgeError
from speaker.wire.process import PeerSpec, Spec
from speaker.wire.remote import Wire

pytestmark = pytest.mark.netns

SPECS = [Spec("a", None), Spec("a", PeerSpec(0.1, 0x88B5, (b"k" * 32,)))]


class Deaf:
    """A listener that does not listen."""

    def __getattr__(self, name):
        return lambda *_: None


async def with_wire(spec, ask):
    """What ``ask(wire)`` returns, and how the process ended."""
    async with Wire(spec, Deaf()) as wire:
        watching = asyncio.create_task(wire.watch())
        answer = await ask(wire)
        watching.cancel()
    return answer, wire.exit_code


@pytest.mark.parametrize("spec", SPECS, ids=["alone", "with peers"])
def test_with_nothing_offered_it_is_ready_and_ends_when_it_is_let_go(spec):
    assert asyncio.run(with_wire(spec, Wire.ready)) == (True, 0)


@pytest.mark.parametrize("spec", SPECS, ids=["alone", "with peers"])
def test_a_service_manager_that_signals_every_process_does_not_end_it(spec):
    async def ask(wire):
        os.kill(wire.pid, signal.SIGTERM)
        os.kill(wire.pid, signal.SIGINT)
        return await wire.has_peers()

    assert asyncio.run(with_wire(spec, ask)) == (False, 0)


def test_its_death_is_told():
    async def ask():
        async with Wire(SPECS[0], Deaf()) as wire:
            os.kill(wire.pid, signal.SIGKILL)
            await wire.watch()

    with pytest.raises(EdgeError, match="the wire process ended unasked"):
        asyncio.run(ask())


def test_what_lies_in_the_current_directory_is_not_run(tmp_path, monkeypatch):
    (tmp_path / "speaker").mkdir()
    (tmp_path / "speaker" / "__init__.py").write_text("raise SystemExit('hijacked')")
    monkeypatch.chdir(tmp_path)
    assert asyncio.run(with_wire(SPECS[0], Wire.ready)) == (True, 0)
