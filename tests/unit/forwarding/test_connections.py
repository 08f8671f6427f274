"""Lines as Linux 6.1 (IPVS) and 6.18 (conntrack) write them, and whatever else."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.forwarding.connections import (
    CONNTRACK,
    IPVS,
    Counts,
    connection_lines,
    in_words,
    real_server_lines,
    survey,
)

HEAD = "Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData\n"
TCP = "TCP C000020A 8D5E C6336401 0050 0A000102 1F90 ESTABLISHED     899\n"
CLOSING = "TCP C000020A 8D5F C6336401 0050 0A000202 1F90 FIN_WAIT         12\n"
UDP = "UDP C000020A 8207 C6336401 0035 0A000102 1F75 UDP             300\n"
STICKY = "UDP C000020A 0000 C6336401 0035 0A000102 1F75 ASSURED          60\n"
SCTP = "SCTP C000020A 8207 C6336402 0063 0A000102 1F90 INIT1            3\n"
SIX = (
    "TCP 2001:0db8:0001:0000:0000:0000:0000:0010 985E 2001:0db8:0100:0000:0000:0000:0000:0001 0050 "
    "fd00:0001:0000:0000:0000:0000:0000:0002 1F90 ESTABLISHED     900\n"
)
ENGINE = "UDP C000020A 13C4 C6336401 13C4 0A000102 13C4 UDP             300 sip call-1@example\n"
LINES = (HEAD, TCP, CLOSING, UDP, STICKY, SCTP, SIX, ENGINE)

TRACKED = {
    "tcp": "ipv4     2 tcp      6 431999 ESTABLISHED src=192.0.2.10 dst=198.51.100.1 sport=36190 dport=80 "
    "src=10.0.1.2 dst=192.0.2.1 sport=8080 dport=36190 [ASSURED] mark=0 zone=0 use=2\n",
    "udp": "ipv4     2 udp      17 29 src=192.0.2.10 dst=198.51.100.1 sport=5000 dport=53 packets=1 bytes=29 "
    "[UNREPLIED] src=10.0.1.2 dst=192.0.2.10 sport=8053 dport=5000 packets=0 bytes=0 mark=0 use=1\n",
    "six": "ipv6     10 tcp      6 TIME_WAIT src=2001:0db8:0001:0000:0000:0000:0000:0010 "
    "dst=2001:0db8:0100:0000:0000:0000:0000:0001 sport=1 dport=80 src=fd00:0001:0000:0000:0000:0000:0000:0002 "
    "dst=2001:0db8:0001:0000:0000:0000:0000:0010 sport=8080 dport=1 [OFFLOAD] mark=0 zone=0 use=3\n",
}
TO_THE_HOST = (
    "ipv4     2 tcp      6 3 CLOSE src=192.0.2.10 dst=198.51.100.1 sport=9 dport=22 "
    "src=198.51.100.1 dst=192.0.2.10 sport=22 dport=9 mark=0 use=1\n"
)
PING = (
    "ipv4     2 icmp     1 29 src=1.1.1.1 dst=2.2.2.2 type=8 code=0 id=7 src=2.2.2.2 dst=1.1.1.1 type=0 code=0 id=7\n"
)


def shown(lines, dialect, limit=100, eips=None):
    return [tuple(line) for line in connection_lines(survey(lines, dialect, limit, eips), dialect)]


def test_a_connection_of_ipvs_is_put_into_words():
    client, dns = "192.0.2.10", "198.51.100.1:53"
    assert shown(LINES, IPVS) == [
        ("TCP", f"{client}:36190", "198.51.100.1:80", "10.0.1.2:8080", "established", 899),
        ("TCP", f"{client}:36191", "198.51.100.1:80", "10.0.2.2:8080", "closing", 12),
        ("UDP", f"{client}:33287", dns, "10.0.1.2:8053", "datagrams", 300),
        ("UDP", f"{client}:0", dns, "10.0.1.2:8053", "sticks to it", 60),
        ("SCTP", f"{client}:33287", "198.51.100.2:99", "10.0.1.2:8080", "opening", 3),
        ("TCP", "[2001:db8:1::10]:39006", "[2001:db8:100::1]:80", "[fd00:1::2]:8080", "established", 900),
        ("UDP", f"{client}:5060", "198.51.100.1:5060", "10.0.1.2:5060", "datagrams", 300),
    ]


def test_a_tracked_connection_is_put_into_words():
    assert shown(TRACKED.values(), CONNTRACK) == [
        ("TCP", "192.0.2.10:36190", "198.51.100.1:80", "10.0.1.2:8080", "established", 431999),
        ("UDP", "192.0.2.10:5000", "198.51.100.1:53", "10.0.1.2:8053", "datagrams", 29),
        ("TCP", "[2001:db8:1::10]:1", "[2001:db8:100::1]:80", "[fd00:1::2]:8080", "closed", None),
    ]


def test_what_nobody_translated_and_what_has_no_ports_is_not_shown():
    assert survey([TO_THE_HOST, PING], CONNTRACK, 9) == ({}, (), 0)


def test_all_are_counted_for_each_real_server_however_few_are_shown():
    found = survey([HEAD, *[TCP] * 3, *[CLOSING] * 5, UDP, STICKY], IPVS, 2)
    assert found.total == 9
    assert [tuple(line) for line in real_server_lines(found, IPVS, 2)] == [
        ("TCP", "198.51.100.1:80", "10.0.2.2:8080", 0, 5, 0),
        ("TCP", "198.51.100.1:80", "10.0.1.2:8080", 3, 0, 0),
    ]
    assert found.real_servers["UDP", ("C6336401", "0035"), ("0A000102", "1F75")] == Counts(0, 1, 1)
    assert len(found.shown) == 2


@pytest.mark.parametrize(("lines", "dialect"), [(LINES, IPVS), (TRACKED.values(), CONNTRACK)])
def test_only_those_of_an_eip_are_counted_where_one_is_named(lines, dialect):
    six = ip_address("2001:db8:100::1")
    assert [line[2] for line in shown(lines, dialect, eips=[six])] == ["[2001:db8:100::1]:80"]
    assert survey(lines, dialect, 9, [ip_address("198.51.100.9")]).total == 0


def test_a_connection_without_a_state_is_not_a_client_that_sticks():
    assert [line[4] for line in shown([TCP.replace("ESTABLISHED", "NONE       ")], IPVS)] == ["new"]


@pytest.mark.parametrize(
    ("state", "words"),
    [("SYN_RECV", "opening"), ("COOKIE_ECHOED", "opening"), ("SHUTDOWN_SENT", "closing"), ("ERR!", "err!")],
)
def test_states_have_words_and_one_that_nobody_knows_stays_as_it_is(state, words):
    assert in_words(state) == words


@pytest.mark.parametrize(
    ("line", "dialect"),
    [
        (TCP.replace("C6336401", "C633640"), IPVS),
        (TCP.replace("899", "soon"), IPVS),
        (TCP[:40], IPVS),
        (TRACKED["tcp"].replace("198.51.100.1", "198.51.100.256"), CONNTRACK),
        (TRACKED["tcp"][:90], CONNTRACK),
    ],
)
def test_a_line_that_is_none_is_counted_as_such(line, dialect):
    assert survey([line], dialect, 9) == ({}, (), 1)


PORT = st.integers(1, 65535)
ADDRESSES = st.tuples(*[st.ip_addresses(v=4)] * 3) | st.tuples(*[st.ip_addresses(v=6)] * 3)


def written(address: IPv4Address | IPv6Address) -> str:
    return f"{int(address):08X}" if address.version == 4 else address.exploded


@given(ADDRESSES, PORT, PORT, PORT, st.integers(0, 2**31))
def test_every_address_and_port_is_read_as_it_was_written(addresses, client_port, port, real_port, seconds):
    client, eip, real = addresses
    line = (
        f"TCP {written(client)} {client_port:04X} {written(eip)} {port:04X} {written(real)} {real_port:04X} "
        f"{'LAST_ACK':<11} {seconds:7d}\n"
    )
    ends = f"src={client.exploded} dst={eip.exploded} sport={client_port} dport={port}"
    back = f"src={real.exploded} dst={client.exploded} sport={real_port} dport={client_port}"
    tracked = f"ipv{eip.version}     2 tcp      6 {seconds} LAST_ACK {ends} {back} mark=0 use=1\n"
    expected = ("TCP", *map(socket_of, addresses, (client_port, port, real_port)), "closing", seconds)
    assert shown([line], IPVS, eips=[eip]) == [expected]
    if (eip, port) != (real, real_port):
        assert shown([tracked], CONNTRACK, eips=[eip]) == [expected]


def socket_of(address, port):
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


@st.composite
def bent(draw):
    """A line, cut or with some of its characters changed."""
    line = list(draw(st.sampled_from([*LINES, *TRACKED.values(), TO_THE_HOST, PING])))
    for _ in range(draw(st.integers(0, 4))):
        line[draw(st.integers(0, len(line) - 1))] = draw(st.characters() | st.sampled_from("0123456789ABCDEFabcdef: ."))
    return "".join(line[: draw(st.integers(0, len(line)))])


@given(st.lists(bent() | st.text(), max_size=5), st.sampled_from([IPVS, CONNTRACK]))
def test_no_line_crashes_it_and_none_is_counted_twice(lines, dialect):
    found = survey(lines, dialect, 9)
    sticking = sum(counts.sticking for counts in found.real_servers.values())
    assert found.total + sticking + found.unreadable <= len(lines)
    assert len(list(connection_lines(found, dialect))) == found.total + sticking
    assert len(list(real_server_lines(found, dialect, 9))) == len(found.real_servers)
