"""A directory of manifests → ``World``.

``*.yaml``, ``*.yml`` and ``*.json`` (JSON is YAML) directly in the directory are read, in the order of their names;
subdirectories are not, as with ``kubectl apply -f``. Hidden files and what editors leave behind are ignored, so a
mounted ConfigMap works: its files are links into a hidden ``..data``. A matching name that leads to no readable file (a
dangling link, a FIFO, a directory) is a mistake: ignoring it would remove everything that the file asked for.

A volume that is not mounted, or a directory that is being filled again, looks like one that somebody has emptied.
Acting on it would withdraw everything at once, and forget the Services. So such a reading takes effect only when it has
stayed the same for a while (``removals.py`` says how much is much), and an empty mount point never does: ``Patience``.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from pathlib import Path

from speaker.api.fields import ApiObject
from speaker.api.reading import Notice, Reading, read_world
from speaker.errors import InvalidField, InvalidManifests, Place, Unreadable
from speaker.model import Balancer, ServiceKey, World
from speaker.removals import is_much
from speaker.standalone.document import parse
from speaker.system.files import read_regular, shown

SUFFIXES = (".yaml", ".yml", ".json")

MAX_FILE_BYTES = 32 * 1024 * 1024
"""Ten thousand Services with their EndpointSlices take about half of it."""


def is_manifest(name: str) -> bool:
    """Whether a file of this name is read."""
    return name.endswith(SUFFIXES) and not name.startswith((".", "#"))


def manifest_files(directory: Path) -> list[Path]:
    """The names that are read, in order, whatever they lead to. Raises OSError if ``directory`` cannot be read."""
    return sorted(path for path in directory.iterdir() if is_manifest(path.name))


MISNAMED = "is not read: its name must end in .yaml, .yml or .json, in small letters"


def misnamed(directory: Path) -> list[Path]:
    """The files that only capitals keep from being read. Raises OSError as ``manifest_files`` does."""
    odd = (path for path in directory.iterdir() if is_manifest(path.name.lower()) and not is_manifest(path.name))
    return sorted(path for path in odd if not path.is_dir())


def mount(directory: Path) -> int:
    """Which mount ``directory`` is on: the same number for as long as it is the same. 0 where there is no such."""
    try:
        fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return 0
    try:
        # st_dev would not tell two bind mounts of one file system apart (proc(5), /proc/pid/fdinfo).
        lines = Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()
        numbers = (int(line.split()[1]) for line in lines if line.startswith("mnt_id:"))
        return next(numbers, 0)
    finally:
        os.close(fd)


def load(
    directory: Path, *, default_class: bool = True, named: bool = False, honoured: Collection[Balancer] = ()
) -> Reading:
    """Everything the directory asks for; raises InvalidManifests with all problems of all files.

    ``default_class``: Services without a ``loadBalancerClass`` are ours as well. ``named``: every Service must name its
    addresses, because several hosts serve this directory. ``honoured`` as in ``api.service.service``.

    Nothing that stands in the files raises anything else.
    """
    try:
        files = manifest_files(directory)
        unread = misnamed(directory)
    except OSError as error:
        raise InvalidManifests((_unreadable(directory, error, "must be a directory that can be read"),)) from error
    objects: list[ApiObject] = []
    problems: list[InvalidField] = []
    for file in files:
        found, wrong = read_file(file)
        objects += found
        problems += wrong
    reading = Reading(World())
    try:
        reading = read_world(objects, default_class=default_class, named=named, honoured=honoured)
    except InvalidManifests as error:
        problems += error.problems
    if problems:
        raise InvalidManifests(tuple(sorted(problems, key=lambda problem: (problem.place.file, problem.place.line))))
    told = [(path, MISNAMED) for path in unread]
    if not files:
        told.append((directory, "there are no manifests in this directory: their names end in .yaml, .yml or .json"))
    notices = (Notice(Place(shown(path)), "", sentence) for path, sentence in told)
    return Reading(reading.world, (*notices, *reading.notices))


def read_file(file: Path) -> tuple[list[ApiObject], list[InvalidField]]:
    """Its documents, and what is wrong with the file; raises nothing."""
    name = shown(file)
    try:
        content, _ = read_regular(file, MAX_FILE_BYTES)
        text = content.decode()
    except OSError as error:
        return [], [_unreadable(file, error, "must be a file that can be read")]
    except UnicodeDecodeError as error:
        return [], [no_utf8(name, error)]
    if len(content) > MAX_FILE_BYTES:
        rule = f"must not be larger than {MAX_FILE_BYTES} bytes"
        return [], [InvalidField("", shown(Path(file.name)), rule, place=Place(name))]
    parsed = parse(name, text)
    return parsed.objects, parsed.problems


def no_utf8(file: str, error: UnicodeDecodeError) -> InvalidField:
    line = error.object[: error.start].count(b"\n") + 1
    return InvalidField("", error.object[error.start :][:1], "must be UTF-8", place=Place(file, line))


def _unreadable(path: Path, error: OSError, rule: str) -> InvalidField:
    return Unreadable("", shown(Path(path.name)), f"{rule}: {error.strerror}", place=Place(shown(path)))


# ── Whether a directory that asks for much less means it ──────────────────────────────────────────────────────


_NAMED = 3
"""Services named in a sentence."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a reading is not in force, and when to read again (in seconds; ``inf``: at the next change)."""

    sentence: str
    until: float = inf


