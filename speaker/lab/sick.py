"""The scenarios of ``COURSES``: sick links, and nodes that stutter.

The speakers of all nodes share the EIPs; clients ask for each of them all the time; the switch spoils frames, or nodes
stall, as the scenario's ``Course`` says. Then what the clients saw is compared with the promise. ``suffer`` and
``judge`` know no more of the speakers than a ``Scene`` does, so the same is played with agents.
"""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack

from speaker.errors import EdgeError
from speaker.lab.failover import happened, tell, tell_holders
from speaker.lab.lan import Lan, Stage
from speaker.lab.namespaces import Namespace
from speaker.lab.outage import Asks, asking
from speaker.lab.request import Request, Trouble
from speaker.lab.scene import ASK_INTERVAL, CALM, LINK, Scene
from speaker.lab.sick_links import ClaimCount, Done, Endured, Line, Sight, Suffered, judge
from speaker.lab.sickness import COURSES, Course, Drop, Hold, Step, Ward
from speaker.lab.speakers import ELSEWHERE, Speakers, failover_manifests, fetched, holds_most, lab_eips, speakers
from speaker.lab.switch import Relay, delayed, holding, hosts_on, plug, pull, spoil
from speaker.lab.timeline import Tone, columns
from speaker.lab.topology import LAN, Topology
from speaker.model import IPAddress
from speaker.node.control import ask
from speaker.system.threads import in_thread

CLIENT, OTHER_CLIENT = "client", "client2"
ANSWERS = 10.0
"""Seconds within which every EIP is answered, and a speaker does what it is asked to."""
LEVEL = 60.0
"""And within which every node has a share: on a busy machine the last is ready long after the first."""
WELL = Step(0.0, "")
_CLAIMED = 'eip_speaker_claim_changes_total{change="claimed"} '


async def endure(request: Request, stage: Stage, linger: Callable[[], Awaitable[None]]) -> Endured:
    """Play one of ``COURSES``; ``linger`` is awaited at its end, while everything still runs.

    Raises EdgeError (perhaps in a group) when speakers end early, or never agree, or the switch cannot spoil frames.
    """
    topology, trouble = stage.lan.topology, request.trouble
    eips = lab_eips(request.eips)
    stage.manifests.mkdir()
    elsewhere = (ELSEWHERE,) if trouble.second_link else ()
    (stage.manifests / "shared.yaml").write_text(failover_manifests(topology, (*eips, *elsewhere)))
    always = lossy(topology, trouble.loss)
    await in_thread(spoil, stage.lan, always)
    async with AsyncExitStack() as stack:
        if trouble.delay:
            await in_thread(stack.enter_context, delayed(stage.lan, trouble.delay))
        found = await stack.enter_async_context(speakers(stage, request.hello_ms))
        scene = Scene(stage, found, eips, request.hello_ms)
        stage.timeline.say("lab", f"starts {len(topology.nodes)} speakers for {len(eips)} EIPs")
        holders = await _level(scene, found)
        tell_holders(stage.timeline, holders)
        course = COURSES[request.scenario](ward(topology, holds_most(holders), trouble, eips))
        result = judge(request.scenario, request.hello_ms, await suffer(scene, course, holders, always))
        show(scene, result)
        await linger()
    return result


async def _level(scene: Scene, found: Speakers) -> Mapping[IPAddress, str]:
    """Every node has a share, whoever started first: who holds what."""
    nodes = scene.stage.lan.topology.nodes
    deadline = time.monotonic() + LEVEL
    while len(set((holders := await scene.settled()).values())) < min(len(nodes), len(scene.eips)):
        if time.monotonic() > deadline:
            raise EdgeError(f"within {LEVEL:.0f} s not every node has taken a share of the EIPs")
        await in_thread(lambda: list(ask(found.running[nodes[0]].runtime_dir, "rebalance", ANSWERS)))
    return holders


def lossy(topology: Topology, percent: int) -> tuple[Drop, ...]:
    everybody = hosts_on(topology, LAN)
    return (Drop(everybody, everybody, percent=percent),) if percent else ()


def ward(topology: Topology, victim: str, trouble: Trouble, eips: Collection[IPAddress] = ()) -> Ward:
    """Everybody on the LAN, and its halves: the gateway and the one more node are in the first."""
    assert trouble.seconds is not None
    nodes = topology.nodes
    others = hosts_on(topology, LAN) - frozenset(nodes)
    half = (len(nodes) + 1) // 2
    other_side = others & {OTHER_CLIENT}
    sides = (others - other_side | frozenset(nodes[:half]), other_side | frozenset(nodes[half:]))
    return Ward(
        nodes,
        victim,
        others,
        trouble.seconds,
        trouble.after,
        trouble.carrier,
        sides,
        eips=tuple(map(str, eips)),
        hold=(trouble.hold or 0) / 1000,
        nodes_only=bool(trouble.only),
        stop=(trouble.stop or 0) / 1000,
        unicast=trouble.unicast,
    )


