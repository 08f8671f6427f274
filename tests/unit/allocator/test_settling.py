"""After every change it answers as if everybody had been asked, and asks few."""

import dataclasses
from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st

from speaker.allocator.assign import Allocator
from speaker.allocator.settle import Settling, precedence
from speaker.api.addresses import parse_range
from speaker.model import (
    Family,
    FamilyPolicy,
    LabelRule,
    LabelSelector,
    Pool,
    Protocol,
    Service,
    ServiceKey,
    ServicePort,
    World,
)

TEXTS = ["192.0.2.0/30", "192.0.2.4/30", "192.0.2.2-192.0.2.5", "192.0.2.6", "2001:db8::/126"]
KEYS = [ServiceKey(namespace, name) for namespace in ("red", "blue") for name in ("s1", "s2", "s3", "s4")]
GOLD = LabelSelector((LabelRule("tier", "In", frozenset({"gold"})),))

POOLS = st.builds(
    Pool,
    name=st.sampled_from(["a", "b"]),
    addresses=st.lists(st.sampled_from(TEXTS).map(parse_range), min_size=1, max_size=3).map(tuple),
    namespace_selectors=st.sampled_from([(), (), (GOLD,)]),
    per_namespace=st.sampled_from([None, None, 1, 2]),
    priority=st.integers(0, 1),
    avoid_network_and_broadcast=st.booleans(),
    disabled=st.sampled_from([False, False, True]),
)
SERVICES = st.builds(
    Service,
    key=st.sampled_from(KEYS),
    ports=st.sampled_from([80, 81]).map(lambda port: (ServicePort(Protocol.TCP, port),)),
    families=st.sampled_from([tuple(Family), tuple(reversed(Family)), (Family.IPV4,)]),
    family_policy=st.sampled_from(FamilyPolicy),
    pools=st.sampled_from([(), (), ("a",), ("b",), ("b", "a")]),
    addresses=st.sampled_from([(), (), *((ip_address(f"192.0.2.{n}"),) for n in range(7))]),
    share=st.sampled_from([None, "k", "k"]),
    share_namespaces=st.sampled_from([frozenset(), frozenset({"red", "blue"})]),
    created=st.sampled_from(["", "2026-01-01T00:00:00Z"]),
)
GONE = st.sampled_from(KEYS)
NAMESPACES = st.dictionaries(st.sampled_from(["red", "blue"]), st.sampled_from([{}, {"tier": "gold"}]))
STEP = st.one_of(
    st.lists(st.one_of(SERVICES, SERVICES, GONE), min_size=1, max_size=4),
    st.lists(POOLS, max_size=2).map(lambda found: {pool.name: pool for pool in found}),
    NAMESPACES.map(lambda labels: (labels,)),
)


class Everybody:
    """The same by asking all, who holds something before who does not, and again until nothing moves."""

    def __init__(self) -> None:
        self.allocator = Allocator(5.0)

    def settle(self, world: World, now: float):
        self.allocator.set_pools(world.pools, world.namespaces)
        for key in sorted(self.allocator.holders - world.services.keys()):
            self.allocator.release(key, now)
        ordered = sorted(world.services.values(), key=precedence)
        outcomes, before = {}, None
        while before != (before := (dict(outcomes), self.allocator.ledger(now))) or not outcomes.keys() >= {
            *world.services
        }:
            holders = [each for each in ordered if each.key in self.allocator.holders]
            self.until_nothing_moves(holders, outcomes, now)
            self.ask([each for each in ordered if each not in holders], outcomes, now)
        return outcomes

    def until_nothing_moves(self, services, outcomes, now):
        before = None
        while before != (before := self.allocator.revision):
            self.ask(services, outcomes, now)

    def ask(self, services, outcomes, now):
        outcomes.update({each.key: self.allocator.assign(each, now) for each in services})


