"""From Services, endpoints and assignments to virtual servers."""

import sys
from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speaker.forwarding.changes import Flow, goes_on
from speaker.forwarding.nftables.ruleset import expressible
from speaker.forwarding.plan import (
    MAX_REAL_SERVERS,
    Plan,
    Planner,
    RealServer,
    VirtualServer,
    crowded,
    plan,
    taken_here,
)
from speaker.model import Family, Protocol, ServiceKey, ServicePort, TrafficPolicy

EIP = "192.0.2.10"


def only(made: Plan) -> VirtualServer:
    (server,) = made.virtual_servers.values()
    return server


def weights(made: Plan) -> dict[str, int]:
    return {str(real.address): real.weight for real in only(made).real_servers}


def test_each_port_of_each_eip_is_a_virtual_server(web, pod, world):
    ports = (ServicePort(Protocol.TCP, 80, "http"), ServicePort(Protocol.UDP, 53, "dns"))
    service = web(ports=ports, families=(Family.IPV4, Family.IPV6))
    made = plan(*world((service, (), (EIP, "2001:db8::10"))), "a")
    assert {(str(eip), protocol, port) for eip, protocol, port in made.virtual_servers} == {
        (EIP, Protocol.TCP, 80),
        (EIP, Protocol.UDP, 53),
        ("2001:db8::10", Protocol.TCP, 80),
        ("2001:db8::10", Protocol.UDP, 53),
    }
    assert made.eips == {ip_address(EIP), ip_address("2001:db8::10")}


MATCHES = [
    ("the same port and family", {}, True),
    ("another port's name", {"port_name": "admin"}, False),
    ("another protocol", {"protocol": Protocol.UDP}, False),
]


@pytest.mark.parametrize(("changes", "taken"), [row[1:] for row in MATCHES], ids=[row[0] for row in MATCHES])
def test_endpoints_belong_to_the_port_of_their_name_and_protocol(web, pod, world, changes, taken):
    made = plan(*world((web(), (pod("10.0.0.3", **changes),), (EIP,))), "a")
    assert bool(only(made).real_servers) is taken


def test_endpoints_serve_eips_of_their_own_family(web, pod, world):
    made = plan(*world((web(), (pod("10.0.0.3"), pod("2001:db8:1::3")), (EIP, "2001:db8::10"))), "a")
    for server in made.virtual_servers.values():
        assert [real.address.version for real in server.real_servers] == [server.address.version]


READY, GONE = {}, {"ready": False, "serving": False, "terminating": True}
NOT_YET, ENDING = {"ready": False, "serving": False}, {"ready": False, "terminating": True}
STATES = [
    ("ready", [READY, READY], [1, 1]),
    ("not ready yet", [READY, NOT_YET], [1, 0]),
    ("ending while another is ready", [READY, ENDING], [1, 0]),
    ("all ending, still serving (KEP-1669)", [ENDING, ENDING], [1, 1]),
    ("all ending, one still serving", [ENDING, GONE], [1, 0]),
    ("none ready, one ending", [NOT_YET, ENDING], [0, 1]),
    ("none can serve", [NOT_YET, GONE], [0, 0]),
    ("serving but not ready and not ending", [{"ready": False}], [0]),
]


@pytest.mark.parametrize(("states", "expected"), [row[1:] for row in STATES], ids=[row[0] for row in STATES])
def test_weights_follow_readiness(web, pod, world, states, expected):
    endpoints = tuple(pod(f"10.0.0.{number}", **state) for number, state in enumerate(states, 3))
    assert list(weights(plan(*world((web(), endpoints, (EIP,))), "a")).values()) == expected


def test_a_udp_endpoint_that_takes_no_new_client_is_none(web, pod, world):
    """At weight 0 it would keep its clients for as long as they send."""
    udp = web(ports=(ServicePort(Protocol.UDP, 80, "http"),))
    for states, left in (([READY, NOT_YET], {"10.0.0.3": 1}), ([ENDING, GONE], {"10.0.0.3": 1}), ([GONE], {})):
        endpoints = (pod(f"10.0.0.{last}", protocol=Protocol.UDP, **state) for last, state in enumerate(states, 3))
        assert weights(plan(*world((udp, tuple(endpoints), (EIP,))), "a")) == left


def test_pods_may_call_different_numbers_by_the_port_name_that_the_service_targets(web, pod, world):
    made = plan(*world((web(), (pod("10.0.0.3", port=8080), pod("10.0.0.4", port=9090)), (EIP,))), "a")
    assert [(str(real.address), real.port) for real in only(made).real_servers] == [
        ("10.0.0.3", 8080),
        ("10.0.0.4", 9090),
    ]


