"""A lab run with something to show on the dashboard: agents and a controller on a real API server, which Prometheus
scrapes while nodes die, one is drained, a stranger takes an EIP, a pool fills, and more. ``drawn/draw.py`` draws it.

pytest runs it only when it is named; it takes some ten minutes.
"""

import asyncio
import json
import shutil
import signal
import subprocess
import time
from contextlib import suppress

import pytest
from agent_cluster import LINK, Cluster, cluster_in, pause
from agent_objects import SERVICES
from alert_lan import nft
from playing import ROOT
from prometheus import prometheus
from test_alerts_of_agents import a_right_that_is_missing, told_by

from speaker.lab.outage import asking
from speaker.lab.speakers import holds_most, lab_eips

HOME = ROOT / "dist" / "drawn"
WHEN = HOME / "when.json"
"""Its first and its last second."""
SCRAPES = "5s"
CALM = 20.0
"""Seconds between two things that happen."""
HISTORY = 50.0
"""Seconds before the first: numbers over a minute need something to be compared with."""
SPARE = ["192.0.2.216/29", "2001:db8:0:1::300/125"]
"""Of the pool, beside the EIPs of the lab; the first is filled."""
LOSSY = f"""table netdev lossy {{ chain in {{ type filter hook ingress device {LINK} priority 0;
  ether type 0x88b5 numgen random mod 100 < 40 drop; }}; }}"""


async def mended(cluster: Cluster) -> None:
    """Where the machine is busy a move is refused now and then."""
    for _ in range(5):
        with suppress(AssertionError):
            return await cluster.whole()
        await pause(5)
    return None


async def dies(cluster: Cluster) -> None:
    await cluster.dies(holds_most(await cluster.settled()))
    await pause(40)
    await mended(cluster)


async def is_drained(cluster: Cluster) -> None:
    node = holds_most(await cluster.settled())
    cluster.agents[node].ask("drain")
    await pause(40)
    cluster.agents[node].ask("undrain")
    await mended(cluster)


async def meets_a_stranger(cluster: Cluster) -> None:
    stranger, eip = cluster.lan.namespace("client2"), str(cluster.eips[0])

    def run(line: str) -> None:
        with stranger.entered():
            subprocess.run(line.split(), stdout=subprocess.DEVNULL, check=False)

    await asyncio.to_thread(run, f"ip addr add {eip}/32 dev {LINK}")
    for _ in range(6):
        await asyncio.to_thread(run, f"arping -c 1 -w 1 -i {LINK} -S {eip} {eip}")
        await pause(5)
    await asyncio.to_thread(run, f"ip addr del {eip}/32 dev {LINK}")
    await pause(30)


async def fills(cluster: Cluster) -> None:
    """One after the other until the pool is full; two get nothing. Then they go again."""
    spec = {"type": "LoadBalancer", "loadBalancerClass": "eip-speaker.io/speaker", "ipFamilies": ["IPv4"]}
    names = [f"more-{number}" for number in range(10)]
    for name in names:
        cluster.done("POST", SERVICES, {"metadata": {"name": name}, "spec": {**spec, "ports": [{"port": 80}]}})
        await pause(4)
    await pause(30)
    for name in names:
        cluster.done("DELETE", f"{SERVICES}/{name}")


async def loses_its_endpoints(cluster: Cluster) -> None:
    cluster.ready_endpoints(cluster.local[0], [])
    await pause(40)
    await mended(cluster)


async def loses_hellos(cluster: Cluster) -> None:
    node = cluster.lan.namespace(cluster.nodes[1])
    nft(node, LOSSY)
    await pause(45)
    nft(node, "delete table netdev lossy")


async def freezes(cluster: Cluster) -> None:
    process = cluster.agents[cluster.nodes[2]].process
    process.send_signal(signal.SIGSTOP)
    await pause(0.6)
    process.send_signal(signal.SIGCONT)
    await pause(20)
    await mended(cluster)


async def is_left_alone_by_the_api(cluster: Cluster) -> None:
    cluster.api.freeze()
    await pause(40)
    cluster.api.thaw()
    await mended(cluster)


async def lacks_a_right(cluster: Cluster) -> None:
    async with a_right_that_is_missing(cluster):
        await pause(20)


STORY = (dies, is_drained, meets_a_stranger, fills, loses_its_endpoints, loses_hellos, freezes, lacks_a_right,
         is_left_alone_by_the_api, dies)  # fmt: skip


@pytest.fixture
def cluster(tmp_path):
    with cluster_in(tmp_path, eips=lab_eips(12), more_addresses=SPARE) as found:
        yield found


async def test_a_story_is_told(cluster):
    shutil.rmtree(HOME / "tsdb", ignore_errors=True)
    HOME.mkdir(parents=True, exist_ok=True)
    await cluster.control("--metrics", "127.0.0.1:9900")
    await cluster.whole()
    begun = time.time()
    with prometheus(HOME, told_by(cluster), SCRAPES):
        await pause(HISTORY)
        for happens in STORY:
            async with asking(cluster.lan.namespace("host1"), LINK, cluster.eips, 0.2):  # for three minutes at most
                await pause(CALM)
                print(time.strftime("%H:%M:%S"), happens.__name__, flush=True)  # noqa: T201
                await happens(cluster)
        WHEN.write_text(json.dumps([begun, time.time()]))
