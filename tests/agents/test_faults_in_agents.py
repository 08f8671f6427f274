"""One bad thing stays one bad thing, in an agent too: an exception that nobody foresaw at each place that has to do
with the API and its records. The others are in tests/faults."""

import asyncio
import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from agent_cluster import Cluster, broken_promises, holders_of, pause, until
from agent_objects import ANNOUNCEMENTS, NODES, SERVICES, SLICES, endpoints
from fault_plan import Switches

from speaker.api.records import announcement_name
from speaker.lab.speakers import HEALTH, service_of

pytestmark = [pytest.mark.netns, pytest.mark.apiserver, pytest.mark.long(part="agents")]

PLACES = (
    # what the API says
    "speaker.cluster.reflector:Reflector._chunk",
    "speaker.cluster.reflector:Reflector._hand_over",
    "speaker.agent.source:Cluster._saw_services",
    "speaker.agent.source:Cluster._saw_slices",
    "speaker.agent.source:Cluster._saw_node",
    "speaker.agent.source:Cluster._saw_announcements",
    "speaker.agent.source:Cluster.view",
    "speaker.agent.view:Reader.read",
    "speaker.agent.view:Reader._service",
    "speaker.agent.view:node_intent",
    # what it is told: records, and that the node lives
    "speaker.agent.announcements:AnnouncementWriter._write",
    "speaker.agent.record:creation",
    "speaker.agent.record:read_record",
    "speaker.agent.session:Session._write",
    "speaker.cluster.client:Client.patch",
)
CONSTANTS = {"speaker.telemetry.logs:QUIET_SECONDS": 0.5}
RAISES = 0.5
"""Seconds for which a place raises, once it has raised the first time."""
REACHED = 60.0
"""Seconds within which it must have been passed: a Lease is renewed every fifteen."""
STIR = 0.2


@pytest.fixture(scope="module")
def planted(standing: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Switches]:
    """In the agent of the first node, which is started for it; gone with the last of these tests."""
    switches = Switches(tmp_path_factory.mktemp("faults") / "planted", PLACES, CONSTANTS)
    victim = standing.nodes[0]
    if victim in standing.agents:
        standing.killed(victim)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in switches.environment.items():
            patch.setenv(name, value)
        standing.start(victim, "--metrics", f"{HEALTH[0]}:{HEALTH[1]}")
    yield switches
    standing.killed(victim)


async def stir(cluster: Cluster, victim: str) -> None:
    """Everything that an agent hears of changes, and nothing that would move an EIP; its records are deleted."""
    anybodys = cluster.eips[1]
    for number in itertools.count():
        note = {"metadata": {"annotations": {"example.com/stir": str(number)}}}
        some = endpoints(cluster.lan.topology, anybodys, cluster.nodes[: 1 + number % len(cluster.nodes)])
        path = f"{SERVICES}/{service_of(anybodys)}"
        ports = {"spec": {"sessionAffinity": ("None", "ClientIP")[number % 2]}}
        held = [eip for eip in cluster.eips if eip in cluster.agents[victim].holds()]

        def patch() -> None:
            cluster.done("PATCH", path, note | ports)  # noqa: B023 -- awaited at once
            cluster.done("PATCH", f"{SLICES}/{service_of(anybodys)}", {"endpoints": some})  # noqa: B023
            cluster.done("PATCH", f"{NODES}/{victim}", note)  # noqa: B023
            for eip in held[:1]:  # noqa: B023
                cluster.ask("DELETE", f"{ANNOUNCEMENTS}/{announcement_name(eip)}")

        await asyncio.to_thread(patch)
        await asyncio.sleep(STIR)


@contextmanager
def stirred(cluster: Cluster, victim: str) -> Iterator[None]:
    task = asyncio.create_task(stir(cluster, victim))
    try:
        yield
    finally:
        task.cancel()


def errors(cluster: Cluster, node: str) -> float:
    lines = cluster.metrics(node).splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("eip_speaker_internal_errors_total{"))


@pytest.mark.parametrize("place", PLACES)
async def test_what_is_raised_there_is_told_moves_nothing_and_heals(standing, planted, place):
    cluster, victim = standing, standing.nodes[0]
    await cluster.whole()
    holders = holders_of(await cluster.agreed())
    agent, counted, told = cluster.agents[victim], errors(cluster, victim), False
    async with cluster.watching(holders) as watch:
        with stirred(cluster, victim):
            planted.order(place, 1)
            await until(lambda: planted.raised(place), lambda: f"{place} was never passed", REACHED)
            with planted.always(place):
                end = time.monotonic() + RAISES
                while time.monotonic() < end or not told:
                    told = told or any("injected" in problem for problem in agent.status().get("problems", []))
                    assert time.monotonic() < end + REACHED, f"{place}: status does not tell"
                    await pause(0.05)
            passed = planted.passed(place)
            await until(lambda: planted.passed(place) > passed, lambda: f"{place} was not passed again", 2 * REACHED)
        await cluster.agreed()
        await until(lambda: not any("injected" in problem for problem in agent.status().get("problems", [])))
    agent.check()
    assert broken_promises(cluster.views(watch), lossless=True) == []
    assert any(f"injected at {place}" in str(line) for line in agent.said()), "no line of the log names it"
    assert errors(cluster, victim) > counted
