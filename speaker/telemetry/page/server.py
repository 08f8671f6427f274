"""Edge: the page's few files, and what they show."""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from functools import cache
from http import HTTPStatus
from importlib.resources import files

from speaker.errors import SettingError
from speaker.settings import Bind
from speaker.system.listening import Answer, Front, Question, Stream, plain, refusal
from speaker.system.supervise import Supervisor, at_work
from speaker.telemetry.page.live import Live

FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
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
    """Serve while the block lasts. ``names`` as in ``Front.open``. Raises SettingError where ``bind`` cannot be had."""

    async def answer(question: Question) -> Answer | Stream:
        if question.path not in (*FILES, "/status.json", "/events"):
            return plain(HTTPStatus.NOT_FOUND)
        if question.method not in ("GET", "HEAD"):
            return plain(HTTPStatus.METHOD_NOT_ALLOWED)
        if question.path == "/status.json":
            return Answer(HTTPStatus.OK, await live.now(), _typed("application/json"))
        if question.path == "/events":
            if live.full:
                return plain(HTTPStatus.SERVICE_UNAVAILABLE)
            return Stream(live.stream(), _typed("text/event-stream"))
        name, kind = FILES[question.path]
        return Answer(HTTPStatus.OK, _read(name), _typed(kind))

    async with Front(most_unread=MOST_UNREAD) as front:
        try:
            await front.open(bind.host, bind.port, answer, names)
        except OSError as error:
            raise SettingError(f"--page {bind}: cannot listen there: {refusal(error)}") from error
        async with at_work("page", live.run, supervisor):
            yield


def _typed(kind: str) -> Mapping[str, str]:
    return {"Content-Type": f"{kind}; charset=utf-8", **HEADERS}


@cache
def _read(name: str) -> bytes:
    return files(__package__).joinpath(name).read_bytes()
