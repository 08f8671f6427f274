"""From what a list and the watch after it say to the store, the changes, and where to go on from. Pure.

A list touches the store only when it is complete: it fills a successor, which then replaces the store at once.
Otherwise an EIP that moved from one Service to another would seem held by both between the first page of a list and its
last.

``Room`` bounds how much memory the objects of all mirrors of a process take together. If they exceed it, the newest
objects of the namespace that takes the most are set aside, and no other namespace loses anything. Objects without a
namespace are not written by tenants: they are counted, and stay.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from speaker.api.objects import PAGE, Bookmark, Key, Named, Object, WatchEvent, read_refusal
from speaker.errors import EdgeError
from speaker.removals import Removals
from speaker.system.decoding import UNFIT

T = TypeVar("T", bound=Object)

Index: TypeAlias = Callable[[T], Iterable[Hashable]]
"""An object → the terms it is found under."""


class Change(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """``before`` is None for a new object, ``after`` for one that is gone; never both."""

    key: Key
    before: T | None
    after: T | None


class Store(Generic[T]):
    """What is known of one resource. ``indexes``: name → the terms that an object is found under."""

    def __init__(self, indexes: Mapping[str, Index[T]] | None = None) -> None:
        self._terms = dict(indexes or {})
        self._objects: dict[Key, T] = {}
        self._indexed: dict[str, dict[Hashable, dict[Key, T]]] = {name: {} for name in self._terms}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def by(self, index: str, term: Hashable) -> Collection[T]:
        """The objects under a term of an index. Raises KeyError for an index that was not asked for."""
        return self._indexed[index].get(term, {}).values()

    def put(self, found: T) -> tuple[Change[T], ...]:
        """A changed uid is two changes: the namesake was deleted while nobody looked, and the object is another. Who
        looks meanwhile, from another thread, finds under a term the one object or the other, where both belong."""
        key = found.key
        before = self._objects.get(key)
        if changes := differences(key, before, found):
            self._objects[key] = found
            for name, terms in self._terms.items():
                now = {*terms(found)}
                for term in now:
                    self._indexed[name].setdefault(term, {})[key] = found
                self._unindex(name, before, now)
        return changes

    def remove(self, key: Key) -> tuple[Change[T], ...]:
        before = self._objects.pop(key, None)
        for name in self._terms:
            self._unindex(name, before)
        return differences(key, before, None)

    def successor(self) -> "Store[T]":
        """Empty, with the same indexes: to be filled by a new list, and then ``replaced_by``."""
        return Store(self._terms)

    def changes_to(self, successor: "Store[T]") -> Iterator[tuple[Change[T], ...]]:
        """What ``replaced_by`` would change, beginning with what is gone; to be taken a piece at a time, as it may be
        long."""
        for key, before in tuple(self._objects.items()):  # others get turns meanwhile
            if key not in successor._objects:
                yield differences(key, before, None)
        for key, after in tuple(successor._objects.items()):
            yield differences(key, self._objects.get(key), after)

    def replaced_by(self, successor: "Store[T]") -> None:
        """Takes over everything at once: a reader sees the old or the new state, never a mixture."""
        self._objects, self._indexed = successor._objects, successor._indexed

    def _unindex(self, name: str, found: T | None, but: Collection[Hashable] = ()) -> None:
        """It is found under these terms alone."""
        if found is None:
            return
        index = self._indexed[name]
        for term in self._terms[name](found):
            if term not in but:
                index[term].pop(found.key, None)
                if not index[term]:
                    del index[term]


def differences(key: Key, before: T | None, after: T | None) -> tuple[Change[T], ...]:
    """Contents are compared, versions among them: after a restore of etcd, one version may have another content than
    before. Versions are not ordered: that is the server's business."""
    if before == after:
        return ()
    if before is None or after is None:
        return (Change(key, before, after),)
    if before.metadata.uid != after.metadata.uid:
        return (Change(key, before, None), Change(key, None, after))
    return (Change(key, before, after),)


# ── What is mirrored, and the room for it ──────────────────────────────────────────────────────────────────────

FREED = 0.05
"""Of the room, that is made at once: to look for what is newest takes a while."""
OVER = 0.1
"""Of the room, that may be taken besides while nothing can be set aside, as at the end of a list."""
AGAIN = 0.8
"""Of the room; where less is taken, what was set aside is listed again."""


