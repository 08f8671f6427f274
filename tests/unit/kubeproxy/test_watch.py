"""What is asked of a node while something else was still being asked of it."""

import asyncio
import threading

from speaker.kubeproxy.health_checks import HealthCheck, Place
from speaker.kubeproxy.watch import Asked, KubeProxyWatch
from speaker.model import Family, ServiceKey

GUARD = 60.0
"""Seconds; against a hang."""


async def test_health_checks_are_those_that_were_asked_for_last_however_long_others_took():
    taking, told = threading.Event(), threading.Event()

    def slow() -> dict[Place, HealthCheck]:
        taking.set()
        told.wait(GUARD)
        return {(Family.IPV4, 0): HealthCheck(ServiceKey("shop", "web"), 2)}

    watch = KubeProxyWatch("ipvs", frozenset, lambda: True, lambda _: None)
    watch._alone = True  # as a look finds where no kube-proxy is
    async with asyncio.timeout(GUARD), watch._server, asyncio.TaskGroup() as tasks:
        earlier = tasks.create_task(watch.follow(Asked({}, slow, {}, frozenset())), name="earlier")
        await asyncio.to_thread(taking.wait)
        await watch.follow(Asked({}, dict, {}, frozenset()))
        told.set()
        await earlier
        assert watch._server.served == 0
