"""Whatever Services and endpoints went through, the kernel ends up as a fresh start would make it; and nobody else's
entries are ever touched. IPVS in the guest, nftables on this host's kernel.

``EIP_SPEAKER_HISTORIES`` says how many histories of each, the same each time; the default is what a test run has time
for.
"""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from speaker.forwarding.changes import RealChange, ServerChange
from speaker.forwarding.ipvs.decisions import DRAIN_SECONDS
from speaker.forwarding.ipvs.dummy import DummyLink
from speaker.forwarding.ipvs.forwarder import LOOK_SECONDS, IpvsForwarder
from speaker.forwarding.ipvs.tables import ipvs_tables
from speaker.forwarding.nftables import nft
from speaker.forwarding.nftables.forwarder import NftablesForwarder, NftablesGuard
from speaker.forwarding.nftables.listing import read_plan
from speaker.forwarding.nftables.ruleset import expressible, guard_ruleset
from speaker.forwarding.plan import EMPTY, Plan, VirtualServer, plan, without
from speaker.model import Assignment, Endpoint, Protocol, Service, ServiceKey, ServicePort, TrafficPolicy, World

HISTORIES = int(os.environ.get("EIP_SPEAKER_HISTORIES", "40"))
A_PART = 20
"""Histories in one test, and none is shrunk: a guest from which nothing is heard for a minute counts as hung."""
TAKEN = ip_address("203.0.113.9")
EIPS = [ip_address(text) for text in ("198.51.100.1", "198.51.100.2", "2001:db8:100::1")]
PODS = [ip_address(text) for text in ("10.0.1.2", "10.0.2.2", "10.0.3.2", "fd00:1::2", "fd00:2::2")]
PORTS = [
    ServicePort(Protocol.TCP, 80, "http"),
    ServicePort(Protocol.UDP, 53, "dns"),
    ServicePort(Protocol.SCTP, 99, "sig"),
]
READY, NOT_YET, ENDING = (True, True, False), (False, False, False), (False, True, True)

# ── Histories ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Put:
    """A Service as it is from now on, its endpoints, and its EIPs."""

    service: Service
    endpoints: tuple[Endpoint, ...]
    eips: tuple[Any, ...]


@dataclass(frozen=True)
class Roll:
    """Other endpoints of a Service that stays as it is."""

    key: ServiceKey
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True)
class Shrink:
    """Some of its endpoints go."""

    key: ServiceKey
    by: int


@dataclass(frozen=True)
class Delete:
    key: ServiceKey


@dataclass(frozen=True)
class Wait:
    seconds: float


@dataclass(frozen=True)
class Restart:
    pass


@dataclass(frozen=True)
class Meddle:
    """Somebody else takes a hand in what is ours."""

    how: int


KEYS = [ServiceKey("default", name) for name in "ab"]
endpoints = st.lists(
    st.builds(
        lambda pod, port, state, node: Endpoint(pod, 8080, port.protocol, port.name, *state, node),
        st.sampled_from(PODS),
        st.sampled_from(PORTS),
        st.sampled_from([READY, READY, NOT_YET, ENDING]),
        st.sampled_from(["here", "there"]),
    ),
    min_size=2,
    max_size=10,
    unique_by=lambda endpoint: (endpoint.address, endpoint.port_name),
).map(tuple)
services = st.builds(
    lambda key, ports, policy, scheduler, affinity, sources: Service(
        key, tuple(ports), traffic_policy=policy, scheduler=scheduler, affinity_seconds=affinity, source_ranges=sources
    ),
    st.sampled_from(KEYS),
    st.lists(st.sampled_from(PORTS), min_size=1, unique=True),
    st.sampled_from(TrafficPolicy),
    st.sampled_from([None, "wlc", "mh-port"]),
    st.sampled_from([None, 60]),
    st.sampled_from([(), (ip_network("192.0.2.0/24"),), (ip_network("2001:db8::/32"),)]),
)
eips = st.lists(st.sampled_from([*EIPS, *EIPS, TAKEN]), min_size=1, max_size=3, unique=True).map(tuple)
puts = st.builds(Put, services, endpoints, eips)
rolls = st.builds(Roll, st.sampled_from(KEYS), endpoints)
shrinks = st.builds(Shrink, st.sampled_from(KEYS), st.integers(1, 5))
steps = st.one_of(
    rolls,
    rolls,
    shrinks,
    shrinks,
    puts,
    st.builds(Delete, st.sampled_from(KEYS)),
    st.builds(Wait, st.sampled_from([1.0, LOOK_SECONDS, DRAIN_SECONDS])),
    st.just(Restart()),
    st.builds(Meddle, st.integers(0, 100)),
)
histories = st.builds(list.__add__, st.lists(puts, min_size=1, max_size=2), st.lists(steps, max_size=6))


