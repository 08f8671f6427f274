"""``speaker convert``: turns another balancer's manifests, or keepalived.conf, into ours, and lists what has no
equivalent.
"""

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, TextIO

import yaml

from speaker.api.fields import ApiObject
from speaker.convert.conversion import Conversion, Settings, of_keepalived
from speaker.convert.conversion import convert as converted
from speaker.convert.document import Listed
from speaker.convert.keepalived.files import NAME, read_files
from speaker.errors import EdgeError, InvalidField, Place, SettingError, Unreadable
from speaker.model import Balancer
from speaker.standalone.document import parse
from speaker.standalone.manifests import (
    MAX_FILE_BYTES,
    MISNAMED,
    is_manifest,
    manifest_files,
    misnamed,
    no_utf8,
    read_file,
)
from speaker.system.files import shown, write_atomically
from speaker.tools.validate import json_problems

STDIN = "-"
KEEPALIVED = "keepalived"
NAMES = ("pools.yaml", "services.yaml", "back/services.yaml")
"""Files written into a directory; the last one is not applied with the others."""

LONGEST = 80
"""Longest value shown, in characters; the JSON report has all of it."""


def command(args: argparse.Namespace) -> int:
    """Carries the command out. Raises SettingError."""
    try:
        return _command(args)
    except SettingError as error:
        if args.json:
            sys.stdout.write(json.dumps(json_problems([InvalidField("", None, str(error))])) + "\n")
        raise


def _command(args: argparse.Namespace) -> int:
    peers = {peer.value: peer for peer in Balancer}
    if "" in args.sources:
        raise SettingError('PATH "": must be a path: this directory is .')
    if args.peer and args.peer not in (*peers, KEEPALIVED):
        raise SettingError(f"--from {args.peer}: must be one of {', '.join((*peers, KEEPALIVED))}")
    if args.peer == KEEPALIVED or all(map(_is_keepalived, args.sources)):
        if args.classes or args.default_class or args.adopt:
            raise SettingError(
                "--adopt, --class and --default-class are for Services, which keepalived.conf does not have"
            )
        return _written(*_of_keepalived(args.sources, args.config_id), args.output, args.json, sys.stdout, sys.stderr)
    settings = Settings(peers.get(args.peer), frozenset(args.classes), args.default_class, args.adopt)
    return convert(args.sources, settings, args.output, args.json, sys.stdout, sys.stderr)


def convert(
    sources: Sequence[str], settings: Settings, into: Path | None, as_json: bool, out: TextIO, err: TextIO
) -> int:
    """Writes the manifests to ``out``, or into the directory ``into``, and the report to ``err``; with ``as_json``, one
    object with both to ``out``.

    Returns 0 if everything is converted, 1 if somebody has to decide something, and 2 if the input cannot be read or
    ``into`` not be written; then only the problems are written.
    """
    objects, problems = _read(sources)
    if not objects and not problems:
        problems = [InvalidField("", None, "there is nothing to convert", place=Place(", ".join(sources)))]
    found = converted([] if problems else objects, settings, _inner)
    return _written(found, problems, into, as_json, out, err)


def _written(
    found: Conversion, problems: Sequence[InvalidField], into: Path | None, as_json: bool, out: TextIO, err: TextIO
) -> int:
    objects = (*found.services, *found.endpoints)
    if into is not None and not problems:
        try:
            for name, manifests in zip(NAMES, (found.pools, objects, found.back), strict=True):
                write_atomically(into / name, _yaml(manifests).encode())
        except EdgeError as error:
            problems = [InvalidField("", None, str(error))]
    if problems:
        err.writelines(f"{problem}\n" for problem in problems)
        if as_json:
            told = _json(found, whole=into is None) | json_problems(problems)
            out.write(json.dumps(told, default=repr) + "\n")
        return 2
    if as_json:
        out.write(json.dumps(_json(found, whole=into is None), default=repr) + "\n")
    else:
        if into is None:
            out.write(_yaml((*found.pools, *objects)))
        err.writelines(f"{line}\n" for line in _report(found))
    return 1 if found.decisions else 0


# ── keepalived.conf ───────────────────────────────────────────────────────────────────────────────────────────


def _is_keepalived(source: str) -> bool:
    """A directory is, if it has nothing else that is read."""
    try:
        alone = source != STDIN and Path(source, NAME).is_file() and not manifest_files(Path(source))
    except OSError:
        alone = False
    return alone or source.endswith(".conf")


def _of_keepalived(sources: Sequence[str], config_id: str) -> tuple[Conversion, list[InvalidField]]:
    found = read_files(sources, config_id, getattr(sys.stdin, "buffer", None))
    return (Conversion((), (), ()) if found.problems else of_keepalived(found)), found.problems


def _read(sources: Sequence[str]) -> tuple[list[ApiObject], list[InvalidField]]:
    objects: list[ApiObject] = []
    problems: list[InvalidField] = []
    for source in sources:
        for read, wrong in _of_stdin(getattr(sys.stdin, "buffer", None)) if source == STDIN else _of_path(Path(source)):
            objects += read
            problems += wrong
    return objects, problems


