"""Edge: a list that comes page by page."""

from collections.abc import AsyncIterator

from speaker.cluster.client import REQUEST, Client, Query
from speaker.cluster.objects import Page, read_page

PAGE = 500
"""Objects of one page."""


async def pages(
    client: Client, path: str, query: Query, size: int = PAGE, *, within: float = REQUEST
) -> AsyncIterator[Page]:
    """To the last one, each answered ``within`` so many seconds. Raises EdgeError, also for what is no list."""
    asked = {**query, "limit": str(size)}
    while True:
        page = read_page(await client.get(path, asked, within=within))
        yield page
        if not page.metadata.continue_:
            return
        asked["continue"] = page.metadata.continue_
