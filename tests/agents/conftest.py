"""One cluster for all tests of this folder: what a test breaks is made whole before the next."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from agent_cluster import API_ADDRESS, API_HOST, REMEMBERS, Cluster, cluster_in
from fault_plan import Switches
from real_api import missing
from relay import Relay

from speaker.lab.namespaces import Namespace

REMEMBER = "speaker.agent.last_known:REMEMBER_SECONDS"


@pytest.fixture(scope="package")
def standing(namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Installed; skips where there is no API server."""
    if reason := missing():
        pytest.skip(reason)
    planted = Switches(tmp_path_factory.mktemp("planted") / "planted", (), {REMEMBER: REMEMBERS})
    with pytest.MonkeyPatch.context() as patch, cluster_in(tmp_path_factory.mktemp("agents")) as cluster:
        for name, value in planted.environment.items():
            patch.setenv(name, value)
        yield cluster


@pytest.fixture
async def cluster(standing: Cluster) -> AsyncIterator[Cluster]:
    """Whole: three agents, every EIP held and recorded, every node with a share. What no agent may ever say is looked
    for when the test is over."""
    await standing.whole()
    yield standing
    assert not standing.complaints()


class Way:
    """A relay to the API server, where the API server is, with a thread and a loop of its own."""

    def __init__(self, place: Namespace, port: int) -> None:
        self._place, self._port = place, port
        self._begun, self._over = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="relay")

    @contextmanager
    def open(self) -> Iterator["Way"]:
        self._thread.start()
        self._begun.wait()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()

    @property
    def url(self) -> str:
        return f"https://{API_ADDRESS}:{self._relay.port}"

    @property
    def connections(self) -> int:
        return self._relay.connections

    def cut_after(self, count: int) -> None:
        self._loop.call_soon_threadsafe(self._relay.cut_after, count)

    def _run(self) -> None:
        self._place.join()
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with Relay(self._port, API_ADDRESS) as self._relay:
            self._begun.set()
            await self._over.wait()


@pytest.fixture
def way(standing: Cluster) -> Iterator[Callable[[], Way]]:
    """``way()`` opens another way to the API server."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Way(standing.lan.namespace(API_HOST), standing.api.port).open())
