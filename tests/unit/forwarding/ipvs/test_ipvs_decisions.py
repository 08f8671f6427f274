"""What the IPVS forwarder decides before the kernel hears of it."""

import errno
from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.forwarding.changes import RealChange, ServerChange
from speaker.forwarding.ipvs.decisions import Owned, completed, held_back, in_between, owned, root_causes, standing
from speaker.forwarding.ipvs.tables import Refusal
from speaker.forwarding.plan import EMPTY, Plan, RealServer, VirtualServer, without
from speaker.model import Protocol

A, B = ip_address("192.0.2.1"), ip_address("2001:db8::1")
REAL = RealServer(ip_address("10.0.0.1"), 8080)
SERVER = VirtualServer(A, Protocol.TCP, 80, real_servers=(REAL,))


def plan(*servers, eips=()):
    return Plan(frozenset(eips) | {server.address for server in servers}, {server.key: server for server in servers})


plans = st.lists(
    st.builds(VirtualServer, st.sampled_from([A, B]), st.sampled_from(Protocol), st.integers(1, 3)), max_size=6
).map(lambda servers: plan(*servers))


@given(plans, plans)
def test_on_the_way_no_port_is_open_whose_virtual_server_might_not_stand(have, want):
    guard = in_between(have, want)
    assert guard.eips == have.eips | want.eips
    assert guard.virtual_servers.keys() == have.virtual_servers.keys() & want.virtual_servers.keys()
    assert all(want.virtual_servers[key] is server for key, server in guard.virtual_servers.items())


def real_servers(plan, least_weight=0):
    return {
        key: {(real.address, real.port) for real in server.real_servers if real.weight >= least_weight}
        for key, server in plan.virtual_servers.items()
    }


anywhere = st.builds(
    RealServer, st.sampled_from([REAL.address, ip_address("10.0.0.2")]), st.integers(1, 2), st.integers(0, 2)
)
serving = st.lists(
    st.builds(
        VirtualServer,
        st.just(A),
        st.sampled_from(Protocol),
        st.integers(1, 2),
        real_servers=st.lists(anywhere, max_size=3, unique_by=lambda real: (real.address, real.port)).map(tuple),
    ),
    max_size=4,
).map(lambda servers: plan(*servers))


@given(serving, serving)
def test_whatever_real_server_a_connection_is_sent_to_the_guard_knows_it(have, want):
    """Before IPVS's tables are changed and after; and once the guard is as wanted."""
    on_the_way = real_servers(in_between(have, want))
    for tables, guard in ((have, on_the_way), (want, on_the_way), (want, real_servers(standing(want, ())))):
        for key, given_connections in real_servers(tables, least_weight=1).items():
            assert key not in guard or given_connections <= guard[key]


def test_where_the_clients_address_is_to_be_kept_from_now_on_it_is_not_yet_where_others_may_be_sent_to():
    want = replace(SERVER, real_servers=(), masquerade=False)
    assert in_between(plan(SERVER), plan(want)).virtual_servers[SERVER.key].masquerade
    want = replace(SERVER, masquerade=False)
    assert in_between(plan(SERVER), plan(want)) == plan(want)


@pytest.mark.parametrize("change", [RealChange(SERVER.key, REAL, None), RealChange(SERVER.key, REAL, REAL)])
def test_a_real_server_that_would_not_go_stays_known_to_the_guard(change):
    have, want = plan(SERVER), plan(replace(SERVER, real_servers=()))
    assert standing(want, [Refusal(change, errno.ENOMEM)], in_between(have, want)) == have


def test_those_that_drain_are_in_the_guard_no_more():
    """Established connections do not need it."""
    drained = replace(SERVER, real_servers=(replace(REAL, weight=0),))
    want = replace(SERVER, real_servers=())
    assert in_between(plan(drained), plan(want)) == plan(want)


def test_where_nothing_is_refused_the_guard_ends_up_as_wanted():
    assert standing(plan(SERVER), ()) == plan(SERVER)


def test_a_refused_virtual_servers_port_stays_closed():
    other = replace(SERVER, port=81)
    refused = (
        Refusal(ServerChange(None, SERVER), errno.ENOENT),
        Refusal(ServerChange(other, other), errno.ENOENT),
    )
    assert standing(plan(SERVER, other), refused) == plan(other)


def test_an_eip_whose_virtual_server_will_not_go_stays_bound_and_guarded():
    refused = (Refusal(ServerChange(SERVER, None), errno.EPERM),)
    assert held_back(refused) == {A}
    assert standing(EMPTY, refused) == plan(eips=[A])


@pytest.mark.parametrize(
    ("bound", "asked", "beside_kube_proxy", "found"),
    [
        pytest.param([], [A], False, Owned(frozenset(), frozenset({A})), id="of another program"),
        pytest.param([A], [A], False, Owned(frozenset({A}), frozenset()), id="of an EIP that is bound on our link"),
        pytest.param([], [A], True, Owned(frozenset({A}), frozenset()), id="of kube-proxy, for an EIP asked for"),
        pytest.param([], [B], True, Owned(frozenset({B}), frozenset({A})), id="of kube-proxy, for another address"),
    ],
)
def test_whose_a_virtual_server_is(bound, asked, beside_kube_proxy, found):
    assert owned([A], frozenset(bound), frozenset(asked), beside_kube_proxy=beside_kube_proxy) == found


def test_an_eip_that_others_serve_is_left_out_with_all_its_ports():
    other = VirtualServer(B, Protocol.UDP, 53)
    assert without(plan(SERVER, other), {A}) == plan(other)


def test_what_ipvs_does_not_know_is_what_we_last_set_or_else_what_we_want():
    known = replace(
        SERVER, sources=(ip_network("10.0.0.0/8"),), masquerade=False, real_servers=(replace(REAL, local=True),)
    )
    assert completed(plan(SERVER), plan(known), plan(SERVER)) == plan(known)
    assert completed(plan(SERVER), EMPTY, plan(known)) == plan(known)
    assert completed(plan(SERVER), EMPTY, EMPTY) == plan(SERVER)


def test_a_refused_virtual_server_is_reported_once_and_not_for_each_real_server():
    refused = Refusal(ServerChange(None, replace(SERVER, scheduler="nonesuch")), errno.ENOENT)
    gone = Refusal(RealChange(SERVER.key, None, REAL), errno.ESRCH)
    assert root_causes([refused, gone]) == (refused,)
    assert root_causes([gone]) == (gone,)


def test_a_refusal_says_what_to_do_and_whether_to_try_again():
    table = [
        (
            Refusal(ServerChange(None, replace(SERVER, scheduler="zz")), errno.ENOENT),
            "scheduler 'zz' (module ip_vs_zz)",
            True,
        ),
        (Refusal(RealChange(SERVER.key, None, REAL), errno.EINVAL), "not an address that a real server can have", True),
        (Refusal(ServerChange(None, SERVER), errno.EPERM), "needs CAP_NET_ADMIN", False),
        (Refusal(RealChange(SERVER.key, None, REAL), errno.ESRCH), "its virtual server no longer exists", False),
    ]
    for refusal, words, final in table:
        assert words in str(refusal)
        assert refusal.final is final
