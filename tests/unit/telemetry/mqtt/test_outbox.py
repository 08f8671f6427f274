"""What waits for a broker: bounded; of states the last, of events the newest; and whatever the broker had before, what
it has in the end is the truth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.telemetry.mqtt.messages import Message
from speaker.telemetry.mqtt.outbox import LONGEST_TOPIC, Outbox

A, B = "p/v1/eips/+", "p/v1/nodes/n1"


def topic(name):
    return f"p/v1/eips/{name}"


def happened(name):
    return Message("p/v1/events/taken", name.encode(), retain=False)


def rest(outbox):
    taken = []
    while (message := outbox.take()) is not None:
        taken.append(message)
    return taken


def states(messages):
    return {message.topic.rpartition("/")[2]: message.payload for message in messages if message.retain}


def test_of_a_state_that_changed_while_it_waited_only_the_last_is_said():
    outbox = Outbox()
    for value in (b"1", b"2", b"3"):
        outbox.state(A, {topic("a"): value})
    assert rest(outbox) == [Message(topic("a"), b"3", retain=True)]
    outbox.state(A, {})
    outbox.state(A, {topic("a"): b"3"})
    assert len(outbox) == 1
    assert rest(outbox) == [Message(topic("a"), b"3", retain=True)]


def test_ten_thousand_changes_of_a_hundred_states_wait_as_a_hundred():
    outbox = Outbox()
    for change in range(10_000):
        outbox.state(A, {topic(str(eip)): str(change + eip).encode() for eip in range(100)} if change % 2 else {})
    assert len(outbox) == 100


def test_of_too_many_events_the_oldest_are_dropped_and_counted():
    outbox = Outbox(events=3)
    for name in "abcde":
        outbox.event(happened(name))
    assert [message.payload for message in rest(outbox)] == [b"c", b"d", b"e"]
    assert outbox.events_dropped == 2


def test_states_and_events_take_turns():
    outbox = Outbox()
    outbox.state(A, {topic(name): b"1" for name in "abc"})
    for name in "xyz":
        outbox.event(happened(name))
    assert [message.retain for message in rest(outbox)] == [False, True] * 3


def test_what_a_broker_may_not_have_got_is_said_again_and_a_state_as_it_is_by_then():
    outbox = Outbox()
    outbox.state(A, {topic("a"): b"1"})
    outbox.event(happened("x"))
    taken = rest(outbox)
    outbox.state(A, {topic("a"): b"2"})
    for message in taken:
        outbox.give_back(message)
    assert rest(outbox) == [happened("x"), Message(topic("a"), b"2", retain=True)]


def test_leftovers_are_cleared_before_anything_else_is_said_of_states():
    outbox = Outbox()
    outbox.state(A, {topic("a"): b"1"})
    for name in ("a", "old"):
        outbox.found(topic(name))
    assert rest(outbox) == [Message(topic("old"), b"", retain=True), Message(topic("a"), b"1", retain=True)]


@pytest.mark.parametrize(
    "found",
    ["p/v1/pools/x", "p/v1/eips", "p/v1/eips/a/b", "other/v1/eips/a", "", "p/v1/eips/" + "x" * LONGEST_TOPIC],
)
def test_nothing_is_cleared_that_is_not_ours_to_say_whatever_a_broker_sends(found):
    outbox = Outbox()
    outbox.state(A, {})
    outbox.found(found)
    assert rest(outbox) == []


def test_leftovers_are_bounded():
    outbox = Outbox(leftovers=3)
    outbox.state(A, {})
    for name in range(10):
        outbox.found(topic(str(name)))
    assert len(outbox) == 3


def test_what_others_speak_of_from_now_on_is_neither_said_nor_cleared():
    outbox = Outbox()
    outbox.state(A, {topic("a"): b"1"})
    outbox.state(B, {B: b"up"})
    outbox.found(topic("old"))
    outbox.forget(A)
    assert outbox.areas == {B}
    assert rest(outbox) == [Message(B, b"up", retain=True)]


def test_everything_is_said_again_in_the_order_asked_for():
    outbox = Outbox()
    outbox.state(B, {B: b"up"})
    outbox.state(A, {topic("a"): b"1"})
    rest(outbox)
    outbox.anew(A, B)
    assert [message.topic for message in rest(outbox)] == [topic("a"), B]
    outbox.anew()
    assert len(outbox) == 2


STEPS = st.one_of(
    st.tuples(st.just("state"), st.dictionaries(st.sampled_from("abcd"), st.sampled_from([b"1", b"2"]))),
    st.tuples(st.just("found"), st.sampled_from("abcdef")),
    st.tuples(st.just("event"), st.sampled_from("xyz")),
    st.tuples(st.just("anew"), st.none()),
    st.tuples(st.just("take"), st.booleans()),
)


@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([b"1", b"2", b"old"])), st.lists(STEPS, max_size=30))
def test_whatever_a_broker_had_and_lost_it_has_the_truth_in_the_end(before, steps):
    """``take`` says one message, which the broker gets or not. A new connection begins as ours does: it is followed,
    and all is said anew."""
    outbox, kept, truth = Outbox(), dict(before), {}

    def get(message):
        if message.retain and message.payload:
            kept[message.topic.rpartition("/")[2]] = message.payload
        elif message.retain:
            kept.pop(message.topic.rpartition("/")[2], None)

    outbox.state(A, {})
    for what, value in steps:
        match what:
            case "state":
                truth = value
                outbox.state(A, {topic(name): payload for name, payload in value.items()})
            case "found":
                outbox.found(topic(value))
            case "event":
                outbox.event(happened(value))
            case "anew":
                outbox.anew(A)
            case "take" if (message := outbox.take()) is not None:
                if value:
                    get(message)
                else:
                    outbox.give_back(message)
    for name in kept:
        outbox.found(topic(name))
    outbox.anew(A)
    for message in rest(outbox):
        get(message)
    assert kept == truth
