"""What the tests read from packets, told from packets as tcpdump prints them."""

import pytest
from cluster_packets import slipped

EIP = "192.0.2.66"


def packets(*steps):
    """``(client's port, port of the EIP, sent on)``, one after the other, as a node and the client see them."""
    for at, (port, to, sent_on) in enumerate(steps):
        syn = f"IP 192.0.2.100.{port} > {EIP}.{to}: Flags [S], seq {1000 + at}, win 64240, length 0"
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
    assert slipped(list(packets(*steps)), 2, EIP) is told
