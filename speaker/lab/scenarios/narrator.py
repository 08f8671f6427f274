"""The speaker's log events as sentences for the timeline (pure)."""

from collections.abc import Mapping
from typing import Any

from speaker.lab.timeline import Tone

_ALARMING = frozenset({"warning", "error", "critical"})
#: Fields that every event carries, or that the sentence already says.
_COMMON = frozenset({"event", "level", "timestamp", "logger"})


def sentence(event: Mapping[str, Any]) -> tuple[str, Tone] | None:
    """What to say about one log event; None for what a newcomer need not read."""
    match _with_names(event):
        case {"event": "started", "forwarder": forwarder}:
            return f"the speaker starts, forwarding with {forwarder}", Tone.PLAIN
        case {"event": "manifests read", "pools": pools, "services": services}:
            return f"reads {pools} pools and {services} Services", Tone.PLAIN
        case {"event": "assigned" | "released" as verb, "service": service, "addresses": [*addresses]}:
            gets_or_loses = "gets" if verb == "assigned" else "gives back"
            return f"{service} {gets_or_loses} {' and '.join(map(str, addresses))}", Tone.PLAIN
        case {"event": "assigned" | "released" as verb, "count": count}:
            return f"{count} Services {'get an address' if verb == 'assigned' else 'give theirs back'}", Tone.PLAIN
        case {"event": "forwarding", "count": count}:
            return f"the kernel forwards: {count} changes to its tables", Tone.PLAIN
        case {"event": "claimed", "eip": eip, "link": link}:
            return f"claims {eip} on {link}", Tone.EIP
        case {"event": "withdrawn", "eip": eip, **more}:
            holder = more.get("holder")
            return f"stops answering for {eip}" + (f", which {holder} claims now" if holder else ""), Tone.EIP
        case {"event": "peer heard", "peer": peer}:
            return f"hears {peer}", Tone.DIM
        case {"event": "peer silent", "peer": peer}:
            return f"no longer hears {peer}", Tone.DIM
        case {"event": "handing over"}:
            return "hands over what it holds", Tone.PLAIN
        case {"event": "frozen"}:
            return "was away for too long: it gives everything up and listens first", Tone.PLAIN
        case {"event": "link lost", "link": link}:
            return f"cannot use {link}", Tone.PLAIN
        case {"level": level} if level in _ALARMING:
            details = " ".join(f"{name}={value}" for name, value in event.items() if name not in _COMMON)
            return f"{level}: {event.get('event')} {details}".rstrip(), Tone.BAD
        case _:
            return None


def _with_names(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """A line about many as one about the first of them."""
    match event:
        case {"count": int(count), "eips": [first, *_]}:
            return {**event, "eip": f"{first} and {count - 1} more"}
        case {"count": int(count), "peers": [first, *_]}:
            return {**event, "peer": f"{first} and {count - 1} more"}
        case _:
            return event