@dataclass(frozen=True)
class Resource(Generic[T]):
    """``path`` as in ``/api/v1/services``; the selectors as the API writes them. ``kind`` names the fields that are
    decoded; ``page``: objects of a page, where a list comes in pages."""

    path: str
    kind: type[T]
    label_selector: str = ""
    field_selector: str = ""
    indexes: Mapping[str, Index[T]] | None = None
    page: int = PAGE
    settle: float = 0.0
    """Seconds: what lists lack stays so long, where it is much, and goes when another list lacks it too."""
    stakes: Callable[[T], Collection[Hashable]] = lambda found: (found.key,)
    """The EIPs that depend on an object, or whatever else: what has none goes at once, and so does what lost one of
    them to another object."""
    keeps: Callable[[T], bool] = lambda _: True
    """Whether an object is of any use; what is not is forgotten as soon as it is decoded."""
    room: "Room | None" = None
    """That all mirrors of a process have together; None: as much as they need."""

    @property
    def name(self) -> str:
        """As in ``services``."""
        return self.path.rpartition("/")[2]

    @property
    def query(self) -> dict[str, str]:
        selectors = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector}
        return {name: value for name, value in selectors.items() if value}


class Room:
    """``most``: bytes."""

    def __init__(self, most: float = inf) -> None:
        self.most, self.taken = most, 0
        self.mirrored: list[Feed[Any]] = []
        self._by_namespace: Counter[str] = Counter()

    @property
    def again(self) -> bool:
        """Whether there is room again for what was set aside."""
        return self.taken < AGAIN * self.most

    def count(self, namespace: str, size: int) -> None:
        self.taken += size
        self._by_namespace[namespace] += size
        if not self._by_namespace[namespace]:
            del self._by_namespace[namespace]

    def admits(self, namespace: str, more: int) -> bool:
        """Whether there is room for so much more of that namespace, once others that are greater have made it."""
        while namespace and more > 0 and self.taken + more > self.most:
            before, will_take = self.taken, self._by_namespace[namespace] + more
            greatest = self._greatest(namespace)
            if self._by_namespace[greatest] <= will_take:
                return False
            self._shrink(greatest, will_take, self.most * (1 - FREED) - more)
            if self.taken == before:
                return self.taken + more <= self.most * (1 + OVER)
        return True

    def settle(self) -> None:
        """Sets aside what namespaces took besides while nothing could be."""
        before, most = inf, self.most + self._by_namespace[""]
        while most < self.taken < before:
            before = self.taken
            self._shrink(self._greatest(""), 0, most)

    def _greatest(self, default: str) -> str:
        """The namespace that takes the most."""
        return max(self._by_namespace.keys() - {""}, key=self._by_namespace.__getitem__, default=default)

    def _shrink(self, namespace: str, least: int, most: float) -> None:
        """Until no more than ``most`` is taken by all, or ``least`` is left of it."""
        found = [(_version(each), each, mirrored) for mirrored in self.mirrored for each in mirrored.of(namespace)]
        for _, each, mirrored in sorted(found, key=lambda entry: entry[0], reverse=True):
            if self.taken <= most or self._by_namespace[namespace] <= least:
                return
            mirrored.evict(each)


def _version(found: Object) -> int:
    """The higher, the later it was written."""
    version = found.metadata.resource_version
    return int(version) if version.isdecimal() else 0


# ── The feed ────────────────────────────────────────────────────────────────────────────────────────────────

_event = msgspec.json.Decoder(WatchEvent)
_bookmark = msgspec.json.Decoder(Bookmark)
_named = msgspec.json.Decoder(Named)


MAX_LINE = 16 * 1024 * 1024
"""Bytes of an event; etcd takes objects of a tenth of it."""
MAX_NAMED = 100
"""Objects that are set aside for want of room and named; the count tells the rest."""
MAX_COUNTED = 100_000
"""Of them that are counted."""
NO_ROOM = "is set aside: the room for objects is full, its namespace takes the most, and it is among the newest"


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
            raise EdgeError(f"a line exceeds {MAX_LINE} bytes")
        if not newline:
            self._rest.append(tail)  # part of a long line: joined once, when its end is here
            return []
        whole = b"".join((*self._rest, head))
        self._rest = [tail] if tail else []
        return whole.split(b"\n")

    @property
    def cut(self) -> bool:
        """Whether the last line is not complete yet."""
        return bool(self._rest)


