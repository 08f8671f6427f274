"""Whatever happens, in whatever order: nobody is robbed, nothing leaks, and no address changes unasked.

The rules are written again here, plainly and by listing addresses, so that a mistake would have to be made twice.
"""

from collections import Counter
from ipaddress import ip_address

import msgspec
from examples import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from speaker.allocator.assign import Allocator, Outcome
from speaker.allocator.book import Ledger
from speaker.allocator.settle import settle
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
    TrafficPolicy,
    World,
)

REST = 10.0
POOL_NAMES = ["a", "b", "c"]
#: Few addresses and overlapping pools, so that everybody gets in everybody's way.
TEXTS = [
    "192.0.2.0/30",
    "192.0.2.4/30",
    "192.0.2.2-192.0.2.5",
    "192.0.2.6",
    "2001:db8::/126",
    "2001:db8::2-2001:db8::4",
]
UNIVERSE = [ip_address(f"192.0.2.{n}") for n in range(8)] + [ip_address(f"2001:db8::{n}") for n in range(5)]
KEYS = [ServiceKey(namespace, name) for namespace in ("red", "blue") for name in ("s1", "s2", "s3", "s4")]
GOLD = LabelSelector((LabelRule("tier", "In", frozenset({"gold"})),))
SILVER = LabelSelector((LabelRule("tier", "In", frozenset({"silver"})),))
WITHOUT = LabelSelector((LabelRule("tier", "DoesNotExist"),))

pools = st.builds(
    Pool,
    name=st.sampled_from(POOL_NAMES),
    addresses=st.lists(st.sampled_from(TEXTS).map(parse_range), min_size=1, max_size=3).map(tuple),
    exclude=st.sampled_from([(), (), (parse_range("192.0.2.1"),), (parse_range("2001:db8::2"),)]),
    namespaces=st.sampled_from([frozenset(), frozenset(), frozenset({"red"})]),
    namespace_selectors=st.sampled_from([(), (), (GOLD,), (WITHOUT, GOLD)]),
    service_selectors=st.sampled_from([(), (), (GOLD,), (GOLD, SILVER)]),
    per_namespace=st.sampled_from([None, None, 1, 2]),
    priority=st.integers(0, 1),
    auto_assign=st.sampled_from([True, True, False]),
    avoid_network_and_broadcast=st.booleans(),
    disabled=st.sampled_from([False, False, False, True]),
)

services = st.builds(
    Service,
    key=st.sampled_from(KEYS),
    ports=st.sets(st.sampled_from([80, 81, 82]), min_size=1, max_size=2).map(
        lambda ports: tuple(ServicePort(Protocol.TCP, port) for port in sorted(ports))
    ),
    labels=st.sampled_from([{}, {"tier": "gold"}, {"tier": "silver"}]),
    selector=st.sampled_from([{"app": "x"}, {"app": "x"}, {"app": "y"}, {}]),
    families=st.sampled_from([tuple(Family), tuple(reversed(Family)), (Family.IPV4,), (Family.IPV6,)]),
    family_policy=st.sampled_from(FamilyPolicy),
    traffic_policy=st.sampled_from(TrafficPolicy),
    pools=st.sampled_from([(), (), (), *((name,) for name in POOL_NAMES), ("a", "b"), ("c", "a"), tuple(POOL_NAMES)]),
    addresses=st.lists(st.sampled_from(UNIVERSE), max_size=3, unique=True).map(tuple) | st.just(()),
    release=st.sampled_from([False, False, True]),
    share=st.sampled_from([None, "k", "k", "j"]),
    share_namespaces=st.sampled_from([frozenset(), frozenset({"red", "blue"})]),
    created=st.sampled_from(["", "2026-01-01T00:00:00Z"]),
)


def offers(pool, address):
    if any(each.first.version == address.version and each.first <= address <= each.last for each in pool.exclude):
        return False
    return any(
        each.first.version == address.version and each.first <= address <= each.last and not avoids(pool, each, address)
        for each in pool.addresses
    )


def avoids(pool, written, address):
    network = written.network
    if not pool.avoid_network_and_broadcast or network is None or network.prefixlen > network.max_prefixlen - 2:
        return False  # no range above has an address that ends in .0 or .255
    return address == network[0] or (address.version == 4 and address == network[-1])


def permits(pool, service, namespaces):
    labels = namespaces.get(service.key.namespace, {})
    everybody = not pool.namespaces and not pool.namespace_selectors
    by_label = any(each.matches(labels) for each in pool.namespace_selectors)
    in_namespace = everybody or by_label or service.key.namespace in pool.namespaces
    return in_namespace and (
        not pool.service_selectors or any(each.matches(service.labels) for each in pool.service_selectors)
    )


def may_share(one, other):
    agree = one.share is not None and one.share == other.share
    near = one.key.namespace == other.key.namespace or (
        other.key.namespace in one.share_namespaces and one.key.namespace in other.share_namespaces
    )
    apart = not {port.port for port in one.ports} & {port.port for port in other.ports}
    local = TrafficPolicy.LOCAL in (one.traffic_policy, other.traffic_policy)
    alike = one.key.namespace == other.key.namespace and one.selector == other.selector != {}
    return agree and near and apart and (not local or alike)


