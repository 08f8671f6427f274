"""Who publishes what: a host publishes about itself and, if there is no controller, all EIPs and pools; a controller
publishes the rest.

Of several hosts without a controller, the living one whose name comes first publishes EIPs and pools. They all know the
same, and each topic has one publisher.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol

from speaker.errors import EdgeError
from speaker.model.events import Assigned, PeerChanged, Refused, Released
from speaker.settings import MqttSettings
from speaker.system.supervise import Supervisor, at_work, contained
from speaker.telemetry.metrics import MqttMetrics
from speaker.telemetry.mqtt import messages
from speaker.telemetry.mqtt.messages import States, Topics
from speaker.telemetry.mqtt.publisher import Me, Publisher

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
        with contained(EDGE, self):
            if isinstance(event, PeerChanged):
                self._follow((event.node, event.link.name), event.alive)
            if self._speaks or not isinstance(event, _OF_ALL):
                self._publisher.tell(event)

    def _follow(self, one: tuple[str, str], alive: bool) -> None:
        self._alive = self._alive | {one} if alive else self._alive - {one}
        if self._shares:  # whoever spoke before may have said something else
            self._publisher.anew(self._topics.all_eips, self._topics.all_pools)

    def shown(self, status: Mapping[str, Any], pools: messages.Pools, conflicts: Mapping[str, str]) -> None:
        """What the status file says. In any thread, as 10,000 EIPs take their time."""
        with contained(EDGE, self):
            topics, speaks = self._topics, self._speaks
            held = messages.holds(topics, self._node, status)
            areas: dict[str, States | None] = {
                topics.all_holds(self._node): held,
                topics.node(self._node): messages.node(topics, self._node, "up", len(held), status["problems"]),
            }
            if self._shares:
                areas[topics.all_eips] = messages.shared(topics, status, conflicts) if speaks else None
                areas[topics.all_pools] = messages.pools(topics, pools) if speaks else None
            self._publisher.soon(partial(self._publisher.show, areas))

    def internal_error(self, task: str, error: BaseException) -> None:
        """Met in any thread, and reported in the loop's."""
        self._publisher.soon(partial(self._supervisor.internal_error, task, error))

    def finish(self) -> None:
        """Nothing is held here any longer."""
        self._publisher.show({self._topics.all_holds(self._node): {}})
        self._publisher.revise(self._topics.all_eips, partial(messages.without_holder, node=self._node))


class BrokerEvents(Supervisor, Protocol):
    """Who hears of the broker; ``node.report.Report`` is one."""

    def failed(self, edge: str, error: BaseException) -> None: ...
    def recovered(self, edge: str) -> None: ...


@asynccontextmanager
async def publishing(
    settings: MqttSettings, node: str, metrics: MqttMetrics, report: BrokerEvents, *, shares: bool
) -> AsyncIterator[HostNews]:
    """A host publishes what it hears while the block lasts."""
    me = Me(node, f"{settings.prefix}/{node}", partial(messages.node, Topics(settings.prefix), node))
    publisher = Publisher(settings, me, metrics, partial(report.failed, EDGE), partial(report.recovered, EDGE))
    news = HostNews(publisher, node, report, shares=shares)
    async with at_work(EDGE, publisher.run, report):
        try:
            yield news
        finally:
            news.finish()


class ControllersBrokerEvents(Supervisor, Protocol):
    """The same of a controller."""

    def broker_failed(self, error: EdgeError | None) -> None: ...


@asynccontextmanager
async def publishing_as_controller(
    settings: MqttSettings, identity: str, metrics: MqttMetrics, events: ControllersBrokerEvents
) -> AsyncIterator[Publisher]:
    """The one that leads publishes while the block lasts; ``controller/published.py`` says what of EIPs and pools.
    All replicas have one name at the broker: whoever leads now throws out whoever led, and its last will comes before
    anything of ours."""
    me = Me(identity, f"{settings.prefix}/controller", partial(messages.controller, Topics(settings.prefix), identity))
    publisher = Publisher(settings, me, metrics, events.broker_failed, partial(events.broker_failed, None))
    async with at_work(EDGE, publisher.run, events):
        yield publisher
