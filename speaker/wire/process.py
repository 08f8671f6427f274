"""The child: ``python -m speaker.wire.process FD``. Does what it is told over the socket FD, and ends with it."""

import asyncio
import gc
import os
import socket
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from speaker.clock import boottime
from speaker.errors import EdgeError
from speaker.interfaces.carrier import watch_carrier
from speaker.layer2.fleet import Spot
from speaker.model import Family, IPAddress, Link, Mac
from speaker.ownership.events import WriteRecord
from speaker.ownership.hello import Incarnation
from speaker.ownership.keys import Key, Keys
from speaker.ownership.machine import Ownership
from speaker.ownership.parameters import Parameters
from speaker.retry import retrying
from speaker.telemetry.lateness import watch_loop
from speaker.wire.alone import Alone
from speaker.wire.channel import Channel
from speaker.wire.shared import Shared, incarnate
from speaker.wire.told import Speaker

TALLY_SECONDS = 0.25
"""How often counts are handed on."""
PRIORITY = 1
"""The least of the real-time ones, where we may (CAP_SYS_NICE). A busy host would otherwise keep us from the CPU for
longer than the self-lease, and nice(2) counts only among the processes of one session or container (sched(7))."""


class PeerSpec(NamedTuple):
    """``secrets``: of the key that signs, and of another that is accepted if there is one. ``api``: there is an API
    server that keeps records; ``revision`` as in ``Hello``."""

    hello: float
    ethertype: int
    secrets: tuple[bytes, ...]
    api: bool = False
    revision: int = 0


class Spec(NamedTuple):
    """The first message. ``peers`` None: this node is alone."""

    node: str
    peers: PeerSpec | None


_Owner: TypeAlias = Alone | Shared

COLLECTED = 20_000, 20, 100
"""Thresholds of the garbage collector: there is little garbage, and to walk over 10,000 EIPs takes it 30 ms."""


