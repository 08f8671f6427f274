"""Edge: serves ``/metrics`` and ``/healthz`` over HTTP; the page (``page/server.py``) listens in the same way."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from http import HTTPStatus

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from speaker.errors import SettingError
from speaker.settings import Bind
from speaker.system.listening import MAX_UNREAD, Answer, Front, Question, Stream, plain, refusal

Health = Callable[[], tuple[bool, dict[str, object]]]


@asynccontextmanager
async def listening(
    flag: str,
    bind: Bind,
    paths: Collection[str],
    answer: Callable[[str], Awaitable[Answer | Stream]],
    names: Collection[str],
    most_unread: int = MAX_UNREAD,
) -> AsyncIterator[None]:
    """``answer`` is asked for these ``paths``, and everything else is refused, while the block lasts. ``names`` as in
    ``Front.open``.

    Raises SettingError, which names the ``flag``, if the address is taken or not ours: a speaker that nobody can watch
    should not start.
    """

    async def answered(question: Question) -> Answer | Stream:
        if question.path not in paths:
            return plain(HTTPStatus.NOT_FOUND)
        if question.method not in ("GET", "HEAD"):
            return plain(HTTPStatus.METHOD_NOT_ALLOWED)
        return await answer(question.path)

    async with Front(most_unread=most_unread) as front:
        try:
            await front.open(bind.host, bind.port, answered, names)
        except OSError as error:
            raise SettingError(f"{flag} {bind}: cannot listen there: {refusal(error)}") from error
        yield


async def _nothing() -> bytes:
    return b""


@asynccontextmanager
async def serving(
    bind: Bind,
    registry: CollectorRegistry,
    health: Health,
    more: Callable[[], Awaitable[bytes]] = _nothing,
    names: Collection[str] = (),
) -> AsyncIterator[None]:
    """Serve while the block lasts. ``health`` returns (well, details); unwell is 503. ``more`` follows the registry's
    metrics, in the same format. Raises as ``listening`` does."""

    async def answer(path: str) -> Answer:
        if path == "/metrics":
            body = generate_latest(registry) + await more()
            return Answer(HTTPStatus.OK, body, {"Content-Type": CONTENT_TYPE_LATEST})
        well, details = health()
        status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
        return Answer(status, msgspec.json.encode(details), {"Content-Type": "application/json; charset=utf-8"})

    async with listening("--metrics", bind, ("/metrics", "/healthz"), answer, names):
        yield
