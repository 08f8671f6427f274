"""Requests to the Kubernetes API: the official client's configuration, authentication and TLS, and none of its models.

Its watch, typed lists and leader election are left alone: the watch never lists again after 410 and spins on 503, typed
lists stall the loop for seconds, the election keeps leading when the API is frozen. Nothing here tries twice: whoever
calls knows whether a second try is wanted.
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import aiohttp
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, load_kube_config
from yaml import YAMLError

from speaker import __version__
from speaker.cluster.objects import read_refusal
from speaker.errors import ApiUnreachable, EdgeError, SettingError

REQUEST = 5.0
"""Seconds a request may take unless its caller says otherwise, from connecting to the last byte."""
TOKEN_AGE = 60.0
"""Seconds after which the token file is read again. The kubelet replaces it at 80 % of the hour it is good for."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3, socket.TCP_USER_TIMEOUT: 25_000}
"""A server that is gone, or a NAT entry on the way to it, is noticed within 25 s even when nothing is being said."""

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
    it is read once. Without it: the pod's ServiceAccount, whose token is read again as it is replaced. ``server``
    (``https://192.0.2.1:6443``) is used instead of the endpoint that either names: on a host where kube-proxy is yet to
    start, the API's Service address leads nowhere.
    """

    kubeconfig: Path | None = None
    context: str = ""
    server: str = ""
    service_account: Path = SERVICE_ACCOUNT

    def namespace(self, otherwise: str) -> str:
        """The pod's own; ``otherwise`` for a process outside the cluster."""
        try:
            text = (self.service_account / "namespace").read_text().strip() if self.kubeconfig is None else ""
        except OSError:
            return otherwise
        return text or otherwise


async def configure(access: Access) -> Configuration:
    """The library's configuration. Raises SettingError when there is nothing to make it from."""
    configuration = Configuration()
    if access.kubeconfig is not None:
        try:
            await load_kube_config(
                config_file=str(access.kubeconfig),
                context=access.context or None,
                client_configuration=configuration,
                persist_config=False,
            )
        # The library reads fields before it knows that they are there.
        except (ConfigException, YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise SettingError(f"kubeconfig {access.kubeconfig}: {error}") from error
    else:
        configuration.host = access.server or _service_address()
        configuration.ssl_ca_cert = str(access.service_account / "ca.crt")
        token = _TokenFile(access.service_account / "token")
        token(configuration)
        configuration.refresh_api_key_hook = token
    if access.server:
        configuration.host = access.server.rstrip("/")
    return configuration


def _service_address() -> str:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise SettingError("not in a cluster (KUBERNETES_SERVICE_HOST is not set): name a kubeconfig")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


class _TokenFile:
    """Called by the library before every request. Its own such hook believes the wall clock, which may be set back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._due = 0.0

    def __call__(self, configuration: Configuration) -> None:
        if (now := time.monotonic()) < self._due:
            return
        try:
            token = self._path.read_text().strip()
        except OSError as error:
            raise EdgeError(f"{self._path}: {error.strerror}") from error
        configuration.api_key["BearerToken"] = f"Bearer {token}"
        self._due = now + TOKEN_AGE

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

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    async def __aenter__(self) -> Self:
        try:
            self._api = ApiClient(self._configuration)
        except OSError as error:  # ssl.SSLError is one
            raise EdgeError(f"certificates for the API: {error}") from error
        self._api.user_agent = f"eip-speaker/{__version__}"
        # Without a limit: each watch keeps a connection, and a renewal must not wait for one to end.
        self._connector = aiohttp.TCPConnector(
            limit=0, ssl=self._api.rest_client.ssl_context, socket_factory=_kept_alive
        )
        self._configuration.client_session_kwargs = {"connector": self._connector}
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._api.close()
        await self._connector.close()
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
        # To compress costs both ends more time than a LAN takes for the difference.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "Content-Type": content}
        prepared = await self._api.param_serialize(
            method,
            path,
            query_params=dict(query or {}),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        response = await self._api.call_api(*prepared, _request_timeout=aiohttp.ClientTimeout(total=None))
        answer: aiohttp.ClientResponse = response.response
        if answer.status >= 400:
            async with answer:
                if answer.status == 401 and isinstance(hook := self._configuration.refresh_api_key_hook, _TokenFile):
                    hook.expire()
                raise read_refusal(await answer.read(), answer.status)
        return answer


@contextmanager
def _reaching(path: str) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise ApiUnreachable(f"{path}: no answer in time") from error
    except (aiohttp.ClientError, OSError) as error:
        raise ApiUnreachable(f"{path}: {error}") from error


def _kept_alive(address: Any) -> socket.socket:
    family, kind, protocol, _, _ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        opened.setsockopt(socket.IPPROTO_TCP, option, value)
    return opened
