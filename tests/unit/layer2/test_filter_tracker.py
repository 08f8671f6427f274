"""What the kernel lets through while EIPs come and go."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from speaker.layer2.filter import LATER, RUNS, FilterTracker, runs


def eip(number):
    return number.to_bytes(4, "big")


def as_they_are(ours):
    return ours


def test_what_comes_is_let_through_at_once_and_what_went_is_kept_out_a_moment_later():
    tracker = FilterTracker(as_they_are)
    assert tracker.wake() is None
    assert tracker.widen([eip(1), eip(2), eip(9)], 10.0) == runs([1, 2, 9], RUNS)
    assert tracker.widen([eip(2)], 10.1) is None
    assert tracker.wake() == 10.0 + LATER
    assert tracker.tighten([eip(1), eip(2), eip(9)]) is None
    assert tracker.wake() is None
    tracker.loosen(20.0)
    tracker.loosen(20.9)
    assert tracker.wake() == 20.0 + LATER
    assert tracker.tighten([eip(9)]) == runs([9], RUNS)
    assert tracker.tighten([]) == ()


def test_a_closer_look_opens_the_gaps_that_haste_closed():
    tracker = FilterTracker(as_they_are)
    first = [eip(number) for number in range(0, 64_000, 1000)]
    last = [eip(number) for number in range(64)]
    tracker.widen(first, 0.0)
    tracker.widen([eip(500)], 0.0)
    tracker.widen(last, 0.0)
    everything = {int.from_bytes(one, "big") for one in (*first, *last)}
    assert tracker.tighten([eip(number) for number in everything]) == runs(everything, RUNS)


class Sieving(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.tracker, self.ours, self.program = FilterTracker(as_they_are), set(), ()

    @rule(new=st.sets(st.integers(0, 2000) | st.integers(0, 2**32 - 1), max_size=100))
    def take(self, new):
        self.ours |= new
        self.program = self.tracker.widen([eip(number) for number in new], 0.0) or self.program

    @rule(gone=st.sets(st.integers(0, 2000), max_size=100))
    def drop(self, gone):
        self.ours -= gone
        self.tracker.loosen(0.0)

    @rule()
    def look_closer(self):
        program = self.tracker.tighten([eip(number) for number in self.ours])
        self.program = self.program if program is None else program
        assert self.program == runs(self.ours, RUNS)

    @invariant()
    def everything_ours_goes_through_one_of_few_runs(self):
        assert len(self.program) <= RUNS
        assert all(self.tracker.lets_through(eip(number)) for number in self.ours)


TestSieving = Sieving.TestCase
