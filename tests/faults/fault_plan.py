"""The other side of ``planted/sitecustomize.py``: what is planted into one speaker, and its switches."""

import ast
import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from planted.instrument import ALWAYS, FAULT, KINDS, ORDERS, PASSED, PROCESSES, RAISED, functions

import speaker

PLANTED = Path(__file__).with_name("planted")


class Switches:
    """``with Switches(directory, places) as switches: …``; what starts with ``environment`` has the faults."""

    def __init__(self, directory: Path, places: Sequence[str], constants: Mapping[str, float]) -> None:
        self._numbers = {place: number for number, place in enumerate(places)}
        self._directory = directory
        (directory / "code").mkdir(parents=True)
        lines = [*places, *(f"{name}={value}" for name, value in constants.items())]
        (directory / "places").write_text("".join(f"{line}\n" for line in lines))
        size = max(1, len(places))
        (directory / "switches").write_bytes(bytes(4 * size * (PASSED + len(PROCESSES))))
        with (directory / "switches").open("r+b") as file:
            memory = memoryview(mmap.mmap(file.fileno(), 0)).cast("I")
        self._parts = [memory[size * part : size * (part + 1)] for part in range(PASSED + len(PROCESSES))]

    @property
    def environment(self) -> Mapping[str, str]:
        return {"PYTHONPATH": str(PLANTED), "SPEAKER_FAULTS": str(self._directory)}

    def raised(self, place: str) -> int:
        """How often, so far."""
        return self._parts[RAISED][self._numbers[place]]

    def passed(self, place: str) -> int:
        """How often it did what it is there for, so far."""
        return sum(part[self._numbers[place]] for part in self._parts[PASSED:])

    def counts(self, process: str) -> Mapping[str, int]:
        """How often each did so in that process, so far."""
        part = self._parts[PASSED + PROCESSES.index(process)]
        return dict(zip(self._numbers, part, strict=False))

    def order(self, place: str, times: int, kind: str = "TypeError", process: str | None = None) -> None:
        """To be raised so often from now on; ``process`` None: in whichever."""
        number = self._numbers[place]
        where = 0 if process is None else 1 + PROCESSES.index(process)
        self._parts[FAULT][number] = KINDS.index(kind) + 8 * where
        self._parts[ORDERS][number] = times

    @contextmanager
    def always(self, place: str) -> Iterator[None]:
        self.order(place, ALWAYS)
        try:
            yield
        finally:
            self.order(place, 0)


def every_function() -> list[str]:
    """Of the speaker, as places."""
    root = Path(speaker.__file__).parent
    found: dict[str, None] = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found |= {f"{module}:{name}": None for name, _ in functions(ast.parse(path.read_text()))}
    return list(found)
