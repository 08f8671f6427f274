"""A directory of manifests → ``World``.

``*.yaml``, ``*.yml`` and ``*.json`` (JSON is YAML) directly in the directory are read, in the order of their names;
subdirectories are not, as with ``kubectl apply -f``. Hidden files and what editors leave behind are ignored, so a
mounted ConfigMap works: its files are links into a hidden ``..data``. A matching name that leads to no readable file (a
dangling link, a FIFO, a directory) is a mistake: ignoring it would remove everything that the file asked for.
"""

import os
from collections.abc import Collection
from pathlib import Path

from speaker.api.fields import ApiObject
from speaker.api.reading import Notice, Reading, read_world
from speaker.errors import InvalidField, InvalidManifests, Place, Unreadable
from speaker.model import Balancer, World
from speaker.standalone.document import parse
from speaker.system.files import read_regular, shown

SUFFIXES = (".yaml", ".yml", ".json")

MAX_FILE_BYTES = 32 * 1024 * 1024
"""Ten thousand Services with their EndpointSlices take about half of it."""


def is_manifest(name: str) -> bool:
    """Whether a file of this name is read."""
    return name.endswith(SUFFIXES) and not name.startswith((".", "#"))


def manifest_files(directory: Path) -> list[Path]:
    """The names that are read, in order, whatever they lead to. Raises OSError where ``directory`` is none that can be
    read."""
    return sorted(path for path in directory.iterdir() if is_manifest(path.name))


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
    if not files:
        empty = Notice(Place(shown(directory)), "", "there are no manifests in this directory")
        return Reading(reading.world, (empty,))
    return reading


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
