"""Edge: what this process may do, how much of the host it uses, and how it stops."""

import asyncio
import os
import resource
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path

_CAP_NET_ADMIN, _CAP_SYS_NICE = 12, 23  # include/uapi/linux/capability.h


def may_administer_network() -> bool:
    """Whether it has CAP_NET_ADMIN: without, the kernel shows neither its nftables nor its IPVS."""
    return _has(_CAP_NET_ADMIN)


def may_be_nice() -> bool:
    """Whether it has CAP_SYS_NICE, which real-time priority takes."""
    return _has(_CAP_SYS_NICE)


def _has(capability: int) -> bool:
    status = Path("/proc/self/status").read_text()
    effective = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    return bool(effective >> capability & 1)


# ── How the wire process keeps the CPU on a busy host: real-time priority, or what the kernel leaves it ─────

REAL_TIME = 1
"""The lowest real-time priority. A busy host would otherwise keep us from the CPU for longer than the self-lease, and
nice(2) counts only among the processes of one session or container (sched(7))."""
NICE = -20


class Priority(Enum):
    """What the wire process got. The value is for people."""

    REAL_TIME = "real-time"
    NICE = "nice"
    NORMAL = "normal"


def take_priority(schedule: Callable[[int, int, os.sched_param], None] = os.sched_setscheduler) -> None:
    """As high as this thread may (CAP_SYS_NICE), but not for processes and threads that it starts (sched(7),
    SCHED_RESET_ON_FORK)."""
    with suppress(OSError):
        schedule(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(REAL_TIME))
        return
    with suppress(OSError):
        schedule(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, NICE)


def priority_of(process: int) -> Priority:
    """Of a thread as well. Raises OSError where there is no such process."""
    if os.sched_getscheduler(process) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR:
        return Priority.REAL_TIME
    return Priority.NICE if os.getpriority(os.PRIO_PROCESS, process) == NICE else Priority.NORMAL


def refused(priority: Priority, *, may: bool) -> tuple[str, ...]:
    """The problem of a process that has CAP_SYS_NICE (``may``), and still got no real-time priority. Pure."""
    if priority is Priority.REAL_TIME or not may:
        return ()
    return (
        "the kernel refuses real-time priority to the wire process in spite of CAP_SYS_NICE, as RT_GROUP_SCHED does "
        "in a cgroup without cpu.rt_runtime_us: kernel.sched_rt_runtime_us=-1 on the host allows it. "
        f"Its priority is {priority.value}",
    )


# ── How many files it may have open, and whose share of them is how large ───────────────────────────────────
#
# A crowd on a listening socket must not take the descriptors that netlink, nft and the speaker's own files need.

WANTED = 65_536
"""More than a speaker ever needs; ports of ``healthCheckNodePort`` soon use up the usual 1024."""


def raise_limit(wanted: int = WANTED) -> None:
    """Raises the limit as far as this process may, but not beyond ``wanted``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted if unlimited else min(hard, wanted)), hard))


def share(parts: int, most: int, least: int = 2) -> int:
    """One of so many equal parts of all descriptors, but at most ``most`` and at least ``least``."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(least, min(most, soft // parts))


# ── How a command stops: SIGTERM from a service manager, SIGINT from a terminal ─────────────────────────────


@contextmanager
def stoppable(hand_over: Callable[[], Awaitable[None]] | None = None) -> Iterator[Callable[[], None]]:
    """Yields a function. Its first call ends the block quietly, after ``hand_over`` if there is one; its second call
    ends the block at once. Leaving every ``with`` inside the block is the shutdown."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    asked = asyncio.Event()
    leaving: list[asyncio.Task[None]] = []

    async def leave() -> None:
        try:
            if hand_over is not None:
                await hand_over()
        finally:
            task.cancel()

    def stop() -> None:
        if asked.is_set():
            task.cancel()
        else:
            asked.set()
            leaving.append(loop.create_task(leave(), name="hand over"))

    try:
        yield stop
    except asyncio.CancelledError:
        if not asked.is_set():
            raise
        task.uncancel()


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """SIGTERM or SIGINT ends the block quietly."""
    loop, numbers = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
    with stoppable() as stop:
        for number in numbers:
            loop.add_signal_handler(number, stop)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
