"""``crash``, ``cable``, ``freeze``, ``drain``, ``rejoin`` and ``partition``: something breaks, and the EIPs survive.

Every scenario works the same way. The speakers of all nodes share the EIPs; clients probe them all the time; something
happens to the node that holds most of them, or to the switch. When all nodes agree again, what the clients saw is
compared with the promise.
"""

import asyncio
import signal
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from speaker.lab.capture import Reply, moves
from speaker.lab.failover_result import (
    FailedOver,
    Instants,
    View,
    broken,
    broken_by_split,
    healed,
    promise_of,
    settle_ms,
    views,
)
from speaker.lab.lan import Stage
from speaker.lab.outage import Outage, echoing, flooding
from speaker.lab.request import Request
from speaker.lab.scene import EVERYBODY, LINK, OTHER_SIDE, Played, Scene
from speaker.lab.speakers import ELSEWHERE, POD_PORT, failover_manifests, holds_most, lab_eips, speakers
from speaker.lab.switch import cut, distrust, heal, mend, pull, split
from speaker.lab.timeline import Timeline, Tone, sentence
from speaker.model import IPAddress

#: Seconds that everything is watched after everybody agreed again, most of it because answers are waited for.
AFTERMATH = 1.0
FROZEN = 5.0
#: How long a speaker that starts may wait for the others' claims (``Parameters.sync``) after it wrote its first status.
BOOT = 1.5
#: Hellos a second of a stranger, and for how many seconds.
FLOOD, FLOODED, STRANGER = 10_000, 10.0, "gateway"
#: How long a switch stays in two after both sides agreed.
APART = 1.0


async def fail_over(request: Request, stage: Stage, linger: Callable[[], Awaitable[None]]) -> FailedOver:
    """Play one of ``SCENARIOS``; ``linger`` is awaited at its end, while everything still runs.

    Raises EdgeError (perhaps in a group) when speakers end early, or never agree.
    """
    topology = stage.lan.topology
    addresses = lab_eips(request.eips)
    stage.manifests.mkdir()
    (stage.manifests / "shared.yaml").write_text(failover_manifests(topology, (*addresses, ELSEWHERE)))
    pods = [stage.lan.namespace(pod) for node in topology.nodes for pod in topology.pods_of(node)]
    with echoing((pod, POD_PORT) for pod in pods):
        async with speakers(stage, request.hello_ms) as found:
            scene = Scene(stage, found, addresses, request.hello_ms)
            stage.timeline.say("lab", f"starts {len(topology.nodes)} speakers for {len(addresses)} EIPs")
            holders = await scene.settled()
            tell_holders(stage.timeline, holders)
            played = await SCENARIOS[request.scenario](scene, holders)
            result = _judge(request.scenario, scene, played)
            show(scene, played, result)
            await linger()
    return result


def _judge(scenario: str, scene: Scene, played: Played) -> FailedOver:
    promise = promise_of(scenario, scene.hello_ms)
    sides = [watch.seen() for watch in played.watches]
    found = tuple(view for seen in sides for view in views(seen, scene.names, played.instants, scene.hello_ms))
    if played.winners is None:
        problems = broken(promise, played.victim, found)
    else:
        assert played.instants.healed is not None
        after = healed(sides, played.winners, scene.names, played.instants.healed)
        problems = broken_by_split(promise, scene.hello_ms, found, after)
    nodes = len(scene.stage.lan.topology.nodes)
    return FailedOver(scenario, nodes, scene.hello_ms, played.victim, promise, found, (*played.problems, *problems))


# ── the scenarios ─────────────────────────────────────────────────────────────────────────────────────────────


async def crash(scene: Scene, holders: Mapping[IPAddress, str]) -> Played:
    """A machine dies: its speaker and its forwarding at once, and its switch port keeps the carrier."""
    victim = holds_most(holders)
    async with scene.watching(*EVERYBODY, holders) as watch:
        at = await _kill(scene, victim)
        await scene.settled()
        await asyncio.sleep(AFTERMATH)
    return Played(victim, Instants(at), (watch,))


async def _kill(scene: Scene, victim: str) -> float:
    at = scene.did(f"{victim} dies (SIGKILL, and its cable is cut)")
    # Only killed, the kernel there would go on forwarding for everybody who knows its MAC.
    await scene.do(cut, victim)
    scene.speakers.signal(victim, signal.SIGKILL)
    await scene.speakers.ended(victim)
    return at


async def cable(scene: Scene, holders: Mapping[IPAddress, str]) -> Played:
    """A cable is pulled, and the node's link loses its carrier."""
    victim = holds_most(holders)
    async with scene.watching(*EVERYBODY, holders) as watch:
        at = scene.did(f"pulls the cable of {victim}")
        await scene.do(pull, victim)
        await scene.settled([node for node in scene.speakers.running if node != victim])
        await asyncio.sleep(AFTERMATH)
    return Played(victim, Instants(at), (watch,))


