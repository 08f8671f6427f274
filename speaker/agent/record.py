"""A record of the ownership machine ⇄ an ``Announcement``; a node's life ⇄ the holder of its session Lease. Pure."""

from typing import Any, NamedTuple

from speaker.api.kinds import in_one_line
from speaker.api.records import (
    ANNOUNCEMENTS,
    AnnouncementObject,
    LeaseObject,
    announced_eip,
    announcement_name,
    sayable,
)
from speaker.model import MAX_TERM, IPAddress
from speaker.ownership.events import Record, WriteRecord
from speaker.ownership.hello import MAX_INCARNATION, Incarnation
from speaker.settings import whole_number

MAX_SERVICES = 1024
"""The most Services in one status, as in the CRD."""


class Facts(NamedTuple):
    """The part of a record that is for people. ``services``: namespace/name of each. ``conflict``: MAC and link of
    another host that uses the EIP. ``reason``: why nobody holds it, one of ``REASONS``; then there is no link."""

    link: str
    mac: str
    services: tuple[str, ...]
    conflict: str = ""
    reason: str = ""
    failover: tuple[str, float] | None = None
    """As from ``Noted.failover``."""


def read_record(found: AnnouncementObject) -> Record:
    """A record with a term that no agent can have reached says nothing: somebody wrote it by hand. Its EIP is decided
    on the LAN, and its holder overwrites the record."""
    status = found.status
    # Versions are numbers that grow, of one resource at least (KEP-5504).
    version = int(found.metadata.resource_version)
    if is_made_up(found):
        return Record(None, Incarnation(0), 0, version)
    holder = sayable("holder", status.holder) or None
    return Record(holder, Incarnation(min(status.incarnation, MAX_INCARNATION)), status.term, version)


def is_made_up(found: AnnouncementObject) -> bool:
    """Its term is one that no agent can have reached."""
    return not 0 <= found.status.term <= MAX_TERM


def eip_of(found: AnnouncementObject) -> IPAddress | None:
    """None: as for ``announced_eip``."""
    return announced_eip(found.metadata.name)


def path_of(eip: IPAddress) -> str:
    return f"{ANNOUNCEMENTS}/{announcement_name(eip)}"


def creation(order: WriteRecord, facts: Facts | None, at: str) -> dict[str, Any]:
    """The first record of an EIP."""
    return {
        "apiVersion": "eip-speaker.io/v1alpha1",
        "kind": "Announcement",
        "metadata": {"name": announcement_name(order.eip)},
        "status": {name: value for name, value in _said(order, facts, at).items() if value is not None},
    }


def update(order: WriteRecord, facts: Facts | None, at: str) -> dict[str, Any]:
    """A merge patch for the record that was expected. ``facts`` None: nothing is known about the EIP any longer."""
    return {"metadata": {"resourceVersion": str(order.expected)}, "status": _said(order, facts, at)}


def _said(order: WriteRecord, facts: Facts | None, at: str) -> dict[str, Any]:
    return {
        "holder": order.holder or "",
        "incarnation": order.incarnation,
        "term": order.term,
        "since": at if order.holder else None,
        **_came(facts),
        **_told(facts),
    }


def _came(facts: Facts | None) -> dict[str, Any]:
    """How the holder came by it. Only the record tells the controller, as this is not corrected later."""
    before, seconds = (facts.failover if facts is not None else None) or ("", None)
    return {
        "takenFrom": sayable("taken_from", before) or None,
        "unansweredMilliseconds": None if seconds is None else min(round(seconds * 1000), 2**31 - 1),
    }


def correction(found: AnnouncementObject, facts: Facts) -> dict[str, Any] | None:
    """A merge patch for the part of a standing record that is for people; None if that is right."""
    status, shown = found.status, _shown(facts)
    # '' is not a mistake: a CRD from before this field existed would drop it each time.
    right = status.services_text in ("", in_one_line(shown.services))
    if right and shown == Facts(status.link, status.mac, status.services, status.conflict, status.reason):
        return None
    return {"metadata": {"resourceVersion": found.metadata.resource_version}, "status": _told(facts)}


def _shown(facts: Facts) -> Facts:
    link, conflict, reason = (sayable(each, getattr(facts, each)) for each in ("link", "conflict", "reason"))
    return Facts(link, facts.mac, facts.services[:MAX_SERVICES], conflict, reason)


def _told(facts: Facts | None) -> dict[str, Any]:
    shown = _shown(facts or Facts("", "", ()))
    told = {name: getattr(shown, name) or None for name in ("link", "mac", "services", "conflict", "reason")}
    return {**told, "servicesText": in_one_line(shown.services) or None}


# ── Session Leases ────────────────────────────────────────────────────────────────────────────────────────────


def identity(node: str, life: Incarnation) -> str:
    return f"{node}_{life}"


def life_of(found: LeaseObject) -> Incarnation | None:
    """None for a Lease that was not written by an agent."""
    node, _, number = (found.spec.holder_identity or "").rpartition("_")
    life = whole_number(number, MAX_INCARNATION)
    return None if node != found.metadata.name or life is None else Incarnation(life)
