"""What every API object has, and the frames that lists and watches put objects into.

Only the fields named here and in the structs of ``kinds`` and ``records`` are decoded. Skipping the rest makes 10,000
Services cost 0.3 s instead of 2.5 s, and a third of the memory.
"""

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar

import msgspec

from speaker.errors import ApiRefused, as_edge_error
from speaker.system.decoding import UNFIT

MAX_RETRY_AFTER = 60.0
"""Seconds. API servers ask for one to ten; a mirror that waited a day would say what was so a day ago."""
PAGE = 500
"""Objects of one page of a list."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends a streamed list (KEP-3157)."""


MAX_KEPT_ENTRIES, MAX_KEPT_TEXT = 16, 512
"""Of a list, and characters of a text, of which one is kept for all. What is longer hardly anybody else says, and who
writes it anew again and again would fill the memory with all that it ever said."""

OBJECT_BYTES, TIMES_JSON, RANGE_BYTES = 500, 12, 800
"""Memory that an object takes, a byte of its JSON, and a source range once it is read (measured with tracemalloc)."""

_H = TypeVar("_H", bound=Hashable)


class _TooLong(Exception):
    """Raised for a value that is not to be kept."""


@lru_cache(maxsize=4096)
def _kept_once(value: _H) -> _H:
    """What is raised is not kept, and to look how long a value is takes no time where it is known."""
    if not _is_short(value):
        raise _TooLong
    return value


def _is_short(value: object) -> bool:
    match value:
        case str():
            return len(value) <= MAX_KEPT_TEXT
        case tuple():
            return len(value) <= MAX_KEPT_ENTRIES and all(map(_is_short, value))
        case msgspec.Struct():
            return all(_is_short(getattr(value, field)) for field in value.__struct_fields__)
    return True


def _one_of_equals(value: Any) -> Any:
    try:
        return _kept_once(value)
    except _TooLong:
        return value


class Repetitive(msgspec.Struct, frozen=True, gc=False):
    """Says in some of its fields what thousands of others say too: of equal values one is kept, where they are
    short."""

    REPEATED: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for field in self.REPEATED:
            msgspec.structs.force_setattr(self, field, _one_of_equals(getattr(self, field)))


def cut(found: msgspec.Struct, field: str, most: int) -> None:
    """Readers see that the text is longer than it may be. The place where it is cut does not matter."""
    if len(entries := getattr(found, field)) > most:
        msgspec.structs.force_setattr(found, field, entries[:most])


class Key(msgspec.Struct, frozen=True, order=True, gc=False):
    """An object's place; ``namespace`` is '' for what is cluster scoped."""

    namespace: str
    name: str


class Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}


class Object(msgspec.Struct, frozen=True, gc=False):
    """Base of what a reflector keeps; derive from it and name the fields that are used.

    A field that the API may send as ``null`` must allow None (an EndpointSlice without endpoints says
    ``endpoints: null``). Structs inside should be ``gc=False`` as well, and hold tuples instead of lists: the garbage
    collector then passes over what is kept, where 10,000 Services would else stop everything for 0.1 s.
    """

    metadata: Metadata

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)

    def weight(self) -> int:
        """Bytes of memory that it takes, with what is made of it; rather too many."""
        return OBJECT_BYTES + TIMES_JSON * len(msgspec.json.encode(self))

    def remnant(self) -> Self | None:
        """What is left of it where there is no room, of a type of its own: what it has is given to nobody else."""
        return None

    @classmethod
    def remains(cls, raw: msgspec.Raw) -> Self | None:
        """What stands in for one that does not fit and was never known: something that is given nothing, so that what
        it has is given to nobody else. None: it is as if it were not there."""
        return None


class NamedMetadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    resource_version: str = ""


class Named(Object, frozen=True):
    """The least of any object: which one it is."""

    metadata: NamedMetadata  # type: ignore[assignment]  # which must have its name


class ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """Of a page, and of a bookmark."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    annotations: dict[str, str] = {}


class Page(msgspec.Struct, frozen=True):
    """One page of a list; the items are decoded one by one, so that others get a turn in between."""

    metadata: ListMetadata
    items: list[msgspec.Raw] | None = None


class WatchEvent(msgspec.Struct, frozen=True):
    """``type`` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw


class Bookmark(msgspec.Struct, frozen=True):
    metadata: ListMetadata

    @property
    def ends_list(self) -> bool:
        return self.metadata.annotations.get(INITIAL_EVENTS_END) == "true"


class StatusCause(msgspec.Struct, frozen=True):
    reason: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    causes: list[StatusCause] | None = None
    retry_after_seconds: float = 0.0


class Status(msgspec.Struct, frozen=True):
    """The API's word for a failure: the body of a refusal, or the object of an ERROR event."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


_M = TypeVar("_M", bound=msgspec.Struct)
_S = TypeVar("_S", bound=msgspec.Struct)


class _Parts(msgspec.Struct, frozen=True):
    metadata: msgspec.Raw
    status: msgspec.Raw = msgspec.Raw(b"{}")


def apart(raw: msgspec.Raw, metadata: type[_M], status: type[_S]) -> tuple[_M, _S] | None:
    """The metadata and status of an object that does not fit as a whole, the former only with its name where the rest
    does not fit either; None where there is no more to read."""
    try:
        parts = msgspec.json.decode(raw, type=_Parts)
        found = msgspec.json.decode(parts.status, type=status)
        try:
            return msgspec.json.decode(parts.metadata, type=metadata), found
        except UNFIT:
            named = msgspec.json.decode(parts.metadata, type=NamedMetadata)
            return msgspec.convert(msgspec.to_builtins(named), metadata), found
    except UNFIT:
        return None


_page = msgspec.json.Decoder(Page)
_status = msgspec.json.Decoder(Status)


def read_refusal(body: bytes | msgspec.Raw, code: int = 0) -> ApiRefused:
    """The error that a Status says. ``code`` is HTTP's, for a body that is not a Status (such as a proxy's page)."""
    try:
        status = _status.decode(body)
    except UNFIT:
        status = Status()
    details = status.details
    causes = frozenset(cause.reason for cause in details.causes or ()) if details else frozenset()
    retry_after = min(max(details.retry_after_seconds, 0.0), MAX_RETRY_AFTER) if details else 0.0
    return ApiRefused(status.code or code, status.reason, status.message, causes, retry_after)


def read_page(body: bytes) -> Page:
    """Raises EdgeError when ``body`` is no list."""
    with as_edge_error("cannot be read as a list of objects", UNFIT):
        return _page.decode(body)
