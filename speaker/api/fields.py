"""Reading an API object field by field.

A reader never stops at the first mistake: it notes the problem and continues with a substitute, and ``read`` discards
the result if there was any problem. So decoders are straight lines, and a person sees all mistakes at once.

``read_leniently`` returns the object in spite of its problems, for objects of the API that have to be used anyway. So a
substitute never means more than the original may have meant: a port that cannot be read is no port, a limit lets nobody
in.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple, TypeAlias, TypeVar, cast

import msgspec

from speaker.errors import InvalidField, InvalidManifests, Place
from speaker.model import LabelRule, LabelSelector

Path: TypeAlias = tuple[str | int, ...]
"""``("spec", "addresses", 1)``."""
Locate: TypeAlias = Callable[[Path], Place]
"""Where the value at a path was written; for a path that does not exist, where its nearest parent was."""

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

UNRENDERED = "is a Helm template that was not rendered: give what `helm template` prints"
TEMPLATE = re.compile(r"\{\{-?\s*[^\s{}]")
"""How Go's templates begin a value (text/template)."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")

_TYPES = {
    bool: "true or false",
    int: "a number",
    float: "a decimal number",
    str: "text",
    list: "a list",
    dict: "a mapping",
}


def nowhere(_: Path) -> Place:
    """For objects that were not read from a file."""
    return Place()


@dataclass(frozen=True, slots=True)
class ApiObject:
    """One object as plain data, and how to find where a field of it was written."""

    data: object
    locate: Locate = nowhere

    def at(self, *path: str | int) -> object:
        """The value at a path, None where the object has no such thing."""
        value = self.data
        for step in path:
            value = _step(value, step)
        return value

    @property
    def kind(self) -> str:
        return _text(self.at("kind"))

    @property
    def api_version(self) -> str:
        return _text(self.at("apiVersion"))

    @property
    def name(self) -> str:
        """``metadata.name`` for people: '' where it is missing or would garble a line of output."""
        return _printable(self.at("metadata", "name"))

    @property
    def subject(self) -> str:
        """How messages name it: ``Eip/lan``, ``Service/default/web``."""
        parts = (_printable(self.kind), _printable(self.at("metadata", "namespace")), self.name)
        return "/".join(part for part in parts if part)


def _step(value: object, step: str | int) -> object:
    """One step down; None where there is nothing. A list is only asked for entries it has."""
    if isinstance(value, dict):
        return value.get(step)
    return value[step] if isinstance(value, list | tuple) and isinstance(step, int) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _printable(value: object) -> str:
    return text if (text := _text(value)).isprintable() and len(text) <= 253 else ""


