"""Tests marked ``ipvs`` run inside one guest per session, whose kernel has IPVS.

User-Mode Linux boots in seconds but has no nftables, so there iptables is the guard. With ``EIP_SPEAKER_GUEST=qemu`` it
is QEMU with Debian's stock kernel, which has both: slow, and the way IPVS runs on real nodes.

The outer pytest boots the guest (see ``guest``) at the first such test with all of them on its command line; the pytest
in there writes each report to a file the outer one then replays, so tracebacks, skips and durations look as if the
tests had run here. A guest that hangs, panics or exits fails the test it was in and those it never came to.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

REPORTS = os.environ.get("EIP_SPEAKER_GUEST_REPORTS")
"""Set inside the guest only: where its pytest leaves its reports."""
KIND = os.environ.get("EIP_SPEAKER_GUEST", "uml")
QEMU = KIND == "qemu"
BOOTS = Path(__file__).with_name("guest-qemu" if QEMU else "guest")
SILENCE = float(os.environ.get("EIP_SPEAKER_GUEST_SILENCE", "180" if QEMU else "60"))
"""Seconds without a new report after which the guest counts as hung."""
BOOT = 180.0 if QEMU else 60.0
"""Seconds a busy machine may take to boot the guest and collect the tests; 3 on an idle one (QEMU: 30)."""
HANDED_ON = ("EIP_SPEAKER_HISTORIES",)
"""Variables that tests in the guest read."""
STARTED = "import speaker.run, speaker.forwarding.ipvs"
"""What the tests run as programs of their own, which collecting them does not import."""
NEEDED = {
    "ipvsadm": "ipvsadm",
    "iptables-legacy": "iptables",
    "ip": "iproute2",
    "modprobe": "kmod",
} | ({"qemu-system-x86_64": "qemu-system-x86", "nft": "nftables"} if QEMU else {"linux.uml": "user-mode-linux"})


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


class Guest:
    """One boot with all the session's ``ipvs`` tests: ``reports`` by node id, and ``end``, how it ended."""

    def __init__(self, session: pytest.Session) -> None:
        nodes = [item.nodeid for item in session.items if item.get_closest_marker("ipvs")]
        self.reports: dict[str, list[pytest.TestReport]] = {node: [] for node in nodes}
        with tempfile.TemporaryDirectory(prefix="eip-speaker-guest-") as name:
            directory = Path(name)
            _prepare(directory, session.config, nodes)
            self.end = self._run(directory)
            for line in (directory / "reports").read_text().splitlines():
                report = session.config.hook.pytest_report_from_serializable(
                    config=session.config, data=json.loads(line)
                )
                if isinstance(report.longrepr, list):  # a skip's (path, line, reason): JSON knows no tuples
                    report.longrepr = tuple(report.longrepr)
                self.reports[report.nodeid].append(report)

    def _run(self, directory: Path) -> str:
        reports, console = directory / "reports", directory / "console"
        reports.touch()
        with console.open("w") as output:
            guest = subprocess.Popen(
                [BOOTS, directory],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a guest is many processes: they go together
            )
            try:
                hung = _is_hung(guest, reports)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(guest.pid, signal.SIGKILL)
                guest.wait()
        why = f"hung: no report in {SILENCE:g} s" if hung else "ended early"
        exit_status = directory / "exit"
        if exit_status.exists():
            why = f"ended: pytest in it exited with {exit_status.read_text().strip()}"
        return f"the guest {why}; the end of its console:\n{console.read_text(errors='replace')[-4000:]}"

    def of(self, item: pytest.Item) -> Iterator[pytest.TestReport]:
        """The item's reports; a failed one in place of what the guest did not live to write."""
        known = self.reports[item.nodeid]
        yield from known
        if not known or known[-1].when != "teardown":
            yield _made_up(item, "failed", f"{'in' if known else 'before'} this test {self.end}")


def _prepare(directory: Path, config: pytest.Config, nodes: list[str]) -> None:
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
    pytest_line += ["--basetemp=/run/pytest", "-o", f"faulthandler_timeout={SILENCE * 0.8:g}", *nodes]
    environment |= {"EIP_SPEAKER_GUEST": KIND, "EIP_SPEAKER_GUEST_REPORTS": "/run/out/reports"}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {name: os.environ[name] for name in HANDED_ON if name in os.environ}
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in environment.items())
    command = directory / "command"
    command.write_text(f"#!/bin/sh\n{exports}\ncd {shlex.quote(str(config.rootpath))}\n{shlex.join(pytest_line)}\n")
    command.chmod(0o755)


def _is_hung(guest: "subprocess.Popen[bytes]", reports: Path) -> bool:
    """Waits until the guest has ended by itself (False) or nothing comes from it any more (True)."""
    size, deadline = 0, time.monotonic() + BOOT + SILENCE
    while True:
        try:
            guest.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            if reports.stat().st_size != size:
                size, deadline = reports.stat().st_size, time.monotonic() + SILENCE
            elif time.monotonic() > deadline:
                return True
        else:
            return False


def _made_up(item: pytest.Item, outcome: str, why: str) -> pytest.TestReport:
    longrepr = (str(item.path), item.location[1] or 0, why) if outcome == "skipped" else why
    return pytest.TestReport(item.nodeid, item.location, dict.fromkeys(item.keywords, 1), outcome, longrepr, "call")


@cache
def _lacking() -> str:
    """What a guest needs and this machine lacks; '' where that is nothing."""
    missing = sorted({package for program, package in NEEDED.items() if not shutil.which(program)})
    if missing:
        return f"apt-get install --no-install-recommends {' '.join(missing)}"
    if QEMU:
        fetched = subprocess.run([BOOTS], capture_output=True, text=True, check=False)
        if fetched.returncode != 0:
            return f"its kernel could not be fetched: {fetched.stderr[-200:]}"
    return ""


def _reports(item: pytest.Item) -> Iterator[pytest.TestReport]:
    if lacking := _lacking():
        why = f"needs a guest whose kernel has IPVS; {lacking}"
        return iter([_made_up(item, "failed" if os.environ.get("CI") else "skipped", why)])
    stash = item.session.stash
    if GUEST not in stash:
        stash[GUEST] = Guest(item.session)
    return stash[GUEST].of(item)


GUEST = pytest.StashKey[Guest]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if REPORTS or not item.get_closest_marker("ipvs"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports(item):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    # The test before this one left standing what it shares with this one, which nobody else would take down.
    item.session._setupstate.teardown_exact(nextitem)
    return True
