"""Edge: requests to the Kubernetes API, lists that come page by page, and commands in pods.

Watch, lists and leader election are our own as well (docs/decisions/0003-own-reflector.md). Nothing here is retried:
the caller knows whether a second attempt is wanted.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from http.client import responses
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec

from speaker import __version__
from speaker.api.objects import PAGE, Object, Page, Status, read_page, read_refusal
from speaker.cluster.access import Server, hosts_certificates_unread
from speaker.errors import ApiRefused, ApiUnreachable, EdgeError, TooLong
from speaker.system.decoding import UNFIT

with hosts_certificates_unread():
    import aiohttp

REQUEST = 5.0
"""Seconds a request may take unless its caller says otherwise, from connecting to the last byte."""
UNUSED = 60.0
"""Seconds for which a connection is kept that nothing uses: longer than from one renewal of a Lease to the next, as a
handshake costs more than what it is for. An API server hangs up after 90 s."""

_KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3, socket.TCP_USER_TIMEOUT: 25_000}
"""A server that is gone, or a NAT entry on the way to it, is noticed within 25 s even when nothing is being said."""

READ_BUFFER = 2**20
"""Bytes that may lie in the process while its loop is busy; then the server waits."""
MAX_ANSWER = 32 * 2**20
"""Bytes of an answer that is read whole: etcd takes objects of 1.5 MB, and a page of a list has 500."""
_AGENT = f"eip-speaker/{__version__}"

Query: TypeAlias = Mapping[str, str]


class Stream:
    """The body of an answer while it comes."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def read(self, within: float) -> bytes:
        """What has arrived, one byte at least; b"" at the end. Raises ApiUnreachable when the connection breaks,
        TimeoutError when it brings nothing for ``within`` seconds."""
        async with asyncio.timeout(within):
            with _reaching(self._answer.url.path):
                return await self._answer.content.readany()