async def suffer(
    scene: Scene, course: Course, holders: Mapping[IPAddress, str], always: Sequence[Drop] = ()
) -> Suffered:
    """Let it happen, from the first step to the end of the course; ``always`` is dropped besides. Clients watch."""
    lan = scene.stage.lan
    clients = [host for host in (CLIENT, OTHER_CLIENT) if host in hosts_on(lan.topology, LAN)]
    async with AsyncExitStack() as stack:
        asks = {
            client: await stack.enter_async_context(asking(lan.namespace(client), LINK, scene.eips, ASK_INTERVAL))
            for client in clients
        }
        relays = await in_thread(_relays, stack, lan, course)
        await _answered(asks, scene.eips)
        since = time.monotonic()
        await asyncio.sleep(CALM)
        claimed = await in_thread(claims, scene)
        async with asyncio.TaskGroup() as tasks:
            steps = tasks.create_task(_perform(scene, course, always, relays), name="steps")
            counts = tasks.create_task(_count(scene, course, claimed), name="claims")
        end = time.monotonic()
    meanwhile, afterwards = counts.result()
    return Suffered(
        course=course,
        nodes=lan.topology.nodes,
        done=steps.result(),
        end=end,
        before=holders,
        sights=[
            Sight(client, [reply for reply in each.replies() if reply.at >= since], each.samples(since))
            for client, each in asks.items()
        ],
        names=scene.names,
        meanwhile=meanwhile,
        afterwards=afterwards,
    )


async def _answered(asks: Mapping[str, Asks], eips: Collection[IPAddress]) -> None:
    """Return when every client had an answer for every EIP."""
    deadline = time.monotonic() + ANSWERS
    while any(set(eips) - {reply.address for reply in each.replies()} for each in asks.values()):
        if time.monotonic() > deadline:
            raise EdgeError(f"before anything happened not every EIP was answered within {ANSWERS:.0f} s")
        await asyncio.sleep(CALM)


def _relays(stack: AsyncExitStack, lan: Lan, course: Course) -> Mapping[Hold, Relay]:
    """Made ready in good time, they hold nothing yet. Blocking."""
    wanted = {step.hold for step in course.steps if step.hold is not None}
    return {hold: stack.enter_context(holding(lan, hold)) for hold in wanted}


async def _perform(scene: Scene, course: Course, always: Sequence[Drop], relays: Mapping[Hold, Relay]) -> list[Done]:
    """Every step in its time. Nobody stands still at the end, however it comes."""
    begun = time.monotonic()
    done: list[Done] = []
    before = WELL
    try:
        for step in course.steps:
            await _until(begun + step.at)
            at = scene.did(step.what) if step.what else time.monotonic()
            await _change(scene, before, step, always, relays)
            before = step
            done.append(Done(step, at, time.monotonic()))
        await _until(begun + course.seconds)
    finally:
        _signal(scene, signal.SIGCONT, before.stopped)
    return done


async def _change(scene: Scene, before: Step, step: Step, always: Sequence[Drop], relays: Mapping[Hold, Relay]) -> None:
    """What ``step`` has other than the one before it."""
    _signal(scene, signal.SIGSTOP, step.stopped - before.stopped)
    _signal(scene, signal.SIGCONT, before.stopped - step.stopped)
    if step.drops != before.drops:
        await scene.do(spoil, [*always, *step.drops])
    for host in step.pulled - before.pulled:
        await scene.do(pull, host)
    for host in before.pulled - step.pulled:
        await scene.do(plug, host)
    if step.hold != before.hold:
        if before.hold is not None:
            await in_thread(relays[before.hold].release)
        if step.hold is not None:
            await in_thread(relays[step.hold].redirect)


def _signal(scene: Scene, number: signal.Signals, nodes: Collection[str]) -> None:
    for node in nodes:
        scene.speakers.signal(node, number)


async def _count(scene: Scene, course: Course, before: int) -> tuple[ClaimCount, ClaimCount]:
    """Claims of all nodes while it lasted, and from then on; where they are limited, until and from when they are."""
    begun = time.monotonic()
    mark, end = (course.healed, course.seconds) if course.claims is None else (course.claims.since, course.claims.until)
    await _until(begun + mark)
    marked, until_mark = await in_thread(claims, scene), time.monotonic()
    await _until(begun + end)
    after, ended = await in_thread(claims, scene), time.monotonic()
    return ClaimCount(marked - before, until_mark - begun), ClaimCount(after - marked, ended - until_mark)


