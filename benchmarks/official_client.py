"""The official Kubernetes client beside ours: what each takes to load and to mirror, and what it does in a fault.

    python benchmarks/official_client.py [--services N] [--json]

Both run against the same server of this file, each in a process of its own. ``loads``: an import by itself. ``mirror``:
``kubernetes.informer.SharedInformer`` and our ``Reflector`` list N Services and hear of as many changes. Then the
server answers 503 for two seconds, and then says that the version is too old. ``election``:
``kubernetes.leaderelection`` and our ``Election`` hold a Lease that is good for 6 s when the server stands still: the
seconds for which each goes on leading.

It is what decisions/0003 goes by. No right is needed.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

Json = dict[str, Any]

PORT = 38211
URL = f"http://127.0.0.1:{PORT}"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
TROUBLE, STILL = 2.0, 12.0
"""Seconds of 503, and for which it is looked whether somebody leads who cannot renew."""
LEASE_SECONDS, RENEW_WITHIN, RETRY = 6, 4, 1.2
LOADED = {
    "nothing": "",
    "ours: transport and mirror": "speaker.cluster.reflector",
    "official: kubeconfigs": "kubernetes.aio.config",
    "official: typed API": "kubernetes.client.api.core_v1_api",
    "official: informer": "kubernetes.informer",
    "official: election": "kubernetes.leaderelection.leaderelection",
}


def service(number: int, version: int) -> Json:
    name = f"s{number}"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:ports": {}}}}],
        },
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": "eip-speaker.io/speaker",
            "clusterIP": "10.96.0.1",
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080, "nodePort": 30080}],
            "selector": {"app": name},
            "ipFamilies": ["IPv4"],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}},
    }


# ── The server ──


def serve(services: int) -> None:
    """Speaks as much of the API as both need, and does as POST /do says: change, 503, gone, stand still, go on."""
    from aiohttp import web

    versions, asked, watchers = count(1000), Counter[str](), set[asyncio.Queue[bytes | None]]()
    leases: dict[str, Json] = {}
    state = {"mode": "well"}
    moving = asyncio.Event()

    def event(kind: str, found: Json) -> bytes:
        return json.dumps({"type": kind, "object": found}).encode() + b"\n"

    async def well(request: web.Request) -> web.Response | None:
        asked[request.method] += 1
        await moving.wait()
        if state["mode"] == "503":
            return web.json_response({"kind": "Status", "code": 503, "reason": "ServiceUnavailable"}, status=503)
        return None

    async def listed(request: web.Request) -> web.StreamResponse:
        if (refusal := await well(request)) is not None:
            return refusal
        if request.query.get("watch") not in ("true", "True"):
            items = [service(n, n + 1) for n in range(services)]
            metadata = {"resourceVersion": str(next(versions))}
            return web.json_response({"kind": "ServiceList", "apiVersion": "v1", "metadata": metadata, "items": items})
        answer = web.StreamResponse()
        await answer.prepare(request)
        if state["mode"] == "gone" and request.query.get("resourceVersion"):
            state["mode"] = "well"
            await answer.write(event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}))
            return answer
        if "sendInitialEvents" in request.query:
            for number in range(services):
                await answer.write(event("ADDED", service(number, number + 1)))
            ends = {"k8s.io/initial-events-end": "true"}
            metadata = {"resourceVersion": str(next(versions)), "annotations": ends}
            await answer.write(event("BOOKMARK", {"kind": "Service", "apiVersion": "v1", "metadata": metadata}))
        watchers.add(queue := asyncio.Queue())
        while (line := await queue.get()) is not None:
            await answer.write(line)
        watchers.discard(queue)
        return answer

    async def lease(request: web.Request) -> web.Response:
        await moving.wait()
        name = request.match_info.get("name", "")
        if request.method == "GET" and name not in leases:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        if request.method != "GET":
            body = await request.json()
            body["metadata"] = {**body["metadata"], "resourceVersion": str(next(versions))}
            name = body["metadata"]["name"]
            leases[name] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **body}
        return web.json_response(leases[name])

    async def do(request: web.Request) -> web.Response:
        word, before = await request.text(), dict(asked)
        if word == "change":
            for number in range(services):
                for queue in watchers:
                    queue.put_nowait(event("MODIFIED", service(number, next(versions))))
        elif word in ("stand still", "go on"):
            moving.clear() if word == "stand still" else moving.set()
        else:
            state["mode"] = word
            asked.clear()
            for queue in watchers:
                queue.put_nowait(None)
        return web.json_response(before)

    async def run() -> None:
        moving.set()
        app = web.Application()
        app.router.add_get("/api/v1/services", listed)
        app.router.add_post(LEASES, lease)
        app.router.add_get(LEASES + "/{name}", lease)
        app.router.add_put(LEASES + "/{name}", lease)
        app.router.add_post("/do", do)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", PORT).start()
        await asyncio.Event().wait()

    asyncio.run(run())


def do(word: str) -> Json:
    found: Json = json.load(urllib.request.urlopen(urllib.request.Request(f"{URL}/do", word.encode())))  # noqa: S310
    return found


@contextmanager
def serving(services: int) -> Iterator[None]:
    server = subprocess.Popen(
        [sys.executable, __file__, "--services", str(services), "--role", "server"], stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(100):
            with suppress(OSError):
                do("well")
                break
            time.sleep(0.1)
        yield
    finally:
        server.kill()
        server.wait()


# ── Mirrors ──


def resident() -> float:
    """MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def until(done: Callable[[], bool], seconds: float = 120.0) -> None:
    ends = time.monotonic() + seconds
    while not done():
        if time.monotonic() > ends:
            raise SystemExit("it never came to that")
        time.sleep(0.02)


