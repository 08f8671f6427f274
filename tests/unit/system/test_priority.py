"""What keeps the wire process on the CPU: what it asks for, what it takes instead, and who is told of a refusal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from speaker.system.process import Priority, priority_of, refused

TAKE = """
import os, subprocess, sys
from speaker.system.process import priority_of, take_priority
def schedule(process, policy, parameters):
    if policy & os.SCHED_RR and sys.argv[1] == "refused":
        raise PermissionError
    os.sched_setscheduler(process, policy, parameters)
take_priority(schedule)
started = "import os; from speaker.system.process import priority_of; print(priority_of(0).value)"
print(priority_of(0).value, flush=True)
subprocess.run([sys.executable, "-c", started])
"""
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("kernel", "got"), [("lets it", Priority.REAL_TIME), ("refused", Priority.NICE)])
def test_it_takes_what_the_kernel_leaves_it_and_passes_nothing_on(kernel, got):
    try:
        before = os.sched_getscheduler(0)
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        os.sched_setscheduler(0, before, os.sched_param(0))
    except PermissionError:
        pytest.skip("needs the right to real-time priority (CAP_SYS_NICE)")
    done = subprocess.run(
        [sys.executable, "-c", TAKE, kernel], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60
    )
    assert done.stdout.split() == [got.value, Priority.NORMAL.value]


def test_the_priority_of_another_process_is_seen():
    assert priority_of(os.getpid()) is priority_of(0)


@pytest.mark.parametrize(
    ("priority", "may", "told"),
    [
        (Priority.REAL_TIME, True, []),
        (Priority.NORMAL, False, []),  # nobody gave it the right: that is no fault
        (Priority.NICE, True, ["nice"]),
        (Priority.NORMAL, True, ["normal"]),
    ],
)
def test_who_was_given_the_right_for_nothing_is_told(priority, may, told):
    assert [sentence.rsplit(maxsplit=1)[1] for sentence in refused(priority, may=may)] == told