@dataclass
class Cluster:
    puts: dict[ServiceKey, Put] = field(default_factory=dict)

    def take(self, step: object) -> None:
        match step:
            case Put(service):
                self.puts[service.key] = step
            case Roll(key, made) if key in self.puts:
                self.puts[key] = replace(self.puts[key], endpoints=made)
            case Shrink(key, by) if key in self.puts:
                self.puts[key] = replace(self.puts[key], endpoints=self.puts[key].endpoints[by:])
            case Delete(key):
                self.puts.pop(key, None)

    @property
    def plan(self) -> Plan:
        """As the agent of node ``here`` makes it."""
        world = World(
            services={key: put.service for key, put in self.puts.items()},
            endpoints={key: put.endpoints for key, put in self.puts.items()},
        )
        held = {key: Assignment(key, put.eips, ("lan",) * len(put.eips)) for key, put in self.puts.items()}
        return plan(world, held, "here")


# ── The two kernels ───────────────────────────────────────────────────────────────────────────────────────────


class RecordingGuard:
    """Remembers what it was told to hold; asks a real one what concerns it. Programs are too slow to start here."""

    name = "recording"

    def __init__(self) -> None:
        self.concerned = NftablesGuard().concerned
        self.holds = EMPTY

    async def apply(self, plan: Plan) -> bool:
        self.holds = plan
        return True

    async def cleanup(self) -> tuple[str, ...]:
        self.holds = EMPTY
        return ()


class Ipvs:
    def __init__(self, runtime_dir: Path) -> None:
        self.runtime_dir, self.now = runtime_dir, 0.0
        self.guard = RecordingGuard()
        self.run("ipvsadm", "-R", text=FOREIGN)
        self.foreign = self.of_others()
        self.restart()

    def run(self, *command: str, text: str | None = None) -> str:
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout

    def restart(self) -> None:
        self.forwarder = IpvsForwarder(self.runtime_dir, self.guard, lambda: self.now)

    def shown(self) -> list[str]:
        return sorted(self.run("ipvsadm", "-Sn").splitlines())

    def state(self) -> tuple[object, ...]:
        return self.shown(), DummyLink().eips(), _nft_rules(self.guard.holds)

    def of_others(self) -> object:
        with ipvs_tables() as kernel:
            servers = [server for server in kernel.virtual_servers() if server.address not in EIPS]
            return {server: kernel.real_servers(server.key) for server in servers}

    async def stands(self, wanted: Plan) -> bool:
        """Everything that is wanted is there, in the guard exactly; more in IPVS is only what drains."""
        wanted = without(wanted, {TAKEN})
        with ipvs_tables() as kernel:
            have = {server.key: (server, kernel.real_servers(server.key)) for server in kernel.virtual_servers()}
        return (
            all(_stands(server, *have[key]) for key, server in wanted.virtual_servers.items())
            and wanted.eips == DummyLink().eips()
            and _nft_rules(self.guard.holds) == _nft_rules(wanted)
        )

    async def meddle(self, how: int, wanted: Plan) -> None:
        servers = [server for server in wanted.virtual_servers.values() if server.address != TAKEN]
        if how % 10 == 0:
            DummyLink().remove()
        if not servers:
            return
        server = servers[how % len(servers)]
        changes: list[Any] = [ServerChange(server, None)]
        for real in server.real_servers[:1]:
            changes += [
                RealChange(server.key, real, None),
                RealChange(server.key, real, replace(real, weight=7)),
            ]
        with ipvs_tables() as kernel:
            kernel.change([changes[how % len(changes)]])


def _nft_rules(plan: Plan) -> object:
    return guard_ruleset(expressible(plan))


def _stands(wanted: VirtualServer, server: VirtualServer, counted: Iterable[Any]) -> bool:
    reals = {(real.address, real.port): real.weight for real in counted}
    expected = {(real.address, real.port): real.weight for real in wanted.real_servers}
    more = reals.keys() - expected.keys()
    return (
        (server.scheduler, server.persistence) == (wanted.scheduler, wanted.persistence)
        and expected.items() <= reals.items()
        and all(reals[place] == 0 for place in more)
    )


