"""An alarm for each address."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from speaker.layer2.holdings import Timers

EIP, OTHER = b"\xc0\x00\x02\x0a", b"\xc0\x00\x02\x0b"


def test_an_alarm_goes_off_once_at_its_instant_and_not_before():
    timers = Timers()
    timers.set(EIP, 10.0)
    assert timers.wake() == 10.0
    assert timers.due(9.999, 5) == []
    assert timers.due(10.0, 5) == [EIP]
    assert timers.due(99.0, 5) == []
    assert timers.wake() is None


def test_a_new_alarm_takes_the_place_of_the_old_one():
    timers = Timers()
    timers.set(EIP, 10.0)
    timers.set(EIP, 20.0)
    timers.set(OTHER, 30.0)
    assert timers.due(15.0, 5) == []
    timers.cancel(EIP)
    timers.cancel(b"\0\0\0\0")
    assert timers.wake() == 30.0


@given(st.lists(st.floats(0.1, 50.0), max_size=50))
def test_setting_it_over_and_over_leaves_a_bounded_heap(pauses):
    timers = Timers()
    now = 0.0
    for pause in pauses * 20:
        now += pause
        timers.set(EIP, now + 86_400.0)
        assert len(timers._heap) <= 100
        timers.due(now, 10)


class Alarms(RuleBasedStateMachine):
    """Whatever is set and cancelled in whatever order, the model of it is a dictionary."""

    def __init__(self):
        super().__init__()
        self.timers, self.model, self.now = Timers(), {}, 0.0

    @rule(number=st.integers(0, 5), ahead=st.integers(0, 9))
    def set(self, number, ahead):
        self.timers.set(bytes((number,)), self.now + ahead)
        self.model[bytes((number,))] = self.now + ahead

    @rule(number=st.integers(0, 5))
    def cancel(self, number):
        self.timers.cancel(bytes((number,)))
        self.model.pop(bytes((number,)), None)

    @rule(ahead=st.integers(0, 5), most=st.integers(1, 4))
    def wait(self, ahead, most):
        self.now += ahead
        found = self.timers.due(self.now, most)
        overdue = sorted(when for when in self.model.values() if when <= self.now)
        assert [self.model.pop(one) for one in found] == overdue[:most]

    @invariant()
    def wakes_for_the_next_one(self):
        assert self.timers.wake() == min(self.model.values(), default=None)


TestAlarms = Alarms.TestCase
