"""Which endpoints of this node count where kube-proxy forwards for ``externalTrafficPolicy: Local``. Pure.

A node whose kube-proxy does not send to its endpoints yet drops what comes for the EIP. Kube-proxy writes its rules at
most once a second (``minSyncPeriod``), which takes as long again on a busy node; an EIP moves in less. So the first
endpoint of a Service here counts once kube-proxy says that it knows it, or where nobody says anything. Whatever is
there at first counts: it was there before this process.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from speaker.model import Endpoint, Family, ServiceKey, TrafficPolicy, World

ServiceFamily: TypeAlias = tuple[ServiceKey, Family]


class LocalEndpoints:
    """``changed`` and what ``follow`` returns are as in ``node.source.View``."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._counted: set[ServiceFamily] = set()
        self._awaited: dict[ServiceFamily, int] = {}
        self._news: frozenset[ServiceKey] = frozenset()
        """Services of which something counts since the last call."""
        self._begun = False

    @property
    def awaited(self) -> Mapping[ServiceFamily, int]:
        """Where kube-proxy is to be asked, and by which port; who has waited longest for an answer is first."""
        return self._awaited

    def follow(self, world: World, changed: frozenset[ServiceKey] | None) -> tuple[World, frozenset[ServiceKey] | None]:
        """The world without endpoints that do not count yet."""
        before = {key for key, _ in (*self._counted, *self._awaited)} if changed is None else ()
        for key in (*world.services, *before) if changed is None else changed:
            self._look(world, key)
        self._begun = True
        news, self._news = self._news, frozenset()
        hidden = {key: tuple(self._counting(key, world.endpoints.get(key, ()))) for key, _ in self._awaited}
        known = replace(world, endpoints={**world.endpoints, **hidden}) if hidden else world
        return known, None if changed is None else changed | news

    def heard(self, which: ServiceFamily, endpoints: int | None) -> bool:
        """Of how many kube-proxy knows, None where nobody says; whether that makes a difference."""
        if (port := self._awaited.pop(which, None)) is None:
            return False
        if endpoints == 0:
            self._awaited[which] = port
            return False
        self._counted.add(which)
        self._news |= {which[0]}
        return True

    def _look(self, world: World, key: ServiceKey) -> None:
        service = world.services.get(key)
        local = service is not None and service.traffic_policy is TrafficPolicy.LOCAL
        port = service.health_check_port if service is not None else None
        found = world.endpoints.get(key, ()) if local else ()
        here = {Family.of(each.address) for each in found if each.node == self._node and each.ready}
        leaving = {Family.of(each.address) for each in found if each.node == self._node and each.serving}
        for family in Family:
            which = key, family
            if family not in here | leaving:
                self._counted.discard(which)
                self._awaited.pop(which, None)
            elif port is None or not self._begun:
                self._counted.add(which)
            elif which not in self._counted and family in here:
                self._awaited[which] = port

    def _counting(self, key: ServiceKey, endpoints: tuple[Endpoint, ...]) -> Iterator[Endpoint]:
        for each in endpoints:
            if each.node != self._node or (key, Family.of(each.address)) not in self._awaited:
                yield each
