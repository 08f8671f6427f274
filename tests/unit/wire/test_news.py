"""What is told of the peers of each link, and of links that carry hellos no more."""

import pytest

from speaker.model import Link, Mac
from speaker.model.events import PeerChanged, PeersCounted
from speaker.ownership.hello import Incarnation
from speaker.ownership.machine.peers import PeerState
from speaker.wire.sender import News

ETH0 = Link(7777, "eth0", Mac(b"\x02\0\0\0\0\x01"))
ETH1 = Link(7778, "eth1", Mac(b"\x02\0\0\0\0\x02"))
BOTH, ETH1_ALONE = {ETH0.index: ETH0, ETH1.index: ETH1}, {ETH1.index: ETH1}
NOBODY = ()


def them(alive):
    return (PeerState("them", Incarnation(1), alive, alive, alive, False, 0),)


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ([(BOTH, them(True)), (ETH1_ALONE, them(True))], [PeersCounted("eth0", 0, 0)]),
        ([(BOTH, them(False)), (ETH1_ALONE, them(False))], [PeersCounted("eth0", 0, 0)]),
        ([(BOTH, them(True)), (ETH1_ALONE, them(False))], [PeersCounted("eth0", 0, 0)]),
        (
            [(BOTH, them(True)), (ETH1_ALONE, them(False)), (BOTH, them(False))],
            [PeersCounted("eth0", 0, 0), PeerChanged("them", ETH0, False), PeersCounted("eth0", 0, 1)],
        ),
        (
            [(BOTH, them(True)), (ETH1_ALONE, them(False)), (BOTH, NOBODY)],
            [PeersCounted("eth0", 0, 0), PeerChanged("them", ETH0, False)],
        ),
        (
            [(BOTH, them(True)), (ETH1_ALONE, them(True)), (BOTH, them(True))],
            [PeersCounted("eth0", 0, 0), PeersCounted("eth0", 1, 0)],
        ),
    ],
    ids=[
        "nobody is heard on a link that is lost",
        "nor missed",
        "who falls silent there meanwhile may live",
        "until the link is back and it does not",
        "however long that took",
        "who lived on is no news",
    ],
)
def test_of_a_link_that_carries_no_hellos_nobody_is_counted(parts, looks, told):
    news = News(parts.events)
    for number, (links, on_eth0) in enumerate(looks):
        news.peers({ETH0.index: on_eth0, ETH1.index: NOBODY}, links)
        if not number:
            parts.events.take()
    assert parts.events.all == told


def test_who_is_not_heard_yet_on_a_link_that_is_back_is_silent_only_once_there_was_time(parts):
    news = News(parts.events)
    alive, silent = ({ETH0.index: them(lives)} for lives in (True, False))
    news.peers(alive, BOTH)
    news.peers(silent, ETH1_ALONE)
    parts.events.take()
    for links, told in (({ETH0.index}, []), ((), [PeerChanged("them", ETH0, False), PeersCounted("eth0", 0, 1)])):
        assert news.may_have_changed(0, 0.0)
        news.peers(silent, BOTH, fresh=links)
        assert parts.events.take() == told
    assert not news.may_have_changed(0, 0.0)
