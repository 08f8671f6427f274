"""The cluster key that signs hellos, and the one that will replace it. Pure: the caller reads the file.

Rotation, one step at a time on every node: add the new key as second line; swap the lines; remove the old one. At every
moment each node accepts what any other signs.
"""

import binascii
import hashlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from speaker.errors import SettingError

MIN_SECRET = 32
"""Bytes: the output of SHA-256, below which a shorter HMAC key weakens it (RFC 2104 §3)."""

_BLOCK = 64
"""Bytes of a block of SHA-256."""

ID_SIZE = 4
"""Bytes of a key id. Sent in clear: it saves the HMAC for frames of other clusters, and reveals nothing about a random
secret."""


@dataclass(frozen=True, slots=True)
class Key:
    """A secret and its name on the wire. Only the name is shown."""

    secret: bytes = field(repr=False)
    id: bytes = field(init=False)
    _begun: tuple[Any, Any] = field(init=False, repr=False, compare=False)
    """The inner and the outer hash of an HMAC, with the secret but no message yet; to be copied."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", hashlib.sha256(b"eip-speaker key id\0" + self.secret).digest()[:ID_SIZE])
        secret = self.secret if len(self.secret) <= _BLOCK else hashlib.sha256(self.secret).digest()
        pads = (bytes(byte ^ pad for byte in secret.ljust(_BLOCK, b"\0")) for pad in (0x36, 0x5C))
        object.__setattr__(self, "_begun", tuple(map(hashlib.sha256, pads)))

    def hmac(self, message: bytes) -> bytes:
        """HMAC-SHA256 (RFC 2104), needed three times at each beat of a node at rest. The standard library's ``hmac``
        takes twice as long, and ``hmac.digest`` four times."""
        inner, outer = self._begun[0].copy(), self._begun[1].copy()
        inner.update(message)
        outer.update(inner.digest())
        digest: bytes = outer.digest()
        return digest

    def __repr__(self) -> str:
        return f"Key({self.id.hex()})"


@dataclass(frozen=True, slots=True)
class Keys:
    """``signing`` signs what is sent. ``accepted``, by id, are believed; they include it."""

    signing: Key
    accepted: Mapping[bytes, Key] = field(init=False)
    other: Key | None = None

    def __post_init__(self) -> None:
        both = {key.id: key for key in (self.signing, self.other) if key is not None}
        object.__setattr__(self, "accepted", MappingProxyType(both))

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """Of ``signing`` and, if there is one, ``other``; for handing them to another process of ours."""
        return tuple(key.secret for key in (self.signing, self.other) if key is not None)


def parse(content: bytes, file: str) -> Keys:
    """Keys from the content of ``file``: one or two lines of base64; the first signs, both are accepted.

    Blank lines and lines that begin with ``#`` are ignored. Raises SettingError, which names the file, the line and the
    rule, but shows nothing of the content.
    """
    lines = [(number, line.strip()) for number, line in enumerate(content.splitlines(), 1)]
    found = [_key(line, f"{file}:{number}") for number, line in lines if line and not line.startswith(b"#")]
    if not 1 <= len(found) <= 2:
        raise SettingError(
            f"{file}: holds {len(found)} keys: must be one, or two while they are rotated, each on a line"
        )
    if len({key.id for key in found}) < len(found):
        raise SettingError(f"{file}: both lines hold the same key: the second must be another one, or absent")
    return Keys(*found) if len(found) == 1 else Keys(found[0], found[1])


def _key(line: bytes, place: str) -> Key:
    try:
        secret = b64decode(line, validate=True)
    except binascii.Error:
        raise SettingError(f"{place}: is not base64: must be a line that `speaker keygen` wrote") from None
    if len(secret) < MIN_SECRET:
        raise SettingError(f"{place}: is a key of {len(secret)} bytes: must be at least {MIN_SECRET}")
    return Key(secret)


def generate(secret: bytes) -> str:
    """The text of a key file for ``secret``: at least MIN_SECRET bytes from the system's randomness."""
    if len(secret) < MIN_SECRET:
        raise ValueError(f"{len(secret)} bytes of randomness: must be at least {MIN_SECRET}")
    return b64encode(secret).decode() + "\n"
