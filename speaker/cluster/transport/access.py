"""Where the API is and who we are there: the pod's ServiceAccount, or what a kubeconfig says.

The official client reads kubeconfigs, and is loaded only where there is one: it takes 20 MB, on every node.
"""

import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from speaker.cluster.transport.trust import MAX_FILE, Server, Trust
from speaker.errors import EdgeError, SettingError
from speaker.model import with_port
from speaker.settings import DEFAULT_SERVICE_ACCOUNT
from speaker.system.files import read_regular, shown

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
        from speaker.cluster.transport.kubeconfig import read_kubeconfig

        server = await read_kubeconfig(access.kubeconfig, access.context)
    else:
        server = _in_cluster(access)
    return replace(server, url=access.server.rstrip("/")) if access.server else server


def _in_cluster(access: Access) -> Server:
    url = access.server or _service_address()
    token = TokenFile(access.service_account / "token")
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
