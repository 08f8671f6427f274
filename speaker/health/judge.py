"""Which endpoints are checked, what a result means, and what follows for a ``World``. Pure.

An unhealthy endpoint is not ``ready``: it gets nothing new and is drained, and with ``externalTrafficPolicy: Local``
its node does not answer. If no endpoint is healthy, all are served: a wrong check, or a fault that all of them share,
must not close a Service that may still work.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from speaker.model import (
    Assignment,
    Endpoint,
    Family,
    HealthCheck,
    IPAddress,
    Service,
    ServiceKey,
    TrafficPolicy,
    World,
    with_port,
)
from speaker.model.events import EndpointUnwell, EndpointWell


class Result(StrEnum):
    """Of one check. The value is the metric label."""

    WELL = "well"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    """The kernel has no way there, or a router said so."""
    TIMEOUT = "timeout"
    CLOSED = "closed"
    """Before it answered."""
    RESET = "reset"
    NOT_HTTP = "not_http"
    STATUS = "status"
    """Another one than was asked for."""
    TLS = "tls"
    HERE = "here"
    """This host could not check: no socket is left, or the file of the CA cannot be read."""


class Found(NamedTuple):
    """``words``: what was wrong, '' where nothing was."""

    result: Result
    words: str = ""


WELL = Found(Result.WELL)


class Target(NamedTuple):
    """What is checked, once for all Services that name it."""

    address: IPAddress
    port: int
    check: HealthCheck

    def __str__(self) -> str:
        return with_port(self.address, self.port)


@dataclass(slots=True)
class Condition:
    """Of one target. ``well`` None: it was not checked yet, and gets nothing new if others are well."""

    well: bool | None = None
    found: Found | None = None
    """The result by which it became well or unwell, or is unwell for another reason than before."""
    before: bool | None = None
    """What ``well`` was until then."""
    streak: int = 0
    """Results in a row that contradict ``well``, or ``found`` by always the same other reason."""
    toward: bool | Found | None = None
    """What they lead to."""

    def hear(self, found: Found, check: HealthCheck) -> bool:
        """Whether ``well``, or the reason for it, changes by it. The first result decides at once."""
        well = found.result is Result.WELL
        if well is self.well and (well or found == self.found):
            self.streak = 0
            return False
        toward = found if well is self.well else well
        self.streak, self.toward = self.streak + 1 if toward == self.toward else 1, toward
        if self.well is not None and self.streak < (check.rise if well else check.fall):
            return False
        self.before, self.well, self.found, self.streak = self.well, well, found, 0
        return True

    @property
    def words(self) -> str:
        return self.found.words if self.found is not None else "not checked yet"


def event(target: Target, services: tuple[ServiceKey, ...], now: Condition) -> EndpointWell | EndpointUnwell | None:
    """Of a condition that has changed; None: it is no news, as the endpoint was not checked before."""
    if now.well:
        return EndpointWell(str(target), services, str(target.check)) if now.before is False else None
    result = now.found.result.value if now.found is not None else ""
    return EndpointUnwell(str(target), services, str(target.check), result, now.words)


class Tally(NamedTuple):
    """Since the last one: results, and checks that began late. ``states``: how many targets are well, unwell, and not
    checked yet (None); ``beyond``: how many are not checked, as there are too many."""

    results: Mapping[Result, int]
    states: Mapping[bool | None, int]
    late: int = 0
    beyond: int = 0


Unwell: TypeAlias = Mapping[Target, str]
"""Those that are not well, and what is wrong."""


def target(endpoint: Endpoint, check: HealthCheck) -> Target:
    return Target(endpoint.address, check.port or endpoint.port, check)


def targets(world: World) -> dict[Target, tuple[ServiceKey, ...]]:
    """What is to be checked, and for which Services."""
    found: dict[Target, dict[ServiceKey, None]] = {}
    for key, check in _checks(world):
        for endpoint in world.endpoints.get(key, ()):
            found.setdefault(target(endpoint, check), {})[key] = None
    return {each: tuple(keys) for each, keys in found.items()}


def _checks(world: World) -> Iterator[tuple[ServiceKey, HealthCheck]]:
    return ((key, one.health_check) for key, one in world.services.items() if one.health_check is not None)


def behind(world: World, assignments: Mapping[ServiceKey, Assignment], node: str) -> frozenset[IPAddress]:
    """Of a ``judged`` world the EIPs for which ``node`` lets others go first: its own endpoints get nothing new. With
    Local it may not hold them at all."""
    found: set[IPAddress] = set()
    for key, _ in _checks(world):
        held = assignments.get(key)
        here = [each for each in world.endpoints.get(key, ()) if each.node == node]
        for eip in held.addresses if held is not None else ():
            mine = [each for each in here if each.address.version == eip.version]
            if mine and all(each.unwell and not each.ready for each in mine):
                found.add(eip)
    return frozenset(found)


def judged(world: World, unwell: Unwell) -> World:
    """With endpoints that are as ready as they are well; the same object where that changes nothing."""
    if not unwell:
        return world
    changed = {
        key: _judged(world.services[key], check, world.endpoints.get(key, ()), unwell) for key, check in _checks(world)
    }
    return replace(world, endpoints={**world.endpoints, **changed})


def _judged(
    service: Service, check: HealthCheck, endpoints: Collection[Endpoint], unwell: Unwell
) -> tuple[Endpoint, ...]:
    """Of those that could stand in for each other: with Local they are those of any node, as it is a node's turn or is
    not, and an address is well if all its ports are."""
    local = service.traffic_policy is TrafficPolicy.LOCAL

    def place(one: Endpoint) -> object:
        return Family.of(one.address) if local else (one.port_name, one.protocol, Family.of(one.address))

    def what(one: Endpoint) -> object:
        return one.address if local else target(one, check)

    wrong = {what(one): unwell[found] for one in endpoints if (found := target(one, check)) in unwell}
    served = {place(one) for one in endpoints if one.ready and what(one) not in wrong}
    return tuple(
        replace(one, ready=one.ready and place(one) not in served, unwell=wrong[what(one)])
        if what(one) in wrong
        else one
        for one in endpoints
    )
