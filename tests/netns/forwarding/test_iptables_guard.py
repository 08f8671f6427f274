"""The guard of IPVS where a kernel has iptables but no nft; here in namespaces of a kernel that has both."""

import shutil

import pytest

from speaker.errors import Unsupported
from speaker.forwarding.iptables import open_iptables_guard

pytestmark = [
    pytest.mark.netns,
    pytest.mark.usefixtures("bound"),
    pytest.mark.skipif(shutil.which("iptables-legacy") is None, reason="the program iptables-legacy is not installed"),
]
both_families = pytest.mark.parametrize("version", [4, 6])


@pytest.fixture
def guard(lan, inside, plan_of):
    """Apply the guard for these virtual servers; whether it changed anything."""

    async def apply(plan):
        try:
            return await (await open_iptables_guard()).apply(plan)
        except Unsupported as reason:
            pytest.skip(str(reason))

    return lambda *servers: inside(lan.node, apply, plan_of(*servers))


def test_applied_twice_it_changes_nothing(guard, virtual_server):
    """What iptables-save prints is what we write, word by word."""
    assert guard(virtual_server(4), virtual_server(6))
    assert not guard(virtual_server(4), virtual_server(6))
    assert guard(virtual_server(4))
    assert not guard(virtual_server(4))


def test_without_eips_nothing_is_left(lan, sh, guard, virtual_server):
    guard(virtual_server(4), virtual_server(6))
    assert guard()
    assert "EIP-SPEAKER" not in sh(lan.node, "iptables-legacy-save") + sh(lan.node, "ip6tables-legacy-save")


@both_families
def test_a_listener_of_the_host_is_not_reached_through_an_eip(lan, serve, guard, virtual_server, ask, version):
    serve(lan.node, "sshd", 22)
    assert ask(lan.client, lan.eip[version], 22)[0] == "sshd"
    guard(virtual_server(version, port=80))
    with pytest.raises(ConnectionRefusedError):
        ask(lan.client, lan.eip[version], 22)


@both_families
def test_connections_that_an_eip_opened_itself_get_their_answers(lan, serve, guard, virtual_server, ask, version):
    serve(lan.client, "client", 90)
    guard(virtual_server(version))
    name, seen = ask(lan.node, lan.addresses["client"][version], 90, source=str(lan.eip[version]))
    assert (name, seen) == ("client", str(lan.eip[version]))


@both_families
def test_nobody_gets_in_by_speaking_as_the_eip_first(lan, serve, guard, virtual_server, ask, speak_as_the_eip, version):
    serve(lan.node, "sshd", 22)
    guard(virtual_server(version, port=80))
    speak_as_the_eip(version)
    with pytest.raises((ConnectionRefusedError, TimeoutError)):
        ask(lan.client, lan.eip[version], 22, source=lan.addresses["client"][version], source_port=4000)


@both_families
def test_who_spoke_as_the_eip_before_the_guard_stood_opens_no_connection(
    lan, sh, serve, guard, virtual_server, ask, speak_as_the_eip, version
):
    serve(lan.node, "sshd", 22)
    program = "iptables-legacy" if version == 4 else "ip6tables-legacy"
    sh(lan.node, f"{program} -A FORWARD -m conntrack --ctstate NEW -j ACCEPT")  # conntrack is at work
    speak_as_the_eip(version)
    guard(virtual_server(version, port=80))
    with pytest.raises((ConnectionRefusedError, TimeoutError)):
        ask(lan.client, lan.eip[version], 22, source=lan.addresses["client"][version], source_port=4000)
