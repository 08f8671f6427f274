"""An API server and how to be let in: a value, whoever found it out."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from speaker.cluster.transport.trust import Trust


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
