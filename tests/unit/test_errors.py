"""Values in messages are as whoever wrote them knows them."""

from enum import Enum

import pytest

from speaker.errors import InvalidField, as_yaml, written


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "yaml"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (7, "7"),
        ("a b", "'a b'"),
        (["a", None, [1]], "['a', null, [1]]"),
        ({"port": 80, "x\x1b": {}}, r"{port: 80, 'x\x1b': {}}"),
        (Colour.RED, "'red'"),
    ],
)
def test_a_value_is_shown_as_in_the_yaml_it_came_from(value, yaml):
    assert as_yaml(value) == yaml


def test_what_is_not_there_is_not_shown():
    assert (
        str(InvalidField("spec.ports", None, "must list at least one port"))
        == "spec.ports: must list at least one port"
    )


@pytest.mark.parametrize(
    ("text", "shown"), [("eth0", "eth0"), ("", '""'), (" 7", '" 7"'), ("\x1b[2J", r'"\u001b[2J"'), ("a\nb", r'"a\nb"')]
)
def test_a_word_of_the_command_line_is_in_quotes_where_it_would_not_be_seen_or_safe(text, shown):
    assert written(text) == shown
