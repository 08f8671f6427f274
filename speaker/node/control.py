"""How commands reach the running speaker: a Unix stream socket in its runtime directory, which only its owner may use.

A client sends one JSON object on a line (``{"command": "drain"}``) and keeps the connection open. It then reads JSON
objects, one per line, until one has ``"done": true`` or ``"error": "a sentence"``. ``handlers.py`` has the answers;
``tools/ask.py`` is the client that people use.
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from speaker.errors import EdgeError, SpeakerError, as_edge_error
from speaker.system.crowd import Crowd
from speaker.system.decoding import UNFIT
from speaker.system.files import is_file
from speaker.system.process import share
from speaker.system.supervise import Ended, Supervisor

_T = TypeVar("_T")
Message: TypeAlias = Mapping[str, Any]
Handler: TypeAlias = Callable[[Message], AsyncIterator[Message]]
"""Takes the whole command and yields the answers; the last one has ``"done": true`` or ``"error"``. A SpeakerError that
it raises becomes such an error. It is closed when the client goes away."""

NAME = "control"
"""The socket's name in the runtime directory."""

MAX_COMMAND = 64 * 1024
"""Bytes of the longest line that is accepted."""
COMMAND_SECONDS = 10.0
"""How long a client may stay silent before it has sent a whole line."""
MAX_CLIENTS = 64
"""At a time; fewer where this process may have few files open. Beyond that, the oldest client that has sent nothing is
dropped."""
BACKLOG = 1024
"""Connections that the kernel keeps waiting while the loop is busy."""
_PART = 16
"""One in so many of the process's descriptors may be a client."""


# ── The speaker's side ────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def serving_control(
    path: Path, handlers: Mapping[str, Handler], supervisor: Supervisor
) -> AsyncIterator[os.stat_result]:
    """Take commands on a socket at ``path`` while the block lasts; clients still waiting at its end are cut off. Yields
    the stat result that identifies the file.

    A socket that a killed speaker left there is replaced. Raises EdgeError if the socket cannot be made.
    """
    listening, known = _bound(path)
    most = share(_PART, MAX_CLIENTS)
    serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
    crowd: Crowd[asyncio.Task[None]] = Crowd(most)
    stopping = asyncio.Event()
    async with asyncio.TaskGroup() as clients:

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if stopping.is_set():  # accepted just before the end
                writer.transport.abort()
                return
            task = clients.create_task(_serve(reader, writer, handlers, supervisor, asked), name="control client")
            serving[task] = writer
            task.add_done_callback(hang_up)
            if (leaves := crowd.enter(task)) is not None:
                leaves.cancel()

        def asked() -> None:
            if (task := asyncio.current_task()) is not None:
                crowd.occupy(task)

        def hang_up(task: asyncio.Task[None]) -> None:
            #  Here and not in the task: a task that is cancelled before its first step never gets to a `finally`.
            crowd.leave(task)
            serving.pop(task).transport.abort()
            _tell_cancelled(task, supervisor)

        server = await asyncio.start_unix_server(connected, sock=listening, limit=MAX_COMMAND, backlog=1)
        listening.listen(BACKLOG)  # asyncio accepts its whole backlog before any client can be turned away
        try:
            yield known
        finally:
            stopping.set()
            if is_file(path, known):
                _remove(path)
            for task in serving:
                task.cancel()
            # asyncio would leave these open: it has accepted them, but its closed server does not know them yet
            asyncio.get_running_loop().remove_reader(listening)
            try:
                await asyncio.sleep(0)
            finally:
                server.close()


def _remove(path: Path) -> None:
    """Errors are ignored: a directory that has become read-only must not keep a speaker from ending."""
    with suppress(OSError):
        path.unlink()


