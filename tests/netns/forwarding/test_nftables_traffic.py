"""What clients get through the nftables forwarder, on the real kernel with real sockets."""

import socket
import struct
from dataclasses import replace

import pytest

from speaker.forwarding.nftables.forwarder import NftablesForwarder, open_nftables
from speaker.model import Protocol

pytestmark = [pytest.mark.netns, pytest.mark.usefixtures("servers")]

TCP, UDP = Protocol.TCP, Protocol.UDP
EVERY_WAY = [(4, TCP), (4, UDP), (6, TCP), (6, UDP)]
every_way = pytest.mark.parametrize(("version", "protocol"), EVERY_WAY)
both_families = pytest.mark.parametrize("version", [4, 6])


@pytest.fixture
def forward(lan, inside, plan_of):
    """Apply a plan of these virtual servers to the node."""
    return lambda *servers, **settings: inside(lan.node, NftablesForwarder().apply, plan_of(*servers, **settings))


@every_way
def test_clients_are_spread_over_the_real_servers_in_turn(lan, forward, virtual_server, counted, version, protocol):
    forward(virtual_server(version, protocol))
    assert counted(8, lan.client, lan.eip[version], protocol=protocol) == {"one": 4, "two": 4}


@every_way
def test_the_nodes_own_clients_are_served_too(lan, forward, virtual_server, counted, version, protocol):
    forward(virtual_server(version, protocol))
    assert counted(4, lan.node, lan.eip[version], protocol=protocol) == {"one": 2, "two": 2}


@both_families
def test_a_real_server_gets_new_connections_by_its_weight(lan, forward, virtual_server, counted, version):
    forward(virtual_server(version, real_servers=(lan.real("one", version, weight=3), lan.real("two", version))))
    assert counted(8, lan.client, lan.eip[version]) == {"one": 6, "two": 2}


@pytest.mark.parametrize("settings", [{"scheduler": "sh"}, {"scheduler": "mh"}, {"persistence": 60}])
@both_families
def test_a_client_sticks_to_one_real_server(lan, forward, virtual_server, counted, version, settings):
    forward(virtual_server(version, **settings))
    assert list(counted(6, lan.client, lan.eip[version]).values()) == [6]


@every_way
def test_mh_port_spreads_the_connections_of_one_client_the_same_way_each_time(
    lan, forward, virtual_server, ask, version, protocol
):
    def answers() -> list[str]:
        ports = range(40_100, 40_116) if protocol is UDP else range(40_200, 40_216)
        return [ask(lan.client, lan.eip[version], protocol=protocol, source_port=port)[0] for port in ports]

    forward(virtual_server(version, protocol, scheduler="mh-port"))
    assert set(answers()) == {"one", "two"}
    if protocol is UDP:  # a TCP port that was just used may not be taken again
        first = answers()
        forward()
        forward(virtual_server(version, protocol, scheduler="mh-port"))
        assert answers() == first


def sctp_init(source_port: int, port: int, tag: int) -> bytes:
    """A packet that opens an association (RFC 9260, 3.3.2), for a raw socket: this kernel has none for SCTP."""
    chunk = struct.pack("!BBHIIHHI", 1, 0, 20, tag, 65536, 1, 1, 1)
    header = struct.pack("!HHI", source_port, port, 0)
    return header + struct.pack("<I", crc32c(header + bytes(4) + chunk)) + chunk


