"""An anchor may name a second node (YAML 1.2.2 section 3.2.2.2): the aliases behind it mean that one."""

import pytest
import yaml

from speaker.standalone.document import MAX_DEPTH, parse

TWICE = """
- {name: http, port: &port 80, target: *port}
- {name: https, port: &port 443, target: *port}
"""


def test_an_alias_means_the_node_that_was_named_last():
    (found,) = parse("a.yaml", TWICE).objects
    assert [(each["port"], each["target"]) for each in found.data] == [(80, 80), (443, 443)]
    assert found.locate((1, "port")).line == 3


def test_an_anchor_ends_with_its_document():
    parsed = parse("a.yaml", f"{TWICE}---\na: *port\n")
    assert len(parsed.objects) == 1
    assert "undefined alias" in parsed.problems[0].rule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a: &a {b: &a {c: *a}}\n", "something that it is itself part of"),
        ("a: &a 1\nb: &a [*a, &b [*b]]\n", "something that it is itself part of"),
        ("a: &a 1\nb: &a 2\nc: " + "[" * (MAX_DEPTH + 1), f"nested deeper than {MAX_DEPTH}"),
        (
            "a: &a 1\na2: &a 2\n"
            + "\n".join(f"b{i}: &b{i} [{', '.join([f'*b{i - 1}'] * 9)}]" if i else "b0: &b0 [x]" for i in range(9)),
            "must not repeat more than",
        ),
        ("a: &a 1\nb: &a [", "is not YAML"),
    ],
)
def test_all_bounds_hold_where_an_anchor_is_there_twice(text, rule):
    parsed = parse("a.yaml", text)
    assert [rule in each.rule for each in parsed.problems] == [True]


def test_text_in_quotes_that_looks_like_an_anchor_is_text():
    text = "a: 'x &y &y'\nb: [&z 1, *z]\n"
    assert parse("a.yaml", text).objects[0].data == yaml.safe_load(text)
