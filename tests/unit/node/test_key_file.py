"""A key file that changes while a speaker runs."""

import asyncio
from contextlib import suppress

from speaker.errors import WireError
from speaker.node.key_file import KEY_SECONDS, KeyFile
from speaker.node.report import Report
from speaker.ownership.hellos.keys import generate
from speaker.telemetry.metrics import Metrics


class Wire:
    """Takes keys but for the first time."""

    def __init__(self):
        self.tries, self.taken = 0, []

    async def keys(self, secrets):
        self.tries += 1
        if self.tries == 1:
            raise WireError("a bug")
        self.taken.append(secrets)


def test_keys_that_could_not_be_handed_on_are_handed_on_later_and_once(tmp_path, in_virtual_time):
    file, first, second = tmp_path / "key", bytes(32), bytes(range(32))
    file.touch(0o600)
    file.write_text(generate(first))
    wire, report = Wire(), Report(Metrics(), tmp_path)

    async def story():
        keys = KeyFile(file)
        file.write_text(generate(second) + generate(first))
        with suppress(WireError):
            await keys.follow(wire, report)
        with suppress(TimeoutError):
            async with asyncio.timeout(3 * KEY_SECONDS):
                await keys.follow(wire, report)

    in_virtual_time(story())
    assert wire.taken == [(second, first)]
