"""10,000 Services and a real kube-apiserver: what `speaker controller` takes to serve them all, and one more.

    python benchmarks/cluster_controller.py [--services N] [--json]

Services and EndpointSlices (3 endpoints each; the controller reads none) are created first. Then the controller starts
as a process of its own, as its ServiceAccount: seconds from its start until every Service has an EIP in its status, and
until it has nothing more to say. Its requests are counted from the API server's audit log. Memory is its process's; the
longest delay of its event loop is what it says itself, beside that of a process with nothing to do (the machine's part
in it) and the longest time that /healthz took to answer.

Then one more Service, 20 times, one at a time: from before the request that creates it until a watch shows its EIP.

What that is to be held against, from the same run: the same count of PATCHes of a Service's status by the same client,
16 at a time, and one create with its watch event, without any controller. Needs etcd and kube-apiserver where envtest
has them; run it on an idle machine.
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT / "tests" / "apiserver"))

from real_api import RealApi, _free_port, missing  # noqa: E402 (found by the line above)

from speaker.api.kinds import EIPS, ServiceObject  # noqa: E402
from speaker.cluster.access import Access, configure  # noqa: E402
from speaker.cluster.client import Client  # noqa: E402
from speaker.cluster.feed import Change, Resource  # noqa: E402
from speaker.cluster.reflector import Reflector  # noqa: E402
from speaker.errors import EdgeError  # noqa: E402

MANIFESTS = PROJECT / "manifests" / "base"
AT_A_TIME = 16
"""Requests, as the controller has."""
MORE = 20
"""Services that come one at a time."""
GUARD = 300.0
"""Seconds; against a hang."""
SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Metadata", "users": ["system:serviceaccount:eip-speaker:eip-speaker-controller"]},
        {"level": "None"},
    ],
}


def service(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": "eip-speaker.io/speaker",
            "allocateLoadBalancerNodePorts": False,
            "selector": {"app": name},
            "ports": [{"port": 80, "protocol": "TCP"}],
        },
    }


def endpoint_slice(name: str, at: int) -> dict[str, Any]:
    endpoints = [
        {"addresses": [f"10.{50 + each}.{at // 250}.{at % 250 + 1}"], "nodeName": f"node{each}", "conditions": {}}
        for each in range(3)
    ]
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints,
    }


async def in_parallel(jobs: Iterable[Callable[[], Awaitable[object]]]) -> float:
    """Seconds."""
    coming = iter(jobs)

    async def work() -> None:
        for job in coming:
            await job()

    begun = time.monotonic()
    async with asyncio.TaskGroup() as workers:
        for _ in range(AT_A_TIME):
            workers.create_task(work())
    return time.monotonic() - begun


class Served:
    """Names of the Services with an EIP, as a watch tells them."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.seen: set[str] = set()
        self.changed = asyncio.Event()

    async def watch(self, client: Client) -> None:
        await Reflector(client, Resource("/api/v1/services", ServiceObject), self._hear, self).run()

    def failed(self, what: str, error: EdgeError) -> None:
        print(f"{what}: {error}", file=sys.stderr)

    def doubted(self, *_: object) -> None:
        """Nothing waits without ``settle``."""

    def _hear(self, changes: tuple[Change[ServiceObject], ...]) -> None:
        for change in changes:
            if change.after is not None and change.key.name != "kubernetes":
                self.seen.add(change.key.name)
                if change.after.status.load_balancer.ingress:
                    self.names.add(change.key.name)
        self.changed.set()

    async def until(self, holds: Callable[[], bool]) -> float:
        """The instant."""
        async with asyncio.timeout(GUARD):
            while not holds():
                self.changed.clear()
                await self.changed.wait()
        return time.monotonic()


@dataclass
class Controller:
    process: asyncio.subprocess.Process
    metrics_url: str

    @classmethod
    async def start(cls, kubeconfig: Path, log: Path) -> "Controller":
        port = _free_port()
        flags = (f"--kubeconfig={kubeconfig}", f"--metrics=127.0.0.1:{port}", "--log-format=json")
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "speaker", "controller", *flags, stderr=out, cwd=PROJECT
            )
        return cls(process, f"http://127.0.0.1:{port}")

    def memory(self) -> tuple[float, float]:
        """MB now, and at most so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        now, most = (re.search(rf"{name}:\s+(\d+) kB", status) for name in ("VmRSS", "VmHWM"))
        assert now is not None
        assert most is not None
        return int(now[1]) / 1024, int(most[1]) / 1024

    def cpu(self) -> float:
        """Seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def ask(self, path: str) -> str:
        def get() -> str:
            with urllib.request.urlopen(f"{self.metrics_url}{path}", timeout=60) as answer:  # noqa: S310
                text: str = answer.read().decode()
                return text

        return await asyncio.to_thread(get)

    async def loop_delay(self) -> float:
        found = re.search(
            r"^eip_speaker_controller_loop_delay_max_seconds (\S+)", await self.ask("/metrics"), re.MULTILINE
        )
        assert found is not None
        return float(found[1])

    async def probe(self, slowest: list[float]) -> None:
        """Appends how long each answer took."""
        while True:
            begun = time.monotonic()
            with suppress(OSError):  # it is not up yet
                await self.ask("/healthz")
                slowest.append(time.monotonic() - begun)
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        self.process.terminate()
        await self.process.wait()


