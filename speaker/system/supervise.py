"""A bug ends only the work in which it occurs: an endless task that ends is reported and started again."""

import asyncio
import inspect
import random
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import wraps
from types import TracebackType
from typing import Any, NoReturn, Protocol, TypeVar, cast

STEADY_SECONDS = 5.0
"""A task that ran for so long starts again with short waits."""
FIRST_WAIT, LONGEST_WAIT = 0.1, 10.0
"""Seconds, a random part of which passes before a task is started again: at first, and after many failures in a row."""
BUGS = Exception, asyncio.CancelledError
"""What a bug may raise in a block without ``await``. Nobody can cancel a task there: a CancelledError is a bug too."""

_WAITS = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_GENERATOR
"""Flags of the functions into which an error can be thrown from outside."""

_T = TypeVar("_T")
_K = TypeVar("_K")
_K_contra = TypeVar("_K_contra", contravariant=True)


class Ended(Exception):
    """Raised for an endless task that returned."""


class Hears(Protocol[_K_contra]):
    """Receives unexpected errors, each with the name of the work in which it occurred."""

    def internal_error(self, task: _K_contra, error: BaseException) -> None: ...


class Supervisor(Hears[str], Protocol):
    """``task`` comes from a closed set of names, because it is a metric label."""


class Failures(dict[_K, Exception]):
    """The errors of work on many things, by the name of the thing. Whoever reads them reports them."""

    def internal_error(self, task: _K, error: BaseException) -> None:
        self[task] = error if isinstance(error, Exception) else Ended(repr(error)).with_traceback(error.__traceback__)


async def supervised(
    task: str,
    work: Callable[[], Awaitable[None]],
    supervisor: Supervisor,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ends: tuple[type[Exception], ...] = (),
) -> NoReturn:
    """Runs ``work``, which never returns by itself, again and again. Ends if cancelled, or with one of ``ends``."""
    loop, failures = asyncio.get_running_loop(), 0
    while True:
        begun = loop.time()
        error = await _ended(asyncio.ensure_future(_begun(work)), task, supervisor, ends)
        if isinstance(error, ends):
            raise error
        report(task, error, supervisor)
        failures = 1 if loop.time() - begun >= STEADY_SECONDS else failures + 1
        del error
        await sleep(wait(failures))


async def _begun(work: Callable[[], Awaitable[None]]) -> None:
    await work()  # what it raises before there is anything to wait for ends it as well


@asynccontextmanager
async def at_work(task: str, work: Callable[[], Awaitable[None]], supervisor: Supervisor) -> AsyncIterator[None]:
    """``supervised`` while the block lasts."""
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(supervised(task, work, supervisor), name=task)
        try:
            yield
        finally:
            running.cancel()


async def lasting(task: str, work: Callable[[], Awaitable[None]]) -> NoReturn:
    """Runs ``work``, which never returns by itself, once. Ends when cancelled, or with what ended the work: ``Ended``
    if it returned or was cancelled from within, because a TaskGroup ignores a child that ends that way."""
    await passing(task, work)
    raise Ended(f"{task} returned")


async def passing(task: str, work: Callable[[], Awaitable[None]]) -> None:
    """Like ``lasting``, for work that may return."""
    try:
        await work()
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        raise Ended(f"{task} was cancelled from within") from error


async def _ended(
    work: "asyncio.Future[None]", task: str, supervisor: Supervisor, ends: tuple[type[Exception], ...]
) -> BaseException:
    """Why the work ended. If this is cancelled, so is the work, and what it raises then is still reported.

    The work is a task of its own, to tell the two apart: a TaskGroup that is cancelled while one of its tasks fails
    raises only that failure.
    """
    try:
        await asyncio.wait((work,))
    except asyncio.CancelledError:
        work.cancel()
        await asyncio.wait((work,))
        error = None if work.cancelled() else work.exception()
        if error is not None and not isinstance(error, ends):
            report(task, error, supervisor)
        raise
    if work.cancelled():
        return _cancelled_from_within(work, task)
    return work.exception() or Ended(f"{task} returned")


def _cancelled_from_within(work: "asyncio.Future[None]", task: str) -> Ended:
    """Its cause shows the place."""
    ended = Ended(f"{task} was cancelled from within")
    try:
        work.result()
    except asyncio.CancelledError as error:
        ended.__cause__ = error
    return ended


def wait(failures: int, first: float = FIRST_WAIT, longest: float = LONGEST_WAIT) -> float:
    """Seconds to wait after so many failures in a row: random, below a bound that doubles with each."""
    return random.uniform(0, min(longest, first * 2.0 ** min(failures, 20)))  # noqa: S311


