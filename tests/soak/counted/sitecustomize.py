"""Python imports this before anything else in each process that has this directory in PYTHONPATH: it notes how many
asyncio tasks there are, now and then, in ``$SPEAKER_TASKS/PID``."""

import asyncio.tasks
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

EVERY = 1.0


def count(place: Path) -> None:
    tasks = getattr(asyncio.tasks, "_scheduled_tasks", None)
    if tasks is None:
        tasks = asyncio.tasks._all_tasks
    while True:
        time.sleep(EVERY)
        with suppress(OSError, RuntimeError):
            place.write_text(str(len(tasks)))


if "SPEAKER_TASKS" in os.environ:
    place = Path(os.environ["SPEAKER_TASKS"], str(os.getpid()))
    threading.Thread(target=count, args=(place,), name="counts tasks", daemon=True).start()
