"""What is wrong with a manifest is said with file, line, object, field, value and rule, and all of it at once."""

from pathlib import Path

import pytest

from speaker.errors import InvalidManifests
from speaker.standalone.manifests import load

BEFORE = {
    "Eip": """\
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan}
spec:
""",
    "Service": """\
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
""",
    "Annotations": """\
apiVersion: v1
kind: Service
spec:
  type: LoadBalancer
  ports: [{port: 80}]
metadata:
  name: web
  annotations:
""",
    "EndpointSlice": """\
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  labels: {kubernetes.io/service-name: web}
""",
    "Nothing": "",
}
EIP, SERVICE = BEFORE["Eip"], BEFORE["Service"]
TERM = "{weight: 1, matchLabels: {a: b}}"


def said_about(directory, text):
    (directory / "a.yaml").write_text(text)
    with pytest.raises(InvalidManifests) as caught:
        load(directory)
    return [str(problem).replace(f"{directory}/", "") for problem in caught.value.problems]


def cases():
    """The table: blocks of [KIND], the rest of the file, and after => what is said."""
    _, *blocks = (Path(__file__).parent / "bad_manifests.txt").read_text().rstrip().split("\n\n")
    for block in blocks:
        kind, *lines = block.split("\n")
        said = [line.removeprefix("=> ") for line in lines if line.startswith("=> ")]
        text = "\n".join(lines[: len(lines) - len(said)])
        yield pytest.param(f"{BEFORE[kind.strip('[]')]}{text}\n", said, id=text.strip()[:60] or "nothing")


@pytest.mark.parametrize(("text", "said"), list(cases()))
def test_every_mistake_is_named_with_its_place_value_and_rule(tmp_path, text, said):
    assert said_about(tmp_path, text) == [f"a.yaml:{line}" for line in said]


def test_aliases_that_multiply_are_refused_before_they_do(tmp_path):
    laughs = "a: &a haha\n"
    for former, name in zip("abcdefgh", "bcdefghi", strict=True):
        laughs += f"{name}: &{name} [{', '.join([f'*{former}'] * 10)}]\n"
    assert said_about(tmp_path, laughs) == [
        "a.yaml:1: '': must not repeat more than 1000000 characters through aliases"
    ]


def test_aliases_that_nest_are_refused_before_they_overflow_a_stack(tmp_path):
    chain = "k0: &k0 x\n" + "".join(f"k{i}: &k{i} [*k{i - 1}]\n" for i in range(1, 2000))
    assert said_about(tmp_path, chain) == ["a.yaml:1: '': must not be nested deeper than 100, aliases included"]


@pytest.mark.parametrize("opening", ["[", "- ", "{a: ", "? "])
def test_depth_that_would_overflow_the_parsers_stack_is_refused(tmp_path, opening):
    assert said_about(tmp_path, opening * 100_000)[0].endswith("is not YAML: nested deeper than 100")


def test_a_tab_and_a_control_character_are_said_to_be_no_yaml(tmp_path):
    assert said_about(tmp_path, "a:\n\t- 1") == [
        "a.yaml:2: '- 1': is not YAML: while scanning for the next token, found character that cannot start any token"
    ]
    assert said_about(tmp_path, "é: 1\né: \x01") == [
        "a.yaml:2: 'é: \\x01': is not YAML: control characters are not allowed"
    ]


def test_a_number_of_many_digits_is_refused(tmp_path):
    assert said_about(tmp_path, f"a: {'9' * 5000}")[0].endswith("without leading zeros, or text in quotes")


def test_problems_of_all_files_and_documents_are_said_in_the_order_of_their_places(tmp_path):
    (tmp_path / "b.yaml").write_text(f"{EIP}  addresses: [192.0.2.1]\n  priority: high\n---\na: [\n")
    (tmp_path / "c.yaml").write_bytes(b"kind: Eip\n# caf\xe9\n")
    text = f"{SERVICE}  ports: []\n---\n# nothing here\n---\n{SERVICE}  ports: [{{port: 0}}]\n"
    assert said_about(tmp_path, text) == [
        "a.yaml:6: Service/web: spec.ports: []: must list at least one port",
        "a.yaml:12: Service/web: metadata.name: 'web': must be declared once: "
        "Service/web is already declared at a.yaml:3",
        "a.yaml:15: Service/web: spec.ports[0].port: 0: must be from 1 to 65535",
        "b.yaml:6: Eip/lan: spec.priority: 'high': must be a whole number, not text",
        "b.yaml:9: '': is not YAML: while parsing a flow node, did not find expected node content",
        "c.yaml:2: b'\\xe9': must be UTF-8",
    ]


def test_a_directory_that_is_not_there_is_a_mistake(tmp_path):
    with pytest.raises(InvalidManifests, match="gone: 'gone': must be a directory that can be read: No such file"):
        load(tmp_path / "gone")


def test_what_editors_link_to_nowhere_is_passed_over_and_a_file_too_large_is_refused(tmp_path, monkeypatch):
    (tmp_path / ".#a.yaml").symlink_to("user@host.4711:1")  # Emacs locks a file that way
    assert load(tmp_path).world.pools == {}
    monkeypatch.setattr("speaker.standalone.manifests.MAX_FILE_BYTES", 100)
    assert said_about(tmp_path, "#" * 101) == ["a.yaml: 'a.yaml': must not be larger than 100 bytes"]


@pytest.mark.parametrize(
    ("before", "field"),
    [
        (f"{EIP}  addresses: [192.0.2.1]\n  nodePreference: [{', '.join([TERM] * 17)}]", 6),
        (f"{BEFORE['Annotations']}    eip-speaker.io/node-preference: {'; '.join(['1 a=b'] * 17)}", 9),
    ],
    ids=["a pool's", "a Service's"],
)
def test_a_preference_of_too_many_terms_is_refused(tmp_path, before, field):
    (said,) = said_about(tmp_path, before + "\n")
    assert said.startswith(f"a.yaml:{field}: ")
    assert said.endswith(": must be at most 16 terms")