@given(st.lists(STEP, max_size=12))
def test_it_answers_as_if_everybody_had_been_asked(steps):
    everybody, allocator = Everybody(), Allocator(5.0)
    services: dict[ServiceKey, Service] = {}
    settling = Settling(allocator, services)
    pools = {"a": Pool("a", (parse_range("192.0.2.0/30"),))}
    namespaces: dict[str, dict[str, str]] = {}
    for number, step in enumerate([{}, *steps]):
        match step:
            case list():
                changed = {each if isinstance(each, ServiceKey) else each.key for each in step}
                for each in step:
                    if isinstance(each, ServiceKey):
                        services.pop(each, None)
                    else:
                        services[each.key] = each
            case (labels,):
                namespaces, changed = labels, set(KEYS)
            case _:
                pools, changed = step or pools, set(KEYS)
        now = 2.0 * number
        allocator.set_pools(pools, namespaces)
        settling.step(changed, (), now)
        wanted = everybody.settle(World(pools, dict(services), {}, namespaces), now)
        found = settling.outcomes
        assert found == wanted
        assert allocator.ledger(now).held == everybody.allocator.ledger(now).held


def service(name, **fields):
    return Service(ServiceKey("red", name), (ServicePort(Protocol.TCP, 80),), **fields)


class Counting(Allocator):
    def __init__(self):
        super().__init__()
        self.asked: list[str] = []

    def assign(self, service, now):
        self.asked.append(service.key.name)
        return super().assign(service, now)


def settled(*addresses, services):
    """An allocator with a pool, and what became of the Services."""
    allocator = Counting()
    allocator.set_pools({"lan": Pool("lan", tuple(map(parse_range, addresses)))}, {})
    wanted = {each.key: each for each in services}
    settling = Settling(allocator, wanted)
    settling.step(wanted, (), 0.0)
    allocator.asked.clear()
    return allocator, settling, wanted


def test_one_more_service_asks_nobody_else():
    allocator, settling, services = settled("192.0.2.1-192.0.2.4", services=[service("a"), service("b")])
    new = service("c")
    services[new.key] = new
    assert settling.step({new.key}, (), 1.0) == {new.key: None}
    assert allocator.asked == ["c"]
    assert settling.step((), (), 2.0) == {}
    assert allocator.asked == ["c"]


def test_who_waits_is_asked_once_something_has_moved():
    allocator, settling, services = settled("192.0.2.1", services=[service("a"), service("b"), service("c")])
    services[ServiceKey("red", "d")] = service("d")
    assert settling.step({ServiceKey("red", "d")}, (), 1.0).keys() == {ServiceKey("red", "d")}
    assert allocator.asked == ["d"]
    allocator.asked.clear()
    del services[ServiceKey("red", "a")]
    changed = settling.step({ServiceKey("red", "a")}, (), 2.0)
    assert changed.keys() == {ServiceKey("red", "a"), ServiceKey("red", "b")}
    assert settling.outcomes[ServiceKey("red", "b")].assignment is not None
    assert set(allocator.asked) == {"b", "c", "d"}


def test_who_is_to_get_nothing_new_keeps_what_it_has_and_no_more():
    allocator, settling, services = settled("192.0.2.1-192.0.2.4", services=[service("a")])
    a, b = ServiceKey("red", "a"), ServiceKey("red", "b")
    services[b] = service("b")
    settling.step({a, b}, {a, b}, 1.0)
    assert settling.outcomes.keys() == {a}
    assert [*allocator.held_by(a)] == [ip_address("192.0.2.1")]
    assert not allocator.held_by(b)


def test_who_clashed_with_a_sharer_is_served_when_that_one_changes_and_stays():
    sharers = [service("a", share="k"), service("b", share="k")]
    _, settling, services = settled("192.0.2.1", services=sharers)
    a, b = ServiceKey("red", "a"), ServiceKey("red", "b")
    assert settling.outcomes[b].assignment is None
    services[a] = dataclasses.replace(services[a], ports=(ServicePort(Protocol.TCP, 81),))
    assert b in settling.step({a}, (), 1.0)
    assert settling.outcomes[b].assignment is not None
