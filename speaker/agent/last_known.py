"""Loops: what the API said last is kept in a file (``known.py``), and used by an agent that starts without an API."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import structlog

from speaker.agent.known import Known, known, recall, remember
from speaker.agent.view import News
from speaker.api.kinds import SliceObject
from speaker.cluster.mirror.reflector import Reflector
from speaker.model import ServiceKey
from speaker.node.report import Report
from speaker.system.threads import in_thread

log = structlog.get_logger()

RECALL_SECONDS = 5.0
"""Without an API after which an agent uses what the API said last."""
RECALL_AGAIN = 1.0
"""Between two looks at whether it may, as no peer seems to read the API."""
REMEMBER_SECONDS = 30.0
"""At least between two writings of what the API says."""


class LastKnown:
    """``node``: our name. What no peer holds is better served by what was known last than by nobody."""

    def __init__(self, runtime_dir: Path, node: str, report: Report) -> None:
        self._runtime_dir, self._node, self._report = runtime_dir, node, report
        self.recalled: Known | None = None
        """What is used as long as nothing was listed."""
        self.learned = asyncio.Event()
        """There is something else to remember."""

    async def recall(
        self, listed: Callable[[], bool], informed: Callable[[], Awaitable[bool]], changed: Callable[[], None]
    ) -> None:
        """Endless, and done once. ``listed``: the API has said everything; ``informed``: some peer reads the API;
        ``changed`` hears when what was known last is used."""
        await asyncio.sleep(RECALL_SECONDS)
        found = None if listed() else await self.last()
        while found is not None and not listed():
            if not await informed():
                log.warning("the API does not answer yet: using what it said last", services=len(found.services))
                self.recalled = found
                changed()
                break
            await asyncio.sleep(RECALL_AGAIN)
        await asyncio.Event().wait()  # once in a life

    async def last(self) -> Known | None:
        """What the API said last; None where that is not known here."""
        known = None
        with self._report.trying("last known"):
            known = await in_thread(recall, self._runtime_dir, self._node)
        return known  # noqa: RET504 -- a refusal is told, and leaves None

    async def held_against(self, *mirrors: Reflector[Any]) -> None:
        """Of Services, their slices, Eips and our Node, before they run: a first list that lacks much of what the API
        said last has to say so twice."""
        if (last := await self.last()) is not None:
            known = (last.services, last.slices, last.eips, tuple(filter(None, (last.node,))))
            for mirror, found in zip(mirrors, known, strict=True):
                mirror.recall(found)

    async def remember(self, seen: Callable[[], tuple[Any, ...]]) -> None:
        """Endless. Seldom, and only what was read from the API. ``seen``: what ``known`` takes behind our name."""
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
    """As if the API had said it all; and the slices of a Service."""
    slices: dict[ServiceKey, list[SliceObject]] = {}
    for each in last.slices:
        slices.setdefault(each.service_key, []).append(each)
    news = News(
        {each.key: each for each in last.services},
        eips=last.eips,
        nodes={each.key: each for each in last.hosts},
    )
    return news, lambda key: slices.get(key, [])