async def _until(when: float) -> None:
    await asyncio.sleep(max(0.0, when - time.monotonic()))


def claims(scene: Scene) -> int:
    """How often EIPs were claimed since the speakers started, by their metrics. Blocking."""
    lan = scene.stage.lan
    return sum(_claims(lan.namespace(node)) for node in lan.topology.nodes)


def _claims(node: Namespace) -> int:
    try:
        lines = fetched(node, "/metrics", ANSWERS).decode().splitlines()
    except OSError as error:
        raise EdgeError(f"the speaker of {node.label} does not tell its metrics: {error}") from error
    return sum(int(float(line.removeprefix(_CLAIMED))) for line in lines if line.startswith(_CLAIMED))


# ── The story: who did what when, a table of what the clients saw, and what is promised of it ──────────────────


def show(scene: Scene, result: Endured) -> None:
    """The story, the table, and what is wrong, if anything is."""
    timeline = scene.stage.timeline
    tell(timeline, happened(scene))
    timeline.table([_HEADING, *map(_row, result.lines)])
    for row in columns(totals(result)):
        timeline.write(row)
    timeline.write()
    timeline.verdict(result.problems, "")
    tone, sign = (Tone.GOOD, "✓") if result.ok else (Tone.BAD, "✗")
    timeline.write(timeline.paint(f"{sign} {summary(result)}", tone))


_HEADING = ("EIP", "SEEN BY", "BEFORE", "AFTER", "MOVES", "TWICE ANSWERED FOR", "UNANSWERED FOR", "LOST")


def _row(line: Line) -> tuple[str, ...]:
    return (
        str(line.address),
        line.client,
        f"{line.before} (sick)" if line.sick else line.before,
        line.after,
        str(line.moves),
        f"{line.twice_ms:.0f} ms",
        f"{line.dark_ms:.0f} ms" if line.silence.over else "ever since",
        f"{line.silence.lost} of {line.silence.sent}",
    )


def totals(result: Endured) -> list[tuple[str, str]]:
    """What the issue asks for, as measured."""
    healthy, sick = result.eips(sick=False), result.eips(sick=True)
    most = _most(result)
    rows = [
        (
            "EIPs of healthy nodes that moved, each as a client saw it",
            f"{len(result.moved(sick=False))} of {len(healthy)}",
        ),
        ("EIPs of nodes out of a client's reach that moved", f"{len(result.moved(sick=True))} of {len(sick)}"),
        ("EIPs that left a healthy node, then or later", str(len(result.left))),
        ("EIPs that came to one of two holders at a heal", _settled(result)),
        (f"answered by two nodes, {most}", f"{result.twice_ms:.0f} ms"),
        (f"unanswered where a healthy node could, {most}", f"{result.worst.dark_ms:.0f} ms"),
    ]
    if result.course.claims is None:
        rows.append(("claims while it lasted", str(result.suffered.meanwhile)))
        rows.append(("claims after it", str(result.suffered.afterwards)))
    else:
        rows.append(("claims until the second flap was over", str(result.suffered.meanwhile)))
        rows.append(("claims from then on", str(result.suffered.afterwards)))
    return rows


def _settled(result: Endured) -> str:
    lines = {line.address: line for line in result.lines}
    elsewhere = [address for address in result.settled if lines[address].after != lines[address].before]
    return f"{len(result.settled)}, {len(elsewhere)} of them not to the one that had it before"


def summary(result: Endured) -> str:
    """What was measured, beside what is promised of it."""
    most, worst = _most(result), result.worst
    told = [
        f"{len(result.left)} EIPs left a healthy node" + (" (promised: 0)" if result.course.promise.still else ""),
        f"two answers for {result.twice_ms:.0f} ms {most} (promised: {result.twice_owed_ms:.0f})",
        f"no answer for {worst.dark_ms:.0f} ms {most} (promised: {worst.owed_ms:.0f})",
    ]
    if result.course.claims is not None:
        after = result.suffered.afterwards
        told.append(f"{after.number} claims in the {after.seconds:.0f} s after the second flap")
        told[-1] += f" (promised: {result.course.claims.most} in a minute)"
    return f"{result.scenario}: {'; '.join(told)}"


def _most(result: Endured) -> str:
    return "in sum at most" if result.course.promise.in_sum else "at most"
