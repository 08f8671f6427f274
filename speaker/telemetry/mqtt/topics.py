"""What is said where: the topics below a prefix, and what a message is. Pure.

``v1`` in them is the version of the payloads: what is there keeps its meaning, and fields may be added.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from urllib.parse import quote

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


@dataclass(frozen=True, slots=True)
class Topics:
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
