"""What fields of a Service and of its endpoints come to, with real connections: tests for whatever forwards.

``nodes`` is a fixture of whoever imports them, and so is ``spreads``: what its schedulers do.
"""

from dataclasses import replace

import pytest
from reach import CONDITIONS, EIP, SPREAD_BY_NFTABLES, endpoints, serving, web

from speaker.model import Protocol, ServicePort


@pytest.mark.parametrize("number", range(len(SPREAD_BY_NFTABLES)), ids=SPREAD_BY_NFTABLES)
def test_every_scheduler_spreads_the_connections_of_a_client_as_the_page_says(nodes, spreads, number):
    scheduler = list(SPREAD_BY_NFTABLES)[number]
    if scheduler not in spreads:
        pytest.skip("IPVS's twos chooses at random; ovf has a test of its own")
    nodes.serve(web(scheduler=scheduler), "p1", "p2")
    # Ports of its own, each used once, so that those that hash them do so the same way every time.
    found = {nodes.estate.spread("client", eip, first_port=20_000 + 10 * number) for eip in EIP.values()}
    assert found == {spreads[scheduler]}


def test_session_affinity_keeps_a_client_with_one_endpoint_whatever_the_scheduler(nodes):
    nodes.serve(web(affinity_seconds=600), "p1", "p2")
    assert {nodes.estate.spread("client", eip, first_port=30_000) for eip in EIP.values()} == {1}


@pytest.mark.parametrize(("first", "second", "answering"), CONDITIONS)
def test_conditions_of_endpoints_decide_who_gets_new_connections(nodes, first, second, answering):
    service = web()
    nodes.serve(service, endpoints("p1", service, **first), endpoints("p2", service, **second))
    for eip in EIP.values():
        for protocol in (Protocol.TCP, Protocol.UDP):
            answers = {nodes.estate.ask("client", eip, protocol=protocol, patience=1).split()[0] for _ in range(4)}
            # Refusals of IPv6 are limited to one a second: net.ipv6.icmp.ratelimit.
            assert answers - {"silent"} == answering if eip.version == 4 else answers <= answering | {"silent"}


def test_pods_may_have_different_ports_behind_a_named_one_and_each_port_has_its_own_endpoints(nodes):
    ports = (ServicePort(Protocol.TCP, 80, "http"), ServicePort(Protocol.TCP, 81, "admin"))
    service = replace(web(), ports=ports)
    http, admin = (replace(service, ports=(port,)) for port in ports)
    with serving(nodes.estate["p2"], "p2-at-9090", 9090), serving(nodes.estate["p1"], "p1-admin", 9091):
        nodes.serve(service, endpoints("p1", http), endpoints("p2", http, 9090), endpoints("p1", admin, 9091))
        for eip in EIP.values():
            assert {nodes.estate.ask("client", eip) for _ in range(4)} == {"p1 client", "p2-at-9090 client"}
            assert {nodes.estate.ask("client", eip, 81) for _ in range(2)} == {"p1-admin client"}
            assert nodes.estate.ask("client", eip, 82) == "refused"
