"""What an agent's record may say: the CRD refuses the rest, and so does whoever reads a record. Pure.

A thief of an agent's token writes records, and what they say is shown to others: in Events, logs and pages. So none of
it is free text. It is a word of ours, an address, or a name.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from speaker.api.metadata import LABEL, SUBDOMAIN

REASONS: Final = (
    *("better_claim", "deaf", "drained", "frozen", "ineligible", "internal_error", "link_down", "name_clash"),
    *("peers_address", "unanswered"),
    *("host_address", "no_local_endpoint", "node_excluded", "node_not_selected", "not_forwarded", "pool_unknown"),
    *("dummy", "loopback", "no_arp", "no_carrier", "no_route", "no_subnet", "no_such_link", "not_ethernet", "port"),
    "route_refuses",
)
"""Why the last holder let an EIP go: ``Yielded``, ``Ineligible`` and ``UnresolvedReason``."""

NODE: Final = SUBDOMAIN.pattern
SERVICE: Final = f"{LABEL.pattern}/{LABEL.pattern}"
IN_ONE_LINE: Final = rf"{SERVICE}(,{SERVICE}){{0,2}}( \+ [0-9]{{1,4}} more)?"
"""As ``kinds.in_one_line`` has Services."""
MAC: Final = "([0-9a-f]{2}:){5}[0-9a-f]{2}"
TIME: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,18}(Z|[+-][0-9:]{5})"
LINK: Final = r"[^/\pZ\pC]{1,15}"
"""As the API server spells it: no '/', no blank, nothing that cannot be printed."""
RIVAL: Final = f"{MAC}( on {LINK})?"

_LINK = r"[^\s/]{1,15}"


def _whole(pattern: str, most: int = 253) -> Callable[[str], bool]:
    found = re.compile(pattern)
    return lambda text: len(text) <= most and text.isprintable() and found.fullmatch(text) is not None


_SAYABLE: Final[Mapping[str, Callable[[str], bool]]] = {
    "holder": _whole(NODE),
    "taken_from": _whole(NODE),
    "link": _whole(_LINK),
    "mac": _whole(MAC),
    "since": _whole(TIME),
    "conflict": _whole(f"{MAC}( on {_LINK})?"),
    "reason": frozenset(REASONS).__contains__,
}


def sayable(field: str, text: str) -> str:
    """``text``, or '' where none of us says that in this field."""
    return text if not text or _SAYABLE[field](text) else ""


class Said(msgspec.Struct, frozen=True, gc=False):
    """Part of a record. What none of us says in a field is not there."""

    def __post_init__(self) -> None:
        for name in _SAYABLE.keys() & self.__struct_fields__:
            msgspec.structs.force_setattr(self, name, sayable(name, getattr(self, name)))
