"""What the kubelet asks the controller, that a loop that hangs does not answer, and who is not ready."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_api import _free_port

from speaker.cluster.lease import Election, LeaseName, Timing
from speaker.controller.run import ControllerMetrics
from speaker.errors import EdgeError
from speaker.settings import Bind
from speaker.telemetry.http import serving

QUICK = Timing(duration=1, renew_within=0.7, retry=0.1, request=0.6)
LONG = Timing(duration=60, renew_within=50, retry=0.1, request=40)
"""With the other one a leader loses what it has when its machine stands still for a second."""
GUARD = 60.0
"""Seconds; against a hang."""
MANIFEST = Path(__file__).parents[2] / "manifests" / "base" / "controller.yaml"


def probe(kind: str) -> str:
    """The path that the manifest names."""
    deployment = next(each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    path: str = container[kind]["httpGet"]["path"]
    return path


def ask(bind: Bind, kind: str, seconds: float) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{bind.port}{probe(kind)}", timeout=seconds) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@asynccontextmanager
async def candidate(
    api: Any, name: str, timing: Timing = LONG
) -> AsyncIterator[tuple[Election, asyncio.Queue[EdgeError], Bind]]:
    """A replica as the kubelet sees it: its election, what failed, and where it can be asked."""
    failures: asyncio.Queue[EdgeError] = asyncio.Queue()
    lease = LeaseName(api.namespace, "controller")
    election = Election(await api.client(), lease, name, timing, told=failures.put_nowait)
    metrics, bind = ControllerMetrics(), Bind("127.0.0.1", _free_port())
    async with serving(bind, metrics.registry, partial(metrics.health, election)):
        keeping = asyncio.create_task(election.lead(lambda _: asyncio.Event().wait()), name=name)
        yield election, failures, bind
        keeping.cancel()
        await asyncio.wait((keeping,))


async def status(bind: Bind, kind: str = "readinessProbe") -> int:
    return (await asyncio.to_thread(ask, bind, kind, GUARD))[0]


@pytest.mark.parametrize("kind", ["livenessProbe", "readinessProbe"])
async def test_a_probe_is_answered_while_the_loop_turns_and_not_when_it_hangs(api, kind):
    async with candidate(api, "one") as (election, _, bind):
        await election.held()
        assert await status(bind, kind) == 200
        with ThreadPoolExecutor(1) as elsewhere, pytest.raises(TimeoutError):
            elsewhere.submit(ask, bind, kind, 0.3).result()  # the loop stands still until the asker has given up
        assert await status(bind, kind) == 200


async def test_a_replica_is_ready_once_the_api_has_answered_it_and_stays_so(api):
    await api.stop()
    async with asyncio.timeout(GUARD), candidate(api, "one", QUICK) as (election, failures, bind):
        await failures.get()
        assert await status(bind) == 503
        assert await status(bind, "livenessProbe") == 200
        await api.start()
        await election.held()
        assert await status(bind) == 200
        await api.stop()
        while election.leadership:
            await failures.get()
        assert await status(bind) == 200
        await api.start()


async def test_who_stands_by_is_as_ready_as_who_leads(api):
    async with asyncio.timeout(GUARD), candidate(api, "one") as (leading, _, _):
        await leading.held()
        async with candidate(api, "two") as (waiting, _, bind):
            while await status(bind) != 200:
                pass
            assert waiting.leadership is None
            assert not json.loads((await asyncio.to_thread(ask, bind, "readinessProbe", GUARD))[1])["leads"]
