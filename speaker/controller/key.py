"""The key that agents share: the controller makes its Secret where there is none (``--make-key``).

Nothing of it is read. That there is one shows in the API's refusal to make another, so the right to create Secrets is
all that this takes, and of two who try at once one makes it.
"""

import asyncio
import secrets
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from speaker.cluster.transport.client import Client
from speaker.errors import ApiRefused, EdgeError
from speaker.ownership.hellos.keys import MIN_SECRET, generate
from speaker.system.retry import Sleep, retrying

log = structlog.get_logger()

SECRET, ENTRY = "eip-speaker-key", "key"
"""As manifests/base/agent.yaml mounts it."""


async def make_key(
    client: Client, namespace: str, told: Callable[[str, EdgeError], None], *, sleep: Sleep = asyncio.sleep
) -> None:
    """Returns once there is one; ``told`` hears of every try that failed, by what failed."""
    path = f"/api/v1/namespaces/{namespace}/secrets"
    async for attempt in retrying(partial(told, f"{path}/{SECRET}"), sleep=sleep):
        with attempt:
            await _create(client, path)


async def _create(client: Client, path: str) -> None:
    try:
        await client.create(path, _body())
    except ApiRefused as error:
        if error.reason != "AlreadyExists":
            raise
    else:
        log.info("key made", secret=f"{path}/{SECRET}")


def _body() -> dict[str, Any]:
    """With a key that no try before had: whoever was shown that in a refusal knows nothing."""
    content = generate(secrets.token_bytes(MIN_SECRET)).encode()
    return {
        "metadata": {"name": SECRET, "labels": {"app.kubernetes.io/part-of": "eip-speaker"}},
        "type": "Opaque",
        "data": {ENTRY: b64encode(content).decode()},
    }
