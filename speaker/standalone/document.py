"""From the text of one file to API objects that know on which line everything is.

Scalars mean what they mean to kubectl (YAML 1.1 as go-yaml reads it), so that a manifest means the same in a cluster
and on a host without one: timestamps and ``12:34`` are text, ``on`` is a boolean.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, cast

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from speaker.api.fields import TEMPLATE, UNRENDERED, ApiObject, Path, show_path
from speaker.errors import InvalidField, Place

MAX_DEPTH = 100
"""Nesting. Kubernetes objects need a dozen; libyaml's composer overflows the C stack at some ten thousand."""
TOO_DEEP = f"nested deeper than {MAX_DEPTH}"
LIBYAMLS_TOO_DEEP = "exceeded maximum nesting depth"
"""From 0.2.6 on its scanner, which reads ahead of the composer, stops at 1,000 by itself."""
MAX_REPEATED = 1_000_000
"""Characters that aliases may add to those written: a billion laughs fit into a kilobyte."""
MAX_DOCUMENTS = 50_000
"""In one file. Ten thousand Services with their EndpointSlices are 20,000; the parser takes ever longer for each."""
MAX_BITS = 64
"""Of a whole number: more than any field of Kubernetes holds."""

_TAG = "tag:yaml.org,2002:"
_BOOLEANS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}

Entries: TypeAlias = dict[str, tuple[Node, Node]]
"""Of one mapping, with merge keys resolved: text of the key → the nodes of key and value."""


@dataclass(slots=True)
class Parsed:
    """What a file holds: objects in order, and the problems of the documents that are left out."""

    objects: list[ApiObject] = field(default_factory=list)
    problems: list[InvalidField] = field(default_factory=list)


_MARK_BETWEEN = re.compile(r"(?m)^(---[^\n]*\n)\ufeff")
"""A byte order mark at the start of a document: that of a file which was appended to others. YAML 1.2 section 5.2 and
kubectl take it, libyaml at the very start alone."""


def parse(file: str, text: str) -> Parsed:
    """All documents of a file; empty ones count for nothing. After an error of syntax the rest cannot be read."""
    parsed = Parsed()
    text = _MARK_BETWEEN.sub(r"\1", text)
    try:
        for count, root in enumerate(_composed(_with_whole_characters(file, text)), 1):
            if count > MAX_DOCUMENTS:
                rule = f"must not hold more than {MAX_DOCUMENTS} documents: put the rest into another file"
                parsed.problems.append(InvalidField("", "", rule, place=_place(file, root)))
                break
            # Without an alias there is no more than was written, and the parser counted the depth.
            excess = _excess(root, len(text)) if "*" in text else None
            if excess is None:
                _add(parsed, file, root)
            else:
                parsed.problems.append(InvalidField("", "", excess, place=_place(file, root)))
    except yaml.YAMLError as error:
        parsed.problems.append(_syntax(file, text, error))
    return parsed


def _add(parsed: Parsed, file: str, root: Node) -> None:
    reader = _Plain()
    data = reader.plain(root, ())
    source = ApiObject(data, _Places(file, root).locate)
    parsed.problems += [
        InvalidField(show_path(path), value, rule, source.subject, _place(file, node))
        for path, node, value, rule in reader.problems
    ]
    if data is not None and not reader.problems:
        parsed.objects.append(source)


# ── Text → nodes ──────────────────────────────────────────────────────────────────────────────────────────────


class _Loader(yaml.CSafeLoader):
    """CSafeLoader that knows how deep it is: the composer calls these two around every node."""

    depth = 0

    def descend_resolver(self, current_node: Node | None, current_index: object) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            mark = current_node.start_mark if current_node is not None else None
            raise yaml.MarkedYAMLError(problem=TOO_DEEP, problem_mark=mark)

    def ascend_resolver(self) -> None:
        self.depth -= 1


class _NamingAgain(Composer, _Loader):
    """A loader for documents that name a second node by an anchor, as YAML 1.2.2 section 3.2.2.2 lets them: the aliases
    behind it mean that one. libyaml's composer refuses it, and Python's is slower."""

    def __init__(self, text: str) -> None:
        _Loader.__init__(self, text)
        Composer.__init__(self)

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event = self.peek_event()
        if not isinstance(event, yaml.AliasEvent):
            self.anchors.pop(getattr(event, "anchor", None), None)
        return super().compose_node(parent, index)


