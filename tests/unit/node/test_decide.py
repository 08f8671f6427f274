"""What one node does with every EIP in use: held on a link, or not and why; and the virtual servers either way."""

from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.api.addresses import parse_range
from speaker.forwarding.plan import EMPTY
from speaker.interfaces.snapshot import LinkAddress, Snapshot
from speaker.model import (
    Assignment,
    Endpoint,
    Gratuitous,
    LabelRule,
    LabelSelector,
    Link,
    LinkNames,
    Mac,
    Pool,
    PreferredNodes,
    Protocol,
    Service,
    ServiceKey,
    ServicePort,
    TrafficPolicy,
    World,
)
from speaker.node.decide import MayHold, MayNotHold, NodeDecider, decide
from speaker.settings import Node

EIP = ip_address("192.0.2.10")
WEB, DNS = ServiceKey("default", "web"), ServiceKey("default", "dns")
ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"), up=True, carrier=True)
ETH1 = Link(3, "eth1", Mac(b"\x02\0\0\0\0\x02"), up=True, carrier=True)
POOL = Pool("lan", (parse_range("192.0.2.0/24"),), interface=LinkNames(("eth1",)), gratuitous=Gratuitous(burst=9))
NODE = Node.parse("n1")


def service(key=WEB, port=80, **more):
    return Service(key, (ServicePort(Protocol.TCP, port),), **more)


def world(*services, pools=(POOL,)):
    return World(pools={pool.name: pool for pool in pools}, services={each.key: each for each in services})


def assigned(*keys, pool="lan"):
    return {key: Assignment(key, (EIP,), (pool,)) for key in keys}


@pytest.fixture
def snapshot():
    """eth0 has the EIP's subnet, eth1 has nothing."""
    bound = ip_interface("192.0.2.1/24")
    return Snapshot(
        links={link.index: link for link in (ETH0, ETH1)},
        addresses=(LinkAddress(ETH0.index, bound.ip, bound.network),),
    )


def test_an_eip_is_held_on_the_link_its_pool_asks_for_and_announced_as_the_pool_says(snapshot):
    decision = decide(world(service()), assigned(WEB), snapshot, NODE)
    assert decision.eips == {EIP: MayHold(EIP, "lan", (WEB,), ETH1, Gratuitous(burst=9))}


def test_how_much_this_node_is_preferred_goes_with_what_it_may_hold_and_no_preference_makes_it_so(snapshot):
    here = LabelSelector((LabelRule("rack", "In", frozenset({"a"})),))
    pool = replace(POOL, node_preference=(PreferredNodes(80, here),), failback=300.0)
    for rack, weight in (("a", 80), ("b", 0)):
        (eip,) = decide(
            world(service(), pools=(pool,)), assigned(WEB), snapshot, Node("n1", {"rack": rack})
        ).eips.values()
        assert eip.preference[1:] == (weight, 300.0)
    elsewhere = replace(pool, node_selector=LabelSelector((LabelRule("edge", "Exists"),)))
    decision = decide(world(service(), pools=(elsewhere,)), assigned(WEB), snapshot, Node("n1", {"rack": "a"}))
    assert decision.may_hold() == {}


def test_services_that_share_an_eip_are_held_once_and_forwarded_each(snapshot):
    decision = decide(world(service(), service(DNS, 53)), assigned(WEB, DNS), snapshot, NODE)
    assert [eip.services for eip in decision.may_hold().values()] == [(DNS, WEB)]
    assert {port for _, _, port in decision.forwarding.virtual_servers} == {80, 53}


def test_an_eip_of_which_no_pool_was_ever_recorded_is_held_on_the_link_of_its_own_subnet(snapshot):
    decision = decide(world(service(), pools=()), assigned(WEB, pool=""), snapshot, NODE)
    assert decision.eips == {EIP: MayHold(EIP, "", (WEB,), ETH0, Gratuitous())}


def test_of_a_pool_that_names_no_link_each_eip_is_held_on_that_of_its_own_subnet(snapshot):
    bound, other = ip_interface("198.51.100.1/24"), ip_address("198.51.100.10")
    both = replace(snapshot, addresses=(*snapshot.addresses, LinkAddress(ETH1.index, bound.ip, bound.network)))
    pool = Pool("lan", (parse_range("192.0.2.0/24"), parse_range("198.51.100.0/24")))
    given = {WEB: Assignment(WEB, (EIP,), ("lan",)), DNS: Assignment(DNS, (other,), ("lan",))}
    decision = decide(world(service(), service(DNS, 53), pools=(pool,)), given, both, NODE)
    assert {eip: held.link for eip, held in decision.may_hold().items()} == {EIP: ETH0, other: ETH1}


