"""One API to ask, twice: the fake and, where its binaries are, a real kube-apiserver; and a relay to spoil the way."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Any, Generic, TypeVar

import pytest
from fake_api import FakeApi
from real_api import RealApi
from relay import Relay

from speaker.api.objects import Key, Object
from speaker.cluster.access import Access, Server, configure
from speaker.cluster.client import Client
from speaker.cluster.feed import Change, Resource
from speaker.cluster.reflector import Mirrors, Patience, Reflector
from speaker.errors import EdgeError
from speaker.removals import Doubt

T = TypeVar("T", bound=Object)

GUARD = 60.0
"""Seconds; against a hang. Nothing is expected to take any of it."""
PAGE = 10
QUICK = Patience(backoff=0.02, backoff_limit=0.2)


class Served:
    """What the fake and the real thing have in common."""

    fake: FakeApi | None = None

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.stack = AsyncExitStack()

    async def configuration(self, port: int) -> Server:
        raise NotImplementedError

    async def client(self, relay: Relay | None = None) -> Client:
        configuration = await self.configuration(relay.port if relay is not None else self.port)
        return await self.stack.enter_async_context(Client(configuration))

    async def relay(self) -> Relay:
        return await self.stack.enter_async_context(Relay(self.port))

    def path(self, resource: str, name: str = "", api: str = "/api/v1") -> str:
        return "/".join(filter(None, (f"{api}/namespaces/{self.namespace}/{resource}", name)))

    @property
    def port(self) -> int:
        raise NotImplementedError


class ServedByFake(Served):
    def __init__(self, namespace: str, fake: FakeApi) -> None:
        super().__init__(namespace)
        self.fake = fake

    @property
    def port(self) -> int:
        return self.fake.port

    async def configuration(self, port: int) -> Server:
        return Server(f"http://127.0.0.1:{port}")

    async def freeze(self) -> None:
        self.fake.freeze()

    async def thaw(self) -> None:
        self.fake.thaw()

    async def stop(self) -> None:
        await self.fake.stop()

    async def start(self, *, streams_lists: bool = True) -> None:
        self.fake.streams_lists = streams_lists
        await self.fake.start()

    async def forget_history(self) -> None:
        self.fake.compact()


class ServedForReal(Served):
    def __init__(self, namespace: str, real: RealApi) -> None:
        super().__init__(namespace)
        self.real = real

    @property
    def port(self) -> int:
        return self.real.port

    async def configuration(self, port: int) -> Server:
        return await configure(Access(self.real.kubeconfig(), server=f"https://127.0.0.1:{port}"))

    async def freeze(self) -> None:
        self.real.freeze()

    async def thaw(self) -> None:
        self.real.thaw()

    async def stop(self) -> None:
        await asyncio.to_thread(self.real.stop)

    async def start(self, *, streams_lists: bool = True) -> None:
        flags = () if streams_lists else ("--feature-gates=WatchList=false",)
        await asyncio.to_thread(self.real.start, *flags)

    async def forget_history(self) -> None:
        """The API server remembers what etcd has forgotten, until it is another."""
        await self.stop()
        await asyncio.to_thread(self.real.compact)
        await self.start()


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.apiserver)])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """An API with an empty namespace of this test's own."""
    namespace = f"test-{uuid.uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        served: Served
        if request.param == "fake":
            served = ServedByFake(namespace, await stack.enter_async_context(FakeApi()))
        else:
            served = ServedForReal(namespace, request.getfixturevalue("api_server"))
            stack.push_async_callback(served.thaw)
        await stack.enter_async_context(served.stack)
        client = await served.client()
        await client.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        yield served


@pytest.fixture
def client(api: Served) -> Callable[[], Awaitable[Client]]:
    return api.client


class CountedMirrors(Mirrors):
    noticed = 0
    """Times that one of them saw the server's data go back."""

    def restored(self) -> None:
        self.noticed += 1
        super().restored()


