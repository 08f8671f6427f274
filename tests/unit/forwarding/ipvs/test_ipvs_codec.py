"""Messages of IPVS dumps: recorded on Linux 6.1 (the statistics left out), cut, bent, and made up."""

import sys
from contextlib import suppress
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.errors import EdgeError
from speaker.forwarding.ipvs.tables import NEVER_WANTED, Dest, parse_dest, parse_service
from speaker.forwarding.plan import VirtualServer
from speaker.model import Protocol
from speaker.netlink.messages import attribute, nested

HEAD, DEST_HEAD = "01010000", "05010000"
# ipvsadm -A -t 192.0.2.1:80 -s mh -b mh-port -p 60
PERSISTENT = (
    "5401010006000100020000000600020006000000"
    "14000300c0000201000000000000000000000000060004000050000007000600"
    "6d6800000c00070013000000ffffffff080008003c00000008000900ffffffff"
)
# ipvsadm -A -u [2001:db8::1]:53 -s rr
IPV6 = (
    "54010100060001000a0000000600020011000000"
    "1400030020010db8000000000000000000000001060004000035000007000600"
    "727200000c00070002000000ffffffff08000800000000000800090080000000"
)
# ipvsadm -A -f 7 -s rr
FIREWALL_MARK = (
    "3c0101000600010002000000080005000700000007000600727200000c00070002000000ffffffff080008000000000008000900ffffffff"
)
REAL = (
    "7c010200140001000a000001000000000000000000000000060002001f900000080003000000000008000400{weight}05000d000000000006"
    "000e000000000006000f0000000000080005000000000008000600000000000800070003000000080008000400000008000900000000000600"
    "0b0002000000"
)
DIRECT = REAL.replace("0800030000000000", "0800030003000000")
LIMITED = REAL.replace("0800050000000000", "0800050005000000")


def service(text: str) -> bytes:
    return bytes.fromhex(HEAD + text)


def dest(text: str, weight: str = "07000000") -> bytes:
    return bytes.fromhex(DEST_HEAD + text.format(weight=weight))


def test_virtual_servers_are_read():
    assert parse_service(service(PERSISTENT)) == VirtualServer(
        ip_address("192.0.2.1"), Protocol.TCP, 80, "mh-port", persistence=60
    )
    assert parse_service(service(IPV6)) == VirtualServer(ip_address("2001:db8::1"), Protocol.UDP, 53, "rr")


OTHERS = {
    "a firewall mark instead of an address": FIREWALL_MARK,
    "DCCP": PERSISTENT.replace("0600020006000000", "0600020021000000"),
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_what_no_plan_could_ask_for_is_left_out(text):
    assert parse_service(service(text)) is None


NOT_AS_WE_MAKE_IT = {
    "one packet a connection": PERSISTENT.replace("0c00070013000000", "0c00070007000000"),
    "clients stick by the /24": PERSISTENT.replace("08000900ffffffff", "08000900ffffff00"),
    "clients stick by the /64": IPV6.replace("0800090080000000", "0800090040000000"),
}


@pytest.mark.parametrize("text", NOT_AS_WE_MAKE_IT.values(), ids=NOT_AS_WE_MAKE_IT)
def test_a_virtual_server_with_settings_that_we_never_make_is_not_one_that_anybody_wants(text):
    found = parse_service(service(text))
    assert found is not None
    assert " with flags " in found.scheduler


def test_real_servers_are_read_with_the_number_of_their_connections():
    assert parse_dest(dest(REAL)) == Dest(ip_address("10.0.0.1").packed.ljust(16, b"\0"), 8080, 7, connections=7)


@pytest.mark.parametrize("text", [DIRECT, LIMITED])
def test_a_real_server_with_settings_that_we_never_make_is_not_one_that_anybody_wants(text):
    assert parse_dest(dest(text)).weight == NEVER_WANTED


HEADS = [(1, 16), (2, 2), (3, 4), (4, 4), (13, 1), (14, 2), (15, 2), (5, 4), (6, 4), (7, 4), (8, 4), (9, 4), (11, 2)]
"""Kind and length of what Linux 6.1 writes of a real server, in its order."""


@given(data=st.data())
def test_real_servers_are_read_whatever_the_order_and_whatever_else_is_said(data):
    """Linux before 5.3 says nothing of tunnels (13 to 15); a later one may say more, or all of it in another order."""
    values = {kind: data.draw(st.binary(min_size=length, max_size=length)) for kind, length in HEADS}
    values[3], values[5] = b"\0\0\1\0", bytes(4)
    kinds = [kind for kind, _ in HEADS]
    before_5_3 = [kind for kind in kinds if kind not in (13, 14, 15)]
    order = data.draw(st.sampled_from([kinds, before_5_3]) | st.permutations([*kinds, 77]))
    inner = b"".join(attribute(kind, values.get(kind, b"?")) for kind in order)
    assert parse_dest(bytes(4) + nested(2, inner)) == Dest(
        values[1],
        int.from_bytes(values[2], "big"),
        int.from_bytes(values[4], sys.byteorder, signed=True),
        sum(int.from_bytes(values[kind], sys.byteorder) for kind in (7, 8)),
    )


@st.composite
def bent(draw: st.DrawFn) -> bytes:
    """A recorded message, cut short or with some bytes changed."""
    message = bytearray(
        draw(st.sampled_from([service(PERSISTENT), service(IPV6), service(FIREWALL_MARK), dest(REAL), dest(DIRECT)]))
    )
    for _ in range(draw(st.integers(0, 4))):
        message[draw(st.integers(0, len(message) - 1))] = draw(st.integers(0, 255))
    return bytes(message[: draw(st.integers(0, len(message)))])


@given(st.binary(max_size=200) | bent())
def test_whatever_the_bytes_there_is_an_answer_or_an_edge_error(message):
    for parse in (parse_service, parse_dest):
        with suppress(EdgeError):
            parse(message)
