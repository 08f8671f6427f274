"""Whoever waits at a terminal is told what for; a script's stderr stays empty."""

import io
import threading

from speaker.tools.terminal import progress


class Terminal(io.StringIO):
    """Tells when something has been written."""

    def __init__(self):
        super().__init__()
        self.lines = threading.Semaphore(0)

    def isatty(self):
        return True

    def write(self, text):
        written = super().write(text)
        if text.endswith("\n"):
            self.lines.release()
        return written


def test_what_takes_long_is_told_again_and_again_until_it_is_over():
    terminal = Terminal()
    with progress("reading the manifests", terminal, soon=0.001, then=0.002):
        assert terminal.lines.acquire(timeout=30)
        assert terminal.lines.acquire(timeout=30)
    first, second, *_ = terminal.getvalue().splitlines()
    assert first == "speaker: still reading the manifests after 0.001 s"
    assert second == "speaker: still reading the manifests after 0.003 s"


def test_what_is_over_soon_is_not_told():
    terminal = Terminal()
    with progress("reading the manifests", terminal, soon=3600):
        pass
    assert terminal.getvalue() == ""


def test_no_terminal_no_word():
    stream = io.StringIO()
    before = threading.active_count()
    with progress("reading the manifests", stream, soon=0):
        assert threading.active_count() == before
    assert stream.getvalue() == ""
