"""What the failover scenarios work with: speakers that share EIPs, a LAN to break, and neighbours that watch."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from speaker.lab.capture import Capture, capturing
from speaker.lab.failover_result import Instants, Observations
from speaker.lab.lan import Stage
from speaker.lab.outage import Asks, Probes, asking, outages, probing
from speaker.lab.speakers import ECHO_PORT, Speakers
from speaker.model import IPAddress, Mac
from speaker.system.threads import in_thread

#: Where the nodes announce the EIPs.
LINK = "eth0"
#: Seconds between two ARP requests for one EIP; on a busy machine an answer may take as long.
ASK_INTERVAL = 0.02
#: Seconds that everything is watched before something happens.
CALM = 0.5
#: Who probes, and who asks by ARP: not the same host, because its neighbour table would learn from the answers.
EVERYBODY = ("client", "host1")
OTHER_SIDE = ("client2", "gateway")


@dataclass(frozen=True, slots=True)
class Watch:
    """A neighbour's eyes, from ``since`` on, when ``before`` held the EIPs."""

    client: str
    probes: Probes
    capture: Capture
    asks: Asks
    since: float
    before: Mapping[IPAddress, Mac]

    def seen(self) -> Observations:
        """Answers to the client's own questions and to those of the host that asks all the time, and what was announced
        to everybody."""
        answers = [reply for reply in self.asks.replies() if not reply.unasked]
        replies = sorted((*answers, *self.capture.replies()), key=lambda reply: reply.at)
        return Observations(
            neighbour=self.client,
            replies=[reply for reply in replies if reply.at >= self.since],
            outages=outages(self.probes.samples(self.since)),
            silences=outages(self.asks.samples(self.since), ASK_INTERVAL),
            before=self.before,
        )


@dataclass(frozen=True, slots=True)
class Deed:
    """What the lab did; ``at``: CLOCK_MONOTONIC seconds."""

    at: float
    what: str


@dataclass(frozen=True, slots=True)
class Played:
    """``victim``: the node that it happened to, None: the switch; ``problems`` that no neighbour saw; ``winners``: who
    holds the EIPs after two did."""

    victim: str | None
    instants: Instants
    watches: tuple[Watch, ...]
    problems: tuple[str, ...] = ()
    winners: Mapping[IPAddress, Mac] | None = None


@dataclass
class Scene:
    """``names``: which node has which MAC; ``deeds`` are for the story."""

    stage: Stage
    speakers: Speakers
    eips: tuple[IPAddress, ...]
    hello_ms: int
    names: Mapping[Mac, str] = field(init=False)
    deeds: list[Deed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = {self.mac(node): node for node in self.stage.lan.topology.nodes}

    def mac(self, node: str) -> Mac:
        return self.stage.lan.topology.host(node).mac(LINK)

    def did(self, what: str) -> float:
        """Note it, for the story; returns when that was: now."""
        at = time.monotonic()
        self.deeds.append(Deed(at, what))
        return at

    async def do(self, fault: Callable[..., None], *arguments: object) -> None:
        """Bring about a fault of the LAN, in a thread."""
        await in_thread(fault, self.stage.lan, *arguments)

    async def settled(self, nodes: Collection[str] | None = None) -> dict[IPAddress, str]:
        """Wait until every EIP has one holder among ``nodes`` (None: all whose speaker runs)."""
        return await self.speakers.settled(self.eips, nodes)

    @asynccontextmanager
    async def watching(self, client: str, asker: str, holders: Mapping[IPAddress, str]) -> AsyncIterator[Watch]:
        """``client`` probes every EIP and ``asker`` asks for those of IPv4, until the end of the block. It begins when
        all of them have answered."""
        lan = self.stage.lan
        asked = [eip for eip in self.eips if isinstance(eip, IPv4Address)]
        async with AsyncExitStack() as stack:
            capture = stack.enter_context(capturing(lan.namespace(client), LINK))
            asks = await stack.enter_async_context(asking(lan.namespace(asker), LINK, asked, ASK_INTERVAL))
            targets = [(eip, ECHO_PORT) for eip in self.eips]
            probes = await stack.enter_async_context(probing(lan.namespace(client), targets))
            await probes.answering(time.monotonic())
            since = time.monotonic()
            await asyncio.sleep(CALM)
            yield Watch(client, probes, capture, asks, since, {eip: self.mac(node) for eip, node in holders.items()})
