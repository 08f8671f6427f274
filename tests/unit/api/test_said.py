"""What a record may say: what the speaker itself says, and nothing that a thief of a token would."""

import re

import msgspec
import pytest
from crds import definitions

from speaker.api.kinds import in_one_line
from speaker.api.records import REASONS, RecordedClaim, misses_said, sayable
from speaker.interfaces.resolve import UnresolvedReason
from speaker.ownership.eligibility import Ineligible
from speaker.ownership.events import Yielded

FREE = ["pay to mallory", "pay\u00a0me", "\x1b[2J", "\u202e", "https://example.com/pay", "pay\nme", "x" * 300]
STATUS = definitions()["announcements.yaml"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
FIELDS = STATUS["properties"]


SAID = {
    "holder": ["n1", "node-1.example.com", "a" * 63],
    "taken_from": ["n1"],
    "link": ["eth0", "bond0.100", "enp0s3@x", "größe", "a" * 15],
    "mac": ["02:00:5e:00:53:01"],
    "since": ["2026-11-27T03:00:00Z", "2026-11-27T03:00:00.123456Z", "2026-11-27T03:00:00+01:00"],
    "conflict": ["02:00:5e:00:53:01", "02:00:5e:00:53:01 on eth0"],
    "reason": [*REASONS],
}


def test_every_reason_of_ours_may_be_said_and_no_other():
    ours = {each.value for kind in (Yielded, Ineligible, UnresolvedReason) for each in kind}
    assert {*REASONS} == ours
    assert FIELDS["reason"]["enum"] == [*REASONS]


@pytest.mark.parametrize("field", SAID)
def test_what_we_say_is_kept_and_what_others_say_is_not(field):
    for text in SAID[field]:
        assert getattr(RecordedClaim(**{field: text}), field) == text
    for text in FREE:
        assert getattr(RecordedClaim(**{field: text}), field) == ""
        assert sayable(field, text) == ""


@pytest.mark.parametrize("text", FREE)
def test_what_is_decoded_is_looked_at_as_well(text):
    body = msgspec.json.encode(dict.fromkeys(SAID, text))
    assert msgspec.json.decode(body, type=RecordedClaim) == RecordedClaim()


@pytest.mark.parametrize("field", FIELDS)
def test_every_text_of_the_definition_is_a_word_of_ours_or_has_a_pattern_and_a_length(field):
    schema = FIELDS[field].get("items", FIELDS[field])
    if schema["type"] == "string" and "enum" not in schema:
        assert schema["maxLength"] <= 512
        assert schema["pattern"].startswith("^(")
    if schema["type"] == "integer":
        assert (schema["minimum"], schema["format"] in ("int32", "int64")) == (0, True)


@pytest.mark.parametrize("field", ["services", "servicesText"])
def test_services_are_written_as_the_definition_takes_them(field):
    pattern = FIELDS[field].get("items", FIELDS[field])["pattern"]
    for number in (1, 2, 3, 4, 1024):
        found = [f"{'n' * 63}/{'s' * 59}{each}" for each in range(number)]
        texts = found if field == "services" else [in_one_line(found)]
        assert all(re.search(pattern, text) for text in texts)
    assert not any(re.search(pattern, text) for text in FREE)


def test_a_silent_peer_of_no_nodes_name_is_not_put_on_record():
    assert misses_said(["n2", "pay to mallory", "n1"]) == "n1,n2"
    assert misses_said(["pay to mallory"]) is None
