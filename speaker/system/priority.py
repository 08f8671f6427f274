"""How the wire process keeps the CPU on a busy host: real-time priority, or what the kernel leaves it."""

import os
from collections.abc import Callable
from contextlib import suppress
from enum import Enum

REAL_TIME = 1
"""The least of the real-time ones. A busy host would otherwise keep us from the CPU for longer than the self-lease, and
nice(2) counts only among the processes of one session or container (sched(7))."""
NICE = -20


class Priority(Enum):
    """What the wire process got. The value is what people are told."""

    REAL_TIME = "real-time"
    NICE = "nice"
    NORMAL = "normal"


def take_priority(schedule: Callable[[int, int, os.sched_param], None] = os.sched_setscheduler) -> None:
    """As high as this thread may (CAP_SYS_NICE), without what it starts (sched(7), SCHED_RESET_ON_FORK): neither
    processes nor threads."""
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
    """The problem of who was given CAP_SYS_NICE (``may``) for nothing. Pure."""
    if priority is Priority.REAL_TIME or not may:
        return ()
    return (
        "the kernel refuses real-time priority to the wire process in spite of CAP_SYS_NICE, as RT_GROUP_SCHED does "
        "in a cgroup without cpu.rt_runtime_us: kernel.sched_rt_runtime_us=-1 on the host lets it. "
        f"Its priority is {priority.value}",
    )