class Feed(Generic[T]):
    """The state of one mirrored resource.

    ``resume``: the version to watch from, '' when everything must be listed anew. Objects that ``kind`` does not fit
    are ``set_aside``, by name with the reason, and spoil no other: they stay as they were last understood, because
    taking them for deleted would take a working Service's EIP away; of one that never was there is what
    ``kind.remains``. ``removals``: what lists lack, and stays until another
    lacks it too.
    """

    def __init__(self, resource: Resource[T]) -> None:
        self.evicted: Callable[[], None] = lambda: None
        """Called when something was set aside for want of room that others needed."""
        self._without_room: set[int] = set()
        """Hashes of the keys of those that were set aside for want of it."""
        self._room = resource.room or Room()
        self._room.mirrored.append(self)
        self._counted: Counter[str] = Counter()
        """Bytes by namespace, as the room has them of this."""
        self._lent: Counter[str] = Counter()
        """The same of a list that is under way, without what was known."""
        self._ending = False
        self.store: Store[T] = Store(resource.indexes)
        self.removals: Removals[Key] = Removals(resource.settle)
        self._stakes, self._keeps = resource.stakes, resource.keeps
        self._recalled: dict[Key, T] = {}
        self._passed_over: set[Key] = set()
        """Of what was known, what the list that is under way has and nobody needs any more."""
        self.resume = ""
        self.set_aside: dict[Key, str] = {}
        self._kind, self._decode = resource.kind, msgspec.json.Decoder(resource.kind).decode
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
        self._recalled = {found.key: found for found in known}

    @property
    def without_room(self) -> int:
        """Objects that were set aside for want of it."""
        return len(self._without_room)

    def forget(self) -> None:
        """The next thing must be a list: what was known of the past is too old, or of no use."""
        self.resume = ""
        self._coming, self._ending = None, False
        self._uncount(self._lent)
        self._set_aside = self.set_aside

    def begin_list(self) -> None:
        self.forget()
        self._coming = self.store.successor()
        self._set_aside, self._passed_over = {}, set()
        self._without_room = set()

    def add(self, raw: msgspec.Raw) -> None:
        """One item of a page of the list that was begun, or of a watch."""
        try:
            found = self._decode(raw)
        except UNFIT as error:
            self._put_aside(raw, error)
        else:
            self._taken_back(found.key)
            if self._keeps(found):
                self._keep(found)
            else:
                self._pass_over(found.key)
            self._resume_from(found.metadata.resource_version)

    def adopt(self, raw: msgspec.Raw) -> None:
        """Adds an object that was asked for separately; the watch has not got so far yet."""
        resume = self.resume
        self.add(raw)
        self.resume = resume

    def drop(self, keys: Iterable[Key]) -> None:
        """Nobody needs them any more."""
        for key in keys:
            self.removals.heard(key)
            self._take_out(key)

    def of(self, namespace: str) -> Iterable[T]:
        """The objects of a namespace that could be set aside."""
        found = self.store if self._coming is None else self._coming
        return [] if self._ending else [each for each in found if each.metadata.namespace == namespace]

    def evict(self, found: T) -> None:
        self._put_without_room(found)
        if self._coming is not None:
            self._swap(self._coming, found.key, found.remnant())
        if self.store.get(found.key) is not None:
            self._changes += self._swap(self.store, found.key, found.remnant())
        self.evicted()

    def end_list(self, version: str, now: float) -> Iterator[None]:
        """Makes the list that was begun the truth, as of ``version``, but for what has to be said twice. Slices: the
        last one does it."""
        assert self._coming is not None, "begin_list comes first"
        self._keep_doubted(self._coming, now)
        self._ending = True
        found: list[Change[T]] = []
        for changes in self.store.changes_to(self._coming):
            found += changes
            yield
        counted: Counter[str] = Counter()
        for each in tuple(self._coming):
            counted[each.metadata.namespace] += each.weight()
            yield
        self.store.replaced_by(self._coming)
        self._changes += found
        self._coming, self._ending = None, False
        self._uncount(self._lent)
        self._uncount(self._counted)
        for namespace, size in counted.items():
            self._count(self._counted, namespace, size)
        self.set_aside = self._set_aside
        self.resume = version
        self._room.settle()

    def take(self, line: bytes) -> str:
        """One line of a watch. '' as a rule; the version with which to ``end_list``, when a streamed list is whole.

        Raises ApiRefused for an ERROR event, EdgeError for what is no event.
        """
        try:
            event = _event.decode(line)
            if event.type in ("ADDED", "MODIFIED"):
                self.add(event.object)
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
        known = (*self._recalled.values(), *self.store)
        self._recalled = {}
        lacking = (found for found in known if coming.get(found.key) is None and found.key not in self._passed_over)
        gone = {found.key: found for found in lacking if self._stakes(found)}
        if not gone:
            self.removals.kept((), 0, len(coming), now)
            return  # to look at all of 10,000 Services takes long
        at_stake = sum(bool(self._stakes(found)) for found in known)
        taken = {stake for found in coming for stake in self._stakes(found)}
        for key in list(self.removals.kept(gone.keys(), at_stake, len(coming), now)):
            if taken.isdisjoint(self._stakes(gone[key])):
                self._swap(coming, gone[key].key, gone[key])
            else:
                self.removals.heard(key)

    def _give_way(self, found: T) -> None:
        """What waits and has lost an EIP to this one would say who reaches it, and where it leads."""
        for key in [*self.removals]:
            other = self.store.get(key)
            if other is not None and not set(self._stakes(other)).isdisjoint(self._stakes(found)):
                self.removals.heard(key)
                self._take_out(key)

    def _pass(self, bookmark: Bookmark) -> str:
        if self._coming is None:
            self.resume = bookmark.metadata.resource_version
        elif bookmark.ends_list:
            return bookmark.metadata.resource_version
        return ""

    def _taken_back(self, key: Key) -> None:
        self._set_aside.pop(key, None)
        self._without_room.discard(hash(key))

    def _pass_over(self, key: Key) -> None:
        if self._coming is None:
            self.removals.heard(key)
            self._take_out(key)
            return
        self._swap(self._coming, key, None)
        self._note_passed_over(key)

    def _note_passed_over(self, key: Key) -> None:
        if self._coming is not None and (key in self._recalled or self.store.get(key) is not None):
            self._passed_over.add(key)

    def _keep(self, found: T) -> None:
        if self._coming is None:
            self.removals.heard(found.key)
            self._give_way(found)
            self._changes += self._swap(self.store, found.key, self._fitted(found, self.store))
        else:
            known = self.store.get(found.key)
            # A relist needs no second copy of what has not changed.
            same = known is not None and not differences(found.key, known, found)
            self._swap(self._coming, found.key, known if same else self._fitted(found, self._coming))

    # ── Room ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _fitted(self, found: T, into: Store[T]) -> T | None:
        """Or what is left of it, where there is no room."""
        before = into.get(found.key)
        more = found.weight() - (before.weight() if before is not None else 0)
        if self._room.admits(found.metadata.namespace, more):
            return found
        self._put_without_room(found)
        return found.remnant()

    def _put_without_room(self, found: T) -> None:
        if len(self._without_room) < MAX_COUNTED:
            self._without_room.add(hash(found.key))
        if len(self._set_aside) < MAX_NAMED:
            self._set_aside[found.key] = NO_ROOM
        self._note_passed_over(found.key)

    def _take_out(self, key: Key) -> None:
        """Removes it, also from a list that is being read."""
        if self._coming is not None:
            self._swap(self._coming, key, None)
        self._changes += self._swap(self.store, key, None)

    def _swap(self, into: Store[T], key: Key, now: T | None) -> tuple[Change[T], ...]:
        counted, shared = (self._counted, None) if into is self.store else (self._lent, self.store.get(key))
        changes = into.remove(key) if now is None else into.put(now)
        for change in changes:
            for each, sign in ((change.before, -1), (change.after, 1)):
                if each is not None and each is not shared:
                    self._count(counted, each.metadata.namespace, sign * each.weight())
        return changes

    def _count(self, counted: Counter[str], namespace: str, size: int) -> None:
        counted[namespace] += size
        if not counted[namespace]:
            del counted[namespace]
        self._room.count(namespace, size)

    def _uncount(self, counted: Counter[str]) -> None:
        for namespace, size in counted.items():
            self._room.count(namespace, -size)
        counted.clear()

    # ── What cannot be read, and what is gone ─────────────────────────────────────────────────────────────────

    def _put_aside(self, raw: msgspec.Raw, error: Exception) -> None:
        named = _name(raw)
        why = f"cannot be read, and stays as it was: {error}"
        self._set_aside[named.key if named is not None else Key("", "")] = why
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
        self._taken_back(named.key)
        if self._coming is None:
            self.removals.heard(named.key)
            self._take_out(named.key)
        else:
            self._swap(self._coming, named.key, None)
        self._resume_from(named.metadata.resource_version)


def _name(raw: msgspec.Raw) -> Named | None:
    try:
        return _named.decode(raw)
    except UNFIT:
        return None