class Tally:
    """Tells of transitions at once and of counts a few times a second. A ``SharedTold`` and a ``Clerk``."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._counts: Counter[tuple[Any, ...]] = Counter()
        self._delays: list[tuple[float, float]] = []

    def flush(self) -> None:
        if self._counts or self._delays:
            self._send("tally", dict(self._counts), self._delays)
            self._counts.clear()
            self._delays = []

    # counts

    def answered(self, family: Family, count: int) -> None:
        self._counts["answered", family] += count

    def ignored(self, family: Family, reason: Enum, count: int) -> None:
        self._counts["ignored", family, reason] += count

    def announced(self, family: Family, count: int) -> None:
        self._counts["announced", family] += count

    def send_failed(self, family: Family, count: int) -> None:
        self._counts["send_failed", family] += count

    def hellos_sent(self, link: str, left: bool, count: int) -> None:
        self._counts["hellos_sent", link, left] += count

    def hellos_received(self, link: str, rejected: Enum | None, count: int) -> None:
        self._counts["hellos_received", link, rejected] += count

    def loop_delay(self, late: float, busy: float) -> None:
        self._delays.append((late, busy))

    # transitions

    def claimed(self, address: IPAddress, spot: Spot, term: int, before: str | None) -> None:
        self._send("claimed", address, spot, term, before)

    def yielded(self, address: IPAddress, reason: str, holder: str | None) -> None:
        self._send("yielded", address, reason, holder)

    def frozen(self) -> None:
        self._send("frozen")

    def incarnation(self, number: Incarnation) -> None:
        self._send("incarnation", number)

    def silence(self) -> None:
        self._send("silence")

    def write_record(self, order: WriteRecord) -> None:
        self._send("write_record", order)

    def peer(self, node: str, link: Link, alive: bool) -> None:
        self._send("peer", node, link, alive)

    def peers(self, link: str, number: int) -> None:
        self._send("peers", link, number)

    def speaker(self, link: int, node: str, speaker: Speaker) -> None:
        self._send("speaker", link, node, speaker)

    def lost_link(self, link: Link, error: str) -> None:
        self._send("lost_link", link, error)

    def join_failed(self, error: Exception) -> None:
        self._send("join_failed", EdgeError(str(error)))

    def conflict(self, link: Link, address: IPAddress, mac: Mac, held: bool) -> None:
        self._send("conflict", link, address, mac, held)

    def peers_address(self, address: IPAddress, node: str | None) -> None:
        self._send("peers_address", address, node)

    def name_clash(self, link: Link | None, mac: Mac | None, silent: bool) -> None:
        self._send("name_clash", link, mac, silent)

    def name_free(self) -> None:
        self._send("name_free")

    def internal_error(self, doing: str, error: Exception) -> None:
        self.failed(f"wire: {doing}", "".join(traceback.format_exception(error)))

    def failed(self, edge: str, error: str) -> None:
        self._send("edge_failed", edge, error)


class Keyring:
    """The keys of the moment."""

    def __init__(self, secrets: tuple[bytes, ...]) -> None:
        self.current: Keys
        self.replace(secrets)

    def replace(self, secrets: tuple[bytes, ...]) -> None:
        signing, *others = (Key(secret) for secret in secrets)
        self.current = Keys(signing, *others)


async def serve(end: socket.socket) -> None:
    """Until the other end is closed."""
    channel = await Channel.over(end)
    messages = channel.messages()
    spec: Spec
    (spec,) = await anext(messages)
    tally = Tally(channel.send)
    keyring = Keyring(spec.peers.secrets) if spec.peers else None
    owner = _owner(spec, keyring, tally)
    async with owner, asyncio.TaskGroup() as tasks:
        others = [
            tasks.create_task(_flush(tally), name="tally"),
            tasks.create_task(watch_loop(tally.loop_delay), name="loop"),
        ]
        if isinstance(owner, Shared):
            others.append(tasks.create_task(_watch_carrier(owner, tally), name="carrier"))
        does = _commands(owner, keyring)
        async for number, name, arguments in messages:
            channel.send("reply", number, does[name](*arguments))
        for task in others:
            task.cancel()


def _owner(spec: Spec, keyring: Keyring | None, tally: Tally) -> _Owner:
    if spec.peers is None or keyring is None:
        return Alone(spec.node, boottime, tally)
    times, peers = Parameters.for_hello(spec.peers.hello), spec.peers
    machine = Ownership(spec.node, incarnate, boottime(), times=times, api=peers.api, revision=peers.revision)
    return Shared(machine, lambda: keyring.current, peers.ethertype, boottime, tally, tally)


def _commands(owner: _Owner, keyring: Keyring | None) -> Mapping[str, Callable[..., Any]]:
    """What ``remote.py`` may ask for, by name."""

    def settled() -> None:
        # What was just built lives long: the garbage collector need not walk over it again and again.
        gc.freeze()

    commands: dict[str, Callable[..., Any]] = {
        "links": owner.links,
        "withdraw": owner.withdraw,
        "offer": owner.offer,
        "settled": settled,
        "standings": lambda addresses: [owner.standing(address) for address in addresses],
        "ready": lambda: owner.ready,
        "has_peers": lambda: owner.has_peers,
        "peers": owner.peers,
    }
    if isinstance(owner, Shared) and keyring is not None:
        commands |= {
            "keys": keyring.replace,
            "addresses": owner.addresses,
            "gateway": owner.gateway,
            "drain": owner.drain,
            "rebalance": owner.rebalance,
            "rebalancing": owner.rebalancing,
            "demote": owner.demote,
            "records": owner.records,
            "written": owner.written,
            "leases": owner.leases,
            "api": owner.api,
        }
    return commands


async def _flush(tally: Tally) -> None:
    while True:
        await asyncio.sleep(TALLY_SECONDS)
        tally.flush()


async def _watch_carrier(owner: Shared, tally: Tally) -> None:
    async for attempt in retrying(lambda error: tally.failed("carrier", str(error)), limit=5):
        with attempt:
            await watch_carrier(lambda: owner.indexes, owner.carrier)


def main() -> None:
    gc.set_threshold(*COLLECTED)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    asyncio.run(serve(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
