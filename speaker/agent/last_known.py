"""What the API said last, kept in the runtime directory for an agent that starts while no API server answers.

Like kube-proxy's rules it outlives processes, but not a reboot. A file that cannot be read is treated as missing.
"""

import asyncio
import os
import zlib
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import structlog

from speaker.agent.view import News, assigned_addresses
from speaker.api.kinds import AssignedObject, EipObject, HostObject, NodeObject, SliceObject
from speaker.cluster.reflector import Reflector
from speaker.errors import EdgeError, as_edge_error
from speaker.model import ServiceKey
from speaker.node.report import Report
from speaker.system.decoding import UNFIT
from speaker.system.files import read_regular, shown, write_atomically
from speaker.system.threads import in_thread

NAME = "known"
VERSION = 1
"""A file with another version belongs to another release."""
MAX_BYTES = 128 * 2**20
"""Ten thousand Services with three endpoints each take ten million."""
MAX_PACKED = 16 * 2**20
"""And one million when they are packed."""


class Known(msgspec.Struct, frozen=True):
    """``node``: None if the API had no Node of our name."""

    version: int
    name: str
    node: NodeObject | None
    services: tuple[AssignedObject, ...]
    slices: tuple[SliceObject, ...]
    eips: tuple[EipObject, ...]
    hosts: tuple[HostObject, ...]


def known(
    name: str,
    node: NodeObject | None,
    services: Iterable[AssignedObject],
    slices: Iterable[SliceObject],
    eips: Iterable[EipObject],
    hosts: Iterable[HostObject],
) -> Known:
    """The parts of these objects that concern Services with an EIP."""
    ours = tuple(filter(assigned_addresses, services))
    keys = {(each.metadata.namespace, each.metadata.name) for each in ours}
    theirs = (each for each in slices if (each.metadata.namespace, each.metadata.labels.service) in keys)
    return Known(VERSION, name, node, ours, tuple(theirs), tuple(eips), tuple(hosts))


def remember(directory: Path, found: Known) -> None:
    """Raises EdgeError, also if it is too much: then there is no file at all, rather than an old one."""
    path, body = directory / NAME, msgspec.json.encode(found)
    packed = zlib.compress(body, 1)
    if len(body) > MAX_BYTES or len(packed) > MAX_PACKED:
        path.unlink(missing_ok=True)
        raise EdgeError(f"{shown(path)}: {len(body)} bytes are too many to keep")
    write_atomically(path, packed, mode=0o600)


def recall(directory: Path, name: str) -> Known | None:
    """None if nothing is known of this node. Raises EdgeError if the file is there but cannot be used."""
    path = directory / NAME
    try:
        packed, stat = read_regular(path, MAX_PACKED)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EdgeError(f"{shown(path)}: {error.strerror}") from error
    if stat.st_uid != os.geteuid() or len(packed) > MAX_PACKED:
        raise EdgeError(f"{shown(path)}: it does not belong to this user, or is too large")
    with as_edge_error(f"{shown(path)}: damaged", (*UNFIT, zlib.error)):
        unpacking = zlib.decompressobj()
        body = unpacking.decompress(packed, MAX_BYTES)
        if not unpacking.eof:
            raise EdgeError(f"{shown(path)}: truncated, or too long")
        found = msgspec.json.decode(body, type=Known)
    return found if (found.version, found.name) == (VERSION, name) else None


log = structlog.get_logger()

RECALL_SECONDS = 5.0
"""Seconds without an API after which an agent uses what the API said last."""
RECALL_AGAIN = 1.0
"""Seconds between two checks whether it may, as no peer seems to read the API."""
REMEMBER_SECONDS = 30.0
"""The shortest time between two writings of what the API says."""


class LastKnown:
    """``node``: our name. An EIP that no peer holds is better served by old knowledge than by nobody."""

    def __init__(self, runtime_dir: Path, node: str, report: Report) -> None:
        self._runtime_dir, self._node, self._report = runtime_dir, node, report
        self.recalled: Known | None = None
        """What is used as long as nothing was listed."""
        self.learned = asyncio.Event()
        """Set if there is something new to remember."""

    async def recall(
        self, listed: Callable[[], bool], informed: Callable[[], Awaitable[bool]], changed: Callable[[], None]
    ) -> None:
        """Endless, but works only once. ``listed``: whether the API has said everything. ``informed``: whether some
        peer reads the API. ``changed`` is called when what was known last is used."""
        await asyncio.sleep(RECALL_SECONDS)
        found = None if listed() else await self.last()
        while found is not None and not listed():
            if not await informed():
                log.warning("the API does not answer yet: using what it said last", services=len(found.services))
                self.recalled = found
                changed()
                break
            await asyncio.sleep(RECALL_AGAIN)
        await asyncio.Event().wait()  # once in a process's life

    async def last(self) -> Known | None:
        """What the API said last; None if it is not known here."""
        known = None
        with self._report.trying("last known"):
            known = await in_thread(recall, self._runtime_dir, self._node)
        return known  # noqa: RET504 -- a refusal is told, and leaves None

    async def held_against(self, *mirrors: Reflector[Any]) -> None:
        """For the mirrors of Services, their slices, Eips and our Node, before they run: a first list that lacks much
        of what the API said last has to be confirmed."""
        if (last := await self.last()) is not None:
            known = (last.services, last.slices, last.eips, tuple(filter(None, (last.node,))))
            for mirror, found in zip(mirrors, known, strict=True):
                mirror.feed.recall(found)

    async def remember(self, seen: Callable[[], tuple[Any, ...]]) -> None:
        """Endless. Writes seldom, and only what was read from the API. ``seen``: the arguments of ``known`` after our
        name."""
        while True:
            await self.learned.wait()
            now, remembered = seen(), False
            self.learned.clear()
            with self._report.trying("last known"):
                await in_thread(self._remember_now, now)
                remembered = True
            if not remembered:
                self.learned.set()  # to try again
            await asyncio.sleep(REMEMBER_SECONDS)

    def _remember_now(self, seen: tuple[Any, ...]) -> None:
        remember(self._runtime_dir, known(self._node, *seen))


def news_of(last: Known) -> tuple[News, Callable[[ServiceKey], list[SliceObject]]]:
    """The news as if the API had said all this; and the slices of a Service."""
    slices: dict[ServiceKey, list[SliceObject]] = {}
    for each in last.slices:
        slices.setdefault(each.service_key, []).append(each)
    news = News(
        {each.key: each for each in last.services}, eips=last.eips, nodes={each.key: each for each in last.hosts}
    )
    return news, lambda key: slices.get(key, [])
