"""Edge: messages between ``speaker run`` and its wire process, over a socket pair that nobody else holds.

A message (``messages.py``) is pickled, behind its length. Pickle, because both ends are the same program and no byte
comes from anywhere else.
"""

import asyncio
import pickle
import socket
import struct
from collections.abc import AsyncIterator
from typing import Generic, Self, TypeVar

_LENGTH = struct.Struct("!I")
_Sent = TypeVar("_Sent")
_Received = TypeVar("_Received")


class Channel(Generic[_Sent, _Received]):
    """One end. ``send`` never waits: what the other end does not read is kept."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        end.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=end))

    def send(self, message: _Sent) -> None:
        if self._writer.is_closing():  # the other end is gone: asyncio would say so on stderr, unasked
            return
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._writer.write(_LENGTH.pack(len(body)) + body)

    async def messages(self) -> AsyncIterator[_Received]:
        """Until the other end is closed, however that came."""
        while True:
            try:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                body = await self._reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            yield pickle.loads(body)  # noqa: S301 -- from our own other half

    @property
    def waiting(self) -> int:
        """Bytes that the other end has not read."""
        return self._writer.transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close it at once: what the other end has not read is lost."""
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()
