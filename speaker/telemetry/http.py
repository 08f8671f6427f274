"""``/metrics`` and ``/healthz`` over aiohttp."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from speaker.errors import SettingError
from speaker.settings import Bind

Health = Callable[[], tuple[bool, dict[str, object]]]


async def _nothing() -> bytes:
    return b""


@asynccontextmanager
async def serving(
    bind: Bind, registry: CollectorRegistry, health: Health, more: Callable[[], Awaitable[bytes]] = _nothing
) -> AsyncIterator[None]:
    """Serve while the block lasts. ``health`` returns (well, details); unwell is 503. ``more`` follows the registry's
    metrics, in the same format.

    Raises SettingError when the address is taken or not ours: a speaker nobody can watch should not start.
    """

    async def metrics(_: web.Request) -> web.Response:
        body = generate_latest(registry) + await more()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthz(_: web.Request) -> web.Response:
        well, details = health()
        return web.json_response(details, status=200 if well else 503)

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthz)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, bind.host, bind.port).start()
        except OSError as error:
            raise SettingError(f"--metrics {bind.host}:{bind.port}: cannot listen there: {error.strerror}") from error
        yield
    finally:
        await runner.cleanup()