def show_path(path: Path) -> str:
    """``spec.addresses[1]``; keys that are no plain word in brackets: ``metadata.annotations[example.com/a]``."""
    shown = ""
    for step in path:
        if isinstance(step, int):
            shown += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            shown += f".{step}" if shown else step
        else:
            shown += f"[{step if step.isprintable() else repr(step)}]"
    return shown


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``did you mean 'addresses'?``, or the whole list where nothing is close."""
    known = sorted(known)
    by_lower = {name.lower(): name for name in known}
    lower = word[:64].lower()
    longer = [name for name in by_lower if lower and name.startswith(lower)]
    close = longer or difflib.get_close_matches(lower, by_lower, n=1)
    return f"did you mean {by_lower[close[0]]!r}?" if close else f"known are {', '.join(known)}"


@dataclass(slots=True)
class _Report:
    source: ApiObject
    problems: dict[tuple[Path, object, str], InvalidField] = field(default_factory=dict)
    """By path, text and rule: a field that is looked at twice complains once."""


class Field(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A value in an API object, with the path that leads to it. None means absent: Kubernetes knows no difference.

    The methods that return values return a stand-in where the value breaks a rule, having noted the problem.
    """

    value: object
    path: Path
    report: _Report

    @property
    def given(self) -> bool:
        return self.value is not None

    @property
    def blank(self) -> bool:
        """Written down without a value, as templates do that have none. To an API server that is the same as absent."""
        parent = self.report.source.at(*self.path[:-1])
        return not self.given and isinstance(parent, dict) and self.path[-1] in parent

    def refuse(self, rule: str) -> None:
        """Note that the value breaks ``rule``, a sentence that says what would have been right."""
        source = self.report.source
        text = self.value if isinstance(self.value, str) else None
        rule = UNRENDERED if text is not None and TEMPLATE.search(text) else rule
        problem = InvalidField(show_path(self.path), self.value, rule, source.subject, source.locate(self.path))
        self.report.problems.setdefault((self.path, text, rule), problem)

    def parsed(self, parse: Callable[[str], T]) -> T | None:
        """The text put through ``parse``, whose ValueError is the rule; None where that or the type failed."""
        text = self.text()
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as error:
            self.refuse(str(error))
            return None

    def __getitem__(self, step: str | int) -> "Field":
        """A field of a mapping, or an entry that a list is known to have; absent where there is none."""
        return Field(_step(self.value, step), (*self.path, step), self.report)

    def object(self, known: Iterable[str], kind: str) -> "Field":
        """Itself, having refused everything but a mapping with ``known`` keys; ``kind`` says what it should be."""
        if self.given and self._is(dict):
            for key in cast(Mapping[object, object], self.value):
                if isinstance(key, str) and key not in known:
                    self[key].refuse(f"is not a field of {kind}: {did_you_mean(key, known)}")
        return self

    def children(self) -> "list[Field]":
        """The values of a mapping."""
        if self.value is None or not self._is(dict):
            return []
        mapping = cast(Mapping[object, object], self.value)
        return [self[key] for key in mapping if isinstance(key, str)]

    def items(self) -> "list[Field]":
        """The entries of a list."""
        if self.value is None or not self._is(list):
            return []
        entries = cast(list[object], self.value)
        return [Field(entry, (*self.path, i), self.report) for i, entry in enumerate(entries)]

    def text(self) -> str | None:
        return cast(str, self.value) if self.given and self._is(str) else None

    def nonempty(self) -> "Field":
        """Itself, absent where it is '': Go clients write that for "none"."""
        return self if self.value != "" else Field(None, self.path, self.report)

    def require(self) -> "Field":
        """Itself; a problem where it is absent or ''."""
        if not self.nonempty().given:
            self.refuse("must not be empty" if self.given else "is required")
        return self.nonempty()

    def comma_separated(self) -> "list[Field]":
        """The parts of text that is a list, as annotations are; every part has the whole's place."""
        text = self.text()
        if text is None:
            return []
        parts = [part.strip() for part in text.split(",")]
        if not all(parts):
            self.refuse("must be values separated by single commas")
        return [Field(part, self.path, self.report) for part in parts if part]

    def sound(self, decode: "Callable[[Field], T]") -> T | None:
        """What ``decode`` makes of it; None where that noted a problem."""
        before = len(self.report.problems)
        result = decode(self)
        return result if len(self.report.problems) == before else None

    def boolean(self, default: bool) -> bool:
        return cast(bool, self.value) if self.given and self._is(bool) else default

    def integer(self, default: int, low: int, high: int) -> int:
        if not self.given or not self._is(int):
            return default
        number = cast(int, self.value)
        if not low <= number <= high:
            self.refuse(f"must be from {low} to {high}")
            return default
        return number

    def choice(self, options: type[E], default: E, stand_in: E | None = None) -> E:
        """``stand_in`` is used for anything that is not one of the options, and ``default`` if nothing is given."""
        if not self.given:
            return default
        found = self.parsed(lambda text: _option(options, text))
        return found or stand_in or default

    def _is(self, wanted: type) -> bool:
        # `type is`, because True is an int to isinstance() and must not become port 1.
        if type(self.value) is wanted or (wanted is list and type(self.value) is tuple):
            return True
        found = _TYPES.get(type(self.value), "something else")
        quoted = ": put it in quotes" if wanted is str and type(self.value) in (bool, int, float) else ""
        whole = "a whole number" if wanted is int else _TYPES[wanted]
        self.refuse(f"must be {whole}, not {found or 'nothing'}{quoted}")
        return False


