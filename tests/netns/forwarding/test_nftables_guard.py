"""The guard for IPVS, with EIPs bound on the node as IPVS needs them. Where this kernel has no IPVS, a rule where IPVS
would be takes what the guard returns (tests/ipvs has the real thing)."""

import json

import pytest

from speaker.forwarding.nftables.forwarder import open_guard
from speaker.model import Protocol

pytestmark = [pytest.mark.netns, pytest.mark.usefixtures("bound")]

every_way = pytest.mark.parametrize(
    ("version", "protocol"), [(version, protocol) for version in (4, 6) for protocol in (Protocol.TCP, Protocol.UDP)]
)
both_families = pytest.mark.parametrize("version", [4, 6])
either_port = pytest.mark.parametrize("port", [22, 80], ids=["of no Service", "that IPVS leaves to the host"])


@pytest.fixture
def guard(lan, inside, plan_of):
    """Apply the guard for these virtual servers; whether it changed anything."""

    async def apply(plan):
        return await (await open_guard()).apply(plan)

    return lambda *servers: inside(lan.node, apply, plan_of(*servers))


@pytest.fixture
def taken(lan, sh):
    """How many packets came to where IPVS would have taken them, as this takes them."""
    sh(lan.node, "nft add table inet ipvs")
    sh(lan.node, "nft add chain inet ipvs input { type filter hook input priority 99 ; }")
    sh(lan.node, "nft add rule inet ipvs input meta l4proto tcp th dport 80 counter drop")

    def packets():
        listed = json.loads(sh(lan.node, "nft --json list chain inet ipvs input"))["nftables"]
        (counter,) = [
            part["counter"] for item in listed for part in item.get("rule", {}).get("expr", ()) if "counter" in part
        ]
        return counter["packets"]

    return packets


@every_way
def test_a_listener_of_the_host_is_not_reached_through_an_eip(
    lan, serve, guard, virtual_server, ask, version, protocol
):
    serve(lan.node, "sshd", 22)
    assert ask(lan.client, lan.eip[version], 22)[0] == "sshd"
    guard(virtual_server(version, protocol, port=80))
    with pytest.raises(ConnectionRefusedError):
        ask(lan.client, lan.eip[version], 22, protocol)
    assert ask(lan.client, lan.addresses["node"][version], 22)[0] == "sshd"


@both_families
def test_what_a_service_names_passes_on_to_ipvs(lan, taken, guard, virtual_server, ask, version):
    guard(virtual_server(version))
    with pytest.raises(TimeoutError):
        ask(lan.client, lan.eip[version], 80, timeout=0.3)
    assert taken() > 0


@every_way
def test_what_ipvs_does_not_take_is_refused(lan, serve, guard, virtual_server, ask, version, protocol):
    serve(lan.node, "host", 80)
    guard(virtual_server(version, protocol, port=80))
    with pytest.raises(ConnectionRefusedError):
        ask(lan.client, lan.eip[version], 80, protocol)


@both_families
def test_the_port_of_another_protocol_is_refused(lan, serve, guard, virtual_server, ask, version):
    serve(lan.node, "host", 80)
    guard(virtual_server(version, Protocol.UDP, port=80))
    with pytest.raises(ConnectionRefusedError):
        ask(lan.client, lan.eip[version], 80, Protocol.TCP)


@both_families
def test_only_source_ranges_pass(lan, taken, guard, virtual_server, ask, version):
    for admitted in ("one", "client"):
        assert taken() == 0
        guard(virtual_server(version, sources=[lan.addresses[admitted][version]]))
        with pytest.raises(TimeoutError):
            ask(lan.client, lan.eip[version], timeout=0.3)
    assert taken() > 0


@both_families
def test_an_eip_can_be_pinged(lan, sh, guard, virtual_server, version):
    guard(virtual_server(version))
    assert "1 received" in sh(lan.client, f"ping -c 1 -W 30 {lan.eip[version]}")


@both_families
def test_connections_that_an_eip_opened_itself_get_their_answers(lan, serve, guard, virtual_server, ask, version):
    serve(lan.client, "client", 90)
    guard(virtual_server(version))
    name, seen = ask(lan.node, lan.addresses["client"][version], 90, source=str(lan.eip[version]))
    assert (name, seen) == ("client", str(lan.eip[version]))


def test_applied_twice_it_changes_nothing_and_follows_the_plan(lan, guard, virtual_server):
    assert guard(virtual_server(4), virtual_server(6))
    assert not guard(virtual_server(4), virtual_server(6))
    assert guard(virtual_server(4))
    assert not guard(virtual_server(4))


def test_what_others_did_to_it_is_repaired(lan, sh, guard, virtual_server):
    guard(virtual_server(4))
    for line in ("nft flush chain inet eip-speaker-guard input", "nft flush set inet eip-speaker-guard eips4"):
        sh(lan.node, line)
        assert guard(virtual_server(4))
        assert not guard(virtual_server(4))


def test_from_memory_it_ends_up_as_from_a_listing(lan, inside, sh, guard, plan_of, virtual_server):
    several = [
        plan_of(virtual_server(4), virtual_server(6)),
        plan_of(virtual_server(4, sources=["10.0.0.0/8"]), virtual_server(4, port=81), eips=[lan.eip[6]]),
        plan_of(virtual_server(4, port=81, real_servers=["two"])),
    ]

    async def apply_all():
        kept = await open_guard()
        return [await kept.apply(plan) for plan in several for _ in range(2)]

    assert inside(lan.node, apply_all) == [True, False] * 3
    assert not guard(virtual_server(4, port=81, real_servers=["two"]))


def test_cleanup_removes_it_and_nothing_else(lan, inside, sh, guard, virtual_server):
    sh(lan.node, "nft add table inet other")

    async def cleanup():
        return await (await open_guard()).cleanup()

    guard(virtual_server(4))
    assert inside(lan.node, cleanup) == ("nftables table inet eip-speaker-guard",)
    assert sh(lan.node, "nft list tables").split("\n") == ["table inet other", ""]


@every_way
def test_nobody_gets_in_by_speaking_as_the_eip_first(
    lan, serve, guard, virtual_server, ask, speak_as_the_eip, version, protocol
):
    serve(lan.node, "sshd", 22)
    guard(virtual_server(version, port=80))
    speak_as_the_eip(version, protocol)
    source = lan.addresses["client"][version]
    with pytest.raises((ConnectionRefusedError, TimeoutError)):
        ask(lan.client, lan.eip[version], 22, protocol, source=source, source_port=4000)


@either_port
@both_families
def test_who_spoke_as_the_eip_before_the_guard_stood_opens_no_connection(
    lan, serve, guard, virtual_server, ask, speak_as_the_eip, version, port
):
    serve(lan.node, "sshd", port)
    ask(lan.client, lan.eip[version], port)  # loads conntrack's hooks
    guard()
    speak_as_the_eip(version, Protocol.TCP, port)
    guard(virtual_server(version, port=80))
    source = lan.addresses["client"][version]
    with pytest.raises((ConnectionRefusedError, TimeoutError)):
        ask(lan.client, lan.eip[version], port, source=source, source_port=4000)
