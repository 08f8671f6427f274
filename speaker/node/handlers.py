"""What the running speaker answers on its control socket: ``speaker drain|undrain|rebalance|status``, and what
``explain`` and ``doctor`` ask it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from speaker import __version__
from speaker.checks import grouped
from speaker.errors import EdgeError
from speaker.forwarding.changes import Change
from speaker.forwarding.forwarder import Forwarder
from speaker.forwarding.plan import Plan
from speaker.model import Family, Forwarding
from speaker.node.control import Handler, Message
from speaker.node.known import knowledge
from speaker.node.known.knowledge import MOST, Knowledge, an_address
from speaker.node.report import Report
from speaker.settings import PeerSettings
from speaker.wire.remote import Wire

_ALONE = "this speaker runs without --with-peers: there is nobody to share its EIPs with"

LOOK_SECONDS = 2.0
"""Limit for checking the kernel's forwarding, as whoever asks waits for it."""
ANEW_SECONDS = 0.5
"""Limit for the cheap checks. After that, the answer is what they found last."""
_STATUS = "node", "link", "alive", "draining", "loss", "loses", "patience_ms"


def handlers(
    node: str,
    own: PeerSettings | None,
    wire: Wire,
    report: Report,
    forwarder: Forwarder,
    look: Callable[[], Awaitable[None]],
    *,
    cluster: bool,
) -> dict[str, Handler]:
    """The handlers by command; each yields objects, the last one with ``done`` or ``error``. ``look`` repeats the cheap
    checks. ``cluster``: an API, not files, says what is wanted."""

    async def status(_: Message) -> AsyncIterator[Message]:
        told: dict[str, Any] = {"done": True, "node": node, "draining": wire.draining, "eips": [], "alone": own is None}
        told |= report.health()[1]
        if (in_force := report.in_force) is not None:
            told |= report.status(in_force, await wire.claim_statuses(in_force.decision.eips))
            told["eips"] = [eip | report.seen(eip["address"]) for eip in told["eips"]]
        yield told | {"peers": [{name: getattr(peer, name) for name in _STATUS} for peer in await wire.peers()]}

    async def facts(command: Message) -> AsyncIterator[Message]:
        with suppress(TimeoutError):
            async with asyncio.timeout(ANEW_SECONDS):
                await look()
        known = await know(node, own, wire, report, forwarder, str(command.get("about", "")))
        yield {"done": True, "knowledge": msgspec.to_builtins(replace(known, cluster=cluster))}

    async def drain(_: Message) -> AsyncIterator[Message]:
        left = []
        async for address, to in wire.drain():
            if to is None:
                left.append(str(address))
            yield {"eip": str(address), "to": to}
        yield {"done": True, "left": left}

    async def undrain(_: Message) -> AsyncIterator[Message]:
        await wire.set_draining(False)
        yield {"done": True}

    async def rebalance(_: Message) -> AsyncIterator[Message]:
        told: dict[str, Any] = {"planned": 0, "moved": 0, "refused": 0, "preferred": 0}
        async for state in wire.rebalance():
            told = {name: getattr(state, name) for name in told}
            yield told
        yield told | {"done": True}

    async def refuse(_: Message) -> AsyncIterator[Message]:
        yield {"error": _ALONE}

    shared: dict[str, Handler] = {"drain": drain, "undrain": undrain, "rebalance": rebalance}
    return {"facts": facts, "status": status} | (shared if own is not None else dict.fromkeys(shared, refuse))


async def know(
    node: str, own: PeerSettings | None, wire: Wire, report: Report, forwarder: Forwarder, about: str = ""
) -> Knowledge:
    """What this node knows about ``about`` (as in ``knowledge.eips_of``) and about itself."""
    peers, problems = await wire.peers(), report.findings()
    known = Knowledge(
        node=node,
        version=__version__,
        forwarder=forwarder.name,
        hello_ms=round(own.hello * 1000) if own is not None else 0,
        ethertype=own.ethertype if own is not None else 0,
        draining=wire.draining,
        hands_over=own is not None and own.hands_over(Forwarding(forwarder.name)),
        ready=report.health()[0],
        peers=tuple(map(knowledge.known_peer, peers)),
        rejected=tuple(knowledge.Rejected(*each) for each in report.noted.rejected()),
    )
    if (found := report.in_force) is None:
        return replace(known, problems=tuple(problems))
    pending = await _pending(forwarder, found.decision.forwarding)
    eips = knowledge.eips_of(found, about)
    services = knowledge.services_of(found, about, eips)
    pools = knowledge.pools_of(found, about, eips, services)
    statuses = await wire.claim_statuses(eips[:MOST])
    histories = {address: report.noted.history(address) for address in eips[:MOST]}
    if about:
        told = [each for each in problems if not each.eip or an_address(each.eip) in eips]
    else:
        told = grouped(problems, len(found.decision.eips), len(problems))
    return replace(
        known,
        in_force=True,
        problems=tuple(told),
        eips=knowledge.cut(
            eips,
            lambda address: knowledge.known_eip(found, address, statuses[address], histories[address], peers, pending),
        ),
        services=knowledge.cut(services, lambda key: knowledge.known_service(found, key)),
        pools=knowledge.cut(pools, lambda name: knowledge.known_pool(found, name)),
        links=tuple(sorted({eip.link.name for eip in found.decision.may_hold().values()})),
        families=tuple(sorted({Family.of(address).value for address in found.decision.eips})),
    )


async def _pending(forwarder: Forwarder, plan: Plan) -> tuple[Change, ...]:
    """What the kernel's forwarding lacks; nothing if the kernel does not answer in time."""
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return await forwarder.pending(plan)
    except (EdgeError, TimeoutError):
        return ()