_ANCHOR = re.compile(r"(?<!\S)&(\S+)")


def _names_again(text: str) -> bool:
    """Whether an anchor may be there twice; text in quotes may look like one."""
    names = _ANCHOR.findall(text) if "&" in text else []
    return len(set(names)) < len(names)


_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def _with_whole_characters(file: str, text: str) -> str:
    """JSON writes a character beyond U+FFFF as two escapes (RFC 8259 section 7), each of which YAML refuses."""
    if not file.endswith(".json") or "\\u" not in text:
        return text
    return _PAIR.sub(_whole_character, text)


def _whole_character(found: re.Match[str]) -> str:
    high, low = int(found[2], 16), int(found[3], 16)
    return f"{found[1]}\\U{0x10000 + ((high & 0x3FF) << 10 | low & 0x3FF):08x}"


def _composed(text: str) -> Iterator[Node]:
    loader = _NamingAgain(text) if _names_again(text) else _Loader(text)
    try:
        while loader.check_node():
            yield cast(Node, loader.get_node())
    finally:
        loader.dispose()


def _syntax(file: str, text: str, error: yaml.YAMLError) -> InvalidField:
    line, rule = 1, str(error)
    lines = text.split("\n")
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        too_deep = error.problem == LIBYAMLS_TOO_DEEP
        rule = TOO_DEEP if too_deep else ", ".join(part for part in (error.context, error.problem) if part)
    elif isinstance(error, ReaderError):
        # libyaml counts the bytes of the UTF-8 it is given
        line, rule = text.encode()[: error.position].count(b"\n") + 1, str(error.reason)
    for near in (line - 1, line):  # libyaml may find out one line later
        if 0 < near <= len(lines) and TEMPLATE.search(lines[near - 1]):
            return InvalidField("", lines[near - 1].strip(), UNRENDERED, place=Place(file, near))
    written = lines[line - 1].strip() if line <= len(lines) else ""
    return InvalidField("", written, f"is not YAML: {rule}", place=Place(file, line))


class _Measure(NamedTuple):
    depth: int
    size: int


def _excess(root: Node, written: int) -> str | None:
    """What makes a document too large once aliases are followed, or endless; None where nothing does.

    An anchor stands before its aliases, so that in document order every alias leads to what was measured already,
    or, where it leads to its own ancestor, to what is still open.
    """
    measured: dict[int, _Measure | None] = {}

    def measure(node: Node) -> _Measure | None:
        if id(node) in measured:
            return measured[id(node)]
        measured[id(node)] = None
        inner = [measure(child) for child in _children(node)]
        if None in inner:
            return None
        parts = [part for part in inner if part is not None]
        size = len(node.value) if isinstance(node, ScalarNode) else sum(part.size for part in parts)
        measured[id(node)] = _Measure(1 + max((part.depth for part in parts), default=0), 1 + size)
        return measured[id(node)]

    match measure(root):
        case None:
            return "must not contain an alias of something that it is itself part of"
        case found if found.depth > MAX_DEPTH:
            return f"must not be {TOO_DEEP}, aliases included"
        case found if found.size > written + MAX_REPEATED:
            return f"must not repeat more than {MAX_REPEATED} characters through aliases"
    return None


def _children(node: Node) -> list[Node]:
    match node:
        case MappingNode():
            return [child for entry in node.value for child in entry]
        case SequenceNode():
            return list(node.value)
    return []