async def freeze(scene: Scene, holders: Mapping[IPAddress, str]) -> Played:
    """A speaker stands still for five seconds, while requests queue up in its socket, and then goes on."""
    victim = holds_most(holders)
    async with scene.watching(*EVERYBODY, holders) as watch:
        at = scene.did(f"freezes the speaker of {victim} (SIGSTOP)")
        scene.speakers.signal(victim, signal.SIGSTOP)
        await asyncio.sleep(FROZEN)
        thawed = scene.did(f"lets the speaker of {victim} go on (SIGCONT)")
        scene.speakers.signal(victim, signal.SIGCONT)
        # It learns within one listening time; its status file is from before the freeze until then.
        await asyncio.sleep(AFTERMATH)
        await scene.settled()
    return Played(victim, Instants(at, thawed=thawed), (watch,))


async def drain(scene: Scene, holders: Mapping[IPAddress, str]) -> Played:
    """A speaker is asked to stop, and hands over before it does."""
    victim = holds_most(holders)
    async with scene.watching(*EVERYBODY, holders) as watch:
        at = scene.did(f"asks the speaker of {victim} to stop (SIGTERM)")
        scene.speakers.signal(victim, signal.SIGTERM)
        code = await scene.speakers.ended(victim)
        scene.did(f"the speaker of {victim} has ended with exit code {code}")
        await scene.settled()
        await asyncio.sleep(AFTERMATH)
    problems = () if code == 0 else (f"the speaker of {victim} ended with exit code {code}",)
    return Played(victim, Instants(at), (watch,), problems)


async def rejoin(scene: Scene, holders: Mapping[IPAddress, str]) -> Played:
    """A node that died comes back, and takes nothing."""
    victim = holds_most(holders)
    await _kill(scene, victim)
    holders = await scene.settled()
    async with scene.watching(*EVERYBODY, holders) as watch:
        at = scene.did(f"{victim} comes back")
        await scene.do(mend, victim)
        await scene.speakers.start(victim)
        await scene.settled()
        await asyncio.sleep(BOOT + AFTERMATH)
    return Played(victim, Instants(at), (watch,))


async def stranger(scene: Scene, holders: Mapping[IPAddress, str]) -> Played:
    """A node dies while somebody without the key replays, forges and invents hellos, ten thousand a second."""
    victim = holds_most(holders)
    # A replayed frame names a node as its sender. Without this the switch would send that node's traffic here, which no
    # speaker can help.
    await scene.do(distrust, STRANGER)
    async with scene.watching(*EVERYBODY, holders) as watch:
        async with flooding(scene.stage.lan.namespace(STRANGER), LINK, FLOOD) as flood:
            scene.did(f"a stranger floods the LAN with {FLOOD} hellos a second")
            await asyncio.sleep(FLOODED / 2)
            at = await _kill(scene, victim)
            await scene.settled()
            await asyncio.sleep(FLOODED / 2)
        sent, few = len(flood.samples()), FLOOD * FLOODED / 2
        scene.did(f"the stranger has sent {sent} hellos")
        await asyncio.sleep(AFTERMATH)
    problems = () if sent >= few else (f"the stranger came to {sent} hellos only, not {few:.0f} and more",)
    return Played(victim, Instants(at), (watch,), problems)


async def partition(scene: Scene, holders: Mapping[IPAddress, str]) -> Played:
    """The switch falls in two, each half with a client and some of the nodes, and is put together again."""
    halves = _halves(scene.stage)
    async with scene.watching(*EVERYBODY, holders) as one, scene.watching(*OTHER_SIDE, holders) as other:
        at = scene.did(f"the switch falls in two: {', '.join(halves[0])} | {', '.join(halves[1])}")
        await scene.do(split, halves)
        for half in halves:
            await scene.settled([host for host in half if host in scene.speakers.running])
        await asyncio.sleep(APART)
        whole = scene.did("the switch is one again")
        await scene.do(heal)
        winners = await scene.settled()
        await asyncio.sleep(AFTERMATH)
    macs = {eip: scene.mac(node) for eip, node in winners.items()}
    return Played(None, Instants(at, healed=whole), (one, other), winners=macs)


def _halves(stage: Stage) -> tuple[list[str], list[str]]:
    nodes = stage.lan.topology.nodes
    half = (len(nodes) + 1) // 2
    return [*EVERYBODY, *nodes[:half]], [*OTHER_SIDE, *nodes[half:]]


