"""``crash``, ``cable``, ``freeze``, ``drain``, ``rejoin`` and ``partition``: something happens, and the EIPs live on.

Every scenario goes the same way. The speakers of all nodes share the EIPs out; clients probe them without a pause;
something happens to the node that holds most of them, or to the switch; and when everybody agrees again, what the
clients saw is held against the promise.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping

from speaker.lab.breaking.faults import cut, distrust, heal, mend, pull, split
from speaker.lab.hosts.failover_manifests import ELSEWHERE, POD_PORT, failover_manifests, lab_eips
from speaker.lab.hosts.speakers import holds_most, speakers
from speaker.lab.request import Request
from speaker.lab.scenarios.failover_result import (
    FailedOver,
    Instants,
    broken,
    broken_by_split,
    healed,
    promise_of,
    views,
)
from speaker.lab.scenarios.failover_story import show, tell_holders
from speaker.lab.scenarios.scene import EVERYBODY, LINK, OTHER_SIDE, Played, Scene
from speaker.lab.stage import Stage
from speaker.lab.watching.outage import echoing, flooding
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
