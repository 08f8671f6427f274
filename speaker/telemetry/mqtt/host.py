"""What a host says: of itself, and, where there is no controller, of all EIPs and pools.

Of several hosts without a controller the first by name of those that live speaks of these: they all know the same, and
each topic has one who says it.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Protocol

from speaker.errors import EdgeError
from speaker.model.events import Assigned, PeerChanged, Refused, Released
from speaker.settings import MqttSettings
from speaker.system.supervise import Supervisor, at_work
from speaker.telemetry.mqtt import states
from speaker.telemetry.mqtt.counted import MqttMetrics
from speaker.telemetry.mqtt.publisher import Me, Publisher
from speaker.telemetry.mqtt.topics import States, Topics

EDGE = "mqtt"
_OF_ALL = (Assigned, Released, Refused)
"""Events that every host could tell."""


class HostNews:
    """``shares``: it speaks of all EIPs, unless another host does. Nothing is raised to whoever tells it anything."""

    def __init__(self, publisher: Publisher, node: str, supervisor: Supervisor, *, shares: bool) -> None:
        self._supervisor = supervisor
        self._publisher, self._topics, self._node, self._shares = publisher, publisher.topics, node, shares
        self._alive: frozenset[tuple[str, str]] = frozenset()
        """Other hosts, and the links that each is heard on."""

    @property
    def _speaks(self) -> bool:
        return self._shares and all(self._node < node for node, _ in self._alive)

    def hear(self, event: object) -> None:
        """In any thread; of other hosts in the loop's."""
        with self._careful():
            if isinstance(event, PeerChanged):
                self._follow((event.node, event.link.name), event.alive)
            if self._speaks or not isinstance(event, _OF_ALL):
                self._publisher.tell(event)

    def _follow(self, one: tuple[str, str], alive: bool) -> None:
        self._alive = self._alive | {one} if alive else self._alive - {one}
        if self._shares:  # whoever spoke before may have said something else
            self._publisher.anew(self._topics.all_eips, self._topics.all_pools)

    def shown(self, told: Mapping[str, Any], pools: states.Pools, conflicts: Mapping[str, str]) -> None:
        """What the status file says. In any thread, as 10,000 EIPs take their time."""
        with self._careful():
            areas = self._areas(told, pools, conflicts)
            self._publisher.soon(partial(self._publisher.show, areas))

    def _areas(
        self, told: Mapping[str, Any], pools: states.Pools, conflicts: Mapping[str, str]
    ) -> dict[str, States | None]:
        topics, held = self._topics, states.holds(self._topics, self._node, told)
        areas: dict[str, States | None] = {
            topics.all_holds(self._node): held,
            topics.node(self._node): states.node(topics, self._node, "up", len(held), told["problems"]),
        }
        if self._shares:
            speaks = self._speaks
            areas[topics.all_eips] = states.shared(topics, told, conflicts) if speaks else None
            areas[topics.all_pools] = states.pools(topics, pools) if speaks else None
        return areas

    @contextmanager
    def _careful(self) -> Iterator[None]:
        """In any thread; bugs are told of in the loop's."""
        try:
            yield
        except Exception as error:
            self._publisher.soon(partial(self._supervisor.internal_error, EDGE, error))

    def finish(self) -> None:
        """Nothing is held here any more."""
        self._publisher.show({self._topics.all_holds(self._node): {}})
        self._publisher.revise(self._topics.all_eips, partial(states.without_holder, node=self._node))


class BrokerEvents(Supervisor, Protocol):
    """Who hears of the broker; ``node.report.Report`` is one."""

    def failed(self, edge: str, error: BaseException) -> None: ...
    def recovered(self, edge: str) -> None: ...


@asynccontextmanager
async def publishing(
    settings: MqttSettings, node: str, metrics: MqttMetrics, report: BrokerEvents, *, shares: bool
) -> AsyncIterator[HostNews]:
    """Says what it is told while the block lasts."""
    topics = Topics(settings.prefix)
    me = Me(node, f"{settings.prefix}/{node}", lambda state: states.node(topics, node, state))

    def failed(error: EdgeError) -> None:
        report.failed(EDGE, error)

    publisher = Publisher(settings, me, metrics, failed, partial(report.recovered, EDGE))
    news = HostNews(publisher, node, report, shares=shares)
    async with at_work(EDGE, publisher.run, report):
        try:
            yield news
        finally:
            news.finish()
