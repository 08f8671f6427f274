"""``speaker`` and ``python -m speaker``: Ctrl-C prints no traceback, not even while modules are imported."""

import signal
import sys

INTERRUPTED = 130


def main() -> int:
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored, as after nohup
    if heeded:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
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
