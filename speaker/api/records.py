"""Announcements and Leases: which fields of them are read, how they are named, and what they may say. Pure.

Agents write them, and so could somebody who has stolen an agent's token. What they say is shown to others, in Events,
logs and pages, so none of it is free text: it is a fixed word, an address, or a name. The CRD refuses the rest, and so
does every reader of a record.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import Final

import msgspec
from msgspec.structs import force_setattr

from speaker.api.fields import LABEL, SUBDOMAIN
from speaker.api.kinds import NAME, FullMetadata
from speaker.api.objects import Object, Repetitive
from speaker.model import IPAddress, rank

ANNOUNCEMENTS = "/apis/eip-speaker.io/v1alpha1/announcements"
"""The API has them here."""

FORWARDER = "eip-speaker.io/forwarder"
"""A label of an agent's session Lease: what its node forwards with."""
MISSES = "eip-speaker.io/misses"
"""An annotation of an agent's session Lease: the nodes that fell silent, as it hears. And a label of those Leases that
have it, so that who looks for them is told of no others."""
OTHER_GROUPS = "eip-speaker.io/other-groups"
"""Another: the addresses that other groups hold, as it hears. They are assigned to nobody."""
MAX_OF_GROUPS = 100
"""Addresses at most that one names; of more the first ones."""
MAX_MISSED = 100
"""Nodes at most that one names: where more fall silent, it is no node that died."""

REASONS: Final = (
    *("better_claim", "deaf", "drained", "frozen", "ineligible", "internal_error", "link_down", "name_clash"),
    *("peers_address", "unanswered"),
    *("host_address", "no_local_endpoint", "node_excluded", "node_not_selected", "not_forwarded", "other_group"),
    "pool_unknown",
    *("dummy", "loopback", "no_arp", "no_carrier", "no_route", "no_subnet", "no_such_link", "not_ethernet", "port"),
    *("route_refuses", "answers_elsewhere"),
)
"""Why the last holder gave an EIP up: ``Yielded``, ``Ineligible`` and ``UnresolvedReason``."""

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


# ── Announcements ─────────────────────────────────────────────────────────────────────────────────────────────


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


class Claim(Repetitive, frozen=True, rename="camel", gc=False):
    """What both the agents and the controller look at, as it is written there, by whomever."""

    REPEATED = ("holder", "link", "mac")

    holder: str = ""
    term: int = 0
    link: str = ""
    mac: str = ""
    conflict: str = ""
    reason: str = ""


class AnnouncementStatus(Claim, frozen=True, rename="camel", gc=False):
    incarnation: int = 0
    services: tuple[str, ...] = ()
    services_text: str = ""


class AnnouncementObject(Object, frozen=True, gc=False):
    """An Announcement, as an agent keeps it."""

    status: AnnouncementStatus = AnnouncementStatus()


class RecordedClaim(Claim, frozen=True, rename="camel", gc=False):
    """What none of us says in a field is not there."""

    since: str = ""
    taken_from: str = ""
    unanswered: int | None = msgspec.field(default=None, name="unansweredMilliseconds")
    """Since the last sign of the holder before, where that fell silent."""

    def __post_init__(self) -> None:
        for name in _SAYABLE:
            force_setattr(self, name, sayable(name, getattr(self, name)))
        super().__post_init__()


class RecordedObject(Object, frozen=True, gc=False):
    """An Announcement, as the controller keeps it."""

    status: RecordedClaim = RecordedClaim()


def announcement_name(eip: IPAddress) -> str:
    """The name of its Announcement: the address, with '-' for ':', which no object's name may have.

    IPv6 is written out in full, as a name must begin and end with a letter or digit (RFC 1123): ``2001:db8::`` could
    not be one.
    """
    return eip.exploded.replace(":", "-")


def announced_eip(name: str) -> IPAddress | None:
    """The other way; None for what ``announcement_name`` never returns: a name that none of us has given."""
    try:
        eip = IPv6Address(name.replace("-", ":")) if "-" in name else ip_address(name)
        return eip if announcement_name(eip) == name else None
    except ValueError:
        return None


# ── Leases ────────────────────────────────────────────────────────────────────────────────────────────────────


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    renew_time: str | None = None


class LeaseObject(Object, frozen=True, gc=False):
    metadata: FullMetadata
    spec: LeaseSpec = LeaseSpec()


def leases_in(namespace: str) -> str:
    """The path of the Leases of one namespace."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def misses_said(nodes: Collection[str]) -> str | None:
    """None: no such annotation, and no such label. A name that no Node can have is left out."""
    named = sorted(filter(NAME.fullmatch, nodes))
    return ",".join(named) if 0 < len(named) <= MAX_MISSED else None


def groups_said(eips: Iterable[IPAddress]) -> str | None:
    """None: no such annotation."""
    return ",".join(map(str, sorted(eips, key=rank)[:MAX_OF_GROUPS])) or None


def groups_read(leases: Iterable[LeaseObject]) -> dict[IPAddress, str]:
    """What all agents say, and who of them says so; what is no address, or beyond the bound, is passed over."""
    found: dict[IPAddress, str] = {}
    for lease in leases:
        for text in lease.metadata.annotations.get(OTHER_GROUPS, "").split(",")[:MAX_OF_GROUPS]:
            with suppress(ValueError):
                found[ip_address(text)] = f"another group of speakers, as node {lease.metadata.name} hears"
    return found


def misses_read(text: str) -> frozenset[str]:
    """The other way; an agent's word, or anybody's who may write its Lease."""
    return frozenset(filter(None, text.split(",")))
