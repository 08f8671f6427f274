"""The text of ``keepalived.conf`` → statements, as keepalived.conf(5) and its ``lib/parser.c`` (9cbce3e) define them.

A comment is removed from each line; then ``@id`` conditions, ``$NAME=`` definitions, ``~SEQ`` and ``~LST``, parameters
and ``include`` are expanded. What is left are keywords, and blocks in braces. Every line becomes a statement, a
definition, or one that is ``passed`` over with the reason.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from speaker.errors import InvalidField, Place

MAX_LINES = 100_000
"""After expanding all parameters, sequences and included files. keepalived itself has no limit."""
MAX_LINE = 10_000
"""Characters, after expanding parameters."""
MAX_STEPS = 200_000
"""Replacements and rounds of sequences, as one may lead to the next."""
MAX_NESTED = 20
"""Nested blocks, included files and sequences."""

Included: TypeAlias = Callable[[str, str], list[tuple[str, str]]]
"""The pattern of an ``include`` and the file that it is in → name and text of the included files. Raises InvalidField
if one of them cannot be read."""


@dataclass(eq=False, slots=True)
class Statement:
    """A keyword with its values, or an entry of a list of addresses and the like. ``block``: None without braces."""

    words: tuple[str, ...]
    place: Place
    parent: "Statement | None" = None
    block: "list[Statement] | None" = None
    done: bool = False
    """Converted, or listed."""

    @property
    def keyword(self) -> str:
        return self.words[0]

    @property
    def inner(self) -> list["Statement"]:
        return self.block or []


class Passed(NamedTuple):
    """A line that is not a statement here. ``words``: of the statement that it would be. ``condition``: the id that it
    is for, as written."""

    place: Place
    words: tuple[str, ...]
    why: str
    do: str
    condition: str = ""


@dataclass(slots=True)
class _Definition:
    place: Place
    lines: list[tuple[str, Place]]
    several: bool = False
    used: bool = False


@dataclass(slots=True)
class Read:
    config_id: str = ""
    top: list[Statement] = field(default_factory=list)
    passed: list[Passed] = field(default_factory=list)
    problems: list[InvalidField] = field(default_factory=list)


def _stop(place: Place, rule: str) -> InvalidField:
    """An error that makes the rest meaningless."""
    return InvalidField("", None, rule, place=place)


def read(files: list[tuple[str, str]], config_id: str, included: Included) -> Read:
    """Reads one configuration; ``files`` has the name and text of each file. If there are problems, the other results
    mean nothing."""
    reader = _Reader(config_id, included, Read(config_id))
    try:
        _blocks(reader.found, reader.of_files(files))
    except InvalidField as problem:
        reader.found.problems.append(problem)
    reader.found.passed += [
        Passed(place, (), "belongs to a definition that nothing uses", "")
        for each in reader.written
        if not each.used
        for place in dict.fromkeys((each.place, *(place for _, place in each.lines)))
    ]
    return reader.found


# ── Lines ─────────────────────────────────────────────────────────────────────────────────────────────────────

_COMMENT = re.compile(r'(?P<kept>(?:\\.|"(?:\\.|[^"\\])*"|[^"\\#!])*)(?P<rest>.*)', re.DOTALL)
_DEFINED = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)")
_USED = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*)(?=\s|$))", re.ASCII)
_INCLUDE = re.compile(r"include[rmwba]?\s+(.+)")
_SEQUENCE = re.compile(r"~SEQ(x?)\s*\(\s*(\w+)\s*,([^)]*)\)\s*(.*)")
_LIST = re.compile(r"~LST\s*\(\s*(?:\{([^}]*)\}|(\w+))\s*,((?:\{[^}]*\}|[^{})])*)\)\s*(.*)")
_VALUES = re.compile(r"\{([^}]*)\}|([^\s,{}]+)")


def without_comment(line: str, place: Place) -> tuple[str, bool]:
    """The line without its comment, and whether it continues on the next one."""
    found = _COMMENT.fullmatch(line)
    kept, rest = (found["kept"], found["rest"]) if found else (line, "")
    if rest.startswith('"'):
        raise _stop(place, "has a quote that is not closed")
    goes_on = rest == "\\"
    return re.sub(r'("(?:\\.|[^"\\])*")|\\([#!])', lambda each: each[1] or each[2], kept).strip(), goes_on


@dataclass(slots=True)
class _Reader:
    config_id: str
    included: Included
    found: Read = field(default_factory=Read)
    definitions: dict[str, _Definition] = field(default_factory=dict)
    written: list[_Definition] = field(default_factory=list)
    _open: _Definition | None = None
    """A definition that continues on the next line."""
    _nested: int = 0
    _steps: int = 0

    def __post_init__(self) -> None:
        for name, text in (("_HASH", "#"), ("_BANG", "!"), ("_INSTANCE", self.config_id)):
            self.definitions[name] = _Definition(Place(), [(text, Place())])

    def of_files(self, files: list[tuple[str, str]]) -> Iterator[tuple[str, Place]]:
        for name, text in files:
            for number, line in enumerate(text.split("\n"), 1):
                yield from self._physical(line.rstrip("\r"), Place(name, number))

    def _physical(self, line: str, place: Place) -> Iterator[tuple[str, Place]]:
        if len(line) > MAX_LINE:
            raise _stop(place, f"must not be longer than {MAX_LINE} characters")
        text, goes_on = without_comment(line, place)
        if self._open is not None:
            self._open.lines += [(text, place)] if text else []
            self._open = self._open if goes_on else None
        elif text:
            yield from self._expanded(text, place, goes_on)

    def _expanded(self, text: str, place: Place, goes_on: bool = False) -> Iterator[tuple[str, Place]]:
        """The lines that one line expands to."""
        while True:
            self._steps += 1
            if self._steps > MAX_STEPS or len(text) > MAX_LINE or self._nested > MAX_NESTED:
                raise _stop(place, "expands to too much: parameters, sequences or files refer to each other")
            if text.startswith("@"):
                if (text := self._for_us(text, place)) == "":
                    return
            elif (defined := _DEFINED.fullmatch(text)) is not None:
                self._define(defined[1], defined[2], place, goes_on)
                return
            elif text.startswith("~"):
                yield from self._sequence(text, place)
                return
            elif (used := self._used(text)) is None:
                break
            elif used[0].several:
                yield from self._several(text, *used)
                return
            else:
                text = text[: used[1].start()] + used[0].lines[0][0] + text[used[1].end() :]
        if (include := _INCLUDE.fullmatch(text)) is None:
            yield text + "\\" * goes_on, place  # only a definition continues
        else:
            yield from self._included(include[1].strip('"'), place)

    def _for_us(self, text: str, place: Place) -> str:
        condition, rest = (*text.split(None, 1), "")[:2]
        wanted = condition[1:].removeprefix("^")
        if (wanted == self.config_id) != condition.startswith("@^") and rest:
            return rest.strip()
        why = f"is for another host: config-id is {self.config_id!r} here"
        do = "convert with each host's --config-id, and compare"
        self.found.passed.append(Passed(place, words(rest), why, do, condition))
        return ""

    def _define(self, name: str, value: str, place: Place, goes_on: bool) -> None:
        made = _Definition(place, [(value, place)] if value or not goes_on else [], goes_on)
        self.definitions[name] = made
        self.written.append(made)
        self._open = made if goes_on else None

    def _used(self, text: str) -> tuple[_Definition, re.Match[str]] | None:
        for found in _USED.finditer(text):
            if (known := self.definitions.get(found[1] or found[2])) is not None:
                known.used = True
                return known, found
        return None

    def _several(self, text: str, used: _Definition, found: re.Match[str]) -> Iterator[tuple[str, Place]]:
        lines = [(text[: found.start()] + each if not n else each, place) for n, (each, place) in enumerate(used.lines)]
        for each, place in self._deeper(iter(lines)):
            yield from self._expanded(each, place)

    def _sequence(self, text: str, place: Place) -> Iterator[tuple[str, Place]]:
        sequence, listed = _SEQUENCE.fullmatch(text), _LIST.fullmatch(text)
        if sequence is not None:
            names, rest, rounds = [sequence[2]], sequence[4], self._numbers(sequence, place)
        elif listed is not None:
            names, rest = re.split(r"[\s,]+", (listed[1] or listed[2]).strip()), listed[4]
            rounds = (re.split(r"\s*,\s*", (some or one).strip()) for some, one in _VALUES.findall(listed[3]))
        else:
            raise _stop(place, "is neither ~SEQ(NAME, FIRST, STEP, LAST) nor ~LST(NAME, VALUE, …)")
        for values in self._deeper(rounds):
            for n, name in enumerate(names):
                value = values[n] if n < len(values) else ""
                self.definitions[name] = _Definition(Place(), [(value, place)])
            yield from self._expanded(rest, place)

    def _numbers(self, found: re.Match[str], place: Place) -> Iterator[list[str]]:
        text = found[3]
        while (used := self._used(text)) is not None and not used[0].several and len(text) < MAX_LINE:
            text = text[: used[1].start()] + used[0].lines[0][0] + text[used[1].end() :]
        try:
            given = [_whole(each) for each in text.split(",")]
        except ValueError:
            raise _stop(place, "has a sequence whose bounds are not numbers") from None
        last = given[-1]
        first = given[0] if len(given) > 1 else (1 if last >= 1 else -1)
        step = given[1] if len(given) == 3 else (1 if first <= last else -1)
        if len(given) > 3 or not step or (last - first) * step < 0:
            raise _stop(place, "has a sequence that never reaches its last number")
        return (
            [format(number, "x" if found[1] else "d")] for number in range(first, last + (step > 0) - (step < 0), step)
        )

    def _included(self, pattern: str, place: Place) -> Iterator[tuple[str, Place]]:
        files = self.included(pattern, place.file)
        if not files:
            why = "includes no file that can be read here, so its contents are missing"
            self.found.passed.append(Passed(place, ("include",), why, "put the file there, and convert again"))
        yield from self._deeper(self.of_files(files))

    def _deeper(self, inner: Iterator) -> Iterator:  # type: ignore[type-arg]
        self._nested += 1
        yield from inner
        self._nested -= 1


def _whole(text: str) -> int:
    """As strtol(3) reads it in base 0, in 64 bits."""
    text = text.strip()
    number = int(text, 8) if re.fullmatch(r"-?0[0-7]+", text) else int(text[:30], 0)
    if abs(number) >= 2**63:
        raise ValueError
    return number


# ── Statements ────────────────────────────────────────────────────────────────────────────────────────────────

_PARTS = re.compile(r'((?:\$\{[^{}]*\}|"[^"]*"|[^{}"])+)|([{}])')
_WORDS = re.compile(r'"([^"]*)"|([^\s"]+)')


def words(text: str) -> tuple[str, ...]:
    return tuple(quoted or plain for quoted, plain in _WORDS.findall(text))


def _blocks(found: Read, lines: Iterator[tuple[str, Place]]) -> None:
    parents: list[Statement] = []
    blocks = [found.top]
    last: Statement | None = None
    for number, (text, place) in enumerate(lines):
        if number >= MAX_LINES:
            raise _stop(place, f"is more than {MAX_LINES} lines after expansion")
        for part, brace in _PARTS.findall(text):
            if brace == "{":
                if last is None or last.block is not None or len(parents) >= MAX_NESTED:
                    odd = "has a { without a keyword, or too many nested blocks"
                    raise _stop(place, "is a template: convert what it makes" if re.search("{[{%]", text) else odd)
                last.block = []
                parents.append(last)
                blocks.append(last.block)
                last = None
            elif brace:
                if not parents:
                    raise _stop(place, "has one } too many")
                parents.pop()
                blocks.pop()
                last = None
            elif said := words(part):
                last = Statement(said, place, parents[-1] if parents else None)
                blocks[-1].append(last)
    if parents:
        raise _stop(parents[-1].place, "opens a block that is not closed")
