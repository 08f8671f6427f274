"""usage: aside.py COMMAND…

Runs a command with what all others leave of the processors. Linux shares them out by sessions first (sched(7),
autogroup), so that ``nice`` alone counts among the processes of one session only: this one has its own.
"""

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

LEAST = 19


def main(command: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell has what it starts in the background ignore it
    child = subprocess.Popen(["nice", "-n", str(LEAST), *command], start_new_session=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: child.send_signal(number))  # Ctrl-C reaches one session only
    with suppress(OSError):  # a kernel without autogroups
        Path(f"/proc/{child.pid}/autogroup").write_text(str(LEAST))
    status = child.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
