"""What was noticed on a link, and the sentence that says it. Pure.

Names come from the LAN: nothing that a terminal would obey is ever part of a sentence.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from speaker.model import IPAddress, Mac, format_mac
from speaker.ownership.hello import Terms
from speaker.ownership.hellos.frames import Rejected
from speaker.tools.table import printable

SHOWN = 4
"""EIPs and names in one sentence; the rest is counted. JSON has all of them."""


class What(Enum):
    """The value is the event's name in JSON."""

    HELLO = "hello"
    """The first of a node's life; with ``--all`` every one."""
    STATE = "state"
    CLAIMS = "claims"
    RELEASES = "releases"
    SILENT = "silent"
    CLASH = "name clash"
    REJECTED = "rejected hello"
    ASKS = "asks"
    PROBES = "probes"
    ANSWERS = "answers"
    ANNOUNCES = "announces"
    USES = "uses"
    """Sends from an EIP as its own address."""
    MALFORMED = "malformed"


@dataclass(frozen=True, slots=True)
class Event:
    """``at``: seconds since 1970 by whoever captured it. ``node``: of ``mac``, by its hellos."""

    at: float
    what: What
    mac: Mac
    node: str | None = None
    verified: bool = False
    """By its tag; of hellos alone."""
    eips: Terms | None = None
    """Of claims and releases, with their terms."""
    address: IPAddress | None = None
    """That is asked about, or answered for."""
    sender: IPAddress | None = None
    """Whose address stands in the message, as the one who asks; None where it has none."""
    to: IPAddress | None = None
    """Who is answered."""
    holders: Mapping[str, int] | None = None
    """Living nodes that claim ``address``, with their terms."""
    alarm: bool = False
    """Nobody does that on a LAN that is well."""
    detail: str = ""
    vlan: int | None = None

    def as_json(self) -> dict[str, object]:
        told = {
            "time": round(self.at, 6),
            "event": self.what.value,
            "mac": format_mac(self.mac),
            "node": self.node,
            "verified": self.verified if self.what in _OF_HELLOS else None,
            "eips": None if self.eips is None else {str(eip): term for eip, term in self.eips.items()},
            "address": _text(self.address),
            "sender": _text(self.sender),
            "to": _text(self.to),
            "holders": None if self.holders is None else dict(self.holders),
            "alarm": self.alarm,
            "vlan": self.vlan,
            "sentence": sentence(self),
        }
        return {name: value for name, value in told.items() if value is not None}


_OF_HELLOS = frozenset({What.HELLO, What.STATE, What.CLAIMS, What.RELEASES, What.CLASH, What.REJECTED})
_CLAIMING = frozenset({What.ANSWERS, What.ANNOUNCES, What.USES})


def _text(address: IPAddress | None) -> str | None:
    return None if address is None else str(address)


def sentence(event: Event) -> str:
    """One line, of printable characters only."""
    words = f"{_who(event)} {_does(event)}"
    if event.vlan is not None:
        words += f" [VLAN {event.vlan}]"
    if event.what in _OF_HELLOS and event.what is not What.REJECTED and not event.verified:
        words += " [unverified]"
    return words


def _who(event: Event) -> str:
    mac = format_mac(event.mac)
    if event.node is not None:
        return printable(event.node)
    if event.what in _CLAIMING:
        return f"a STRANGER ({mac})" if event.alarm else "a host"
    return mac if event.sender is None else f"{event.sender} ({mac})"


def _does(event: Event) -> str:
    match event.what:
        case What.CLAIMS | What.RELEASES:
            return (
                f"{'claims' if event.what is What.CLAIMS else 'lets go of'} {_listed(event.eips or {})}{event.detail}"
            )
        case What.SILENT:
            held = f", and held {_listed(event.eips)}" if event.eips else ""
            return f"has been silent for {event.detail}{held}"
        case What.CLASH:
            return f"is the name of another host, too: {format_mac(event.mac)} says hello by it while the first lives"
        case What.ASKS:
            return f"asks who has {event.address}"
        case What.PROBES:
            return f"asks whether anybody has {event.address}, without an address of its own"
        case What.ANSWERS:
            whom = "" if event.to is None else f" {event.to}"
            return f"answers{whom}: {event.address} is at {format_mac(event.mac)}{_against(event)}"
        case What.ANNOUNCES:
            return f"announces {event.address} at {format_mac(event.mac)}{_against(event)}"
        case What.USES:
            return f"uses {event.address} as its own address{_against(event)}"
        case What.HELLO | What.STATE | What.REJECTED | What.MALFORMED:
            return event.detail


def _against(event: Event) -> str:
    """That it is another's, where it is."""
    holders = event.holders or {}
    if not holders or event.node in holders:
        return ""
    return (
        f", which {' and '.join(_few([f'{printable(node)} claims (term {term})' for node, term in holders.items()]))}"
    )


def _listed(terms: Terms) -> str:
    return ", ".join(_few([f"{eip} (term {term})" for eip, term in terms.items()]))


def _few(texts: list[str]) -> Iterator[str]:
    yield from texts[:SHOWN]
    if len(texts) > SHOWN:
        yield f"and {len(texts) - SHOWN} more"


def names(nodes: list[str]) -> str:
    return ", ".join(_few([printable(node) for node in nodes]))


REJECTIONS: Mapping[Rejected, str] = {
    Rejected.FOREIGN: "sends another protocol with the hellos' EtherType",
    Rejected.TRUNCATED: "sends a hello that is cut off",
    Rejected.OVERSIZED: "sends a hello that is longer than it says",
    Rejected.VERSION: "sends a hello of a version that this release does not read",
    Rejected.WRONG_KEY: "sends a hello that is signed with another key",
    Rejected.FORGED: "sends a FORGED hello: it names our key, and its signature is wrong",
    Rejected.MALFORMED: "sends a hello that breaks the format",
}
