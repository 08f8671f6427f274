"""What a list and the watch after it say → the store, the changes, and where to go on from. Pure.

A list never touches the store before it is whole: it fills a successor, which then replaces the store at once. Between
a relist's first page and its last, an EIP that moved from one Service to another would else seem held by both.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Generic

import msgspec

from speaker.cluster.mirror.store import Change, Index, Store, T, differences
from speaker.cluster.objects import Bookmark, Key, Named, WatchEvent, read_refusal
from speaker.errors import EdgeError
from speaker.removals import Removals
from speaker.system.decoding import UNFIT

_event = msgspec.json.Decoder(WatchEvent)
_bookmark = msgspec.json.Decoder(Bookmark)
_named = msgspec.json.Decoder(Named)


MAX_LINE = 16 * 1024 * 1024
"""Bytes of an event; etcd takes objects of a tenth of it."""


class Lines:
    """Chunks as the network cuts them → whole lines."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._waiting = 0
        """Bytes of it."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Raises EdgeError for a line longer than MAX_LINE."""
        head, newline, tail = chunk.rpartition(b"\n")
        self._waiting = len(tail) if newline else self._waiting + len(tail)
        if self._waiting > MAX_LINE:
            raise EdgeError(f"a line of more than {MAX_LINE} bytes")
        if not newline:
            self._rest.append(tail)  # part of a long line: joined once, when its end is here
            return []
        whole = b"".join((*self._rest, head))
        self._rest = [tail] if tail else []
        return whole.split(b"\n")

    @property
    def cut(self) -> bool:
        """The last line has no end yet."""
        return bool(self._rest)