def test_an_eip_of_a_pool_whose_rules_nobody_knows_is_held_by_nobody(snapshot):
    eip = decide(world(service(), pools=()), assigned(WEB), snapshot, NODE).eips[EIP]
    assert isinstance(eip, MayNotHold)
    assert (eip.pool, eip.reason) == ("lan", "pool_unknown")


@pytest.mark.parametrize(
    ("own", "reserved", "words"),
    [
        ({EIP: "eth0"}, {}, "bound on eth0"),
        ({}, {EIP: "node n2"}, "an address of node n2"),
        ({EIP: "eth0"}, {EIP: "node n1"}, "bound on eth0"),
    ],
)
def test_an_address_that_a_host_has_for_its_own_is_held_by_nobody(own, reserved, words, snapshot):
    asked = replace(world(service()), reserved=reserved)
    eip = decide(asked, assigned(WEB), replace(snapshot, own=own), NODE).eips[EIP]
    assert isinstance(eip, MayNotHold)
    assert eip.reason == "host_address"
    assert words in eip.message


@pytest.mark.parametrize(
    ("story", "pool", "wanted", "reason"),
    [
        ("no such link", replace(POOL, interface=LinkNames(("eth9",))), service(), "no_such_link"),
        (
            "another node's pool",
            replace(POOL, node_selector=LabelSelector((LabelRule("rack", "Exists"),))),
            service(),
            "node_not_selected",
        ),
    ],
)
def test_an_eip_that_must_not_be_held_says_why_and_is_forwarded_all_the_same(story, pool, wanted, reason, snapshot):
    decision = decide(world(wanted, pools=(pool,)), assigned(WEB), snapshot, NODE)
    eip = decision.eips[EIP]
    assert isinstance(eip, MayNotHold)
    assert eip.reason == reason
    assert decision.may_hold() == {}
    assert (EIP, Protocol.TCP, 80) in decision.forwarding.virtual_servers


def test_with_policy_local_a_node_without_endpoints_leaves_the_eip_to_others_altogether(snapshot):
    decision = decide(world(service(traffic_policy=TrafficPolicy.LOCAL)), assigned(WEB), snapshot, NODE)
    eip = decision.eips[EIP]
    assert isinstance(eip, MayNotHold)
    assert eip.reason == "no_local_endpoint"
    assert decision.forwarding == EMPTY


def test_what_is_bound_on_a_link_of_this_host_is_neither_forwarded_nor_guarded(snapshot):
    """Its own address: to guard it would shut its sshd."""
    eip = assigned(WEB)[WEB].addresses[0]
    bound = LinkAddress(ETH1.index, eip, ip_interface(f"{eip}/24").network)
    here = replace(snapshot, addresses=(*snapshot.addresses, bound))
    decision = decide(world(service()), assigned(WEB), here, NODE)
    assert decision.forwarding.eips == frozenset()
    assert not decision.forwarding.virtual_servers
    assert decide(world(service()), assigned(WEB), snapshot, NODE).forwarding.eips == {eip}


def test_a_cable_that_is_pulled_takes_the_eip_with_it(snapshot):
    pulled = replace(snapshot, links={**snapshot.links, ETH1.index: replace(ETH1, carrier=False)})
    eip = decide(world(service()), assigned(WEB), pulled, NODE).eips[EIP]
    assert isinstance(eip, MayNotHold)
    assert eip.reason == "no_carrier"


# ── Again and again ───────────────────────────────────────────────────────────────────────────────────────────

SERVICES = tuple(ServiceKey("default", name) for name in "abcd")
EIPS = (*(ip_address(f"192.0.2.{10 + number}") for number in range(4)), ip_address("2001:db8::10"))
POOLS = {
    "named": Pool("named", (parse_range("192.0.2.10-192.0.2.11"),), interface=LinkNames(("eth1",))),
    "own": Pool("own", (parse_range("192.0.2.12"),), gratuitous=Gratuitous(burst=2)),
    "nowhere": Pool("nowhere", (parse_range("2001:db8::10"),), interface=LinkNames(("eth9",))),
}
POOL_OF = dict(zip(EIPS, ("named", "named", "own", "gone", "nowhere"), strict=True))
"""An EIP has one pool at a time, whichever of its Services asks; of one of them the pool is gone."""


