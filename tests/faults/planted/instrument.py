"""A module's code with switches in it: a function looks at its own when it begins, an endless one also at each turn.

Pure. ``fault_plan.py`` lists functions by it, and ``sitecustomize.py`` plants by it, so that both have the same names:
``Class.method``, and ``outer.inner`` for a function within another.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

ALWAYS = 0xFFFF_FFFF
ORDERS, RAISED, FAULT, PASSED = range(4)
"""Parts of the shared memory; PASSED has one for each process."""
PROCESSES = ("main", "wire")
KINDS = ("TypeError", "Exception", "OSError", "CancelledError", "StopIteration", "MemoryError", "EdgeError")
"""Of these TypeError is raised as ``Injected``. FAULT: the kind, and eight times the process, from one; 0 is any."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, Function]]:
    """Every function of a module, with its name; several may have one (a property and its setter)."""
    for node in ast.iter_child_nodes(tree):
        named = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        name = f"{within}{node.name}" if named else ""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield name, node
        yield from functions(node, f"{name}." if named else within)


def planted(tree: ast.Module, numbers: Mapping[str, Sequence[int]], constants: Mapping[str, float]) -> ast.Module:
    """``tree`` with the switches of each function and the values of each constant. Changes it in place."""
    for name, function in functions(tree):
        for number in numbers.get(name, ()):
            _plant(function, number)
    tree.body = [one for statement in tree.body for one in (statement, *_values(statement, constants))]
    return ast.fix_missing_locations(tree)


def _plant(function: Function, number: int) -> None:
    own = [*_own(function)]
    endless = isinstance(function, ast.AsyncFunctionDef) or any(isinstance(node, ast.Yield) for node in own)
    for node in own:
        if endless and isinstance(node, (ast.While, ast.AsyncFor)):
            node.body[:0] = _check(number, node)
    docstring = ast.get_docstring(function) is not None
    function.body[docstring:docstring] = _check(number, function.body[0])


def _own(function: Function) -> Iterator[ast.AST]:
    """What is in it, but for what is in a function or class within."""
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    pending: list[ast.AST] = [*function.body]
    while pending:
        node = pending.pop()
        if not isinstance(node, inner):
            yield node
            pending.extend(ast.iter_child_nodes(node))


def _check(number: int, beside: ast.AST) -> list[ast.stmt]:
    lines = ast.parse(f"if __orders__[{number}]: __raise__({number}, locals())\n__passed__[{number}] += 1").body
    for line in lines:
        for node in ast.walk(line):
            ast.copy_location(node, beside)
    return lines


def _values(statement: ast.stmt, constants: Mapping[str, float]) -> Iterator[ast.stmt]:
    """What follows a statement that gives ``constants`` their values."""
    for node in ast.walk(statement) if isinstance(statement, (ast.Assign, ast.AnnAssign)) else ():
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in constants:
            yield from ast.parse(f"{node.id} = {constants[node.id]!r}").body