def _bound(path: Path) -> tuple[socket.socket, os.stat_result]:
    """Nobody can connect before ``listen``, when the socket already has its mode and its name."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with as_edge_error(f"cannot listen on {path}"):
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.unlink(missing_ok=True)
            listening.bind(str(draft))
            draft.chmod(0o600)
            draft.replace(path)
            return listening, path.lstat()
        except OSError:
            listening.close()
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise


async def _serve(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    handlers: Mapping[str, Handler],
    supervisor: Supervisor,
    asked: Callable[[], None],
) -> None:
    writer.transport.set_write_buffer_limits(high=0)  # or drain() would return before the kernel has all of it
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            line = await _line(reader)
    except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
        return  # gone, or silent, before it sent a command
    asked()
    async with asyncio.TaskGroup() as both:
        answering = both.create_task(_answer(line, writer, handlers, supervisor), name="control answers")
        leaving = both.create_task(_until_gone(reader), name="control client leaves")
        leaving.add_done_callback(lambda _: answering.cancel())
        answering.add_done_callback(lambda _: leaving.cancel())
        for task in (answering, leaving):
            task.add_done_callback(partial(_tell_cancelled, supervisor=supervisor))


def _tell_cancelled(task: asyncio.Task[None], supervisor: Supervisor) -> None:
    """A TaskGroup ignores a task that ends cancelled, even if nobody cancelled it."""
    if task.cancelled() and not task.cancelling():
        supervisor.internal_error("control", Ended(f"{task.get_name()} was cancelled from within"))


async def _line(reader: asyncio.StreamReader) -> bytes | None:
    """None if it is too long."""
    try:
        return await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError:
        return None


async def _until_gone(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        while await reader.read(MAX_COMMAND):
            pass


async def _answer(
    line: bytes | None, writer: asyncio.StreamWriter, handlers: Mapping[str, Handler], supervisor: Supervisor
) -> None:
    with suppress(_ClientGone):
        try:
            handler, command = _understood(line, handlers)
            async with _closing(handler(command)) as answers:
                async for answer in answers:
                    await _send(writer, answer)
        except SpeakerError as error:
            await _send(writer, {"error": str(error)})
        except _ClientGone:
            raise
        except Exception as error:
            supervisor.internal_error("control", error)
            await _send(writer, {"error": f"internal error (the speaker's log has its traceback): {error}"})


@asynccontextmanager
async def _closing(answers: AsyncIterator[Message]) -> AsyncIterator[AsyncIterator[Message]]:
    try:
        yield answers
    finally:
        if isinstance(answers, AsyncGenerator):
            await answers.aclose()


async def _send(writer: asyncio.StreamWriter, answer: Message) -> None:
    writer.write(msgspec.json.encode(answer) + b"\n")
    try:
        await writer.drain()
    except ConnectionError as error:
        raise _ClientGone from error


class _ClientGone(Exception):
    """Raised when an answer cannot be sent. Not a ConnectionError, which a handler may raise itself."""


class BadCommand(SpeakerError):
    """Raised when what a client sent is not a command."""


def _understood(line: bytes | None, handlers: Mapping[str, Handler]) -> tuple[Handler, dict[str, Any]]:
    if line is None:
        raise BadCommand(f"the line is too long: must be at most {MAX_COMMAND} bytes")
    try:
        command = msgspec.json.decode(line, type=dict[str, Any])
    except UNFIT as error:
        raise BadCommand(f"the line is not a JSON object: {error}") from error
    name = command.get("command")
    handler = handlers.get(name) if isinstance(name, str) else None
    if handler is None:
        raise BadCommand(f"command {name!r:.80}: must be one of {', '.join(sorted(handlers))}")
    return handler, command


# ── The client's side ─────────────────────────────────────────────────────────────────────────────────────────


def ask(runtime_dir: Path, command: str, timeout: float | None = None, **more: str) -> Iterator[dict[str, Any]]:
    """The answers of the speaker of ``runtime_dir``, up to and including the last. ``timeout``: seconds for all of it;
    ``more``: the command's other fields.

    Raises EdgeError if no speaker listens there, something else does, the speaker refuses, is silent for too long, or
    ends before it is done.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        _connect(sock, runtime_dir / NAME)
        try:
            sock.sendall(msgspec.json.encode({"command": command, **more}) + b"\n")
            for line in _lines(sock, deadline):
                answer = msgspec.json.decode(line, type=dict[str, Any])
                if "error" in answer:
                    raise EdgeError(str(answer["error"]))
                yield answer
                if answer.get("done"):
                    return
        except UNFIT as error:
            raise EdgeError(f"what listens on {runtime_dir / NAME} is not a speaker: {error}") from error
        except TimeoutError as error:
            raise EdgeError(f"the speaker did not finish {command} within {timeout:g} s") from error
        except OSError as error:
            raise EdgeError(f"the speaker ended before it finished {command}: {error.strerror}") from error
    raise EdgeError(f"the speaker ended before it finished {command}")


def read_answer(answer: object, kind: type[_T]) -> _T:
    """Raises EdgeError: perhaps the running speaker was not restarted after this program was replaced."""
    with as_edge_error("the speaker has another version than this program", msgspec.ValidationError):
        return msgspec.convert(answer, kind)


def _connect(sock: socket.socket, path: Path) -> None:
    try:
        sock.connect(str(path))
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise EdgeError(f"no speaker runs here: cannot connect to {path}: {error.strerror}") from error
    except PermissionError as error:
        words = f"cannot connect to {path}: {error.strerror}: run this as root, or as the user that the speaker runs as"
        raise EdgeError(words) from error
    except OSError as error:
        raise EdgeError(f"cannot connect to {path}: {error.strerror or error}") from error


def _lines(sock: socket.socket, deadline: float | None) -> Iterator[bytes]:
    """Raises TimeoutError after ``deadline``, in seconds of CLOCK_MONOTONIC."""
    rest = b""
    while True:
        if deadline is not None:
            sock.settimeout(max(deadline - time.monotonic(), 0.001))  # 0 would mean: never wait
        received = sock.recv(MAX_COMMAND)
        if not received:
            return
        *lines, rest = (rest + received).split(b"\n")
        yield from lines
