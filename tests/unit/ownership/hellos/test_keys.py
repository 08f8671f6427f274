"""Key files: what is accepted, what is refused, and that no key ever shows."""

import hmac
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.errors import SettingError
from speaker.ownership.hellos import keys
from speaker.ownership.hellos.keys import Key, Keys

OLD, NEW = bytes(range(32)), bytes(range(100, 140))
OLD_LINE, NEW_LINE = b64encode(OLD), b64encode(NEW)


def test_one_line_signs_and_is_accepted():
    found = keys.parse(OLD_LINE + b"\n", "/etc/speaker/key")
    assert found == Keys(Key(OLD))
    assert dict(found.accepted) == {Key(OLD).id: Key(OLD)}


def test_of_two_lines_the_first_signs_and_both_are_accepted():
    found = keys.parse(NEW_LINE + b"\n" + OLD_LINE, "/etc/speaker/key")
    assert found.signing == Key(NEW)
    assert set(found.accepted.values()) == {Key(NEW), Key(OLD)}


@pytest.mark.parametrize("around", [b"%s", b"\n\n%s\n\n", b"# made on Monday\r\n%s\r\n", b"  %s\t\n"])
def test_blank_lines_comments_and_line_ends_do_not_matter(around):
    assert keys.parse(around % OLD_LINE, "key") == Keys(Key(OLD))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "key: holds 0 keys: must be one, or two"),
        (b"# nothing\n\n", "key: holds 0 keys"),
        (b"\n".join((OLD_LINE, NEW_LINE, b64encode(b"x" * 32))), "key: holds 3 keys"),
        (OLD_LINE + b"\n" + OLD_LINE, "key: both lines hold the same key"),
        (b"\n" + OLD_LINE[:-1], "key:2: is not base64"),
        (OLD_LINE[:-4] + b"!AA=", "key:1: is not base64"),
        ("schlüssel".encode(), "key:1: is not base64"),
        (bytes(range(128, 160)), "key:1: is not base64"),
        (NEW_LINE + b"\n" + b64encode(b"x" * 31), "key:2: is a key of 31 bytes: must be at least 32"),
    ],
)
def test_what_is_wrong_names_the_file_and_the_rule(content, complaint):
    with pytest.raises(SettingError) as refused:
        keys.parse(content, "key")
    assert str(refused.value).startswith(complaint)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


@given(st.binary(max_size=200) | st.binary(max_size=60).map(b64encode))
def test_no_content_raises_anything_but_a_setting_error_and_none_of_it_shows(content):
    said = ""
    try:
        keys.parse(content, "f")
    except SettingError as error:
        said = f"{error} {error.__cause__}"
    assert not [word for word in content.split() if len(word) > 8 and word.decode("latin-1") in said]


@given(st.binary(min_size=32, max_size=64))
def test_what_was_generated_is_parsed_back(secret):
    text = keys.generate(secret)
    assert keys.parse(text.encode(), "key") == Keys(Key(secret))
    assert text.endswith("\n")


def test_too_little_randomness_is_no_key():
    with pytest.raises(ValueError, match="31 bytes"):
        keys.generate(bytes(31))


@given(st.binary(min_size=32, max_size=64), st.binary(min_size=32, max_size=64))
def test_a_key_shows_its_id_and_never_itself(one, two):
    shown = f"{Keys(Key(one), Key(two))} {Key(one)!r}"
    assert Key(one).id.hex() in shown
    for secret in (one, two):
        assert secret.hex() not in shown
        assert repr(secret)[2:-1] not in shown
        assert b64encode(secret).decode() not in shown


def test_a_keys_id_is_part_of_the_wire_format():
    assert Key(OLD).id.hex() == "f4657642"


@given(st.binary(min_size=32, max_size=200), st.binary(max_size=2000))
def test_a_key_signs_as_the_standard_library_does(secret, message):
    assert Key(secret).hmac(message) == hmac.digest(secret, message, "sha256")