@st.composite
def wishes(draw):
    """What becomes of one Service: what it asks for, the EIPs it has, its endpoints."""
    first, second = draw(st.sampled_from((*EIPS[:4], None))), draw(st.sampled_from((EIPS[4], None)))
    addresses = tuple(address for address in (first, second) if address is not None)
    here = st.builds(
        Endpoint,
        st.sampled_from((ip_address("10.0.0.1"), ip_address("2001:db8:1::1"))),
        st.just(8080),
        st.just(Protocol.TCP),
        ready=st.booleans(),
        node=st.sampled_from(("n1", "n2")),
    )
    return {
        "ports": (ServicePort(Protocol.TCP, draw(st.sampled_from((80, 81)))),),
        "traffic_policy": draw(st.sampled_from(TrafficPolicy)),
        "source_ranges": draw(st.sampled_from(((), (ip_network("198.51.100.0/24"),)))),
    }, (addresses, tuple(draw(st.lists(here, max_size=2))))


STEPS = st.lists(
    st.dictionaries(st.sampled_from(SERVICES), st.none() | wishes(), max_size=len(SERVICES)), min_size=1, max_size=8
)
"""Of each step the Services that change; None: it is deleted. Some change to what they are."""


class History:
    """One reading of the API after the other."""

    def __init__(self):
        self.world = World(pools=POOLS)
        self.assignments = {}

    def step(self, changes):
        services, endpoints, assignments = dict(self.world.services), dict(self.world.endpoints), dict(self.assignments)
        for key, wish in changes.items():
            for mapping in (services, endpoints, assignments):
                mapping.pop(key, None)
            if wish is not None:
                asked, (addresses, endpoints[key]) = wish
                services[key] = Service(key, **asked)
                if addresses:
                    assignments[key] = Assignment(key, addresses, tuple(POOL_OF[each] for each in addresses))
        self.world = replace(self.world, services=services, endpoints=endpoints)
        self.assignments = assignments


@pytest.fixture(scope="module")
def still():
    """Links that stay as they are."""
    bound = ip_interface("192.0.2.1/24")
    return Snapshot(
        links={link.index: link for link in (ETH0, ETH1)},
        addresses=(LinkAddress(ETH0.index, bound.ip, bound.network),),
    )


@given(steps=STEPS, forwards=st.booleans())
def test_little_by_little_the_same_is_decided_as_at_once_and_what_differs_is_named(still, steps, forwards):
    history, decider = History(), NodeDecider(forwards)
    before, touched = decider.decide(history.world, history.assignments, still, NODE, None)
    assert (before.eips, touched) == ({}, None)
    for changes in steps:
        history.step(changes)
        now, touched = decider.decide(history.world, history.assignments, still, NODE, changes.keys())
        anew, _ = NodeDecider(forwards).decide(history.world, history.assignments, still, NODE, None)
        assert now == anew
        # Nothing forgotten; what did not change may be named.
        assert {eip for eip in EIPS if before.eips.get(eip) != now.eips.get(eip)} <= touched
        before = now


@given(steps=STEPS)
def test_a_decision_stays_what_it_was_when_the_next_one_is_made(still, steps):
    history, decider = History(), NodeDecider(forwards=False)
    made = [(decider.decide(history.world, history.assignments, still, NODE, None)[0], {})]
    for changes in steps:
        history.step(changes)
        decision, _ = decider.decide(history.world, history.assignments, still, NODE, changes.keys())
        made.append((decision, dict(decision.eips)))
    assert all(decision.eips == as_it_was for decision, as_it_was in made)


@given(steps=STEPS)
def test_no_eip_is_named_that_no_changed_service_has_or_had(still, steps):
    history, decider = History(), NodeDecider(forwards=False)
    decider.decide(history.world, history.assignments, still, NODE, None)
    for changes in steps:
        former = history.assignments
        history.step(changes)
        _, touched = decider.decide(history.world, history.assignments, still, NODE, changes.keys())
        both = [mapping[key] for mapping in (former, history.assignments) for key in changes if key in mapping]
        assert touched == {address for assignment in both for address in assignment.addresses}


def test_when_anything_may_be_another_everything_is_decided_anew(still):
    decider = NodeDecider(forwards=True)
    first, _ = decider.decide(world(service()), assigned(WEB), still, NODE, None)
    assert isinstance(first.eips[EIP], MayHold)
    pulled = replace(still, links={**still.links, ETH1.index: replace(ETH1, carrier=False)})
    second, touched = decider.decide(world(service()), assigned(WEB), pulled, NODE, None)
    assert isinstance(second.eips[EIP], MayNotHold)
    assert touched is None


def test_where_nothing_is_forwarded_the_plan_has_only_services_that_limit_their_clients(still):
    limited = service(DNS, 53, source_ranges=(ip_network("198.51.100.0/24"),))
    decision, _ = NodeDecider(forwards=False).decide(world(service(), limited), assigned(WEB, DNS), still, NODE, None)
    assert set(decision.forwarding.virtual_servers) == {(EIP, Protocol.TCP, 53)}
