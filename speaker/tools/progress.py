"""A word on stderr for what takes longer than somebody who waits expects. Only where a person looks: on a terminal."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

SOON, THEN = 2.0, 10.0
"""Seconds until the first word, and between the next ones."""


@contextmanager
def told(what: str, stream: TextIO | None = None, soon: float = SOON, then: float = THEN) -> Iterator[None]:
    """``what`` is being done in the block: ``speaker: still reads the manifests after 2 s``."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield
        return
    over = threading.Event()

    def tell() -> None:
        wait = passed = soon
        while not over.wait(wait):
            print(f"speaker: still {what} after {passed:g} s", file=stream, flush=True)
            wait, passed = then, passed + then

    # A daemon: it must not keep a process that ends by an error.
    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
