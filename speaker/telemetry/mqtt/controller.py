"""What the controller that leads says of itself. The states of EIPs and pools are ``controller/published.py``'s."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

from speaker.errors import EdgeError
from speaker.settings import MqttSettings
from speaker.system.supervise import Supervisor, at_work
from speaker.telemetry.mqtt import states
from speaker.telemetry.mqtt.counted import MqttMetrics
from speaker.telemetry.mqtt.publisher import Me, Publisher
from speaker.telemetry.mqtt.topics import Topics

TASK = "mqtt"


class BrokerEvents(Supervisor, Protocol):
    """Who hears of the broker."""

    def broker_failed(self, error: EdgeError | None) -> None: ...


@asynccontextmanager
async def publishing(
    settings: MqttSettings, identity: str, metrics: MqttMetrics, events: BrokerEvents
) -> AsyncIterator[Publisher]:
    """Says what it is told while the block lasts. All replicas have one name at the broker: whoever leads now throws
    out whoever led, and its last will comes before anything of ours."""
    topics = Topics(settings.prefix)
    me = Me(identity, f"{settings.prefix}/controller", partial(states.controller, topics, identity))
    publisher = Publisher(settings, me, metrics, events.broker_failed, partial(events.broker_failed, None))
    async with at_work(TASK, publisher.run, events):
        yield publisher
