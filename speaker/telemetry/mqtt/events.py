"""What happens: a line of the log in, an event out. Pure.

The log has other words for some of it: they are older, and people search for them.
"""

from typing import Any

import msgspec

from speaker.telemetry.lines import Line
from speaker.telemetry.mqtt.states import SENTENCE, rfc3339
from speaker.telemetry.mqtt.topics import Message, Topics

KINDS = {
    "assigned": "assigned",
    "released": "released",
    "refused": "refused",
    "claimed": "taken",
    "withdrawn": "let_go",
    "conflict begun": "conflict_begun",
    "conflict ended": "conflict_ended",
    "peer heard": "node_up",
    "peer silent": "node_down",
    "api does not answer": "api_lost",
    "api answers": "api_back",
}
"""The log's words → the event's."""
_FIELDS = {"before": "from", "holder": "to", "peer": "node"}


def event(topics: Topics, line: Line, by: str, at: float) -> Message | None:
    """``by``: the node, or the controller, that says so; ``at``: seconds since 1970. None for what is no event."""
    if (kind := KINDS.get(line.event)) is None:
        return None
    told = {_FIELDS.get(name, name): _bounded(value) for name, value in line.fields.items()}
    payload = msgspec.json.encode({"event": kind, "at": rfc3339(at), "by": by, **told}, enc_hook=str)
    return Message(topics.event(kind), payload, retain=False)


def _bounded(value: Any) -> Any:
    """The text of a tenant may be long."""
    return value[:SENTENCE] if isinstance(value, str) else value
