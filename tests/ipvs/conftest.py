"""Tests marked ``ipvs`` run inside one guest per session, whose kernel has IPVS.

The first kind of guest that boots here is taken. ``EIP_SPEAKER_GUEST`` names the kinds in the order in which they are
tried, with commas between them; those that ``EIP_SPEAKER_GUEST_BROKEN`` names panic at boot, to see what happens then.

- ``uml``: User-Mode Linux, built once from Debian's source (tests/cluster/cluster_kernel.py), boots in seconds.
- ``qemu``: QEMU with Debian's stock kernel, as real nodes have it: slow.

Where no kind boots, because of the processor or of what the machine forbids, the tests are skipped for one reason.
Where only a package or the kernel is missing they are as well; but where ``CI`` is set, one of them fails.

The outer pytest boots the guest (see ``guest``) at the first such test with all of them on its command line; the pytest
in there writes each report to a file the outer one then replays, so tracebacks, skips and durations look as if the
tests had run here. Where a guest hangs, panics or exits, another one runs the test it was in and those it never came
to, which fail if that one does so too. The end of the run tells of the first: its kernel's stacks show whose fault it
was.
"""

import faulthandler
import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

REPORTS = os.environ.get("EIP_SPEAKER_GUEST_REPORTS")
"""Set inside the guest only: where its pytest leaves its reports."""
CI = bool(os.environ.get("CI"))
HANDED_ON = ("EIP_SPEAKER_HISTORIES",)
"""Variables that tests in the guest read."""
STARTED = """
import speaker.commands.serve, speaker.wire.parent, speaker.diagnosis.gather, speaker.telemetry.lateness
import speaker.standalone.run, speaker.agent.source, speaker.controller.run, speaker.forwarding.ipvs.forwarder
"""
"""What the tests run as programs of their own, which collecting them does not import."""
BOOTED = "The guest is up."
"""What its first process says first (see ``guest``): what goes wrong after it is no fault of the machine's."""
CONSOLE, PROCESSES = 16_000, 60_000
"""How much is shown of a guest that hung, in characters: the stacks of all threads of its pytest, and its kernel's."""
NEEDED = {"ipvsadm": "ipvsadm", "nft": "nftables", "ip": "iproute2"}
"""Packages by the program they bring."""


@dataclass(frozen=True)
class Kind:
    """A way to run a kernel of our own; both times are in seconds."""

    name: str
    script: Path
    needed: dict[str, str]
    boot: float
    """What a busy machine may take to boot the guest and collect the tests, 3 on an idle one (QEMU: 30), besides:"""
    silence: float
    """Without a new report for so long the guest counts as hung."""


HERE = Path(__file__).parent
QEMU = {"qemu-system-x86_64": "qemu-system-x86", "modprobe": "kmod"}
SILENCE = os.environ.get("EIP_SPEAKER_GUEST_SILENCE")
KINDS = {
    "uml": Kind("uml", HERE / "guest", NEEDED, boot=180.0, silence=float(SILENCE or 300.0)),
    "qemu": Kind("qemu", HERE / "guest-qemu", NEEDED | QEMU, boot=180.0, silence=float(SILENCE or 400.0)),
}
TRIED = [KINDS[name] for name in os.environ.get("EIP_SPEAKER_GUEST", "uml").split(",")]
BROKEN = os.environ.get("EIP_SPEAKER_GUEST_BROKEN", "").split(",")


# ── Inside the guest ──────────────────────────────────────────────────────────────────────────────────────────


def _note(line: object) -> None:
    """Closed, thus on the host's disk, before anything else happens: the next test may panic the kernel."""
    assert REPORTS is not None
    with Path(REPORTS).open("a") as file:
        file.write(json.dumps(line) + "\n")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if REPORTS:
        _note(item.config.hook.pytest_report_to_serializable(config=item.config, report=report))
    return report


# ── Outside ───────────────────────────────────────────────────────────────────────────────────────────────────


class Unusable(Exception):
    """Raised when no guest came up here; ``blame``, where that is to be a failure nevertheless."""

    def __init__(self, reason: str, *, blame: bool = False) -> None:
        super().__init__(reason)
        self.blame = blame


