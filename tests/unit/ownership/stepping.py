"""Steps of one node's ownership machine on one link, beside a peer that a test speaks for."""

from collections.abc import Callable
from ipaddress import IPv4Address
from typing import TypeVar

from speaker.ownership.events import (
    Ask,
    EligibilityChanged,
    FrameHeard,
    HelloHeard,
    LinkChanged,
    Order,
    SendHello,
    Tick,
)
from speaker.ownership.hello import EVERYTHING, Digest, Heard, Hello, Incarnation
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.score import claim_hash

LINK = 2
EIP = IPv4Address("10.0.0.1")
LIFE = Incarnation(7 << 31)
"""The peer's."""
Claims = dict[IPv4Address, int]


Machine = TypeVar("Machine", bound=Ownership)


def alone(eips: int = 1, api: bool = False, kind: Callable[..., Machine] = Ownership) -> Machine:
    """Eligible for ``eips`` addresses, from EIP on."""
    machine = kind("me", lambda above: Incarnation(((above >> 31) + 5) << 31), 0.0, api=api)
    machine.step(0.0, LinkChanged(LINK, up=True))
    for n in range(eips):
        machine.step(0.0, EligibilityChanged(EIP + n, LINK))
    return machine


def timed(machine: Ownership, start: float, end: float, *, hears: bool = False) -> list[tuple[float, Order]]:
    """Ticks whenever one is due; each order with its time. ``hears``: when it asks the LAN, somebody says something;
    otherwise nothing reaches it."""
    now, orders = start, []
    while (now := max(machine.next_wake(now), now + 1e-6)) <= end:
        orders += [(now, order) for order in machine.step(now, Tick())]
        if hears and any(isinstance(order, Ask) for at, order in orders if at == now):
            orders += [(now, order) for order in machine.step(now, FrameHeard(LINK))]
    return orders


def advance(machine: Ownership, start: float, end: float, *, hears: bool = False) -> list[Order]:
    """Ticks whenever one is due."""
    return [order for _, order in timed(machine, start, end, hears=hears)]


def hello(
    machine: Ownership, sequence: int, claims: Claims | None = None, node: str = "peer", **more: object
) -> HelloHeard:
    """A whole one, that has heard ``machine``; but for what ``more`` says."""
    claims = claims or {}
    total = sum(claim_hash(eip, term) for eip, term in claims.items()) % 2**64
    named: dict[str, object] = {
        "heard": {"me": Heard(machine.incarnation, 10, LINK)},
        "claims": claims,
        "covers": EVERYTHING,
        "digest": Digest(len(claims), total),
    }
    return HelloHeard(
        LINK, Hello(**{"node": node, "incarnation": LIFE, "sequence": sequence, "clock": 0, **named, **more})
    )


def beside(
    machine: Ownership,
    start: float,
    end: float,
    holdings: dict[str, Claims],
    *,
    hears: bool = False,
    **more: object,
) -> list[tuple[float, Order]]:
    """As ``timed``, while each of these nodes says a hello every 100 ms."""
    orders, rounds = [], round((end - start) * 10)
    for n in range(rounds):
        now = start + n / 10
        for at, (node, claims) in enumerate(holdings.items()):
            said = hello(machine, round((now + 1) * 1000) + at, claims, node, **more)
            orders += [(now, order) for order in machine.step(now, said)]
        orders += timed(machine, now, min(now + 0.1, end) - 1e-6, hears=hears)
    return orders


def of_kind(orders: list[tuple[float, Order]], kind: type) -> list[tuple[float, Order]]:
    return [(at, order) for at, order in orders if isinstance(order, kind)]


def said(orders: list[tuple[float, Order]]) -> list[tuple[float, Hello]]:
    return [(at, order.hello) for at, order in orders if isinstance(order, SendHello)]
