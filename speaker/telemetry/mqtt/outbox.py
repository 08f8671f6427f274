"""What is still to be published: bounded, and only the last state of each topic. Pure.

States wait as long as it takes: there are only as many as topics. If too many events wait, the oldest are dropped. The
two take turns, so neither delays the other for long.
"""

from collections import deque
from collections.abc import Callable, Iterator

from speaker.telemetry.mqtt.messages import Message, States, turn

MAX_EVENTS = 1000
"""That wait."""
MAX_LEFTOVERS = 20_000
"""Topics at the broker that are no longer ours to say, which wait to be cleared; of more, later."""
LONGEST_TOPIC = 1024
"""Characters of one that may be cleared: ours are shorter."""


class Outbox:
    """``events_dropped``: so far."""

    def __init__(self, events: int = MAX_EVENTS, leftovers: int = MAX_LEFTOVERS) -> None:
        self._truth: dict[str, States] = {}
        """By area: a filter that matches all of its topics."""
        self._states: dict[str, None] = {}
        """Topics, of which the truth is to be said, in order."""
        self._leftovers: dict[str, None] = {}
        self._events: deque[Message] = deque()
        self._most_events, self._most_leftovers = events, leftovers
        self._event_next = True
        self.events_dropped = 0

    def __len__(self) -> int:
        return len(self._states) + len(self._leftovers) + len(self._events)

    @property
    def areas(self) -> frozenset[str]:
        """The areas whose state is known. Whatever else is retained there is cleared."""
        return frozenset(self._truth)

    def state(self, area: str, states: States) -> None:
        """Sets the complete state of an area. ``area`` is a filter that matches each of the topics."""
        for message in turn(self._truth.get(area, {}), states):
            self._states[message.topic] = None
            self._leftovers.pop(message.topic, None)
        self._truth[area] = states

    def revise(self, area: str, change: Callable[[States], States]) -> None:
        """Where anything is known of it."""
        if area in self._truth:
            self.state(area, change(self._truth[area]))

    def forget(self, area: str) -> None:
        """Somebody else publishes this area from now on."""
        for topic in self._truth.pop(area, {}):
            self._states.pop(topic, None)
        self._leftovers = {topic: None for topic in self._leftovers if not _matches(area, topic)}

    def anew(self, *areas: str) -> None:
        """Publish these areas again; all areas if none is named."""
        for area in areas or self._truth:
            for topic in self._truth.get(area, ()):
                self._states.pop(topic, None)
                self._states[topic] = None

    def found(self, topic: str) -> None:
        """It is retained at the broker, which need not be true."""
        ours = len(topic) <= LONGEST_TOPIC and any(_matches(area, topic) for area in self._truth)
        if ours and self._value(topic) is None and len(self._leftovers) < self._most_leftovers:
            self._leftovers[topic] = None

    def event(self, message: Message) -> None:
        self._events.append(message)
        self._make_room()

    def give_back(self, message: Message) -> None:
        """It was taken, and it is not known whether the broker has it."""
        if not message.retain:
            self._events.appendleft(message)
            self._make_room()
        elif self._value(message.topic) is None:
            self._leftovers[message.topic] = None
        else:
            self._states[message.topic] = None

    def take(self) -> Message | None:
        """The next one, which no longer waits."""
        turns = [self._next_event, self._next_state] if self._event_next else [self._next_state, self._next_event]
        for each in turns:
            if (message := each()) is not None:
                self._event_next = message.retain
                return message
        return None

    def _next_event(self) -> Message | None:
        return self._events.popleft() if self._events else None

    def _next_state(self) -> Message | None:
        """Leftovers first: they say what is wrong."""
        for waiting in (self._leftovers, self._states):
            if (topic := next(iter(waiting), None)) is not None:
                del waiting[topic]
                return Message(topic, self._value(topic) or b"", retain=True)
        return None

    def _value(self, topic: str) -> bytes | None:
        return next(self._values(topic), None)

    def _values(self, topic: str) -> Iterator[bytes]:
        return (states[topic] for states in self._truth.values() if topic in states)

    def _make_room(self) -> None:
        while len(self._events) > self._most_events:
            self._events.popleft()
            self.events_dropped += 1


def _matches(area: str, topic: str) -> bool:
    start = area.removesuffix("+")
    return topic == area or (start != area and topic.startswith(start) and "/" not in topic[len(start) :])
