"""What is raised where nobody waits for it is an internal error too: in a callback of the loop, in what it calls for a
connection, in a task that was forgotten. asyncio would print it past our log, and nothing would count it."""

import asyncio
from typing import Any

from speaker.system.supervise import Supervisor

TASK = "callback"


def report_strays(supervisor: Supervisor) -> None:
    """From now on, of the running loop."""

    def met(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None or "socket" in context:  # no error of ours: accept(2) finds no descriptor, and is tried again
            loop.default_exception_handler(context)
        else:
            supervisor.internal_error(TASK, error)

    asyncio.get_running_loop().set_exception_handler(met)
