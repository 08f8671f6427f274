"""A TCP relay between a client and its server, for what a network does to them."""

import asyncio
from contextlib import suppress


class Relay:
    """``async with Relay(port) as relay``: what connects to ``relay.port`` is passed on to ``port``; on ``host``."""

    def __init__(self, target: int, host: str = "127.0.0.1") -> None:
        self.port = 0
        self.connections = 0
        """Accepted so far."""
        self._target, self._host = target, host
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._left: int | None = None
        self._forgotten: list[asyncio.Event] = []
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def __aenter__(self) -> "Relay":
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        for flowing in (self._flowing, *self._forgotten):
            flowing.set()
        await self.refuse()
        await asyncio.gather(*self._tasks)

    async def accept(self) -> None:
        self._server = await asyncio.start_server(self._connected, self._host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Breaks every connection and accepts none."""
        self._server.close()
        self.cut()
        await asyncio.sleep(0)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def cut_after(self, count: int) -> None:
        """Breaks every connection when so many more bytes came from the server, once."""
        self._left = count

    def hold(self) -> None:
        """Nothing passes, in either direction, and no connection breaks: half open."""
        self._flowing.clear()

    def resume(self) -> None:
        """After ``hold``."""
        self._flowing.set()

    def forget(self) -> None:
        """The connections there are carry nothing any more, and nobody is told; new ones do."""
        self._flowing.clear()
        self._forgotten.append(self._flowing)
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._tasks.add(task := asyncio.current_task())
        task.add_done_callback(self._tasks.discard)
        with suppress(ConnectionError):
            far_reader, far_writer = await asyncio.open_connection(self._host, self._target)
            ends = {writer, far_writer}
            self._writers |= ends
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pump(reader, far_writer, self._flowing))
                    group.create_task(self._pump(far_reader, writer, self._flowing, counted=True))
            finally:
                self._writers -= ends
                for end in ends:
                    end.transport.abort()
        writer.transport.abort()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        flowing: asyncio.Event,
        *,
        counted: bool = False,
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                await flowing.wait()
                if counted and self._left is not None:
                    data, self._left = data[: self._left], self._left - len(data)
                writer.write(data)
                await writer.drain()
                if counted and self._left is not None and self._left <= 0:
                    self._left = None
                    self.cut()
        writer.transport.abort()
