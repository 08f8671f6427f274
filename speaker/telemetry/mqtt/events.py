"""What happens, as MQTT tells of it. Pure."""

from typing import Any

import msgspec

from speaker.model import events, format_mac
from speaker.telemetry.mqtt.states import SENTENCE, rfc3339
from speaker.telemetry.mqtt.topics import Message, Topics


def event(topics: Topics, happened: object, by: str, at: float) -> Message | None:
    """``by``: the node, or the controller, that says so; ``at``: seconds since 1970. None for what is not told."""
    if (found := told(happened)) is None:
        return None
    kind, fields = found
    payload = msgspec.json.encode({"event": kind, "at": rfc3339(at), "by": by, **fields})
    return Message(topics.event(kind), payload, retain=False)


def told(happened: object) -> tuple[str, dict[str, Any]] | None:
    """Its kind, and what is said of it: docs/mqtt/v1/event.schema.json."""
    match happened:
        case events.Assigned(service=service, addresses=addresses):
            return "assigned", {"service": str(service), "addresses": [*map(str, addresses)]}
        case events.Released(service=service, addresses=addresses):
            return "released", {"service": str(service), "addresses": [*map(str, addresses)]}
        case events.Refused(service=service, reason=reason, message=message):
            return "refused", {"service": str(service), "reason": reason, "message": message[:SENTENCE]}
        case events.EipClaimed(eip=eip, placement=placement, term=term, before=before):
            fields = {"link": placement.link.name, "mac": format_mac(placement.link.mac), "term": term, "from": before}
            return "taken", {"eip": str(eip), **fields, **happened.why}
        case events.EipYielded(eip=eip, reason=reason, holder=holder):
            return "let_go", {"eip": str(eip), "reason": reason, "to": holder}
        case events.ConflictBegun(eip=eip, message=message):
            return "conflict_begun", {"eip": eip, "message": message[:SENTENCE]}
        case events.ConflictEnded(eip=eip):
            return "conflict_ended", {"eip": eip}
        case events.PeerChanged(node=node, link=link, alive=alive):
            return "node_up" if alive else "node_down", {"node": node, "link": link.name}
        case events.ApiSilent():
            return "api_lost", {"message": events.API_SILENT}
        case events.ApiAnswers():
            return "api_back", {}
        case _:
            return None
