"""Run by test_starved.py in a process of its own: every edge, once this process can have no more of something.

``python starved.py descriptors|processes DIR`` prints what each edge came to, as JSON by name.
"""

import asyncio
import json
import os
import resource
import sys
import threading
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from speaker.allocator.book import Ledger
from speaker.cluster.access import Server
from speaker.cluster.client import Client
from speaker.errors import SpeakerError
from speaker.forwarding import conntrack, limits, sysctl, unknown_flows
from speaker.forwarding.ipvs import strict_arp
from speaker.forwarding.ipvs.dummy import DummyLink, bound_on
from speaker.forwarding.ipvs.forwarder import IpvsForwarder
from speaker.forwarding.ipvs.settings import NEEDED, IpvsSettings, IpvsTimeouts, Remembered
from speaker.forwarding.ipvs.tables import ipvs_tables
from speaker.forwarding.nftables import nft
from speaker.forwarding.nftables.forwarder import NftablesForwarder, NftablesGuard, open_nftables
from speaker.forwarding.nftables.nft import stamp
from speaker.forwarding.plan import EMPTY
from speaker.interfaces import martians
from speaker.interfaces.carrier import watch_carrier
from speaker.interfaces.watcher import Watcher
from speaker.kubeproxy import sight
from speaker.kubeproxy.judge import Mode
from speaker.layer2.filter import NOTHING
from speaker.layer2.groups import Groups
from speaker.model import Family, Link, Mac, Protocol
from speaker.node.control import serving_control
from speaker.ownership.hellos.keyfile import read_keys
from speaker.packets.asker import answers
from speaker.packets.asking import Question
from speaker.packets.packet_socket import PacketSocket
from speaker.settings import Bind, Timeouts
from speaker.standalone.manifests import load
from speaker.standalone.state import read_state
from speaker.standalone.watch import _wakes
from speaker.system import programs
from speaker.system.files import only_one, write_atomically
from speaker.system.threads import in_thread, start_threads
from speaker.telemetry.http import serving

LO = Link(1, "lo", Mac(bytes(6)), up=True, carrier=True)


class Quiet:
    """Nothing unforeseen is to be told here."""

    def internal_error(self, task, error):
        raise AssertionError(task) from error


async def entered(manager: Any) -> None:
    async with manager:
        pass


async def requested() -> None:
    async with Client(Server("http://127.0.0.1:9")) as client:
        await client.get("/api")


async def forgot() -> None:
    await conntrack.forget([(IPv4Address("192.0.2.1"), Protocol.UDP, 53)], EMPTY)


async def looked_at(folder: Path) -> None:
    wakes = _wakes(folder)
    await anext(wakes)
    await wakes.aclose()


def joined() -> None:
    groups = Groups(LO)
    groups.add([IPv6Address("fe80::1").packed])
    groups.work(0.0, 1)


def locked(path: Path) -> None:
    with only_one(path):
        pass


def packets() -> None:
    PacketSocket(LO, 0x0806, NOTHING, room=64, frame_length=42).close()


