"""What one tenant writes costs no speaker its life and no EIP of others an answer, however much it weighs.

Agents and the controller have the memory limit of the manifests, each in a cgroup of its own.
"""

import asyncio
import json
import os
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from agent_cluster import API_HOST, METRICS, POOLS, Administrator, broken_promises, pause, until
from agent_objects import POOL
from fault_plan import Switches
from heavy import LEASES, NAMESPACES, NODES, SECRETS, SEEN, SERVICES, SISTERS, SLICES, TENANT, Attack, Request, drawn
from memory_group import MemoryGroup
from playing import OF_A_TENANT, OF_A_TENANT_STEPS, Recorder, firing, save
from prometheus import missing
from speaker_processes import told_apart

pytestmark = [pytest.mark.netns, pytest.mark.apiserver, pytest.mark.long(part="agents")]

MANIFEST = Path(__file__).parents[2] / "manifests" / "base" / "agent.yaml"
(CONTAINER,) = yaml.safe_load(MANIFEST.read_text())["spec"]["template"]["spec"]["containers"]
LIMIT = int(CONTAINER["resources"]["limits"]["memory"].removesuffix("Mi")) * 2**20
FLAT = 40 * 2**20
"""Bytes that what is not ours may add: an event at a time, and what malloc keeps of it."""
DRAWN = range(int(os.environ.get("SEED", "1")), int(os.environ.get("SEED", "1")) + int(os.environ.get("ATTACKS", "3")))
SETTLING = 5.0
MORE = "192.0.2.216/29", "2001:db8:0:1::300/125"
"""Addresses of the pool, for the tenant."""


