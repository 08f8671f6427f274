"""What is mirrored and what is not: objects that are of no use, and those that there is no room for."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.api.objects import Key, Object
from speaker.cluster.feed import MAX_NAMED, Feed, Resource, Room


class Spec(msgspec.Struct, frozen=True):
    text: str = ""
    held: bool = False


class Thing(Object, frozen=True):
    spec: Spec = Spec()

    def weight(self) -> int:
        return 1 + len(self.spec.text)

    def remnant(self) -> "Remnant | None":
        return Remnant(self.metadata, Spec(held=True)) if self.spec.held else None


class Remnant(Thing, frozen=True):
    pass


def body(name: str, version: int, size: int = 9, namespace: str = "t", **spec: object) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": str(version)}
    return {"metadata": meta, "spec": {"text": "x" * size, **spec}}


def happened(feed: Feed[Thing], kind: str, found: dict[str, Any]) -> None:
    feed.take(json.dumps({"type": kind, "object": found}).encode())


def listed(feed: Feed[Thing], *bodies: dict[str, Any]) -> None:
    feed.begin_list()
    for found in bodies:
        feed.add(msgspec.Raw(json.dumps(found).encode()))
    list(feed.end_list("1000", 0.0))


def kept(feed: Feed[Thing]) -> dict[str, int]:
    return {found.key.name: len(found.spec.text) for found in feed.store}


def fed(most: float = float("inf"), **options: Any) -> tuple[Feed[Thing], Room]:
    room = Room(most)
    return Feed(Resource("/things", Thing, room=room, **options)), room


def of_use(found: Thing) -> bool:
    return found.metadata.namespace == "t"


# ── Of no use ──


def test_what_is_of_no_use_is_not_kept_and_the_watch_goes_on_behind_it():
    feed, room = fed(keeps=of_use)
    listed(feed, body("a", 1), body("b", 2, namespace="other"))
    happened(feed, "ADDED", body("c", 1001, namespace="other"))
    assert (kept(feed), feed.resume, room.taken) == ({"a": 9}, "1001", 10)


def test_what_is_of_no_use_any_more_is_gone():
    feed, room = fed(keeps=lambda found: not found.spec.held)
    listed(feed, body("a", 1))
    feed.collect()
    happened(feed, "MODIFIED", body("a", 2, held=True))
    assert [(change.key.name, change.after) for change in feed.collect()] == [("a", None)]
    assert room.taken == 0


def test_what_a_list_has_and_is_of_no_use_any_more_is_not_lacking():
    feed, _ = fed(keeps=lambda found: not found.spec.held, settle=30.0)
    listed(feed, *(body(name, 1) for name in "abcdef"))
    listed(feed, *(body(name, 2, held=True) for name in "abcdef"))
    assert kept(feed) == {}
    assert feed.removals.waiting is None


# ── No room ──


def test_the_newest_objects_of_the_greatest_namespace_make_room_for_those_of_others():
    feed, _ = fed(100)
    listed(feed, *(body(f"big{at}", at + 1) for at in range(9)))
    feed.collect()
    happened(feed, "ADDED", body("small", 1001, 29, namespace="other"))
    assert set(kept(feed)) == {"big0", "big1", "big2", "big3", "big4", "big5", "small"}
    assert feed.without_room == 3
    assert {key.name for key in feed.set_aside} == {"big6", "big7", "big8"}
    assert [change.key.name for change in feed.collect() if change.after is None] == ["big8", "big7", "big6"]


def test_what_the_greatest_namespace_writes_more_is_set_aside_and_all_else_stays():
    feed, room = fed(100)
    listed(feed, *(body(f"big{at}", at + 1) for at in range(8)), body("small", 9, namespace="other"))
    happened(feed, "ADDED", body("more", 1001, 30))
    assert len(kept(feed)) == 9
    assert [key.name for key in feed.set_aside] == ["more"]
    assert room.taken <= 100


def test_while_it_is_listed_what_comes_first_takes_no_room_from_what_comes_later():
    feed, _ = fed(100)
    listed(feed, *(body(f"a{at}", at + 1, namespace="big") for at in range(50)), body("z", 60, namespace="small"))
    assert "z" in kept(feed)
    assert len(kept(feed)) <= 10


def test_of_what_has_something_a_remnant_stays_without_room():
    feed, _ = fed(20)
    listed(feed, body("a", 1, 5), body("b", 2, 50, held=True))
    assert {found.key.name: type(found).__name__ for found in feed.store} == {"a": "Thing", "b": "Remnant"}
    listed(feed, body("b", 2, 12, held=True))
    assert {found.key.name: type(found).__name__ for found in feed.store} == {"b": "Thing"}


def test_what_belongs_to_no_namespace_is_never_set_aside():
    feed, _ = fed(20)
    listed(feed, body("node", 1, 500, namespace=""), body("a", 2, 5))
    assert set(kept(feed)) == {"node"}


def test_one_mirror_makes_room_for_another():
    room = Room(100)
    slices, services = Feed(Resource("/things", Thing, room=room)), Feed(Resource("/things", Thing, room=room))
    told: list[int] = []
    slices.evicted = lambda: told.append(1)
    listed(slices, *(body(f"big{at}", at + 1) for at in range(9)))
    listed(services, body("small", 20, 29, namespace="other"))
    assert kept(services) == {"small": 29}
    assert len(kept(slices)) == 6
    assert len(told) == 3


def test_objects_without_end_are_set_aside_by_name_up_to_a_bound():
    feed, _ = fed(20)
    listed(feed, *(body(f"a{at}", at + 1) for at in range(3 * MAX_NAMED)))
    assert len(feed.set_aside) == MAX_NAMED
    assert feed.without_room == 3 * MAX_NAMED - 2


def test_objects_without_end_are_counted_up_to_a_bound(monkeypatch):
    monkeypatch.setattr("speaker.cluster.feed.MAX_COUNTED", 7)
    feed, _ = fed(20)
    listed(feed, *(body(f"a{at}", at + 1) for at in range(30)))
    assert feed.without_room == 7


def test_what_is_deleted_is_set_aside_no_more():
    feed, _ = fed(20)
    listed(feed, *(body(f"a{at}", at + 1) for at in range(4)))
    for at in range(4):
        happened(feed, "DELETED", body(f"a{at}", 1001 + at))
    assert (feed.without_room, feed.set_aside) == (0, {})


THINGS = st.builds(
    body, st.sampled_from("abcdef"), st.integers(1, 9), st.integers(0, 30), st.sampled_from(["t", "u", "v", ""])
)
STEPS = st.one_of(
    st.tuples(st.just("list"), st.lists(THINGS, max_size=8)),
    st.tuples(st.just("begun"), st.lists(THINGS, max_size=8)),
    st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), THINGS),
    st.tuples(st.just("drop"), THINGS),
)


@given(st.lists(STEPS, max_size=25))
def test_what_is_counted_is_what_is_there_whatever_happens(steps):
    feed, room = fed(60)
    for kind, what in steps:
        if kind == "list":
            listed(feed, *what)
        elif kind == "begun":
            feed.begin_list()
            for found in what:
                feed.add(msgspec.Raw(json.dumps(found).encode()))
            feed.forget()
        elif kind == "drop":
            feed.drop([Key(what["metadata"]["namespace"], what["metadata"]["name"])])
        else:
            happened(feed, kind, what)
        assert room.taken == sum(found.weight() for found in feed.store)
        free = sum(found.weight() for found in feed.store if not found.metadata.namespace)
        assert room.taken <= 60 or room.taken - free <= 60


@pytest.mark.parametrize(("taken", "again"), [(79, True), (80, False)])
def test_there_is_room_again_where_a_fifth_is_free(taken, again):
    room = Room(100)
    room.count("t", taken)
    assert room.again is again


def test_what_a_list_took_besides_is_set_aside_at_its_end():
    feed, room = fed(60)
    happened(feed, "ADDED", body("a", 1, 29, "u"))
    listed(feed, body("b", 2, 10, "t"), body("c", 3, 19, "v"), body("a", 1, 29, "u"))
    assert (kept(feed), room.taken) == ({"b": 10, "c": 19}, 31)
    assert set(feed.set_aside) == {Key("u", "a")}