def without_descriptors(folder: Path) -> dict[str, Callable[[], Any]]:
    kept = folder / "kept.json"
    settings = IpvsSettings(Remembered(kept), [folder])
    asked = Question(1, bytes(6), IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2"))
    ipvs = IpvsForwarder(folder, NftablesGuard())
    return {
        "programs": lambda: programs.run("true"),
        "nft.run": lambda: nft.run(""),
        "nft.list_table": lambda: nft.list_table("none"),
        "nft.list_chains": nft.list_chains,
        "nftables: opened": open_nftables,
        "nftables: apply": lambda: NftablesForwarder().apply(EMPTY),
        "nftables: pending": lambda: NftablesForwarder().pending(EMPTY),
        "nftables: problems": lambda: NftablesForwarder().problems(),
        "nftables: cleanup": lambda: NftablesForwarder().cleanup(),
        "unknown flows: opened": unknown_flows.open_unknown_flows,
        "nft_stamp": lambda: stamp("none"),
        "dummy: eips": lambda: DummyLink("none0").eips(),
        "dummy: index": lambda: DummyLink("none0").index(),
        "dummy: bind": lambda: DummyLink("none0").bind([IPv4Address("192.0.2.1")]),
        "dummy: unbind": lambda: DummyLink("none0").unbind([IPv4Address("192.0.2.1")]),
        "dummy: remove": lambda: DummyLink("none0").remove(),
        "dummy: bound on": lambda: bound_on(1),
        "strict arp: all": strict_arp.conf_all,
        "strict arp: answers": lambda: strict_arp.answers_for_all(["lo"]),
        "strict arp: restore": lambda: strict_arp.StrictArp(Remembered(kept)).restore(),
        "ipvs: opened": lambda: ipvs_tables().__enter__(),
        "ipvs: apply": lambda: ipvs.apply(EMPTY),
        "ipvs: traffic": lambda: ipvs.traffic(real_servers=True),
        "ipvs: settings": settings.adjust,
        "ipvs: timeouts": lambda: IpvsTimeouts(Timeouts(tcp=1), Remembered(folder / "none.json")).adjust(),
        "remembered": lambda: Remembered(kept).read(),
        "sysctl": lambda: sysctl.forwarding_off([Family.IPV4]),
        "limits": lambda: limits.look(ipvs=True),
        "conntrack": forgot,
        "rtnetlink": lambda: entered(Watcher()),
        "carrier": lambda: watch_carrier(lambda: [1], lambda *_: None, asyncio.Event()),
        "gateway": lambda: answers(asked, 1, 0.01),
        "martians": martians.martian_sources,
        "reverse path": martians.reverse_path_drops,
        "packet socket": packets,
        "groups": joined,
        "files: written": lambda: write_atomically(folder / "written", b""),
        "files: locked": lambda: locked(folder / "lock"),
        "state": lambda: read_state(kept, Ledger),
        "key": lambda: read_keys(folder / "key"),
        "manifests": lambda: load(folder / "vs"),
        "control": lambda: entered(serving_control(folder / "control", {}, Quiet())),
        "metrics": lambda: entered(serving(Bind("127.0.0.1", 0), CollectorRegistry(), lambda: (True, {}))),
        "API": requested,
        "goes on: chains": sight.Tables().chains,
        "goes on: rules": lambda: sight.Tables().rules(Mode.NFTABLES, {}),
        "goes on: answering": lambda: sight.answering(frozenset({"lo"})),
    }


def without_processes(folder: Path) -> dict[str, Callable[[], Any]]:
    return {
        "programs": lambda: programs.run("true"),
        "nft.run": lambda: nft.run(""),
        "threads": start_threads,
        "a thread": lambda: in_thread(threading.get_ident),
        "carrier": lambda: watch_carrier(list, lambda *_: None, asyncio.Event()),
        "ipvs": lambda: IpvsForwarder(Path("/nowhere"), NftablesGuard()).apply(EMPTY),
        "goes on: watch": lambda: looked_at(folder),
    }


def starve_descriptors() -> None:
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, lowest))


def starve_processes() -> None:
    if os.geteuid() == 0:  # whom no limit binds
        os.setuid(65534)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


async def come_to(edge: Callable[[], Any]) -> str:
    try:
        found = edge()
        if asyncio.iscoroutine(found):
            await found
    except SpeakerError as error:
        return f"SpeakerError: {error}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "nothing raised"


async def main(kind: str, folder: Path) -> None:
    (folder / "kept.json").write_text('{"tcp": 1}')
    (folder / "key").write_text("")
    (folder / "vs").mkdir()
    for name in (*NEEDED, "a.yaml"):
        (folder / "vs" / name).write_text("1")
    edges, starve = {
        "descriptors": (without_descriptors, starve_descriptors),
        "processes": (without_processes, starve_processes),
    }[kind]
    named = edges(folder)
    starve()
    print(json.dumps({name: await come_to(edge) for name, edge in named.items()}), flush=True)  # noqa: T201
    os._exit(0)  # asyncio ends its threads with another thread


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
