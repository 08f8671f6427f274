"""A request of our own that goes the way of all others: what it shows, and what keeps it from its answer."""

import asyncio

import pytest

from speaker.layer2.answer import Claims, Ignored, answer_arp, answer_ndp, arp_rival, ndp_rival
from speaker.layer2.filter import FilterTracker, arp_program
from speaker.layer2.responder import IDLE, Proof, Protocol, Unproven
from speaker.model import Family

ARP, NDP = Protocol(Family.IPV4, answer_arp, arp_rival), Protocol(Family.IPV6, answer_ndp, ndp_rival)


class Open:
    """A filter that keeps nothing out."""

    def lets_through(self, address):
        return True


class Broken(Claims):
    def expired(self, now):
        raise ZeroDivisionError("a bug")


def noting(protocol, asked):
    """``protocol`` whose decision notes what it is asked for."""

    def answer(frame, pkttype, claims, now):
        asked.append((frame, claims))
        return protocol.answer(frame, pkttype, claims, now)

    return Protocol(protocol.family, answer, protocol.rival)


def raising(kind):
    def answer(frame, pkttype, claims, now):
        raise kind("a bug")

    return Protocol(Family.IPV4, answer, arp_rival)


@pytest.mark.parametrize("protocol", [ARP, NDP], ids=["arp", "ndp"])
@pytest.mark.parametrize("now", [0.0, 200.0], ids=["in time", "past the deadline"])
def test_where_all_is_well_it_is_answered_whether_or_not_answers_are_allowed_now(claims, protocol, now):
    Proof(protocol, claims, lambda: now).give(Open())


@pytest.mark.parametrize("protocol", [ARP, NDP], ids=["arp", "ndp"])
def test_where_nothing_is_held_it_is_answered_for_what_nobody_has(lan, protocol):
    nothing = Claims(lan.mac)
    Proof(protocol, nothing, lambda: 0.0).give(Open())
    assert len(nothing) == 0


def test_a_family_of_which_nothing_is_held_proves_itself_at_once_and_then_now_and_then(lan):
    asked, nothing = [], Claims(lan.mac)
    proof = Proof(noting(ARP, asked), nothing, lambda: 0.0)
    for _ in range(IDLE + 3):
        proof.give(Open())
    assert len(asked) == 2
    nothing.deadline = 1.0
    nothing.add(lan.eip4.packed)
    proof.give(Open())
    nothing.discard(lan.eip4.packed)
    proof.give(Open())
    assert len(asked) == 4, "and at once where nothing is held any more"


def test_it_does_so_each_time_as_long_as_it_fails(lan):
    proof = Proof(raising(ZeroDivisionError), Claims(lan.mac), lambda: 0.0)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            proof.give(Open())


def test_every_eip_has_its_turn_and_is_asked_for_of_the_claims_that_answer_clients(claims, lan):
    asked = []
    proof = Proof(noting(ARP, asked), claims, lambda: 0.0)
    claims.watch(lan.foreign4.packed)  # not answered for
    for _ in range(4):
        proof.give(Open())
    assert [frame[38:42] for frame, _ in asked] == [lan.eip4.packed, lan.other4.packed] * 2
    assert all(used is claims for _, used in asked)


@pytest.mark.parametrize("kind", [ZeroDivisionError, asyncio.CancelledError])
def test_what_the_decision_raises_is_the_reason(claims, kind):
    with pytest.raises(kind):
        Proof(raising(kind), claims, lambda: 0.0).give(Open())


def test_what_is_raised_between_the_decision_and_the_sending_is_the_reason(lan):
    claims = Broken(lan.mac)
    claims.add(lan.eip4.packed)
    claims.deadline = 100.0
    with pytest.raises(ZeroDivisionError):
        Proof(ARP, claims, lambda: 0.0).give(Open())


def test_an_answer_that_is_not_given_is_the_reason(claims):
    refusing = Protocol(Family.IPV4, lambda frame, pkttype, claims, now: Ignored.NOT_OURS, arp_rival)
    with pytest.raises(Unproven, match="got not_ours"):
        Proof(refusing, claims, lambda: 0.0).give(Open())


def test_an_answer_about_something_else_is_none(claims, lan):
    claims.arp[lan.eip4.packed] = claims.arp[lan.other4.packed]
    with pytest.raises(Unproven, match="no answer"):
        Proof(ARP, claims, lambda: 0.0).give(Open())


def test_what_got_no_answer_is_asked_for_again_until_it_does_or_is_not_held_any_more(claims, lan):
    claims.arp[lan.eip4.packed] = b"nonsense"
    proof = Proof(ARP, claims, lambda: 0.0)
    for _ in range(3):
        with pytest.raises(Unproven):
            proof.give(Open())
    claims.discard(lan.eip4.packed)
    proof.give(Open())


def test_one_that_alone_gets_no_answer_is_blamed_and_where_none_gets_one_the_bug_is_the_reason(claims, lan):
    claims.arp[lan.eip4.packed] = b"nonsense"
    proof = Proof(ARP, claims, lambda: 0.0)
    with pytest.raises(Unproven):
        proof.give(Open())
    assert proof.blamed(Open()) == lan.eip4.packed
    claims.arp[lan.other4.packed] = b"nonsense"
    with pytest.raises(Unproven):
        proof.blamed(Open())
    claims.discard(lan.other4.packed)
    assert proof.blamed(Open()) == lan.eip4.packed  # nothing else is held, and nobody's is answered
    with pytest.raises(ZeroDivisionError):
        Proof(raising(ZeroDivisionError), claims, lambda: 0.0).blamed(Open())


def test_what_the_kernel_does_not_let_through_is_not_answered_for(claims, lan):
    passes = FilterTracker(arp_program)
    passes.widen([lan.other4.packed], 0.0)
    with pytest.raises(Unproven, match="filter"):
        Proof(ARP, claims, lambda: 0.0).give(passes)
    passes.widen([lan.eip4.packed], 0.0)
    Proof(ARP, claims, lambda: 0.0).give(passes)
