"""Edge: reads the files of one keepalived configuration, and everything that they include."""

import platform
import re
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import BinaryIO

from speaker.convert.keepalived.text import Read, read
from speaker.errors import InvalidField, Place, Unreadable
from speaker.system.files import read_regular, shown

STDIN, NAME = "-", "keepalived.conf"
MAX_FILES, MAX_BYTES, MAX_ALTERNATIVES = 1000, 32 * 1024 * 1024, 100


def read_files(sources: Sequence[str], config_id: str, stdin: BinaryIO | None) -> Read:
    """``sources``: files, directories with one, or ``-``. ``config_id``: '' means this host's name, as in keepalived.
    What cannot be read is a problem."""
    files = _Files(stdin)
    try:
        texts = [files.text(source) for source in sources]
        found = read(texts, config_id or platform.node().partition(".")[0], files.included)
    except InvalidField as problem:
        return Read(problems=[problem])
    if not (found.top or found.passed or found.problems):
        found.problems.append(InvalidField("", None, "there is nothing to convert", place=Place(", ".join(sources))))
    return found


class _Files:
    """Each file is read once. Raises InvalidField if one cannot be read."""

    def __init__(self, stdin: BinaryIO | None) -> None:
        self._stdin = stdin
        self._texts: dict[str, str] = {}
        self._left = MAX_BYTES

    def text(self, source: str) -> tuple[str, str]:
        path = Path(source, NAME) if source != STDIN and Path(source).is_dir() else Path(source)
        name = "stdin" if source == STDIN else shown(path)
        if name not in self._texts:
            content = self._content(source, path, name)
            self._left -= len(content)
            if self._left < 0 or len(self._texts) >= MAX_FILES:
                rule = f"must not be more than {MAX_FILES} files of {MAX_BYTES} bytes in all"
                raise InvalidField("", None, rule, place=Place(name))
            self._texts[name] = content.decode("utf-8-sig", errors="replace")  # comments may be in any encoding
        return name, self._texts[name]

    def _content(self, source: str, path: Path, name: str) -> bytes:
        try:
            if source != STDIN:
                return read_regular(path, MAX_BYTES)[0]
            return b"" if self._stdin is None else self._stdin.read(MAX_BYTES + 1)
        except OSError as error:
            rule = f"must be a file that can be read: {error.strerror}"
            raise Unreadable("", None, rule, place=Place(name)) from None

    def included(self, pattern: str, within: str) -> list[tuple[str, str]]:
        directory = Path(within).parent
        found = (each for one in _alternatives(pattern) for each in sorted(glob(one, root_dir=directory)))  # noqa: PTH207
        return [self.text(str(directory / each)) for each in dict.fromkeys(found)]


_BRACES = re.compile(r"\{([^{}]*)\}")


def _alternatives(pattern: str) -> list[str]:
    """``{a,b}`` written out, as glob(3) does."""
    patterns = [pattern]
    while len(patterns) < MAX_ALTERNATIVES and (found := _BRACES.search(patterns[0])) is not None:
        before, after = patterns[0][: found.start()], patterns[0][found.end() :]
        patterns = patterns[1:] + [before + choice + after for choice in found[1].split(",")]
    return patterns
