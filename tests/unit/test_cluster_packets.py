"""What the cluster's tests tell of a connection that failed, from the packets that were kept."""

import pytest
from cluster_packets import _connection, _sent_on, forgotten, slipped

CLIENT, EIP = "2001:db8:1::100", "2001:db8:1::a00"
OPENED = [
    (0.0, "client", f"eth0 Out IP6 {CLIENT}.41739 > {EIP}.80: Flags [S], seq 616614753, win 64800, length 0"),
    (0.1, "node3", f"eth0 In  IP6 {CLIENT}.41739 > {EIP}.80: Flags [S], seq 616614753, win 64800, length 0"),
    (0.2, "node3", "eth0 Out IP6 2001:db8:1::13.31154 > fd00:244:0:1::a.8080: Flags [S], seq 616614753, length 0"),
    (0.3, "node1", "veth Out IP6 2001:db8:1::13.31154 > fd00:244:0:1::a.8080: Flags [S], seq 616614753, length 0"),
    (0.4, "node1", "veth In  IP6 fd00:244:0:1::a.8080 > 2001:db8:1::13.31154: Flags [S.], seq 9, ack 616614754"),
    (0.5, "client", f"eth0 In  IP6 {EIP}.80 > {CLIENT}.41739: Flags [S.], seq 9, ack 616614754, length 0"),
    (0.6, "node3", f"eth0 Out IP6 {EIP} > ff02::1: ICMP6, neighbor advertisement, tgt is {EIP}, length 32"),
]
OTHERS = [
    (0.0, "client", f"eth0 Out IP6 {CLIENT}.41740 > {EIP}.80: Flags [S], seq 5, win 64800, length 0"),
    (0.2, "node3", "eth0 Out IP6 2001:db8:1::13.7 > fd00:244:0:1::a.8080: Flags [S], seq 5, length 0"),
    (0.6, "node3", f"eth0 Out IP6 {EIP}3 > ff02::1: ICMP6, neighbor advertisement, tgt is {EIP}3, length 32"),
]


def test_a_connection_is_found_again_where_its_addresses_were_translated():
    assert list(_connection(sorted(OPENED + OTHERS), 41739, EIP)) == OPENED


ASKED = [
    (0.0, "client", "eth0 Out IP 192.0.2.100.34226 > 192.0.2.65.53: UDP, length 227"),
    (0.1, "node1", "eth0 In  IP 192.0.2.100.34226 > 192.0.2.65.53: UDP, length 227"),
    (0.2, "node1", "eth0 Out IP 192.0.2.11.19729 > 10.244.3.7.8080: UDP, length 227"),
    (0.3, "node1", "eth0 In  IP 10.244.3.7.8080 > 192.0.2.11.19729: UDP, length 16"),
]
REFUSED = (0.4, "node1", "eth0 Out IP 192.0.2.11 > 10.244.3.7: ICMP 192.0.2.11 udp port 19729 unreachable, length 52")

POD_REFUSED = (0.3, "node1", "eth0 In  IP 10.244.3.7 > 192.0.2.11: ICMP 10.244.3.7 udp port 8080 unreachable")


def test_a_datagram_is_found_again_by_its_length():
    other = (0.2, "node1", "eth0 Out IP 192.0.2.11.4444 > 10.244.3.7.8080: UDP, length 226")
    twin = (0.2, "node1", "eth0 Out IP6 2001:db8:1::11.4445 > fd00:244:0:3::7.8080: UDP, length 227")
    assert _sent_on([*ASKED, other, twin], 34226, "192.0.2.65") == {"19729"}
    assert list(_connection([*ASKED, other, twin, REFUSED], 34226, "192.0.2.65")) == [*ASKED, REFUSED]


@pytest.mark.parametrize(
    ("packets", "is_so"),
    [
        ([*ASKED, REFUSED], True),
        (ASKED, False),
        (ASKED[:2], False),
        ([*ASKED, (0.4, "node1", REFUSED[2].replace("19729", "19728"))], False),
        ([*ASKED[:3], POD_REFUSED], False),
    ],
    ids=["the node refuses the answer", "nobody refuses it", "never sent on", "another's answer", "the pod refuses it"],
)
def test_a_node_forgot_a_datagram_only_where_it_refuses_its_answer(packets, is_so):
    assert forgotten(packets, 34226, "192.0.2.65") is is_so


def test_a_node_that_speaks_ipv6_refuses_an_answer_in_other_words():
    asked = [
        (0.0, "client", f"eth0 Out IP6 {CLIENT}.7 > {EIP}.53: UDP, length 9"),
        (0.1, "node1", "eth0 Out IP6 2001:db8:1::11.88 > fd00:244::7.8080: UDP, length 9"),
    ]
    refused = "eth0 Out IP6 2001:db8:1::11 > fd00:244::7: ICMP6, destination unreachable, unreachable port, 2001:db8:1::11 udp port 88"  # noqa: E501
    assert forgotten([*asked, (0.2, "node1", refused)], 7, EIP)


SHARED = "192.0.2.66"


def packets(*steps):
    """``(client's port, port of the EIP, sent on)``, one after the other, as a node and the client see them."""
    for at, (port, to, sent_on) in enumerate(steps):
        syn = f"IP 192.0.2.100.{port} > {SHARED}.{to}: Flags [S], seq {1000 + at}, win 64240, length 0"
        yield at, "client", f"eth0  Out {syn}"
        yield at, "node2", f"eth0  In  {syn}"
        if sent_on:
            yield at, "node2", f"veth1 Out IP 192.0.2.12.{port} > 10.244.2.3.8080: Flags [S], seq {1000 + at}, length 0"


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        pytest.param([(1, 80, True), (2, 80, False), (3, 80, True)], True, id="between two that were sent on"),
        pytest.param([(1, 80, True), (2, 81, False), (2, 80, False), (3, 80, True)], True, id="others do not count"),
        pytest.param([(1, 80, True), (2, 80, True), (3, 80, True)], False, id="it was sent on itself"),
        pytest.param([(1, 80, False), (2, 80, False), (3, 80, True)], False, id="the rules were not there yet"),
        pytest.param([(1, 80, True), (2, 80, False), (3, 80, False)], False, id="nor are they afterwards"),
        pytest.param([(2, 80, False), (3, 80, True)], False, id="nobody came before"),
        pytest.param([(1, 80, True), (3, 80, True)], False, id="it never came"),
    ],
)
def test_a_syn_slips_by_where_its_neighbours_are_sent_on(steps, told):
    assert slipped(list(packets(*steps)), 2, SHARED) is told
