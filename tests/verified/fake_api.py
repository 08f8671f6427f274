"""A Kubernetes API in memory, and the faults that a real one has. As much of one as the suite beside it holds it to.

Lists (pages, selectors), watches (bookmarks, streamed lists, 410, versions yet to come), writes (compare-and-swap,
merge patches, a status that is written apart, finalizers). No authentication, no admission, no validation but of
terms, no JSON patch, no apply.
"""

import asyncio
import copy
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from speaker.model import MAX_TERM

Object = dict[str, Any]

CUSTOM = "eip-speaker.io/v1alpha1"


@dataclass(frozen=True)
class Kind:
    api: str
    name: str
    namespaced: bool = True
    has_status: bool = False


KINDS = {
    "services": Kind("v1", "Service", has_status=True),
    "configmaps": Kind("v1", "ConfigMap"),
    "events": Kind("v1", "Event"),
    "secrets": Kind("v1", "Secret"),
    "nodes": Kind("v1", "Node", namespaced=False, has_status=True),
    "namespaces": Kind("v1", "Namespace", namespaced=False, has_status=True),
    "endpointslices": Kind("discovery.k8s.io/v1", "EndpointSlice"),
    "leases": Kind("coordination.k8s.io/v1", "Lease"),
    "eips": Kind(CUSTOM, "Eip", namespaced=False, has_status=True),
    "announcements": Kind(CUSTOM, "Announcement", namespaced=False),
}


class Refused(Exception):
    def __init__(self, code: int, reason: str, message: str = "", retry_after: int = 0, cause: str = "") -> None:
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after
        self.cause = cause
        super().__init__(code, reason)

    def status(self) -> Object:
        details: Object = {"retryAfterSeconds": self.retry_after} if self.retry_after else {}
        if self.cause:
            details["causes"] = [{"reason": self.cause, "message": self.message}]
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message or self.reason,
            "reason": self.reason,
            "details": details,
            "code": self.code,
        }


def expired() -> Refused:
    return Refused(410, "Expired", "too old resource version")


def too_large(asked: int, current: int) -> Refused:
    """storage/errors.go: of a version that is yet to come. A real server waits for 3 s before it says so."""
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return Refused(504, "Timeout", message, retry_after=1, cause="ResourceVersionTooLarge")