def resident(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


class Weighed:
    """The cluster's processes, each speaker's in a group of its own."""

    def __init__(self, cluster) -> None:
        self.cluster = cluster
        self.groups: dict[str, MemoryGroup] = {}
        self.begun = False

    def open(self) -> None:
        for name in (*self.cluster.nodes, "controller"):
            self.groups[name] = MemoryGroup(f"eip-weight-{name}", LIMIT)
        self.cluster.done("POST", NAMESPACES, {"metadata": {"name": TENANT}})
        path = f"{POOLS}/{POOL}"
        self._addresses = self.cluster.done("GET", path)["spec"]["addresses"]
        self.cluster.done("PATCH", path, {"spec": {"addresses": [*self._addresses, *MORE]}})

    async def begin(self) -> None:
        for node in self.cluster.nodes:
            await self.restarted(node)
        await self.controlled()
        await self.cluster.agreed()
        await pause(SETTLING)
        self.begun = True

    async def restarted(self, node: str) -> None:
        await self.cluster.stopped(node)
        with self.groups[node].entered():
            self.cluster.start(node)
        await self.cluster.until_healthy(node)

    async def controlled(self, *flags: str) -> None:
        with self.groups["controller"].entered():
            await self.cluster.control(*flags)
        await until(lambda: any(line["event"] == "leads" for line in self.cluster.controller.said()))

    def pids(self) -> dict[str, int]:
        agents = {node: told_apart(agent.process.pid)["main"] for node, agent in self.cluster.agents.items()}
        wires = {f"wire of {node}": agent.process.pid for node, agent in self.cluster.agents.items()}
        return {**agents, **wires, "controller": self.cluster.controller.process.pid}

    def sizes(self) -> dict[str, int]:
        return {name: resident(pid) for name, pid in self.pids().items()}

    def kills(self) -> dict[str, int]:
        return {name: group.kills for name, group in self.groups.items()}

    def close(self) -> None:
        for group in self.groups.values():
            group.close()
        self.cluster.done("PATCH", f"{POOLS}/{POOL}", {"spec": {"addresses": self._addresses}})


@pytest.fixture(scope="module")
def limited(standing):
    found = Weighed(standing)
    try:
        found.open()
        yield found
    except OSError as error:
        pytest.skip(f"needs memory cgroups of its own, of version 1: {error}")
    finally:
        found.close()


@pytest.fixture
async def weighed(cluster, limited):
    if not limited.begun:
        await limited.begin()
    yield limited
    await asyncio.to_thread(cleared, cluster)


def cleared(cluster) -> None:
    """Nothing of an attack is left. Namespaces are never gone here, as nobody finalizes them."""
    ask = Administrator(cluster.api)
    for path in (SERVICES, SLICES):
        assert ask("DELETE", path)[0] < 300
    for path in (NODES, LEASES, SECRETS):
        for each in ask("GET", path)[1]["items"]:
            if (name := each["metadata"]["name"]).startswith("heavy-"):
                ask("DELETE", f"{path}/{name}")


def written(cluster, attack: Iterator[Request]) -> dict[int, int]:
    """How many requests got which answer, 0 for none in time."""
    ask, codes = Administrator(cluster.api), {}
    for method, path, body in attack:
        try:
            code, _ = ask(method, path, body)
        except OSError:  # the API server takes more than half a minute to say what is wrong with all of it
            code = 0
        codes[code] = codes.get(code, 0) + 1
    return codes


async def attacked(weighed: Weighed, attack: Attack) -> tuple[dict[str, int], dict[str, int]]:
    """The sizes before, and the most that each came to."""
    cluster = weighed.cluster
    before, pids = weighed.sizes(), weighed.pids()
    most = dict(before)
    holders = await cluster.settled()
    async with cluster.watching(holders) as watch:
        writing = asyncio.create_task(asyncio.to_thread(written, cluster, attack()))
        while not writing.done():
            await pause(0.1)
            most = {name: max(size, most[name]) for name, size in weighed.sizes().items()}
        codes = await writing
        await pause(SETTLING)
        most = {name: max(size, most[name]) for name, size in weighed.sizes().items()}
    told = {name: f"{before[name] >> 20} → {most[name] >> 20} MB" for name in before}
    sys.stderr.write(json.dumps({"answers": codes, "sizes": told, "kills": weighed.kills()}) + "\n")
    assert any(200 <= code < 300 for code in codes), f"nothing was written: {codes}"
    assert weighed.kills() == dict.fromkeys(weighed.groups, 0)
    assert weighed.pids() == pids, "somebody ended"
    assert broken_promises(cluster.views(watch), lossless=True) == []
    return before, most


@pytest.mark.parametrize("name", SEEN)
async def test_what_is_none_of_ours_is_not_kept(weighed, name):
    before, most = await attacked(weighed, SEEN[name])
    assert {who: size - before[who] for who, size in most.items() if size - before[who] > FLAT} == {}


@pytest.mark.parametrize("name", SISTERS)
async def test_what_is_ours_is_kept_within_bounds(weighed, name):
    await attacked(weighed, SISTERS[name])


@pytest.mark.parametrize("seed", DRAWN)
async def test_several_at_once_are_too(weighed, seed):
    await attacked(weighed, drawn(seed))


@pytest.fixture
async def scraped(weighed):
    """Its controller tells what it counts as well."""
    await weighed.controlled("--metrics", "127.0.0.1:9900")
    return weighed


async def test_what_is_over_the_bound_is_named_and_comes_back_when_there_is_room(scraped, tmp_path):
    weighed, cluster, node = scraped, scraped.cluster, scraped.cluster.nodes[0]
    recorder = Recorder(lambda: told_by(cluster), time.monotonic)

    def without_room() -> float:
        text = cluster.metrics(node)
        return float(text.split("\neip_speaker_objects_without_room ")[1].split()[0])

    async def record(name: str) -> None:
        recorder.begin(name)
        await pause(3)
        recorder.end()

    await record("healthy")
    await attacked(weighed, SISTERS["slices of a Service of ours"])
    assert without_room() > 0
    assert any(TENANT in problem for problem in cluster.agents[node].status()["problems"])
    await record("full")
    await asyncio.to_thread(cleared, cluster)
    await until(lambda: without_room() == 0, patience=130)
    await record("mended")
    if os.environ.get("RECORD"):
        save("tenant", recorder.phases)
    if not missing():
        assert not (said := firing(recorder.phases, OF_A_TENANT_STEPS, OF_A_TENANT, tmp_path)), said


async def test_a_main_process_that_can_get_no_more_memory_ends_by_itself_and_the_wire_process_answers(
    weighed, monkeypatch, tmp_path
):
    """With the bound on what is mirrored taken away, and a lower one for the process, so that it is soon reached. With
    version 2 of cgroups the kernel would else kill the whole container."""
    cluster, node = weighed.cluster, weighed.cluster.nodes[0]
    unbounded = {"speaker.system.garbage:OBJECTS": 9.0, "speaker.system.garbage:MAIN": 0.4}
    with monkeypatch.context() as patch:
        for name, value in Switches(tmp_path / "unbounded", (), unbounded).environment.items():
            patch.setenv(name, value)
        await weighed.restarted(node)
    holders = await cluster.settled()
    wire = cluster.agents[node].process.pid
    async with cluster.watching(holders) as watch:
        attack = SISTERS["many Services of ours with all endpoints they may have"]
        writing = asyncio.create_task(asyncio.to_thread(written, cluster, attack()))
        ended = lambda: any(line["event"] == "out of memory" for line in cluster.agents[node].said())  # noqa: E731
        await until(ended, lambda: weighed.sizes())
        await writing
    assert (cluster.agents[node].process.pid, cluster.agents[node].process.poll()) == (wire, None)
    assert weighed.kills() == dict.fromkeys(weighed.groups, 0)
    assert broken_promises(cluster.views(watch), lossless=True) == []
    await asyncio.to_thread(cleared, cluster)
    await weighed.restarted(node)


def told_by(cluster) -> dict[str, dict[str, str]]:
    with cluster.lan.namespace(API_HOST).entered(), urllib.request.urlopen(METRICS, timeout=5) as answer:  # noqa: S310
        of_the_controller = answer.read().decode()
    agents = {node: cluster.metrics(node) for node in cluster.agents}
    return {"agents": agents, "controller": {"controller": of_the_controller}}
