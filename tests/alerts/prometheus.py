"""Debian's Prometheus, which scrapes what a lab run tells while that runs, and is asked what the dashboard asks."""

import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import isfinite
from pathlib import Path
from typing import Any

import yaml
from playing import ROOT

DASHBOARD = json.loads((ROOT / "manifests" / "dashboard" / "grafana.json").read_text())
WHAT_GRAFANA_PUTS_IN = {"$__rate_interval": "10m", "$__interval": "5s", "$__range": "10m", "$job": ".*"}
"""Ranges are longer than any run: what happened once in it counts. An interval is what numbers are compared over."""
GUARD = 180.0
"""Seconds; against a hang, not an expectation."""

OF_BUGS = {"eip_speaker_internal_errors_total", "eip_speaker_controller_internal_errors_total"}
"""What a healthy program never tells."""
NOT_ON_A_LAN = OF_BUGS | {
    "eip_speaker_api_up",
    "eip_speaker_controller_api_errors_total",
    "eip_speaker_controller_api_request_seconds_bucket",
    "eip_speaker_controller_leads",
    "eip_speaker_controller_writes_waiting",
    "eip_speaker_edge_errors_total",
    "eip_speaker_failover_seconds_bucket",
    "eip_speaker_failover_seconds_count",
    "eip_speaker_failover_seconds_sum",
    "eip_speaker_hand_overs_total",
}
NOT_IN_A_CLUSTER = OF_BUGS | {
    "eip_speaker_eips_by_nobody",
    "eip_speaker_frozen_total",
    "eip_speaker_services_refused",
}
"""What does not happen in the one lab run, and does in the other."""

Targets = Mapping[tuple[str, str], Callable[[], str]]
"""Job and instance → what that tells now; whatever it raises is a target that is down."""


def missing() -> str:
    return "" if shutil.which("prometheus") else "no prometheus: apt-get install prometheus"


def questions() -> Iterator[tuple[str, str]]:
    """Every panel of the dashboard, with what it asks."""
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            asked = target["expr"]
            for variable, value in WHAT_GRAFANA_PUTS_IN.items():
                asked = asked.replace(variable, value)
            yield panel["title"], asked


class Prometheus:
    def __init__(self, port: int) -> None:
        self._port, self._begun = port, time.time()
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, expression: str) -> list[float]:
        """All values of all series since it was started."""
        asked = {"query": expression, "start": self._begun, "end": time.time(), "step": 1}
        with closing(HTTPConnection("127.0.0.1", self._port, timeout=GUARD)) as connection:
            connection.request("GET", f"/api/v1/query_range?{urllib.parse.urlencode(asked)}")
            told = json.load(connection.getresponse())
        assert told["status"] == "success", (expression, told)
        return [float(value) for series in told["data"]["result"] for _, value in series["values"]]

    def until(self, expression: str) -> None:
        """It has an answer: at first Prometheus takes five seconds to look at anything."""
        deadline = time.monotonic() + GUARD
        while not self.ask(expression):
            assert time.monotonic() < deadline, expression
            time.sleep(0.2)

    def unanswered(self) -> set[str]:
        """What the dashboard asks about and gets no number for: the metrics."""
        silent = (asked for _, asked in questions() if not any(map(isfinite, self.ask(asked))))
        return {name for asked in silent for name in re.findall(r"eip_speaker_\w+", asked)}


@contextmanager
def prometheus(home: Path, targets: Targets, scrapes: str = "1s") -> Iterator[Prometheus]:
    """One that scrapes ``targets`` so often while the block lasts, and has what one before it left in ``home``."""
    with _relay(targets) as relay:
        (home / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": [*_jobs(targets, relay, scrapes)]}))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        process = subprocess.Popen(
            [
                *("prometheus", f"--config.file={home / 'prometheus.yaml'}", f"--storage.tsdb.path={home / 'tsdb'}"),
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        log = process.stderr
        try:
            _until_ready(process, log)
            reading = threading.Thread(target=log.read)  # or it would wait for us once the pipe is full
            reading.start()
            yield Prometheus(port)
        finally:
            process.terminate()
            process.wait()
            reading.join()
            log.close()


def _until_ready(process: "subprocess.Popen[str]", log: Any) -> None:
    guard = threading.Timer(GUARD, process.kill)
    guard.start()
    said = []
    try:
        for line in log:
            said.append(line)
            if "Server is ready" in line:
                return
        raise AssertionError("".join(said))
    finally:
        guard.cancel()


def _jobs(targets: Targets, port: int, scrapes: str) -> Iterator[dict[str, Any]]:
    for number, (job, instance) in enumerate(targets):
        labels = {"job": job, "instance": instance}
        yield {
            "job_name": f"target-{number}",
            "scrape_interval": scrapes,
            "scrape_timeout": "1s",
            "metrics_path": f"/{number}",
            "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": labels}],
        }


@contextmanager
def _relay(targets: Targets) -> Iterator[int]:
    """Prometheus stands outside of the namespaces that the speakers are in."""
    tell = [*targets.values()]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                status, body = 200, tell[int(re.sub(r"\D", "", self.path))]().encode()
            except Exception as error:  # a dead speaker is one of the things to be seen
                status, body = 503, repr(error).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            serving.join()
