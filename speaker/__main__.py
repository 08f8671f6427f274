"""``python -m speaker``."""

import sys

from speaker.cli import main

if __name__ == "__main__":
    sys.exit(main())