@dataclass(frozen=True)
class Target:
    """What a path names."""

    resource: str
    namespace: str = ""
    name: str = ""
    status: bool = False

    @property
    def kind(self) -> Kind:
        return KINDS[self.resource]

    @classmethod
    def parse(cls, path: str) -> "Target":
        parts = path.strip("/").split("/")
        api, rest = ("v1", parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
            namespace, rest = rest[1], rest[2:]
        resource, name, sub = (*rest, "", "")[:3]
        if resource not in KINDS or KINDS[resource].api != api or sub not in ("", "status"):
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        if sub and not KINDS[resource].has_status:
            raise Refused(404, "NotFound", "no such subresource")
        return cls(resource, namespace, name, status=bool(sub))


@dataclass(frozen=True)
class Selector:
    """Of labels: ``a=b``, ``a!=b``, ``a``, ``!a``. Of fields: ``metadata.name=`` and ``metadata.namespace=``."""

    namespace: str
    labels: tuple[str, ...]
    fields: tuple[str, ...]

    def takes(self, found: Object | None) -> bool:
        if found is None or (self.namespace and found["metadata"].get("namespace") != self.namespace):
            return False
        labels = found["metadata"].get("labels") or {}
        plain = {f"metadata.{key}": found["metadata"].get(key, "") for key in ("name", "namespace")}
        return all(self._holds(labels, term) for term in self.labels) and all(
            self._holds(plain, term) for term in self.fields
        )

    @staticmethod
    def _holds(values: dict[str, str], term: str) -> bool:
        if "!=" in term:
            key, value = term.split("!=")
            return values.get(key) != value
        if "=" in term:
            key, _, value = term.replace("==", "=").partition("=")
            return values.get(key) == value
        return term[1:] not in values if term.startswith("!") else term in values


@dataclass(frozen=True)
class Written:
    """One entry of the history."""

    revision: int
    resource: str
    before: Object | None
    after: Object | None


@dataclass(eq=False)
class Watch:
    selector: Selector
    resource: str
    since: int
    """Nothing of this version or before is told, bookmarks included."""
    told: asyncio.Queue[Written | bytes | None] = field(default_factory=asyncio.Queue)
    """None: cut it here, with half an event on the line."""


class FakeApi:
    """``async with FakeApi() as api``: serves on ``api.url``, on a port of loopback that it keeps through ``stop``."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.bookmark_every = 0.2
        self.streams_lists = True
        self.ends_lists = True
        """Says of a streamed list when it is whole."""
        self.stamps_lists = 0
        """The version that it says a streamed list is of, whatever that is; 0: the truth."""
        self.watch_seconds = 1800.0
        """After which it ends a watch that asks for no less."""
        self._objects: dict[tuple[str, str, str], Object] = {}
        self.revision = 1000
        self._history: list[Written] = []
        self._oldest = 1000
        self._watches: set[Watch] = set()
        self._pages: dict[str, tuple[int, list[Object]]] = {}
        self._refusals: list[Refused | None] = []
        self.broken: dict[str, Refused | None] = {}
        """Path → what every request for it is answered with; None: nothing."""
        self.hides: Callable[[str, Object], bool] = lambda *_: False
        """By resource: what lists, streamed ones too, leave out; they are well formed all the same."""
        self._running = asyncio.Event()
        self._running.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> "FakeApi":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.thaw()
        await self.stop()

    # ── Faults ──

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """As when it is killed; what was stored stays stored."""
        await self._runner.cleanup()

    def freeze(self) -> None:
        """Connections are accepted, and nothing more."""
        self._running.clear()

    def thaw(self) -> None:
        self._running.set()

    def compact(self) -> None:
        """Forgets the history: a watch from before gets 410."""
        self._oldest = self.revision
        self._history.clear()
        self._pages.clear()

    def restore(self, revision: int) -> None:
        """Its etcd was put back to an older backup, and everything since is lost. Connections break."""
        for written in reversed([each for each in self._history if each.revision > revision]):
            metadata = (written.before or written.after or {})["metadata"]
            key = written.resource, metadata.get("namespace", ""), metadata["name"]
            if written.before is None:
                del self._objects[key]
            else:
                self._objects[key] = written.before
        self.revision = revision
        self.compact()
        self.cut_watches()

    def refuse(self, *refusals: Refused | None) -> None:
        """The next requests, one each; None lets one pass."""
        self._refusals += refusals

    def cut_watches(self) -> None:
        """All of them, in the middle of an object."""
        for watch in self._watches:
            watch.told.put_nowait(None)

    def end_watches(self) -> None:
        """All of them, as each is ended after a while."""
        for watch in self._watches:
            watch.told.put_nowait(b"")

    def vouch(self, version: int) -> None:
        """A bookmark to all watches, whatever the version of now is."""
        self.say(json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}).encode())

    def say(self, line: bytes) -> None:
        """To all watches, whatever it is."""
        for watch in self._watches:
            watch.told.put_nowait(line + b"\n")

    # ── Requests ──

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path, dict(request.query)))
        await self._running.wait()
        try:
            if self._refusals and (refusal := self._refusals.pop(0)) is not None:
                raise refusal
            if request.path in self.broken:
                raise self.broken[request.path] or await asyncio.Future()
            return await self._answer(request, Target.parse(request.path))
        except Refused as refused:
            return web.json_response(refused.status(), status=refused.code)

    async def _answer(self, request: web.Request, target: Target) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        match request.method:
            case "GET" if target.name:
                return web.json_response(self._read(target))
            case "GET" if request.query.get("watch") in ("1", "true"):
                return await self._watch(request, target)
            case "GET":
                return web.json_response(self._list(target, request.query))
            case "POST":
                return web.json_response(self._create(target, body), status=201)
            case "PUT":
                return web.json_response(self._update(target, body))
            case "PATCH" if request.content_type == "application/merge-patch+json":
                return web.json_response(self._update(target, merged(self._read(target), body)))
            case "DELETE":
                return web.json_response(self._delete(target, body or {}))
        raise Refused(415, "UnsupportedMediaType")

    def _read(self, target: Target) -> Object:
        found = self._objects.get((target.resource, target.namespace, target.name))
        if found is None:
            raise Refused(404, "NotFound", f'{target.resource} "{target.name}" not found')
        return found

    # ── Writing ──

    def _create(self, target: Target, body: Object) -> Object:
        name = body["metadata"].get("name")
        if not name:
            raise Refused(422, "Invalid", "metadata.name: Required value: name or generateName is required")
        key = (target.resource, target.namespace, name)
        if key in self._objects:
            raise Refused(409, "AlreadyExists", f'{target.resource} "{name}" already exists')
        if body["metadata"].get("resourceVersion"):
            raise Refused(400, "BadRequest", "resourceVersion should not be set on objects to be created")
        made = copy.deepcopy(body)
        if target.kind.has_status:
            made.pop("status", None)
        made |= {"kind": target.kind.name, "apiVersion": target.kind.api}
        made["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": _now(), "generation": 1}
        if target.kind.namespaced:
            made["metadata"]["namespace"] = target.namespace
        return self._store(key, made)

    def _update(self, target: Target, body: Object) -> Object:
        former = self._read(target)
        meta, old = body["metadata"], former["metadata"]
        if not meta.get("resourceVersion") and target.kind.api != "v1":
            raise Refused(422, "Invalid", "metadata.resourceVersion: must be specified for an update")
        for name in ("resourceVersion", "uid"):
            if meta.get(name, old[name]) != old[name]:
                raise Refused(409, "Conflict", "the object has been modified; please apply your changes to the latest")
        made = self._made(target, former, copy.deepcopy(body))
        made["metadata"] |= {key: old[key] for key in ("uid", "creationTimestamp", "generation", "resourceVersion")}
        if made == former:
            return former  # a write that changes nothing is none
        if target.resource == "announcements":
            _check_term(former, made)
        if made.get("spec") != former.get("spec"):
            made["metadata"]["generation"] += 1
        key = (target.resource, target.namespace, target.name)
        if made["metadata"].get("deletionTimestamp") and not made["metadata"].get("finalizers"):
            self._remove(key)
            return made
        return self._store(key, made)

    @staticmethod
    def _made(target: Target, former: Object, body: Object) -> Object:
        if target.status:
            # Of core/v1 the annotations go along; of a custom resource nothing but the status does.
            mine = dict(former["metadata"])
            if target.kind.api == "v1" and "annotations" in (theirs := body["metadata"]):
                mine["annotations"] = theirs["annotations"]
            return {**former, "status": body.get("status", {}), "metadata": mine}
        if target.kind.has_status:
            body.pop("status", None)
            body |= {"status": former["status"]} if "status" in former else {}
        if "deletionTimestamp" in former["metadata"]:
            body["metadata"]["deletionTimestamp"] = former["metadata"]["deletionTimestamp"]
        return {**body, "kind": target.kind.name, "apiVersion": target.kind.api}

    def _delete(self, target: Target, options: Object) -> Object:
        former = self._read(target)
        for name, value in (options.get("preconditions") or {}).items():
            if former["metadata"][name] != value:
                raise Refused(409, "Conflict", "the precondition is not met")
        key = (target.resource, target.namespace, target.name)
        if former["metadata"].get("finalizers"):
            marked = copy.deepcopy(former)
            marked["metadata"].setdefault("deletionTimestamp", _now())
            return self._store(key, marked)
        self._remove(key)
        return former

    def _store(self, key: tuple[str, str, str], made: Object) -> Object:
        self.revision += 1
        made["metadata"]["resourceVersion"] = str(self.revision)
        before = self._objects.get(key)
        self._objects[key] = made
        self._tell(Written(self.revision, key[0], before, made))
        return made

    def _remove(self, key: tuple[str, str, str]) -> None:
        self.revision += 1
        before = self._objects.pop(key)
        self._tell(Written(self.revision, key[0], before, None))

    def _tell(self, written: Written) -> None:
        self._history.append(written)
        for watch in self._watches:
            if watch.resource == written.resource:
                watch.told.put_nowait(written)

    # ── Listing ──

    def _list(self, target: Target, query: Any) -> Object:
        if (asked := int(query.get("resourceVersion") or 0)) > self.revision:
            raise too_large(asked, self.revision)
        if token := query.get("continue"):
            if token not in self._pages:
                raise expired()
            revision, found = self._pages.pop(token)
        else:
            revision, found = self.revision, list(self._matching(target, _selector(target, query)))
        size = int(query.get("limit", 0)) or len(found)
        meta: Object = {"resourceVersion": str(revision)}
        if found[size:]:
            meta["continue"] = uuid.uuid4().hex
            meta["remainingItemCount"] = len(found) - size
            self._pages[meta["continue"]] = (revision, found[size:])
        kind = target.kind
        return {"kind": f"{kind.name}List", "apiVersion": kind.api, "metadata": meta, "items": found[:size]}

    def _matching(self, target: Target, selector: Selector) -> Iterator[Object]:
        for (resource, _, _), found in sorted(self._objects.items()):
            if resource == target.resource and selector.takes(found) and not self.hides(resource, found):
                yield found

    # ── Watching ──

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        query = request.query
        watch = Watch(_selector(target, query), target.resource, int(query.get("resourceVersion") or 0))
        begin = list(self._beginning(watch, target, query))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        self._watches.add(watch)
        try:
            await response.prepare(request)
            for line in begin:
                await response.write(line)
            # An aiohttp server may end a response from a handler, but only its transport can be cut.
            with suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(min(self.watch_seconds, float(query.get("timeoutSeconds", 1800)))):
                    await self._tell_on(watch, request, response, query.get("allowWatchBookmarks") == "true")
        finally:
            self._watches.discard(watch)
        return response

    def _beginning(self, watch: Watch, target: Target, query: Any) -> Iterator[bytes]:
        version, streamed = query.get("resourceVersion", ""), query.get("sendInitialEvents") == "true"
        if streamed and not (self.streams_lists and query.get("resourceVersionMatch") == "NotOlderThan"):
            raise Refused(422, "Invalid", "sendInitialEvents is forbidden for watch")
        if streamed and int(version or 0) > self.revision:
            # Only of a list: a plain watch from there is silent until something has that version (cacher.go).
            yield _line("ERROR", too_large(int(version), self.revision).status())
            watch.told.put_nowait(b"")
        elif streamed or version in ("", "0"):
            for found in self._matching(target, watch.selector):
                yield _line("ADDED", found)
            watch.since = self.revision
            if streamed and self.ends_lists:
                yield self._bookmark(target.kind, {"k8s.io/initial-events-end": "true"})
        elif int(version) < self._oldest:
            yield _line("ERROR", expired().status())
            watch.told.put_nowait(b"")
        else:
            for written in self._history:
                if written.revision > int(version) and written.resource == target.resource:
                    yield from _event(watch.selector, written)

    def _bookmark(self, kind: Kind, annotations: dict[str, str]) -> bytes:
        version = self.stamps_lists if annotations and self.stamps_lists else self.revision
        meta = {"resourceVersion": str(version), **({"annotations": annotations} if annotations else {})}
        return _line("BOOKMARK", {"kind": kind.name, "apiVersion": kind.api, "metadata": meta})

    async def _tell_on(self, watch: Watch, request: web.Request, response: web.StreamResponse, bookmarks: bool) -> None:
        while True:
            told: Written | bytes | None = b""
            try:
                async with asyncio.timeout(self.bookmark_every):
                    told = await watch.told.get()
            except TimeoutError:
                # A bookmark vouches for everything before it.
                if not bookmarks or not watch.told.empty() or self.revision <= watch.since:
                    continue
                told = self._bookmark(KINDS[watch.resource], {})
            await self._running.wait()
            if told == b"":
                return
            if told is None:
                await response.write(_line("MODIFIED", {"metadata": {"name": "half"}})[:-20])
                assert request.transport is not None
                request.transport.abort()
                return
            if isinstance(told, bytes):
                await response.write(told)
            elif told.revision > watch.since:
                for line in _event(watch.selector, told):
                    await response.write(line)


def _check_term(former: Object, made: Object) -> None:
    """The rules of the CRDs that nobody may find missing here: who is refused for the first has lost the EIP."""
    was, now = (found.get("status", {}).get("term", 0) for found in (former, made))
    if now < was <= MAX_TERM:
        raise Refused(422, "Invalid", "status.term: must never go down")
    if now > MAX_TERM:
        raise Refused(422, "Invalid", f"status.term: should be less than or equal to {MAX_TERM}")


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def _event(selector: Selector, written: Written) -> Iterator[bytes]:
    was, now = selector.takes(written.before), selector.takes(written.after)
    if now:
        assert written.after is not None
        yield _line("MODIFIED" if was else "ADDED", written.after)
    elif was:
        assert written.before is not None
        last = copy.deepcopy(written.before)
        last["metadata"]["resourceVersion"] = str(written.revision)
        yield _line("DELETED", last)


def _line(kind: str, found: Object) -> bytes:
    return json.dumps({"type": kind, "object": found}).encode() + b"\n"


def _selector(target: Target, query: Any) -> Selector:
    terms = (tuple(filter(None, query.get(name, "").split(","))) for name in ("labelSelector", "fieldSelector"))
    return Selector(target.namespace, *terms)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
