"""A mirror of one resource, with indexes. Pure: objects in, changes out."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeAlias, TypeVar

import msgspec

from speaker.api.objects import Key, Object

T = TypeVar("T", bound=Object)

Index: TypeAlias = Callable[[T], Iterable[Hashable]]
"""An object → the terms it is found under."""


class Change(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """``before`` is None for what is new, ``after`` for what is gone; never both."""

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
        """What ``replaced_by`` would change, what is gone first; to be taken a piece at a time, as it may be long."""
        for key, before in tuple(self._objects.items()):  # others get turns meanwhile
            if key not in successor._objects:
                yield differences(key, before, None)
        for key, after in tuple(successor._objects.items()):
            yield differences(key, self._objects.get(key), after)

    def replaced_by(self, successor: "Store[T]") -> None:
        """Takes over everything at once: whoever reads sees the one or the other, never a mixture."""
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
    """Versions are only compared for being the same: to order them is the server's business."""
    if before is None and after is None:
        return ()
    if before is None or after is None:
        return (Change(key, before, after),)
    if before.metadata.uid != after.metadata.uid:
        return (Change(key, before, None), Change(key, None, after))
    if before.metadata.resource_version == after.metadata.resource_version and type(before) is type(after):
        return ()
    return (Change(key, before, after),)
