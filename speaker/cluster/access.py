"""Where the API is, who we are there, and how we recognise it.

A pod has its ServiceAccount; other processes have a kubeconfig. Open connections are kept when the files change, and
new ones use what the files say now.
"""

import os
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from speaker.errors import EdgeError, SettingError, as_edge_error
from speaker.model import with_port
from speaker.settings import DEFAULT_SERVICE_ACCOUNT
from speaker.system.files import read_regular, shown

MAX_FILE = 2**20
"""Bytes of a token or of certificates: a ConfigMap holds no more either."""
AGE = 60.0
"""Seconds after which files are looked at again. The kubelet takes about as long to bring what a ConfigMap says."""


@contextmanager
def hosts_certificates_unread() -> Iterator[None]:
    """For an import of aiohttp, which reads the certificates that this host trusts, twice (50 ms), for contexts that we
    never use: each request here names its own."""
    name, before = "SSL_CERT_FILE", os.environ.get("SSL_CERT_FILE")
    os.environ[name] = os.devnull
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


class Trust:
    """Of what ``make`` makes of ``files``, without the strictness that Python 3.13 brought.

    That refuses authorities without a keyUsage, such as those by ``openssl req -x509``, which run many a cluster.
    Go's clients accept them. Raises OSError, when it is made, as ``make`` does and where a file is none.
    """

    def __init__(
        self, make: Callable[[], ssl.SSLContext], *files: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make, self._files, self._clock = make, files, clock
        self._content = self._read()
        self._context = self._made()
        self._due = clock() + AGE

    def __call__(self) -> ssl.SSLContext:
        """The context for a connection that begins now. While the files are no good it is the one they made last."""
        if (now := self._clock()) >= self._due:
            self._due = now + AGE
            # ssl.SSLError is one; once it matters, that the server is not believed is told.
            with suppress(OSError):
                if (content := self._read()) != self._content:
                    self._context, self._content = self._made(), content
        return self._context

    def expire(self) -> None:
        """Somebody was not believed: look again at once."""
        self._due = float("-inf")

    def _read(self) -> tuple[bytes, ...]:
        return tuple(read_regular(file, MAX_FILE)[0] for file in self._files)  # OpenSSL would wait for a FIFO's writer

    def _made(self) -> ssl.SSLContext:
        context = self._make()
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


@dataclass(frozen=True, slots=True)
class Server:
    """An API server, and the credentials for it: what ``Client`` needs."""

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


# ── Who we are there ────────────────────────────────────────────────────────────────────────────────────────

TOKEN_AGE = 60.0
"""Seconds after which the token file is read again. The kubelet replaces it at 80 % of the hour it is good for."""


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


async def configure(access: Access) -> Server:
    """Raises SettingError when no API server is named, EdgeError when a file of it cannot be read."""
    if access.kubeconfig is not None:
        server = await read_kubeconfig(access.kubeconfig, access.context)
    else:
        server = _in_cluster(access)
    return replace(server, url=access.server.rstrip("/")) if access.server else server


def _in_cluster(access: Access) -> Server:
    url = access.server or _service_address()
    token = TokenFile(access.service_account / "token")
    token.read()
    certificates = access.service_account / "ca.crt"
    with as_edge_error(f"certificates for the API: {shown(certificates)}"):  # ssl.SSLError is an OSError
        trust = Trust(lambda: ssl.create_default_context(cafile=certificates), certificates)
    return Server(url, trust, authorization=token, refused=token.expire)


def _service_address() -> str:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise SettingError("not in a cluster (KUBERNETES_SERVICE_HOST is not set): name a kubeconfig with --kubeconfig")
    return f"https://{with_port(host, port)}"


def _text(path: Path) -> str:
    """Of a small file, without the white space around it. Raises EdgeError."""
    try:
        content, _ = read_regular(path, MAX_FILE)
        return content.decode().strip()
    except OSError as error:
        raise EdgeError(f"{shown(path)}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise EdgeError(f"{shown(path)}: must be UTF-8") from error


class TokenFile:
    """A ServiceAccount's token, read again as the kubelet replaces it. By the clock that nobody sets."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._token = ""
        self._due = 0.0
        self._refused = False

    async def __call__(self) -> str:
        if self._clock() >= self._due:
            try:
                self.read()
            except EdgeError:
                # The one that was read last is good until the API says that it is not.
                if self._refused or not self._token:
                    raise
        return f"Bearer {self._token}"

    def read(self) -> None:
        """Raises EdgeError."""
        token = _text(self._path)
        if not token or not token.isprintable():
            raise EdgeError(f"{shown(self._path)}: must be one line with a token")
        self._token, self._due, self._refused = token, self._clock() + TOKEN_AGE, False

    def expire(self) -> None:
        """The API does not know it any more: read again at once."""
        self._due, self._refused = float("-inf"), True


# ── Kubeconfigs ─────────────────────────────────────────────────────────────────────────────────────────────


async def read_kubeconfig(path: Path, context: str = "") -> Server:
    """``context`` '' is the current one. Raises SettingError, EdgeError."""
    # Loaded only where there is a kubeconfig: they take 20 MB, on every node.
    from kubernetes.aio.client.configuration import Configuration
    from kubernetes.aio.client.rest import RESTClientObject
    from kubernetes.aio.config import ConfigException, load_kube_config
    from yaml import YAMLError

    configuration = Configuration()
    name = shown(path)
    try:
        # Several, as in $KUBECONFIG, it makes one of, and passes over those that are not there.
        files = [Path(each) for each in str(path).split(os.pathsep)]
        for file in files if len(files) == 1 else filter(Path.exists, files):
            read_regular(file, MAX_FILE)  # it would wait for the writer of a FIFO
        await load_kube_config(
            config_file=str(path), context=context or None, client_configuration=configuration, persist_config=False
        )
    # The library reads fields before it knows that they are there.
    except (ConfigException, YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        unread = f"cannot be read: {error.strerror}" if isinstance(error, OSError) and error.strerror else error
        raise SettingError(f"kubeconfig {name}: {unread}") from error
    named = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    with as_edge_error(f"certificates for the API: kubeconfig {name}"):  # ssl.SSLError is an OSError
        trust = Trust(lambda: RESTClientObject(configuration).ssl_context, *(Path(file) for file in named if file))

    async def authorization() -> str | None:
        # It renews what an exec plugin gave, when that has run out.
        found = (await configuration.auth_settings()).get("BearerToken")
        return found["value"] if found is not None else None

    return Server(
        configuration.host.rstrip("/"),
        trust,
        tls_name=configuration.tls_server_name,
        proxy=configuration.proxy,
        authorization=authorization,
    )
