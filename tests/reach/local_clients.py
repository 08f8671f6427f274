"""Who reaches an EIP, from where: tests for whatever forwards, which docs/forwarding.md has in words.

``nodes`` is a fixture of whoever imports them, and so is ``kind``: the forwarder's name on that page.
"""

import re
import shlex
from contextlib import contextmanager
from pathlib import Path

import pytest
from reach import ADDRESSES, CLUSTER, EIP, LOCAL, NOT_LET_IN, REACHED, SECOND_EIP, ip, mac, run, strict, web

from speaker.interfaces.martians import reverse_path_drops
from speaker.model import Protocol

PAGE = (Path(__file__).parents[2] / "docs" / "forwarding.md").read_text()


@pytest.mark.parametrize(("policy", "backends", "expected"), REACHED)
def test_everybody_reaches_an_eip_and_is_seen_as_the_page_says(nodes, policy, backends, expected):
    nodes.serve(web(traffic_policy=policy), *backends)
    assert {by: nodes.estate.asked(by) for by in expected} == {by: {answer} for by, answer in expected.items()}


def test_pods_behind_a_bridge_reach_an_eip_as_others_do(bridged_nodes):
    for policy, backends, expected in REACHED:
        # A socket of the node that is bound to all addresses answers pods with UDP from its bridge's.
        protocols = [Protocol.TCP] if backends == ["holder"] else [Protocol.TCP, Protocol.UDP]
        bridged_nodes.serve(web(traffic_policy=policy), *backends)
        answers = {by: bridged_nodes.estate.asked(by, protocols=protocols) for by in expected}
        assert answers == {by: {answer} for by, answer in expected.items()}, (policy, backends)


def test_with_policy_local_a_node_that_gets_and_loses_its_endpoints_serves_its_clients_all_the_time(nodes):
    for backends, answers in ((["p1", "q"], "q other"), (["p1"], "p1 other"), (["p1", "q"], "q other")):
        nodes.serve(web(traffic_policy=LOCAL), *backends)
        assert nodes.estate.asked("other") == {answers}


def test_with_policy_local_connections_to_the_holder_end_when_their_node_gets_an_endpoint(nodes, kind):
    """From then on that node takes their packets itself."""
    for eip in EIP.values():
        nodes.serve(web(traffic_policy=LOCAL), "p1")
        with nodes.estate.talking("other", eip) as goes_on:
            assert goes_on()
            nodes.serve(web(traffic_policy=LOCAL), "p1", "q")
            # A socket may keep its IPv6 route to the holder until the kernel looks again.
            assert not goes_on() or (kind == "IPVS" and eip.version == 6)


def test_a_node_without_a_route_to_an_eip_reaches_it_where_it_is_bound(nodes, kind):
    nodes.serve(web(), "q", eips=SECOND_EIP)
    defaults = [f"route {{}} default via {ADDRESSES['client'][version]}" for version in EIP]
    ip(nodes.estate["other"], *(each.format("del") for each in defaults))
    try:
        found = nodes.estate.asked("other", SECOND_EIP)
    finally:
        ip(nodes.estate["other"], *(each.format("add") for each in defaults))
    assert found == ({"q other"} if kind == "IPVS" else {"Network is unreachable"})


@pytest.mark.parametrize("policy", [CLUSTER, LOCAL])
def test_an_eip_is_pinged_by_those_that_the_page_names(nodes, kind, policy):
    nodes.serve(web(traffic_policy=policy), "p1")
    pinged = {(by, version) for by in REACHED[0][2] for version, eip in EIP.items() if nodes.estate.ping(by, eip)}
    everybody = {(by, version) for by in REACHED[0][2] for version in EIP}
    # With Local the other node has nothing to do with this EIP, and q's pings go to the holder.
    links_without_address = {("p1", 4), ("p2", 4), *({("q", 4)} if policy is CLUSTER else ())}
    assert pinged == everybody - (links_without_address if kind == "nftables" else set())


def test_an_eip_that_no_service_has_any_more_answers_no_pings(nodes):
    nodes.serve(web(), "p1")
    nodes.serve(None)
    assert not any(nodes.estate.ping(by, eip) for by in ("client", "p1", "other") for eip in EIP.values())


def test_a_service_without_endpoints_refuses_everybody_and_is_pinged(nodes):
    nodes.serve(web())
    for by in ("client", "holder", "other", "q"):
        # A host says that no more often than once a second for IPv6 (net.ipv6.icmp.ratelimit): "silent".
        assert nodes.estate.asked(by, patience=0.5) <= {"refused", "silent"}
        assert nodes.estate.asked(by, {4: EIP[4]}, patience=0.5) == {"refused"}
    assert all(nodes.estate.ping("client", eip) for eip in EIP.values())


