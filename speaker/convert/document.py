"""One document of the input, and what became of each of its values: converted, or listed with a reason."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from speaker.api.fields import ApiObject, Field, Path, either, read, read_leniently, show_path
from speaker.errors import InvalidManifests, Place

T = TypeVar("T")

CORRECT = "correct it and convert again"
BGP = "BGP: the speaker answers on the LAN and talks to no router"
KEEP = "keep the program that announces it, or move its addresses into the LAN's subnet"

# ObjectMeta of meta/v1: the parts that servers and controllers write, and those that GitOps tools add.
_SERVERS = (
    "clusterName",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
)
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True)
class Listed:
    """A value that has no equal, or a whole document (``path`` is ''). ``do``: what somebody has to decide; '' if
    nothing is lost otherwise."""

    place: Place
    subject: str
    path: str
    value: object
    why: str
    do: str = ""


@dataclass(slots=True)
class Document:
    source: ApiObject
    listed: list[Listed] = field(default_factory=list)
    _converted: set[Path] = field(default_factory=set)
    _left: set[Path] = field(default_factory=set)
    _told: set[tuple[Path, str]] = field(default_factory=set)

    @property
    def subject(self) -> str:
        return self.source.subject

    @property
    def refused(self) -> bool:
        """Whether nothing of it is converted."""
        return () in self._left

    def take(self, value: Field) -> Field:
        """Returns ``value``. It and everything below it counts as converted, unless it is listed as well."""
        self._converted.add(value.path)
        return value

    def leave(self, path: Path, why: str, do: str = "") -> None:
        """Lists what is at ``path``, if anything is. () is the whole document."""
        value = self.source.at(*path)
        if value is None and not _stands(self.source, path):
            return
        self._left.add(path)
        shown = None if path == () else value
        listed = Listed(self.source.locate(path), self.subject, show_path(path), shown, why, do)
        if (path, why) not in self._told:
            self._told.add((path, why))
            self.listed.append(listed)

    def read(self, decode: "Callable[[Document, Field], T]") -> T | None:
        """The result of ``decode``; None if something cannot be read, which leaves the whole document out."""
        result, problems = read_leniently(self.source, lambda root: decode(self, root))
        unknown = [] if problems else list(self.unaccounted())
        for problem in problems:
            listed = Listed(problem.place, self.subject, problem.path, problem.value, problem.rule, CORRECT)
            self.listed.append(listed)
        for path in unknown:
            self.leave(path, "is not a known field of this kind", "find out whether it restricts anything")
        if not (problems or unknown):
            return result
        self.leave((), "is left out, as parts of it cannot be read", CORRECT)
        return None

    def unaccounted(self) -> Iterator[Path]:
        """Values that were neither converted nor listed."""
        return (path for path in leaves(self.source.data) if not self.accounted(path))

    def accounted(self, path: Path) -> bool:
        return self.is_listed(path) or any(path[:length] in self._converted for length in range(len(path) + 1))

    def is_listed(self, path: Path) -> bool:
        return any(path[:length] in self._left for length in range(len(path) + 1))


def as_read(
    manifest: dict[str, object], decode: Callable[[Field], T], leave_out: Callable[[str, str], None]
) -> T | None:
    """One of our manifests as the speaker reads it. If the speaker would refuse it, leaves it out and returns None."""
    try:
        return read(ApiObject(manifest), decode)
    except InvalidManifests as error:
        rules = "; ".join(f"{problem.path}: {problem.rule}" for problem in error.problems)
        leave_out(f"is left out, as the speaker would refuse it: {rules}", CORRECT)
        return None


def texts(value: Field) -> list[str]:
    return [item.require().text() or "" for item in value.items()]


def read_kind(documents: Iterable[Document], kind: str, decode: Callable[[Document, Field], T]) -> list[T]:
    """The results of ``decode`` for documents of that kind that can be read."""
    found = (document.read(decode) for document in documents if document.source.kind == kind)
    return [each for each in found if each is not None]


def leaves(data: object, path: Path = ()) -> Iterator[Path]:
    """Paths of all values that contain no others: scalars, and empty containers."""
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from leaves(value, (*path, key))
    elif isinstance(data, list) and data:
        for i, value in enumerate(data):
            yield from leaves(value, (*path, i))
    else:
        yield path


def _stands(source: ApiObject, path: Path) -> bool:
    """Whether the path is in the document, even without a value."""
    parent = source.at(*path[:-1]) if path else None
    return not path or (isinstance(parent, dict) and path[-1] in parent)


def heading(document: Document, root: Field, versions: Collection[str]) -> tuple[str, dict[str, str]]:
    """Name and labels of a pool. Everything else in its ``metadata`` and ``status`` is listed, except annotations that
    are already converted: others mean nothing to the peer, and are not copied."""
    for key in ("apiVersion", "kind"):
        document.take(root[key])
    if root["apiVersion"].value not in list(versions):
        root["apiVersion"].refuse(f"is not a known version of this kind: {either(sorted(versions))}")
    meta = root["metadata"]
    name = document.take(meta["name"]).require().text() or ""
    labels = {str(label.path[-1]): label.text() or "" for label in document.take(meta["labels"]).children()}
    document.leave(("metadata", "namespace"), "an Eip belongs to the cluster, not to a namespace")
    servers(document)
    document.leave(("status",), "the peer's controller writes it")
    if meta["deletionTimestamp"].given:
        meta["deletionTimestamp"].refuse("is set: the object is being deleted")
    for annotation in meta["annotations"].children():
        if not document.accounted(annotation.path):
            document.leave(annotation.path, "means nothing to the peer: annotations of pools are not copied")
    return name, labels


def no_pool(document: Document, root: Field, versions: Collection[str]) -> None:
    """The same for an object that configures pools but is none."""
    heading(document, root, versions)
    for name in ("name", "labels"):
        document.leave(("metadata", name), "the pools carry what it says")


def config_map(document: Document, root: Field, names: str) -> Field:
    """Its ``data``. ``names``: how the pools that it describes are named."""
    heading(document, root, ("v1",))
    document.leave(("metadata", "labels"), "the ConfigMap's labels do not belong to a pool")
    document.leave(("metadata", "name"), names)
    for key in ("binaryData", "immutable"):
        document.leave((key,), "does not belong to a pool")
    return root["data"]


def servers(document: Document) -> None:
    for name in _SERVERS:
        document.leave(("metadata", name), "the API server or a controller writes it")
    document.leave(("metadata", "annotations", LAST_APPLIED), "kubectl writes it")


# ── Links that peers name by regular expressions, which ours are not ──────────────────────────────────────────

_NAME = re.compile(r"(?:[A-Za-z0-9_-]|\\\.)+")


def link(document: Document, value: Field) -> str | None:
    """The one name that the expression matches as a whole; None if it may match others. Anything more or less than a
    plain name is listed."""
    expression = document.take(value).require().text() or ""
    inner = expression.removeprefix("^").removesuffix("$")
    name = inner.replace("\\.", ".") if _NAME.fullmatch(inner) else None
    if name is None or expression != f"^{inner}$":
        why = "is a regular expression, but here links are named" + (f", and {name} is taken as one" if name else "")
        document.leave(value.path, why, "write the links into the pools' interface, in order of preference")
    return name