_SCENARIOS = (crash, cable, freeze, drain, partition, rejoin, stranger)
SCENARIOS: Mapping[str, Callable[[Scene, Mapping[IPAddress, str]], Awaitable[Played]]] = {
    scenario.__name__: scenario for scenario in _SCENARIOS
}
"""By the name that ``--scenario`` has for it."""


# ── The story: who did what when, in one order, and a table of what it cost ──────────────────────────────────────────

#: What of the nodes' logs is part of the story.
TOLD = frozenset(
    {"started", "claimed", "withdrawn", "peer heard", "peer silent", "handing over", "frozen", "link lost"}
)


class Event(NamedTuple):
    at: float
    who: str
    what: str
    tone: Tone


def tell_holders(timeline: Timeline, holders: Mapping[IPAddress, str]) -> None:
    """Who holds what, a line for each node."""
    by_node: dict[str, list[str]] = defaultdict(list)
    for eip, node in holders.items():
        by_node[node].append(str(eip))
    for node, eips in sorted(by_node.items(), key=lambda one: (len(one[0]), one[0])):
        timeline.say(node, f"holds {', '.join(eips)}", Tone.EIP)


def show(scene: Scene, played: Played, result: FailedOver) -> None:
    """The story, the table, and what is wrong, if anything is."""
    tell(scene.stage.timeline, _lines(scene, played, result))
    scene.stage.timeline.table([_HEADING, *map(_row, result.views)])
    scene.stage.timeline.verdict(result.problems, summary(result) if result.ok else "")


def tell(timeline: Timeline, events: Iterable[Event]) -> None:
    """What happened, in order."""
    for event in sorted(events, key=lambda event: event.at):
        timeline.say(event.who, event.what, event.tone, event.at)


def happened(scene: Scene) -> Iterator[Event]:
    """What the lab did, and what the speakers said from then on."""
    for deed in scene.deeds:
        yield Event(deed.at, "lab", deed.what, Tone.BOLD)
    for told in scene.speakers.told:
        since = told.at >= scene.deeds[0].at
        if since and told.event.get("event") in TOLD and (said := sentence(told.event)) is not None:
            yield Event(told.at, told.node, *said)


def _lines(scene: Scene, played: Played, result: FailedOver) -> Iterator[Event]:
    begun = scene.deeds[0].at
    yield from happened(scene)
    for watch in played.watches:
        known = [Reply(begun, address, mac, unasked=True) for address, mac in watch.before.items()]
        announced = [reply for reply in watch.capture.replies() if reply.unasked and reply.at > begun]
        for move in moves([*known, *announced]):
            how = "gratuitous ARP" if move.address.version == 4 else "unsolicited NA"
            who = scene.names.get(move.mac, "a stranger")
            yield Event(move.at, watch.client, f"hears {how}: {move.address} is at {who}", Tone.DIM)
    for view in result.views:
        if view.outage.began is not None and view.outage.over:
            served = view.outage.began + (view.outage.ms + view.outage.unsure_ms) / 1000
            yield Event(
                served, view.neighbour, f"is answered by {view.address} again, after {_ms(view.outage)}", Tone.GOOD
            )


_HEADING = ("EIP", "SEEN BY", "BEFORE", "AFTER", "OUT FOR", "LOST", "NO ARP FOR", "TWICE ANSWERED")


def _row(view: View) -> tuple[str, ...]:
    return (
        str(view.address),
        view.neighbour,
        view.before,
        view.after,
        _ms(view.outage),
        f"{view.outage.lost} of {view.outage.sent}",
        "-" if view.silence is None else _ms(view.silence),
        str(view.duplicates),
    )


def _ms(outage: Outage) -> str:
    return f"{outage.ms:.0f} ms" if outage.over else "ever since"


def summary(result: FailedOver) -> str:
    """What was measured, when that is what was promised."""
    probes, requests = result.probes, result.requests
    lost = sum(view.outage.lost for view in result.views)
    told = [f"{max(result.outage_ms.values()):.0f} ms out at worst" if lost else f"none of {probes} probes lost"]
    if result.moved and not result.promise.lossless:
        told.append(f"never longer without any answer than {result.longest_ms:.0f} ms")
        told[-1] += f" (promised: {result.promise.outage_ms:.0f})"
    told.append(f"{len(result.moved)} of {len(result.outage_ms)} EIPs moved")
    if result.superseded:
        told.append(f"answers of a node after its successor's: {result.superseded}")
    elif requests:
        but = f", but within {settle_ms(result.hello_ms):.0f} ms of the healing" if result.victim is None else ""
        told.append(f"to {requests} ARP requests no node answered after its successor{but}")
    return f"{result.scenario}: {'; '.join(told)}"
