"""Requests to the Kubernetes API, as the pod's ServiceAccount or as a kubeconfig says.

The official client reads kubeconfigs, and is loaded only where there is one: it takes 20 MB, on every node. Its watch,
typed lists and leader election are left alone: the watch never lists again after 410 and spins on 503, typed lists
stall the loop for seconds, the election keeps leading when the API is frozen. Nothing here tries twice: whoever calls
knows whether a second try is wanted.
"""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import aiohttp
import msgspec

from speaker import __version__
from speaker.cluster.objects import read_refusal
from speaker.cluster.transport.trust import MAX_FILE, Trust
from speaker.errors import ApiUnreachable, EdgeError, SettingError
from speaker.settings import DEFAULT_SERVICE_ACCOUNT
from speaker.system.files import read_regular, shown

REQUEST = 5.0
"""Seconds a request may take unless its caller says otherwise, from connecting to the last byte."""
TOKEN_AGE = 60.0
"""Seconds after which the token file is read again. The kubelet replaces it at 80 % of the hour it is good for."""

UNUSED = 60.0
"""Seconds for which a connection is kept that nothing uses: longer than from one renewal of a Lease to the next, as a
handshake costs more than what it is for. An API server hangs up after 90 s."""

_KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3, socket.TCP_USER_TIMEOUT: 25_000}
"""A server that is gone, or a NAT entry on the way to it, is noticed within 25 s even when nothing is being said."""

READ_BUFFER = 2**20
"""Bytes that may lie in the process while its loop is busy; then the server waits."""
_AGENT = f"eip-speaker/{__version__}"

Query: TypeAlias = Mapping[str, str]


class Patch(StrEnum):
    """How a patch is written. One with ``metadata.resourceVersion`` in its body is refused (409) when that is stale."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API is, and who we are there.

    ``kubeconfig`` is for a process outside the cluster (``context`` picks one of its contexts; '' is the current one);
    it is read once, and the certificates that it names are read again as they are replaced. Without it: the pod's
    ServiceAccount, whose token and certificates are read again as they are replaced. ``server``
    (``https://192.0.2.1:6443``) is used instead of the endpoint that either names: on a host where kube-proxy is yet to
    start, the API's Service address leads nowhere.
    """

    kubeconfig: Path | None = None
    context: str = ""
    server: str = ""
    service_account: Path = DEFAULT_SERVICE_ACCOUNT

    def namespace(self, otherwise: str) -> str:
        """The pod's own; ``otherwise`` for a process outside the cluster."""
        try:
            text = _text(self.service_account / "namespace") if self.kubeconfig is None else ""
        except EdgeError:
            return otherwise
        return text or otherwise


@dataclass(frozen=True, slots=True)
class Server:
    """An API server and how to be let in: what ``Client`` goes by."""

    url: str
    trust: Trust | None = None
    """None: what the machine trusts."""
    tls_name: str | None = None
    """The name its certificate has; None: the host of ``url``."""
    proxy: str | None = None
    authorization: Callable[[], Awaitable[str | None]] | None = None
    """The header of that name, asked for before each request."""
    refused: Callable[[], None] = lambda: None
    """Called when the API does not know that header's token any more."""


async def configure(access: Access) -> Server:
    """Raises SettingError when there is nothing to go by, EdgeError when a file of it cannot be read."""
    if access.kubeconfig is not None:
        from speaker.cluster.transport.kubeconfig import read_kubeconfig

        server = await read_kubeconfig(access.kubeconfig, access.context)
    else:
        server = _in_cluster(access)
    return replace(server, url=access.server.rstrip("/")) if access.server else server


def _in_cluster(access: Access) -> Server:
    url = access.server or _service_address()
    token = _TokenFile(access.service_account / "token")
    token.read()
    certificates = access.service_account / "ca.crt"
    try:
        trust = Trust(lambda: ssl.create_default_context(cafile=certificates), certificates)
    except OSError as error:  # ssl.SSLError is one
        raise EdgeError(f"certificates for the API: {shown(certificates)}: {error}") from error
    return Server(url, trust, authorization=token, refused=token.expire)