class Guest:
    """All the session's ``ipvs`` tests in the first ``kind`` of guest that boots: their ``reports`` by node id, how it
    came to its ``end``, and why no kind before it would do, ``passed_over``."""

    def __init__(self, session: pytest.Session) -> None:
        items = [item for item in session.items if item.get_closest_marker("ipvs")]
        nodes = [item.nodeid for item in items]
        self.reports: dict[str, list[pytest.TestReport]] = {node: [] for node in nodes}
        self.passed_over: list[Unusable] = []
        self.lost: list[str] = []
        """How guests ended before their time that another one came after."""
        with tempfile.TemporaryDirectory(prefix="eip-speaker-guest-") as directory:
            for kind in TRIED:
                try:
                    self._run(kind, Path(directory), session.config, nodes)
                except Unusable as why:
                    self.passed_over.append(why)
                else:
                    self.kind = kind
                    return
        reasons = "; ".join(map(str, self.passed_over))
        blame = any(why.blame for why in self.passed_over)
        raise Unusable(f"needs a guest whose kernel has IPVS; {reasons}", blame=blame)

    def _run(self, kind: Kind, directory: Path, config: pytest.Config, nodes: Sequence[str]) -> None:
        _lacks_nothing(kind)
        self._run_in_one(kind, directory, config, nodes)
        left = [node for node in nodes if not self._is_done(node)]
        if left and not (directory / "exit").exists():
            self.lost.append(f"{'in' if self.reports[left[0]] else 'before'} {left[0]} {self.end}")
            self.reports |= {node: [] for node in left}
            try:
                self._run_in_one(kind, directory, config, left)
            except Unusable as why:
                self.end = f"a guest was lost, and the next one: {why}"

    def _run_in_one(self, kind: Kind, directory: Path, config: pytest.Config, nodes: Sequence[str]) -> None:
        _prepare(directory, kind, config, nodes)
        self.end = _boot(directory, kind)
        for line in (directory / "reports").read_text().splitlines():
            report = config.hook.pytest_report_from_serializable(config=config, data=json.loads(line))
            if isinstance(report.longrepr, list):  # a skip's (path, line, reason): JSON knows no tuples
                report.longrepr = tuple(report.longrepr)
            self.reports[report.nodeid].append(report)

    def _is_done(self, node: str) -> bool:
        return bool(known := self.reports[node]) and known[-1].when == "teardown"

    def of(self, item: pytest.Item) -> Iterator[pytest.TestReport]:
        """The item's reports; a failed one in place of what the guest did not live to write."""
        known = self.reports[item.nodeid]
        yield from known
        if not self._is_done(item.nodeid):
            yield _made_up(item, "failed", f"{'in' if known else 'before'} this test {self.end}")
            self.end = self.end.partition(";")[0]  # its console is shown once


class NoGuest:
    """Stands for the guest where there is none: its tests are skipped for one reason, or the first fails and the others
    are skipped."""

    def __init__(self, why: Unusable) -> None:
        self.reason, self.outcome = str(why), "failed" if why.blame else "skipped"

    def of(self, item: pytest.Item) -> Iterator[pytest.TestReport]:
        yield _made_up(item, self.outcome, self.reason)
        self.outcome = "skipped"