def _option(options: type[E], text: str) -> E:
    try:
        return options(text)
    except ValueError:
        raise ValueError(f"must be {either(options)}") from None


def names(text: str) -> frozenset[str]:
    """The words of it."""
    return frozenset(text.split())


def either(options: Iterable[str]) -> str:
    """``A, B or C``."""
    *rest, last = options
    return f"{', '.join(rest)} or {last}" if rest else last


def some(texts: Sequence[str], most: int = 5) -> str:
    """The first of them, and how many more there are: ``A, B and 7 more``."""
    shown = ", ".join(texts[:most])
    return f"{shown} and {len(texts) - most} more" if len(texts) > most else shown


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)")


def seconds(value: Field, default: float, low: float, high: float) -> float:
    """A duration: a number of seconds, or text with units as elsewhere in Kubernetes (``1.1s``, ``1h30m``)."""
    if not value.given:
        return default
    found = math.nan
    match value.value:
        case bool():
            pass
        case int() | float() as number if abs(number) < 1e9:
            found = float(number)
        case str() as text:
            found = duration(text)
    if math.isnan(found):
        value.refuse("must be a number of seconds, or a duration such as 1.1s, 5m or 1h30m")
        return default
    if not low <= found <= high:
        value.refuse(f"must be from {low:g} to {high:g} seconds")
    return found


def duration(text: str) -> float:
    """Seconds; NaN if it is not a duration."""
    parts = DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return math.nan
    return math.fsum(float(number) * _UNITS[unit] for number, unit in parts)


def read(source: ApiObject, decode: Callable[[Field], T]) -> T:
    """What ``decode`` makes of the object; raises InvalidManifests with every problem it noted."""
    result, problems = read_leniently(source, decode)
    if problems:
        raise InvalidManifests(problems)
    return result


def read_leniently(source: ApiObject, decode: Callable[[Field], T]) -> tuple[T, tuple[InvalidField, ...]]:
    """What ``decode`` makes of the object, with a stand-in for each field that has one of the problems."""
    report = _Report(source)
    result = decode(Field(source.data, (), report))
    return result, tuple(report.problems.values())


# ── Names, labels and label selectors, by the rules of apimachinery/pkg/util/validation ─────────────────────

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)

# ObjectMeta of meta/v1; `clusterName` and `selfLink` are gone from it but not from old dumps.
_METADATA = names(
    "annotations clusterName creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers "
    "generateName generation labels managedFields name namespace ownerReferences resourceVersion selfLink uid"
)

TOP = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})


def dns_label(text: str) -> str:
    """An RFC 1123 label, as Services, ports and namespaces are named; ValueError says the rule."""
    if not LABEL.fullmatch(text):
        raise ValueError("must be 1-63 of a-z, 0-9 and '-', beginning and ending with a letter or digit (RFC 1123)")
    return text


def dns_subdomain(text: str) -> str:
    """An RFC 1123 subdomain, as most objects are named; ValueError says the rule."""
    if len(text) > 253 or not SUBDOMAIN.fullmatch(text):
        raise ValueError("must be labels of a-z, 0-9 and '-' joined by '.', at most 253 characters (RFC 1123)")
    return text


def label_key(text: str, what: str = "label") -> str:
    prefix, slash, name = text.rpartition("/")
    if not QUALIFIED.fullmatch(name) or (slash and not (len(prefix) <= 253 and SUBDOMAIN.fullmatch(prefix))):
        raise ValueError(
            f"is no {what} key: 1-63 letters, digits, '-', '_' and '.', optionally after a DNS prefix and '/'"
        )
    return text


