"""A hello that does not come in time makes its link's carrier doubtful, once, and no other hello makes up for it."""

from types import SimpleNamespace

import pytest

from speaker.ownership.hello import Hello, Incarnation
from speaker.wire.hello_links import HelloLink, HelloLinks

HELLO = 0.1


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
async def link():
    """``hear(node, at, interval)`` a hello of it; ``doubts(at)``: whether the carrier is in doubt then, once told."""
    clock = Clock()
    hello_links = HelloLinks(None, None, None, 1.0, clock, None, None)
    hellos = SimpleNamespace(receive=list, link=SimpleNamespace(name="eth0", index=1))
    hello_link = hello_links._open[1] = HelloLink(hellos, 0.0, None)

    def hear(node, at, interval=0):
        clock.now = at
        hello_link.speakers.heard(Hello(node, Incarnation(1), 0, 0, interval=interval), at, HELLO)

    def doubts(at):
        clock.now = at
        hello_links.miss()
        found = hello_links.doubted.is_set()
        hello_links.doubted.clear()
        return found

    return SimpleNamespace(hear=hear, doubts=doubts)


async def test_as_long_as_hellos_come_nothing_is_in_doubt(link):
    for turn in range(5):
        link.hear("a", turn * HELLO)
        link.hear("b", turn * HELLO + 0.05)
        assert not link.doubts(turn * HELLO + 0.099)


async def test_a_hello_that_is_overdue_is_a_doubt_although_others_come(link):
    link.hear("a", 0.0)
    link.hear("b", 0.05)
    link.hear("b", 0.12)
    assert link.doubts(0.126)


async def test_who_is_silent_is_doubted_for_once_until_it_is_heard_again(link):
    link.hear("a", 0.0)
    assert link.doubts(0.13)
    assert not link.doubts(0.5)
    link.hear("a", 0.6)
    assert link.doubts(0.73)


async def test_a_peer_that_says_hello_less_often_is_waited_for_longer(link):
    link.hear("a", 0.0, interval=400)
    assert not link.doubts(0.45)
    assert link.doubts(0.51)
