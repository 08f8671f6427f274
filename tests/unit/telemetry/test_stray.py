"""What is raised where nobody waits for it is an internal error, and what a machine refuses is not."""

import asyncio
import gc
import logging

from speaker.telemetry.stray import TASK, report_strays


class Supervisor:
    def __init__(self):
        self.told = []

    def internal_error(self, task, error):
        self.told.append((task, repr(error)))


def fail(error):
    raise error


async def test_what_a_callback_raises_is_reported():
    report_strays(supervisor := Supervisor())
    asyncio.get_running_loop().call_soon(fail, ValueError("a bug"))
    asyncio.get_running_loop().call_soon(fail, asyncio.CancelledError("a bug"))
    await asyncio.sleep(0)
    assert supervisor.told == [(TASK, "ValueError('a bug')"), (TASK, "CancelledError('a bug')")]


async def test_what_a_forgotten_task_raised_is_reported():
    report_strays(supervisor := Supervisor())

    async def work():
        raise ValueError("a bug")

    task = asyncio.create_task(work())
    await asyncio.wait((task,))
    del task
    gc.collect()
    assert supervisor.told == [(TASK, "ValueError('a bug')")]


async def test_a_connection_that_cannot_be_accepted_is_no_bug_of_ours(caplog):
    report_strays(supervisor := Supervisor())
    with caplog.at_level(logging.CRITICAL):
        asyncio.get_running_loop().call_exception_handler(
            {"message": "socket.accept() out of system resource", "exception": OSError(24, "none left"), "socket": None}
        )
    assert supervisor.told == []