class Mirror(Generic[T]):
    """A running reflector and all it told."""

    def __init__(self, client: Client, resource: Resource[T], patience: Patience) -> None:
        self.batches: list[tuple[Change[T], ...]] = []
        self.errors: list[EdgeError] = []
        self.lists: list[tuple[int, set[str]]] = []
        """Versions, and what had been handed over by then."""
        self.restored: list[bool] = []
        """Of each list, whether it was said to be of other data."""
        self.mirrors = CountedMirrors()
        self.doubts: list[str] = []
        """Each that began, and '' for each end."""
        self._news = asyncio.Event()
        self.reflector = Reflector(
            client,
            resource,
            self._deliver,
            self,
            patience=patience,
            listed=self._listed,
            among=self.mirrors,
        )

    @property
    def store(self) -> Any:
        return self.reflector.store

    @property
    def changes(self) -> list[Change[T]]:
        return [change for batch in self.batches for change in batch]

    def names(self) -> set[str]:
        return {found.key.name for found in self.store}

    async def until(self, holds: Callable[[], object]) -> None:
        """Looks again whenever something was told."""
        async with asyncio.timeout(GUARD):
            while not holds():
                self._news.clear()
                await self._news.wait()

    async def until_names(self, names: Iterable[str]) -> None:
        wanted = set(names)
        await self.until(lambda: self.names() == wanted)

    def _deliver(self, changes: tuple[Change[T], ...]) -> None:
        self.batches.append(changes)
        self._news.set()

    def doubted(self, _: str, doubt: Doubt | None) -> None:
        self.doubts.append("" if doubt is None else str(doubt))
        self._news.set()

    def _listed(self, version: str, restored: bool) -> None:
        self.lists.append((int(version), self.names()))
        self.restored.append(restored)

    def failed(self, _: str, error: EdgeError) -> None:
        self.errors.append(error)
        self._news.set()


class Data(Object, frozen=True):
    data: dict[str, str] | None = None


@pytest.fixture
async def mirror(api: Served) -> AsyncIterator[Callable[..., Awaitable[Mirror[Data]]]]:
    """``await mirror(client, …)`` starts a reflector of the namespace's ConfigMaps and waits for its first list."""
    async with asyncio.TaskGroup() as group:
        running = []

        async def start(
            client: Client,
            *,
            patience: Patience = QUICK,
            indexes: Any = None,
            labels: str = "",
            kind: Any = Data,
            recalled: Any = (),
            **more: Any,
        ) -> Mirror[Data]:
            path = api.path("configmaps")
            resource = Resource(path, kind, label_selector=labels, indexes=indexes, page=PAGE, **more)
            made: Mirror[Data] = Mirror(client, resource, patience)
            made.reflector.feed.recall(recalled)
            running.append(group.create_task(made.reflector.run(), name="reflector"))
            await made.until(lambda: made.reflector.synced)
            return made

        yield start
        for task in running:
            task.cancel()


class Maps:
    """ConfigMaps of the test's namespace, written past every fault."""

    def __init__(self, api: Served, client: Client) -> None:
        self._api, self._client = api, client

    async def create(self, name: str, value: str = "", labels: dict[str, str] | None = None) -> None:
        body = {"metadata": {"name": name, "labels": labels or {}}, "data": {"value": value}}
        await self._client.create(self._api.path("configmaps"), body)

    async def change(self, name: str, value: str = "", labels: dict[str, str | None] | None = None) -> None:
        body = {"data": {"value": value}, "metadata": {"labels": labels or {}}}
        await self._client.patch(self._api.path("configmaps", name), body)

    async def delete(self, name: str) -> None:
        await self._client.delete(self._api.path("configmaps", name))


@pytest.fixture
async def maps(api: Served) -> Maps:
    return Maps(api, await api.client())


@pytest.fixture
def key(api: Served) -> Callable[[str], Key]:
    return lambda name: Key(api.namespace, name)
