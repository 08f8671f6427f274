"""Switches planted into the code of a module: it does what it did, and raises when it is told to."""

import ast
import asyncio
from inspect import cleandoc

import pytest
from planted.instrument import functions, planted

MODULE = cleandoc(
    '''
    FIRST, SECOND = 1.0, 2.0

    def plain(x):
        """What it says."""
        return x + FIRST

    class A:
        @property
        def value(self):
            return [inner() for inner in [lambda: 3]]

        def outer(self):
            def inner():
                return "inner"
            return inner()

    def items():
        while True:
            yield 1

    async def turns(seen):
        while True:
            seen.append(1)
            await sleep(0)
    '''
)
NAMES = ["plain", "A.value", "A.outer", "A.outer.inner", "items", "turns"]


class Told(Exception):
    """Raised by a function that was ordered to."""


def run(**constants):
    """The module's names, its orders, and how often each function was passed."""
    orders, passed = [0] * len(NAMES), [0] * len(NAMES)

    def fail(number, values):
        raise Told(NAMES[number], values)

    tree = planted(ast.parse(MODULE), {name: [number] for number, name in enumerate(NAMES)}, constants)
    names = {"__orders__": orders, "__passed__": passed, "__raise__": fail, "sleep": asyncio.sleep}
    exec(compile(tree, "module", "exec"), names)  # noqa: S102
    return names, orders, passed


def test_every_function_is_found_by_its_name():
    assert [name for name, _ in functions(ast.parse(MODULE))] == NAMES


def test_without_an_order_it_does_what_it_did_and_is_counted():
    names, _, passed = run()
    assert names["plain"](1) == 2.0
    assert names["plain"].__doc__ == "What it says."
    assert names["A"]().value == [3]
    assert names["A"]().outer() == "inner"
    assert passed == [1, 1, 1, 1, 0, 0]


def test_with_an_order_it_raises_and_its_arguments_are_known():
    names, orders, passed = run()
    orders[0] = 1
    with pytest.raises(Told) as told:
        names["plain"](7)
    assert told.value.args == ("plain", {"x": 7})
    assert passed[0] == 0


def test_a_function_within_another_raises_alone():
    names, orders, passed = run()
    orders[3] = 1
    with pytest.raises(Told):
        names["A"]().outer()
    assert passed[2] == 1


def test_a_generator_that_has_begun_raises_at_its_next_turn():
    names, orders, _ = run()
    items = names["items"]()
    next(items)
    orders[4] = 1
    with pytest.raises(Told):
        next(items)


async def test_an_endless_coroutine_that_has_begun_raises_at_its_next_turn():
    names, orders, _ = run()
    seen: list[int] = []
    task = asyncio.ensure_future(names["turns"](seen))
    await asyncio.sleep(0)
    assert seen
    orders[5] = 1
    with pytest.raises(Told):
        await task


def test_a_constant_has_the_value_that_was_planted_from_its_own_line_on():
    names, *_ = run(SECOND=9.5)
    assert (names["FIRST"], names["SECOND"]) == (1.0, 9.5)
