"""``lan``: an operator's desk. Stories read as what was asked and what was answered, in plain text."""

import json
from collections.abc import Iterable, Mapping
from ipaddress import ip_address

import msgspec
import pytest

from speaker.allocator.assign import Allocator, Outcome
from speaker.allocator.book import Ledger
from speaker.allocator.settle import Settlement, settle
from speaker.api.addresses import parse_range
from speaker.model import (
    Assignment,
    Family,
    FamilyPolicy,
    LabelRule,
    LabelSelector,
    Pool,
    Protocol,
    Service,
    ServiceKey,
    ServicePort,
    TrafficPolicy,
    World,
)

POLICIES = {"single": FamilyPolicy.SINGLE, "prefer": FamilyPolicy.PREFER_DUAL, "require": FamilyPolicy.REQUIRE_DUAL}


def key(name: str) -> ServiceKey:
    namespace, _, last = name.rpartition("/")
    return ServiceKey(namespace or "default", last)


def labels(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split())


def selector(text: str) -> LabelSelector:
    return LabelSelector(tuple(LabelRule(k, "In", frozenset({v})) for k, v in labels(text).items()))


def port(text: str) -> ServicePort:
    number, _, protocol = text.partition("/")
    return ServicePort(Protocol(protocol.upper() or "TCP"), int(number))


def make_service(
    name: str,
    *,
    ports: str = "80",
    families: str = "4",
    policy: str = "single",
    addresses: str = "",
    label: str = "",
    picks: str = "",
    local: bool = False,
    share_with: str = "",
    pool: str | None = None,
    **fields: object,
) -> Service:
    """``families`` such as '46' in order; ``picks`` is its pod selector; ``share_with`` other namespaces."""
    return Service(
        key(name),
        ports=tuple(map(port, ports.split())),
        labels=labels(label),
        selector=labels(picks),
        families=tuple(Family.IPV4 if each == "4" else Family.IPV6 for each in families),
        family_policy=POLICIES[policy],
        traffic_policy=TrafficPolicy.LOCAL if local else TrafficPolicy.CLUSTER,
        addresses=tuple(map(ip_address, addresses.split())),
        share_namespaces=frozenset(share_with.split()),
        pools=tuple((pool or "").split()),
        **fields,
    )


def make_pool(
    name: str,
    addresses: str,
    *,
    exclude: str = "",
    namespaces: str = "",
    namespace_label: str | None = None,
    service_label: str = "",
    **fields: object,
) -> Pool:
    return Pool(
        name,
        addresses=tuple(map(parse_range, addresses.split())),
        exclude=tuple(map(parse_range, exclude.split())),
        namespaces=frozenset(namespaces.split()),
        namespace_selectors=() if namespace_label is None else tuple(map(selector, namespace_label.split("|"))),
        service_selectors=tuple(map(selector, service_label.split("|"))) if service_label else (),
        **fields,
    )


class Lan:
    def __init__(self, rest: float) -> None:
        self.rest = rest
        self.allocator = Allocator(rest)
        self.now = 1000.0
        self.pools: dict[str, Pool] = {}
        self.namespaces: Mapping[str, Mapping[str, str]] = {}
        self.said: list[str] = []
        """Every refusal's sentence, in order."""
        self.flagged: str = ""
        """The flagged addresses of the last answer."""

    def pool(self, name: str, addresses: str, **fields: object) -> None:
        """Create or replace a pool."""
        self.pools = {**self.pools, name: make_pool(name, addresses, **fields)}
        self.allocator.set_pools(self.pools, self.namespaces)

    def delete_pool(self, name: str) -> None:
        self.pools = {each: pool for each, pool in self.pools.items() if each != name}
        self.allocator.set_pools(self.pools, self.namespaces)

    def label_namespaces(self, **texts: str) -> None:
        self.namespaces = {name: labels(text) for name, text in texts.items()}
        self.allocator.set_pools(self.pools, self.namespaces)

    def ask(self, name: str, **fields: object) -> str:
        """'192.0.2.1 2001:db8::1', 'pool_full', or '192.0.2.1 (pool_full)' when served with less than asked."""
        return self.text(self.allocator.assign(make_service(name, **fields), self.now))

    def text(self, outcome: Outcome) -> str:
        self.flagged = ""
        if outcome.refusal is not None:
            self.said.append(outcome.refusal.message)
        if outcome.assignment is None:
            return outcome.refusal.reason.value
        self.flagged = " ".join(sorted(map(str, outcome.assignment.flagged)))
        addresses = " ".join(map(str, outcome.assignment.addresses))
        return addresses if outcome.refusal is None else f"{addresses} ({outcome.refusal.reason.value})"

    def pools_of(self, name: str, **fields: object) -> tuple[str, ...]:
        assignment = self.allocator.assign(make_service(name, **fields), self.now).assignment
        assert isinstance(assignment, Assignment)
        return assignment.pools

    def gone(self, name: str) -> None:
        self.allocator.release(key(name), self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def restart(self, *, now: float = 5.0) -> None:
        """A new process on a machine that just booted, with the ledger that the last one wrote to a file."""
        written = msgspec.json.encode(self.allocator.ledger(self.now))
        json.loads(written)
        self.now = now
        self.allocator = Allocator(self.rest)
        self.allocator.restore(msgspec.json.decode(written, type=Ledger), self.now)
        self.allocator.set_pools(self.pools, self.namespaces)

    def left(self, name: str) -> bool:
        """Whether its wish to release counts as fulfilled."""
        return self.allocator.has_released(key(name))

    def used(self, pool: str, family: Family = Family.IPV4) -> tuple[int, int, int]:
        """Size, used, resting."""
        usage = self.allocator.usage(pool)[family]
        return usage.size, usage.used, usage.resting

    def settle(self, services: Iterable[Service]) -> dict[str, str]:
        """All Services there are, at once: name → answer, as in ``ask``."""
        world = World(self.pools, {each.key: each for each in services}, namespaces=self.namespaces)
        settlement: Settlement = settle(self.allocator, world, self.now)
        return {
            key.name: self.text(Outcome(settlement.assignments.get(key), settlement.refusals.get(key)))
            for key in world.services
        }


@pytest.fixture
def lan() -> Lan:
    return Lan(rest=60.0)


@pytest.fixture
def service():
    return make_service


@pytest.fixture
def pool():
    return make_pool
