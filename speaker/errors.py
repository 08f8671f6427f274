"""Every error the speaker raises on purpose.

::

    SpeakerError
    ├── SettingError          a flag or setting that cannot work
    ├── InvalidManifests      one or more InvalidField, from one reading of the manifests
    ├── DoubtfulManifests     the manifests may not mean what they say
    ├── InvalidField          a field of an API object that breaks a rule
    │   └── Unreadable        a file or directory that cannot be read now
    ├── MalformedPacket       bytes from the LAN that are not the expected packet
    └── EdgeError             the kernel, a file or a program refused
        ├── WireError         the wire process met a bug of ours: tried again like all others
        ├── LinkGone          a link is down or was removed
        ├── Unsupported       the kernel lacks what the setting needs: retrying will not help
        ├── NotDone           a program hung or was killed, whatever it was asked
        ├── TooLong           an answer is longer than we read
        ├── ApiUnreachable    the Kubernetes API did not answer: the request may have been carried out
        └── ApiRefused        the Kubernetes API said no, and why
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from textwrap import wrap


def written(text: str) -> str:
    """A word of the command line for a message: in quotes if it would otherwise be invisible or unsafe."""
    return text if text and text.isprintable() and " " not in text else json.dumps(text)


def shown(text: str) -> str:
    """Makes text from the LAN or from a tenant safe for the operator's terminal."""
    return text if text.isprintable() else repr(text)


COLUMNS = 80
"""Width of a terminal."""


def folded(line: str) -> list[str]:
    """Lines no wider than COLUMNS, except for a long word; those after the first are indented further."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return wrap(line, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [""]


def as_yaml(value: object) -> str:
    """A value as its author knows it from YAML: ``null``, ``true``, ``[a, 'b c']``; strings in quotes."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case Enum():
            return as_yaml(value.value)
        case Mapping():
            return f"{{{', '.join(f'{_key(key)}: {as_yaml(each)}' for key, each in value.items())}}}"
        case list() | tuple() | set() | frozenset():
            return f"[{', '.join(map(as_yaml, value))}]"
        case _:
            return repr(value)


def _key(key: object) -> str:
    return shown(key) if isinstance(key, str) else repr(key)


class SpeakerError(Exception):
    """Base of the errors a caller is expected to handle. Anything else is a bug and should crash."""


class SettingError(SpeakerError):
    """Raised when a command-line flag or a setting has a value that breaks its rule."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value was written: ``file:line``; both are empty for objects from an API."""

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class InvalidField(SpeakerError):
    """Raised when a field of a manifest or API object breaks a rule.

    ``path`` is dotted (``spec.addresses[1]``); ``value`` is what was written; ``rule`` is a sentence that says what
    would have been right; ``subject`` names the object (``Eip/lan``); ``place`` is set if a file is known.
    """

    def __init__(self, path: str, value: object, rule: str, subject: str = "", place: Place | None = None) -> None:
        self.path, self.value, self.rule, self.subject, self.place = path, value, rule, subject, place or Place()
        super().__init__(path, value, rule)

    def __str__(self) -> str:
        where = ": ".join(part for part in (str(self.place), self.subject, self.path) if part)
        shown = "" if self.value is None else as_yaml(self.value)
        value = shown if len(shown) <= 120 else shown[:117] + "..."
        line = ": ".join(part for part in (where, value, self.rule) if part)
        return line.encode(errors="backslashreplace").decode()  # a YAML key may hold what is no character


class Unreadable(InvalidField):
    """Raised when a file or directory of manifests cannot be read. Later it may work, without a change to it."""


class InvalidManifests(SpeakerError):
    """Raised when reading the manifests found mistakes: all of them, in ``problems``."""

    def __init__(self, problems: tuple[InvalidField, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))

    @property
    def may_pass(self) -> bool:
        """Whether another reading of the same files may succeed."""
        return any(isinstance(problem, Unreadable) for problem in self.problems)


class DoubtfulManifests(SpeakerError):
    """Raised when the manifests have no mistake but may not be meant: they suddenly ask for nothing."""


class MalformedPacket(SpeakerError):
    """Raised when bytes are not a well-formed packet of the protocol asked for. The only error a parser raises."""


class EdgeError(SpeakerError):
    """Raised when the kernel, a file or a program refused something; worth retrying."""


@contextmanager
def as_edge_error(what: str, kinds: type[Exception] | tuple[type[Exception], ...] = OSError) -> Iterator[None]:
    """An error of these ``kinds`` in the block becomes an EdgeError: ``WHAT: why``."""
    try:
        yield
    except kinds as error:
        raise EdgeError(f"{what}: {getattr(error, 'strerror', None) or error}") from error


class WireError(EdgeError):
    """Raised when the other process met an unexpected error. It has reported it; the work is tried again."""


class LinkGone(EdgeError):
    """Raised when a link is down or was removed."""


class Unsupported(EdgeError):
    """Raised when this kernel or machine lacks what a setting needs; retrying will not help."""


class NotDone(EdgeError):
    """Raised when a program said neither yes nor no: it hung, waited in vain for a lock, or was killed."""


class TooLong(EdgeError):
    """Raised when an answer of the Kubernetes API is longer than we read."""


class ApiUnreachable(EdgeError):
    """Raised when the Kubernetes API did not answer, or not in time. A write may have been carried out nevertheless."""


class ApiRefused(EdgeError):
    """Raised when the Kubernetes API answered with a failure.

    ``code`` is HTTP's; ``reason`` is the Status's (``Conflict``, ``Expired``); ``causes`` are the reasons in its
    details; ``retry_after`` is how many seconds it wants to be left alone, or 0.
    """

    def __init__(
        self, code: int, reason: str, message: str, causes: frozenset[str] = frozenset(), retry_after: float = 0.0
    ) -> None:
        self.code, self.reason, self.message = code, reason, message
        self.causes, self.retry_after = causes, retry_after
        super().__init__(code, reason, message)

    def __str__(self) -> str:
        return f"the API answered {self.code} {self.reason}: {self.message}"

    @property
    def no_such_object(self) -> bool:
        """The API itself says so. A server that does not know the kind (yet), and a proxy without a server, also answer
        404, but without a Status: that says nothing about the object."""
        return self.code == 404 and self.reason == "NotFound"

    @property
    def outdated(self) -> bool:
        """The object has changed since the write was decided. Trying again is useless: the new state will be heard."""
        return self.code == 409 or self.no_such_object

    @property
    def too_old(self) -> bool:
        """What was asked about is forgotten, or is in the future of a restored server: list again."""
        return self.code == 410 or "ResourceVersionTooLarge" in self.causes


SET_ASIDE = "set aside because of a bug in the speaker"


def set_aside(error: Exception) -> str:
    """In words, for people: a bug of ours was met while this object was read or decided."""
    return f"{SET_ASIDE} ({type(error).__name__}: {error})"
