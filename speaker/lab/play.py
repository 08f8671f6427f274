"""A lab from beginning to end: leave the host's network, build the LAN, play a scenario, and leave nothing behind."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from speaker.errors import EdgeError
from speaker.lab.failover import SCENARIOS, fail_over
from speaker.lab.lan import Lan, Outcome, Stage
from speaker.lab.namespaces import leave_host_network
from speaker.lab.practise import practise
from speaker.lab.reach import reach
from speaker.lab.request import Request
from speaker.lab.sick import endure
from speaker.lab.sickness import COURSES
from speaker.lab.timeline import Timeline, Tone
from speaker.lab.topology import lab_topology
from speaker.node.status import NAME as STATUS
from speaker.system.process import stopped_by_signals
from speaker.system.supervise import single
from speaker.tools.terminal import command, following

MANIFESTS = Path(__file__).parent / "manifests"


def play(request: Request, timeline: Timeline, keep: bool) -> Outcome:
    """Play what is asked for; with ``keep`` stay until SIGINT or SIGTERM. Call it before any thread or socket exists.

    Raises EdgeError when it cannot be played, CancelledError or KeyboardInterrupt when a signal ends it early.
    """
    in_user_namespace = leave_host_network()
    with Lan(lab_topology(request.nodes, request.clients)) as lan:
        who = "in a user namespace, without root" if in_user_namespace else "in namespaces of its own"
        timeline.say("lab", f"a LAN is up, {who}: {', '.join(host.name for host in lan.topology.hosts)}")
        return asyncio.run(_act(request, lan, timeline, keep, in_user_namespace))


async def _act(request: Request, lan: Lan, timeline: Timeline, keep: bool, in_user_namespace: bool) -> Outcome:
    task = asyncio.current_task()
    assert task is not None
    with stopped_by_signals(), tempfile.TemporaryDirectory(prefix="speaker-lab-") as name:
        stage = Stage(lan, timeline, Path(name), Path(name, "manifests"), request.responder)

        async def linger() -> None:
            running = sorted(each.parent for each in stage.directory.rglob(STATUS))
            for line in hints(request, lan, stage.manifests, running, keep, in_user_namespace):
                timeline.write(timeline.paint(line, Tone.DIM))
            if keep:
                with suppress(asyncio.CancelledError):  # a signal ends this wait alone
                    await asyncio.Event().wait()
                task.uncancel()

        try:
            return await _play(request, stage, linger)
        except ExceptionGroup as group:  # a task group's; what it expects is one EdgeError
            raise _edge_error(group) or group from None
    raise asyncio.CancelledError  # a signal ended it early


async def _play(request: Request, stage: Stage, linger: Callable[[], Awaitable[None]]) -> Outcome:
    if request.fault:
        return await practise(request.fault, stage, linger)
    if request.scenario in SCENARIOS:
        return await fail_over(request, stage, linger)
    if request.scenario in COURSES:
        return await endure(request, stage, linger)
    shutil.copytree(MANIFESTS, stage.manifests)
    return await reach(stage, linger)


def hints(
    request: Request, lan: Lan, manifests: Path, running: Sequence[Path], keep: bool, in_user_namespace: bool
) -> Iterator[str]:
    """What to try next. ``running``: runtime directories of the speakers, by node."""
    if not keep:
        if request.scenario == "reach":
            yield f"Its YAML is in {MANIFESTS}."
        yield "To look around on the LAN, and to end it when you like:"
        what = ("--fault", request.fault) if request.fault else ("--scenario", request.scenario)
        yield following("lab", *what, "--keep")
        return
    user = f"-t {os.getpid()} -U --preserve-credentials " if in_user_namespace else ""
    enter = {host.name: f"nsenter {user}--net={lan.namespace(host.name).path}" for host in lan.topology.hosts}
    question = "curl http://192.0.2.217/" if request.scenario == "reach" else "arping -c 3 -I eth0 192.0.2.200"
    yield "To look around, from another terminal: who answers, who says what on the LAN, what a node reports of itself."
    asked = {question: enter["client"], command("capture", "eth0"): enter["client"]}
    asked["curl http://127.0.0.1:9900/metrics"] = enter[_a_node(enter)]
    yield from (f"Next: {there} {words}" for words, there in asked.items() if works(words))
    yield from (f"Next: {command('status', '--runtime-dir', str(directory))}" for directory in running)
    yield "`speaker explain` and `doctor` take the same --runtime-dir, on the node that it is of."
    yield "The same words in front of any command run it on that host:"
    yield from (f"  {name}: {words}" for name, words in enter.items())
    if request.scenario == "reach":
        yield f"Change the YAML in {manifests} and see it applied here."
    yield f"Ctrl-C takes it all down, and so does: kill {os.getpid()}"


def works(words: str) -> bool:
    """What it takes is installed."""
    if " capture " in words:
        return find_spec("scapy") is not None
    return shutil.which(words.split()[0]) is not None


def _a_node(hosts: Iterable[str]) -> str:
    return next(name for name in hosts if name.startswith("node"))


def _edge_error(group: ExceptionGroup[Any]) -> BaseException | None:
    """The first EdgeError in ``group`` if that is all there is; anything else is a bug whose traceback must show."""
    errors = single(group)
    return errors[0] if all(isinstance(error, EdgeError) for error in errors) else None
