"""An API server, how to be let in there, and whom we believe to be it.

Connections that stand are kept: what they were made by was good then. New ones go by what the files say now.
"""

import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from speaker.system.files import read_regular

MAX_FILE = 2**20
"""Bytes of a token or of certificates: a ConfigMap holds no more either."""
AGE = 60.0
"""Seconds after which files are looked at again. The kubelet takes about as long to bring what a ConfigMap says."""


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