def wanted(service):
    if service.family_policy is FamilyPolicy.SINGLE:
        return service.families[:1]
    if service.family_policy is FamilyPolicy.REQUIRE_DUAL and len(service.families) == 1:
        return (*service.families, *(family for family in Family if family not in service.families))
    return service.families


class AllocatorMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.allocator = Allocator(REST)
        self.now = 0.0
        self.pools = {}
        self.namespaces = {}
        self.live = {}

    # ── The book, read through the ledger only ────────────────────────────────────────────────────────────────

    def book(self):
        """address → {holder: (pool, suspended)}"""
        book = {}
        for held in self.allocator.ledger(self.now).held:
            for address, pool in zip(held.addresses, held.pools, strict=True):
                holders = book.setdefault(ip_address(address), {})
                holders[held.service] = (pool, address in held.suspended)
        return book

    def resting(self):
        return {ip_address(each.address): each.service for each in self.allocator.ledger(self.now).resting}

    @staticmethod
    def places(book, key):
        return {address: holders[key][0] for address, holders in book.items() if key in holders}

    # ── What may happen ───────────────────────────────────────────────────────────────────────────────────────

    @rule(pool=pools)
    def edit_pool(self, pool):
        self.pools = {**self.pools, pool.name: pool}
        self.set_pools()

    @precondition(lambda self: self.pools)
    @rule(data=st.data())
    def delete_pool(self, data):
        gone = data.draw(st.sampled_from(sorted(self.pools)))
        self.pools = {name: pool for name, pool in self.pools.items() if name != gone}
        self.set_pools()

    @rule(red=st.booleans(), blue=st.booleans())
    def label_namespaces(self, red, blue):
        self.namespaces = {name: {"tier": "gold"} for name, gold in (("red", red), ("blue", blue)) if gold}
        self.set_pools()

    @rule(service=services)
    def ask(self, service):
        self.live[service.key] = service
        self.check_step(service, lambda: self.allocator.assign(service, self.now))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def ask_again(self, data):
        service = self.live[data.draw(st.sampled_from(sorted(self.live)))]
        outcome = self.check_step(service, lambda: self.allocator.assign(service, self.now))
        revision = self.allocator.revision
        assert self.allocator.assign(service, self.now) == outcome
        assert self.allocator.revision == revision

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def delete(self, data):
        key = data.draw(st.sampled_from(sorted(self.live)))
        del self.live[key]
        before = self.book()
        self.allocator.release(key, self.now)
        assert self.book() == {
            address: left
            for address, holders in before.items()
            if (left := {each: place for each, place in holders.items() if each != key})
        }

    @rule(seconds=st.sampled_from([0.5, 4.0, REST]))
    def wait(self, seconds):
        self.now += seconds

    @rule()
    def settle_everything_and_restart(self):
        world = World(self.pools, self.live, namespaces=self.namespaces)
        before = settle(self.allocator, world, self.now)
        written = msgspec.json.encode(self.allocator.ledger(self.now))
        self.allocator = Allocator(REST)
        self.now = 0.0
        self.allocator.restore(msgspec.json.decode(written, type=Ledger), self.now)
        assert settle(self.allocator, world, self.now) == before

    # ── What must hold for each step ──────────────────────────────────────────────────────────────────────────

    def set_pools(self):
        before, resting = self.book(), self.resting()
        self.allocator.set_pools(self.pools, self.namespaces)
        assert {address: set(holders) for address, holders in self.book().items()} == {
            address: set(holders) for address, holders in before.items()
        }
        assert self.resting() == resting

    def check_step(self, service, step) -> Outcome:
        before, resting = self.book(), self.resting()
        outcome = step()
        after = self.book()
        for address in before.keys() | after.keys():
            others = [
                {key: place for key, place in book.get(address, {}).items() if key != service.key}
                for book in (before, after)
            ]
            assert others[0] == others[1], "a step for one Service changed another's"
        had, has = self.places(before, service.key), self.places(after, service.key)
        for address in had.keys() - has.keys():
            self.check_that_it_was_asked_for(service, address, had)
        for address in has.keys() - had.keys():
            self.check_new_address(service, address, has[address], before, resting)
            self.check_share(service.key.namespace, has[address], Family.of(address), before, after)
        self.check_number(service, had, has)
        self.check_outcome(service, outcome, after, newcomer=not had)
        return outcome

    def check_that_it_was_asked_for(self, service, address, had):
        family, pool = Family.of(address), had[address]
        dropped = family not in wanted(service)
        named = [each for each in service.addresses if Family.of(each) is family]
        other_address = named and address not in named
        other_pool = service.pools and pool not in service.pools
        fewer = any(
            Family.of(other) is family and (not service.pools or had[other] == pool)
            for other in had
            if other != address
        )
        offered = pool in self.pools and offers(self.pools[pool], address)
        released = service.release and not (offered and permits(self.pools[pool], service, self.namespaces))
        assert dropped or other_address or other_pool or fewer or released, "an address changed though nobody asked"

    def check_number(self, service, had, has):
        """Of each family one, or as many as are named, and of several pools one each of those that no name is from."""
        for family in wanted(service):
            named = [each for each in service.addresses if Family.of(each) is family]
            most = max(1, len(named) + (len(service.pools) if len(service.pools) > 1 else 0))
            assert sum(Family.of(each) is family for each in has) <= most
            unnamed = [pool for address, pool in has.items() if Family.of(address) is family and address not in named]
            asked = [pool for pool in unnamed if pool in service.pools]
            assert len(asked) == len(set(asked)) or len(service.pools) < 2 or not had.keys().isdisjoint(has)

    def check_new_address(self, service, address, pool_name, before, resting):
        pool = self.pools[pool_name]
        assert offers(pool, address)
        assert permits(pool, service, self.namespaces)
        assert not pool.disabled
        assert not service.pools or pool_name in service.pools
        named = address in service.addresses
        assert named or len(service.pools) > 1 or all(each.version != address.version for each in service.addresses)
        assert named or service.pools or pool.auto_assign
        served = {key for key, (_, suspended) in before.get(address, {}).items() if not suspended}
        assert served or address not in before, "what is kept for the suspended is not given away"
        assert all(may_share(service, self.live[key]) for key in served - {service.key})
        if not named and resting.get(address, service.key) != service.key:
            offered = [each for each in UNIVERSE if each.version == address.version and offers(pool, each)]
            assert all(each in before or each in resting for each in offered), "it should still rest"

    def check_share(self, namespace, pool, family, before, after):
        """A namespace that has more of a pool than it may has had it since before that was lowered."""
        had, has = (
            sum(
                Family.of(address) is family
                and any(key.namespace == namespace and of == pool for key, (of, _) in who.items())
                for address, who in book.items()
            )
            for book in (before, after)
        )
        most = self.pools[pool].per_namespace
        assert most is None or has <= max(most, had)

    def check_outcome(self, service, outcome, after, newcomer):
        served = [
            address for address, holders in after.items() if service.key in holders and not holders[service.key][1]
        ]
        if outcome.assignment is None:
            assert not served
            assert outcome.refusal is not None
            return
        assignment = outcome.assignment
        assert sorted(assignment.addresses, key=str) == sorted(served, key=str)
        of_each = [Family.of(address) for address in assignment.addresses]
        families = list(dict.fromkeys(of_each))
        assert families == [family for family in wanted(service) if family in families]
        assert of_each == sorted(of_each, key=families.index)
        if newcomer:
            free = service.family_policy is FamilyPolicy.PREFER_DUAL and service.families[0] not in map(
                Family.of, service.addresses
            )
            assert free or families[0] is service.families[0]
            assert len(families) == 2 or service.family_policy is not FamilyPolicy.REQUIRE_DUAL
        for address, pool_name in zip(assignment.addresses, assignment.pools, strict=True):
            pool = self.pools.get(pool_name)
            sound = pool is not None and offers(pool, address) and permits(pool, service, self.namespaces)
            assert (address in assignment.flagged) == (not sound)

    # ── What must hold always ─────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def no_address_has_two_holders_that_may_not_share_it(self):
        for holders in self.book().values():
            served = [self.live[key] for key, (_, suspended) in holders.items() if not suspended]
            for n, one in enumerate(served):
                assert all(may_share(one, other) for other in served[n + 1 :])
            assert len({pool for pool, _ in holders.values()}) == 1, "an EIP is announced on one link"

    @invariant()
    def whatever_is_held_belongs_to_a_live_service(self):
        assert set(self.allocator.holders) <= set(self.live)
        assert not self.book().keys() & self.resting().keys()

    @invariant()
    def usage_is_exact(self):
        book, resting = self.book(), self.resting()
        for name, pool in self.pools.items():
            usage = self.allocator.usage(name)
            for family in Family:
                offered = [each for each in UNIVERSE if Family.of(each) is family and offers(pool, each)]
                if not offered:
                    assert family not in usage
                    continue
                counted = (
                    len(offered),
                    sum(each in book for each in offered),
                    sum(each in resting for each in offered),
                    self.full(book, name, family, pool.per_namespace),
                )
                found = usage[family]
                assert (found.size, found.used, found.resting, found.full) == counted

    @staticmethod
    def full(book, pool, family, most):
        of = Counter(
            namespace
            for address, holders in book.items()
            if Family.of(address) is family
            for namespace in {key.namespace for key, (its, _) in holders.items() if its == pool}
        )
        return tuple(sorted((name, number) for name, number in of.items() if most is not None and number >= most))

    def teardown(self):
        for key in list(self.live):
            self.allocator.release(key, self.now)
        self.now += REST
        assert self.allocator.ledger(self.now) == Ledger()
        for name in self.pools:
            assert all(usage.used == usage.resting == 0 for usage in self.allocator.usage(name).values())
        book = self.allocator._book
        assert not any((book.released, book.shares, book.eips, book.holdings, book._resting, book._left, book._shared))
        assert not self.allocator._settled


AllocatorMachine.TestCase.settings = settings(max_examples=examples(), stateful_step_count=40, deadline=None)
TestAllocator = AllocatorMachine.TestCase
