"""Edge: the page's few files, who looks at it, and what each is sent, by server-sent events.

Where nobody looks nothing is made. Nothing waits for who looks: what one does not read is kept up to a bound, and then
its connection ends (``system/listening.py``).
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Any

import msgspec

from speaker.settings import Bind
from speaker.system.listening import Answer, Stream, plain
from speaker.system.supervise import Supervisor, at_work
from speaker.system.threads import in_thread
from speaker.system.waiting import set_within, sparing
from speaker.telemetry.http import listening
from speaker.telemetry.page.document import Document, change

MOST = 16
"""Who look at a time."""
PAUSE = 0.2
"""Seconds between two tellings, at least."""
QUIET = 10.0
"""Seconds after which a word that says nothing is said, so that both ends know that the other lives."""
AGAIN = 2000
"""Milliseconds after which a browser that lost us asks again."""


class _Onlooker:
    def __init__(self) -> None:
        self.pending: list[bytes] = []
        self.stirred = asyncio.Event()
        self.knows = False
        """It was sent everything once: from then on it is sent changes."""


class Live:
    """In the loop's thread, but for ``make``, which is called in another."""

    def __init__(self) -> None:
        self._make: Callable[[], Document] | None = None
        self._onlookers: set[_Onlooker] = set()
        self._shown: Document = {}
        """What those who know everything were sent."""
        self._turn, self._text = asyncio.Lock(), b"{}"
        self._news = self._text_is_of = 0
        """How often it was another."""
        self._changed = asyncio.Event()
        self.looked_at = asyncio.Event()
        """Set whenever somebody comes to look; who waits for it clears it."""

    def show(self, make: Callable[[], Document]) -> None:
        """``make`` gives what is so from now on."""
        self._make = make
        self._news += 1
        self._changed.set()

    async def now(self) -> bytes:
        """All of it, as JSON; an empty object where nothing is known yet. Made once for all who ask, by one thread:
        they may be many, and others need threads too."""
        async with self._turn:
            news = self._news
            if self._make is not None and news != self._text_is_of:
                self._text, self._text_is_of = msgspec.json.encode(await in_thread(self._make)), news
            return self._text

    def __len__(self) -> int:
        """Who look."""
        return len(self._onlookers)

    @property
    def full(self) -> bool:
        return len(self) >= MOST

    async def run(self) -> None:
        """Endless."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._make is None or not self._onlookers:
                continue
            async with sparing(PAUSE):
                self._say(await in_thread(self._make))

    def _say(self, after: Document) -> None:
        whole = news = b""
        for one in self._onlookers:
            if not one.knows:
                whole = whole or _said("all", after)
            elif after != self._shown:
                news = news or _said("change", change(self._shown, after))
            if piece := news if one.knows else whole:
                one.pending.append(piece)
                one.stirred.set()
            one.knows = True
        self._shown = after

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """What somebody who looks from now on is sent. Endless."""
        one = _Onlooker()
        self._onlookers.add(one)
        self._changed.set()
        self.looked_at.set()
        try:
            yield b"retry: %d\n\n" % AGAIN
            while True:
                await set_within(one.stirred, QUIET)
                one.stirred.clear()
                pieces, one.pending = one.pending, []
                yield b"".join(pieces) or b":\n\n"
        finally:
            self._onlookers.discard(one)


def _said(event: str, what: Any) -> bytes:
    """JSON has no line ends of its own."""
    return b"event: %s\ndata: %s\n\n" % (event.encode(), msgspec.json.encode(what))


# ── The page's few files, and what they show ────────────────────────────────────────────────────────────────

FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    **{f"/{name}.js": (f"{name}.js", "text/javascript") for name in ("page", "dom", "failovers", "lan", "table")},
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Nothing is loaded from elsewhere, nothing that a tenant wrote is run, and no other site shows or reads it."""
MOST_UNREAD = 32 * 1024 * 1024
"""Bytes, of all that look."""


@asynccontextmanager
async def serving(bind: Bind, live: Live, supervisor: Supervisor, names: Collection[str] = ()) -> AsyncIterator[None]:
    """Serve while the block lasts. Raises as ``http.listening`` does."""

    async def answer(path: str) -> Answer | Stream:
        if path == "/status.json":
            return Answer(HTTPStatus.OK, await live.now(), _typed("application/json"))
        if path == "/events":
            if live.full:
                return plain(HTTPStatus.SERVICE_UNAVAILABLE)
            return Stream(live.stream(), _typed("text/event-stream"))
        name, kind = FILES[path]
        return Answer(HTTPStatus.OK, _read(name), _typed(kind))

    async with (
        listening("--page", bind, (*FILES, "/status.json", "/events"), answer, names, MOST_UNREAD),
        at_work("page", live.run, supervisor),
    ):
        yield


def _typed(kind: str) -> Mapping[str, str]:
    return {"Content-Type": f"{kind}; charset=utf-8", **HEADERS}


@cache
def _read(name: str) -> bytes:
    """Without indentation and comments, which are for readers of the source."""
    return re.sub(rb"(?m)^(\s|// .*\n)+| +// .*$", b"", files(__package__).joinpath(name).read_bytes())