class Client:
    """``async with Client(await configure(Access())) as client: …`` (one loop per Client)

    Methods return the body. They raise ApiRefused for an answer that is a failure, ApiUnreachable for none, EdgeError
    where there is no token to ask with; ``within`` is seconds for all of a request. Bodies are plain data, not bytes.
    """

    def __init__(self, server: Server, took: Callable[[str, float], None] = lambda *_: None) -> None:
        """``took``: hears how many seconds each request took, by its method; of a watch its beginning, of one that was
        not answered as long as it was waited for."""
        self._server, self._took = server, took
        self._proxy = server.proxy or _proxy_of(server.url)

    async def __aenter__(self) -> Self:
        # Without a limit: each watch keeps a connection, and a renewal must not wait for one to end.
        kept = aiohttp.TCPConnector(limit=0, socket_factory=_kept_alive, keepalive_timeout=UNUSED)
        self._session = _session(kept)
        self._one_each = _session(aiohttp.TCPConnector(limit=0, socket_factory=_kept_alive, force_close=True))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        await self._one_each.close()
        await asyncio.sleep(0)  # a transport is closed in the loop's next turn, which may have been its last

    @property
    def afresh(self) -> Self:
        """Asks the same, each request over a connection of its own: behind the server's address may be several."""
        other = copy(self)
        other._session = self._one_each
        return other

    async def get(self, path: str, query: Query | None = None, *, within: float = REQUEST) -> bytes:
        return await self._request("GET", path, query, within=within)

    async def create(self, path: str, body: object, *, within: float = REQUEST) -> bytes:
        return await self._request("POST", path, body=body, within=within)

    async def replace(self, path: str, body: object, *, within: float = REQUEST) -> bytes:
        return await self._request("PUT", path, body=body, within=within)

    async def patch(self, path: str, body: object, *, within: float = REQUEST) -> bytes:
        """A merge patch; with ``metadata.resourceVersion`` in it it is refused (409) when that is stale."""
        return await self._request("PATCH", path, body=body, within=within)

    async def delete(self, path: str, body: object = None, *, within: float = REQUEST) -> bytes:
        """``body``: DeleteOptions, for preconditions on uid and version."""
        return await self._request("DELETE", path, body=body, within=within)

    @asynccontextmanager
    async def stream(self, path: str, query: Query, *, within: float = REQUEST) -> AsyncIterator[Stream]:
        """A watch; ``within`` is for its beginning only."""
        with _reaching(path):
            async with asyncio.timeout(within):
                answer = await self._send("GET", path, query)
        try:
            yield Stream(answer)
        finally:
            answer.close()

    @asynccontextmanager
    async def websocket(
        self, path: str, query: Sequence[tuple[str, str]], protocols: Sequence[str], *, within: float = REQUEST
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The messages that come, to the last one, none above aiohttp's 4 MiB; ``within`` is for the beginning only.

        Not by the official client's stream: it passes over a kubeconfig's ``proxy-url`` and ``tls-server-name``."""
        with _reaching(path):
            async with asyncio.timeout(within):
                try:
                    opened = await self._session.ws_connect(
                        self._server.url + path,
                        params=query,
                        protocols=protocols,
                        # A kubelet refuses whoever asks for JSON only.
                        headers={**await self._authorized(), "Accept": "*/*"},
                        timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
                        autoclose=False,  # an API server waits for no answer to its close
                        **self._way(),
                    )
                except aiohttp.WSServerHandshakeError as error:
                    if error.status == 401:
                        self._server.refused()
                    raise ApiRefused(error.status, responses.get(error.status, ""), f"GET {path}") from error
        try:
            yield _messages(opened, path)
        finally:
            await opened.close()

    async def _request(
        self, method: str, path: str, query: Query | None = None, body: object = None, *, within: float
    ) -> bytes:
        with _reaching(path):
            async with asyncio.timeout(within):
                async with await self._send(method, path, query, body) as answer:
                    return await _whole(answer, path)

    async def _send(self, method: str, path: str, query: Query | None, body: object = None) -> aiohttp.ClientResponse:
        begun = time.monotonic()
        try:
            headers = await self._authorized()
            if body is not None:
                headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
            answer = await self._session.request(
                method,
                self._server.url + path,
                params=query,
                data=msgspec.json.encode(body) if body is not None else None,
                headers=headers,
                allow_redirects=False,
                **self._way(),
            )
            if answer.status < 300:
                return answer
            async with answer:
                if answer.status == 401:
                    self._server.refused()
                raise read_refusal(await answer.read(), answer.status)
        except aiohttp.ClientSSLError:
            if self._server.trust is not None:
                self._server.trust.expire()
            raise
        finally:
            self._took(method, time.monotonic() - begun)

    def _way(self) -> dict[str, Any]:
        """There: what a connection is made by."""
        trust = self._server.trust
        trusted = True if trust is None else trust()
        return {"proxy": self._proxy, "ssl": trusted, "server_hostname": self._server.tls_name}

    async def _authorized(self) -> dict[str, str]:
        if self._server.authorization is None or not (authorization := await self._server.authorization()):
            return {}
        if not authorization.isprintable():  # as a kubeconfig may have it: a line break behind the token
            raise EdgeError("the token for the API must be one line")
        return {"Authorization": authorization}


def _proxy_of(url: str) -> str | None:
    """As $HTTPS_PROXY and $NO_PROXY say."""
    server = urlsplit(url)
    return None if proxy_bypass(server.netloc) else getproxies().get(server.scheme)


def _session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        # To compress costs both ends more time than a LAN takes for the difference.
        headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": _AGENT},
        timeout=aiohttp.ClientTimeout(total=None),
        trust_env=False,  # it reads .netrc and the variables in a thread, for every request
        read_bufsize=READ_BUFFER,
    )


async def _messages(opened: aiohttp.ClientWebSocketResponse, path: str) -> AsyncIterator[bytes]:
    with _reaching(path):
        async for message in opened:
            if message.type is aiohttp.WSMsgType.BINARY:
                yield message.data
    if (error := opened.exception()) is not None:
        raise ApiUnreachable(f"{path}: {error}")


async def _whole(answer: aiohttp.ClientResponse, path: str) -> bytes:
    parts, size = [], 0
    async for part in answer.content.iter_any():
        parts.append(part)
        if (size := size + len(part)) > MAX_ANSWER:
            raise TooLong(f"{path}: the answer exceeds {MAX_ANSWER} bytes")
    return b"".join(parts)


@contextmanager
def _reaching(path: str) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise ApiUnreachable(f"{path}: no answer in time") from error
    except (aiohttp.ClientError, OSError, RuntimeError) as error:  # RuntimeError: no thread to look the name up in
        raise ApiUnreachable(f"{path}: {error}") from error


def _kept_alive(address: Any) -> socket.socket:
    family, kind, protocol, _, _ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        opened.setsockopt(socket.IPPROTO_TCP, option, value)
    return opened


# ── Lists, page by page ─────────────────────────────────────────────────────────────────────────────────────

SMALLER = 8
"""Of a page that is too long an eighth is asked for."""

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


# ── Commands in pods ────────────────────────────────────────────────────────────────────────────────────────

PROTOCOLS = "v5.channel.k8s.io", "v4.channel.k8s.io"
_STDOUT, _STDERR, _STATUS = 1, 2, 3
_MOST_WORDS = 64 * 1024
"""Bytes of stderr, and of the word at the end."""


class Said(NamedTuple):
    """``failed``: how it ended, '' if well. It and ``err`` are in the words of the command."""

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
        raise EdgeError(f"its output exceeds {most} bytes")
    else:
        kept += message[1:]


def _end(word: bytes) -> str:
    try:
        status = msgspec.json.decode(word, type=_End)
    except UNFIT:
        return "the connection ended before the command did"
    return "" if status.status == "Success" else status.message or status.reason or "it failed"


class _End(Status, frozen=True):
    status: str = ""
