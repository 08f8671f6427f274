"""Code lines of `speaker/` by room, beside the budget in pyproject.toml; exits 1 where a room is over it.

    python .ci/lines.py [DIR]

A code line has a token that is neither a comment nor a docstring. A room is a folder directly under `speaker/`, with
all that is in it; the files beside the folders are one room, called `.`. DIR is another checkout, to compare with.
"""

import ast
import io
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

_NOT_CODE = ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENCODING", "ENDMARKER")
NOT_CODE = {getattr(tokenize, name) for name in _NOT_CODE}
ASIDE = ("lab", "convert")
"""Rooms that the issue about the size of the code leaves out of its sum."""


def docstring_lines(tree: ast.AST) -> Iterator[int]:
    """Also of the strings that stand below an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def code_lines(text: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {line for token in tokens if token.type not in NOT_CODE for line in range(token.start[0], token.end[0] + 1)}
    return len(lines - set(docstring_lines(ast.parse(text))))


def rooms(root: Path) -> Mapping[str, tuple[int, int]]:
    """Room to code lines and files."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path in sorted((root / "speaker").rglob("*.py")):
        parts = path.relative_to(root / "speaker").parts
        room = parts[0] if len(parts) > 1 else "."
        lines[room] += code_lines(path.read_text())
        files[room] += 1
    return {room: (lines[room], files[room]) for room in lines}


def budget(root: Path) -> Mapping[str, int]:
    return dict(tomllib.loads((root / "pyproject.toml").read_text())["tool"]["lines"])


def main(root: Path) -> int:
    found = rooms(root)
    allowed = budget(Path(__file__).parents[1])
    for room, (lines, files) in sorted(found.items(), key=lambda item: -item[1][0]):
        over = " OVER" if lines > allowed.get(room, 0) else ""
        print(f"{room:<12} {lines:>6} lines {files:>4} files   budget {allowed.get(room, 0):>6}{over}")
    everything = sum(lines for lines, _ in found.values())
    without = sum(lines for room, (lines, _) in found.items() if room not in ASIDE)
    print(f"{'all':<12} {everything:>6} lines {sum(files for _, files in found.values()):>4} files")
    print(f"{'all without ' + ' and '.join(ASIDE)}: {without} lines")
    return any(lines > allowed.get(room, 0) for room, (lines, _) in found.items())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1])))
