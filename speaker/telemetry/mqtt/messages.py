"""What is published, and on which topic: retained states, and passing events. Pure.

``v1`` in the topics is the version of the payloads: fields keep their meaning, and new ones may be added.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

import msgspec

from speaker import __version__
from speaker.model import Family, Usage, events, format_mac

VERSION = "v1"

STATE_SECONDS = 3600
"""For which a broker keeps a state that nobody says again: those of a node that never returns expire."""
EVENT_SECONDS = 3600
"""For which a broker keeps an event for a subscriber that is away."""

States: TypeAlias = Mapping[str, bytes]
"""Topic → payload, of what is retained."""


class Message(NamedTuple):
    """``payload`` b'' clears what is retained."""

    topic: str
    payload: bytes
    retain: bool

    @property
    def expiry(self) -> int | None:
        """Seconds; None: never. What clears a topic is kept nowhere."""
        if not self.retain:
            return EVENT_SECONDS
        return STATE_SECONDS if self.payload else None


class Topics(NamedTuple):
    """``all_…`` are filters: they match every topic of a kind."""

    prefix: str

    def eip(self, address: str) -> str:
        return self._of("eips", address)

    def pool(self, name: str) -> str:
        return self._of("pools", name)

    def node(self, name: str) -> str:
        return self._of("nodes", name)

    def hold(self, node: str, address: str) -> str:
        return self._of("nodes", node, "eips", address)

    def event(self, kind: str) -> str:
        return self._of("events", kind)

    @property
    def controller(self) -> str:
        return self._of("controller")

    @property
    def all_eips(self) -> str:
        return self._of("eips") + "/+"

    @property
    def all_pools(self) -> str:
        return self._of("pools") + "/+"

    def all_holds(self, node: str) -> str:
        return self._of("nodes", node, "eips") + "/+"

    def _of(self, *levels: str) -> str:
        return "/".join((self.prefix, VERSION, *map(_level, levels)))


def _level(name: str) -> str:
    """Nothing in a name is a separator or a wildcard."""
    return quote(name, safe=":@")


# ── What is retained ──────────────────────────────────────────────────────────────────────────────────────────
#
# A host's states come of what its status file says (``node/status.py``), a controller's of its decisions; here they get
# their form. Where nothing changed the payload is the same, byte by byte: no time of sending is in it.

SERVICES = 1024
"""In one payload: as many as an Announcement names."""
PROBLEMS = 20
SENTENCE = 1024
"""Characters of one."""


Pools: TypeAlias = Mapping[str, Mapping[Family, Usage]]
"""By name and family."""


def eip(
    topics: Topics, address: str, pool: str, services: Iterable[str], claim: Mapping[str, Any], conflict: str | None
) -> tuple[str, bytes]:
    """``claim``: ``holder`` (None: nobody), ``term``, and what else is known of it: ``since``, ``link``, ``mac``."""
    sentence = conflict and conflict[:SENTENCE]
    said = {"address": address, "pool": pool, "services": _services(services), **claim, "conflict": sentence}
    return topics.eip(address), _json(said)


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
    said: dict[str, Any] = {"node": name, "state": state}
    if state == "up":
        said |= {"version": __version__, "eips": held, "problems": [each[:SENTENCE] for each in problems][:PROBLEMS]}
    return {topics.node(name): _json(said)}


def controller(topics: Topics, identity: str, state: str) -> States:
    """As ``node``, of the one that leads."""
    version = {"version": __version__} if state == "up" else {}
    return {topics.controller: _json({"controller": identity, "state": state, **version})}


def shared(topics: Topics, status: Mapping[str, Any], conflicts: Mapping[str, str]) -> States:
    """Every EIP in use as a status says it, by what this host knows of its claim."""
    return dict(
        eip(topics, one["address"], one["pool"], one["services"], {"holder": one["holder"], **_claim(one)}, conflict)
        for one in status["eips"]
        for conflict in [conflicts.get(one["address"])]
    )


def holds(topics: Topics, node: str, status: Mapping[str, Any]) -> States:
    """Those EIPs that this node answers for."""
    return {
        topics.hold(node, one["address"]): _json(
            {"address": one["address"], "node": node, "services": _services(one["services"]), **_claim(one)}
        )
        for one in status["eips"]
        if one["claimed"]
    }


def without_holder(eips: States, node: str) -> States:
    """The same, but ``node`` no longer holds anything."""
    return {topic: _unheld(payload, node) for topic, payload in eips.items()}


def _unheld(payload: bytes, node: str) -> bytes:
    said = msgspec.json.decode(payload)
    if said["holder"] != node:
        return payload
    return _json({name: each for name, each in said.items() if name not in ("link", "mac", "since")} | {"holder": None})


def _claim(one: Mapping[str, Any]) -> dict[str, Any]:
    """Link, MAC and since when are of this host's claim: they say nothing of another's."""
    claim: dict[str, Any] = {"term": one["term"]}
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


_json = msgspec.json.encode


def turn(before: States, after: States) -> Iterator[Message]:
    """The messages that turn the retained state ``before`` into ``after``, and no others."""
    for topic in before:
        if topic not in after:
            yield Message(topic, b"", retain=True)
    for topic, payload in after.items():
        if before.get(topic) != payload:
            yield Message(topic, payload, retain=True)


# ── What happens ──────────────────────────────────────────────────────────────────────────────────────────────


def event(topics: Topics, happened: object, by: str, at: float) -> Message | None:
    """``by``: the node, or the controller, that says so; ``at``: seconds since 1970. None: MQTT has no word for it."""
    if (found := _said(happened)) is None:
        return None
    kind, fields = found
    return Message(topics.event(kind), _json({"event": kind, "at": rfc3339(at), "by": by, **fields}), retain=False)


_KINDS: Mapping[type[events.Event], str] = {
    events.Assigned: "assigned",
    events.Released: "released",
    events.Refused: "refused",
    events.ConflictBegun: "conflict_begun",
    events.ConflictEnded: "conflict_ended",
    events.ApiAnswers: "api_back",
    events.EndpointUnwell: "endpoint_unwell",
    events.EndpointWell: "endpoint_well",
}
"""Events that are said by their own fields."""


def _said(happened: object) -> tuple[str, dict[str, Any]] | None:
    """Its kind, and what is said of it: docs/mqtt/v1/event.schema.json."""
    match happened:
        case events.EipClaimed(eip=eip, placement=placement, term=term, before=before):
            fields = {"link": placement.link.name, "mac": format_mac(placement.link.mac), "term": term, "from": before}
            return "taken", {"eip": str(eip), **fields, **happened.why}
        case events.EipYielded(eip=eip, reason=reason, holder=holder):
            return "let_go", {"eip": str(eip), "reason": reason, "to": holder}
        case events.PeerChanged(node=node, link=link, alive=alive):
            return "node_up" if alive else "node_down", {"node": node, "link": link.name}
        case events.ApiSilent():
            return "api_lost", {"message": events.API_SILENT}
        case events.Event() if (kind := _KINDS.get(type(happened))) is not None:
            return kind, {name: _text(getattr(happened, name)) for name in happened.__struct_fields__}
        case _:
            return None


def _text(value: object) -> str | list[str]:
    return [*map(str, value)] if isinstance(value, tuple) else str(value)[:SENTENCE]
