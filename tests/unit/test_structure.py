"""How the code is laid out: no circle of imports, a budget of code for each room, `Pure` said where it is true.

Which room may import which is for import-linter (pyproject.toml). `make check` runs both.
"""

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEAKER = ROOT / "speaker"
sys.path.insert(0, str(ROOT / ".ci"))

import lines  # noqa: E402

FEW_LINES = 30

SMALL_WITH_ONE_USER: dict[str, str] = {}
"""Files of a few lines that stand for themselves, and why."""

IMPURE = {"asyncio", "logging", "os", "pyroute2", "random", "socket", "structlog", "subprocess", "time"}
SAYS_PURE = re.compile(r"\bPure\b(?! are)|\(pure\)")
"""Of the whole module, or of a function; not `Pure are …`, which is of a package's other files."""


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES: Mapping[str, Path] = {name_of(path): path for path in sorted(SPEAKER.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text()) for name, path in FILES.items()}
MODULES = {name: path for name, path in FILES.items() if path.name != "__init__.py"}


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module that is named in an import, wherever that stands: a circle that closes late is one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in FILES else node.module


IMPORTS = {name: {other for other in imported(tree) if other in FILES} - {name} for name, tree in TREES.items()}


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """What is left of the graph when nothing more can be taken from it that leads nowhere, or that nothing leads to."""
    left = {name: set(others) for name, others in graph.items()}
    while True:
        led_to = {other for others in left.values() for other in others}
        over = {name for name, others in left.items() if not others or name not in led_to}
        if not over:
            return [set(left)] if left else []
        left = {name: others - over for name, others in left.items() if name not in over}


def test_a_circle_is_found():
    line = {"a": {"b"}, "b": {"c"}, "c": set(), "d": {"a"}}
    assert circles(line) == []
    assert circles({**line, "c": {"a"}}) == [{"a", "b", "c"}]


def test_no_import_leads_back_to_where_it_came_from():
    assert circles(IMPORTS) == []


def test_no_room_has_more_code_than_its_budget():
    over = {room: found for room, (found, _) in lines.rooms(ROOT).items() if found > lines.budget(ROOT).get(room, 0)}
    assert over == {}, "take code out; a budget (pyproject.toml) is raised only with a page in docs/decisions/"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("x = 1\n", 1),
        ('"""What it is."""\n\n# why\nx = 1  # one\n', 1),
        ('class A:\n    """What\n    it is."""\n\n    b: int\n    """Below it."""\n', 2),
        ('x = """text\nthat is used"""\n', 2),
        ("f(\n    1,\n)\n", 3),
    ],
)
def test_code_lines_are_counted_without_docstrings_and_comments(source, count):
    assert lines.code_lines(source) == count


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_a_file_of_a_few_lines_has_several_users():
    users = {name: [other for other, named in IMPORTS.items() if name in named] for name in MODULES}
    alone = {name for name, path in MODULES.items() if lines_of(path) < FEW_LINES and len(users[name]) == 1}
    assert alone == set(SMALL_WITH_ONE_USER)


def impure_names(tree: ast.Module) -> set[str]:
    """What the module calls things that are not pure: `socket`, or `AF_INET` where that is imported from there."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name for alias in node.names if alias.name.split(".")[0] in IMPURE}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in IMPURE:
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def said_pure_and_is_not(tree: ast.Module) -> Iterator[str]:
    impure = impure_names(tree)
    if SAYS_PURE.search(ast.get_docstring(tree) or "") and impure:
        yield f"the module: {', '.join(sorted(impure))}"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            used = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} & impure
            if used and SAYS_PURE.search(ast.get_docstring(node) or ""):
                yield f"{node.name}: {', '.join(sorted(used))}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""Decides. Pure."""\nimport socket', ["the module: socket"]),
        ('"""Decides (pure)."""\nfrom time import monotonic as now', ["the module: now"]),
        ('"""Decides. Pure: time is an argument."""\nimport struct', []),
        ('"""Edge."""\nimport os\ndef f():\n    """Pure."""\n    return os.getpid()', ["f: os"]),
        ('"""Edge."""\nimport os\ndef f():\n    """Pure."""\n    return 1', []),
        ('"""A room. Pure are ``a`` and ``b``."""\nimport os', []),
    ],
)
def test_what_says_that_it_is_pure_is_held_to_it(text, found):
    assert list(said_pure_and_is_not(ast.parse(text))) == found


@pytest.mark.parametrize("name", FILES)
def test_what_is_called_pure_is_pure(name):
    assert list(said_pure_and_is_not(TREES[name])) == []


FILES_IN_A_WALK = 8
WALKS = {
    "to the answer to an ARP request, and why this node gives it": (
        *("cli", "wire/process", "wire/shared"),
        *("ownership/machine/machine", "ownership/machine/rules", "layer2/link", "layer2/answer"),
    ),
    "to the same, by why this node may": (
        *("cli", "node/host", "node/decide", "wire/shared"),
        *("ownership/machine/machine", "ownership/machine/rules", "layer2/link", "layer2/answer"),
    ),
    "to the IPVS entry": (
        *("cli", "node/host", "node/decide"),
        *("forwarding/plan", "forwarding/ipvs/forwarder", "forwarding/ipvs/tables"),
    ),
}
"""What a reader opens, from the command on."""


def files_shown(file: str) -> set[str]:
    """What the docstrings of a file name as ``room/file.py``, or as ``file.py`` of its own room."""
    room = file.rpartition("/")[0]
    docstrings = [
        ast.get_docstring(node) or ""
        for node in ast.walk(TREES[f"speaker.{file.replace('/', '.')}"])
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    named = re.findall(r"``([a-z0-9_/]+)\.py``", " ".join(docstrings))
    return {name if "/" in name else f"{room}/{name}" for name in named}


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS.keys())
def test_each_file_on_the_way_is_shown_by_the_docstrings_of_those_before_it(walk):
    assert len(walk) <= FILES_IN_A_WALK
    shown = [set().union(*map(files_shown, walk[:at])) for at in range(1, len(walk))]
    assert [file for file, known in zip(walk[1:], shown, strict=True) if file not in known] == []


PAST_IN_THREAD = {"to_thread", "run_in_executor", "set_default_executor", "ThreadPoolExecutor"}


def handed_to_threads(tree: ast.AST) -> set[str]:
    """By which of asyncio's and the library's own ways: they lose a StopIteration, and wait for what hangs."""
    named = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    named |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    return named & PAST_IN_THREAD


@pytest.mark.parametrize("source", ["asyncio.to_thread(f)", "loop.run_in_executor(None, f)"])
def test_a_way_past_in_thread_would_be_found(source):
    assert handed_to_threads(ast.parse(source))


def test_work_is_handed_to_threads_in_one_way_only():
    found = {name: ways for name, tree in TREES.items() if (ways := handed_to_threads(tree))}
    assert found == {"speaker.system.threads": {"run_in_executor"}}, "speaker/system/threads.py has in_thread"
