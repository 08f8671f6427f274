"""``speaker`` and ``python -m speaker``: Ctrl-C prints no traceback, not even while modules are imported."""

import gc
import signal
import sys

INTERRUPTED = 130
IMPORTED = 500_000
"""New objects after which the garbage collector runs. Imports make that many, and hardly any garbage."""


def main() -> int:
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # otherwise it is ignored, as after nohup
    if heeded:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.set_threshold(IMPORTED)
    from speaker.cli import main as obey

    try:
        if heeded:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return obey()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        if heeded:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
