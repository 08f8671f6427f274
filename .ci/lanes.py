"""usage: lanes.py COMMAND...

Runs commands of pytest at once, each one word here, and tells whole what each said when it has ended, whatever the
others do. A machine that others share stands still for a moment now and then, and many tests are about moments: up to
``BUDGET`` tests that failed, of all commands together, run once more when nothing else does, and have to pass then.
Where more have failed nothing runs again. What is skipped is counted by its reason and not named one by one: a reader,
and a CI that keeps only a part of what is printed, would find nothing else.

At the end stand a line for each command, the reasons, what failed and why in a line each, what passed in its second
run, how much of the budget that took, and on the last line the sum.

Fails when any command does. One that does so without a failed test, or ends without a report of its tests, counts as
one failure.
"""

import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from xml.etree import ElementTree

PASSED, FAILED, NOT_STARTED = 0, 1, 127
"""What a command exits with: pytest whose tests all passed, or of which some failed; what could not be started."""
QUIET = "-q", "-rfE"
"""Pytest: a dot a test, and at the end only what failed."""
CACHES = ".pytest_cache/lanes"
"""Of each command, by number."""
ALONE = "-p", "xdist", "-n0", "--last-failed", "--last-failed-no-failures=none"
BUDGET = 2
"""Failures of all commands together: more of them are no accident."""
REASONS = 5
FAILURES = 40
COLUMNS = 300
_TELLING = Lock()


@dataclass(frozen=True)
class Ran:
    """What a command did; ``reasons`` are those of its skips, ``failures`` say by test why, in a line."""

    command: str
    seconds: float
    passed: int = 0
    failed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    failures: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""
    tests: frozenset[str] = frozenset()
    once: Mapping[str, str] = field(default_factory=dict)
    """Failures of tests that then passed."""

    def __str__(self) -> str:
        return f"  {self.seconds:4.0f} s  {_sum([self])}  {self.command}{self.trouble}"


def _sum(ran: Sequence[Ran]) -> str:
    passed, failed = sum(one.passed for one in ran), sum(one.failed for one in ran)
    return f"{passed} passed, {failed} failed, {sum(one.reasons.total() for one in ran)} skipped"


def _judge(command: str, seconds: float, status: int, report: Path) -> Ran:
    """What a command did that ended with this status and wrote this report, or none."""
    try:
        suite = next(ElementTree.parse(report).iter("testsuite"))  # noqa: S314  written by our own pytest
    except (OSError, ElementTree.ParseError):
        return Ran(command, seconds, failed=1, trouble=f": no report, exit status {status}")
    tests, failures, errors, skipped = (int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped"))
    reasons = Counter(skip.get("message", "") for skip in suite.iter("skipped"))
    failed = failures + errors or int(status != PASSED)
    trouble = "" if status in (PASSED, FAILED) else f": exit status {status}"
    named, all_of_them = dict(_failures(suite)), frozenset(map(_name, suite.iter("testcase")))
    return Ran(command, seconds, tests - failures - errors - skipped, failed, reasons, named, trouble, all_of_them)


def _failures(suite: ElementTree.Element) -> Iterator[tuple[str, str]]:
    for case in suite.iter("testcase"):
        for why in (*case.iter("failure"), *case.iter("error")):
            message = " ".join(why.get("message", "").split())
            yield _name(case), message


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname')}::{case.get('name')}"


def _run(command: str, number: int, *flags: str) -> Ran:
    """Says whole what the command said. It has a cache of its own: several write theirs at once."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lanes-") as name:
        report, said = Path(name, "report"), Path(name, "said")
        with said.open("wb") as output:
            try:
                words = [
                    *shlex.split(command),
                    *QUIET,
                    "-o",
                    f"cache_dir={CACHES}/{number}",
                    f"--junitxml={report}",
                    *flags,
                ]
                status = subprocess.run(words, stdout=output, stderr=output, check=False).returncode
            except OSError as error:
                output.write(f"{command}: {error}\n".encode())
                status = NOT_STARTED
        with _TELLING, said.open("rb") as output:
            shutil.copyfileobj(output, sys.stdout.buffer)
            sys.stdout.flush()
        return _judge(command, time.monotonic() - begun, status, report)


def _again(first: Ran, number: int) -> Ran:
    """What it is with what has failed run once more."""
    if first.trouble or not first.failures or first.failed != len(first.failures):
        return first
    second = _run(first.command, number, *ALONE)
    if second.trouble or second.reasons or second.tests != first.failures.keys():
        return first
    return replace(
        second,
        seconds=first.seconds + second.seconds,
        passed=first.passed + second.passed,
        reasons=first.reasons,
        once={test: why for test, why in first.failures.items() if test not in second.failures},
    )


def main(commands: Sequence[str]) -> int:
    with ThreadPoolExecutor(len(commands)) as pool:
        ran = list(pool.map(_run, commands, range(len(commands))))
    if sum(one.failed for one in ran) <= BUDGET:
        ran = [_again(one, number) for number, one in enumerate(ran)]
    print("=" * 80, *ran, sep="\n")
    reasons = sum((one.reasons for one in ran), Counter[str]())
    for reason, often in reasons.most_common(REASONS):
        print(f"{often} skipped: {reason}"[:COLUMNS])
    if len(reasons) > REASONS:
        print(f"{len(reasons) - REASONS} more reasons")
    failures = [failure for one in ran for failure in one.failures.items()]
    for test, why in failures[:FAILURES]:
        print(f"FAILED {test}: {why}"[:COLUMNS])
    if len(failures) > FAILURES:
        print(f"{len(failures) - FAILURES} more failed")
    once = [failure for one in ran for failure in one.once.items()]
    for test, why in once:
        print(f"FAILED AT FIRST {test}: {why}"[:COLUMNS])
    print(f"{len(once)} passed in a second run, {BUDGET} may; none is run again where more have failed")
    print(_sum(ran))
    return FAILED if any(one.failed for one in ran) else PASSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