def label_value(text: str) -> str:
    if text and not QUALIFIED.fullmatch(text):
        raise ValueError("is not a label value: at most 63 letters, digits, '-', '_' and '.'")
    return text


def timestamp(text: str) -> str:
    """A moment as the API writes it, in UTC and to the second, so that it sorts; '' means none. ValueError says the
    rule."""
    if not text:
        return ""
    if not _TIME.fullmatch(text):
        raise ValueError("must be a time such as 2026-01-31T12:00:00Z (RFC 3339)")
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("is not a time that exists") from None
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


class Metadata(NamedTuple):
    name: str
    namespace: str
    """'' for objects that belong to the cluster."""
    labels: Mapping[str, str]
    annotations: Field
    created: str


def metadata(root: Field, *, namespaced: bool, short_name: bool) -> Metadata:
    """``metadata`` of an object. ``short_name``: the name must be a single label (Service, Namespace)."""
    meta = root["metadata"].object(_METADATA, "metadata")
    namespace = meta["namespace"].nonempty()
    if namespace.given and not namespaced:
        namespace.refuse(f"must be left out: {root.report.source.kind} belongs to the cluster, not to a namespace")
    return Metadata(
        name=meta["name"].require().parsed(dns_label if short_name else dns_subdomain) or "",
        # "default" is what kubectl fills in
        namespace=(namespace.parsed(dns_label) or "default") if namespaced else "",
        labels=label_map(meta["labels"]),
        annotations=meta["annotations"],
        created=meta["creationTimestamp"].parsed(timestamp) or "",
    )


def label_map(labels: Field) -> dict[str, str]:
    """``key: value`` pairs."""
    found = {}
    for label in labels.children():
        key = cast(str, label.path[-1])
        _check_key(label, key)
        found[key] = _value_of(label)
    return found


def _value_of(label: Field) -> str:
    if not label.given:
        label.refuse("must be text, not nothing: write '' for an empty value")
    return label.parsed(label_value) or ""


def _check_key(label: Field, key: str) -> None:
    try:
        label_key(key)
    except ValueError as error:
        label.refuse(str(error))


_SELECTOR = frozenset({"matchLabels", "matchExpressions"})


def selector(value: Field, beside: frozenset[str] = frozenset()) -> LabelSelector:
    """A ``LabelSelector`` of meta/v1: ``matchLabels`` and ``matchExpressions``, all of which must match. ``beside``:
    other fields of the same object.

    An empty one matches everything in Kubernetes. Here it is refused: a template without a value makes one, and so does
    an API server that drops a label without a value.
    """
    value.object(_SELECTOR | beside, "a label selector")
    for each in (value, value["matchLabels"], value["matchExpressions"]):
        if each.blank or each.value in ({}, []):
            each.refuse("must hold at least one requirement; leave it out to ask for nothing")
    wanted = label_map(value["matchLabels"])
    equal = [LabelRule(key, "In", frozenset({text})) for key, text in wanted.items()]
    return LabelSelector((*equal, *map(_expression, value["matchExpressions"].items())))


def _expression(value: Field) -> LabelRule:
    value.object({"key", "operator", "values"}, "a match expression")
    key = value["key"].require().parsed(label_key) or ""
    values = frozenset(_value_of(item) for item in value["values"].items())
    match value["operator"].require().text():
        case "In" | "NotIn" as operator:
            if not values:
                value["values"].refuse(f"must list at least one value for the operator {operator}")
            return LabelRule(key, operator, values)
        case "Exists" | "DoesNotExist" as operator:
            if values:
                value["values"].refuse(f"must be left out for the operator {operator}")
            return LabelRule(key, operator)
        case None:
            return LabelRule(key, "Exists")
        case _:
            value["operator"].refuse("must be In, NotIn, Exists or DoesNotExist")
            return LabelRule(key, "Exists")
