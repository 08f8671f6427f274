"""Files without end: digits, depth, documents, aliases, entries. Each is refused with its line, or read in linear time.

Work is counted, not timed: twice as much may cost a little more than twice as much.
"""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.api.addresses import Span, Together
from speaker.errors import InvalidManifests
from speaker.standalone.document import MAX_BITS, MAX_DEPTH, MAX_DOCUMENTS, MAX_REPEATED, parse
from speaker.standalone.manifests import MAX_FILE_BYTES, load

EIP = "apiVersion: eip-speaker.io/v1alpha1\nkind: Eip\nmetadata: {name: lan}\nspec:\n"


def problems(text, file="a.yaml"):
    return [str(problem) for problem in parse(file, text).problems]


@pytest.mark.parametrize(
    "number", ["1" * 310, "-" + "1" * 310, "0x" + "f" * 5000, "0b" + "1" * 65, "1" * 30, str(2**64)]
)
def test_a_number_of_too_many_digits_is_refused_in_its_line_wherever_it_stands(number):
    said = f"must be a number of at most {MAX_BITS} bits, or text in quotes"
    for text in (f"a: {number}", f"a: [1, {number}]", f"a: {{b: {number}}}", f"a: {{labels: {{b: {number}}}}}"):
        (problem,) = problems(text)
        assert problem.startswith("a.yaml:1: a")
        assert problem.endswith(said)


@pytest.mark.parametrize("number", ["1" * 5000, "1.0e+400", ".inf", ".nan", "1" * 400 + ".0"])
def test_a_number_that_is_none_is_refused(number):
    (problem,) = problems(f"a: {number}")
    assert "must be a finite decimal number" in problem


@pytest.mark.parametrize("number", [0, 2**64 - 1, -(2**63), 1.5])
def test_a_number_of_few_digits_is_one(number):
    (found,) = parse("a.yaml", f"a: {number}").objects
    assert found.data == {"a": number}


@given(st.integers() | st.floats() | st.text("0123456789xXobBeE+-._:", max_size=400))
def test_whatever_looks_like_a_number_is_read_or_refused(number):
    parse("a.yaml", f"a: {number}")


def test_a_number_without_end_in_a_manifest_is_one_problem_of_the_directory(tmp_path):
    (tmp_path / "a.yaml").write_text(f"{EIP}  addresses: [192.0.2.0/24]\n  priority: {'1' * 310}\n")
    with pytest.raises(
        InvalidManifests, match=r"a\.yaml:6: Eip/lan: spec\.priority: '1+\.*: must be a number of at most"
    ):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a: " + "[" * (MAX_DEPTH + 1), f"nested deeper than {MAX_DEPTH}"),
        ("- " * 20_000, f"nested deeper than {MAX_DEPTH}"),
        ("{a: " * 20_000, f"nested deeper than {MAX_DEPTH}"),
        (
            "a: &a0 [x, x, x]\n" + "".join(f"b{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)),
            f"must not repeat more than {MAX_REPEATED} characters",
        ),
        (
            "a: &a0 {x: 1}\n" + "".join(f"b{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}], y: 1}}\n" for i in range(1, 30)),
            f"must not repeat more than {MAX_REPEATED} characters",
        ),
        ("a: \0", "is not YAML"),
        ("a: !!binary aGVsbG8=", "must be plain data"),
        ("a: !!python/object/apply:os.system [ls]", "must be plain data"),
        ("---\n" * (MAX_DOCUMENTS + 2), f"must not hold more than {MAX_DOCUMENTS} documents"),
    ],
)
def test_what_has_no_end_is_refused(text, rule):
    found = problems(text)
    assert len(found) == 1
    assert rule in found[0]


def test_a_file_too_large_is_not_read(tmp_path):
    with (tmp_path / "a.yaml").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(InvalidManifests, match=f"must not be larger than {MAX_FILE_BYTES} bytes"):
        load(tmp_path)


# ── JSON is YAML, but for this ──


@given(st.text() | st.sampled_from(["😀", "\\😀", "\\\\😀", "\\ud83d\\ude00"]))
def test_any_text_that_json_writes_with_escapes_is_read(text):
    (found,) = parse("a.json", json.dumps({"a": text.replace("\x7f", "")}, ensure_ascii=True)).objects
    assert found.data == {"a": text.replace("\x7f", "")}


@pytest.mark.parametrize("text", [r'{"a": "\ud83d"}', r'{"a": "\ude00\ud83d"}', r'{"a": "\ud83dx\ude00"}'])
def test_half_a_character_is_refused(text):
    (problem,) = problems(text, "a.json")
    assert "is not YAML" in problem


def test_in_yaml_two_escapes_in_plain_text_stay_what_they_are():
    (found,) = parse("a.yaml", r"a: \ud83d\ude00").objects
    assert found.data == {"a": r"\ud83d\ude00"}


# ── Entries by the thousand ──


def lines_run(work):
    """How many lines of Python ``work`` takes."""
    count = 0

    def trace(*_):
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def addresses(count):
    return ", ".join(f"10.{i >> 8}.{i & 255}.1" for i in range(count))


def bad_labels(count):
    labels = "".join(f"    k{i}: {i}\n" for i in range(count))
    return f"apiVersion: v1\nkind: Service\nmetadata:\n  name: s\n  labels:\n{labels}spec: {{}}\n"


def limited_twice(count):
    by_field, by_annotation = (",".join(f"10.{i >> 8}.{i & 255}.{at}/32" for i in range(count)) for at in (1, 2))
    named = f"service.beta.kubernetes.io/load-balancer-source-ranges: '{by_annotation}'"
    spec = f"{{type: LoadBalancer, ports: [{{port: 80}}], loadBalancerSourceRanges: [{by_field}]}}"
    return f"apiVersion: v1\nkind: Service\nmetadata:\n  name: s\n  annotations:\n    {named}\nspec: {spec}\n"


@pytest.mark.parametrize(
    "text",
    [
        lambda count: f"{EIP}  addresses: [10.0.0.0/8]\n  exclude: [{addresses(count)}]\n",
        lambda count: f"{EIP}  addresses: [{addresses(count)}]\n  exclude: [{addresses(count)}]\n",
        lambda count: f"{EIP}  addresses: [{addresses(count)}, {addresses(count)}]\n",
        lambda count: "---\n".join(
            f"{EIP}  addresses: [10.{i >> 8}.{i & 255}.1]\n".replace("lan", f"lan{i}") for i in range(count)
        ),
        lambda count: "---\n".join(f"{EIP}  addresses: [10.0.0.1]\n".replace("lan", f"lan{i}") for i in range(count)),
        bad_labels,
        lambda count: "a: 1\n" * count,
        limited_twice,
    ],
    ids=["exclude", "all excluded", "twice", "pools", "pools that overlap", "labels", "keys", "source ranges"],
)
def test_twice_as_many_entries_take_about_twice_the_work(tmp_path, text):
    def read(count):
        (tmp_path / "a.yaml").write_text(text(count))
        try:
            load(tmp_path)
        except InvalidManifests as error:
            str(error)

    read(10)  # whatever is made once
    assert lines_run(lambda: read(400)) < 2.6 * lines_run(lambda: read(200))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5))), st.tuples(st.integers(0, 30), st.integers(0, 5)))
def test_what_meets_several_spans_is_found_as_by_going_through_all(found, other):
    spans = [Span(4, first, first + more, i) for i, (first, more) in enumerate(found)]
    asked = Span(4, other[0], other[0] + other[1], 0)
    assert any(Together(spans).meeting(asked)) == any(asked.meets(span) for span in spans)