def test_source_ranges_hold_for_pods_and_with_nftables_for_the_nodes_themselves(nodes, kind):
    nodes.serve(web(source_ranges=NOT_LET_IN), "p1")
    ask = nodes.estate.asked
    for by in ("client", "p1", "p2", "q"):
        assert ask(by, patience=0.3) == {"silent"}, by
    for by in ("holder", "other"):
        # A socket whose own packets are dropped is told so: "refused".
        assert ask(by, patience=0.5) == ({f"p1 {by}"} if kind == "IPVS" else {"silent", "refused"})


@contextmanager
def probing(nodes):
    """The client has the EIP too, and the nodes know its MAC."""
    # Without ``nodad`` IPv6 binds a moment later.
    held = [f"{eip}/{eip.max_prefixlen} dev lo{' nodad' if eip.version == 6 else ''}" for eip in EIP.values()]
    known = [f"{eip} lladdr {mac('client', 'eth0')} dev eth0 nud permanent" for eip in EIP.values()]
    nodes.estate["client"].sysctl("net.ipv4.conf.all.arp_announce", 2)
    ip(nodes.estate["client"], *(f"addr add {each}" for each in held))
    ip(nodes.estate["holder"], *(f"neigh replace {each}" for each in known))
    try:
        yield
    finally:
        ip(nodes.estate["client"], *(f"addr del {each}" for each in held))
        ip(nodes.estate["holder"], *(f"neigh del {each}" for each in known))


@pytest.mark.parametrize("accept_local", [0, 1])
def test_probes_that_come_from_the_eip_itself_reach_a_socket_of_the_host_where_the_eip_is_not_bound(
    nodes, kind, accept_local
):
    nodes.serve(web(), "p1")
    for link in ("all", "eth0"):
        nodes.estate["holder"].sysctl(f"net.ipv4.conf.{link}.accept_local", accept_local)
    with probing(nodes):
        for version, eip in EIP.items():
            found = nodes.estate.asked(
                "client",
                {4: ADDRESSES["holder"][version]},
                port=8080,
                source=str(eip),
                patience=1 if kind == "IPVS" else 5,
            )
            assert found == ({f"holder {eip}"} if kind == "nftables" else {"silent"}), version


# ── Several links ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def second_link(nodes, kind):
    """An EIP of the holder's second link, with everything back as it was afterwards."""
    holder = nodes.estate["holder"]
    yield holder
    strict(holder, "eth1", 1)
    for version in ("-4", "-6"):
        run(holder, "ip", version, "route", "flush", "table", "101", check=False)
        for priority in ("1000", "1001"):
            run(holder, "ip", version, "rule", "del", "priority", priority, check=False)
    if kind == "nftables":
        run(holder, "nft", "delete", "table", "inet", "eip-returns", check=False)


@pytest.mark.parametrize("policy", [CLUSTER, LOCAL])
def test_clients_of_the_second_link_are_reached_and_those_behind_its_router_are_not(nodes, second_link, policy):
    """The way back to these leads through the first link; the strict filter does not even let them in."""
    nodes.serve(web(traffic_policy=policy), "p1", eips=SECOND_EIP)
    with second_link.entered():
        before = reverse_path_drops()
    assert nodes.estate.asked("router", SECOND_EIP) == {"p1 router"}
    assert nodes.estate.asked("far", SECOND_EIP, patience=0.3) == {"silent"}
    with second_link.entered():
        assert reverse_path_drops() > before
    strict(second_link, "eth1", 2)
    assert nodes.estate.asked("far", SECOND_EIP, patience=0.3) == {"silent"}


def test_with_what_the_page_says_replies_leave_by_the_link_that_the_request_came_in_on(nodes, second_link, kind):
    for commands, ruleset in re.findall(rf"<!-- {kind} -->\n```sh\n(.*?)```(?:\n```nft\n(.*?)```)?", PAGE, re.DOTALL):
        for command in commands.splitlines():
            run(second_link, *shlex.split(command))
        if ruleset:
            run(second_link, "nft", "-f", "-", text=ruleset)
    for policy in (CLUSTER, LOCAL):
        nodes.serve(web(traffic_policy=policy), "p1", eips=SECOND_EIP)
        expected = {by: {f"p1 {by}"} for by in ("far", "router", "p2", "holder")} | {"p1": {"p1 holder"}}
        assert {by: nodes.estate.asked(by, SECOND_EIP) for by in expected} == expected
        assert all(nodes.estate.ping("far", eip) for eip in SECOND_EIP.values())
