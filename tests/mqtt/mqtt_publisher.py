"""A publisher without a speaker around it, for what takes thousands of messages."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from prometheus_client import CollectorRegistry

from speaker.errors import EdgeError
from speaker.settings import MqttSettings
from speaker.system.threads import start_threads
from speaker.telemetry.metrics import MqttMetrics
from speaker.telemetry.mqtt import messages
from speaker.telemetry.mqtt.messages import States, Topics
from speaker.telemetry.mqtt.publisher import Me, Publisher

TOPICS = Topics("eip-speaker")


class Said:
    """What is told of the broker, and what is counted."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.works = asyncio.Event()
        self.fails = asyncio.Event()
        self.registry = CollectorRegistry()

    def failed(self, error: EdgeError) -> None:
        self.errors.append(str(error))
        self.works.clear()
        self.fails.set()

    def recovered(self) -> None:
        self.fails.clear()
        self.works.set()

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"eip_speaker_mqtt_{name}", labels) or 0.0


@asynccontextmanager
async def publisher(url: str = "mqtt://127.0.0.1", **files: object) -> AsyncIterator[tuple[Publisher, Said]]:
    said = Said()
    settings = MqttSettings.parse(url, **files)
    me = Me("n1", f"{settings.prefix}/n1", partial(messages.node, TOPICS, "n1"))
    found = Publisher(settings, me, MqttMetrics(said.registry), said.failed, said.recovered)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(found.run())
        try:
            async with asyncio.timeout(60):
                yield found, said
        finally:
            running.cancel()


async def until(well: Callable[[], object]) -> None:
    """Of what nobody tells of: the broker's log, the kernel. ``publisher`` ends it after a minute."""
    while not well():  # noqa: ASYNC110 -- it sets no event
        await asyncio.sleep(0.05)


async def until_said(said: Said) -> None:
    """Nothing waits any more."""
    await until(lambda: said.works.is_set() and not said.count("waiting"))


def eips(count: int, change: int = 0) -> States:
    """As many states, each other than at another ``change``."""
    names = (f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(count))
    return dict(
        messages.eip(TOPICS, name, "lan", ["default/web"], {"holder": "n1", "term": change}, None) for name in names
    )


def as_read(found: States) -> dict[str, object]:
    return {topic: json.loads(payload) for topic, payload in found.items()}


def run(work: Callable[[], object]) -> None:
    """``work`` is a coroutine function. The loop has its threads from the start, as the speaker's has."""

    async def main() -> None:
        start_threads(2)
        await work()

    asyncio.run(main())
