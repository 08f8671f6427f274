"""How the simulation is made: one way to inflict each fault, and modules that can be read one after the other."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import simulation
from simulation.faults import FAULTS
from simulation.schedule import Kind

ROOM = Path(simulation.__file__).parent


def test_every_kind_of_fault_can_be_inflicted() -> None:
    assert set(FAULTS) == set(Kind)


def test_no_module_of_the_simulation_needs_one_that_needs_it() -> None:
    TopologicalSorter({module(path): needs(path) for path in ROOM.rglob("*.py")}).prepare()


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOM.parent).with_suffix("").parts).removesuffix(".__init__")


def needs(path: Path) -> set[str]:
    """Imports for types' sake as well."""
    found = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    named = {node.module for node in found} | {f"{node.module}.{name.name}" for node in found for name in node.names}
    return named - {module(path)}
