"""What is retained: a status in, topics and payloads out. Pure.

A host's states come of what its status file says (``node/status.py``), a controller's of its decisions; here they get
their form. Where nothing changed the payload is the same, byte by byte: no time of telling is in it.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from speaker import __version__
from speaker.telemetry.mqtt.topics import Message, States, Topics

SERVICES = 1024
"""In one payload: as many as an Announcement names."""
PROBLEMS = 20
SENTENCE = 1024
"""Characters of one."""


class Use(Protocol):
    """Of the addresses of one family in one pool; ``allocator.assign.Usage`` is one."""

    @property
    def size(self) -> int: ...
    @property
    def used(self) -> int: ...
    @property
    def resting(self) -> int: ...


Pools = Mapping[str, Mapping[Any, Use]]
"""By name and family."""


def eip(
    topics: Topics, address: str, pool: str, services: Iterable[str], claim: Mapping[str, Any], conflict: str | None
) -> tuple[str, bytes]:
    """``claim``: ``holder`` (None: nobody), ``term``, and what else is known of it: ``since``, ``link``, ``mac``."""
    told = {"address": address, "pool": pool, "services": _services(services), **claim, "conflict": conflict}
    return topics.eip(address), _json(told)


def pools(topics: Topics, found: Pools) -> States:
    return {
        topics.pool(name): _json(
            {
                "pool": name,
                "families": {
                    str(family): {"size": use.size, "used": use.used, "resting": use.resting}
                    for family, use in families.items()
                },
            }
        )
        for name, families in found.items()
    }


def node(topics: Topics, name: str, state: str, held: int | None = None, problems: Iterable[str] = ()) -> States:
    """``state``: up, stopped, or lost, which the broker says for a node that it has lost. ``held``: EIPs."""
    told: dict[str, Any] = {"node": name, "state": state}
    if state == "up":
        told |= {"version": __version__, "eips": held, "problems": [each[:SENTENCE] for each in problems][:PROBLEMS]}
    return {topics.node(name): _json(told)}


def controller(topics: Topics, identity: str, state: str, **told: Any) -> States:
    """As ``node``, of the one that leads."""
    version = {"version": __version__} if state == "up" else {}
    return {topics.controller: _json({"controller": identity, "state": state, **version, **told})}


def shared(topics: Topics, told: Mapping[str, Any], conflicts: Mapping[str, str]) -> States:
    """Every EIP in use as a status says it, by what this host knows of its claim."""
    return dict(
        eip(topics, one["address"], one["pool"], one["services"], _claim(one), _sentence(conflicts.get(one["address"])))
        for one in told["eips"]
    )


def holds(topics: Topics, name: str, told: Mapping[str, Any]) -> States:
    """Those EIPs that this node answers for."""
    return dict(_holds(topics, name, told))


def _holds(topics: Topics, name: str, told: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    for one in told["eips"]:
        if one["claimed"]:
            claim = {key: value for key, value in _claim(one).items() if key != "holder"}
            hold = {"address": one["address"], "node": name, "services": _services(one["services"]), **claim}
            yield topics.hold(name, one["address"]), _json(hold)


def without_holder(eips: States, node: str) -> States:
    """The same, where ``node`` holds nothing any more."""
    return {topic: _unheld(payload, node) for topic, payload in eips.items()}


def _unheld(payload: bytes, node: str) -> bytes:
    told = msgspec.json.decode(payload)
    if told["holder"] != node:
        return payload
    return _json(
        {name: value for name, value in told.items() if name not in ("link", "mac", "since")} | {"holder": None}
    )


def _claim(one: Mapping[str, Any]) -> dict[str, Any]:
    """Link, MAC and since when are of this host's claim: they say nothing of another's."""
    claim: dict[str, Any] = {"holder": one["holder"], "term": one["term"]}
    if one["claimed"]:
        claim |= {name: one[name] for name in ("link", "mac") if name in one}
        if "since" in one:
            claim["since"] = rfc3339(one["since"])
    return claim


def rfc3339(seconds: float) -> str:
    """``seconds`` since 1970."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _services(found: Iterable[str]) -> list[str]:
    return sorted(found)[:SERVICES]


def _sentence(text: str | None) -> str | None:
    return text[:SENTENCE] if text is not None else None


def _json(told: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(told)


# ── From one to the other ──


def turn(before: States, after: States) -> Iterator[Message]:
    """What turns the retained state ``before`` into ``after``, and no more than that."""
    for topic in before:
        if topic not in after:
            yield Message(topic, b"", retain=True)
    for topic, payload in after.items():
        if before.get(topic) != payload:
            yield Message(topic, payload, retain=True)