FOREIGN = f"""
-A -t {TAKEN}:80 -s wlc
-a -t {TAKEN}:80 -r 10.0.1.2:80 -g -w 3
-A -u [2001:db8:9::9]:53 -s sh -p 300 -M 64
-a -u [2001:db8:9::9]:53 -r [fd00:1::2]:53 -g -w 1
-A -f 7 -s rr
"""
FOREIGN_TABLE = """
table ip nat {
  chain PREROUTING { type nat hook prerouting priority -100; ip daddr 203.0.113.9 dnat to 10.0.1.2; }
}
"""


class Nftables:
    def __init__(self, _: Path) -> None:
        self.now = 0.0
        subprocess.run(["nft", "-f", "-"], input=FOREIGN_TABLE, text=True, check=True)
        self.foreign = self.of_others()
        self.restart()

    def restart(self) -> None:
        self.forwarder = NftablesForwarder(lambda: self.now)

    def state(self) -> object:
        listed = subprocess.run(["nft", "-j", "-n", "list", "ruleset"], capture_output=True, text=True, check=True)
        return sorted(_without_order(item) for item in json.loads(listed.stdout)["nftables"])

    def of_others(self) -> str:
        return subprocess.run(["nft", "list", "table", "ip", "nat"], capture_output=True, text=True, check=True).stdout

    async def stands(self, wanted: Plan) -> bool:
        listing = await nft.list_table("eip-speaker")
        return listing is not None and read_plan(listing) == expressible(wanted)

    async def meddle(self, how: int, wanted: Plan) -> None:
        """Also with a table of their own, and not with ours."""
        if await nft.list_table("eip-speaker") is not None:
            how_to = (
                "delete table inet eip-speaker",
                "flush chain inet eip-speaker translate",
                "add table ip another; delete table ip another",
            )
            await nft.run(how_to[how % 3] + "\n")


def _without_order(item: Mapping[str, Mapping[str, Any]]) -> str:
    ((kind, thing),) = item.items()
    elements = sorted(thing.get("elem", ()), key=json.dumps)
    return json.dumps({kind: {**thing, "handle": 0, "elem": elements}}, sort_keys=True)


# ── The suite ─────────────────────────────────────────────────────────────────────────────────────────────────


async def live(kernel: Ipvs | Nftables, history: Iterable[object]) -> None:
    cluster = Cluster()
    for step in history:
        cluster.take(step)
        match step:
            case Wait(seconds):
                kernel.now += seconds
                await kernel.forwarder.tend()
                continue
            case Meddle(how):
                await kernel.meddle(how, cluster.plan)
                kernel.now += LOOK_SECONDS
                await kernel.forwarder.tend()
            case Restart():
                kernel.restart()
        await kernel.forwarder.apply(cluster.plan)
        assert await kernel.forwarder.apply(cluster.plan) == ()
        assert await kernel.stands(cluster.plan)
        assert kernel.of_others() == kernel.foreign
    await kernel.forwarder.apply(cluster.plan)
    kernel.now += DRAIN_SECONDS
    await kernel.forwarder.tend()
    assert await kernel.forwarder.tend() == ()
    in_the_end = kernel.state()
    await kernel.forwarder.cleanup()
    assert kernel.of_others() == kernel.foreign
    kernel.restart()
    await kernel.forwarder.apply(cluster.plan)
    assert kernel.state() == in_the_end
    await kernel.forwarder.cleanup()


@pytest.mark.parametrize("part", range(HISTORIES // A_PART))
@pytest.mark.parametrize(
    "kind",
    [pytest.param(Ipvs, marks=pytest.mark.ipvs, id="ipvs"), pytest.param(Nftables, marks=pytest.mark.netns, id="nft")],
)
def test_whatever_it_went_through_the_kernel_is_as_a_fresh_start_would_make_it(kind, part, new_namespace, tmp_path):
    with ExitStack() as stack:
        stack.enter_context(new_namespace("node").entered())
        kernel = kind(tmp_path)

        @seed(part)
        @settings(
            max_examples=A_PART,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=[HealthCheck.too_slow],
        )
        @given(histories)
        def check(history: list[object]) -> None:
            kernel.restart()
            asyncio.run(live(kernel, history))

        check()
