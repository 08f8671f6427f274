"""A page of made-up EIPs, and a browser that looks at it."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from chromium import Chromium, chromium, missing

from speaker.settings import Bind
from speaker.telemetry.page.document import Document
from speaker.telemetry.page.server import Live, serving


class Page:
    """Served by a loop in a thread of its own until it is closed; may be opened again."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/"
        self.errors: list[BaseException] = []
        self.open()

    def open(self) -> None:
        self._loop, begun = asyncio.new_event_loop(), threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve(begun)))
        self._thread.start()
        assert begun.wait(60)

    async def _serve(self, begun: threading.Event) -> None:
        self._live, self._stop = Live(), asyncio.Event()
        async with serving(Bind("127.0.0.1", self._port), self._live, self):
            begun.set()
            await self._stop.wait()

    def internal_error(self, task: str, error: BaseException) -> None:
        self.errors.append(error)

    def show(self, found: Document) -> None:
        self._loop.call_soon_threadsafe(self._live.show, lambda: found)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def page() -> Iterator[Page]:
    found = Page()
    yield found
    found.close()
    assert found.errors == []


@pytest.fixture(scope="session")
def shared_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if reason := missing():
        pytest.skip(reason)
    with chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def browser(shared_browser: Chromium) -> Iterator[Chromium]:
    """One for all tests, each of which begins with a desktop's look and ends without a complaint on the console."""
    shared_browser.look(width=1100, height=1150, theme="light")
    shared_browser.console()
    yield shared_browser
    assert shared_browser.console() == []
    shared_browser.open("about:blank")


@pytest.fixture
def browser_in(tmp_path: Path) -> Iterator[Callable[..., Chromium]]:
    """``browser_in(namespace)``: another one, there."""
    if reason := missing():
        pytest.skip(reason)
    with ExitStack() as stack:
        yield lambda namespace: stack.enter_context(chromium(tmp_path / "chromium", namespace.entered))