def test_an_endpoint_named_twice_is_one_real_server_with_the_better_word(web, pod, world):
    for pair in ((READY, NOT_YET), (NOT_YET, READY)):
        endpoints = tuple(pod("10.0.0.3", **state) for state in pair)
        assert weights(plan(*world((web(), endpoints, (EIP,))), "a")) == {"10.0.0.3": 1}


def test_real_servers_are_sorted_whatever_the_order_of_the_slices(web, pod, world):
    endpoints = tuple(pod(address) for address in ("10.0.0.10", "10.0.0.9", "9.9.9.9"))
    assert list(weights(plan(*world((web(), endpoints, (EIP,))), "a"))) == ["9.9.9.9", "10.0.0.9", "10.0.0.10"]


def test_traffic_policy_local_uses_this_nodes_endpoints_and_keeps_the_clients_address(web, pod, world):
    service = web(traffic_policy=TrafficPolicy.LOCAL)
    endpoints = (pod("10.0.0.3", node="a"), pod("10.0.0.4", node="b"), pod("10.0.0.5", node=None))
    server = only(plan(*world((service, endpoints, (EIP,))), "a"))
    assert server.real_servers == (RealServer(ip_address("10.0.0.3"), 8080, 1, local=True),)
    assert not server.masquerade


def test_with_policy_local_a_node_without_endpoints_has_nothing_to_do_with_the_eip(web, pod, world):
    """Its own clients would be refused; so their packets go to the holder, like everybody's."""
    service = web(traffic_policy=TrafficPolicy.LOCAL, families=(Family.IPV4, Family.IPV6))
    elsewhere = pod("10.0.0.3", node="b"), pod("2001:db8:1::3", node="b"), pod("10.0.0.4", node=None)
    eips = EIP, "2001:db8::10"
    assert plan(*world((service, elsewhere, eips)), "a") == Plan(frozenset(), {})
    assert plan(*world((service, (), eips)), "a") == Plan(frozenset(), {})
    for state in (READY, NOT_YET, ENDING, GONE):
        one_here = *elsewhere, pod("10.0.0.5", node="a", **state)
        assert plan(*world((service, one_here, eips)), "a").eips == {ip_address(EIP)}
    cluster = replace(service, traffic_policy=TrafficPolicy.CLUSTER)
    assert len(plan(*world((cluster, (), eips)), "a").eips) == 2


@pytest.mark.parametrize(
    ("ready", "unwell", "served"),
    [(True, "", True), (False, "", True), (False, "connection refused", False), (True, "connection refused", True)],
)
def test_with_policy_local_a_nodes_own_clients_go_to_the_holder_while_only_its_own_endpoint_is_unwell(
    web, pod, world, ready, unwell, served
):
    """One that is ready all the same is as unwell as all others. Connections go on, but UDP's to no real server."""
    here = replace(pod("10.0.0.2", node="a", ready=ready), unwell=unwell)
    service = web(traffic_policy=TrafficPolicy.LOCAL)
    made = plan(*world((service, (here, pod("10.0.0.3", node="b")), (EIP,))), "a")
    assert bool(taken_here(made).eips) is bool(taken_here(made).virtual_servers) is served
    assert bool(expressible(made).virtual_servers) is served
    key = (ip_address(EIP), Protocol.TCP, 80)
    assert goes_on(Flow(key, ip_address("192.0.2.9"), 40000, ip_address("10.0.0.2"), 8080), made)


def test_what_goes_elsewhere_leaves_the_ports_of_its_eip_that_do_not(web, pod, world):
    unwell = replace(pod("10.0.0.2", node="a", ready=False), unwell="refused")
    local = web(traffic_policy=TrafficPolicy.LOCAL)
    other = replace(web(ports=(ServicePort(Protocol.TCP, 81, ""),)), key=ServiceKey("default", "other"))
    made = plan(*world((local, (unwell,), (EIP,)), (other, (), (EIP,))), "a")
    assert [key[2] for key in taken_here(made).virtual_servers] == [81]
    assert taken_here(made).eips == {ip_address(EIP)}


def test_with_policy_local_an_eip_comes_and_goes_with_this_nodes_endpoints(web, pod, world):
    service, planner, nothing = web(traffic_policy=TrafficPolicy.LOCAL), Planner(), Plan(frozenset(), {})
    for endpoints in ((), (pod("10.0.0.3"),), (), (pod("10.0.0.4", node="b"),), (pod("10.0.0.3"),)):
        made = planner.plan(*world((service, endpoints, (EIP,))), "a", [service.key])
        assert made == plan(*world((service, endpoints, (EIP,))), "a")
        assert (made == nothing) is not any(endpoint.node == "a" for endpoint in endpoints)


def test_with_policy_local_another_nodes_ready_endpoint_does_not_hold_back_an_ending_one_here(web, pod, world):
    service = web(traffic_policy=TrafficPolicy.LOCAL)
    endpoints = (pod("10.0.0.3", node="a", **ENDING), pod("10.0.0.4", node="b"))
    assert weights(plan(*world((service, endpoints, (EIP,))), "a")) == {"10.0.0.3": 1}


