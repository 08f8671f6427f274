"""Edge: runs a command in a container of a pod, as ``kubectl exec`` does, and reads what it says.

The door is the API server's: who may use it is whoever the cluster lets ``create`` and ``get`` ``pods/exec``.
Frames begin with the number of a channel: ``k8s.io/apimachinery/pkg/util/remotecommand``.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from speaker.api.objects import Status
from speaker.cluster.transport.client import Client
from speaker.errors import EdgeError
from speaker.system.decoding import UNFIT

PROTOCOLS = "v5.channel.k8s.io", "v4.channel.k8s.io"
_STDOUT, _STDERR, _STATUS = 1, 2, 3
_MOST_WORDS = 64 * 1024
"""Bytes of stderr, and of the word at the end."""


class Said(NamedTuple):
    """``failed``: how it ended, '' where well; both it and ``err`` in the words of whoever ran it."""

    out: bytes
    err: str
    failed: str


async def execute(
    client: Client, namespace: str, pod: str, container: str, command: Sequence[str], *, within: float, most: int
) -> Said:
    """``within`` seconds, and with at most so many bytes of stdout. Raises EdgeError, ApiRefused, ApiUnreachable."""
    query = [("container", container), ("stdout", "true"), ("stderr", "true"), *(("command", word) for word in command)]
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/exec"
    channels = {_STDOUT: bytearray(), _STDERR: bytearray(), _STATUS: bytearray()}
    try:
        async with asyncio.timeout(within):
            async with client.websocket(path, query, PROTOCOLS, within=within) as messages:
                async for message in messages:
                    _keep(channels, message, most)
    except TimeoutError as error:
        raise EdgeError(f"no answer within {within:g} s") from error
    return Said(bytes(channels[_STDOUT]), channels[_STDERR].decode(errors="replace"), _end(bytes(channels[_STATUS])))


def _keep(channels: dict[int, bytearray], message: bytes, most: int) -> None:
    """Of what people read its beginning will do; an answer that is not whole is none."""
    if not message or (kept := channels.get(message[0])) is None:
        return
    if message[0] != _STDOUT:
        kept += message[1 : 1 + _MOST_WORDS - len(kept)]
    elif len(kept) + len(message) - 1 > most:
        raise EdgeError(f"it says more than {most} bytes")
    else:
        kept += message[1:]


def _end(word: bytes) -> str:
    try:
        status = msgspec.json.decode(word, type=_End)
    except UNFIT:
        return "the connection ended before the command"
    return "" if status.status == "Success" else status.message or status.reason or "it failed"


class _End(Status, frozen=True):
    status: str = ""
