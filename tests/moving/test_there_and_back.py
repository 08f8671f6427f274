"""Pages of docs/migration, there and back, typed line by line against the other balancer's own programs: clients count.

Run with ``-s`` it prints the table. Times are printed and not asked for: they are the machine's.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from documented import ROOT, lines_of
from load_balancers import KubeVip, LoadBalancer, MetalLB
from moving_cluster import EIPS, OUR_AGENTS, TCP_POD_PORT, TCP_PORT, Moving, moving
from peer_programs import programs_of
from real_api import missing

from speaker.lab.capture import Reply, relapses
from speaker.lab.namespaces import Namespace
from speaker.lab.outage import asking, probing
from speaker.lab.scene import ASK_INTERVAL, EVERYBODY, LINK
from speaker.lab.speakers import ECHO_PORT
from speaker.model import IPAddress, Mac

pytestmark = [pytest.mark.netns, pytest.mark.apiserver]

PAGES = ROOT / "docs" / "migration"
TWICE = 1.0
"""Seconds within which two MACs by turns answer twice."""
CONNECTS, GIVES_UP = 0.1, 3.0
"""Seconds between two connections to an EIP, and after which one has failed."""
CALM, SETTLES = 1.0, 5.0
"""Seconds before a move, and after it: the last connections may still fail."""


def sections(page: Path) -> dict[str, list[str]]:
    """Heading → its lines that are typed; '' is what stands before the first."""
    heads = [
        (n, text.removeprefix("## ")) for n, text in enumerate(page.read_text().splitlines(), 1) if text[:3] == "## "
    ]
    found: dict[str, list[str]] = {"": []}
    for line in lines_of(page):
        heading = next((text for number, text in reversed(heads) if number < line.number), "")
        found.setdefault(heading, []).append(line.text)
    return found


@dataclass
class Connections:
    """Of one client: each in its own time, made anew."""

    place: Namespace
    eips: tuple[IPAddress, ...]
    made: list[tuple[float, float]] = field(default_factory=list)
    """When, and the seconds that it took."""
    failed: list[tuple[float, str]] = field(default_factory=list)

    async def one(self, eip: IPAddress) -> None:
        at = time.monotonic()
        with self.place.entered():
            client = socket.socket(socket.AF_INET6 if eip.version == 6 else socket.AF_INET)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(GIVES_UP):
                await loop.sock_connect(client, (str(eip), TCP_PORT))
                assert await loop.sock_recv(client, 1) == b"k"
            self.made.append((at, time.monotonic() - at))
        except (OSError, AssertionError) as error:
            self.failed.append((at, f"{eip}: {error!r}"))
        finally:
            client.close()

    async def keep_on(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                for eip in self.eips:
                    tasks.create_task(self.one(eip))
                await asyncio.sleep(CONNECTS)


@asynccontextmanager
async def served(places: list[Namespace]) -> AsyncIterator[None]:
    """Whoever connects to a node gets a letter."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"k")
        writer.close()

    with ExitStack() as stack:
        servers = []
        for place in places:
            with place.entered():
                sock = stack.enter_context(
                    socket.create_server(("::", TCP_POD_PORT), family=socket.AF_INET6, dualstack_ipv6=True)
                )
            servers.append(await asyncio.start_server(answer, sock=sock))
        yield
        for server in servers:
            server.close()


class Row(NamedTuple):
    way: str
    addresses_changed: int
    double_answers: int
    connections: int
    failed: int
    slowest: float
    """Seconds, of a connection."""
    lost: int
    """Datagrams, of those sent every few milliseconds."""
    gap: float
    """Seconds, the longest for which some EIP was not answered for."""
    step: float
    """Seconds that the lines took from the first that silences anybody."""

    def __str__(self) -> str:
        return (
            f"{self.way:14} addresses changed {self.addresses_changed}   double answers {self.double_answers}   "
            f"failed connections {self.failed} of {self.connections}, slowest {self.slowest:.2f} s   "
            f"gap {self.gap:.2f} s   datagrams lost {self.lost}   step {self.step:.2f} s"
        )


def both_answered(answers: Sequence[Reply]) -> tuple[Reply, ...]:
    """Those of a MAC that had been replaced, if the one that replaced it answered again too: by turns. An EIP that our
    agents hand to each other as they end, and that the other load balancer then puts where it was, only came back."""
    return tuple(
        came_back
        for came_back in relapses(answers, TWICE)
        if any(
            each.address == came_back.address and each.mac != came_back.mac and 0 < each.at - came_back.at <= TWICE
            for each in answers
        )
    )


@pytest.mark.parametrize(
    ("story", "both"),
    [
        ("A0 A50 B400 B450 A900 A950", ""),
        ("A0 B60 A90 B120 A130 B140", "A90 B120 A130"),
        ("A0 B1 A50 B51 B101", "A50"),
        ("A0 B60 A90 A120", ""),
    ],
    ids=["there and back within a second", "by turns", "each request twice, then one", "back at once"],
)
def test_only_who_answers_by_turns_answers_twice(story, both):
    def said(words: str) -> list[Reply]:
        return [
            Reply(int(word[1:]) / 1000, EIPS[0], Mac(6 * word[0].encode()), unasked=False) for word in words.split()
        ]

    assert [*both_answered(said(story))] == said(both)