def _inner(text: str) -> list[ApiObject]:
    parsed = parse("", text)
    return [] if parsed.problems else parsed.objects


_Found = tuple[list[ApiObject], list[InvalidField]]


def _of_path(path: Path) -> Iterator[_Found]:
    try:
        files, unread = (manifest_files(path), misnamed(path)) if path.is_dir() else ([path], [])
        inner = [each for one in path.iterdir() for each in _left(one)] if path.is_dir() else []
    except OSError as error:
        rule = f"must be a directory that can be read: {error.strerror}"
        yield [], [Unreadable("", shown(path), rule, place=Place(shown(path)))]
        return
    yield from map(read_file, files)
    yield (
        [ApiObject(None, partial(_at, each)) for each in sorted(inner)],
        [InvalidField("", None, MISNAMED, place=Place(shown(each))) for each in unread],
    )


def _left(path: Path) -> list[Path]:
    """If it is a directory, not hidden, and has manifests, however deep: itself. If they cannot be looked for: the
    first directory in it, or itself, that cannot be read."""
    refused: list[OSError] = []
    inside = os.walk(path, onerror=refused.append) if path.is_dir() and not path.name.startswith(".") else ()
    if any(is_manifest(name) for _, directories, files in inside for name in (*directories, *files)):
        return [path]
    return [Path(error.filename) for error in refused[:1]]


def _at(path: Path, _: object) -> Place:
    return Place(shown(path))


def _of_stdin(stream: BinaryIO | None) -> Iterator[_Found]:
    """``stream`` None: whoever started this has closed it."""
    place = Place("stdin")
    if stream is None:
        yield [], [Unreadable("", None, "must be open, or name files or directories", place=place)]
        return
    try:
        content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        yield [], [Unreadable("", None, f"must be a stream that can be read: {error.strerror or error}", place=place)]
        return
    if len(content) > MAX_FILE_BYTES:
        yield [], [InvalidField("", None, f"must not be larger than {MAX_FILE_BYTES} bytes", place=place)]
        return
    try:
        # kubectl -o json writes JSON, which is YAML except for characters beyond U+FFFF.
        parsed = parse("stdin.json" if content.lstrip().startswith(b"{") else "stdin", content.decode())
    except UnicodeDecodeError as error:
        yield [], [no_utf8("stdin", error)]
        return
    yield parsed.objects, parsed.problems


class _Dumper(yaml.SafeDumper):
    """Without aliases, which are hard to read. Text that Go's YAML takes for a number or a boolean and Python's does
    not, such as ``12e4`` and ``y``, is quoted."""

    def ignore_aliases(self, data: object) -> bool:
        return True


_NO_TEXT_TO_GO = re.compile(r"[-+]?(0[xXoObB][0-9a-fA-F_]+|[\d_]*\.?[\d_]*([eE][-+]?\d+)?)|[yYnN]")


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if _NO_TEXT_TO_GO.fullmatch(text) else None)


_Dumper.add_representer(str, _text)


def _yaml(manifests: Iterable[object]) -> str:
    return "---\n".join(yaml.dump(each, Dumper=_Dumper, sort_keys=False, allow_unicode=True) for each in manifests)


# ── The report ────────────────────────────────────────────────────────────────────────────────────────────────


def _report(found: Conversion) -> Iterator[str]:
    """Decisions one by one, then notes, each once for all objects that it applies to, then the totals."""
    yield from (_line(each) for each in found.decisions)
    notes = [each for each in found.listed if not each.do]
    kinds = Counter((_general(each.path), each.why) for each in notes)
    told = set()
    for each in notes:
        kind = (_general(each.path), each.why)
        if kind not in told:
            told.add(kind)
            more = f" (and {kinds[kind] - 1} more)" if kinds[kind] > 1 else ""
            yield f"note: {_line(each)}{more}"
    yield (
        f"converted: pools {len(found.pools)}, Services {len(found.services)}; "
        f"to decide {len(found.decisions)}, notes {len(notes)}"
    )


def _line(each: Listed) -> str:
    value = "" if each.value is None else _short(each.value)
    parts = (str(each.place), each.subject, each.path, value, each.why)
    line = ": ".join(part for part in parts if part) + (f"; {each.do}" if each.do else "")
    return line.encode(errors="backslashreplace").decode()


def _short(value: object) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _general(path: str) -> str:
    return "".join("#" if each.isdigit() else each for each in path)


def _json(found: Conversion, *, whole: bool) -> dict[str, object]:
    told: dict[str, object] = {
        "ok": not found.decisions,
        "problems": [],
        "pools": len(found.pools),
        "services": len(found.services),
        "listed": [_json_listed(each) for each in found.listed],
    }
    return told | ({"objects": [*found.pools, *found.services, *found.endpoints]} if whole else {})


def _json_listed(each: Listed) -> dict[str, object]:
    return {
        "file": each.place.file,
        "line": each.place.line,
        "document": each.subject,
        "field": each.path,
        "value": each.value,
        "why": each.why,
        "decide": each.do or None,
    }