def test_with_policy_cluster_endpoints_here_are_marked_local(web, pod, world):
    endpoints = (pod("10.0.0.3", node="a"), pod("10.0.0.4", node="b"))
    server = only(plan(*world((web(), endpoints, (EIP,))), "a"))
    assert [real.local for real in server.real_servers] == [True, False]
    assert server.masquerade


def test_services_that_share_an_eip_contribute_their_own_ports(web, pod, world):
    other = web(key=ServiceKey("default", "dns"), ports=(ServicePort(Protocol.UDP, 53, "dns"),))
    dns = pod("10.0.0.9", port=53, protocol=Protocol.UDP, port_name="dns")
    made = plan(*world((web(), (pod("10.0.0.3"),), (EIP,)), (other, (dns,), (EIP,))), "a")
    assert {
        key[1:]: [str(real.address) for real in server.real_servers] for key, server in made.virtual_servers.items()
    } == {
        (Protocol.TCP, 80): ["10.0.0.3"],
        (Protocol.UDP, 53): ["10.0.0.9"],
    }
    assert made.eips == {ip_address(EIP)}


def test_a_port_that_two_services_claim_goes_to_the_first_by_name(web, pod, world):
    late = web(key=ServiceKey("default", "zebra"))
    services = ((late, (pod("10.0.0.9"),), (EIP,)), (web(), (pod("10.0.0.3"),), (EIP,)))
    assert weights(plan(*world(*services), "a")) == {"10.0.0.3": 1}


def test_a_port_without_endpoints_still_stands(web, world):
    assert only(plan(*world((web(), (), (EIP,))), "a")).real_servers == ()


def test_an_assignment_whose_service_is_gone_forwards_nothing(web, world):
    state, assignments = world((web(), (), (EIP,)))
    assert plan(type(state)(), assignments, "a") == Plan(frozenset(), {})


def test_a_service_without_an_eip_forwards_nothing(web, pod, world):
    assert plan(*world((web(), (pod("10.0.0.3"),), ())), "a") == Plan(frozenset(), {})


def test_a_services_own_wishes_reach_its_virtual_servers(web, world):
    ranges = (ip_network("10.0.0.0/8"), ip_network("2001:db8::/64"))
    service = web(scheduler="wlc", affinity_seconds=10800, source_ranges=ranges)
    server = only(plan(*world((service, (), (EIP,))), "a"))
    assert (server.scheduler, server.persistence, server.sources) == ("wlc", 10800, ranges)
    assert only(plan(*world((web(), (), (EIP,))), "a")).scheduler == "rr"


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)  # they make values and keep nothing
@given(data=st.data())
def test_planned_step_by_step_it_is_as_planned_at_once(web, pod, world, data):
    """Services come, change, clash over ports of a shared EIP, lose their assignment, and go."""
    names = [ServiceKey("default", name) for name in "abc"]
    ports = st.lists(st.sampled_from([80, 81, 82]), min_size=1, unique=True)
    eips = st.lists(st.sampled_from([EIP, "192.0.2.11"]), unique=True)
    planner, there, last = Planner(), {}, Plan(frozenset(), {})
    for _ in range(data.draw(st.integers(1, 6))):
        changed = data.draw(st.sets(st.sampled_from(names)))
        for key in changed:
            there.pop(key, None)
            if data.draw(st.booleans()):
                service = web(
                    key=key, ports=tuple(ServicePort(Protocol.TCP, port, "http") for port in data.draw(ports))
                )
                endpoints = tuple(pod(f"10.0.0.{last}") for last in data.draw(st.sets(st.integers(1, 4))))
                there[key] = (service, endpoints, tuple(data.draw(eips)))
        everything, assignments = world(*there.values())
        told = data.draw(st.sampled_from([changed, None]))
        step = planner.plan(everything, assignments, "a", told)
        assert step == plan(everything, assignments, "a")
        same = {key for key, server in step.virtual_servers.items() if last.virtual_servers.get(key) == server}
        if not changed:
            assert same == step.virtual_servers.keys()
            assert all(step.virtual_servers[key] is last.virtual_servers[key] for key in same)
        last = step


def test_an_eip_is_never_its_own_real_server(web, pod, world):
    """Packets would go round in a circle."""
    found, assignments = world((web(), (pod("192.0.2.10"), pod("10.0.0.3")), ("192.0.2.10",)))
    (server,) = plan(found, assignments, "a").virtual_servers.values()
    assert [str(real.address) for real in server.real_servers] == ["10.0.0.3"]