def _service_address() -> str:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise SettingError("not in a cluster (KUBERNETES_SERVICE_HOST is not set): name a kubeconfig")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _text(path: Path) -> str:
    """Of a small file, without the white space around it. Raises EdgeError."""
    try:
        content, _ = read_regular(path, MAX_FILE)
        return content.decode().strip()
    except OSError as error:
        raise EdgeError(f"{shown(path)}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise EdgeError(f"{shown(path)}: must be UTF-8") from error


class _TokenFile:
    """A ServiceAccount's token, read again as the kubelet replaces it. By the clock that nobody sets."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._due = 0.0

    async def __call__(self) -> str:
        if time.monotonic() >= self._due:
            self.read()
        return f"Bearer {self._token}"

    def read(self) -> None:
        self._token = _text(self._path)
        self._due = time.monotonic() + TOKEN_AGE

    def expire(self) -> None:
        """The API does not know it any more: read again at once."""
        self._due = 0.0


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

    Methods return the body. They raise ApiRefused for an answer that is a failure, ApiUnreachable for none; ``within``
    is seconds for all of a request. Bodies are plain data, not bytes.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    async def __aenter__(self) -> Self:
        # Without a limit: each watch keeps a connection, and a renewal must not wait for one to end.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, socket_factory=_kept_alive, keepalive_timeout=UNUSED),
            # To compress costs both ends more time than a LAN takes for the difference.
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": _AGENT},
            timeout=aiohttp.ClientTimeout(total=None),
            trust_env=True,
            read_bufsize=READ_BUFFER,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._session.close()
        await asyncio.sleep(0)  # a transport is closed in the loop's next turn, which may have been its last

    async def get(self, path: str, query: Query | None = None, *, within: float = REQUEST) -> bytes:
        return await self._request("GET", path, query, within=within)

    async def create(self, path: str, body: object, *, within: float = REQUEST) -> bytes:
        return await self._request("POST", path, None, body, within=within)

    async def replace(self, path: str, body: object, *, within: float = REQUEST) -> bytes:
        return await self._request("PUT", path, None, body, within=within)

    async def patch(
        self,
        path: str,
        body: object,
        kind: Patch = Patch.MERGE,
        query: Query | None = None,
        *,
        within: float = REQUEST,
    ) -> bytes:
        return await self._request("PATCH", path, query, body, kind, within=within)

    async def delete(self, path: str, body: object = None, *, within: float = REQUEST) -> bytes:
        """``body``: DeleteOptions, for preconditions on uid and version."""
        return await self._request("DELETE", path, None, body, within=within)

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

    async def _request(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: object = None,
        content: str = "application/json",
        *,
        within: float,
    ) -> bytes:
        with _reaching(path):
            async with asyncio.timeout(within):
                async with await self._send(method, path, query, body, content) as answer:
                    return await answer.read()

    async def _send(
        self, method: str, path: str, query: Query | None, body: object = None, content: str = "application/json"
    ) -> aiohttp.ClientResponse:
        server = self._server
        headers = {"Content-Type": content} if body is not None else {}
        if server.authorization is not None and (authorization := await server.authorization()):
            headers["Authorization"] = authorization
        try:
            answer = await self._session.request(
                method,
                server.url + path,
                params=query,
                data=msgspec.json.encode(body) if body is not None else None,
                headers=headers,
                proxy=server.proxy,
                ssl=True if server.trust is None else server.trust(),
                server_hostname=server.tls_name,
                allow_redirects=False,
            )
        except aiohttp.ClientSSLError:
            if server.trust is not None:
                server.trust.expire()
            raise
        if answer.status >= 300:
            async with answer:
                if answer.status == 401:
                    server.refused()
                raise read_refusal(await answer.read(), answer.status)
        return answer


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