class Patience:
    """What was last in force, and since when that is doubted. A ``place`` is known by its number: see
    ``mount``."""

    def __init__(self, directory: str, seconds: float, remembered: bool) -> None:
        """``remembered``: Services are, from an earlier run."""
        self._directory, self._seconds = directory, seconds
        self._asked = remembered
        self._place: int | None = None
        """Where what asked for something was read; None: it was an earlier run that read it."""
        self._services: Collection[ServiceKey] = ()
        self._since: float | None = None

    def forget(self) -> None:
        """What is there now could not be read: whatever it is, it does not stand."""
        self._since = None

    def doubt(self, world: World, place: int, now: float) -> Doubt | None:
        """None: from now on it is in force."""
        wanted = self._until_when(world, place, now)
        if wanted is None:
            self._since = None
            self._asked, self._place, self._services = _asks(world), place, world.services.keys()
        return wanted

    def _until_when(self, world: World, place: int, now: float) -> Doubt | None:
        elsewhere = place != self._place
        if not self._asked:
            return None
        if _asks(world):
            gone = sorted(self._services - world.services.keys())
            if gone and elsewhere and self._place is not None:
                lacks = f"is on another mount than before, and lacks {_names(gone)}"
            elif is_much(len(gone), len(self._services), said=1):
                lacks = f"lacks {len(gone)} of {len(self._services)} Services: {_names(gone)}"
            else:
                return None
            return self._settling(f"{self._directory}: {lacks}", now)
        if elsewhere:
            return Doubt(
                f"{self._directory}: has no manifests, {self._before()}: perhaps a volume is not mounted, so nothing "
                "changes. To serve nothing, put the manifest of a Namespace there"
            )
        return self._settling(f"{self._directory}: has no manifests now: was it emptied, or is it lost?", now)

    def _before(self) -> str:
        if self._place is None:
            return "while the state file remembers Services"
        return "and is on another mount than before"

    def _settling(self, what: str, now: float) -> Doubt | None:
        self._since = now if self._since is None else self._since
        until = self._since + self._seconds
        if now >= until:
            return None
        return Doubt(f"{what} It takes effect if it stays so for {self._seconds:g} s (--settle)", until)


def _asks(world: World) -> bool:
    """An object of any kind says that somebody wrote what is there."""
    return any((world.pools, world.services, world.endpoints, world.namespaces))


def _names(keys: list[ServiceKey]) -> str:
    more = f" and {len(keys) - _NAMED} more Services." if len(keys) > _NAMED else "."
    return ", ".join(map(str, keys[:_NAMED])) + more
