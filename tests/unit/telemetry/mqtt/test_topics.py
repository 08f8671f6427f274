"""Names of topics: no name of anything is a separator or a wildcard, and what one area holds matches it alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.telemetry.mqtt.messages import EVENT_SECONDS, STATE_SECONDS, Message, Topics

TOPICS = Topics("site/one")


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        (TOPICS.eip("192.0.2.10"), "site/one/v1/eips/192.0.2.10"),
        (TOPICS.eip("2001:db8::10"), "site/one/v1/eips/2001:db8::10"),
        (TOPICS.pool("lan.example"), "site/one/v1/pools/lan.example"),
        (TOPICS.node("n1"), "site/one/v1/nodes/n1"),
        (TOPICS.hold("n1", "192.0.2.10"), "site/one/v1/nodes/n1/eips/192.0.2.10"),
        (TOPICS.event("taken"), "site/one/v1/events/taken"),
        (TOPICS.controller, "site/one/v1/controller"),
        (TOPICS.all_eips, "site/one/v1/eips/+"),
        (TOPICS.all_holds("n1"), "site/one/v1/nodes/n1/eips/+"),
    ],
)
def test_topics_are_named_as_documented(topic, name):
    assert topic == name


@given(st.text(min_size=1))
def test_no_name_is_a_separator_or_a_wildcard(name):
    topic = TOPICS.pool(name).removeprefix("site/one/v1/pools/")
    assert not set(topic) & set("/+#\0")
    assert topic.isascii()


@pytest.mark.parametrize(
    ("message", "expiry"),
    [
        (Message("t", b"{}", retain=True), STATE_SECONDS),
        (Message("t", b"", retain=True), None),
        (Message("t", b"{}", retain=False), EVENT_SECONDS),
    ],
)
def test_what_a_broker_keeps_it_does_not_keep_for_ever(message, expiry):
    assert message.expiry == expiry
