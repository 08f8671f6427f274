"""The story's lines: sentences for events, colours only for a person, columns that line up."""

import io

import pytest

from speaker.lab.timeline import Timeline, Tone, bars, columns, sentence
from speaker.system.streams import wants_colour


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "wanted"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": ""}, True),  # https://no-color.org: not an empty string
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colours_are_for_a_terminal_whose_user_did_not_decline(stream, environment, wanted):
    assert wants_colour(stream, environment) is wanted


def test_a_line_says_when_who_and_what():
    stream = io.StringIO()
    Timeline(stream).say("node1", "claims 192.0.2.7 on eth0", Tone.EIP)
    when, unit, who, *what = stream.getvalue().split()
    assert (when.isdigit(), unit, who, what) == (True, "ms", "node1", ["claims", "192.0.2.7", "on", "eth0"])


def test_a_line_may_be_told_later_than_it_happened():
    stream = io.StringIO()
    Timeline(stream, began=100.0).say("node1", "dies", at=101.25)
    assert stream.getvalue().split()[:2] == ["1250", "ms"]


def test_columns_line_up_and_the_last_runs_free():
    assert columns([("A", "LONG", "Z"), ("four", "b", "x")]) == ["A     LONG  Z", "four  b     x"]


def test_bars_show_shares_and_who_never_answered():
    assert bars({"pod1": 8, "pod2": 4}, ["pod1", "pod2", "pod3"]) == "pod1 ▇▇▇▇▇▇▇▇ 8  pod2 ▇▇▇▇ 4  pod3 0"
    assert bars({"pod1": 300}, ["pod1"]) == "pod1 ▇▇▇▇▇▇▇▇▇▇▇▇ 300"
    assert bars({}, ["pod1"]) == "pod1 0"


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            {"event": "started", "level": "info", "forwarder": "nftables"},
            "the speaker starts, forwarding with nftables",
        ),
        (
            {"event": "assigned", "service": "shop/api", "addresses": ["192.0.2.1", "::1"]},
            "shop/api gets 192.0.2.1 and ::1",
        ),
        (
            {"event": "claimed", "eip": "192.0.2.1", "link": "eth0", "mac": "02:00:00:01:00:11", "term": 3},
            "claims 192.0.2.1 on eth0",
        ),
        ({"event": "manifests read", "pools": 3, "services": 8}, "reads 3 pools and 8 Services"),
        ({"event": "forwarding", "count": 7, "changes": []}, "the kernel forwards: 7 changes to its tables"),
        ({"event": "released", "service": "a/b", "addresses": ["192.0.2.1"]}, "a/b gives back 192.0.2.1"),
        ({"event": "withdrawn", "eip": "192.0.2.1", "reason": "x"}, "stops answering for 192.0.2.1"),
        (
            {"event": "withdrawn", "eip": "192.0.2.1", "holder": "node2"},
            "stops answering for 192.0.2.1, which node2 claims now",
        ),
        (
            {"event": "claimed", "count": 300, "eips": ["192.0.2.1", "192.0.2.2"], "link": "eth0"},
            "claims 192.0.2.1 and 299 more on eth0",
        ),
        (
            {"event": "withdrawn", "count": 300, "eips": ["192.0.2.1"], "reason": "link_down"},
            "stops answering for 192.0.2.1 and 299 more",
        ),
        ({"event": "assigned", "count": 300, "services": ["a/b"]}, "300 Services get an address"),
        ({"event": "released", "count": 300, "services": ["a/b"]}, "300 Services give theirs back"),
        ({"event": "peer heard", "count": 9, "peers": ["node2"], "link": "eth0"}, "hears node2 and 8 more"),
        ({"event": "peer silent", "level": "warning", "peer": "node2", "link": "eth0"}, "no longer hears node2"),
        ({"event": "frozen", "level": "warning"}, "was away for too long: it gives everything up and listens first"),
        ({"event": "manifests_refused", "level": "error", "problem": "x"}, "error: manifests_refused problem=x"),
        ({"event": "announced", "level": "info"}, None),
        ({"event": "claimed"}, None),
        ({}, None),
    ],
)
def test_an_event_becomes_a_sentence_or_nothing(event, said):
    told = sentence(event)
    assert (told and told[0]) == said
