"""Python imports this before anything else in each process that has this directory in PYTHONPATH: faults, planted into
a speaker from outside.

``$SPEAKER_FAULTS`` names a directory with two files. ``places`` says what is planted, a line each, as ``fault_plan.py``
writes it: functions by ``module:name``, perhaps ``@`` and what one argument must read as, perhaps ``!CancelledError``,
and constants by ``module:NAME=number``. ``switches`` is shared memory: for each function how often it is to raise from
now on, how often it has, and how often it has not. So a fault begins and ends from one instruction to the next, in a
speaker that was well until then, and none of the speaker's own lines knows of it.
"""

import ast
import functools
import importlib
import importlib.abc
import importlib.util
import inspect
import mmap
import os
import sys
from collections import defaultdict
from contextlib import aclosing
from pathlib import Path

ALWAYS = 0xFFFF_FFFF
READABLE = {"str", "IPv4Address", "IPv6Address", "ServiceKey"}
"""Types of arguments that can be what a fault is about."""


class Injected(TypeError):
    """Nobody expects it, as with any mistake of ours."""


class Function:
    """One that raises when it is told to."""

    def __init__(self, number: int, line: str, switches: memoryview) -> None:
        self.line = line
        line, _, kind = line.partition("!")
        self._cancelled = kind == "CancelledError"
        place, _, self.about = line.partition("@")
        self.module, _, self.name = place.partition(":")
        self._switches, self._orders, self._raised, self._passed = switches, *range(3 * number, 3 * number + 3)
        # From a line of its own: a speaker tells errors apart by where they were raised.
        names: dict = {}
        exec(compile("def fail(error):\n    raise error", f"planted at {self.line}", "exec"), names)  # noqa: S102
        self._fail = names["fail"]

    def passed(self, arguments: tuple, named: dict) -> None:
        """Somebody calls it, or it goes on."""
        left = self._switches[self._orders]
        if not left or (self.about and not self._concerned((*arguments, *named.values()))):
            self._switches[self._passed] = (self._switches[self._passed] + 1) % ALWAYS
            return
        if left != ALWAYS:
            self._switches[self._orders] = left - 1
        self._switches[self._raised] += 1
        kind = importlib.import_module("asyncio").CancelledError if self._cancelled else Injected
        self._fail(kind(f"injected at {self.line}"))

    def _concerned(self, arguments: tuple) -> bool:
        parts = [part for one in arguments for part in (one, getattr(one, "address", None), getattr(one, "key", None))]
        return any(type(part).__name__ in READABLE and str(part) == self.about for part in parts)

    def plant(self, names: dict) -> None:
        """``names``: of its module. One that is not there is left out, and never raises: the test says so."""
        *classes, last = self.name.split(".")
        owner = names
        for each in classes:
            found = owner.get(each) if isinstance(owner, dict) else vars(owner).get(each)
            if found is None:
                return
            owner = found
        held = owner.get(last) if isinstance(owner, dict) else vars(owner).get(last)
        if held is None:
            return
        if isinstance(held, (staticmethod, classmethod)):
            planted = type(held)(self._around(held.__func__))
        elif isinstance(held, property):
            planted = property(self._around(held.fget), held.fset)
        else:
            planted = self._around(held)
        if isinstance(owner, dict):
            owner[last] = planted
        else:
            setattr(owner, last, planted)

    def _around(self, function):
        if inspect.isasyncgenfunction(function):

            @functools.wraps(function)
            async def around(*arguments, **named):
                self.passed(arguments, named)
                async with aclosing(function(*arguments, **named)) as items:
                    async for item in items:
                        self.passed(arguments, named)
                        yield item

        elif inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def around(*arguments, **named):
                self.passed(arguments, named)
                return await function(*arguments, **named)

        else:

            @functools.wraps(function)
            def around(*arguments, **named):
                self.passed(arguments, named)
                return function(*arguments, **named)

        return around


class Constant:
    def __init__(self, line: str) -> None:
        place, _, value = line.partition("=")
        self.module, _, self.name = place.partition(":")
        self.value = float(value)

    def plant(self, names: dict) -> None:
        names[self.name] = self.value


class Loader(importlib.abc.Loader):
    """What it stands for, and after it the planting. The rest of the methods: for ``python -m``."""

    def __init__(self, loader, planted) -> None:
        self._loader, self._planted = loader, planted

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module) -> None:
        self._loader.exec_module(module)
        for each in self._planted:
            each.plant(vars(module))

    def get_code(self, name):
        """Of a module that is run by ``python -m``: planted before its last lines call anything."""
        tree = ast.parse(self._loader.get_source(name))
        end = next(at for at, one in enumerate(tree.body) if isinstance(one, ast.If) and "__name__" in ast.dump(one))
        tree.body[end:end] = ast.parse(f"__import__('sitecustomize').plant({name!r}, globals())").body
        return compile(tree, self._loader.get_filename(name), "exec")


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self, planted: dict) -> None:
        self._planted = planted

    def find_spec(self, name, path, target=None):
        if name not in self._planted:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)) is not None:
                spec.loader = Loader(spec.loader, self._planted[name])
                return spec
        return None


PLANTED: dict = defaultdict(list)
"""By module."""


def plant(module: str, names: dict) -> None:
    for each in PLANTED[module]:
        each.plant(names)


def begin(directory: Path) -> None:
    with (directory / "switches").open("r+b") as file:
        switches = memoryview(mmap.mmap(file.fileno(), 0)).cast("I")
    number = 0
    for line in (directory / "places").read_text().splitlines():
        if "=" in line:
            one = Constant(line)
        else:
            one = Function(number, line, switches)
            number += 1
        PLANTED[one.module].append(one)
    PLANTED.default_factory = None
    sys.meta_path.insert(0, Finder(PLANTED))


if "SPEAKER_FAULTS" in os.environ:
    begin(Path(os.environ["SPEAKER_FAULTS"]))
