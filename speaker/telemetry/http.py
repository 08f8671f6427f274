"""``/metrics`` and ``/healthz``."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from http import HTTPStatus

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from speaker.errors import SettingError
from speaker.settings import Bind
from speaker.system.listening import Answer, Front, Question, plain, refusal

Health = Callable[[], tuple[bool, dict[str, object]]]


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
    metrics, in the same format; ``names`` as in ``Front.open``.

    Raises SettingError when the address is taken or not ours: a speaker nobody can watch should not start.
    """

    async def answer(question: Question) -> Answer:
        if question.path not in ("/metrics", "/healthz"):
            return plain(HTTPStatus.NOT_FOUND)
        if question.method not in ("GET", "HEAD"):
            return plain(HTTPStatus.METHOD_NOT_ALLOWED)
        if question.path == "/metrics":
            return Answer(
                HTTPStatus.OK, generate_latest(registry) + await more(), {"Content-Type": CONTENT_TYPE_LATEST}
            )
        well, details = health()
        status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
        return Answer(status, msgspec.json.encode(details), {"Content-Type": "application/json; charset=utf-8"})

    async with Front() as front:
        try:
            await front.open(bind.host, bind.port, answer, names)
        except OSError as error:
            raise SettingError(f"--metrics {bind}: cannot listen there: {refusal(error)}") from error
        yield
