"""Debian's Chromium without a screen, driven by its own chromedriver (W3C WebDriver, and DevTools where that has no
word for it)."""

import base64
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from http import HTTPStatus
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from typing import Any

GUARD = 180.0
"""Seconds; against a hang, not an expectation."""
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # root, or a user namespace that has no other in it
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
)
_UNTIL = """
const done = arguments[arguments.length - 1];
const well = () => { try { return (%s); } catch { return null; } };
const look = () => { const found = well(); if (found) { watching.disconnect(); done(found); } };
const watching = new MutationObserver(look);
watching.observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
look();
"""


def missing() -> str:
    """Why none can be driven here; '' where one can."""
    for program, package in (("chromium", "chromium"), ("chromedriver", "chromium-driver")):
        if shutil.which(program) is None:
            return f"no {program}: apt-get install {package}"
    return "" if find_spec("axe_core_python") else "no axe-core: pip install axe-core-python"


def axe() -> str:
    spec = find_spec("axe_core_python")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "axe.min.js").read_text()


class Chromium:
    """``inside()`` is where it is asked: a context of a network namespace, or of none."""

    def __init__(self, port: int, home: Path, inside: Any) -> None:
        self._port, self._inside, self._session = port, inside, ""
        options = {
            "args": [*ARGUMENTS, f"--user-data-dir={home}"],
            "binary": shutil.which("chromium"),
        }
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self._session = self._ask("POST", "", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        self._ask("POST", "/timeouts", {"script": round(GUARD * 1000)})

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        place = "/session" + (f"/{self._session}" if self._session else "") + path
        with self._inside(), closing(HTTPConnection("127.0.0.1", self._port, timeout=GUARD)) as driver:
            driver.request(method, place, json.dumps(body or {}), {"Content-Type": "application/json"})
            answer = driver.getresponse()
            said = json.load(answer)["value"]
        assert answer.status == HTTPStatus.OK, said
        return said

    def close(self) -> None:
        self._ask("DELETE", "")

    def open(self, url: str) -> None:
        self._ask("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """What the script ``return``s."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": arguments})

    def run_async(self, script: str) -> Any:
        return self._ask("POST", "/execute/async", {"script": script, "args": []})

    def until(self, expression: str) -> Any:
        """The first value of it that is true, looked at whenever the page changes."""
        return self.run_async(_UNTIL % expression)

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0]).innerText", selector))

    def keys(self, *pressed: str) -> None:
        """To whatever has the focus. Names are DevTools': Tab, Enter; a letter is itself."""
        for key in pressed:
            text = {"Enter": "\r", "Tab": ""}.get(key, key)
            code = {"Enter": 13, "Tab": 9}.get(key, 0)
            told = {"key": key, "text": text, "windowsVirtualKeyCode": code}
            self.devtools("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **told)
            self.devtools("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def look(self, *, width: int, height: int, theme: str) -> None:
        """As on such a screen. ``theme``: light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.devtools("Emulation.setDeviceMetricsOverride", **size)
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def picture(self) -> bytes:
        return base64.b64decode(self._ask("GET", "/screenshot"))

    def console(self) -> list[str]:
        """What it says of what went wrong since it was asked last."""
        return [each["message"] for each in self._ask("POST", "/se/log", {"type": "browser"})]

    def accessibility(self) -> list[str]:
        """What axe-core finds."""
        self.run(axe())
        found = self.run_async("const done = arguments[0]; axe.run().then((it) => done(it.violations))")
        return [f"{each['impact']}: {each['id']}: {[node['html'] for node in each['nodes']][:3]}" for each in found]


@contextmanager
def chromium(home: Path, inside: Any = nullcontext) -> Iterator[Chromium]:
    """One that is at work, with a fresh profile in ``home``."""
    with _driver(inside) as port:
        browser = Chromium(port, home, inside)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def _driver(inside: "type[AbstractContextManager[None]] | Any") -> Iterator[int]:
    with inside():
        process = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    guard = threading.Timer(GUARD, process.kill)
    guard.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"started successfully on port (\d+)", line):
                guard.cancel()
                yield int(found[1])
                return
        raise AssertionError("chromedriver does not start")
    finally:
        guard.cancel()
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
