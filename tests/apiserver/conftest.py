"""Clients of the real API: ours, as anybody, and kubectl."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from real_api import RealApi

from speaker.cluster.access import Access, configure
from speaker.cluster.client import Client

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


@pytest.fixture
def admin(api_server: RealApi) -> Iterator[Callable[..., str]]:
    """With the shipped definitions and rights in place. Services and pools that the test makes are deleted after it."""
    api_server.install()
    yield api_server.kubectl
    api_server.kubectl("delete", "service", "--field-selector=metadata.name!=kubernetes")
    for pool in api_server.kubectl("get", "eip", "-o", "name").split():
        api_server.kubectl("patch", pool, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        api_server.kubectl("delete", pool, "--ignore-not-found")
