"""A client of the real API, as anybody."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from real_api import RealApi

from speaker.cluster.transport.access import Access, configure
from speaker.cluster.transport.client import Client

Connect = Callable[..., Awaitable[Client]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """``await connect(Access(…))`` is an open client; closed when the test ends."""
    async with AsyncExitStack() as stack:

        async def made(access: Access) -> Client:
            return await stack.enter_async_context(Client(await configure(access)))

        yield made


@pytest.fixture
def service_account(api_server: RealApi, tmp_path: Path) -> Any:
    """What a pod of ServiceAccount ``default/speaker`` finds mounted."""
    made = api_server.kubectl("create", "serviceaccount", "speaker", "--dry-run=client", "-o", "yaml")
    api_server.kubectl("apply", "-f", "-", stdin=made)
    return api_server.service_account(tmp_path, api_server.kubectl("create", "token", "speaker"))
