"""What is answered, announced and probed for while the owner takes and drops."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from speaker.layer2.answer import Claims
from speaker.layer2.holdings import Holdings, Progress
from speaker.model import Gratuitous, Mac

EIP, OTHER, SIX = (one.packed for one in (IPv4Address("192.0.2.10"), IPv4Address("192.0.2.11"), IPv6Address("fd00::1")))
ONCE, THRICE = Gratuitous(burst=1), Gratuitous(burst=3, interval=1.0)


@pytest.fixture
def holdings(lan):
    return Holdings(Claims(lan.mac))


def watched(claims, address):
    return address in claims and not claims.answered(address)


def worked_off(holdings, now=0.0):
    return holdings.work_off(now, 100)


def test_what_is_taken_is_answered_and_announced_once_worked_off(holdings):
    holdings.take({EIP: ONCE, SIX: ONCE}, ())
    assert holdings.unfinished
    assert not holdings.claims.answered(EIP)
    assert worked_off(holdings) == Progress([EIP, SIX], [])
    assert holdings.claims.answered(EIP)
    assert holdings.claims.answered(SIX)
    assert holdings.burst.due(0.0, 10) == [EIP, SIX]
    assert not holdings.unfinished


def test_thousands_are_worked_off_a_slice_at_a_time_in_the_order_they_came(holdings):
    eips = [(IPv4Address("10.0.0.0") + at).packed for at in range(600)]
    holdings.take(dict.fromkeys(eips, ONCE), ())
    assert [holdings.work_off(0.0, 256).came for _ in range(3)] == [eips[:256], eips[256:512], eips[512:]]
    assert worked_off(holdings) == Progress([], [])


def test_what_is_dropped_is_silent_at_once_and_tidied_later(holdings):
    holdings.take({EIP: THRICE, OTHER: ONCE}, ())
    worked_off(holdings)
    holdings.drop([EIP, SIX])
    assert EIP not in holdings.claims
    assert worked_off(holdings) == Progress([], [EIP])
    assert holdings.burst.due(99.0, 10) == [OTHER]


def test_an_eip_that_meets_a_bug_keeps_no_other_from_being_worked_off(holdings):
    holdings.take({EIP: ONCE, OTHER: "a bug", SIX: ONCE}, ())
    came, gone, failed = worked_off(holdings)
    assert (came, gone) == ([EIP, OTHER, SIX], [])
    assert [type(error) for error in failed.values()] == [AttributeError]
    assert holdings.claims.answered(EIP)
    assert holdings.claims.answered(SIX)
    assert not holdings.unfinished


def test_dropped_before_it_was_worked_off_it_never_answers(holdings):
    holdings.take({EIP: ONCE}, ())
    holdings.drop([EIP])
    worked_off(holdings)
    assert EIP not in holdings.claims
    assert holdings.burst.wake() is None


def test_taken_again_before_the_drop_was_tidied_it_answers_and_announces_anew(holdings):
    holdings.take({EIP: THRICE}, ())
    worked_off(holdings)
    holdings.burst.due(0.0, 10)
    holdings.drop([EIP])
    holdings.take({EIP: THRICE}, ())
    worked_off(holdings, 5.0)
    assert holdings.claims.answered(EIP)
    assert holdings.burst.wake() == 5.0


def test_an_unproven_eip_is_watched_and_silent_until_it_is_proven(holdings):
    holdings.take({EIP: ONCE, OTHER: ONCE}, {EIP})
    worked_off(holdings)
    assert watched(holdings.claims, EIP)
    assert holdings.burst.due(0.0, 10) == [OTHER]
    assert EIP in holdings.probes
    holdings.proven([EIP], 0.06)
    assert holdings.claims.answered(EIP)
    assert holdings.burst.due(0.06, 10) == [EIP]
    assert not holdings.unproven


def test_only_what_is_new_is_probed_for(holdings):
    holdings.take({EIP: ONCE}, ())
    holdings.take({EIP: THRICE}, {EIP, OTHER})
    worked_off(holdings)
    assert holdings.claims.answered(EIP)
    assert not holdings.unproven


def test_an_unproven_eip_stays_unproven_when_it_is_taken_again(holdings):
    holdings.take({EIP: ONCE}, {EIP})
    worked_off(holdings)
    holdings.take({EIP: THRICE}, ())
    worked_off(holdings)
    assert watched(holdings.claims, EIP)


def test_withdrawal_ends_the_probe_even_if_it_was_just_found_free(holdings):
    holdings.take({EIP: ONCE}, {EIP})
    worked_off(holdings)
    holdings.drop([EIP])
    assert holdings.probes.wake() is None
    holdings.proven([EIP], 0.06)
    assert EIP not in holdings.claims


def test_only_what_is_answered_is_announced_anew(holdings):
    holdings.take({EIP: ONCE, OTHER: ONCE}, {OTHER})
    worked_off(holdings)
    holdings.burst.due(0.0, 10)
    holdings.announce([EIP, OTHER, SIX])
    worked_off(holdings, 7.0)
    assert holdings.burst.due(7.0, 10) == [EIP]


def test_started_over_it_answers_nothing_until_all_is_taken_anew_and_probed_for_where_it_was_not_proven(holdings):
    holdings.take({EIP: ONCE, OTHER: ONCE, SIX: ONCE}, {OTHER})
    worked_off(holdings)
    holdings.take({EIP: ONCE}, {EIP})  # it is held already
    holdings.drop([SIX])
    holdings.disputes.act(EIP, 0.0)
    holdings.start_over()
    assert len(holdings.claims) == 0
    assert (holdings.burst.wake(), holdings.probes.wake()) == (None, None)
    assert holdings.disputes.act(EIP, 0.0), "it may be fought for again"
    assert worked_off(holdings) == Progress([EIP, OTHER], [])
    assert holdings.claims.answered(EIP)
    assert watched(holdings.claims, OTHER)
    assert OTHER in holdings.probes
    holdings.proven([OTHER], 0.06)
    assert (holdings.eips, holdings.unproven) == ({EIP: ONCE, OTHER: ONCE}, set())


class Holding(RuleBasedStateMachine):
    """Taken, dropped, proven and worked off in any order and in slices of any size."""

    eips = st.sets(st.sampled_from([EIP, OTHER, SIX, *(bytes((10, 0, 0, at)) for at in range(4))]), min_size=1)

    def __init__(self):
        super().__init__()
        self.holdings = Holdings(Claims(Mac(b"\x02\0\0\0\0\1")))
        self.held, self.unproven, self.now = set(), set(), 0.0

    @rule(eips=eips, probed=eips)
    def take(self, eips, probed):
        self.holdings.take(dict.fromkeys(eips, ONCE), probed)
        self.unproven |= eips & probed - self.held
        self.held |= eips

    @rule(eips=eips)
    def drop(self, eips):
        self.holdings.drop(eips)
        self.held -= eips
        self.unproven -= eips
        assert not any(address in self.holdings.claims for address in eips)

    @rule(pause=st.sampled_from([0.01, 0.02, 0.06]))
    def probe(self, pause):
        self.now += pause
        free = self.holdings.probes.due(self.now, 3).free
        self.holdings.proven(free, self.now)
        assert set(free) <= self.unproven
        self.unproven -= set(free)

    @rule(most=st.integers(1, 5))
    def work_off(self, most):
        self.holdings.work_off(self.now, most)

    @rule()
    def start_over(self):
        self.holdings.start_over()

    @invariant()
    def nothing_else_is_answered(self):
        assert {*self.holdings.claims.arp, *self.holdings.claims.ndp} <= self.held
        assert not any(self.holdings.claims.answered(address) for address in self.unproven)
        assert self.holdings.unproven == self.unproven
        assert self.holdings.eips.keys() == self.held

    @precondition(lambda self: not self.holdings.unfinished)
    @invariant()
    def once_worked_off_all_of_it_is(self):
        claims = self.holdings.claims
        assert {*claims.arp, *claims.ndp} == self.held
        assert {address for address in self.held if watched(claims, address)} == self.unproven
        assert {address for address in self.held if address in self.holdings.probes} == self.unproven


TestHolding = Holding.TestCase