def crc32c(data: bytes) -> int:
    """RFC 9260, appendix A."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@both_families
def test_sctp_reaches_a_real_server_with_a_valid_checksum(lan, forward, virtual_server, version):
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    with lan.client.entered():
        asking = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_SCTP)
    with lan.one.entered():
        serving = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_SCTP)
    with asking, serving:
        serving.settimeout(30)
        forward(virtual_server(version, Protocol.SCTP, real_servers=("one",)))
        asking.sendto(sctp_init(40_000, 80, 7), (str(lan.eip[version]), 0))
        packet, (client, *_) = serving.recvfrom(1000)
        packet = packet[20:] if version == 4 else packet
        assert client == lan.addresses["towards one"][version]
        assert (packet[2:4], packet[12:]) == (b"\x1f\x90", sctp_init(40_000, 80, 7)[12:])
        assert struct.unpack("<I", packet[8:12])[0] == crc32c(packet[:8] + bytes(4) + packet[12:])


@both_families
def test_clients_that_stick_are_still_spread(lan, sh, forward, virtual_server, ask, version):
    forward(virtual_server(version, scheduler="sh"))
    sources = [f"192.0.2.{last}" if version == 4 else f"2001:db8:2::{last}" for last in range(201, 217)]
    for source in sources:
        sh(lan.client, f"ip addr add {source}{'/24' if version == 4 else '/64 nodad'} dev eth0")
    # A fair hash sends 16 clients to one of two with a chance of 1 in 32,768, and the seed is fixed.
    assert {ask(lan.client, lan.eip[version], source=source)[0] for source in sources} == {"one", "two"}


@both_families
def test_a_real_server_with_another_default_route_answers_through_us(
    lan, sh, forward, virtual_server, counted, version
):
    for backend in (lan.one, lan.two):
        elsewhere = lan.addresses[f"towards {backend.label}"][version] + "23"
        sh(backend, f"ip -{version} route replace default via {elsewhere}")
    forward(virtual_server(version))
    assert counted(4, lan.client, lan.eip[version]) == {"one": 2, "two": 2}


@both_families
def test_traffic_policy_local_keeps_the_clients_address(lan, forward, virtual_server, ask, version):
    forward(virtual_server(version, masquerade=False))
    assert ask(lan.client, lan.eip[version])[1] == lan.addresses["client"][version]


@both_families
def test_a_real_server_on_this_node_sees_the_clients_address(lan, forward, virtual_server, ask, version):
    forward(virtual_server(version, real_servers=(lan.real("one", version, local=True), lan.real("two", version))))
    seen = dict(ask(lan.client, lan.eip[version])[:2] for _ in range(2))
    assert seen == {"one": lan.addresses["client"][version], "two": lan.addresses["towards two"][version]}


@pytest.mark.parametrize("masquerade", [True, False])
@both_families
def test_a_real_server_reaches_itself_through_the_eip(lan, forward, virtual_server, counted, version, masquerade):
    itself = lan.real("one", version, local=True)
    forward(virtual_server(version, real_servers=(itself,), masquerade=masquerade))
    assert counted(2, lan.one, lan.eip[version]) == {"one": 2}


@both_families
def test_weight_zero_gets_nothing_new_but_keeps_a_udp_client(lan, forward, virtual_server, ask, counted, version):
    both = virtual_server(version, UDP)
    forward(both)
    first = ask(lan.client, lan.eip[version], protocol=UDP, source_port=4000)[0]
    other = {"one": "two", "two": "one"}[first]
    draining = lan.real(first, version, weight=0)
    forward(virtual_server(version, UDP, real_servers=(draining, lan.real(other, version))))
    assert counted(4, lan.client, lan.eip[version], protocol=UDP) == {other: 4}
    assert ask(lan.client, lan.eip[version], protocol=UDP, source_port=4000)[0] == first


@both_families
def test_a_udp_client_of_a_removed_real_server_moves_on_at_once(lan, forward, virtual_server, ask, version):
    forward(virtual_server(version, UDP))
    first = ask(lan.client, lan.eip[version], protocol=UDP, source_port=4000)[0]
    other = {"one": "two", "two": "one"}[first]
    forward(virtual_server(version, UDP, real_servers=(other,)))
    assert ask(lan.client, lan.eip[version], protocol=UDP, source_port=4000)[0] == other


@both_families
def test_a_udp_client_that_came_before_its_service_is_served_at_once(lan, sh, forward, virtual_server, ask, version):
    sh(lan.node, "nft add table inet other")
    sh(lan.node, "nft add chain inet other nat { type nat hook prerouting priority 0 ; }")  # starts conntrack
    with pytest.raises(OSError, match=r"timed out|unreachable|No route"):
        ask(lan.client, lan.eip[version], protocol=UDP, source_port=4000, timeout=0.3)
    forward(virtual_server(version, UDP))
    assert ask(lan.client, lan.eip[version], protocol=UDP, source_port=4000)[0] in {"one", "two"}


@both_families
def test_an_established_connection_outlives_its_real_servers_removal(
    lan, open_socket, forward, virtual_server, version
):
    real = replace(lan.real("one", version), port=9000)
    forward(virtual_server(version, real_servers=(real,)))
    with open_socket(lan.one, version, TCP) as serving, open_socket(lan.client, version, TCP) as asking:
        serving.bind(("", 9000))
        serving.listen()
        asking.connect((str(lan.eip[version]), 80))
        forward(virtual_server(version, real_servers=("two",)))
        with serving.accept()[0] as accepted:
            accepted.send(b"still here")
        assert asking.recv(10) == b"still here"


@both_families
def test_only_source_ranges_get_in(lan, forward, virtual_server, ask, version):
    client, node = lan.addresses["client"][version], lan.addresses["node"][version]
    other_family = lan.addresses["client"][10 - version]
    forward(
        virtual_server(version, port=80, sources=[client]),
        virtual_server(version, port=81, sources=[node]),
        virtual_server(version, port=82, sources=[other_family]),
        virtual_server(version, port=83, sources=["0.0.0.0/0", "::/0"]),
    )
    for port in (80, 83):
        assert ask(lan.client, lan.eip[version], port)[0] in {"one", "two"}
    for port in (81, 82):
        with pytest.raises(TimeoutError):
            ask(lan.client, lan.eip[version], port, timeout=0.3)
    assert ask(lan.node, lan.eip[version], 81)[0] in {"one", "two"}


@both_families
def test_a_udp_client_outside_a_narrowed_source_range_is_cut_off(lan, forward, virtual_server, ask, version):
    forward(virtual_server(version, UDP))
    assert ask(lan.client, lan.eip[version], protocol=UDP, source_port=4000)
    forward(virtual_server(version, UDP, sources=[lan.addresses["node"][version]]))
    with pytest.raises(TimeoutError):
        ask(lan.client, lan.eip[version], protocol=UDP, source_port=4000, timeout=0.3)


@both_families
def test_two_services_share_an_eip_by_port(lan, forward, virtual_server, counted, version):
    forward(
        virtual_server(version, port=80, real_servers=("one",)), virtual_server(version, port=81, real_servers=("two",))
    )
    assert counted(2, lan.client, lan.eip[version], 80) == {"one": 2}
    assert counted(2, lan.client, lan.eip[version], 81) == {"two": 2}


@both_families
def test_fragments_arrive_whole(lan, forward, virtual_server, ask, version):
    forward(virtual_server(version, UDP))
    assert ask(lan.client, lan.eip[version], protocol=UDP, size=6000)[2] == "6000"


# ── The guard ─────────────────────────────────────────────────────────────────────────────────────────────────

bound_or_not = pytest.mark.parametrize("bound", [False, True], ids=["not bound", "bound"])


@pytest.fixture
def bind(lan, sh):
    def add(version):
        sh(lan.node, f"ip addr add {lan.eip[version]}/{32 if version == 4 else 128} dev lo")

    return add


@both_families
def test_a_real_server_sees_this_nodes_own_client_as_this_node_although_the_eip_is_bound_here(
    lan, forward, virtual_server, ask, bind, version
):
    bind(version)
    forward(virtual_server(version, real_servers=(lan.real("one", version, local=True),)))
    assert ask(lan.node, lan.eip[version])[:2] == ["one", lan.addresses["towards one"][version]]


@bound_or_not
@every_way
def test_a_listener_of_the_host_is_not_reached_through_an_eip(
    lan, serve, forward, virtual_server, ask, bind, version, protocol, bound
):
    serve(lan.node, "sshd", 22)
    if bound:
        bind(version)
        assert ask(lan.client, lan.eip[version], 22)[0] == "sshd"  # it would be, without the guard
    forward(virtual_server(version, protocol, port=80))
    with pytest.raises(ConnectionRefusedError):
        ask(lan.client, lan.eip[version], 22, protocol)
    # A UDP socket of the rejecting host learns it from sendto() itself, as EPERM.
    with pytest.raises((ConnectionRefusedError, PermissionError)):
        ask(lan.node, lan.eip[version], 22, protocol)
    assert ask(lan.client, lan.addresses["node"][version], 22, protocol)[0] == "sshd"
    assert ask(lan.client, lan.eip[version], 80, protocol)[0] in {"one", "two"}


@bound_or_not
@every_way
def test_a_service_without_endpoints_refuses(lan, serve, forward, virtual_server, ask, bind, version, protocol, bound):
    serve(lan.node, "host", 80)
    if bound:
        bind(version)
    for real_servers in ((), (lan.real("one", version, weight=0),)):
        forward(virtual_server(version, protocol, real_servers=real_servers))
        with pytest.raises(ConnectionRefusedError):
            ask(lan.client, lan.eip[version], 80, protocol)


@both_families
def test_an_eip_without_any_port_refuses(lan, forward, ask, version):
    forward(eips=(lan.eip[version],))
    with pytest.raises(ConnectionRefusedError):
        ask(lan.client, lan.eip[version], 80)


@both_families
def test_a_deleted_service_resets_its_connections(lan, open_socket, forward, virtual_server, version):
    forward(virtual_server(version))
    real = replace(lan.real("one", version), port=9000)
    forward(virtual_server(version, real_servers=(real,)))
    with open_socket(lan.one, version, TCP) as serving, open_socket(lan.client, version, TCP) as asking:
        serving.bind(("", 9000))
        serving.listen()
        asking.connect((str(lan.eip[version]), 80))
        forward(eips=(lan.eip[version],))
        asking.send(b"still there?")
        with pytest.raises(ConnectionResetError):
            asking.recv(10)


@bound_or_not
@both_families
def test_an_eip_can_be_pinged(lan, sh, forward, virtual_server, bind, version, bound):
    if bound:
        bind(version)
    forward(virtual_server(version))
    for asking in (lan.client, lan.node, lan.one):
        assert "1 received" in sh(asking, f"ping -c 1 -W 30 {lan.eip[version]}")


@both_families
def test_an_icmp_error_to_the_eip_reaches_the_real_server_it_is_about(
    lan, open_socket, forward, virtual_server, version
):
    real = replace(lan.real("one", version), port=9000)
    forward(virtual_server(version, UDP, masquerade=False, real_servers=(real,)))
    with open_socket(lan.one, version, UDP) as serving, open_socket(lan.client, version, UDP) as asking:
        serving.bind(("", 9000))
        asking.connect((str(lan.eip[version]), 80))
        asking.send(b"?")
        serving.connect(serving.recvfrom(10)[1])
        asking.close()
        serving.send(b"answer")  # to a port that is closed now: the client's ICMP error is addressed to the EIP
        with pytest.raises(ConnectionRefusedError):
            serving.recv(10)


@both_families
def test_other_addresses_are_left_alone(lan, serve, forward, virtual_server, ask, version):
    serve(lan.node, "host", 80)
    forward(virtual_server(version))
    assert ask(lan.client, lan.addresses["node"][version], 80)[0] == "host"
    assert ask(lan.node, lan.addresses["one"][version], 8080)[0] == "one"


def test_this_kernel_has_what_is_needed(lan, inside):
    assert inside(lan.node, open_nftables).name == "nftables"