# ── Nodes → plain data ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Plain:
    """Turns measured nodes into plain data; what has no plain meaning is a problem, and None in the data."""

    problems: list[tuple[Path, Node, object, str]] = field(default_factory=list)

    def plain(self, node: Node, path: Path) -> object:
        if isinstance(node, MappingNode) and node.tag == _TAG + "map":
            self._check_keys(node, path)
            return {key: self.plain(value, (*path, key)) for key, (_, value) in entries(node).items()}
        if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
            return [self.plain(item, (*path, i)) for i, item in enumerate(node.value)]
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        self._refuse_tag(node, path)
        return None

    def _refuse_tag(self, node: Node, path: Path) -> None:
        self._refuse(node, path, f"must be plain data: the tag {node.tag!r} has no meaning here")

    def _refuse(self, node: Node, path: Path, rule: str) -> None:
        self.problems.append((path, node, node.value if isinstance(node, ScalarNode) else "", rule))

    def _check_keys(self, node: MappingNode, path: Path) -> None:
        first: dict[str, Node] = {}
        for key, value in node.value:
            if _is_merge(key) and not all(isinstance(merged, MappingNode) for merged in _merged(value)):
                self._refuse(value, (*path, "<<"), "must be a mapping or a list of mappings, to merge them")
            if not (_is_merge(key) or _is_text(key)):
                text = "must have text for keys: put this one in quotes"
                self._refuse(key, path, UNRENDERED if isinstance(key, MappingNode) else text)
            elif first.setdefault(key.value, key) is not key:
                rule = f"must be written once: line {first[key.value].start_mark.line + 1} has it already"
                self._refuse(value if isinstance(value, ScalarNode) else key, (*path, key.value), rule)

    def _scalar(self, node: ScalarNode, path: Path) -> object:
        match node.tag.removeprefix(_TAG):
            case "str" | "timestamp" | "value":
                return node.value
            case "int" | "float" if ":" in node.value:
                return node.value  # 12:34 is 754 in YAML 1.1, but not to go-yaml
            case "null":
                return None
            case "bool" if node.value.lower() in _BOOLEANS:
                return _BOOLEANS[node.value.lower()]
            case "int" | "float" as kind:
                return self._number(node, path, whole=kind == "int")
        self._refuse_tag(node, path)
        return None

    def _number(self, node: ScalarNode, path: Path, *, whole: bool) -> object:
        digits = node.value.replace("_", "")
        try:
            # Base 0 refuses 010, which is 8 in YAML 1.1 and 10 in 1.2.
            number = int(digits, 0) if whole else float(digits)
        except ValueError:
            number = math.nan
        if isinstance(number, int) and number.bit_length() > MAX_BITS:
            self._refuse(node, path, f"must be a number of at most {MAX_BITS} bits, or text in quotes")
        elif math.isfinite(number):
            return number
        else:
            self._refuse(node, path, "must be a finite decimal number without leading zeros, or text in quotes")
        return None


def _is_text(key: Node) -> bool:
    return isinstance(key, ScalarNode) and key.tag in (_TAG + "str", _TAG + "timestamp", _TAG + "value")


def _is_merge(key: Node) -> bool:
    return bool(key.tag == _TAG + "merge")


def _merged(value: Node) -> list[Node]:
    return list(value.value) if isinstance(value, SequenceNode) else [value]


def entries(node: MappingNode) -> Entries:
    """A mapping's own keys over those it merges, the first merged mapping over the later ones."""
    found: Entries = {}
    for key, value in node.value:
        if _is_merge(key):
            for merged in reversed(_merged(value)):
                found.update(entries(merged) if isinstance(merged, MappingNode) else {})
    found.update({key.value: (key, value) for key, value in node.value if _is_text(key)})
    return found


# ── Paths → lines ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Places:
    """Where everything of one document stands."""

    file: str
    root: Node
    _entries: dict[int, Entries] = field(default_factory=dict)
    """By identity of the mapping, which ``root`` keeps: a mapping of thousands is gone through once."""

    def locate(self, path: Path) -> Place:
        """The line of the value at ``path``: of a collection its key's, of what is missing that of its parent."""
        node = line = self.root
        for step in path:
            match node, step:
                case MappingNode(), str() if (found := self._of(node).get(step)) is not None:
                    key, node = found
                    line = node if isinstance(node, ScalarNode) else key
                case SequenceNode(), int() if step < len(node.value):
                    line = node = node.value[step]
                case _:
                    break
        return _place(self.file, line)

    def _of(self, node: MappingNode) -> Entries:
        if id(node) not in self._entries:
            self._entries[id(node)] = entries(node)
        return self._entries[id(node)]


def _place(file: str, node: Node) -> Place:
    return Place(file, node.start_mark.line + 1)
