"""What IPVS has counted: messages in the order of Linux 6.1, in any other, cut and bent; and its listing in /proc."""

import struct
from contextlib import suppress
from ipaddress import ip_address
from socket import AF_INET, AF_INET6

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from speaker.errors import EdgeError
from speaker.forwarding.ipvs.counters import Counted, buckets, hexadecimal, listed, parse_counters, place, traffic
from speaker.netlink.messages import attribute, be16, u16, u32

V4, V6 = ip_address("198.51.100.1"), ip_address("2001:db8:100::1")
COUNTS = (3, 40, 50, 6000, 70_000_000_000)
NOTHING = (0, 0, 0, 0, 0)

LISTING = """\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  C6336401:0050 rr  
  -> 0A000102:1F90      Masq    1      5          2         
  -> 0A000202:1F90      Masq    0      1          0         
FWM  00000007 rr  
  -> 0A000902:1F90      Route   1      9          9         
UDP  C6336401:0035 rr  persistent 6000 FFFFFFFF
  -> 0A000102:1F75      Masq    1      0          1         
TCP  [2001:0db8:0100:0000:0000:0000:0000:0001]:0050 rr 
  -> [fd00:0001:0000:0000:0000:0000:0000:0002]:1F90      Masq    1      7          0         
""".splitlines(keepends=True)  # noqa: W291 -- as the kernel writes it


def stats64(counts):
    numbers = (*counts, 0, 0, 0, 0, 0)
    return b"".join(attribute(kind, struct.pack("=Q", number)) for kind, number in enumerate(numbers, 1))


def service(address=V4, port=80, protocol=6, counts=COUNTS):
    """Attributes of a virtual server, in the order of ip_vs_genl_fill_service."""
    return [
        attribute(1, u16(AF_INET if address.version == 4 else AF_INET6)),
        attribute(2, u16(protocol)),
        attribute(3, address.packed.ljust(16, b"\0")),
        attribute(4, be16(port)),
        attribute(6, b"rr\0"),
        attribute(7, u32(2) + u32(0xFFFFFFFF)),
        attribute(8, u32(0)),
        attribute(9, b"\xff\xff\xff\xff"),
        attribute(10, attribute(1, u32(7))),
        attribute(12, stats64(counts)),
    ]


def message(attributes):
    return b"\1\1\0\0" + attribute(1, b"".join(attributes))


MARK = message([attribute(1, u16(AF_INET)), attribute(5, u32(7)), *service()[4:]])


def test_counters_are_read():
    assert parse_counters(message(service())) == Counted(V4.packed, 6, 80, COUNTS)
    assert parse_counters(message(service(V6, 53, 17))) == Counted(V6.packed, 17, 53, COUNTS)


def test_a_virtual_server_of_a_firewall_mark_is_left_out():
    assert parse_counters(MARK) is None


@given(st.permutations(service()), st.booleans())
@example(service(), True)
def test_counters_are_read_whatever_the_order_and_whatever_else_is_said(attributes, more):
    unknown = [attribute(77, b"?")] if more else []
    assert parse_counters(message([*attributes, *unknown])) == Counted(V4.packed, 6, 80, COUNTS)


@pytest.mark.parametrize("left_out", [0, 1, 2, 3, 9])
def test_a_message_that_lacks_something_is_refused(left_out):
    attributes = service()
    del attributes[left_out]
    with pytest.raises(EdgeError, match="not a virtual server"):
        parse_counters(message(attributes))


@given(st.data())
def test_no_bytes_crash_it(data):
    payload = bytearray(data.draw(st.sampled_from([message(service()), message(service(V6)), MARK])))
    for _ in range(data.draw(st.integers(0, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with suppress(EdgeError):
        parse_counters(bytes(payload[: data.draw(st.integers(0, len(payload)))]))


def test_traffic_is_that_of_our_virtual_servers_which_had_any():
    messages = [
        message(service()),
        message(service(V4, 53, 17, counts=NOTHING)),
        message(service(ip_address("198.51.100.9"))),
        message(service(V4, 80, 33)),
        message(service(V6)),
        MARK,
        message(service(counts=(4, 41, 51, 6001, 70_000_000_001))),
    ]
    found = traffic([V4, V6], messages, LISTING)
    assert found.virtual_servers == {
        ("198.51.100.1", "TCP", "80"): (4, 41, 51, 6001, 70_000_000_001),
        ("2001:db8:100::1", "TCP", "80"): COUNTS,
    }
    assert found.real_servers == {
        ("198.51.100.1", "TCP", "80", "10.0.1.2:8080"): (5, 2),
        ("198.51.100.1", "TCP", "80", "10.0.2.2:8080"): (1, 0),
        ("2001:db8:100::1", "TCP", "80", "[fd00:1::2]:8080"): (7, 0),
    }
    assert traffic([V4], messages, ()).real_servers == {}


def test_the_listing_tells_how_large_the_table_of_connections_is_and_how_many_are_in_it():
    assert buckets(LISTING) == 4096
    assert sum(real.active + real.inactive for _, real in listed(LISTING)) == 34


@pytest.mark.parametrize("lines", [[], ["hello"], ["IP Virtual Server version 1.2.1 (size=many)\n"]])
def test_a_listing_without_its_first_line_is_refused(lines):
    with pytest.raises(EdgeError, match="begins with"):
        buckets(lines)


@pytest.mark.parametrize("line", ["  -> 0A000102:1F90 Masq 1 5\n", "  -> 0A000102:1F90 Masq 1 5 many\n"])
def test_a_line_that_is_no_real_server_is_refused(line):
    with pytest.raises(EdgeError, match="not a real server"):
        list(listed([line]))


@given(st.ip_addresses(), st.integers(0, 65535))
def test_places_are_written_as_the_kernel_does_and_read_back(address, port):
    shown = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
    assert place(hexadecimal(address.packed, port)) == shown


@given(st.text())
def test_what_is_no_place_is_refused(text):
    with pytest.raises(EdgeError, match="not an address"):
        place(text)
