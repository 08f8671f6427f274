"""What the wire process tells of a peer."""

from ipaddress import ip_address

import pytest

from speaker.model import Mac, Speaker
from speaker.ownership.hello import incarnation
from speaker.ownership.machine.peers import PeerState
from speaker.wire.hello_links import peer_seen
from speaker.wire.messages import PeerSeen

MAC = Mac(b"\x02\0\0\0\0\x09")
STATE = PeerState("n2", incarnation(1_800_000_000, 77), True, True, False, False, 3, 300)
TOLD = PeerSeen("n2", "eth0", True, False, True, False, 300, 1_800_000_000)


@pytest.mark.parametrize(
    ("speaker", "told"),
    [
        (Speaker(MAC, (ip_address("192.0.2.12"),)), TOLD._replace(mac=MAC, addresses=(ip_address("192.0.2.12"),))),
        (None, TOLD),
    ],
    ids=["heard since the link was opened", "not heard"],
)
def test_a_peer_is_told_with_its_pace_its_beginning_and_where_it_speaks(speaker, told):
    assert peer_seen("eth0", STATE, speaker) == told
