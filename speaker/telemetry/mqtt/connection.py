"""Edge: one connection to a broker, which may be broken or hostile: what is read from it is bounded, and nothing that
it does costs us more than the connection.

``aiomqtt`` is built on ``paho``. Where neither offers what is needed, their internals are used, and a test covers each.
"""

import logging
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from speaker.errors import EdgeError, as_edge_error
from speaker.settings import MqttSettings
from speaker.system.files import read_regular, shown
from speaker.telemetry.mqtt.messages import VERSION, Message

KEEPALIVE = 15
"""Seconds; after one and a half times as many a broker gives a host up that it does not hear, and says so: our will."""
ANSWER = 10.0
"""Seconds within which a broker has answered."""
HANDSHAKE = 5.0
"""Seconds to connect to one of its addresses, and for TLS; a thread waits for that."""
WINDOW = 16
"""Messages that it has not acknowledged."""
MAX_MESSAGE = 64 * 1024
"""Bytes of one message that we read. Nothing of it is used but its topic."""
MAX_MESSAGES = 50_000
"""Messages that we read, until it is expected to say again all that it retains."""


class Login(NamedTuple):
    user: str | None = None
    password: str | None = None


class _LastWords(logging.Handler):
    """paho logs why a connection broke, and raises that it did."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.words = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.words = record.getMessage()


class Connection(aiomqtt.Client):
    """``found`` hears the topic of each message that is retained; ``refused`` why a message of ours was not taken.

    The session ends with the connection, and each begins with a clean one: all that is true is said at its start, so
    the broker has nothing to remember for us.
    """

    def __init__(
        self,
        settings: MqttSettings,
        login: Login,
        context: ssl.SSLContext | None,
        client: str,
        will: Message,
        said_by: str,
        found: Callable[[str], None],
        refused: Callable[[str], None],
        answer: float = ANSWER,
    ) -> None:
        self._said_by, self._found, self._refused = said_by, found, refused
        self._begun = self._given_up = False
        self._heard = 0
        self._last = _LastWords()
        logger = logging.Logger("mqtt")  # nobody else's: by default its lines go to stderr
        logger.addHandler(self._last)
        super().__init__(
            settings.host,
            settings.port,
            username=login.user,
            password=login.password,
            logger=logger,
            identifier=client,
            protocol=aiomqtt.ProtocolVersion.V5,
            will=aiomqtt.Will(
                will.topic, will.payload, 1, will.retain, self._properties_of(will, PacketTypes.WILLMESSAGE)
            ),
            timeout=answer,
            keepalive=KEEPALIVE,
            clean_start=True,
            max_inflight_messages=WINDOW,
            properties=_connect_properties(),
            tls_context=context,
        )
        place = settings.host, settings.port
        self._client._create_socket = lambda: _connected(place, context)  # type: ignore[method-assign]
        receive = self._client._sock_recv

        def bounded(bufsize: int) -> bytes:
            if bufsize > MAX_MESSAGE:
                raise ConnectionError(f"the broker sends a message of {bufsize} bytes")
            return receive(bufsize)

        self._client._sock_recv = bounded  # type: ignore[method-assign]

    async def __aenter__(self) -> Self:
        try:
            with self._broken():
                return await super().__aenter__()
        finally:
            if not self._connected.done() or self._connected.cancelled() or self._connected.exception() is not None:
                self._given_up = True
                self._hang_up()

    async def __aexit__(self, *error: Any) -> None:
        try:
            with suppress(aiomqtt.MqttError):
                await super().__aexit__(*error)
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        """What failed half-way keeps its socket otherwise, and the loop both."""
        self._client._sock_close()
        self._begun = False
        if self._disconnected.done() and not self._disconnected.cancelled():
            self._disconnected.exception()  # or asyncio would log it as one that nobody retrieved

    @contextmanager
    def _broken(self) -> Iterator[None]:
        """What breaks the connection is an EdgeError."""
        try:
            yield
        except (aiomqtt.MqttError, ValueError) as error:  # ValueError: a host name that is none
            cause = str(error.__cause__ or "")
            words = str(error) if cause in str(error) else f"{error}: {cause}"
            raise EdgeError(f"{words} ({self._last.words})" if self._last.words else words) from error

    async def watch(self) -> None:
        """Endless. Raises EdgeError when the connection is gone."""
        with self._broken():
            async for _ in self.messages:  # none comes here: see _on_message
                pass

    async def say(self, message: Message) -> None:
        """Returns when the broker has it. Raises EdgeError."""
        with self._broken():
            properties = self._properties_of(message, PacketTypes.PUBLISH)
            await self.publish(message.topic, message.payload, 1, message.retain, properties)

    async def follow(self, area: str) -> bool:
        """Have the broker say what it retains there, and what others say from now on. Whether it does."""
        self._heard = 0
        options = SubscribeOptions(qos=0, noLocal=True, retainAsPublished=True)
        with self._broken():
            codes = await self.subscribe(area, options=options)
        return not any(getattr(code, "is_failure", False) for code in codes)

    async def unfollow(self, area: str) -> None:
        with self._broken():
            await self.unsubscribe(area)

    # ── What paho asks of a loop. aiomqtt's own answers take a number for the socket, from two threads: once that is
    # closed the number is somebody else's. Here the loop has it only when the thread that connects is done. ──

    def _client_connect(self) -> None:
        super()._client_connect()
        self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if self._given_up:
            self._hang_up()
        elif (sock := self._client.socket()) is not None:
            self._begun = True
            self._loop.add_reader(sock, self._read)
            self._misc_task = self._loop.create_task(self._misc_loop(), name="mqtt keepalive")
            if self._client.want_write():
                self._on_socket_register_write(self._client, None, sock)

    def _on_socket_open(self, client: Any, userdata: Any, sock: Any) -> None:
        pass

    def _on_socket_register_write(self, client: Any, userdata: Any, sock: Any) -> None:
        if self._begun:
            self._loop.add_writer(sock, self._carefully, self._client.loop_write)

    def _on_socket_unregister_write(self, client: Any, userdata: Any, sock: Any) -> None:
        if self._begun:
            self._loop.remove_writer(sock)

    def _on_socket_close(self, client: Any, userdata: Any, sock: Any) -> None:
        """paho closes it next."""
        if self._begun:
            self._loop.remove_reader(sock)
            self._loop.remove_writer(sock)
            if self._misc_task is not None:
                self._misc_task.cancel()

    def _read(self) -> None:
        self._carefully(self._client.loop_read)
        sock = self._client.socket()
        if isinstance(sock, ssl.SSLSocket) and sock.pending():
            # What TLS has for us already wakes nobody; and others have a turn.
            self._loop.call_soon(self._read_on, sock)

    def _read_on(self, sock: ssl.SSLSocket) -> None:
        if self._client.socket() is sock:
            self._read()

    def _carefully(self, step: Callable[[], object]) -> None:
        """Whatever a broker sends costs the connection at most."""
        try:
            step()
        except Exception as error:
            self._break(aiomqtt.MqttError(str(error)))
            self._hang_up()

    def _on_disconnect(self, client: Any, userdata: Any, flags: Any, reason_code: Any, properties: Any = None) -> None:
        """aiomqtt would have us wait for an answer that can no longer come. In any thread."""
        self._loop.call_soon_threadsafe(self._break, aiomqtt.MqttError(f"hung up: {reason_code}"))

    def _break(self, error: aiomqtt.MqttError) -> None:
        gone = self._disconnected if self._connected.done() else self._connected
        if not gone.done():
            gone.set_exception(error)

    def _on_message(self, client: Any, userdata: Any, message: Any) -> None:
        """Kept nowhere: of a flood, only the topics remain that may have to be cleared. Raises to hang up."""
        self._heard += 1
        if self._heard > MAX_MESSAGES:
            raise ConnectionError(f"the broker sent more than {MAX_MESSAGES} messages")
        if message.payload:
            self._found(message.topic)

    def _on_publish(self, client: Any, userdata: Any, mid: int, reason_code: Any, properties: Any) -> None:
        if reason_code.is_failure:
            self._refused(str(reason_code))
        super()._on_publish(client, userdata, mid, reason_code, properties)

    def _properties_of(self, message: Message, packet: int) -> Properties:
        found = Properties(packet)  # type: ignore[no-untyped-call]
        if message.expiry is not None:
            found.MessageExpiryInterval = message.expiry
        if message.payload:
            found.PayloadFormatIndicator = 1  # UTF-8
            found.ContentType = "application/json"
            found.UserProperty = [("schema", f"eip-speaker/{VERSION}"), ("by", self._said_by)]
        return found


def _connect_properties() -> Properties:
    found = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    found.SessionExpiryInterval = 0
    found.MaximumPacketSize = MAX_MESSAGE
    found.TopicAliasMaximum = 0
    return found


def _connected(place: tuple[str, int], context: ssl.SSLContext | None) -> socket.socket:
    """paho's own leaves the socket open where the two do not come to terms. Raises OSError."""
    plain = socket.create_connection(place, timeout=HANDSHAKE)
    if context is None:
        return plain
    try:
        secure = context.wrap_socket(plain, server_hostname=place[0], do_handshake_on_connect=False)
    except BaseException:
        plain.close()
        raise
    try:
        secure.do_handshake()
    except BaseException:
        secure.close()
        raise
    return secure


# ── What proves who we are, and who the broker is ───────────────────────────────────────────────────────────
#
# Files, read again for every connection. Nothing of their content is in any message.

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
        files = f"{shown(settings.cert)}, {shown(key)}"
        with as_edge_error(f"{files}: no certificate with its key", (OSError, ValueError)):
            made.load_cert_chain(settings.cert, key, password=_no_password)
    return made


def _text(ca: Path) -> str:
    text = _read(ca).decode("ascii", errors="replace")
    with as_edge_error(f"{shown(ca)}: no CA certificates in PEM", (ssl.SSLError, ValueError)):
        ssl.create_default_context(cadata=text)
    return text


def _no_password() -> str:
    """OpenSSL would ask whoever sits at the terminal."""
    raise ValueError("the key must have no password")


def _read(path: Path) -> bytes:
    with as_edge_error(f"{shown(path)}: cannot be read"):
        content, found = read_regular(path, MAX_BYTES)
    if len(content) > MAX_BYTES:
        raise EdgeError(f"{shown(path)}: is larger than {MAX_BYTES} bytes")
    if stat.S_IMODE(found.st_mode) & 0o002:
        raise EdgeError(f"{shown(path)}: must not be writable by everybody")
    return content
