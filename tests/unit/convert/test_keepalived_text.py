"""The grammar of ``keepalived.conf``, by the examples of its manual and by what keepalived 2.2.7 makes of a file."""

import pytest
from keepalived_shapes import converted, read_text

from speaker.convert.keepalived.text import MAX_LINE, MAX_LINES, MAX_NESTED


def said(text, config_id="main", **files):
    """Each statement as text, with its block in braces."""
    found = read_text(text, config_id, **files)
    assert not found.problems, found.problems
    return [*map(spelled, found.top)]


def spelled(statement):
    words = " ".join(statement.words)
    return words if statement.block is None else f"{words} {{{'; '.join(map(spelled, statement.block))}}}"


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("a b # c\n! d\n   # e\n\n", ["a b"]),
        ('a "b # c" d', ["a b # c d"]),
        (r"a b\#c \! d", ["a b#c ! d"]),
        ("a {\n b c\n}\nd", ["a {b c}", "d"]),
        ("a\n{\n b\n}", ["a {b}"]),
        ("a { b c }", ["a {b c}"]),
        ("a { b { c } d }", ["a {b {c}; d}"]),
        ('a { b "}" }', ["a {b }}"]),
        ("a \\\nb", ["a\\", "b"]),
        ("a {\r\n b\r\n}\r\n", ["a {b}"]),
        ("a {}", ["a {}"]),
        # Conditions
        ("@main a\n@other b\n@^main c\n@^other d", ["a", "d"]),
        ("@main\ta", ["a"]),
        # Parameters
        ("$A=1\nx $A y${A}z $AB ${B}", ["x 1 y1z $AB ${B}"]),
        ("$B=10.2.${S}\n$S=0\n${B}.1\n$S=10\n${B}.1", ["10.2.0.1", "10.2.10.1"]),
        ("@main $P=240\n@backup $P=200\npriority $P", ["priority 240"]),
        ("$IF=@main\n$IF priority 1\n$IF=@other\n$IF priority 2", ["priority 1"]),
        ("$A=\nx ${A}y", ["x y"]),
        ("router ${_INSTANCE}", ["router main"]),
        ("$I= \\\n  a ${N} { \\\n  b ${N} \\\n @other c \\\n  }\n$N=0\n$I\n$N=1\n$I", ["a 0 {b 0}", "a 1 {b 1}"]),
        ("$R= \\\n r ${N}\n$V= \\\n v { \\\n $N=1 \\\n $R \\\n $N=2 \\\n $R \\\n }\n$V\nend", ["v {r 1; r 2}", "end"]),
        # Sequences and lists
        ("~SEQ(S, 0, 3) ip 10.0.${S}.1", [f"ip 10.0.{n}.1" for n in range(4)]),
        ("~SEQ(S, 2) ${S}", ["1", "2"]),
        ("~SEQ(S, -2) ${S}", ["-1", "-2"]),
        ("~SEQ(S, 3, 1) ${S}", ["3", "2", "1"]),
        ("~SEQx(S, 0x90, 0x10, 0xc0) fe80::${S}", ["fe80::90", "fe80::a0", "fe80::b0", "fe80::c0"]),
        ("~SEQ(A,0,1) ~SEQ(B,1,2) ${A}.${B}", ["0.1", "0.2", "1.1", "1.2"]),
        ("$T=2\n~SEQ(S, 1, $T ) ${S}", ["1", "2"]),
        ("~LST({I, J}, {10,1},{20,4}) ${I}.${J}", ["10.1", "20.4"]),
        ("~LST(I, 1, x) ${I}", ["1", "x"]),
        ("~LST({I, J}, {10}) ${I}.${J}", ["10."]),
    ],
)
def test_a_text_says_what_keepalived_reads_in_it(text, statements):
    assert said(text) == statements


def test_an_included_file_says_its_lines_where_it_is_included():
    assert said("a {\ninclude b\n}\nincluder c\n", b="d\ninclude c", c="e") == ["a {d; e}", "e"]


def test_an_included_file_that_is_not_there_is_a_line_to_decide():
    [listed] = converted("include /etc/keepalived/conf.d/*.conf").decisions
    assert (listed.place.line, listed.path) == (1, "include")


@pytest.mark.parametrize("text", ["interface {{ link }}\n", "virtual_ipaddress {\n{% for each in all %}\n}\n"])
def test_a_template_is_refused_as_one(text):
    [problem] = read_text(text).problems
    assert problem.rule == "is a template: convert what it makes"


def test_lines_of_another_host_are_told_and_what_hosts_differ_in_is_no_loss():
    found = converted("@lb2 priority 100\n@lb2 interface eth1\n@lb2 192.0.2.3\n", config_id="lb1").listed
    assert [(each.place.line, each.subject, each.path, bool(each.do)) for each in found] == [
        (1, "@lb2", "priority", False),
        (2, "@lb2", "interface", False),
        (3, "@lb2", "", True),
    ]


def test_a_definition_that_nothing_uses_is_told_without_its_value():
    found = converted("$PASS=hunter2\n$M= \\\n a \\\n b\n").listed
    assert [each.place.line for each in found] == [1, 2, 3, 4]
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a {\n b", 1),
        ("a\n}\n", 2),
        ("{\n}", 1),
        ("a {\n}\n{\n}", 3),
        ("interface {{ LINK }}", 1),
        ('a "b', 1),
        ("~SEQ(A) x", 1),
        ("~SEQ(A,1,0,3) x", 1),
        ("~SEQ(A,1,2,3,4) x", 1),
        ("~SEQ(A,a,b) x", 1),
        ("~LST(A) x", 1),
        ("$A=${A}\nx ${A}", 2),
        ("$A=${A}${A}\nx ${A}", 2),
        ("$A= \\\n ${A}\nx\n$A", 2),
        ("~SEQ(A,1,99999999) x", 1),
        ("~SEQ(A,1,99999999) $B=1", 1),
        ("~SEQ(A,1,99999999999999999999999999) x", 1),
        ("a {\n" * (MAX_NESTED + 1), MAX_NESTED + 1),
        ("a\n" * (MAX_LINES + 1), MAX_LINES + 1),
        ("a" * (MAX_LINE + 1), 1),
        ("include self", 1),
    ],
)
def test_what_leaves_the_rest_without_a_meaning_is_refused_with_its_line(text, line):
    [problem] = read_text(text, self="include self").problems
    assert problem.place.line == line
    assert problem.rule
