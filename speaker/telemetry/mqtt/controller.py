"""What the controller that leads says of itself. The states of EIPs and pools are ``controller/published.py``'s."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

from speaker.errors import EdgeError
from speaker.settings import MqttSettings
from speaker.system.supervise import Supervisor
from speaker.telemetry.mqtt import states
from speaker.telemetry.mqtt.counted import MqttMetrics
from speaker.telemetry.mqtt.publisher import Me, Publisher
from speaker.telemetry.mqtt.topics import Topics

TASK = "mqtt"


class Told(Supervisor, Protocol):
    """Who hears of the broker."""

    def broker_failed(self, error: EdgeError | None) -> None: ...


@asynccontextmanager
async def publishing(
    settings: MqttSettings, identity: str, metrics: MqttMetrics, told: Told
) -> AsyncIterator[Publisher]:
    """Says what it is told while the block lasts. All replicas have one name at the broker: whoever leads now throws
    out whoever led, and its last will comes before anything of ours."""
    topics = Topics(settings.prefix)
    me = Me(identity, f"{settings.prefix}/controller", partial(states.controller, topics, identity))
    publisher = Publisher(settings, me, metrics, told.broker_failed, partial(told.broker_failed, None))
    async with publisher.at_work(TASK, told):
        yield publisher
