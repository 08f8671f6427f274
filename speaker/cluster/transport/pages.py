"""Edge: a list that comes page by page."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import msgspec

from speaker.api.objects import Object, Page, read_page
from speaker.cluster.transport.client import REQUEST, Client, Query
from speaker.errors import TooLong
from speaker.system.decoding import UNFIT

PAGE, SMALLER = 500, 8
"""Objects of one page; of what is too long an eighth is asked for."""

_T = TypeVar("_T", bound=Object)


async def one_page(client: Client, path: str, query: Query, size: int, *, within: float = REQUEST) -> Page:
    """The first, or that which ``query`` continues with. Raises EdgeError, also for what is no list."""
    return read_page(await client.get(path, {**query, "limit": str(size)}, within=within))


async def pages(
    client: Client, path: str, query: Query, size: int = PAGE, *, within: float = REQUEST
) -> AsyncIterator[Page]:
    """To the last one, each answered ``within`` so many seconds. A page of more bytes than are read of one comes in
    smaller ones, and those behind it grow again. Raises EdgeError, also for what is no list."""
    asked, count, more = query, size, True
    while more:
        try:
            page = await one_page(client, path, asked, count, within=within)
        except TooLong:
            if count == 1:
                raise
            count = max(1, count // SMALLER)
            continue
        yield page
        asked, more = {**query, "continue": page.metadata.continue_}, bool(page.metadata.continue_)
        count = min(size, 2 * count)


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
