"""Which host speaks of what: each of itself, one of all, and nobody but the controller where there is one."""

from ipaddress import ip_address

import pytest

from speaker.model import Link, Mac, ServiceKey
from speaker.model.events import Assigned, EipYielded, PeerChanged, Refused, Released
from speaker.telemetry.mqtt.messages import Topics
from speaker.telemetry.mqtt.news import HostNews

TOPICS = Topics("p")
WEB, EIP = ServiceKey("default", "web"), ip_address("192.0.2.10")
TOLD = {"eips": [], "problems": []}
ALL, POOLS = TOPICS.all_eips, TOPICS.all_pools


class Heard:
    """What a publisher is told."""

    topics = TOPICS

    def __init__(self) -> None:
        self.areas, self.lines, self.again, self.errors = {}, [], [], []

    def show(self, areas):
        self.areas |= areas

    def revise(self, area, change):
        if self.areas.get(area) is not None:
            self.areas[area] = change(self.areas[area])

    def tell(self, event):
        self.lines.append(type(event))

    def anew(self, *areas):
        self.again.append(areas)

    def soon(self, what):
        what()

    def internal_error(self, task, error):
        self.errors.append((task, type(error)))


def peer(node, alive, link="eth0"):
    return PeerChanged(node, Link(2, link, Mac(bytes(6))), alive)


@pytest.mark.parametrize(
    ("shares", "peers", "speaks"),
    [
        (True, [], True),
        (False, [], False),
        (True, [peer("n2", True)], True),
        (True, [peer("n0", True)], False),
        (True, [peer("n0", True), peer("n0", False)], True),
        (True, [peer("n0", True), peer("n0", True, "eth1"), peer("n0", False)], False),
    ],
)
def test_of_hosts_without_a_controller_the_first_that_lives_speaks_of_all(shares, peers, speaks):
    heard = Heard()
    news = HostNews(heard, "n1", heard, shares=shares)
    for line in peers:
        news.hear(line)
    news.shown(TOLD, {}, {})
    assert heard.areas[TOPICS.all_holds("n1")] == {}
    assert TOPICS.node("n1") in heard.areas
    assert (heard.areas.get(ALL), heard.areas.get(POOLS)) == (({}, {}) if speaks else (None, None))
    heard.lines.clear()
    of_all = [Assigned(WEB, ()), Released(WEB, ()), Refused(WEB, "", "")]
    for event in (*of_all, EipYielded(EIP, "drained", None)):
        news.hear(event)
    assert heard.lines == [*(map(type, of_all) if speaks else ()), EipYielded]


def test_whenever_a_host_comes_or_goes_all_is_said_again_as_another_may_have_said_otherwise():
    heard = Heard()
    news = HostNews(heard, "n1", heard, shares=True)
    news.hear(peer("n0", True))
    news.hear(peer("n0", False))
    assert heard.again == [(ALL, POOLS)] * 2


def test_who_stops_holds_nothing():
    heard = Heard()
    news = HostNews(heard, "n1", heard, shares=True)
    one = {"address": "192.0.2.10", "pool": "lan", "services": [], "holder": "n1", "term": 1, "claimed": True}
    news.shown({"eips": [one], "problems": []}, {}, {})
    assert len(heard.areas[TOPICS.all_holds("n1")]) == 1
    news.finish()
    assert heard.areas[TOPICS.all_holds("n1")] == {}
    assert b'"holder":null' in heard.areas[ALL][TOPICS.eip("192.0.2.10")]


def test_a_bug_here_keeps_nothing_from_the_log_or_the_status_file():
    heard = Heard()
    news = HostNews(heard, "n1", heard, shares=True)
    news.shown({"eips": [{}], "problems": []}, {}, {})
    news.hear(PeerChanged("n2", None, True))
    assert heard.errors == [("mqtt", KeyError), ("mqtt", AttributeError)]