class Watched:
    """What clients see between ``begin`` and ``row``."""

    def __init__(self, cluster: Moving, connections: Connections, asks, probes) -> None:
        self._cluster, self._connections, self._asks, self._probes = cluster, connections, asks, probes
        self.failed: list[str] = []

    def begin(self) -> None:
        self._since, self._addresses = time.monotonic(), self._cluster.addresses()
        self._cluster.seen.clear()

    def row(self, way: str, step: float) -> Row:
        since = self._since
        answers = [reply for reply in self._asks.replies() if reply.at >= since]
        made = [took for at, took in self._connections.made if at >= since]
        failed = [why for at, why in self._connections.failed if at >= since]
        self.failed += failed
        changed = {(name, had) for name, had in self._cluster.seen if had != self._addresses[name]}
        lost = sum(sample.answered is None for sample in self._probes.samples(since))
        twice = both_answered(answers)
        return Row(way, len(changed), len(twice), len(made) + len(failed), len(failed), max(made), lost,
                   self._gap(since), step)  # fmt: skip

    def _gap(self, since: float) -> float:
        """Of requests by ARP and neighbour solicitation: from the last that was answered to the next."""
        gaps = [0.0]
        for eip in self._cluster.eips:
            good = [s.sent for s in self._asks.samples(since) if s.eip == eip and s.answered is not None]
            gaps += [later - earlier for earlier, later in pairwise(good)]
        return max(gaps) - ASK_INTERVAL


@asynccontextmanager
async def watched(cluster: Moving) -> AsyncIterator[Watched]:
    client, asker = (cluster.lan.namespace(name) for name in EVERYBODY)
    connections = Connections(client, cluster.eips)
    async with (
        served([cluster.lan.namespace(node) for node in cluster.nodes]),
        asking(asker, LINK, cluster.eips, ASK_INTERVAL) as asks,
        probing(client, [(eip, ECHO_PORT) for eip in cluster.eips]) as probes,
    ):
        await probes.answering(time.monotonic())
        keeps_on = asyncio.create_task(connections.keep_on())
        try:
            yield Watched(cluster, connections, asks, probes)
        finally:
            keeps_on.cancel()
            await asyncio.wait([keeps_on])


async def typed(cluster: Moving, heading: str, home: Path, before_step: Callable[[], object]) -> float:
    """The seconds from the line at which answers end."""
    began = None
    for text in sections(PAGES / f"{cluster.other.page}.md")[heading]:
        if heading and cluster.other.step[heading] in text:
            await cluster.until(before_step, lambda: "not yet ready for the step")
            began = time.monotonic()
        await cluster.type(text, home)
    return time.monotonic() - (began or time.monotonic())


@pytest.fixture(params=[MetalLB, KubeVip], ids=lambda peer: peer.page)
def other(request: pytest.FixtureRequest) -> LoadBalancer:
    if reason := missing():
        pytest.skip(reason)
    try:
        Namespace("may we?").close()
        return request.param(programs_of(request.param.page))
    except PermissionError as error:
        pytest.skip(f"needs the right to make network namespaces (root, or `unshare -Urnm`): {error}")
    except (RuntimeError, OSError) as error:
        pytest.skip(f"{request.param.page} cannot be built here: {str(error)[-300:]}")


@pytest.fixture
def cluster(other: LoadBalancer, tmp_path: Path) -> Iterator[Moving]:
    with moving(tmp_path, other, "--take-over") as made:
        yield made


def installed(cluster: Moving) -> None:
    """As the page has it: agents run, the controller does not."""
    cluster.done("PATCH", OUR_AGENTS, {"spec": {"template": {"spec": {"nodeSelector": {"stopped": None}}}}})


async def there(cluster: Moving, home: Path) -> float:
    eips = {str(eip) for eip in cluster.eips}
    await typed(cluster, "", home, bool)
    step = await typed(
        cluster,
        "The move",
        home,
        lambda: cluster.conditions("eip-speaker.io/Assigned") >= cluster.services and cluster.waits() >= eips,
    )
    await cluster.until(lambda: {str(eip) for eip, held in cluster.holders().items() if held} == eips)
    await cluster.until(lambda: {eip for eip, record in cluster.records().items() if record.holder} == {*cluster.eips})
    return step


async def back(cluster: Moving, home: Path) -> float:
    return await typed(cluster, "The way back", home, cluster.is_back)


async def test_there_and_back_no_address_changes_nobody_answers_twice_and_no_connection_fails(
    cluster, tmp_path, capsys
):
    rows = []
    (home := tmp_path / "home").mkdir()
    installed(cluster)
    await cluster.until(lambda: {f"agent-{node}" for node in cluster.nodes} <= {*cluster.running})
    await cluster.until_healthy(*cluster.nodes)
    async with watched(cluster) as seen:
        for way, go in (("there", there), ("back", back)):
            await asyncio.sleep(CALM)
            seen.begin()
            step = await go(cluster, home)
            await asyncio.sleep(SETTLES)
            rows.append(seen.row(way, step))
            with capsys.disabled():
                print("", rows[-1], *seen.failed[:10], sep="\n")  # noqa: T201
    for row in rows:
        assert (row.addresses_changed, row.double_answers, row.failed) == (0, 0, 0), row
