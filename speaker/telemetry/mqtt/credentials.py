"""Edge: what proves who we are and who the broker is: files, read anew for every connection. Nothing of their content
is in any message."""

import ssl
import stat
from pathlib import Path

from speaker.errors import EdgeError
from speaker.settings import MqttSettings
from speaker.system.files import read_regular, shown
from speaker.telemetry.mqtt.connection import Login

MAX_BYTES = 2**20


def login(path: Path | None) -> Login:
    """User name and password, a line each; the latter may be missing. Raises EdgeError."""
    if path is None:
        return Login()
    content = _read(path)
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise EdgeError(f"{shown(path)}: must be text in UTF-8") from error
    if not 1 <= len(lines) <= 2 or not lines[0]:
        raise EdgeError(f"{shown(path)}: must have two lines: the user name, and the password")
    return Login(lines[0], lines[1] if len(lines) > 1 else None)


def context(settings: MqttSettings) -> ssl.SSLContext | None:
    """None without TLS. The broker's certificate has to be good, and of its name. Raises EdgeError."""
    if not settings.tls:
        return None
    made = ssl.create_default_context()
    if settings.ca is not None:
        made = ssl.create_default_context(cadata=_text(settings.ca))
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as cluster/access.py has it
    if settings.cert is not None:
        key = settings.key or settings.cert
        for path in (settings.cert, key):
            _read(path)  # for its mistakes: OpenSSL would wait for a FIFO's writer
        try:
            made.load_cert_chain(settings.cert, key, password=_no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise EdgeError(
                f"{shown(settings.cert)}, {shown(key)}: no certificate with its key: {_words(error)}"
            ) from error
    return made


def _text(ca: Path) -> str:
    text = _read(ca).decode("ascii", errors="replace")
    try:
        ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise EdgeError(f"{shown(ca)}: no certificates of authorities in PEM: {_words(error)}") from error
    return text


def _no_password() -> str:
    """OpenSSL would ask whoever sits at the terminal."""
    raise ValueError("the key must have no password")


def _read(path: Path) -> bytes:
    try:
        content, found = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise EdgeError(f"{shown(path)}: cannot be read: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise EdgeError(f"{shown(path)}: is larger than {MAX_BYTES} bytes")
    if stat.S_IMODE(found.st_mode) & 0o002:
        raise EdgeError(f"{shown(path)}: must not be writable by everybody")
    return content


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