def _lacks_nothing(kind: Kind) -> None:
    """Raises Unusable where the machine lacks what the kind needs."""
    if platform.machine() != "x86_64":
        raise Unusable(f"{kind.name}: not for {platform.machine()}")
    if missing := sorted({package for program, package in kind.needed.items() if not shutil.which(program)}):
        install = f"apt-get install --no-install-recommends {' '.join(missing)}"
        raise Unusable(f"{kind.name}: {install}", blame=CI)
    faulthandler.cancel_dump_traceback_later()  # of the test that waits for all: in there each has a limit of its own
    made = subprocess.run([kind.script], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise Unusable(f"{kind.name}: its kernel is not to be had: {_last_words(made.stderr)}", blame=CI)


def _boot(directory: Path, kind: Kind) -> str:
    """How the guest ended that ran the directory's command; raises Unusable where it did not come so far."""
    console = directory / "console"
    (directory / "reports").write_text("")
    for left_by_another in ("hung", "told", "exit"):
        (directory / left_by_another).unlink(missing_ok=True)
    with console.open("w") as output:
        guest = subprocess.Popen(
            [kind.script, directory],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | ({"GUEST_BROKEN": "yes"} if kind.name in BROKEN else {}),
            start_new_session=True,  # a guest is many processes: they go together
        )
        try:
            hung = _is_hung(guest, directory / "reports", kind.boot, kind.silence)
            waiting = _what_it_waits_for(directory) if hung else ""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(guest.pid, signal.SIGKILL)
            guest.wait()
    said = console.read_text(errors="replace")
    if BOOTED not in said:
        raise Unusable(f"{kind.name}: does not boot here{' in time' * hung}: {_last_words(said)}")
    why = f"hung: no report in {kind.silence:g} s" if hung else "ended early"
    exit_status = directory / "exit"
    if exit_status.exists():
        why = f"ended: pytest in it exited with {exit_status.read_text().strip()}"
    return f"the guest {why}; the end of its console:\n{said[-CONSOLE:]}{waiting}"


def _what_it_waits_for(directory: Path) -> str:
    """Its processes' places in its kernel, where it can still say so."""
    (directory / "hung").touch()
    for _ in range(200):
        if (directory / "told").exists():
            return f"\nits processes:\n{(directory / 'processes').read_text(errors='replace')[-PROCESSES:]}"
        time.sleep(0.1)
    return "\nit does not say what its processes do"


def _last_words(console: str) -> str:
    """Of a kernel that panicked, the line in which it says so and the one before it, which says why."""
    before, panic, after = console.rstrip().partition("Kernel panic")
    lines = [*before.splitlines()[-1:], *(panic + after).splitlines()[:1]]
    return ": ".join(line.strip() for line in lines)[-200:] or "it says nothing"


def _prepare(directory: Path, kind: Kind, config: pytest.Config, nodes: Sequence[str]) -> None:
    """Write the guest's command, and all its bytecode: compiling is slow in there, where nothing can be kept."""
    cache = getattr(config, "cache", None)  # missing with -p no:cacheprovider
    bytecode = cache.mkdir("guest-bytecode") if cache else directory / "bytecode"
    environment = {"PYTHONPYCACHEPREFIX": str(bytecode), "HYPOTHESIS_STORAGE_DIRECTORY": "/run/hypothesis"}
    pytest_line = [sys.executable, "-m", "pytest", f"--rootdir={config.rootpath}", "-p", "no:cacheprovider"]
    if config.inipath:
        pytest_line += ["-c", str(config.inipath)]
    for line in ([*pytest_line, "--collect-only", "-q", *nodes], [sys.executable, "-c", STARTED]):
        subprocess.run(
            line,
            cwd=config.rootpath,
            env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | environment,
            stdout=subprocess.DEVNULL,
            check=False,  # whatever is wrong, the guest's console will show it
        )
    pytest_line += ["-o", f"faulthandler_timeout={kind.silence * 0.8:g}", "-o", "faulthandler_exit_on_timeout=false"]
    pytest_line += ["--basetemp=/run/pytest", *nodes]
    environment |= {"EIP_SPEAKER_GUEST": kind.name, "EIP_SPEAKER_GUEST_REPORTS": "/run/out/reports"}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {name: os.environ[name] for name in HANDED_ON if name in os.environ}
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in environment.items())
    command = directory / "command"
    command.write_text(f"#!/bin/sh\n{exports}\ncd {shlex.quote(str(config.rootpath))}\n{shlex.join(pytest_line)}\n")
    command.chmod(0o755)


def _is_hung(guest: "subprocess.Popen[bytes]", reports: Path, boot: float, silence: float) -> bool:
    """Waits until the guest has ended by itself (False) or nothing comes from it any more (True)."""
    size, deadline = 0, time.monotonic() + boot + silence
    while True:
        try:
            guest.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            if reports.stat().st_size != size:
                size, deadline = reports.stat().st_size, time.monotonic() + silence
            elif time.monotonic() > deadline:
                return True
        else:
            return False


def _made_up(item: pytest.Item, outcome: str, why: str) -> pytest.TestReport:
    longrepr = (str(HERE), None, why) if outcome == "skipped" else why  # one place: pytest tells them in one line
    return pytest.TestReport(item.nodeid, item.location, dict.fromkeys(item.keywords, 1), outcome, longrepr, "call")


def _guest(session: pytest.Session) -> Guest | NoGuest:
    stash = session.config.stash
    if GUEST not in stash:
        try:
            stash[GUEST] = Guest(session)
        except Unusable as why:
            stash[GUEST] = NoGuest(why)
    return stash[GUEST]


GUEST = pytest.StashKey[Guest | NoGuest]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if REPORTS or not item.get_closest_marker("ipvs"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _guest(item.session).of(item):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    # The test before this one left standing what it shares with this one, which nobody else would take down.
    item.session._setupstate.teardown_exact(nextitem)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties if report.when == "call" else ():
                terminalreporter.write_line(f"{name}: {value}")
    guest = config.stash.get(GUEST, None)
    if isinstance(guest, Guest) and guest.passed_over:
        terminalreporter.section("the guest")
        terminalreporter.line(f"{guest.kind.name}, since {'; '.join(map(str, guest.passed_over))}")
    if isinstance(guest, Guest) and guest.lost:
        terminalreporter.section("a guest was lost, another one booted")
        terminalreporter.line("\n".join(guest.lost))
