"""What the running speaker answers on its control socket: ``speaker drain|undrain|rebalance|status``."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from speaker.node.report import Report
from speaker.wire.remote import Wire

_Handler = Callable[[Mapping[str, Any]], AsyncIterator[Mapping[str, Any]]]

_ALONE = {"error": "this speaker runs without --with-peers: there is nobody to share its EIPs with"}


def handlers(node: str, alone: bool, wire: Wire, report: Report) -> dict[str, _Handler]:
    """By command; each yields objects, the last one with ``done`` or ``error``."""

    async def status(_: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        told: dict[str, Any] = {"done": True, "node": node, "draining": wire.draining, "eips": []}
        if (in_force := report.in_force) is not None:
            told |= report.status(in_force, await wire.claim_statuses(in_force.decision.eips))
        yield told | {"peers": [peer._asdict() for peer in await wire.peers()]}

    async def drain(_: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        if alone:
            yield _ALONE
            return
        left = []
        async for address, to in wire.drain():
            if to is None:
                left.append(str(address))
            yield {"eip": str(address), "to": to}
        yield {"done": True, "left": left}

    async def undrain(_: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        if alone:
            yield _ALONE
            return
        await wire.set_draining(False)
        yield {"done": True}

    async def rebalance(_: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        if alone:
            yield _ALONE
            return
        told: dict[str, Any] = {"planned": 0, "moved": 0, "refused": 0}
        async for state in wire.rebalance():
            told = {"planned": state.planned, "moved": state.moved, "refused": state.refused}
            yield told
        yield told | {"done": True}

    return {"status": status, "drain": drain, "undrain": undrain, "rebalance": rebalance}