def measured(heard: Counter[str], services: int, base: float) -> Json:
    """Of the mirror that counts in ``heard``, and runs in another thread."""
    until(lambda: heard["new"] >= services)
    found: Json = {"list_cpu_s": time.process_time(), "held_mb": resident() - base}
    do("change")
    until(lambda: heard["changed"] >= services)
    found["changes_cpu_s"] = time.process_time() - found["list_cpu_s"]
    do("503")
    time.sleep(TROUBLE)
    found["requests_in_2_s_of_503"] = do("gone").get("GET", 0)
    before, cpu = heard["changed"], time.process_time()
    time.sleep(TROUBLE)
    do("change")
    until(lambda: heard["changed"] > before)
    found["after_410_cpu_s"] = time.process_time() - cpu
    return found


def official_mirror(services: int) -> Json:
    from kubernetes import client
    from kubernetes.informer import SharedInformer

    configuration = client.Configuration()
    configuration.host = URL
    client.Configuration.set_default(configuration)
    base, heard = resident(), Counter[str]()
    informer = SharedInformer(client.CoreV1Api().list_service_for_all_namespaces)
    informer.add_event_handler("ADDED", lambda _: heard.update(["new"]))
    informer.add_event_handler("MODIFIED", lambda _: heard.update(["changed"]))
    start = time.process_time()
    informer.start()
    found = measured(heard, services, base)
    return {**found, "list_cpu_s": found["list_cpu_s"] - start}


def our_mirror(services: int) -> Json:
    from speaker.api.kinds import SERVICES, AssignedObject
    from speaker.cluster.access import Server
    from speaker.cluster.client import Client
    from speaker.cluster.feed import Resource
    from speaker.cluster.reflector import Reflector

    base, heard = resident(), Counter[str]()

    async def mirror() -> None:
        async with Client(Server(URL)) as client:

            def hear(changes: Any) -> None:
                heard["new"] += sum(change.before is None for change in changes)
                heard["changed"] += sum(None not in (change.before, change.after) for change in changes)

            hears = SimpleNamespace(failed=print, doubted=print)
            await Reflector(client, Resource(SERVICES, AssignedObject), hear, hears).run()

    start = time.process_time()
    threading.Thread(target=lambda: asyncio.run(mirror()), daemon=True).start()
    found = measured(heard, services, base)
    return {**found, "list_cpu_s": found["list_cpu_s"] - start}


# ── Elections ──


def official_election(_: int) -> Json:
    from kubernetes import client
    from kubernetes.leaderelection import electionconfig, leaderelection
    from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

    configuration = client.Configuration()
    configuration.host = URL
    client.Configuration.set_default(configuration)
    leads, ended = threading.Event(), threading.Event()
    config = electionconfig.Config(
        LeaseLock("official", "default", "me"),
        lease_duration=LEASE_SECONDS,
        renew_deadline=RENEW_WITHIN,
        retry_period=RETRY,
        onstarted_leading=leads.set,
        onstopped_leading=ended.set,
    )
    threading.Thread(target=leaderelection.LeaderElection(config).run, daemon=True).start()
    return led_for(leads.is_set, ended.is_set)


def our_election(_: int) -> Json:
    from speaker.cluster.access import Server
    from speaker.cluster.client import Client
    from speaker.cluster.lease import Election, LeaseName, Timing

    leads, ended = threading.Event(), threading.Event()

    async def work(_: Any) -> None:
        leads.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def lead() -> None:
        async with Client(Server(URL)) as client:
            timing = Timing(LEASE_SECONDS, RENEW_WITHIN, RETRY, RETRY)
            await Election(client, LeaseName("default", "ours"), "me", timing).lead(work)

    threading.Thread(target=lambda: asyncio.run(lead()), daemon=True).start()
    return led_for(leads.is_set, ended.is_set)


def led_for(leads: Callable[[], bool], ended: Callable[[], bool]) -> Json:
    until(leads)
    time.sleep(2 * RETRY)
    do("stand still")
    begun = time.monotonic()
    with suppress(SystemExit):
        until(ended, STILL)
    lasted = time.monotonic() - begun
    do("go on")
    return {"led_on_for_s": lasted if ended() else f"more than {STILL:g}", "lease_s": LEASE_SECONDS}


ROLES: dict[str, Callable[[int], Json]] = {
    "mirror, ours": our_mirror,
    "mirror, official": official_mirror,
    "election, ours": our_election,
    "election, official": official_election,
}


def loads() -> dict[str, Json]:
    """Of each import, in a process of its own: the least of three."""
    program = (
        "import time; begun = time.process_time()\n{}\n"
        "print(time.process_time() - begun, int(open('/proc/self/statm').read().split()[1]))"
    )
    found = {}
    for name, module in LOADED.items():
        code = program.format(f"import {module}" if module else "")
        runs = [subprocess.check_output([sys.executable, "-c", code], text=True).split() for _ in range(3)]
        pages = min(int(run[1]) for run in runs)
        found[name] = {"cpu_s": min(float(run[0]) for run in runs), "mb": pages * os.sysconf("SC_PAGESIZE") / 2**20}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--services", type=int, default=5000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--role", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role == "server":
        serve(args.services)
    elif args.role:
        print(json.dumps(ROLES[args.role](args.services)), flush=True)
        os._exit(0)  # threads of a client that hangs
    else:
        found: dict[str, Any] = {"loads": loads()}
        for role in ROLES:
            with serving(args.services):
                command = [sys.executable, __file__, "--services", str(args.services), "--role", role]
                ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
                found[role] = json.loads(ran.stdout) if ran.stdout else "it failed"
        print(json.dumps(found, indent=None if args.json else 2))


if __name__ == "__main__":
    main()