def test_of_endpoints_without_end_those_that_take_new_connections_are_used_up_to_a_bound_and_it_is_told(
    web, pod, world
):
    many = [pod(str(ip_address("10.0.0.1") + i), ready=i % 2 == 0) for i in range(2 * MAX_REAL_SERVERS + 2)]
    made = plan(*world((web(), tuple(many), (EIP,))), "a")
    kept = only(made).real_servers
    assert len(kept) == MAX_REAL_SERVERS
    assert {real.weight for real in kept} == {1}
    assert list(kept) == sorted(kept)
    (told,) = crowded(made)
    assert told.endswith(f"no more than {MAX_REAL_SERVERS} endpoints of a port are used")
    assert crowded(plan(*world((web(), tuple(many[:10]), (EIP,))), "a")) == ()


LOST = [
    ("one of two nodes", {"a"}, {"10.0.0.3": 0, "10.0.0.4": 1}),
    ("another node", {"c"}, {"10.0.0.3": 1, "10.0.0.4": 1}),
    ("all of them: whoever says so may be mistaken", {"a", "b"}, {"10.0.0.3": 1, "10.0.0.4": 1}),
]


@pytest.mark.parametrize(("lost", "found"), [row[1:] for row in LOST], ids=[row[0] for row in LOST])
def test_endpoints_of_a_node_that_died_get_nothing_new_if_there_are_others(web, pod, world, lost, found):
    asked, assignments = world((web(), (pod("10.0.0.3", node="a"), pod("10.0.0.4", node="b")), (EIP,)))
    assert weights(plan(replace(asked, lost=frozenset(lost)), assignments, "b")) == found


def test_a_udp_endpoint_of_a_node_that_died_is_left_out(web, pod, world):
    ports = (ServicePort(Protocol.UDP, 53, "dns"),)
    pods = [
        pod(f"10.0.0.{last}", node=node, protocol=Protocol.UDP, port_name="dns") for last, node in ((3, "a"), (4, "b"))
    ]
    asked, assignments = world((web(ports=ports), tuple(pods), (EIP,)))
    assert weights(plan(replace(asked, lost=frozenset({"a"})), assignments, "b")) == {"10.0.0.4": 1}


def test_twice_as_many_ports_and_endpoints_take_about_twice_the_work(web, pod, world):
    def planned(count):
        ports = tuple(ServicePort(Protocol.TCP, 1 + number, f"p{number}") for number in range(count))
        endpoints = tuple(pod("10.0.0.3", port=1 + number, port_name=f"p{number}") for number in range(count))
        made = plan(*world((web(ports=ports), endpoints, ("192.0.2.10",))), "a")
        assert all(len(server.real_servers) == 1 for server in made.virtual_servers.values())

    assert lines_run(lambda: planned(200)) < 2.6 * lines_run(lambda: planned(100))


def lines_run(work):
    """How many lines of Python ``work`` takes."""
    count = 0

    def trace(*_):
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


WITHOUT = [
    ("nobody died", {}, {}, ()),
    ("its node died", {"a"}, {}, ("a",)),
    ("its node died, and Kubernetes knows", {"a"}, {"ready": False}, ()),
    ("its node died, and its pod is ending", {"a"}, {"ready": False, "terminating": True}, ()),
    ("a node without endpoints died", {"c"}, {}, ()),
    ("all died, by what we hear", {"a", "b"}, {}, ()),
]


@pytest.mark.parametrize(("lost", "state", "without"), [row[1:] for row in WITHOUT], ids=[row[0] for row in WITHOUT])
def test_a_virtual_server_says_which_dead_nodes_it_goes_without(web, pod, world, lost, state, without):
    asked, assignments = world((web(), (pod("10.0.0.3", node="a", **state), pod("10.0.0.4", node="b")), (EIP,)))
    assert only(plan(replace(asked, lost=frozenset(lost)), assignments, "b")).without == without


def test_with_the_policy_local_no_other_nodes_death_matters(web, pod, world):
    local = web(traffic_policy=TrafficPolicy.LOCAL)
    asked, assignments = world((local, (pod("10.0.0.3", node="a"), pod("10.0.0.4", node="b")), (EIP,)))
    assert only(plan(replace(asked, lost=frozenset({"a"})), assignments, "b")).without == ()


def test_a_planner_tells_when_kubernetes_knows_though_no_real_server_changes(web, pod, world):
    planner, ready = Planner(), (web(), (pod("10.0.0.3", node="a"), pod("10.0.0.4", node="b")), (EIP,))
    known = (web(), (pod("10.0.0.3", node="a", ready=False), pod("10.0.0.4", node="b")), (EIP,))
    for services, without in ((ready, ("a",)), (known, ()), (ready, ("a",))):
        asked, assignments = world(services)
        made = planner.plan(replace(asked, lost=frozenset({"a"})), assignments, "b", None)
        assert only(made).without == without