def report(task: _K, error: BaseException, supervisor: Hears[_K]) -> None:
    """Calls ``supervisor.internal_error`` and never raises: an error in that call is itself reported, if possible."""
    try:
        supervisor.internal_error(task, error)
    except BUGS as another:
        try:
            supervisor.internal_error(cast(_K, "report"), another)
        except BUGS:
            return  # nobody is left to tell


class contained:  # noqa: N801 -- read as a verb; a class, as it is entered for every hello and every order
    """``with contained(TASK, supervisor)``: an error in the block ends the block and is reported; what follows goes on.
    A CancelledError goes through only where somebody asked for it, and only in a coroutine: nobody can cancel a plain
    function, so there it is a bug even while the task around it is being cancelled.

    Each of many things has a block of its own: ``with contained(key, failures)``. What becomes of one that failed is
    written after the block."""

    __slots__ = ("_supervisor", "_task")

    def __init__(self, task: _K, supervisor: Hears[_K]) -> None:
        self._task: Any = task
        self._supervisor: Hears[Any] = supervisor

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        if error is None or not isinstance(error, BUGS):
            return False
        if isinstance(error, asyncio.CancelledError) and _can_be_cancelled(tb) and _is_cancelled():
            return False
        report(self._task, error, self._supervisor)
        return True


def _can_be_cancelled(block: TracebackType | None) -> bool:
    """Whether the function that the block stands in can wait at an ``await``."""
    return block is not None and bool(block.tb_frame.f_code.co_flags & _WAITS)


def _is_cancelled() -> bool:
    """Whether somebody asked the current task to end. Callbacks of the loop have no task."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        return False
    return task is not None and task.cancelling() > 0


def unfailing(target: _T, supervisor: Supervisor) -> _T:
    """``target`` with methods that never raise, so that reporting or counting cannot break what it reports on.
    Errors go to ``supervisor``, and a method that failed returns None."""
    return cast(_T, _Unfailing(target, supervisor))


class _Unfailing:
    """Looks a method up when it is called, as the object itself does."""

    def __init__(self, target: object, supervisor: Supervisor) -> None:
        self._target, self._supervisor = target, supervisor

    def __getattr__(self, name: str) -> Callable[..., Any]:
        target, supervisor = self._target, self._supervisor

        def tell(*arguments: Any, **named: Any) -> Any:
            with contained("count", supervisor):
                return getattr(target, name)(*arguments, **named)
            return None

        setattr(self, name, tell)
        return tell


def never_failing(kind: type[_T]) -> type[_T]:
    """A class decorator. Public methods that return nothing never raise in a loop's thread: the instance, which is a
    ``Supervisor``, hears of the error. In another thread they raise, to whoever waits for the thread."""
    for name in dir(kind):
        method = getattr(kind, name)
        if not name.startswith("_") and inspect.isfunction(method) and _returns_nothing(method):
            setattr(kind, name, _contained(method))
    return kind


def _returns_nothing(method: Callable[..., Any]) -> bool:
    return method.__annotations__.get("return", ...) is None and not inspect.iscoroutinefunction(method)


def _contained(method: Callable[..., None]) -> Callable[..., None]:
    @wraps(method)
    def tell(self: Any, *arguments: Any, **named: Any) -> None:
        with contained("report", self) if asyncio._get_running_loop() is not None else nullcontext():
            method(self, *arguments, **named)

    return tell


def heed_callbacks(supervisor: Supervisor) -> None:
    """Reports errors in callbacks of the running loop like any other bug. asyncio would only log them as plain text,
    and nobody would count them."""

    def failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or Ended(str(context.get("message")))
        if isinstance(error, OSError):  # no bug: no descriptor is left for a connection, say
            loop.default_exception_handler(context)
        else:
            report("callback", error, supervisor)

    asyncio.get_running_loop().set_exception_handler(failed)


def described(error: BaseException) -> tuple[str, str, str]:
    """Its words, place and traceback: for people, and to tell two errors apart."""
    one = single(error)[0]
    return _words(one), _place(one), "".join(traceback.format_exception(one))


def single(error: BaseException) -> list[BaseException]:
    """The errors that a group consists of; of any other error, the error itself."""
    if isinstance(error, BaseExceptionGroup):
        return [part for one in error.exceptions for part in single(one)]
    return [error]


def _words(error: BaseException) -> str:
    notes: list[str] = getattr(error, "__notes__", [])
    return ", ".join((f"{type(error).__name__}: {error}", *notes))[:500]


def _place(error: BaseException) -> str:
    """The same text for every error of this type that comes from this line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"
