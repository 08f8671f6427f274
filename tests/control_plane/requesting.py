"""Fifty clients of an API server, as a program of its own: ``requesting.py URL CA TOKEN LOG``, until it is killed.

new    25 that connect anew for every request, once a second each: 25 new connections a second
held   10 that ask over a connection which stays, twice a second each; one of them also writes, for the watches
watch  15 that hold a watch, and begin it again where it ends

LOG gets a line of JSON for each request that is over, and for each watch that ended: ``kind``, ``at`` and ``over``
(CLOCK_MONOTONIC, seconds), and ``wrong``, '' where it succeeded. For watches also each event, with ``at`` alone.
"""

import asyncio
import json
import random
import ssl
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import aiohttp

NEW, HELD, WATCHES = 25, 10, 15
PATIENCE = 2.0
"""Seconds for a request: a lost SYN is sent again after one."""
SILENCE = 5.0
"""Seconds without an event after which a watch counts as broken; there are two a second."""
MAP = "/api/v1/namespaces/default/configmaps"


class Clients:
    def __init__(self, url: str, ca: str, token: str, log: TextIO) -> None:
        self._url, self._log = url, log
        self._tls = ssl.create_default_context(cafile=ca)
        self._headers = {"Authorization": f"Bearer {token}"}

    def _tell(self, kind: str, at: float, wrong: str = "", **more: object) -> None:
        line = {"kind": kind, "at": at, "over": time.monotonic(), "wrong": wrong, **more}
        self._log.write(json.dumps(line) + "\n")

    def _session(self, **kind: Any) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=self._tls, **kind)
        return aiohttp.ClientSession(self._url, connector=connector, headers=self._headers)

    async def run(self) -> None:
        async with self._session(force_close=True, limit=0) as anew, asyncio.TaskGroup() as tasks:
            for _ in range(NEW):
                tasks.create_task(self._ask("new", anew, 1.0))
            tasks.create_task(self._write())
            for _ in range(HELD):
                tasks.create_task(self._hold())
            for _ in range(WATCHES):
                tasks.create_task(self._watch())

    async def _hold(self) -> None:
        async with self._session(limit=1, keepalive_timeout=60) as session:
            await self._ask("held", session, 0.5)

    async def _ask(self, kind: str, session: aiohttp.ClientSession, every: float) -> None:
        await asyncio.sleep(random.uniform(0, every))
        while True:
            begun = time.monotonic()
            await self._request(kind, session, "GET", "/api/v1/namespaces/default", begun)
            await asyncio.sleep(max(0.0, begun + every - time.monotonic()))

    async def _request(
        self, kind: str, session: aiohttp.ClientSession, method: str, path: str, begun: float, **body: Any
    ) -> None:
        wrong = ""
        try:
            async with asyncio.timeout(PATIENCE), session.request(method, path, **body) as answer:
                await answer.read()
                wrong = "" if answer.status < 429 else f"status {answer.status}"
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            wrong = f"{type(error).__name__}: {error}"
        self._tell(kind, begun, wrong)

    async def _write(self) -> None:
        """What the watches see."""
        async with self._session(limit=1) as session:
            body = {"metadata": {"name": "beat"}, "data": {}}
            await self._request("write", session, "POST", MAP, time.monotonic(), json=body)
            while True:
                begun = time.monotonic()
                change = json.dumps({"data": {"at": str(begun)}})
                more = {"data": change, "headers": {"Content-Type": "application/merge-patch+json"}}
                await self._request("write", session, "PATCH", f"{MAP}/beat", begun, **more)
                await asyncio.sleep(max(0.0, begun + 0.5 - time.monotonic()))

    async def _watch(self) -> None:
        async with self._session(limit=1, force_close=True) as session:
            while True:
                begun = time.monotonic()
                wrong = "ended"
                try:
                    limits = aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE, sock_read=SILENCE)
                    async with session.get(MAP, params={"watch": "1"}, timeout=limits) as answer:
                        answer.raise_for_status()
                        async for _ in answer.content:
                            self._tell("event", time.monotonic())
                            if wrong != "broken":
                                wrong = "broken"
                                self._tell("watch", begun)
                except (aiohttp.ClientError, OSError, TimeoutError) as error:
                    wrong = f"{type(error).__name__}: {error}"
                self._tell("watch", begun, wrong)
                await asyncio.sleep(0.1)


if __name__ == "__main__":
    url, ca, token, log = sys.argv[1:]
    with Path(log).open("w", buffering=1) as lines:
        asyncio.run(Clients(url, ca, token, lines).run())