IDLE = """
import asyncio, sys
async def main():
    loop, longest = asyncio.get_running_loop(), 0.0
    ended = loop.run_in_executor(None, sys.stdin.read)
    while not ended.done():
        due = loop.time() + 0.02
        await asyncio.sleep(0.02)
        longest = max(longest, loop.time() - due)
    print(longest)
asyncio.run(main())
"""
"""An event loop with nothing to do: how late it is says how busy the machine was."""


@asynccontextmanager
async def idle_loop() -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """Its longest delay in seconds, once that is asked for."""
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", IDLE, **pipes)

    async def end() -> float:
        out, _ = await process.communicate(b"")  # closes its input
        return float(out)

    yield end
    if process.returncode is None:
        process.kill()
        await process.wait()


class Audit:
    """``counts``: ``verb resource`` → requests that were answered. Watches are told when they end; Leases left out."""

    def __init__(self, log: Path) -> None:
        self.counts: Counter[str] = Counter()
        self._log = log.open()
        self._rest = ""

    def read(self) -> int:
        """How many there are."""
        *lines, self._rest = (self._rest + self._log.read()).split("\n")
        for line in lines:
            entry = json.loads(line)
            what = entry["objectRef"]
            if what["resource"] != "leases":
                resource = "/".join(filter(None, (what["resource"], what.get("subresource"))))
                self.counts[f"{entry['verb']} {resource}"] += 1
        return self.counts.total()

    async def until_quiet(self) -> tuple[Counter[str], float]:
        """Once there was nothing for two seconds; and when the last came, give or take a tenth of a second."""
        known, changed_at = -1, time.monotonic()
        while time.monotonic() - changed_at < 2.0:
            if (now := self.read()) != known:
                known, changed_at = now, time.monotonic()
            await asyncio.sleep(0.1)
        return self.counts.copy(), changed_at


@asynccontextmanager
async def api_server(directory: Path) -> AsyncIterator[tuple[RealApi, Audit]]:
    policy, log = directory / "audit.yaml", directory / "audit.log"
    policy.write_text(json.dumps(AUDIT))
    log.touch()
    with RealApi(directory, f"--audit-policy-file={policy}", f"--audit-log-path={log}") as api:
        for file in ("namespaces.yaml", "controller-rbac.yaml"):
            api.kubectl("apply", "-f", str(MANIFESTS / file))
        api.kubectl("apply", "-k", str(MANIFESTS / "crds"))
        names = ("crd/eips.eip-speaker.io", "crd/announcements.eip-speaker.io")
        api.kubectl("wait", "--for=condition=established", *names)
        yield api, Audit(log)


async def measure(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="controller-") as name:
        async with api_server(Path(name)) as (api, audit), Client(await configure(Access(api.kubeconfig()))) as client:
            return await _measure(count, Path(name), api, audit, client)


