"""usage: lanes.py LANE... [-- LANE...]...

Runs pytest in lanes, each a command line in one word: those before a ``--`` at once, then those after it. All of them
run and tell whatever the others do: of those at once the last one shows what it says as it goes, the others afterwards,
each whole. What is skipped is counted by its reason and not named one by one: a reader, and a CI that keeps only a part
of what is printed, would find nothing else. The end is a line for each lane, the reasons, whatever failed and why in a
line each, and on the last line the sum.

Fails when any lane does. One that does so without a failed test, or ends without a report of its tests, counts as one
failure.
"""

import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

PASSED, FAILED, NOT_STARTED = 0, 1, 127
"""What a command exits with: pytest whose tests all passed, or of which some failed; what could not be started."""
QUIET = "-q", "-rfE"
"""Pytest: a dot a test, and at the end only what failed."""
REASONS = 5
FAILURES = 40
COLUMNS = 300


@dataclass(frozen=True)
class Lane:
    """What a lane did; ``reasons`` are those of its skips, ``failures`` name a test and say why, in a line each."""

    command: str
    seconds: float
    passed: int = 0
    failed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    failures: tuple[str, ...] = ()
    trouble: str = ""

    def __str__(self) -> str:
        return f"  {self.seconds:4.0f} s  {_sum([self])}  {self.command}{self.trouble}"


def _sum(lanes: Sequence[Lane]) -> str:
    passed, failed = sum(lane.passed for lane in lanes), sum(lane.failed for lane in lanes)
    return f"{passed} passed, {failed} failed, {sum(lane.reasons.total() for lane in lanes)} skipped"


def _judge(command: str, seconds: float, status: int, report: Path) -> Lane:
    """What a command did that ended with this status and wrote this report, or none."""
    try:
        suite = next(ElementTree.parse(report).iter("testsuite"))  # noqa: S314  written by our own pytest
    except (OSError, ElementTree.ParseError):
        return Lane(command, seconds, failed=1, trouble=f": no report, exit status {status}")
    tests, failures, errors, skipped = (int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped"))
    reasons = Counter(skip.get("message", "") for skip in suite.iter("skipped"))
    failed = failures + errors or int(status != PASSED)
    trouble = "" if status in (PASSED, FAILED) else f": exit status {status}"
    named = tuple(_failures(suite))
    return Lane(command, seconds, tests - failures - errors - skipped, failed, reasons, named, trouble)


def _failures(suite: ElementTree.Element) -> Iterator[str]:
    for case in suite.iter("testcase"):
        for why in (*case.iter("failure"), *case.iter("error")):
            message = " ".join(why.get("message", "").split())
            yield f"{case.get('classname')}::{case.get('name')}: {message}"[:COLUMNS]


def _run(command: str, directory: Path, *, shown: bool) -> Lane:
    """Runs the command, which says it to us or, where it is not shown, into the directory."""
    begun, report = time.monotonic(), directory / "report"
    with (directory / "said").open("wb") as said:
        output = None if shown else said
        try:
            words = [*shlex.split(command), *QUIET, f"--junitxml={report}"]
            status = subprocess.run(words, stdout=output, stderr=output, check=False).returncode
        except OSError as error:
            said.write(f"{command}: {error}\n".encode())
            status = NOT_STARTED
    return _judge(command, time.monotonic() - begun, status, report)


def _at_once(commands: Sequence[str]) -> list[Lane]:
    with tempfile.TemporaryDirectory(prefix="lanes-") as name, ThreadPoolExecutor(len(commands)) as pool:
        directories = [Path(name, str(at)) for at in range(len(commands))]
        for directory in directories:
            directory.mkdir()
        shown = [False] * (len(commands) - 1) + [True]
        lanes = list(pool.map(lambda *lane: _run(*lane[:2], shown=lane[2]), commands, directories, shown))
        for directory in directories:
            with (directory / "said").open("rb") as said:
                shutil.copyfileobj(said, sys.stdout.buffer)
        sys.stdout.flush()
    return lanes


def main(arguments: Sequence[str]) -> int:
    rounds = [list(some) for apart, some in groupby(arguments, lambda word: word == "--") if not apart]
    lanes = [lane for commands in rounds for lane in _at_once(commands)]
    print("=" * 80, *lanes, sep="\n")
    reasons = sum((lane.reasons for lane in lanes), Counter[str]())
    for reason, count in reasons.most_common(REASONS):
        print(f"{count} skipped: {reason}"[:COLUMNS])
    if len(reasons) > REASONS:
        print(f"{len(reasons) - REASONS} more reasons")
    failures = [failure for lane in lanes for failure in lane.failures]
    for failure in failures[:FAILURES]:
        print("FAILED", failure)
    if len(failures) > FAILURES:
        print(f"{len(failures) - FAILURES} more failed")
    print(_sum(lanes))
    return FAILED if any(lane.failed for lane in lanes) else PASSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
