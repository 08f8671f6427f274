"""Edge: a list that comes page by page."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

import msgspec

from speaker.cluster.client import REQUEST, Client, Query
from speaker.cluster.objects import UNFIT, Object, Page, read_page

PAGE = 500
"""Objects of one page."""

_T = TypeVar("_T", bound=Object)


async def pages(
    client: Client, path: str, query: Query, size: int = PAGE, *, within: float = REQUEST
) -> AsyncGenerator[Page, None]:
    """To the last one, each answered ``within`` so many seconds. Raises EdgeError, also for what is no list."""
    asked = {**query, "limit": str(size)}
    while True:
        page = read_page(await client.get(path, asked, within=within))
        yield page
        if not page.metadata.continue_:
            return
        asked["continue"] = page.metadata.continue_


async def listed(client: Client, path: str, kind: type[_T], query: Query | None = None) -> list[_T]:
    """All objects there that ``kind`` fits, page by page. Raises EdgeError."""
    decode, found = msgspec.json.Decoder(kind).decode, []
    async for page in pages(client, path, query or {}):
        for raw in page.items or ():
            try:
                found.append(decode(raw))
            except UNFIT:
                continue
        await asyncio.sleep(0)
    return found
