"""A store says what changed, and its indexes never disagree with its objects."""

from collections.abc import Hashable, Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from speaker.api.objects import Key, Metadata, Object
from speaker.cluster.feed import Change, Store

APP = "app"


def by_label(label):
    def terms(found):
        value = found.metadata.labels.get(label)
        return () if value is None else (Key(found.metadata.namespace, value),)

    return terms


def made(name: str, version: int, uid: str = "u1", app: str | None = None) -> Object:
    labels = {} if app is None else {APP: app}
    return Object(Metadata(name, "ns", uid, str(version), labels))


def key(name: str) -> Key:
    return Key("ns", name)


OLD, NEW, OTHER = made("a", 1), made("a", 2), made("a", 3, uid="u2")


def test_each_way_to_put_an_object_is_told_as_what_it_is():
    store: Store[Object] = Store()
    assert store.put(OLD) == (Change(key("a"), None, OLD),)
    assert store.put(OLD) == ()
    assert store.put(NEW) == (Change(key("a"), OLD, NEW),)
    # Another uid: deleted and made again while nobody looked.
    assert store.put(OTHER) == (Change(key("a"), NEW, None), Change(key("a"), None, OTHER))
    assert store.remove(key("a")) == (Change(key("a"), OTHER, None),)
    assert store.remove(key("a")) == ()


def test_an_older_version_is_a_change_like_any_other():
    """Versions are opaque: after etcd was restored from a backup they begin again lower."""
    store: Store[Object] = Store()
    store.put(NEW)
    assert store.put(OLD) == (Change(key("a"), NEW, OLD),)


def test_who_looks_while_an_object_is_replaced_finds_the_one_or_the_other():
    """Agents look from another thread: a Service without its only EndpointSlice would lose its EIP."""
    seen: list[list[Object]] = []

    def looking(found: Object) -> Iterable[Hashable]:
        for term in by_label(APP)(found):
            seen.append(list(store.by("app", key("x"))))
            yield term
            seen.append(list(store.by("app", key("x"))))

    store: Store[Object] = Store({"app": looking})
    store.put(old := made("a", 1, app="x"))
    del seen[:]
    store.put(new := made("a", 2, app="x"))
    assert seen
    assert all(found in ([old], [new]) for found in seen)
    assert list(store.by("app", key("x"))) == [new]
    store.put(made("a", 3, app="y"))
    assert list(store.by("app", key("x"))) == []


def test_a_successor_shows_nothing_before_it_takes_over():
    store: Store[Object] = Store({"app": by_label(APP)})
    store.put(made("a", 1, app="x"))
    successor = store.successor()
    successor.put(made("b", 2, app="x"))
    changes = list(store.changes_to(successor))
    assert [found.key for found in store.by("app", key("x"))] == [key("a")]
    store.replaced_by(successor)
    assert [found.key for found in store.by("app", key("x"))] == [key("b")]
    assert [change.key.name for group in changes for change in group] == ["a", "b"]  # what is gone comes first


LABELS = (None, "x", "y", "x")
# The same version of the same object is the same object.
OBJECTS = st.builds(
    lambda name, version, uid: made(name, version, uid, LABELS[version]),
    st.sampled_from("abc"),
    st.integers(0, 3),
    st.sampled_from(["u1", "u2"]),
)
STEPS = st.lists(st.one_of(OBJECTS, st.sampled_from("abc"), st.lists(OBJECTS, max_size=4)))


@given(STEPS)
def test_changes_tell_the_whole_story_and_indexes_agree(steps: Sequence[Object | str | list[Object]]):
    store: Store[Object] = Store({"app": by_label(APP)})
    told: dict[Key, Object] = {}
    for step in steps:
        changes: list[Change[Object]] = []
        if isinstance(step, Object):
            changes += store.put(step)
        elif isinstance(step, str):
            changes += store.remove(key(step))
        else:
            successor = store.successor()
            for found in step:
                successor.put(found)
            changes += [change for group in store.changes_to(successor) for change in group]
            store.replaced_by(successor)
        for change in changes:
            assert told.pop(change.key, None) == change.before
            if change.after is not None:
                told[change.key] = change.after
        assert {k: v.metadata.resource_version for k, v in told.items()} == {
            found.key: found.metadata.resource_version for found in store
        }
        for app in "xy":
            indexed = {found.key for found in store.by("app", key(app))}
            assert indexed == {found.key for found in store if found.metadata.labels.get(APP) == app}
