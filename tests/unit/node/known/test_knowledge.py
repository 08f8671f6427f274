"""What a running speaker tells of one EIP, Service or pool that is asked about."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from speaker.allocator.assign import Allocator, Usage
from speaker.allocator.settle import Settlement, settle
from speaker.forwarding.changes import EipChange
from speaker.forwarding.plan import MAX_REAL_SERVERS
from speaker.interfaces.snapshot import LinkAddress, Snapshot
from speaker.model import (
    AddressRange,
    CanReach,
    Endpoint,
    Family,
    LabelRule,
    LabelSelector,
    Link,
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
from speaker.node.decide import MayNotHold, decide
from speaker.node.known import knowledge
from speaker.node.known.knowledge import Candidate, InForce
from speaker.node.known.trouble import of_all
from speaker.ownership.preference import Preferred
from speaker.settings import Node
from speaker.wire.messages import NOBODYS, ClaimStatus, PeerSeen

A, B, C = (ip_address(f"192.0.2.{last}") for last in (10, 11, 12))
WEB, LOCAL, LATE = (ServiceKey("lab", name) for name in ("web", "local", "late"))
POD, OTHERS = ip_address("10.244.1.11"), ip_address("10.244.2.11")
LAN = Pool("lan", (AddressRange(A, B),))
SPARE = Pool("spare", (AddressRange(C, C),), interface=CanReach(A))
MINE = ClaimStatus(True, "n1", 4, 12.5)
N2 = PeerSeen("n2", "eth0", True, False)


def service(key, address, policy=TrafficPolicy.CLUSTER, created="2026"):
    return Service(key, (ServicePort(Protocol.TCP, 80),), addresses=(address,), traffic_policy=policy, created=created)


def state() -> InForce:
    """``lab/late`` asks for what ``lab/web`` has."""
    pods = [Endpoint(POD, 8080, Protocol.TCP, node="n1"), Endpoint(OTHERS, 8080, Protocol.TCP, node="n2")]
    world = World(
        {
            "lan": Pool("lan", (AddressRange(A, B),)),
            "spare": Pool("spare", (AddressRange(C, C),), interface=CanReach(A)),
        },
        {
            each.key: each
            for each in (service(WEB, A), service(LOCAL, B, TrafficPolicy.LOCAL), service(LATE, A, created="2027"))
        },
        {WEB: tuple(pods), LOCAL: (pods[0], replace(pods[1], ready=False, serving=False))},
    )
    eth0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))
    snapshot = Snapshot({2: eth0}, (LinkAddress(2, ip_address("192.0.2.1"), ip_network("192.0.2.0/24")),))
    settlement = settle(Allocator(), world, 0.0)
    return InForce(
        settlement,
        decide(world, settlement.assignments, snapshot, Node("n1")),
        {"lan": {Family.IPV4: Usage(2, 2, 0)}},
        world,
        "n1",
    )


@pytest.mark.parametrize(
    ("about", "eips", "services", "pools"),
    [
        ("", [A, B], [LATE, LOCAL, WEB], ["lan", "spare"]),
        ("192.0.2.10", [A], [LATE, WEB], ["lan"]),
        ("lab/local", [B], [LOCAL], ["lan"]),
        ("local", [B], [LOCAL], ["lan"]),
        ("lab/late", [], [LATE], []),
        ("lan", [A, B], [LOCAL, WEB], ["lan"]),
        ("spare", [], [], ["spare"]),
        ("192.0.2.12", [], [], ["spare"]),
        ("192.0.2.99", [], [], []),
        ("lab/no", [], [], []),
    ],
)
def test_an_address_a_service_or_a_pool_is_asked_about(about, eips, services, pools):
    found = state()
    chosen = knowledge.eips_of(found, about)
    assert chosen == eips
    assert (keys := knowledge.services_of(found, about, chosen)) == services
    assert knowledge.pools_of(found, about, chosen, keys) == pools


def test_of_an_eip_it_tells_who_holds_it_where_and_what_is_forwarded():
    told = knowledge.known_eip(
        state(), A, MINE, "claimed", [N2], [EipChange(A), EipChange(A, bound=False), EipChange(B)]
    )
    assert (told.mine, told.holder, told.term, told.since, told.history) == (True, "n1", 4, 12.5, "claimed")
    assert (told.link, told.mac, told.pool, told.services) == ("eth0", "02:00:00:00:00:01", "lan", ("lab/web",))
    assert told.servers == ("TCP 192.0.2.10:80 rr: 10.244.1.11:8080 weight 1 local, 10.244.2.11:8080 weight 1",)
    assert told.missing == ("+ EIP 192.0.2.10",)


def test_of_a_preference_it_tells_what_it_is_and_who_is_preferred():
    found = state()
    terms = tuple(PreferredNodes(weight, LabelSelector((LabelRule("zone", "In", frozenset((zone,))),)))
                  for weight, zone in ((80, "a"), (20, "b")))  # fmt: skip
    pools = found.world.pools | {"lan": replace(LAN, node_preference=terms, failback=300.0)}
    preferring = found._replace(world=replace(found.world, pools=pools))
    told = knowledge.known_eip(preferring, A, MINE._replace(preferred=Preferred("n2", 80, 20)), "", [N2])
    assert told.preference == "80 zone=a; 20 zone=b; moves back after 300 s"
    assert told.preferred.startswith("n2 is preferred (weight 80, n1 has 20)")
    assert knowledge.known_eip(found, A, MINE, "", [N2]).preference == ""


@pytest.mark.parametrize(
    ("peer", "why"),
    [
        (N2, Candidate("n2", True, "heard on eth0")),
        (N2._replace(alive=False), Candidate("n2", False, "silent on eth0")),
        (N2._replace(draining=True), Candidate("n2", False, "draining")),
    ],
)
def test_of_each_node_it_tells_whether_it_may_hold_the_eip_and_why(peer, why):
    own, other = knowledge.known_eip(state(), A, MINE, "", [peer]).candidates
    assert (own.node, own.may) == ("n1", True)
    assert other == why


def test_a_peer_without_a_ready_endpoint_may_not_hold_what_is_local_by_the_words_of_the_rule_itself():
    _, other = knowledge.known_eip(state(), B, MINE, "", [N2]).candidates
    assert not other.may
    assert "externalTrafficPolicy: Local and no ready IPv4 endpoint on node n2" in other.why


def test_a_peer_on_another_link_is_no_candidate():
    assert len(knowledge.known_eip(state(), A, MINE, "", [N2._replace(link="eth1")]).candidates) == 1


def test_a_service_comes_with_its_refusal_in_the_allocators_words_and_its_endpoints():
    told = knowledge.known_service(state(), LATE)
    assert told.addresses == ()
    assert told.refused == state().settlement.refusals[LATE].reason.value
    assert told.message == state().settlement.refusals[LATE].message
    assert told.wanted == ("192.0.2.10",)
    assert [each.takes_new for each in knowledge.known_service(state(), LOCAL).endpoints.first] == [True, False]


def test_a_pool_comes_with_its_use_and_how_its_link_is_chosen():
    assert knowledge.known_pool(state(), "lan").used == 2
    told = knowledge.known_pool(state(), "spare")
    assert (told.interface, told.target) == ("interface: can_reach:192.0.2.10", "192.0.2.10")


@pytest.mark.parametrize(
    ("key", "forwards", "unread"),
    [(WEB, True, False), (WEB, False, False), (LATE, True, False), (LATE, False, True), (LOCAL, False, False)],
)
def test_where_others_forward_endpoints_that_are_not_there_may_only_not_have_been_read(key, forwards, unread):
    assert knowledge.known_service(state()._replace(forwards=forwards), key).unread is unread


def test_endpoints_without_end_are_told_up_to_a_bound():
    found = state()
    many = tuple(Endpoint(POD + number, 80, Protocol.TCP) for number in range(MAX_REAL_SERVERS))
    told = knowledge.known_service(found._replace(world=replace(found.world, endpoints={WEB: many})), WEB)
    assert (len(told.endpoints.first), told.endpoints.more) == (knowledge.MOST, len(many) - knowledge.MOST)
    assert told.endpoints.whole is None


def test_the_endpoints_that_take_connections_are_told_first():
    found = state()
    many = tuple(Endpoint(POD, port, Protocol.TCP, ready=port == 9000, serving=False) for port in range(8000, 9001))
    told = knowledge.known_service(found._replace(world=replace(found.world, endpoints={WEB: many})), WEB)
    assert told.endpoints.first[0].takes_new


def test_free_addresses_of_a_pool_are_told_by_who_knows_all_that_are_in_use():
    found = state()
    pools = {"lan": Pool("lan", (AddressRange(A, B + 3),), exclude=(AddressRange(B + 2, B + 2),))}
    wider = found._replace(world=replace(found.world, pools=pools))
    assert knowledge.known_pool(wider, "lan").free == tuple(str(B + number) for number in (1, 3))
    assert {A, B} <= found.decision.eips.keys()


def test_a_service_that_names_another_address_is_given_it_and_the_old_one_is_released():
    """The way out of a prefix that was renumbered, as ``explain`` tells it."""
    allocator, found = Allocator(), state().world
    alone = replace(found, services={WEB: replace(found.services[WEB], addresses=())})
    (old,) = settle(allocator, alone, 0.0).assignments[WEB].addresses
    new = B if old == A else A
    (moved,) = settle(allocator, replace(alone, services={WEB: service(WEB, new)}), 1.0).assignments[WEB].addresses
    assert moved == new


def test_a_list_that_may_be_cut_cannot_be_iterated_by_mistake():
    told = knowledge.cut(range(1000), str)
    assert (len(told), told.more, told.first[:2], told.whole) == (1000, 1000 - knowledge.MOST, ("0", "1"), None)
    assert knowledge.cut([1], str).whole == ("1",)
    with pytest.raises(TypeError, match="not iterable"):
        iter(told)
    with pytest.raises(TypeError):
        "0" in told  # noqa: B015
    assert not knowledge.Cut()


# ── what is wrong with them (trouble.py) ──

WELL = state()._replace(settlement=Settlement(state().settlement.assignments, {}))
CLAIMS = {A: MINE, B: MINE}
BY_N2 = ClaimStatus(False, "n2", 4, None, 2)


def told(in_force=WELL, claims=CLAIMS, answering=None, vacant=(), **more):
    return [(each.kind, each.what) for each in of_all(in_force, claims, answering or {}, vacant, **more)]


def without(*keys, **changes):
    """Endpoints of these Services are gone, or changed."""
    endpoints = dict(WELL.world.endpoints)
    for key in keys:
        endpoints[key] = tuple(replace(each, **changes) for each in endpoints[key]) if changes else ()
    return WELL._replace(world=replace(WELL.world, endpoints=endpoints))


def may_not(reason):
    eips = {**WELL.decision.eips, B: MayNotHold(B, "lan", (LOCAL,), reason, f"eth0: {reason}")}
    return WELL._replace(decision=WELL.decision._replace(eips=eips))


def test_nothing_is_wrong_where_all_is_well():
    assert told() == []


def test_a_refused_service_is_named_with_the_allocators_words():
    ((kind, what),) = told(state())
    assert (kind, what.startswith(f"{LATE}: no EIP: ")) == ("refused", True)


@pytest.mark.parametrize(
    ("in_force", "sentence"),
    [
        (without(WEB), "lab/web has no IPv4 endpoint in any EndpointSlice: does its selector match a pod?"),
        (without(WEB, ready=False), "none of the 2 IPv4 endpoints of lab/web is ready"),
    ],
)
def test_a_service_without_anybody_to_forward_to_is_named_wherever_its_eip_is_held(in_force, sentence):
    assert [what for _, what in told(in_force)] == [sentence]
    assert [what for _, what in told(in_force, {A: BY_N2, B: MINE})] == [sentence]


def test_that_this_node_must_not_hold_what_another_holds_is_as_it_should_be():
    assert told(may_not("no_local_endpoint"), {A: MINE, B: BY_N2}) == []
    assert told(may_not("no_local_endpoint"), {A: MINE, B: NOBODYS}) == [
        ("no_local_endpoint", "eth0: no_local_endpoint")
    ]
    assert told(may_not("no_carrier"), {A: MINE, B: BY_N2}) == [("no_carrier", "eth0: no_carrier")]


def test_what_nobody_has_held_for_long_is_named_and_what_a_failover_takes_is_not():
    assert told(claims={A: NOBODYS, B: MINE}) == []
    ((kind, _),) = told(claims={A: NOBODYS, B: MINE}, vacant=[A])
    assert kind == "nobody_holds"
    assert told(claims={A: NOBODYS, B: MINE}, vacant=[A], draining=True)[0][0] == "draining"


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (0, [("not_answered", "n2 holds 192.0.2.10, but nobody answers for it")]),
        (1, []),
        (2, [("two_holders", "2 hosts answer for 192.0.2.10")]),
    ],
)
def test_an_eip_for_which_not_exactly_one_host_answers_is_named(hosts, expected):
    assert told(claims={A: BY_N2, B: MINE}, answering={A: hosts}) == expected


def test_who_answers_for_what_nobody_holds_is_no_matter_of_this():
    assert told(claims={A: NOBODYS, B: MINE}, answering={A: 0}) == []
