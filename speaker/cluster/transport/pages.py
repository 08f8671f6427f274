"""Edge: a list that comes page by page."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import msgspec

from speaker.cluster.objects import Object, Page, read_page
from speaker.cluster.transport.client import REQUEST, Client, Query
from speaker.system.decoding import UNFIT

PAGE = 500
"""Objects of one page."""

_T = TypeVar("_T", bound=Object)


async def one_page(client: Client, path: str, query: Query, size: int, *, within: float = REQUEST) -> Page:
    """The first, or that which ``query`` continues with. Raises EdgeError, also for what is no list."""
    return read_page(await client.get(path, {**query, "limit": str(size)}, within=within))


async def pages(
    client: Client, path: str, query: Query, size: int = PAGE, *, within: float = REQUEST
) -> AsyncIterator[Page]:
    """To the last one, each answered ``within`` so many seconds. Raises EdgeError, also for what is no list."""
    page = await one_page(client, path, query, size, within=within)
    yield page
    while page.metadata.continue_:
        page = await one_page(client, path, {**query, "continue": page.metadata.continue_}, size, within=within)
        yield page


async def listed(client: Client, path: str, kind: type[_T], query: Query | None = None) -> list[_T]:
    """All objects there that ``kind`` fits, page by page, and what remains of others. Raises EdgeError."""
    decode, found = msgspec.json.Decoder(kind).decode, []
    async for page in pages(client, path, query or {}):
        for raw in page.items or ():
            try:
                found.append(decode(raw))
            except UNFIT:
                found += filter(None, (kind.remains(raw),))
        await asyncio.sleep(0)
    return found
