"""Python imports this before anything else in each process that has this directory in PYTHONPATH: faults, planted into
a speaker from outside.

``$SPEAKER_FAULTS`` names a directory with two files. ``places`` says what is planted, a line each, as ``fault_plan.py``
writes it: functions by ``module:name``, perhaps ``@`` and what one argument must read as, perhaps ``!`` and what is
raised, and constants by ``module:NAME=number``. ``switches`` is shared memory, a word for each function in each part:
how often it is to raise from now on, how often it has, what it raises and in which process, and how often it has not
raised, by process. So a fault begins and ends from one instruction to the next, in a speaker that was well until then,
and none of the speaker's own lines knows of it.
"""

import ast
import builtins
import marshal
import mmap
import os
import sys
from collections import defaultdict
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path

from instrument import ALWAYS, FAULT, KINDS, ORDERS, PASSED, PROCESSES, RAISED, planted

READABLE = {"str", "IPv4Address", "IPv6Address", "ServiceKey"}
"""Types of arguments that can be what a fault is about."""


class Injected(TypeError):
    """Nobody expects it, as with any mistake of ours."""


def error(kind: str, words: str) -> BaseException:
    if kind == "CancelledError":
        from asyncio.exceptions import CancelledError  # where the speaker has not, nobody needs it

        return CancelledError(words)
    if kind == "EdgeError":
        from speaker.errors import EdgeError

        return EdgeError(words)
    if kind == "OSError":
        return OSError(5, words)
    return Injected(words) if kind == "TypeError" else getattr(builtins, kind)(words)


class Plan:
    """What ``directory`` says."""

    def __init__(self, directory: Path) -> None:
        self.code = directory / "code"
        self.lines: list[str] = []
        self.numbers: dict = defaultdict(lambda: defaultdict(list))
        """Module → function → its lines: one, and one more for each EIP or Service that it may be about."""
        self.constants: dict = defaultdict(dict)
        for line in (directory / "places").read_text().splitlines():
            module, _, name = line.partition(":")
            if "=" in name:
                self.constants[module][name.partition("=")[0]] = float(name.partition("=")[2])
            else:
                self.numbers[module][name.partition("!")[0].partition("@")[0]].append(len(self.lines))
                self.lines.append(line)
        with (directory / "switches").open("r+b") as file:
            memory = memoryview(mmap.mmap(file.fileno(), 0)).cast("I")
        size = max(1, len(self.lines))
        self.parts = [memory[size * part : size * (part + 1)] for part in range(PASSED + len(PROCESSES))]
        self._process = 1 if "EIP_SPEAKER_WIRE" in os.environ else 2
        os.register_at_fork(after_in_child=self._become_main)
        self._fail: dict = {}

    def plant(self) -> None:
        # Where each instrumented line finds them, whatever its module imports.
        builtins.__orders__ = self.parts[ORDERS]
        builtins.__passed__ = self.parts[PASSED + self._process - 1]
        builtins.__raise__ = self.raise_ordered
        sys.meta_path.insert(0, self)

    def _become_main(self) -> None:
        self._process = 1
        builtins.__passed__ = self.parts[PASSED]

    def raise_ordered(self, number: int, values: dict) -> None:
        """The function of that number has been ordered to raise: if it is for this process, and about these values."""
        line, (process, kind) = self.lines[number], divmod(self.parts[FAULT][number], 8)
        place, _, named = line.partition("!")
        about = place.partition("@")[2]
        if process not in (0, self._process) or (about and not _concerned(about, values)):
            return
        left = self.parts[ORDERS][number]
        if left != ALWAYS:
            self.parts[ORDERS][number] = max(0, left - 1)
        self.parts[RAISED][number] += 1
        self._fails_at(line)(error(named or KINDS[kind], f"injected at {line}"))

    def _fails_at(self, line: str):
        """Raises from a line of its own: a speaker tells errors apart by where they were raised."""
        if line not in self._fail:
            names: dict = {}
            exec(compile("def fail(error):\n    raise error", f"planted at {line}", "exec"), names)  # noqa: S102
            self._fail[line] = names["fail"]
        return self._fail[line]

    def find_spec(self, name, path, target=None):
        """As a finder of ``sys.meta_path``."""
        if name not in self.numbers and name not in self.constants:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = Loader(self, spec.loader.name, spec.loader.path)
        return spec


def _concerned(about: str, values: dict) -> bool:
    """The EIP or Service, or its object, is among the values."""
    parts = [
        part for one in values.values() for part in (one, getattr(one, "address", None), getattr(one, "key", None))
    ]
    return any(type(part).__name__ in READABLE and str(part) == about for part in parts)


class Loader(SourceFileLoader):
    """Of one module with what is planted into it. It is compiled once: each process that follows reads that."""

    def __init__(self, plan: Plan, name: str, path: str) -> None:
        super().__init__(name, path)
        self._plan = plan

    def get_code(self, name):
        compiled = self._plan.code / name
        if compiled.exists():
            return marshal.loads(compiled.read_bytes())  # noqa: S302 -- our own
        tree = planted(ast.parse(self.get_data(self.path)), self._plan.numbers[name], self._plan.constants[name])
        code = compile(tree, self.path, "exec", dont_inherit=True)
        draft = compiled.with_name(f"{name}.{os.getpid()}")
        draft.write_bytes(marshal.dumps(code))
        draft.replace(compiled)
        return code


if "SPEAKER_FAULTS" in os.environ:
    Plan(Path(os.environ["SPEAKER_FAULTS"])).plant()
