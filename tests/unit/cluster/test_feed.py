"""Lists and watches, line by line: what the store holds, what was told, and where to go on from."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.api.kinds import AssignedObject, ServiceObject
from speaker.api.objects import Key, Object, read_page, read_refusal
from speaker.api.reading import Unreadable, read_service
from speaker.cluster.feed import MAX_LINE, Feed, Lines, Resource
from speaker.errors import ApiRefused, EdgeError


class Spec(msgspec.Struct, frozen=True):
    port: int = 0


class Thing(Object, frozen=True):
    spec: Spec = Spec()


def body(name: str, version: int, uid: str = "u1", **spec: object) -> dict[str, Any]:
    meta: dict[str, Any] = {
        "name": name,
        "uid": uid,
        "resourceVersion": str(version),
        "managedFields": [{"manager": "kubectl"}],
    }
    return {"kind": "Thing", "metadata": meta, "spec": spec}


def line(kind: str, found: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": found}).encode()


def bookmark(version: int, *, ends: bool = False) -> bytes:
    notes = {"annotations": {"k8s.io/initial-events-end": "true"}} if ends else {}
    return line("BOOKMARK", {"metadata": {"resourceVersion": str(version), **notes}})


def listed(feed: Feed[Thing], version: int, *bodies: dict[str, Any]) -> None:
    feed.begin_list()
    for found in bodies:
        feed.add(msgspec.Raw(json.dumps(found).encode()))
    list(feed.end_list(str(version), 0.0))


def names(feed: Feed[Thing]) -> dict[str, int]:
    return {found.key.name: found.spec.port for found in feed.store}


def told(feed: Feed[Thing]) -> list[tuple[str, int | None, int | None]]:
    return [
        (change.key.name, change.before and change.before.spec.port, change.after and change.after.spec.port)
        for change in feed.collect()
    ]


def test_a_watch_goes_on_from_its_last_event():
    feed = Feed(Resource("/things", Thing))
    listed(feed, 10, body("a", 5, port=1))
    assert (feed.resume, told(feed)) == ("10", [("a", None, 1)])
    feed.take(line("ADDED", body("b", 11, port=2)))
    feed.take(line("MODIFIED", body("a", 12, port=3)))
    feed.take(line("DELETED", body("b", 13, port=2)))
    assert (feed.resume, told(feed)) == ("13", [("b", None, 2), ("a", 1, 3), ("b", 2, None)])
    feed.take(bookmark(20))
    assert (feed.resume, told(feed)) == ("20", [])


def test_a_version_that_says_something_else_than_before_is_a_change():
    """A restored etcd goes on from an older version, and counts to the same numbers again."""
    feed = Feed(Resource("/things", Thing))
    listed(feed, 10, body("a", 5, port=1), body("b", 6, port=1))
    assert len(told(feed)) == 2
    listed(feed, 10, body("a", 5, port=2), body("b", 6, port=1))
    assert told(feed) == [("a", 1, 2)]
    assert names(feed) == {"a": 2, "b": 1}
    feed.take(line("MODIFIED", body("b", 6, port=3)))
    assert told(feed) == [("b", 1, 3)]


def test_of_what_a_new_list_brings_again_the_object_that_was_known_is_kept():
    """Ten thousand of them would be held twice otherwise."""
    feed, key = Feed(Resource("/things", Thing)), Key("", "a")
    listed(feed, 10, body("a", 1))
    known = feed.store.get(key)
    listed(feed, 11, body("a", 1), body("b", 1))
    assert feed.store.get(key) is known
    feed.take(line("MODIFIED", body("a", 12)))
    assert feed.store.get(key) is not known


def test_a_streamed_list_has_no_version_before_its_end():
    feed = Feed(Resource("/things", Thing))
    feed.begin_list()
    assert feed.take(line("ADDED", body("a", 5))) == ""
    assert feed.take(bookmark(7)) == ""
    assert (feed.resume, names(feed), feed.collect()) == ("", {}, ())
    assert feed.take(bookmark(9, ends=True)) == "9"


def test_what_changes_during_a_streamed_list_is_in_it():
    feed = Feed(Resource("/things", Thing))
    feed.begin_list()
    feed.take(line("ADDED", body("a", 5, port=1)))
    feed.take(line("ADDED", body("b", 6, port=2)))
    feed.take(line("MODIFIED", body("a", 8, port=3)))
    feed.take(line("DELETED", body("b", 9, port=2)))
    list(feed.end_list(feed.take(bookmark(9, ends=True)), 0.0))
    assert (names(feed), told(feed), feed.resume) == ({"a": 3}, [("a", None, 3)], "9")


def test_a_new_list_drops_what_it_does_not_name_and_keeps_what_it_does():
    feed = Feed(Resource("/things", Thing))
    listed(feed, 10, body("stays", 1, port=1), body("goes", 2, port=2), body("changes", 3, port=3))
    feed.collect()
    stays = feed.store.get(Key("", "stays"))
    listed(feed, 20, body("stays", 1, port=1), body("changes", 15, port=4), body("comes", 16, port=5))
    assert told(feed) == [("goes", 2, None), ("changes", 3, 4), ("comes", None, 5)]
    assert feed.store.get(Key("", "stays")) is stays


def test_a_list_that_is_broken_off_changes_nothing():
    feed = Feed(Resource("/things", Thing))
    listed(feed, 10, body("a", 1, port=1))
    feed.collect()
    feed.begin_list()
    feed.add(msgspec.Raw(json.dumps(body("b", 12)).encode()))
    feed.forget()
    assert (names(feed), feed.collect(), feed.resume) == ({"a": 1}, (), "")


@pytest.mark.parametrize("relist", [False, True])
def test_an_object_that_cannot_be_read_stays_as_it_was(relist: bool):
    feed = Feed(Resource("/things", Thing))
    listed(feed, 10, body("a", 1, port=1))
    feed.collect()
    strange = body("a", 11, port="eighty")
    if relist:
        listed(feed, 20, strange)
    else:
        feed.take(line("MODIFIED", strange))
    assert (names(feed), feed.collect(), len(feed.set_aside)) == ({"a": 1}, (), 1)
    assert feed.resume == ("20" if relist else "11")


STRANGE_META = [{"labels": None}, {"labels": {"a": 1}}, {"uid": 5}]


@pytest.mark.parametrize("relist", [False, True])
@pytest.mark.parametrize("strange", [{"spec": None}, *({"metadata": meta} for meta in STRANGE_META)])
def test_of_many_objects_the_one_that_cannot_be_read_is_set_aside_by_name(relist: bool, strange: dict[str, Any]):
    feed = Feed(Resource("/things", Thing))
    one = body("b", 12)
    bodies = [body("a", 11, port=1), {**one, **strange, "metadata": {**one["metadata"], **strange.get("metadata", {})}}]
    if relist:
        listed(feed, 20, *bodies, body("c", 13, port=3))
    else:
        listed(feed, 10)
        for found in (*bodies, body("c", 13, port=3)):
            feed.take(line("ADDED", found))
    assert names(feed) == {"a": 1, "c": 3}
    assert (set(feed.set_aside), feed.resume) == ({Key("", "b")}, "20" if relist else "13")
    feed.take(line("MODIFIED", body("b", 21, port=2)))
    assert (names(feed), feed.set_aside) == ({"a": 1, "b": 2, "c": 3}, {})


def test_one_that_does_not_even_have_a_name_spoils_no_other():
    feed = Feed(Resource("/things", Thing))
    listed(feed, 10, {"metadata": {"name": 5}}, {"metadata": None}, {}, body("a", 1, port=1))
    feed.take(line("DELETED", {"metadata": []}))
    feed.take(b'{"type": "MODIFIED", "object": [1, 2]}')
    assert (names(feed), set(feed.set_aside), feed.resume) == ({"a": 1}, {Key("", "")}, "10")


def test_what_was_set_aside_and_is_gone_is_told_no_more():
    feed = Feed(Resource("/things", Thing))
    listed(feed, 10, body("a", 1, port="x"), body("b", 1, port="x"))
    feed.take(line("DELETED", body("a", 11, port="x")))
    assert set(feed.set_aside) == {Key("", "b")}
    listed(feed, 20)
    assert feed.set_aside == {}


def test_a_service_of_ours_that_cannot_be_read_keeps_its_eip_and_is_given_nothing():
    status = {
        "loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]},
        "conditions": [{"type": "eip-speaker.io/Assigned", "status": "True"}],
    }
    for kind in (ServiceObject, AssignedObject):
        feed = Feed(Resource("/things", kind))
        web = {"name": "web", "namespace": "default", "uid": "u1", "resourceVersion": "1"}
        listed(feed, 10, {"metadata": web, "spec": {"ports": 80}, "status": status})
        (found,) = feed.store
        parsed = read_service(found, default_class=False)
        assert isinstance(parsed, Unreadable)
        assert parsed.keep is not None
        assert parsed.keep.ports == ()
        listed(feed, 20, {**body("other", 1), "spec": {"ports": 80}, "status": {}})
        assert len(feed.store) == 0, "nobody knows whether it is ours"


def test_an_error_event_is_a_refusal():
    feed = Feed(Resource("/things", Thing))
    listed(feed, 10)
    with pytest.raises(ApiRefused) as raised:
        feed.take(b'{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"too old"}}')
    assert raised.value.too_old
    assert feed.resume == "10"  # what follows from it is not the feed's to say


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b'{"code":409,"reason":"Conflict","message":"m"}', ApiRefused(409, "Conflict", "m")),
        (b'{"code":429,"details":{"retryAfterSeconds":3}}', ApiRefused(429, "", "", retry_after=3)),
        (b'{"code":429,"details":{"retryAfterSeconds":1e9}}', ApiRefused(429, "", "", retry_after=60)),
        (b'{"code":429,"details":{"retryAfterSeconds":-3}}', ApiRefused(429, "", "")),
        (b'{"code":504,"details":{"causes":[{"reason":"x"}]}}', ApiRefused(504, "", "", frozenset("x"))),
        (b'{"code":504,"details":{"causes":null}}', ApiRefused(504, "", "")),
        (b"<html>", ApiRefused(502, "", "")),
        (b"", ApiRefused(502, "", "")),
        (b'{"code":"x"}', ApiRefused(502, "", "")),
    ],
)
def test_a_refusal_is_read_from_whatever_came_with_it(answer: bytes, expected: ApiRefused):
    assert vars(read_refusal(answer, 502)) == vars(expected)


@given(st.binary())
def test_bytes_are_an_event_or_an_edge_error(data: bytes):
    feed = Feed(Resource("/things", Thing))
    listed(feed, 10)
    with pytest.raises(EdgeError):
        feed.take(data)
    with pytest.raises(EdgeError):
        read_page(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["metadata", "name", "items", "object"]), inner),
)


@given(st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]), JSON)
def test_json_of_another_shape_is_an_edge_error_or_understood(kind: str, found: Any):
    feed = Feed(Resource("/things", Thing))
    listed(feed, 10)
    try:
        feed.take(line(kind, found))
    except EdgeError:
        assert feed.resume == "10"


@given(st.lists(st.binary(max_size=8).map(lambda text: text.replace(b"\n", b"")), max_size=6), st.data())
def test_lines_are_whole_wherever_the_network_cuts(wanted: list[bytes], data: st.DataObject):
    stream = b"".join(text + b"\n" for text in wanted)
    lines, found = Lines(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += lines.feed(stream[:size])
        stream = stream[size:]
    assert found == wanted
    assert not lines.cut
    lines.feed(b"half")
    assert lines.cut


def test_a_line_without_end_is_an_edge_error_and_long_ones_are_whole():
    lines, chunk = Lines(), b"x" * (MAX_LINE // 4)
    assert [lines.feed(chunk) for _ in range(4)] == [[]] * 4
    assert lines.feed(b"\nrest") == [chunk * 4]
    for _ in range(3):
        assert lines.feed(chunk) == []
    with pytest.raises(EdgeError, match=f"a line exceeds {MAX_LINE} bytes"):
        lines.feed(chunk)


def test_json_nested_without_end_is_an_edge_error():
    deep = b'{"type": "ADDED", "object": {"metadata": ' + b"[" * 200_000 + b"}}"
    with pytest.raises(EdgeError):
        Feed(Resource("/things", Thing)).take(deep)
    with pytest.raises(EdgeError):
        read_page(b'{"metadata": {}, "items": [' + b"[" * 200_000)


# ── What takes much away ──────────────────────────────────────────────────────────────────────────────────────


def relisted(feed: Feed[Thing], now: float, *bodies: dict[str, Any]) -> None:
    feed.begin_list()
    for found in bodies:
        feed.add(msgspec.Raw(json.dumps(found).encode()))
    list(feed.end_list("20", now))


def test_what_an_empty_list_lacks_stays_without_a_change_until_a_later_one_lacks_it_too() -> None:
    feed = Feed(Resource("/things", Thing, settle=30.0))
    listed(feed, 10, body("a", 5, port=1), body("b", 6, port=2))
    told(feed)
    relisted(feed, 100.0)
    assert (names(feed), told(feed), feed.resume) == ({"a": 1, "b": 2}, [], "20")
    relisted(feed, 130.0)
    assert (names(feed), told(feed)) == ({}, [("a", 1, None), ("b", 2, None)])


def test_what_waits_is_changed_and_deleted_like_anything_else() -> None:
    feed = Feed(Resource("/things", Thing, settle=30.0))
    listed(feed, 10, body("a", 5, port=1), body("b", 6, port=2))
    relisted(feed, 100.0)
    told(feed)
    feed.take(line("ADDED", body("a", 21, port=3)))
    feed.take(line("DELETED", body("b", 22)))
    assert (names(feed), feed.removals.waiting) == ({"a": 3}, None)
    assert told(feed) == [("a", 1, 3), ("b", 2, None)]


def test_a_first_list_is_held_against_what_an_earlier_process_knew_and_told_as_a_whole() -> None:
    feed = Feed(Resource("/things", Thing, settle=30.0))
    feed.recall([msgspec.convert(body(name, 5, port=1), Thing) for name in "abcd"])
    relisted(feed, 100.0, body("a", 9, port=9))
    assert names(feed) == {"a": 9, "b": 1, "c": 1, "d": 1}
    assert {before for _, before, _ in told(feed)} == {None}
    relisted(feed, 130.0, body("a", 9, port=9))
    assert names(feed) == {"a": 9}
