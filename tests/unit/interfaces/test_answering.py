"""When a link's gateways count as silent, and who is asked at all."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from speaker.interfaces.gateway import Answering, questions
from speaker.interfaces.snapshot import Gateway, LinkAddress
from speaker.model import Mac
from speaker.packets.asking import Question

ROUTER_MAC = Mac(bytes.fromhex("020000000001"))


def question(gateway="192.0.2.1", link=1) -> Question:
    source = "192.0.2.5" if "." in gateway else "fe80::5"
    return Question(link, Mac(bytes(6)), ip_address(source), ip_address(gateway))


FIRST, SECOND, SIXTH = question(), question("192.0.2.2"), question("fe80::1")


class Story:
    """Rounds of questions, each with those that are answered; ``told`` since the last look."""

    def __init__(self, *wanted: Question, links=(1,)) -> None:
        self.answering, self.wanted, self.links = Answering(), wanted, links

    def round(self, *answered: Question) -> list[tuple[int, bool]]:
        self.answering.ask(self.wanted)
        told = self.answering.changes(self.links)
        for one in answered:
            self.answering.heard(one, ROUTER_MAC)
        return told + self.answering.changes(self.links)

    def rounds(self, number: int, *answered: Question) -> list[tuple[int, bool]]:
        return [change for _ in range(number) for change in self.round(*answered)]


def test_a_gateway_that_answers_is_told_once():
    assert Story(FIRST).rounds(5, FIRST) == [(1, True)]


def test_a_gateway_that_never_answered_is_silent_after_three_questions():
    story = Story(FIRST)
    assert story.rounds(3) == []
    assert story.round() == [(1, False)]
    assert story.rounds(10) == []


def test_a_gateway_that_falls_silent_is_given_three_questions():
    story = Story(FIRST)
    story.rounds(4, FIRST)
    assert story.rounds(3) == []
    assert story.round() == [(1, False)]


def test_two_lost_questions_in_a_row_are_no_silence():
    story = Story(FIRST)
    story.round(FIRST)
    for _ in range(5):
        assert story.rounds(2) + story.round(FIRST) == []


def test_the_first_answer_ends_the_silence():
    story = Story(FIRST)
    story.rounds(9)
    assert story.round(FIRST) == [(1, True)]


def test_a_late_answer_is_one():
    story = Story(FIRST)
    story.rounds(9)
    story.answering.heard(FIRST, ROUTER_MAC)
    assert story.answering.changes([1]) == [(1, True)]


def test_a_link_without_a_gateway_answers():
    assert Story().round() == [(1, True)]


@pytest.mark.parametrize(
    ("what", "asked", "answering", "verdict"),
    [
        ("both gateways", (FIRST, SECOND), (FIRST, SECOND), True),
        ("one of two: it stands in for the other", (FIRST, SECOND), (SECOND,), True),
        ("none of two", (FIRST, SECOND), (), False),
        ("IPv6 only, where IPv4 has a gateway too", (FIRST, SIXTH), (SIXTH,), False),
        ("IPv4 only", (FIRST, SIXTH), (FIRST,), False),
        ("one of each family", (FIRST, SECOND, SIXTH), (SECOND, SIXTH), True),
    ],
)
def test_each_family_needs_a_gateway_that_answers(what, asked, answering, verdict):
    assert Story(*asked).rounds(4, *answering) == [(1, verdict)], what


def test_nothing_is_told_before_every_family_is_known():
    story = Story(FIRST, SIXTH)
    assert story.rounds(2, SIXTH) == []
    assert story.round(FIRST, SIXTH) == [(1, True)]


def test_links_are_judged_one_by_one():
    other = question(link=2)
    story = Story(FIRST, other, links=(1, 2))
    assert story.rounds(4, other) == [(2, True), (1, False)]


def test_a_silent_link_whose_gateway_is_exchanged_stays_silent_until_the_new_one_answers():
    story = Story(FIRST)
    story.rounds(4)
    story.wanted = (SECOND,)
    assert story.rounds(2) == []
    assert story.round(SECOND) == [(1, True)]


def test_a_link_that_went_and_came_back_is_told_anew():
    story = Story(FIRST)
    assert story.round(FIRST) == [(1, True)]
    story.links = ()
    story.round()
    story.links = (1,)
    assert story.round(FIRST) == [(1, True)]


def test_an_answer_to_a_question_no_longer_asked_is_passed_over():
    story = Story(FIRST)
    story.round()
    story.answering.heard(SECOND, ROUTER_MAC)
    assert story.answering.changes([1]) == []


def test_a_gateway_that_answered_is_asked_alone_and_one_that_did_not_is_searched_for():
    answering = Answering()
    assert answering.ask([FIRST]) == [(FIRST, None)]
    answering.heard(FIRST, ROUTER_MAC)
    assert answering.ask([FIRST]) == [(FIRST, ROUTER_MAC)]
    assert answering.ask([FIRST]) == [(FIRST, None)]


# ── who is asked ──────────────────────────────────────────────────────────────────────────────────────────────


def asked(snapshot, *links) -> set[tuple[int, str, str]]:
    return {(found.link, str(found.source), str(found.target)) for found in questions(snapshot, links)}


def with_gateways(snapshot, *gateways):
    return replace(snapshot, gateways=frozenset(Gateway(link, ip_address(address)) for link, address in gateways))


def test_the_gateway_of_each_link_is_asked_from_an_address_of_that_link(snapshot, link):
    eth0, eth1, eth2 = link(1, "eth0"), link(2, "eth1"), link(3, "eth2")
    seen = snapshot(links=[eth0, eth1, eth2], addresses=[(1, "192.0.2.5/24"), (2, "198.51.100.5/24")])
    seen = with_gateways(seen, (1, "192.0.2.1"), (2, "198.51.100.1"), (3, "203.0.113.1"))
    assert asked(seen, eth0, eth1, eth2) == {(1, "192.0.2.5", "192.0.2.1"), (2, "198.51.100.5", "198.51.100.1")}
    assert asked(seen, eth1) == {(2, "198.51.100.5", "198.51.100.1")}


@pytest.mark.parametrize(
    ("what", "addresses", "gateway", "source"),
    [
        ("its subnet first", ["10.0.0.5/24", "192.0.2.5/24"], "192.0.2.1", "192.0.2.5"),
        ("an onlink gateway", ["10.0.0.5/32", "192.0.2.5/24"], "172.16.0.1", "10.0.0.5"),
        ("link-local to link-local", ["2001:db8::5/64", "fe80::5/64"], "fe80::1", "fe80::5"),
        ("global to global", ["fe80::5/64", "2001:db8::5/64"], "2001:db8::1", "2001:db8::5"),
        ("an IPv6 router for IPv4", ["192.0.2.5/24", "fe80::5/64"], "fe80::1", "fe80::5"),
    ],
)
def test_the_source_is_the_address_next_to_the_gateway(snapshot, link, what, addresses, gateway, source):
    eth0 = link(1, "eth0")
    seen = snapshot(links=[eth0], addresses=[(1, address) for address in addresses])
    assert asked(with_gateways(seen, (1, gateway)), eth0) == {(1, source, gateway)}, what


def test_nobody_is_asked_from_an_address_that_may_be_anothers(snapshot, link):
    eth0 = link(1, "eth0")
    tentative = LinkAddress(1, ip_address("fe80::5"), ip_network("fe80::/64"), tentative=True)
    seen = replace(snapshot(links=[eth0]), addresses=(tentative,))
    assert asked(with_gateways(seen, (1, "fe80::1")), eth0) == set()