class Feed(Generic[T]):
    """The state of one mirrored resource.

    ``resume``: the version to watch from, '' when everything must be listed anew. Objects that ``kind`` does not fit
    are ``set_aside``, by name with the reason, and spoil no other: they stay as they were last understood, because
    taking them for deleted would take a working Service's EIP away; of one that never was there is what
    ``kind.remains``. ``unreadable`` counts how often one came. ``removals``: what lists lack, and stays until another
    lacks it too. ``stakes``: the EIPs that depend on an object, or whatever else: what has none goes at once, and so
    does what lost one of them to another object.
    """

    def __init__(
        self,
        kind: type[T],
        indexes: Mapping[str, Index[T]] | None = None,
        settle: float = 0.0,
        stakes: Callable[[T], Collection[Hashable]] = lambda found: (found.key,),
    ) -> None:
        self.store: Store[T] = Store(indexes)
        self.removals: Removals[Key] = Removals(settle)
        self._stakes = stakes
        self._recalled: Iterable[T] = ()
        self.resume = ""
        self.unreadable = 0
        self.set_aside: dict[Key, str] = {}
        self._kind = kind
        self._decode = msgspec.json.Decoder(kind).decode
        self._coming: Store[T] | None = None
        self._set_aside = self.set_aside
        """Of the list that is under way, or of now."""
        self._changes: list[Change[T]] = []

    @property
    def listing(self) -> bool:
        """A list is under way."""
        return self._coming is not None

    def recall(self, known: Iterable[T]) -> None:
        """What an earlier process knew: the first list is doubted as if this one had known it."""
        self._recalled = known

    def forget(self) -> None:
        """The next thing must be a list: what was known of the past is too old, or of no use."""
        self.resume = ""
        self._coming = None
        self._set_aside = self.set_aside

    def begin_list(self) -> None:
        self.forget()
        self._coming = self.store.successor()
        self._set_aside = {}

    def add(self, raw: msgspec.Raw) -> None:
        """One item of a page of the list that was begun."""
        self._put(raw)

    def end_list(self, version: str, now: float) -> Iterator[None]:
        """Makes the list that was begun the truth, as of ``version``, but for what has to be said twice. Slices: the
        last one does it."""
        assert self._coming is not None, "begin_list comes first"
        self._keep_doubted(self._coming, now)
        found: list[Change[T]] = []
        for changes in self.store.changes_to(self._coming):
            found += changes
            yield
        self.store.replaced_by(self._coming)
        self._changes += found
        self._coming = None
        self.set_aside = self._set_aside
        self.resume = version

    def take(self, line: bytes) -> str:
        """One line of a watch. '' as a rule; the version with which to ``end_list``, when a streamed list is whole.

        Raises ApiRefused for an ERROR event, EdgeError for what is no event.
        """
        try:
            event = _event.decode(line)
            if event.type in ("ADDED", "MODIFIED"):
                self._put(event.object)
            elif event.type == "DELETED":
                self._remove(event.object)
            elif event.type == "BOOKMARK":
                return self._pass(_bookmark.decode(event.object))
            elif event.type == "ERROR":
                raise read_refusal(event.object)
        except UNFIT as error:
            raise EdgeError(f"cannot be read as a watch event: {error}") from error
        return ""

    def collect(self) -> tuple[Change[T], ...]:
        """The changes since the last call, in order."""
        changes, self._changes = tuple(self._changes), []
        return changes

    def _keep_doubted(self, coming: Store[T], now: float) -> None:
        known = (*self._recalled, *self.store)
        self._recalled = ()
        gone = {found.key: found for found in known if coming.get(found.key) is None and self._stakes(found)}
        if not gone:
            self.removals.kept((), 0, len(coming), now)
            return  # to look at all of 10,000 Services takes long
        at_stake = sum(bool(self._stakes(found)) for found in known)
        taken = {stake for found in coming for stake in self._stakes(found)}
        for key in list(self.removals.kept(gone.keys(), at_stake, len(coming), now)):
            if taken.isdisjoint(self._stakes(gone[key])):
                coming.put(gone[key])
            else:
                self.removals.heard(key)

    def _give_way(self, found: T) -> None:
        """What waits and has lost an EIP to this one would say who reaches it, and where it leads."""
        for key in [*self.removals]:
            other = self.store.get(key)
            if other is not None and not set(self._stakes(other)).isdisjoint(self._stakes(found)):
                self.removals.heard(key)
                self._changes += self.store.remove(key)

    def _pass(self, bookmark: Bookmark) -> str:
        if self._coming is None:
            self.resume = bookmark.metadata.resource_version
        elif bookmark.ends_list:
            return bookmark.metadata.resource_version
        return ""

    def _put(self, raw: msgspec.Raw) -> None:
        try:
            found = self._decode(raw)
        except UNFIT as error:
            self._put_aside(raw, error)
        else:
            self._set_aside.pop(found.key, None)
            self._keep(found)
            self._resume_from(found.metadata.resource_version)

    def _keep(self, found: T) -> None:
        if self._coming is None:
            self.removals.heard(found.key)
            self._give_way(found)
            self._changes += self.store.put(found)
        else:
            known = self.store.get(found.key)
            same = known is not None and not differences(found.key, known, found)
            # A relist needs no second copy of what has not changed.
            self._coming.put(known if known is not None and same else found)

    def _put_aside(self, raw: msgspec.Raw, error: Exception) -> None:
        self.unreadable += 1
        named = _name(raw)
        self._set_aside[named.key if named is not None else Key("", "")] = str(error)
        if named is None:
            return  # which one it is nobody knows: those that are known stay
        if (left := self.store.get(named.key) or self._kind.remains(raw)) is not None:
            self._keep(left)
        self._resume_from(named.metadata.resource_version)

    def _resume_from(self, version: str) -> None:
        if self._coming is None and version:
            self.resume = version

    def _remove(self, raw: msgspec.Raw) -> None:
        if (named := _name(raw)) is None:
            return
        self._set_aside.pop(named.key, None)
        if self._coming is None:
            self.removals.heard(named.key)
            self._changes += self.store.remove(named.key)
        else:
            self._coming.remove(named.key)
        self._resume_from(named.metadata.resource_version)


def _name(raw: msgspec.Raw) -> Named | None:
    try:
        return _named.decode(raw)
    except UNFIT:
        return None