async def _measure(count: int, directory: Path, api: RealApi, audit: Audit, client: Client) -> dict[str, Any]:
    names = [f"s{at}" for at in range(count)]
    create = await in_parallel(lambda name=name: client.create(SERVICES, service(name), within=GUARD) for name in names)
    await in_parallel(
        lambda at=at: client.create(SLICES, endpoint_slice(names[at], at), within=GUARD) for at in range(count)
    )
    pool = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": "lan"}}
    await client.create(EIPS, {**pool, "spec": {"addresses": ["10.200.0.0/15"]}})
    note = {"status": {"conditions": [_note()]}}
    floor = await in_parallel(
        lambda name=name: client.patch(f"{SERVICES}/{name}/status", note, within=GUARD) for name in names
    )

    served = Served()
    async with asyncio.TaskGroup() as tasks, idle_loop() as idle:
        watching = tasks.create_task(served.watch(client))
        await served.until(lambda: len(served.seen) == count)
        round_trips = await one_by_one(client, served, "empty", lambda name: name in served.seen, kind="ClusterIP")
        token = api.kubectl("create", "token", "eip-speaker-controller", "--namespace=eip-speaker", "--duration=1h")
        begun = time.monotonic()
        controller = await Controller.start(api.kubeconfig_with("controller", token), directory / "controller.log")
        probes: list[float] = []
        probing = tasks.create_task(controller.probe(probes))
        try:
            assigned = await served.until(lambda: len(served.names) == count) - begun
            requests, quiet_at = await audit.until_quiet()
            cpu, (rss, most) = controller.cpu(), controller.memory()
            busy_delay, busy_probe, idle_delay = await controller.loop_delay(), max(probes), await idle()
            more = await one_by_one(client, served, "more", lambda name: name in served.names)
            after, _ = await audit.until_quiet()
            found = {
                "services": count,
                "create_seconds": create,
                "patch_seconds": floor,
                "assigned_seconds": assigned,
                "quiet_seconds": quiet_at - begun,
                "controller_cpu_seconds": cpu,
                "requests": dict(requests),
                "requests_per_service": sum(requests.values()) / count,
                "requests_of_20_more": dict(after - requests),
                "rss_mb": rss,
                "peak_rss_mb": most,
                "rss_at_the_end_mb": controller.memory()[0],
                "loop_delay_max_ms": busy_delay * 1000,
                "loop_delay_max_at_the_end_ms": await controller.loop_delay() * 1000,
                "idle_loop_delay_max_ms": idle_delay * 1000,
                "slowest_healthz_ms": busy_probe * 1000,
                "one_more_ms": _spread(more),
                "create_and_watch_ms": _spread(round_trips),
                "log": (directory / "controller.log").read_text().splitlines()[:10],
            }
        finally:
            probing.cancel()
            watching.cancel()
            await controller.stop()
    return found


async def one_by_one(
    client: Client, served: Served, prefix: str, holds: Callable[[str], bool], kind: str = "LoadBalancer"
) -> list[float]:
    """Milliseconds from before each was created."""
    found = []
    for at in range(MORE):
        name = f"{prefix}{at}"
        body = service(name)
        if kind != "LoadBalancer":
            body["spec"] = {"ports": body["spec"]["ports"]}
        begun = time.monotonic()
        await client.create(SERVICES, body, within=GUARD)
        found.append((await served.until(lambda name=name: holds(name)) - begun) * 1000)
    return found


def _note() -> dict[str, str]:
    return {
        "type": "example.com/Seen",
        "status": "True",
        "reason": "Seen",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def _spread(milliseconds: list[float]) -> dict[str, float]:
    return {"p50": statistics.median(milliseconds), "worst": max(milliseconds)}


def told(found: dict[str, Any]) -> str:
    ratio = found["assigned_seconds"] / found["patch_seconds"]
    more, alone, requests = found["one_more_ms"], found["create_and_watch_ms"], found["requests_of_20_more"]
    return "\n".join(
        (
            f"{found['services']} Services",
            f"  all assigned              {found['assigned_seconds']:8.1f} s from the controller's start",
            f"  nothing more to say       {found['quiet_seconds']:8.1f} s (Events, the pool's counts)",
            f"  as many plain PATCHes     {found['patch_seconds']:8.1f} s, {AT_A_TIME} at a time: {ratio:.2f} times",
            f"  the controller's CPU      {found['controller_cpu_seconds']:8.1f} s",
            f"  requests per Service      {found['requests_per_service']:8.3f}   {found['requests']}",
            f"  memory                    {found['rss_mb']:8.0f} MB, at most {found['peak_rss_mb']:.0f} MB",
            f"  longest event-loop delay  {found['loop_delay_max_ms']:8.0f} ms; of an idle loop beside it "
            f"{found['idle_loop_delay_max_ms']:.0f} ms; slowest /healthz {found['slowest_healthz_ms']:.0f} ms",
            f"one more Service, {MORE} times",
            f"  until its EIP is seen     {more['p50']:8.0f} ms, worst {more['worst']:.0f} ms",
            f"  create and watch alone    {alone['p50']:8.0f} ms, worst {alone['worst']:.0f} ms",
            f"  requests                  {sum(requests.values()):8d}   {requests}",
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--services", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if why := missing():
        sys.exit(why)
    found = asyncio.run(measure(arguments.services))
    print(json.dumps(found, indent=2) if arguments.json else told(found))


if __name__ == "__main__":
    main()
